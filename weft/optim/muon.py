"""Muon: momentum whose updates are made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from ..ops.array.elementwise import maximum, sqrt
from ..ops.array.products import matmul
from ..ops.array.reduction import sum as total
from ..ops.array.shaping import matrix_transpose
from ..tensor import Tensor
from ..typing import Params
from .optimizer import Optimizer
from .steps import descend, running_mean


class Muon(Optimizer):
    """Muon (Jordan, 2024), for the matrices of hidden layers: the momentum is replaced by the nearest orthogonal matrix.

    Biases, embeddings and other parameters that are no matrices belong to another optimiser. The Newton–Schulz iteration runs
    in single precision (in bfloat16 in PyTorch).

    Args:
        params: matrices, or groups of them.
        lr: learning rate.
        weight_decay: decoupled weight decay.
        momentum: momentum factor.
        nesterov: use Nesterov momentum.
        ns_coefficients: the coefficients (a, b, c) of the iteration x ← a x + (b x xᵀ + c (x xᵀ)²) x.
        eps: lower bound of the norm that the momentum is divided by first.
        ns_steps: the number of iterations.
        adjust_lr_fn: how `lr` depends on the shape (n, m): "original", √max(1, n / m), or "match_rms_adamw",
            0.2 √max(n, m).

    >>> p = nn.Parameter(wf.eye(2)); p.grad = wf.eye(2)
    >>> optim.Muon([p], lr=0.5).step(); bool(p[0, 0] < 1)
    True
    """

    counts_steps = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "weight_decay": float(weight_decay), "momentum": float(momentum), "nesterov": nesterov,
            "ns_coefficients": tuple([float(c) for c in ns_coefficients]), "eps": float(eps), "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        if settings["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                f"Muon: adjust_lr_fn must be 'original' or 'match_rms_adamw'. Got {settings['adjust_lr_fn']!r}."
            )
        if not 0 < settings["ns_steps"] < 100 or len(settings["ns_coefficients"]) != 3:
            raise ValueError("Muon: expected three ns_coefficients and from 1 to 99 ns_steps.")

    def add_param_group(self, group: Any) -> None:
        super().add_param_group(group)
        for p in self.param_groups[-1].params:
            if p.ndim != 2:
                self.param_groups.pop()
                raise ValueError(
                    f"Muon: parameters must be matrices. Got one of shape {tuple(p.shape)}; give it to another optimiser, "
                    "such as AdamW."
                )

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"momentum_buffer": self.zeros(p)}

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        return {"rate": 1.0 - group["momentum"], "decay": 1.0 - group["lr"] * group["weight_decay"]}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        buffer = state["momentum_buffer"]
        running_mean(buffer, g, group["rate"])
        direction = g + (buffer - g) * group["momentum"] if group["nesterov"] else buffer
        n, m = p.shape
        match = group["adjust_lr_fn"] == "match_rms_adamw"
        ratio = 0.2 * math.sqrt(max(n, m)) if match else math.sqrt(max(1.0, n / m))
        if group["weight_decay"]:
            p *= group["decay"]
        descend(p, _orthogonalized(direction, group), group["lr"] * ratio)


def _orthogonalized(x: Tensor, group: dict[str, Any]) -> Tensor:
    """About the orthogonal matrix nearest to `x`, by Newton–Schulz iterations on the side that is shorter."""
    a, b, c = group["ns_coefficients"]
    tall = x.shape[0] > x.shape[1]
    x = matrix_transpose(x) if tall else x
    x = x / maximum(sqrt(total(x * x)), group["eps"])
    for _ in range(group["ns_steps"]):
        gram = matmul(x, matrix_transpose(x))
        x = a * x + matmul(b * gram + c * matmul(gram, gram), x)
    return matrix_transpose(x) if tall else x
