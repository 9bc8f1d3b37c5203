"""Registers native kernels for ops that are more than an elementwise expression.

Elementwise ops need no entry: their expressions are compiled directly. A kernel's `when` is a few comparisons; a call that
the kernel still declines falls back to the op's NumPy body, so registration affects only speed. LLVM is loaded by the
first kernel that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import dtypes
from ...ops.core import registry
from ...ops.nn.attention_call import Backward, Forward
from ...ops.nn.loss_reduction import holds
from ...runtime import forks, memory

MIN_NATIVE_ELEMENTS = 16384
"""Elements from which native code beats NumPy where NumPy needs one call. Where it needs several (`_several`), native code
is ahead from the first element on."""
F32, F64 = dtypes.float32, dtypes.float64
_REAL = frozenset(d for d in dtypes.ALL if not dtypes.is_complex(d))
_NUMBERS = _REAL - {dtypes.bool_}
_FLOATS = frozenset(dtypes.FLOATING)

_enabled = True
_registered = False
_lock = forks.held_over_fork()


@contextmanager
def disabled() -> Iterator[None]:
    """Run without these kernels, in all threads: for comparing results and times."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def register() -> bool:
    """Add the kernels to the op table, once; returns whether native code is available. Any thread may call it."""
    global _registered
    from .. import native_available

    with _lock:
        if not _registered and native_available():
            from ...ops.array import products, reduction, searching
            from ...ops.nn import attention, class_losses, softmax
            from ...ops.nn.norm import batch_norm, layer_norm

            assert attention and batch_norm and class_losses and layer_norm  # imported for their records
            assert products and reduction and searching and softmax
            for name, when, kernel in _kernels():
                _add(name, when, kernel)
            registry.for_each_op(_add_reduction)
            _registered = True
    return _registered


def _add(name: str, when: Callable[..., bool], kernel: Callable[..., Any]) -> None:
    registry.register_kernel(name, when=when, label=f"llvm {name}")(_or_plain(name, kernel))


def _add_reduction(op: registry.Op) -> None:
    """Add the kernel that follows from the record of a reduction."""
    reduces = op.reduction
    if reduces is not None:
        allowed = _REAL if reduces.boolean else _FLOATS if reduces.floating else _NUMBERS
        _add(op.name, _reduces(allowed), _reduction(reduces.name, not reduces.boolean))


