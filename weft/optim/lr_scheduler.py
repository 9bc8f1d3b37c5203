"""Learning-rate schedules.

A schedule is a closed form: `lr_at(t, base, group)` is the learning rate after t steps of a group with base rate `base`,
so schedules can be plotted without training, resumed from one integer, and combined. Call `scheduler.step()` after
`optimizer.step()`, outside of captured functions; they use the new rate.

>>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
>>> schedule = optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.1)
>>> [round(schedule.lr_at(t, 1.0), 3) for t in range(5)]
[1.0, 1.0, 0.1, 0.1, 0.01]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .optimizer import Optimizer


def _check_optimizer(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{name}: expected an optimizer. Got {type(optimizer).__name__}. Write "
            f"`{name}(optim.SGD(model.parameters(), lr=0.1), …)`."
        )


def _check_schedules(name: str, schedulers: Any) -> None:
    if not isinstance(schedulers, (list, tuple)):
        raise TypeError(f"{name}: expected a list of schedules. Got {type(schedulers).__name__}.")
    for s in schedulers:
        if not isinstance(s, LRScheduler):
            raise TypeError(f"{name}: expected a list of schedules. It has a {type(s).__name__}.")


class LRScheduler:
    """Base class of schedules; subclasses define `lr_at`.

    Args:
        optimizer: whose groups are scheduled; their current rates are the base rates.
        last_epoch: the last completed step when resuming; -1 to start.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _check_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        """Learning rate of group number `group` with base rate `base` after `t` steps."""
        raise NotImplementedError(f"{type(self).__name__}: define `lr_at(self, t, base, group)`.")

    def step(self) -> None:
        """Advance one step and set the learning rates."""
        self.last_epoch += 1
        self._apply()

    def _apply(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self.lr_at(self.last_epoch, self.base_lrs[i], i)

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule, as plain values."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, and set the learning rates accordingly."""
        if len(state["base_lrs"]) != len(self.optimizer.param_groups):
            raise ValueError(
                f"{type(self).__name__}: the state has {len(state['base_lrs'])} groups, the optimiser "
                f"{len(self.optimizer.param_groups)}."
            )
        self.last_epoch, self.base_lrs = int(state["last_epoch"]), [float(x) for x in state["base_lrs"]]
        self._apply()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step {self.last_epoch}, lr {self.get_last_lr()})"


class LambdaLR(LRScheduler):
    """Multiply the base rate by f(t).

    Args:
        lr_lambda: one function of the step, or one per group.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.LambdaLR(opt, lambda t: 0.5**t)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(type(self).__name__, optimizer)
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"LambdaLR: expected {count} functions, one per group. Got {len(self.lr_lambdas)}.")
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * self.lr_lambdas[group](t)


class MultiplicativeLR(LambdaLR):
    """Multiply the rate by f(t) at each step: base · f(1) · … · f(t).

    Args:
        lr_lambda: one function of the step, or one per group.
    """

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        # Products are cached: a run of n steps calls the function n times, not n² times.
        products = self.__dict__.setdefault("_products", {}).setdefault(group, [1.0])
        while len(products) <= t:
            products.append(products[-1] * self.lr_lambdas[group](len(products)))
        return base * products[t]


class ConstantLR(LRScheduler):
    """Scale the base rate by `factor` for the first `total_iters` steps.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.ConstantLR(opt, factor=0.5, total_iters=2)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * self.factor if t < self.total_iters else base


class LinearLR(LRScheduler):
    """Scale the base rate by a factor going linearly from `start_factor` to `end_factor` over `total_iters` steps.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.LinearLR(opt, start_factor=0.5, total_iters=2)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(4)]
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if total_iters < 1 or start_factor < 0 or end_factor < 0:
            raise ValueError(
                "LinearLR: needs total_iters of at least 1 and factors that are not negative. "
                f"Got {total_iters}, {start_factor}, {end_factor}."
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        part = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * part)


class LinearWarmup(LinearLR):
    """Linear warm-up from base / warmup_steps to base over `warmup_steps` steps, constant afterwards.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.LinearWarmup(opt, warmup_steps=4)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, warmup_steps: int, last_epoch: int = -1) -> None:
        super().__init__(optimizer, 1 / warmup_steps, 1.0, max(warmup_steps - 1, 1), last_epoch)


class StepLR(LRScheduler):
    """Multiply the rate by `gamma` every `step_size` steps.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.StepLR(opt, step_size=2)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(5)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1. Got {step_size}.")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * self.gamma ** (t // self.step_size)


class MultiStepLR(LRScheduler):
    """Multiply the rate by `gamma` at each milestone.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.MultiStepLR(opt, milestones=[1, 3])
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(5)]
    [1.0, 0.1, 0.1, 0.01, 0.01]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * self.gamma ** sum(t >= m for m in self.milestones)


