"""RAdam and NAdam: Adam with rectified step sizes and with Nesterov momentum."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..ops.array.creation import arange
from ..ops.array.elementwise import astype, exp, expm1, sqrt, where
from ..ops.array.reduction import sum as total
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer
from .steps import descend_ahead, descend_rectified, running_mean, running_square


class _AdamLike(Optimizer):
    """Running means of g and g², and weight decay in both forms."""

    elementwise = True

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"exp_avg": self.zeros(p), "exp_avg_sq": self.zeros(p)}

    def _means(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """Decay the weight, update the running means; returns the gradient that entered them."""
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            if group["decoupled_weight_decay"]:
                p *= group["decay"]
            else:
                g = g + group["weight_decay"] * p
        running_mean(state["exp_avg"], g, group["rate1"])
        running_square(state["exp_avg_sq"], g, group["rate2"])
        return g

    @staticmethod
    def _rates(group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        decay = 1.0 - group["lr"] * group["weight_decay"]
        return {"rate1": 1.0 - beta1, "rate2": 1.0 - beta2, "decay": decay}


class RAdam(_AdamLike):
    """Rectified Adam (Liu et al., 2020): Adam's step once the variance of √v̂ is bounded, plain momentum before.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: decay rates of the running means of g and g².
        eps: added to the denominator.
        weight_decay: L2 penalty, or with `decoupled_weight_decay` the rate at which weights shrink, as in AdamW.
        decoupled_weight_decay: which of the two.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.RAdam([p], lr=0.5).step(); p.tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        assert step is not None
        dtype = group["lr"].dtype
        # in float64, because ρ is the small difference of numbers around 2 / (1 - β₂)
        beta1, beta2 = (astype(b, dtypes.float64) for b in group["betas"])
        t = astype(step, dtypes.float64)
        power = beta2**t
        longest = 2.0 / (1.0 - beta2) - 1.0
        rho = longest - 2.0 * t * power / (1.0 - power)
        bounded = rho > 5.0
        safe = where(bounded, rho, 6.0)
        rectified = (safe - 4.0) * (safe - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * safe)
        scale = where(bounded, sqrt(rectified * (1.0 - power)), 0.0)
        return {
            **self._rates(group),
            "step_size": astype(group["lr"] / (1.0 - beta1**t), dtype),
            "scale": astype(scale, dtype),
            "plain": astype(where(bounded, 0.0, 1.0), dtype),
        }

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        self._means(p, g, state, group)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        descend_rectified(p, m, v, group["step_size"], group["scale"], group["eps"], group["plain"])


_TERMS = 52  # of the power series of log(1 - q / 2), which then is exact to the last bits of float64


class NAdam(_AdamLike):
    """Adam with Nesterov momentum (Dozat, 2016).

    With μₜ = β₁ (1 - 0.96^(t · momentum_decay) / 2) and Π the product of all μ so far, the step is
    lr · ((1 - μₜ) / (1 - Π) · g + μₜ₊₁ / (1 - Π μₜ₊₁) · m) / (√v̂ + eps).

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: decay rates of the running means of g and g².
        eps: added to the denominator.
        weight_decay: L2 penalty, or with `decoupled_weight_decay` the rate at which weights shrink, as in AdamW.
        momentum_decay: how fast the momentum grows to β₁.
        decoupled_weight_decay: which of the two forms of weight decay.
        maximize: ascend instead of descend.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.NAdam([p], lr=0.5).step(); bool((p < 1).all())
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "momentum_decay": float(momentum_decay), "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        if not settings["momentum_decay"] >= 0:
            raise ValueError(f"NAdam: momentum_decay must not be negative. Got {settings['momentum_decay']}.")

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        assert step is not None
        dtype = group["lr"].dtype
        beta1, beta2 = (astype(b, dtypes.float64) for b in group["betas"])
        t = astype(step, dtypes.float64)
        rate = astype(group["momentum_decay"], dtypes.float64) * math.log(0.96) if group["momentum_decay"] else None
        mu, ahead = (beta1 * (1.0 - 0.5 * (1.0 if rate is None else exp(rate * k))) for k in (t, t + 1.0))
        product = self._product(beta1, t, rate)
        lr = group["lr"]
        return {
            **self._rates(group),
            "now": astype(lr * (1.0 - mu) / (1.0 - product), dtype),
            "ahead": astype(lr * ahead / (1.0 - product * ahead), dtype),
            "scale": astype(1.0 / sqrt(1.0 - beta2**t), dtype),
        }

    @staticmethod
    def _product(beta1: Tensor, t: Tensor, rate: Tensor | None) -> Tensor:
        """μ₁ … μₜ from the step alone, so that no state is needed: log(1 - qᵏ / 2) = -Σⱼ (qᵏ / 2)ʲ / j, and the sums over k
        are geometric."""
        if rate is None:
            return (beta1 * 0.5) ** t
        j = arange(1, _TERMS + 1, dtype=dtypes.float64)
        sums = exp(rate * j) * expm1(rate * j * t) / expm1(rate * j)
        return exp(-total(sums * 0.5**j / j)) * beta1**t

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        g = self._means(p, g, state, group)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        descend_ahead(p, g, m, v, group["now"], group["ahead"], group["scale"], group["eps"])
