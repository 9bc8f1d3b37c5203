"""Gradient clipping, by norm and by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...autograd import shards, withheld
from ...autograd.tape import no_grad
from ...ops.array.creation import zeros
from ...ops.array.elementwise import abs_, isfinite
from ...ops.array.reduction import max_
from ...ops.array.reduction import sum as reduce_total
from ...ops.array.row_sparse import RowSparse
from ...ops.array.shaping import stack
from ...ops.core.short_floats import widened
from ...ops.core.spec import number
from ...tensor import Tensor


def _with_grad(action: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The tensors that have a gradient, for `action`. Raises if none has because a captured function withheld them."""
    if shards.current.shard is not None:
        raise RuntimeError(
            f"{action}: the body of a distributed step has the gradients of one shard, and these are clipped when all are "
            "summed. Use `distributed.step(optimizer, clip_grad_norm=…)` or `Trainer(clip_grad_norm=…)`."
        )
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    found = [p for p in tensors if p.grad is not None]
    if not found:
        withheld.refuse(action, tensors)
    return found


def _values(grad: Any) -> Tensor:
    """The values that enter a gradient's norm: all of it, or the merged rows of a row-sparse one."""
    if getattr(grad, "is_row_sparse", False):
        from ...optim.rows import distinct

        return distinct(grad)
    return grad


def _norm(grads: list[Any], norm_type: float) -> Tensor:
    values = widened([_values(g) for g in grads])
    if norm_type == math.inf:
        return max_(stack([max_(abs_(v)) for v in values]))
    if norm_type == 2:
        total = sum((reduce_total(v * v) for v in values[1:]), reduce_total(values[0] * values[0]))
        return total.sqrt()
    powers = [reduce_total(abs_(v) ** norm_type) for v in values]
    return sum(powers[1:], powers[0]) ** (1.0 / norm_type)


def _total(grads: list[Any], norm_type: float) -> Tensor:
    """The norm of all gradients; 0 if there are none."""
    return _norm(grads, float(norm_type)) if grads else zeros(())


def _scaled(grad: Any, scale: Tensor) -> Any:
    """`grad * scale` in the dtype of `grad`; a scale of float32 is not rounded before it is applied."""
    if getattr(grad, "is_row_sparse", False):
        return RowSparse(grad.indices, _scaled(grad.values, scale), grad.shape, grad.keep, grad.checked)
    return (grad * scale).to(grad.dtype)


def _finite(action: str, norm: Tensor) -> None:
    if not bool(isfinite(norm)):
        raise RuntimeError(
            f"{action}: the norm of the gradients is {norm.item()}. Run under `wf.detect_anomaly()` to see where "
            "it comes from."
        )


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Norm of all gradients, taken together as one vector.

    Args:
        tensors: gradients, or tensors that require gradients, whose `.grad` counts (those without one are skipped).
        norm_type: p of the p-norm; `inf` for the largest absolute value.
        error_if_nonfinite: raise if the norm is nan or infinite (reads the value, so not in captured functions).
        foreach: accepted and ignored: it selects an implementation in PyTorch.

    Returns:
        A 0-d tensor; float32 for gradients of 16-bit floats.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([3.0, 4.0])
    >>> nn.utils.get_total_norm([p]).item(), nn.utils.get_total_norm([p.grad]).item()
    (5.0, 5.0)
    """
    with no_grad():
        single = isinstance(tensors, Tensor) or hasattr(tensors, "is_row_sparse")
        given: list[Any] = [tensors] if single else list(tensors)
        gradients = [g for g in given if not getattr(g, "requires_grad", False)]
        owners = [p for p in given if getattr(p, "requires_grad", False)]
        found = [p.grad for p in _with_grad("get_total_norm", owners)] if owners else []
        norm = _total([*found, *gradients], norm_type)
        if error_if_nonfinite:
            _finite("get_total_norm", norm)
        return norm


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients of `parameters` in place by max_norm / total_norm, if that is below 1.

    Args:
        parameters: a tensor or tensors; those without a gradient are skipped.
        max_norm: the largest norm allowed.
        total_norm: the norm of the gradients, see `get_total_norm`.
        foreach: accepted and ignored.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([3.0, 4.0])
    >>> nn.utils.clip_grads_with_norm_(p, 2.5, wf.tensor(5.0)); p.grad.round(1).tolist()
    [1.5, 2.0]
    """
    if isinstance(max_norm, (int, float)):
        number("clip_grads_with_norm_", "max_norm", max_norm, least=0)
    with no_grad():
        scale = (max_norm / (total_norm + 1e-6)).clip(None, 1.0)
        for p in _with_grad("clip_grads_with_norm_", parameters):
            p.grad = _scaled(p.grad, scale)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of `parameters` in place so that their total norm is at most `max_norm`.

    Args:
        parameters: a tensor or tensors; those without a gradient are skipped.
        max_norm: the largest norm allowed.
        norm_type: p of the p-norm; `inf` for the largest absolute value.
        error_if_nonfinite: raise if the norm is nan or infinite (reads the value, so not in captured functions).
        foreach: accepted and ignored: it selects an implementation in PyTorch.

    Returns:
        The norm before clipping, a 0-d tensor.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([p], 1.0).item()
    5.0
    """
    if isinstance(max_norm, (int, float)):
        number("clip_grad_norm_", "max_norm", max_norm, least=0)
    tensors = _with_grad("clip_grad_norm_", parameters)
    with no_grad():
        norm = _total([p.grad for p in tensors], norm_type)
    if error_if_nonfinite:
        _finite("clip_grad_norm_", norm)
    clip_grads_with_norm_(tensors, max_norm, norm)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value], in place; `foreach` is ignored.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([-3.0, 0.5])
    >>> nn.utils.clip_grad_value_([p], 1.0); p.grad.tolist()
    [-1.0, 0.5]
    """
    if not clip_value >= 0:
        raise ValueError(f"clip_grad_value_: clip_value must not be negative. Got {clip_value}.")
    with no_grad():
        for p in _with_grad("clip_grad_value_", parameters):
            grad = p.grad.to_dense() if getattr(p.grad, "is_row_sparse", False) else p.grad
            p.grad = grad.clip(-clip_value, clip_value)