class ExponentialLR(LRScheduler):
    """Exponential decay: base · gammaᵗ.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(4)]
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * self.gamma**t


class PolynomialLR(LRScheduler):
    """Polynomial decay to 0: base · (1 - t / total_iters)^power.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.PolynomialLR(opt, total_iters=4)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(6)]
    [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return base * (1.0 - min(t, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Cosine annealing from the base rate to `eta_min` in `T_max` steps (rising again afterwards).

    Args:
        T_max: steps from the base rate to the minimum.
        eta_min: the minimum.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: T_max must be at least 1. Got {T_max}.")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing with warm restarts.

    Args:
        T_0: steps of the first period.
        T_mult: factor by which each period is longer than the one before.
        eta_min: the minimum at the end of each period.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2)
    >>> [round(schedule.lr_at(t, 1.0), 3) for t in range(5)]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ValueError(f"CosineAnnealingWarmRestarts: T_0 and T_mult must be at least 1. Got {T_0}, {T_mult}.")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        length = self.T_0
        if self.T_mult == 1:
            t %= length
        else:
            while t >= length:
                t, length = t - length, length * self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / length)) / 2


def _per_group(name: str, optimizer: Optimizer, value: float | Sequence[float]) -> list[float]:
    """One number, or one per group, as one per group."""
    groups = len(optimizer.param_groups)
    values = [float(value)] * groups if isinstance(value, (int, float)) else [float(v) for v in value]
    if len(values) != groups:
        raise ValueError(f"{name}: expected one number, or {groups}, one per group. Got {len(values)}.")
    return values


def _check_momentum(name: str, optimizer: Optimizer) -> None:
    if not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
        raise ValueError(f"{name}: the optimiser has no momentum. Pass cycle_momentum=False.")


