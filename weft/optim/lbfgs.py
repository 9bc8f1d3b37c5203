"""L-BFGS, with a line search for the strong Wolfe conditions.

Note [L-BFGS]. All parameters are one vector x. With the last changes s of x and y of its gradient, the two-loop recursion
multiplies the gradient by an approximation of the inverse Hessian. How far to go along the direction d is `lr`, or is found by
a line search that brackets a point where f has fallen enough and its slope is small, with cubic interpolation. Every evaluation
of f calls the closure, so a step cannot be captured; the closure may be, or may call, a captured function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import shards
from ..autograd.tape import enable_grad, no_grad
from ..errors import user_location
from ..graph.capture.tracing import GraphBreak, capturing
from ..tensor import to_array, wrap
from ..typing import Params
from .group import update_dtype
from .optimizer import Optimizer

Evaluate = Callable[[float], tuple[float, np.ndarray]]

_VECTORS = ("d", "prev_flat_grad")
_NUMBERS = ("t", "H_diag", "prev_loss")
_COUNTS = ("func_evals", "n_iter")
_HISTORIES = ("old_dirs", "old_stps", "ro")


class LBFGS(Optimizer):
    """L-BFGS: a quasi-Newton method for smooth functions that are evaluated exactly, not on random batches.

    Args:
        params: parameters; there is one group.
        lr: the length of a step, or the first that a line search tries.
        max_iter: iterations per call of `step`.
        max_eval: evaluations of the function per call; 1.25 · max_iter by default.
        tolerance_grad: stop when no element of the gradient is larger.
        tolerance_change: stop when the function or the parameters change by less.
        history_size: how many changes the approximation of the Hessian is made of.
        line_search_fn: "strong_wolfe", or None for steps of length `lr`.

    >>> x = nn.Parameter(wf.tensor([3.0, -2.0]))
    >>> optimizer = optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - wf.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure); [round(v, 3) for v in x.tolist()]
    [1.0, 2.0]
    """

    counts_steps = False

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": float(tolerance_grad), "tolerance_change": float(tolerance_change),
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        self._params = self.param_groups[0].params
        self._memory: dict[str, Any] = {"func_evals": 0, "n_iter": 0}

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        if settings["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(
                f"LBFGS: line_search_fn must be 'strong_wolfe' or None. Got {settings['line_search_fn']!r}."
            )

    def add_param_group(self, group: Any) -> None:
        if self.param_groups:
            raise ValueError("LBFGS: all parameters belong to one group. Make one optimiser with all of them.")
        super().add_param_group(group)
        for p in self.param_groups[-1].params:
            if dtypes.is_complex(p.dtype):
                raise TypeError("LBFGS: complex parameters are not supported. Use SGD.")

    # The parameters as one vector --------------------------------------------------------------------------------------

    def _dtype(self) -> np.dtype:
        return np.result_type(*[update_dtype(p.dtype) for p in self._params])

    def _gradient(self) -> np.ndarray:
        parts = []
        for p in self._params:
            g = p.grad
            if g is None:
                parts.append(np.zeros(p.size, self._dtype()))
                continue
            g = g.to_dense() if hasattr(g, "to_dense") else g
            parts.append(np.asarray(g.detach()._array("LBFGS"), self._dtype()).reshape(-1))
        return np.concatenate(parts)

    def _position(self) -> list[np.ndarray]:
        return [p.detach()._array("LBFGS").copy() for p in self._params]

    def _move(self, start: list[np.ndarray], t: float, d: np.ndarray) -> None:
        """Set the parameters to `start` + t d."""
        first = 0
        with no_grad():
            for p, x in zip(self._params, start, strict=True):
                change = (t * d[first : first + x.size]).reshape(x.shape)
                p.copy_(wrap(np.asarray(x + change.astype(np.result_type(x.dtype, change.dtype)), x.dtype)))
                first += x.size

    # A step ------------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run up to `max_iter` iterations.

        Args:
            closure: clears the gradients, computes the loss, calls `backward` and returns the loss. It is called several
                times.

        Returns:
            The first loss.
        """
        if shards.current.shard is not None:
            return super().step(closure)  # which refuses
        if capturing() is not None:
            raise GraphBreak(
                "LBFGS.step",
                user_location(),
                "LBFGS: a step evaluates the loss a number of times that depends on its values, so it cannot be captured. Call "
                "`optimizer.step(closure)` outside; the closure may call a captured function.",
            )
        if closure is None:
            raise TypeError(
                "LBFGS: step needs a closure that computes the loss and its gradients: `optimizer.step(closure)`."
            )

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        group, memory = self.param_groups[0], self._memory
        first_loss = evaluate()
        loss, gradient = float(first_loss), self._gradient()
        evaluations = 1
        memory["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            memory["n_iter"] += 1
            d = self._direction(gradient)
            memory.update(d=d, prev_flat_grad=gradient.copy(), prev_loss=loss)
            lr = group["lr"]
            t = min(1.0, 1.0 / float(np.abs(gradient).sum())) * lr if memory["n_iter"] == 1 else lr
            slope = float(gradient @ d)
            memory["t"] = t
            if slope > -group["tolerance_change"]:
                break
            start, used, before = self._position(), 0, loss
            if group["line_search_fn"] is not None:

                def along(t: float, start: list[np.ndarray] = start, d: np.ndarray = d) -> tuple[float, np.ndarray]:
                    self._move(start, t, d)
                    return float(evaluate()), self._gradient()

                limit = group["max_eval"] - evaluations
                loss, gradient, t, used = strong_wolfe(along, t, d, loss, gradient, slope, limit)
                self._move(start, t, d)
            else:
                self._move(start, t, d)
                if iteration != group["max_iter"]:
                    loss, gradient, used = float(evaluate()), self._gradient(), 1
            memory["t"] = t
            evaluations += used
            memory["func_evals"] += used
            if evaluations >= group["max_eval"] or _largest(gradient) <= group["tolerance_grad"]:
                break
            if _largest(d * t) <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break
        return first_loss

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """The descent direction: minus the approximate inverse Hessian times the gradient."""
        memory = self._memory
        if memory["n_iter"] == 1:
            memory.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        y, s = gradient - memory["prev_flat_grad"], memory["d"] * memory["t"]
        ys = float(y @ s)
        if ys > 1e-10:
            if len(memory["old_dirs"]) == self.param_groups[0]["history_size"]:
                for name in _HISTORIES:
                    memory[name].pop(0)
            memory["old_dirs"].append(y)
            memory["old_stps"].append(s)
            memory["ro"].append(1.0 / ys)
            memory["H_diag"] = ys / float(y @ y)
        q = -gradient
        history = list(zip(memory["old_dirs"], memory["old_stps"], memory["ro"], strict=True))
        weights = []
        for y, s, rho in reversed(history):
            weights.append(float(s @ q) * rho)
            q = q - weights[-1] * y
        r = q * memory["H_diag"]
        for (y, s, rho), weight in zip(history, reversed(weights), strict=True):
            r = r + (weight - float(y @ r) * rho) * s
        return r.astype(gradient.dtype, copy=False)

    # State -------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Settings and state; the state of the whole vector belongs to parameter 0, as in PyTorch."""
        found = super().state_dict()
        memory: dict[str, Any] = {}
        for name, value in self._memory.items():
            if name in _HISTORIES:
                value = np.stack(value) if value else np.zeros((0, 0))
            memory[name] = wrap(np.asarray(value, np.int64 if name in _COUNTS else None))
        found["state"] = [memory if i == 0 and self._memory["n_iter"] else {} for i in range(len(self._params))]
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned, here or in PyTorch."""
        states = state_dict.get("state", {}) if isinstance(state_dict, Mapping) else {}
        own = dict(states.get(0, {}) if isinstance(states, Mapping) else states[0] if states else {})
        super().load_state_dict({**state_dict, "state": [{} for _ in self._params]})
        size = sum(p.size for p in self._params)
        memory: dict[str, Any] = {"func_evals": 0, "n_iter": 0}
        for name in (*_VECTORS, *_NUMBERS, *_COUNTS, *_HISTORIES):
            value = own.get(name)
            if value is None:
                continue
            if name in _HISTORIES:
                rows = [to_array(v) for v in value] if isinstance(value, (list, tuple)) else list(to_array(value))
                memory[name] = [float(r) for r in rows] if name == "ro" else [r.astype(self._dtype()) for r in rows]
            elif name in _VECTORS:
                memory[name] = to_array(value).astype(self._dtype())
                if memory[name].shape != (size,):
                    raise ValueError(
                        f"LBFGS: state {name!r} has shape {memory[name].shape}, expected ({size},), the number of all parameters."
                    )
            else:
                memory[name] = int(value) if name in _COUNTS else float(value)
        self._memory = memory


def _largest(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0.0))


class _Point:
    """A point of the line search: position, value, gradient and slope."""

    __slots__ = ("t", "f", "g", "slope")

    def __init__(self, t: float, f: float, g: np.ndarray, slope: float) -> None:
        self.t, self.f, self.g, self.slope = t, f, g, slope


def cubic_minimum(a: _Point, b: _Point, low: float, high: float) -> float:
    """The minimum of the cubic through two points with their slopes, moved into [low, high]."""
    with np.errstate(all="ignore"):
        d1 = a.slope + b.slope - 3 * float(np.divide(a.f - b.f, a.t - b.t))
        square = d1 * d1 - a.slope * b.slope
        if not square >= 0:
            return (low + high) / 2.0
        d2 = math.sqrt(square)
        first, second = (a, b) if a.t <= b.t else (b, a)
        share = float(np.divide(second.slope + d2 - d1, second.slope - first.slope + 2 * d2))
    return min(max(second.t - (second.t - first.t) * share, low), high)


def strong_wolfe(
    evaluate: Evaluate,
    t: float,
    d: np.ndarray,
    f: float,
    g: np.ndarray,
    slope: float,
    max_evaluations: int = 25,
    decrease: float = 1e-4,
    curvature: float = 0.9,
    tolerance_change: float = 1e-9,
) -> tuple[float, np.ndarray, float, int]:
    """A point along `d` where the strong Wolfe conditions hold, or the best one found.

    Args:
        evaluate: value and gradient at a position along `d`.
        t: the first position to try.
        d: the direction.
        f, g, slope: value, gradient and slope at 0.
        max_evaluations: how many positions may be tried after the first.
        decrease, curvature: the constants c₁ and c₂ of the conditions.
        tolerance_change: stop when the bracket is shorter.

    Returns:
        Value, gradient, position, and how often `evaluate` was called.
    """

    def at(t: float) -> _Point:
        value, gradient = evaluate(t)
        return _Point(t, value, gradient, float(gradient @ d))

    origin = previous = _Point(0.0, f, g, slope)
    point, tried, count = at(t), 0, 1
    done, bracket = False, [origin, point]
    while tried < max_evaluations:
        if point.f > f + decrease * point.t * slope or tried > 1 and point.f >= previous.f:
            bracket = [previous, point]
            break
        if abs(point.slope) <= -curvature * slope:
            bracket, done = [point], True
            break
        if point.slope >= 0:
            bracket = [previous, point]
            break
        further = cubic_minimum(previous, point, point.t + 0.01 * (point.t - previous.t), point.t * 10)
        previous, point = point, at(further)
        tried, count = tried + 1, count + 1
    else:
        bracket = [origin, point]
    low, high = (0, 1) if bracket[0].f <= bracket[-1].f else (1, 0)
    stuck, reach = False, _largest(d)
    while not done and tried < max_evaluations:
        left, right = sorted((bracket[0].t, bracket[1].t))
        if (right - left) * reach < tolerance_change:
            break
        t = cubic_minimum(bracket[0], bracket[1], left, right)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # near an end: go inside, if that happens twice or at the end itself
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = at(t)
        tried, count = tried + 1, count + 1
        if point.f > f + decrease * t * slope or point.f >= bracket[low].f:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
        else:
            if abs(point.slope) <= -curvature * slope:
                done = True
            elif point.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
    best = bracket[low] if len(bracket) > 1 else bracket[0]
    return best.f, best.g, best.t, count
