"""Adafactor: second moments of matrices as products of rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..ops.array.elementwise import maximum, minimum, sqrt
from ..ops.array.reduction import mean
from ..tensor import Tensor, wrap
from ..typing import Params
from .group import update_dtype
from .optimizer import Optimizer
from .steps import running_mean


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), with PyTorch's use of `lr`: it bounds the relative step size.

    The mean squares of a matrix of shape (n, m) are kept as n + m numbers. Steps are relative to the root mean square of the
    parameter, and clipped.

    Args:
        params: parameters or groups of them.
        lr: bound of the relative step size ρ = min(lr, 1 / √t), and factor of the weight decay.
        beta2_decay: the decay rate of the mean squares at step t is 1 - t^beta2_decay.
        eps: lower bounds of the mean squares (None: the spacing of the dtype) and of the parameter's size.
        d: bound of the root mean square of an update, from which on it is scaled down.
        weight_decay: decoupled weight decay.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2, 3)); p.grad = wf.ones(2, 3)
    >>> optim.Adafactor([p]).step(); bool((p < 1).all())
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "beta2_decay": float(beta2_decay), "eps": tuple(eps), "d": float(d),
            "weight_decay": float(weight_decay), "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check({k: v for k, v in settings.items() if k != "eps"})
        first, second = settings["eps"]
        if first is not None and not first >= 0 or not second >= 0:
            raise ValueError(f"Adafactor: eps must not be negative. Got {settings['eps']}.")
        if not settings["beta2_decay"] <= 0:
            raise ValueError(f"Adafactor: beta2_decay must be 0 or negative. Got {settings['beta2_decay']}.")
        if not settings["d"] >= 1:
            raise ValueError(f"Adafactor: d must be at least 1. Got {settings['d']}.")

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        if p.ndim < 2:
            return {"variance": self.zeros(p)}
        rows, columns = self.state_shapes(p)
        dtype = update_dtype(p.dtype)
        return {"row_var": wrap(np.zeros(rows, dtype)), "col_var": wrap(np.zeros(columns, dtype))}

    def state_shapes(self, p: Tensor) -> tuple[tuple[int, ...], ...]:
        shape = tuple(p.shape)
        return () if p.ndim < 2 else ((*shape[:-1], 1), (*shape[:-2], 1, shape[-1]))

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        assert step is not None
        return {
            "rate": step ** group["beta2_decay"],
            "rho": minimum(group["lr"], 1.0 / sqrt(step)),
            "decay": 1.0 - group["lr"] * group["weight_decay"],
        }

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        least = float(dtypes.finfo(p.dtype).eps) if group["eps"][0] is None else group["eps"][0]
        if group["maximize"]:
            g = -g
        alpha = maximum(sqrt(mean(p * p)), group["eps"][1]) * group["rho"]
        if group["weight_decay"]:
            p *= group["decay"]
        square = g * g
        if p.ndim < 2:
            variance = state["variance"]
            running_mean(variance, square, group["rate"])
            estimate = variance
        else:
            rows, columns = state["row_var"], state["col_var"]
            running_mean(rows, mean(square, axis=-1, keepdims=True), group["rate"])
            running_mean(columns, mean(square, axis=-2, keepdims=True), group["rate"])
            estimate = rows * columns / maximum(mean(rows, axis=-2, keepdims=True), least)
        update = g / sqrt(maximum(estimate, least * least))
        size = sqrt(mean(update * update))
        p -= alpha / maximum(size / group["d"], 1.0) * update
