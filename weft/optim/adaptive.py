"""Optimisers that scale each element by the size of its past gradients."""

from __future__ import annotations

from typing import Any

from ..ops.array.elementwise import sqrt
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer
from .steps import descend, gather_speed, running_mean, running_square


class RMSprop(Optimizer):
    """v ← alpha · v + (1 - alpha) · g²; p ← p - lr · g / (√v + eps).

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        alpha: decay rate of the running mean square.
        eps: added to the denominator.
        weight_decay: L2 penalty.
        momentum: momentum factor.
        centered: subtract the squared running mean from the mean square.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.RMSprop([p], lr=0.05).step(); [round(v, 3) for v in p.tolist()]
    [0.5, 0.5]
    """

    counts_steps = False
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "alpha": float(alpha), "eps": float(eps), "weight_decay": float(weight_decay),
            "momentum": float(momentum), "centered": centered, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        state = {"square_avg": self.zeros(p)}
        if group["momentum"]:
            state["momentum_buffer"] = self.zeros(p)
        if group["centered"]:
            state["grad_avg"] = self.zeros(p)
        return state

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        return {"rate": 1.0 - group["alpha"]}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        v, rate = state["square_avg"], group["rate"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        running_square(v, g, rate)
        if group["centered"]:
            mean = state["grad_avg"]
            running_mean(mean, g, rate)
            v = v - mean * mean
        direction = g / (sqrt(v) + group["eps"])
        if group["momentum"]:
            buffer = state["momentum_buffer"]
            direction = gather_speed(buffer, direction, group["momentum"])
        descend(p, direction, group["lr"])


class Adagrad(Optimizer):
    """Adagrad: s ← s + g²; p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps).

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        lr_decay: decay of the learning rate over the steps t.
        weight_decay: L2 penalty.
        initial_accumulator_value: initial value of s.
        eps: added to the denominator.
        maximize: ascend instead of descend.

    A row-sparse gradient updates only its rows.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.Adagrad([p], lr=0.5).step(); p.tolist()
    [0.5, 0.5]
    """

    rowwise = True
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "lr_decay": float(lr_decay), "weight_decay": float(weight_decay),
            "initial_accumulator_value": float(initial_accumulator_value), "eps": float(eps), "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        total = self.zeros(p)
        total += group["initial_accumulator_value"]
        return {"sum": total}

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        if step is None or not group["lr_decay"]:
            return {"rate": group["lr"]}
        return {"rate": group["lr"] / (1.0 + (step - 1.0) * group["lr_decay"])}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        total = state["sum"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        total += g * g
        p -= group["rate"] * g / (sqrt(total) + group["eps"])


class Adadelta(Optimizer):
    """Adadelta: p ← p - lr · g · √(d + eps) / √(v + eps), d and v running mean squares.

    Args:
        params: parameters or groups of them.
        lr: a factor on the step.
        rho: decay rate of the running means.
        eps: added under the roots.
        weight_decay: L2 penalty.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.Adadelta([p]).step(); bool((p < 1).all())
    True
    """

    counts_steps = False
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "rho": float(rho), "eps": float(eps), "weight_decay": float(weight_decay), "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"square_avg": self.zeros(p), "acc_delta": self.zeros(p)}

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        return {"rate": 1.0 - group["rho"]}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        v, d, eps = state["square_avg"], state["acc_delta"], group["eps"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        running_square(v, g, group["rate"])
        delta = g * sqrt(d + eps) / sqrt(v + eps)
        running_square(d, delta, group["rate"])
        descend(p, delta, group["lr"])


class Lion(Optimizer):
    """Lion (evolved sign momentum): p ← p - lr · (sign(β₁ m + (1 - β₁) g) + weight_decay · p).

    Args:
        params: parameters or groups of them.
        lr: learning rate, three to ten times smaller than for AdamW.
        betas: β₁ weighs m in the update direction, β₂ in the running mean m ← β₂ m + (1 - β₂) g.
        weight_decay: decoupled weight decay, three to ten times larger than for AdamW.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.Lion([p], lr=0.5).step(); p.tolist()
    [0.5, 0.5]
    """

    counts_steps = False
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "weight_decay": float(weight_decay),
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"exp_avg": self.zeros(p)}

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {"rate1": 1.0 - beta1, "rate2": 1.0 - beta2, "decay": 1.0 - group["lr"] * group["weight_decay"]}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        m = state["exp_avg"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            p *= group["decay"]
        difference = g - m
        p -= group["lr"] * (m + difference * group["rate1"]).sign()
        m += difference * group["rate2"]