def _or_plain(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel`, with the op's NumPy body where it returns None."""
    plain = registry.get(name).fn

    def run(*values: Any, **named: Any) -> Any:
        result = kernel(*values, **named)
        if result is None:
            with np.errstate(all="ignore"):
                return plain(*values, **named)
        return result

    run.__name__ = f"llvm_{name}"
    return run


_eager_module: Any = None


def _eager() -> Any:
    global _eager_module
    if _eager_module is None:
        from . import eager

        _eager_module = eager
    return _eager_module


def _several(x: Any) -> bool:
    """Whether an op on `x` that NumPy has no function for is computed natively: always the same for one shape and dtype."""
    dtype = x.dtype
    return _enabled and (dtype is F32 or dtype is F64 or x.size >= MIN_NATIVE_ELEMENTS and dtype in _FLOATS)


# Reductions ----------------------------------------------------------------------------------------------------------


def _reduces(allowed: frozenset[np.dtype]) -> Callable[..., bool]:
    def when(x: Any, axis: Any = None, keepdims: bool = False) -> bool:
        return x.size >= MIN_NATIVE_ELEMENTS and _enabled and x.dtype in allowed

    return when


def _reduction(op: str, same_dtype: bool) -> Callable[..., Any]:
    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if axis is None:
            axes = tuple(range(x.ndim))
        else:
            axes = tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
        if not axes:
            return None
        out = _eager().reduce(op, x, axes, x.dtype if same_dtype else None)
        if out is None or not keepdims:
            return out
        return out.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])

    return kernel


# Products with a vector ----------------------------------------------------------------------------------------------

MIN_VECTOR_PRODUCT_ELEMENTS = 9216
"""Elements of a matrix from which OpenBLAS multiplies it with a vector on several threads, see `eager_products`."""


def _vector_product_when(x1: Any, x2: Any) -> bool:
    if (
        not _enabled
        or (x1.size < MIN_VECTOR_PRODUCT_ELEMENTS and x2.size < MIN_VECTOR_PRODUCT_ELEMENTS)
        or x1.dtype not in _FLOATS
    ):
        return False
    return x1.ndim == 1 or x2.ndim == 1 or x1.shape[-2] == 1 or x2.shape[-1] == 1


def _vector_product(x1: Any, x2: Any) -> Any:
    return _eager().vector_product(x1, x2)


# Copies --------------------------------------------------------------------------------------------------------------


def _copies(x: Any) -> bool:
    return x.size >= MIN_NATIVE_ELEMENTS and _enabled and x.dtype in _REAL


def _same(x: Any) -> Any:
    return x


def _clone(x: Any) -> Any:
    return _eager().elementwise("clone", _same, (x,), x.shape)


def _clone_contiguous(x: Any) -> Any:
    return _eager().elementwise("clone", _same, (x,), x.shape, memory.empty(x.shape, x.dtype))


# Along one axis ------------------------------------------------------------------------------------------------------


def _along_when(x: Any, *_: Any, **__: Any) -> bool:
    return _several(x)


def _softmax(x: Any, axis: int = -1) -> Any:
    return _eager().softmax(x, axis % x.ndim)


def _log_softmax(x: Any, axis: int = -1) -> Any:
    return _eager().log_softmax(x, axis % x.ndim)


def _softmax_backward(grad: Any, result: Any, axis: int) -> Any:
    return _eager().softmax_backward(grad, result, axis % result.ndim)


def _log_softmax_backward(grad: Any, result: Any, axis: int) -> Any:
    return _eager().log_softmax_backward(grad, result, axis % result.ndim)


# Normalisation -------------------------------------------------------------------------------------------------------


def _layer_norm_forward(x: Any, weight: Any, bias: Any, num_axes: int, eps: float) -> Any:
    return _eager().layer_norm(x, weight, bias, num_axes, eps)


def _layer_norm_backward(
    grad: Any, grad_mean: Any, grad_rstd: Any, x: Any, weight: Any, mean: Any, rstd: Any, num_axes: int
) -> Any:
    if grad_mean is not None or grad_rstd is not None:
        return None
    result = _eager().layer_norm_backward(grad, x, weight, mean, rstd, num_axes, True)
    if result is None:
        return None
    dx, dw, db = result
    return dx, np.zeros(0, x.dtype) if dw is None else dw, db


def _rms_norm_forward(x: Any, weight: Any, num_axes: int, eps: float) -> Any:
    return _eager().rms_norm(x, weight, num_axes, eps)


def _rms_norm_backward(grad: Any, grad_rstd: Any, x: Any, weight: Any, rstd: Any, num_axes: int) -> Any:
    if grad_rstd is not None:
        return None
    result = _eager().rms_norm_backward(grad, x, weight, rstd, num_axes)
    if result is None:
        return None
    dx, dw = result
    return dx, np.zeros(0, x.dtype) if dw is None else dw


# Minimum elements for native batch norm: below, a few NumPy calls are faster.
_CHANNEL_ELEMENTS = 1 << 12


def _normalises_channels(x: Any, *_: Any) -> bool:
    return _enabled and x.size > _CHANNEL_ELEMENTS and x.dtype in _FLOATS and x.ndim >= 2


def _batch_norm_forward(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _eager().batch_norm(x, weight, bias, float(eps))


def _normalised_channels(grad: Any, grad_mean: Any, grad_var: Any, x: Any, *_: Any) -> bool:
    return grad_mean is None and grad_var is None and _normalises_channels(x)


def _batch_norm_backward(
    grad: Any, grad_mean: Any, grad_var: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float
) -> Any:
    result = _eager().batch_norm_backward(grad, x, weight, mean, var, float(eps))
    if result is None:
        return None
    dx, dw, db = result
    dw = np.zeros(0, x.dtype) if weight is None else dw.astype(weight.dtype, copy=False)
    return dx, dw, db.astype(x.dtype, copy=False)


# Cross entropy -------------------------------------------------------------------------------------------------------

_WIDE_FLOATS = (dtypes.float32, dtypes.float64)


def _cross_entropy_forward(x: Any, target: Any, ignore_index: int, label_smoothing: float) -> Any:
    if label_smoothing or x.dtype not in _WIDE_FLOATS:
        return None
    target = np.asarray(target, np.int64)
    result = _eager().cross_entropy(x, target, 1 if x.ndim > 1 else 0)
    if result is None:
        return None
    loss, lse = result
    if holds(target, ignore_index):
        loss[target == ignore_index] = 0
    return loss, lse


def _cross_entropy_backward(
    grad: Any, grad_lse: Any, x: Any, lse: Any, target: Any, ignore_index: int, label_smoothing: float
) -> Any:
    if label_smoothing or grad_lse is not None or x.dtype not in _WIDE_FLOATS:
        return None
    target = np.asarray(target, np.int64)
    live = grad
    if holds(target, ignore_index) or grad.dtype is not x.dtype:
        live = np.where(target == ignore_index, x.dtype.type(0), grad).astype(x.dtype, copy=False)
    return _eager().cross_entropy_backward(x, target, lse, live, 1 if x.ndim > 1 else 0)


def _grad_first(grad: Any, *rest: Any, **_: Any) -> bool:
    return _several(grad)


def _logits_third(grad: Any, grad_lse: Any, x: Any, *_: Any) -> bool:
    return _several(x)


# Attention -----------------------------------------------------------------------------------------------------------


def _attention_when(*values: Any) -> bool:
    if not _enabled:
        return False
    from . import eager_attention

    return eager_attention.serves(Forward(*values))


def _attention_forward(*values: Any) -> Any:
    from . import eager_attention

    return eager_attention.forward(Forward(*values))


def _attention_backward_when(*values: Any) -> bool:
    call = Backward(*values)
    return not call.mask_grad and call.grad.dtype == call.query.dtype and _attention_when(*call.forward)


def _attention_backward(*values: Any) -> Any:
    from . import eager_attention

    call = Backward(*values)
    return (*eager_attention.backward(call), np.zeros(0, call.query.dtype))


def _kernels() -> list[tuple[str, Callable[..., bool], Callable[..., Any]]]:
    found: list[tuple[str, Callable[..., bool], Callable[..., Any]]] = [
        ("argmax", _reduces(_NUMBERS), _reduction("argmax", False)),
        ("argmin", _reduces(_NUMBERS), _reduction("argmin", False)),
        ("matmul", _vector_product_when, _vector_product),
        ("clone", _copies, _clone),
        ("clone_contiguous", _copies, _clone_contiguous),
        ("softmax", _along_when, _softmax),
        ("log_softmax", _along_when, _log_softmax),
        ("softmax_backward", _grad_first, _softmax_backward),
        ("log_softmax_backward", _grad_first, _log_softmax_backward),
        ("layer_norm_forward", _along_when, _layer_norm_forward),
        ("layer_norm_backward", _grad_first, _layer_norm_backward),
        ("rms_norm_forward", _along_when, _rms_norm_forward),
        ("rms_norm_backward", _grad_first, _rms_norm_backward),
        ("batch_norm_forward", _normalises_channels, _batch_norm_forward),
        ("batch_norm_backward", _normalised_channels, _batch_norm_backward),
        ("cross_entropy_forward", _along_when, _cross_entropy_forward),
        ("cross_entropy_backward", _logits_third, _cross_entropy_backward),
        ("attention_forward", _attention_when, _attention_forward),
        ("attention_backward", _attention_backward_when, _attention_backward),
    ]
    return found
