"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..ops.array.elementwise import where
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer
from .steps import descend, gather_speed


class SGD(Optimizer):
    """SGD with momentum: p ← p - lr · v with v ← momentum · v + (1 - dampening) · g and g the gradient plus weight_decay · p.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        momentum: momentum factor.
        dampening: dampening of the gradient in the momentum buffer (not in the first step).
        weight_decay: L2 penalty.
        nesterov: use Nesterov momentum.
        maximize: ascend instead of descend.

    Without momentum a row-sparse gradient updates only its rows (weight decay included).

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.SGD([p], lr=0.5).step(); p.tolist()
    [0.5, 0.5]
    """

    rowwise = True
    takes_complex = True
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "momentum": float(momentum), "dampening": float(dampening), "weight_decay": float(weight_decay),
            "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        if settings["nesterov"] and (settings["momentum"] <= 0 or settings["dampening"] != 0):
            raise ValueError("SGD: nesterov needs momentum and no dampening.")
        self.counts_steps = self.__dict__.get("counts_steps", False) or bool(settings["dampening"])

    counts_steps = False

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"momentum_buffer": self.zeros(p)} if group["momentum"] else {}

    def updates_rows(self, group: dict[str, Any]) -> bool:
        return not group["momentum"]

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if group["momentum"]:
            v = state.get("momentum_buffer")
            if v is None:  # momentum was switched on later
                raise ValueError("SGD: momentum was 0 when training began. Make a new optimiser to use momentum.")
            gather_speed(v, self._dampened(g, state, group), group["momentum"])
            g = g + group["momentum"] * v if group["nesterov"] else v
        descend(p, g, group["lr"])

    @staticmethod
    def _dampened(g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        if not group["dampening"]:
            return g
        return g * where(state["step"] == 1.0, 1.0, 1.0 - group["dampening"])
