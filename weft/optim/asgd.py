"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..ops.array.elementwise import maximum
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer
from .steps import descend, running_mean


class ASGD(Optimizer):
    """Averaged SGD (Polyak and Juditsky, 1992): p ← (1 - lambd · η) · p - η · g with a falling η, and the mean `ax` of p.

    η at step t is lr / (1 + lambd · lr · (t - 1))^alpha. The mean is in the state: `optimizer.state[p]["ax"]`.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        lambd: decay term.
        alpha: power of the decay of the learning rate.
        t0: the step from which on parameters are averaged; before it `ax` is the parameter.
        weight_decay: L2 penalty.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.ASGD([p], lr=0.5, lambd=0.0).step(); p.tolist()
    [0.5, 0.5]
    """

    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "lambd": float(lambd), "alpha": float(alpha), "t0": float(t0),
            "weight_decay": float(weight_decay), "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"ax": self.zeros(p)}

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        assert step is not None
        before = step - 1.0
        eta = group["lr"] / (1.0 + group["lambd"] * group["lr"] * before) ** group["alpha"]
        return {"eta": eta, "shrink": 1.0 - group["lambd"] * eta, "mu": 1.0 / maximum(before - group["t0"], 1.0)}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if group["lambd"]:
            p *= group["shrink"]
        descend(p, g, group["eta"])
        running_mean(state["ax"], p.detach(), group["mu"])
