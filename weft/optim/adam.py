"""Adam and its kin: running means of the gradient and of its square."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise import maximum, sqrt
from ..tensor import Tensor
from .optimizer import Optimizer
from .steps import descend_scaled, running_mean, running_square


class Adam(Optimizer):
    """m, v ← running means of g and g²; p ← p - lr · m̂ / (√v̂ + eps), with m̂ and v̂ corrected for their start at zero.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: how much of the running means of g and of g² is kept.
        eps: added to the root.
        weight_decay: L2 penalty (see `AdamW` for decay apart from the gradient).
        amsgrad: divide by the largest mean square so far.
        maximize: climb instead of descend.
        lazy: a row-sparse gradient updates parameters and means of its rows only; without it, it is made dense.

    >>> import weft as wf
    >>> from weft import nn, optim
    >>> p = nn.Parameter(wf.ones(1)); p.grad = wf.ones(1)
    >>> optim.Adam([p], lr=0.5).step(); round(p.item(), 4)
    0.5
    """

    decoupled = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "amsgrad": amsgrad, "maximize": maximize, "lazy": lazy,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        names = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        return {name: self.zeros(p) for name in names}

    def updates_rows(self, group: dict[str, Any]) -> bool:
        return group["lazy"]

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {
            "rate1": 1.0 - beta1,
            "rate2": 1.0 - beta2,
            "step_size": group["lr"] / (1.0 - beta1**step),
            "scale": 1.0 / sqrt(1.0 - beta2**step),
            "decay": 1.0 - group["lr"] * group["weight_decay"],
        }

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        m, v = state["exp_avg"], state["exp_avg_sq"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            if self.decoupled:
                p *= group["decay"]
            else:
                g = g + group["weight_decay"] * p
        running_mean(m, g, group["rate1"])
        running_square(v, g, group["rate2"])
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.maximum_(v)
            v = largest
        descend_scaled(p, m, v, group["step_size"], group["scale"], group["eps"])


class AdamW(Adam):
    """Adam whose weight decay is apart from the gradient: p ← (1 - lr · weight_decay) · p first. Arguments as for Adam."""

    decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, lazy=lazy)


class SparseAdam(Adam):
    """Adam for embeddings with `sparse=True`: only the rows that were looked up change. `Adam(lazy=True)` by name."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, maximize=maximize, lazy=True)


class Adamax(Optimizer):
    """Adam with the largest recent gradient instead of the mean square: p ← p - lr/(1 - β₁ᵗ) · m / u.

    Args:
        params, lr, betas, eps, weight_decay, maximize: as for `Adam`; u is the decaying maximum of |g| + eps.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"exp_avg": self.zeros(p), "exp_inf": self.zeros(p)}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        (beta1, beta2), m, u = group["betas"], state["exp_avg"], state["exp_inf"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        running_mean(m, g, 1.0 - beta1)
        u.copy_(maximum(u * beta2, abs(g) + group["eps"]))
        p -= group["lr"] / (1.0 - beta1 ** state["step"]) * m / u
