"""Training utilities: gradient clipping, flattened parameters, parameter counts, sequence packing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..autograd import withheld
from ..autograd.tape import no_grad
from ..ops.array.elementwise import abs_, isfinite
from ..ops.array.reduction import max_
from ..ops.array.reduction import sum as reduce_total
from ..ops.array.row_sparse import RowSparse
from ..ops.array.shaping import concat, stack
from ..ops.core.short_floats import widened
from ..ops.core.spec import number
from ..tensor import Tensor
from . import packed as rnn  # noqa: F401  # `nn.utils.rnn`, where PyTorch has these
from .module import Module
from .packed import pack_padded_sequence as pack_padded_sequence
from .packed import pack_sequence as pack_sequence
from .packed import pad_packed_sequence as pad_packed_sequence
from .packed import pad_sequence as pad_sequence
from .parameter import Parameter


def _with_grad(action: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The tensors that have a gradient, for `action`. Raises if none has because a captured function withheld them."""
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    found = [p for p in tensors if p.grad is not None]
    if not found:
        withheld.refuse(action, tensors)
    return found


def _values(grad: Any) -> Tensor:
    """The values that enter a gradient's norm: all of it, or the merged rows of a row-sparse one."""
    if getattr(grad, "is_row_sparse", False):
        from ..optim.rows import distinct

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


def _scaled(grad: Any, scale: Tensor) -> Any:
    """`grad * scale` in the dtype of `grad`; a scale of float32 is not rounded before it is applied."""
    if getattr(grad, "is_row_sparse", False):
        return RowSparse(grad.indices, _scaled(grad.values, scale), grad.shape, grad.keep, grad.checked)
    return (grad * scale).to(grad.dtype)


def get_total_norm(parameters: Tensor | Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """Norm of all gradients, taken together as one vector.

    Args:
        parameters: a tensor or tensors; those without a gradient are skipped.
        norm_type: p of the p-norm; `inf` for the largest absolute value.

    Returns:
        A 0-d tensor; float32 for gradients of 16-bit floats.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([3.0, 4.0])
    >>> nn.utils.get_total_norm([p]).item()
    5.0
    """
    with no_grad():
        found = _with_grad("get_total_norm", parameters)
        if not found:
            from ..ops.array.creation import zeros

            return zeros(())
        return _norm([p.grad for p in found], float(norm_type))


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale the gradients of `parameters` in place so that their total norm is at most `max_norm`.

    Args:
        parameters: a tensor or tensors; those without a gradient are skipped.
        max_norm: the largest norm allowed.
        norm_type: p of the p-norm; `inf` for the largest absolute value.
        error_if_nonfinite: raise if the norm is nan or infinite (reads the value, so not in captured functions).

    Returns:
        The norm before clipping, a 0-d tensor.

    >>> p = nn.Parameter(wf.zeros(2)); p.grad = wf.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([p], 1.0).item()
    5.0
    """
    if isinstance(max_norm, (int, float)):
        number("clip_grad_norm_", "max_norm", max_norm, least=0)
    tensors = _with_grad("clip_grad_norm_", parameters)
    norm = get_total_norm(tensors, norm_type)
    if error_if_nonfinite and not bool(isfinite(norm)):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of the gradients is {norm.item()}. Run under `wf.detect_anomaly()` to see where "
            "it comes from."
        )
    with no_grad():
        scale = (max_norm / (norm + 1e-6)).clip(None, 1.0)
        for p in tensors:
            grad = p.grad
            p.grad = _scaled(grad, scale)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value], in place.

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


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all parameters into one vector, differentiably.

    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    flat = [p.reshape(-1) for p in parameters]
    if not flat:
        raise ValueError("parameters_to_vector: there are no parameters.")
    return concat(flat)


def vector_to_parameters(vector: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy consecutive slices of `vector` into the parameters, in order.

    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.vector_to_parameters(wf.tensor([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """
    tensors = list(parameters)
    total = sum(p.size for p in tensors)
    if vector.ndim != 1 or vector.shape[0] != total:
        raise ValueError(f"vector_to_parameters: expected a vector of {total} numbers. Got shape {vector.shape}.")
    start = 0
    with no_grad():
        for p in tensors:
            p.copy_(vector[start : start + p.size].reshape(p.shape))
            start += p.size


def count_parameters(module: Module, trainable_only: bool = False) -> int:
    """Number of elements in a module's parameters; with `trainable_only`, of those that require gradients.

    >>> nn.utils.count_parameters(nn.Linear(2, 3))
    9
    """
    found: Iterable[Parameter] = module.parameters()
    return sum(p.size for p in found if p.requires_grad or not trainable_only)
