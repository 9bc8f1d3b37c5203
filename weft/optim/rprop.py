"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

from ..ops.array.elementwise import clip, sign, where
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer


class Rprop(Optimizer):
    """Rprop (Riedmiller and Braun, 1993): each element has a step size that grows while its gradient keeps its sign.

    It is meant for gradients of whole datasets, not of random batches.

    Args:
        params: parameters or groups of them.
        lr: the initial step size.
        etas: factors of the step size after a change of sign, and without one.
        step_sizes: the smallest and the largest step size.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.Rprop([p], lr=0.5).step(); p.tolist()
    [0.5, 0.5]
    """

    counts_steps = False
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "etas": tuple([float(e) for e in etas]), "step_sizes": tuple([float(s) for s in step_sizes]),
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        low, high = settings["etas"]
        if not 0.0 < low < 1.0 < high:
            raise ValueError(f"Rprop: etas must be a number below 1 and one above. Got {settings['etas']}.")

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        size = self.zeros(p)
        size += group["lr"]
        return {"prev": self.zeros(p), "step_size": size}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        previous, size = state["prev"], state["step_size"]
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        if group["maximize"]:
            g = -g
        agreement = g * previous
        factor = where(agreement > 0, grow, where(agreement < 0, shrink, 1.0))
        size.copy_(clip(size * factor, least, most))
        g = where(agreement < 0, 0.0, g)  # after a change of sign the element rests for a step
        p -= sign(g) * size
        previous.copy_(g)