def _set_momentum(optimizer: Optimizer, value: float) -> None:
    for group in optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(LRScheduler):
    """One-cycle policy: rise to `max_lr`, then anneal to near zero; momentum (or β₁) moves inversely.

    Args:
        max_lr: the peak, one number or one per group.
        total_steps: steps of the whole cycle (or `epochs` and `steps_per_epoch`).
        pct_start: fraction of the steps in the rising phase.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the momentum from `max_momentum` down to `base_momentum` and back.
        div_factor: the start is max_lr / div_factor.
        final_div_factor: the end is the start / final_div_factor.
        three_phase: fall back to the start symmetrically, then anneal to the end.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=10, anneal_strategy="linear")
    >>> [round(schedule.lr_at(t, 1.0), 2) for t in range(10)]
    [0.04, 0.52, 1.0, 0.86, 0.71, 0.57, 0.43, 0.29, 0.14, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer("OneCycleLR", optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch.")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                "OneCycleLR: needs total_steps of at least 1, pct_start from 0 to 1, and anneal_strategy 'cos' or "
                f"'linear'. Got {total_steps}, {pct_start}, {anneal_strategy!r}."
            )
        self.max_lrs = _per_group("OneCycleLR", optimizer, max_lr)
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        up = pct_start * total_steps - 1
        # (last step of the phase, value it goes to): 0 is the start, 1 the peak, 2 the end
        if three_phase:
            self.phases = [(up, 0, 1), (2 * up, 1, 0), (total_steps - 1.0, 0, 2)]
        else:
            self.phases = [(up, 0, 1), (total_steps - 1.0, 1, 2)]
        if cycle_momentum:
            _check_momentum("OneCycleLR", optimizer)
        super().__init__(optimizer, last_epoch)

    def _between(self, t: int, values: tuple[float, float, float]) -> float:
        start, t = 0.0, min(t, self.total_steps - 1)
        for i, (end, source, target) in enumerate(self.phases):
            if t <= end or i == len(self.phases) - 1:
                part = (t - start) / (end - start) if end > start else 1.0
                a, b = values[source], values[target]
                if self.anneal_strategy == "linear":
                    return a + (b - a) * part
                return b + (a - b) / 2 * (1 + math.cos(math.pi * part))
            start = end
        raise AssertionError("the last phase has no end")

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        if t > self.total_steps:  # allow the step() that follows the last update
            raise ValueError(f"OneCycleLR: step {t} is beyond total_steps={self.total_steps}.")
        start = self.max_lrs[group] / self.div_factor
        return self._between(t, (start, self.max_lrs[group], start / self.final_div_factor))

    def _apply(self) -> None:
        super()._apply()
        if self.cycle_momentum:
            value = self._between(self.last_epoch, (self.max_momentum, self.base_momentum, self.max_momentum))
            _set_momentum(self.optimizer, value)


class CyclicLR(LRScheduler):
    """Cycle between two rates; momentum (or β₁) moves inversely.

    Args:
        base_lr, max_lr: the lowest and the highest rate, one number or one per group.
        step_size_up, step_size_down: steps of the rising and of the falling part; both the same by default.
        mode: "triangular"; "triangular2" halves the amplitude after each cycle; "exp_range" scales it by gamma each step.
        gamma: for "exp_range".
        cycle_momentum: move the momentum from `max_momentum` down to `base_momentum` and back.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.CyclicLR(opt, 0.0, 1.0, step_size_up=2)
    >>> [schedule.lr_at(t, 1.0) for t in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer("CyclicLR", optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        if mode not in ("triangular", "triangular2", "exp_range") or step_size_up < 1 or down < 1:
            raise ValueError(
                "CyclicLR: needs mode 'triangular', 'triangular2' or 'exp_range' and step sizes of at least 1. "
                f"Got {mode!r}, {step_size_up}, {down}."
            )
        self.lows, self.highs = _per_group("CyclicLR", optimizer, base_lr), _per_group("CyclicLR", optimizer, max_lr)
        self.up, self.down, self.mode, self.gamma = step_size_up, down, mode, gamma
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        if cycle_momentum:
            _check_momentum("CyclicLR", optimizer)
        super().__init__(optimizer, last_epoch)

    def _height(self, t: int) -> float:
        """Where between the two rates step `t` is, from 0 to 1."""
        cycle, place = divmod(t, self.up + self.down)
        height = place / self.up if place <= self.up else 1.0 - (place - self.up) / self.down
        return height * {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**t}[self.mode]

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        return self.lows[group] + (self.highs[group] - self.lows[group]) * self._height(t)

    def _apply(self) -> None:
        super()._apply()
        if self.cycle_momentum:
            span = self.max_momentum - self.base_momentum
            _set_momentum(self.optimizer, self.max_momentum - span * self._height(self.last_epoch))


class SequentialLR(LRScheduler):
    """Run schedules one after the other.

    Args:
        schedulers: schedules of the same optimiser.
        milestones: the steps at which the second, third … schedule starts, each from its own t = 0.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> warmup = optim.lr_scheduler.LinearWarmup(opt, 2)
    >>> decay = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> schedule = optim.lr_scheduler.SequentialLR(opt, [warmup, decay], milestones=[2])
    >>> [schedule.lr_at(t, 1.0) for t in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check_optimizer("SequentialLR", optimizer)
        _check_schedules("SequentialLR", schedulers)
        if len(milestones) != len(schedulers) - 1 or list(milestones) != sorted(milestones):
            raise ValueError(
                f"SequentialLR: expected {len(schedulers) - 1} rising milestones for {len(schedulers)} schedules. "
                f"Got {list(milestones)}."
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR: all schedules must belong to the same optimiser.")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        i = sum(t >= m for m in self.milestones)
        return self.schedulers[i].lr_at(t - (self.milestones[i - 1] if i else 0), base, group)


class ChainedScheduler(LRScheduler):
    """Combine schedules by multiplying their factors: base · Π (lrᵢ(t) / base)."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        _check_schedules("ChainedScheduler", schedulers)
        if not schedulers:
            raise ValueError("ChainedScheduler: there are no schedules.")
        self.schedulers = list(schedulers)
        super().__init__(optimizer or schedulers[0].optimizer)

    def lr_at(self, t: int, base: float, group: int = 0) -> float:
        if base == 0:
            return 0.0
        return base * math.prod(s.lr_at(t, base, group) / base for s in self.schedulers)


class ReduceLROnPlateau:
    """Multiply the rates by `factor` when a metric has not improved for more than `patience` steps.

    Args:
        optimizer: whose groups are scheduled.
        mode: "min" if smaller is better, "max" if larger is.
        factor: what the rate is multiplied by.
        patience: steps without improvement to tolerate.
        threshold, threshold_mode: minimum improvement that counts, relative ("rel") or absolute ("abs").
        cooldown: steps after a reduction during which bad steps are not counted.
        min_lr: lower bound of the rate, one number or one per group.
        eps: smaller changes of the rate are skipped.

    >>> opt = optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0)
    >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
    >>> for loss in [1.0, 2.0]: schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        _check_optimizer("ReduceLROnPlateau", optimizer)
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or not factor < 1:
            raise ValueError(
                "ReduceLROnPlateau: needs mode 'min' or 'max', threshold_mode 'rel' or 'abs' and a factor below 1. "
                f"Got {mode!r}, {threshold_mode!r}, {factor}."
            )
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = _per_group("ReduceLROnPlateau", optimizer, min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def is_better(self, value: float, best: float) -> bool:
        """Whether `value` improves on `best` by more than the threshold."""
        if math.isinf(best):
            return value != best and not math.isnan(value)
        sign = 1.0 if self.mode == "min" else -1.0
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return value < best - margin if sign > 0 else value > best + margin

    def step(self, metric: Any) -> None:
        """Record the metric of this step (a number or a tensor with one element)."""
        value = float(metric)
        self.last_epoch += 1
        if self.is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                new = max(group["lr"] * self.factor, least)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule, as plain values."""
        best = None if math.isinf(self.best) else self.best
        return {
            "best": best, "num_bad_epochs": self.num_bad_epochs, "cooldown_counter": self.cooldown_counter,
            "last_epoch": self.last_epoch, "lrs": self.get_last_lr(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, and set the learning rates accordingly."""
        best = state["best"]
        self.best = (math.inf if self.mode == "min" else -math.inf) if best is None else float(best)
        self.num_bad_epochs, self.cooldown_counter = int(state["num_bad_epochs"]), int(state["cooldown_counter"])
        self.last_epoch = int(state["last_epoch"])
        for group, lr in zip(self.optimizer.param_groups, state["lrs"], strict=True):
            group["lr"] = lr
