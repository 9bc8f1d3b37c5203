"""Registers oneDNN kernels in the op table; without them, ops run in NumPy.

Each kernel's `when` is a few comparisons on dtypes and sizes. A call that oneDNN still declines (`Unsupported`) falls back
to the op's NumPy body, so registration affects only speed.

Note [Small products]. NumPy's OpenBLAS starts its own threads from about 2**18 multiplications, and they keep spinning for
milliseconds after a product on the cores that OpenMP's threads need: a following oneDNN call takes up to four times as
long. Therefore everything above `MIN_MATMUL_WORK` goes to oneDNN, even where OpenBLAS would be slightly faster,
matrix-vector products go to native loops (`backends/llvm/eager_products.py`), and OpenBLAS keeps what it computes on one
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from ... import dtypes
from ...ops.core import registry
from ...ops.nn.window import Window
from ...ops.nn.window_arrays import spatial_size
from ...runtime import forks
from . import library
from .capi import Unsupported

MIN_MATMUL_WORK = 1 << 18  # multiplications from which oneDNN is used, see Note [Small products]
MIN_POOL_ELEMENTS = 1 << 12  # elements from which pooling is

_F32 = dtypes.float32
_HALVES = (dtypes.bfloat16, dtypes.float16)
_enabled = True
_registered = False
_lock = forks.held_over_fork()


@contextmanager
def disabled() -> Any:
    """Run without oneDNN's kernels, in all threads: for comparing results and times."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def register() -> bool:
    """Add the kernels to the op table, once; returns whether oneDNN is available. Thread-safe."""
    global _registered
    with _lock:
        if not _registered and library.available():
            from ...ops.array import products
            from ...ops.nn.conv import convolution
            from ...ops.nn.pool import primitives as pool

            assert convolution and pool and products  # imported for their records
            for name, when, kernel in _kernels():
                registry.register_kernel(name, when=when, label=f"onednn {name}")(_or_plain(name, kernel))
            _registered = True
    return _registered


def _or_plain(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel`, with a fallback to the op's NumPy body on `Unsupported`."""
    plain = registry.get(name).fn

    def run(*values: Any) -> Any:
        try:
            return kernel(*values)
        except Unsupported:
            with np.errstate(all="ignore"):
                return plain(*values)

    run.__name__ = f"onednn_{name}"
    return run


@lru_cache(1)
def _native_halves() -> tuple[np.dtype, ...]:
    """Half-precision dtypes with native multiply instructions; others are faster through float32."""
    isa = library.isa() or ""
    found = []
    if "bf16" in isa or "amx" in isa:
        found.append(dtypes.bfloat16)
    if "fp16" in isa:
        found.append(dtypes.float16)
    return tuple(found)


def _wide(*arrays: Any) -> list[Any]:
    """The arrays as oneDNN is fastest at: float32 unless the processor has this dtype."""
    dtype = arrays[0].dtype
    if dtype == _F32 or dtype in _native_halves():
        return list(arrays)
    return [None if a is None else a.astype(_F32, order="K") for a in arrays]


def _narrow(result: Any, dtype: np.dtype) -> Any:
    return result if result.dtype == dtype else result.astype(dtype, order="K")


def _served(dtype: np.dtype) -> bool:
    return dtype is _F32 or dtype == _F32 or dtype in _HALVES


@lru_cache(1024)
def _is_huge(window: Window) -> bool:
    return max(*window.stride, *window.dilation, *[p for pair in window.padding for p in pair]) > 1 << 15


def _check_window(window: Window) -> None:
    """oneDNN counts in 32 bits; steps far beyond the image are for NumPy."""
    if _is_huge(window):
        raise Unsupported("a window with huge steps")


# Matrix products -----------------------------------------------------------------------------------------------------


def _matmul_pays(x1: Any, x2: Any) -> bool:
    if not _enabled or not _served(x1.dtype):
        return False
    a, b = x1.shape, x2.shape
    if len(a) < 2 or len(b) < 2 or a[-2] == 1 or b[-1] == 1:  # a vector: as fast as the matrix is read by plain loops
        return False
    work = max(x1.size * b[-1], x2.size * a[-2])
    return work > MIN_MATMUL_WORK


def _matmul(x1: Any, x2: Any) -> Any:
    from .eager import matmul

    a, b = _wide(x1, x2)
    return _narrow(matmul(a, b), x1.dtype)


# Convolution ---------------------------------------------------------------------------------------------------------


def _conv_pays(x: Any, weight: Any, *_: Any) -> bool:
    """Multiplications are about the elements of x times those of one filter (divided by strides, which we ignore)."""
    return _enabled and _served(x.dtype) and x.size * (weight.size // max(weight.shape[1], 1)) > MIN_MATMUL_WORK


def _conv_input_pays(g: Any, weight: Any, *_: Any) -> bool:
    return _enabled and _served(g.dtype) and g.size * (weight.size // max(weight.shape[0], 1)) > MIN_MATMUL_WORK


def _conv_weight_pays(x: Any, g: Any, window: Window, groups: int) -> bool:
    if not _enabled or not _served(x.dtype):
        return False
    return g.size * window.positions * (x.shape[1] // groups) > MIN_MATMUL_WORK


def _convolution(x: Any, weight: Any, bias: Any, window: Window, groups: int) -> Any:
    from .eager import conv_forward

    _check_window(window)
    a, w, b = _wide(x, weight, bias)
    return _narrow(conv_forward(a, w, b, window, groups), x.dtype)


def _convolution_backward_input(g: Any, weight: Any, like: Any, size: Any, window: Window, groups: int) -> Any:
    from .eager import conv_backward_data

    _check_window(window)
    a, w = _wide(g, weight)
    shape = (g.shape[0], weight.shape[1] * groups, *spatial_size(like, size))
    return _narrow(conv_backward_data(a, w, shape, window, groups), g.dtype)


def _convolution_backward_weight(x: Any, g: Any, window: Window, groups: int) -> Any:
    from .eager import conv_backward_weights

    _check_window(window)
    a, b = _wide(x, g)
    shape = (g.shape[1], x.shape[1] // groups, *window.kernel)
    return _narrow(conv_backward_weights(a, b, shape, window, groups)[0], x.dtype)


# Pooling -------------------------------------------------------------------------------------------------------------


def _pool_pays(x: Any, *_: Any) -> bool:
    return _enabled and x.size > MIN_POOL_ELEMENTS and _served(x.dtype)


def _all_finite(x: np.ndarray) -> bool:
    """Whether there is no NaN and no infinity, which oneDNN's maximum gets wrong. x·x is finite then (or overflows,
    and the answer is no). In rows short enough for OpenBLAS to stay on one thread."""
    flat = x.transpose(0, *range(2, x.ndim), 1).reshape(-1) if not x.flags.c_contiguous else x.reshape(-1)
    rows = flat.size // 8192 * 8192
    total = np.vecdot(flat[:rows].reshape(-1, 8192), flat[:rows].reshape(-1, 8192)).sum() + np.vecdot(
        flat[rows:], flat[rows:]
    )
    return bool(np.isfinite(total))


def _max_pool(x: Any, window: Window) -> Any:
    from ...ops.nn.pool.primitives import offsets_dtype
    from .eager import max_pool_forward

    _check_window(window)
    (a,) = _wide(x)
    if not _all_finite(a):
        raise Unsupported("max_pool: NaN or infinity")
    y, workspace = max_pool_forward(a, window.covering(x.shape[2:]))
    # oneDNN's workspace holds the place in the window of every maximum, laid out like y: exactly what the op returns.
    dtype = offsets_dtype(window)
    if workspace.nbytes != y.size * dtype.itemsize:
        raise Unsupported("max_pool: a workspace of another kind")
    order = (0, *range(2, x.ndim), 1)
    places = workspace.view(dtype).reshape([y.shape[i] for i in order])
    return _narrow(y, x.dtype), np.moveaxis(places, -1, 1)


def _max_pool_backward(g: Any, places: Any, like: Any, size: Any, window: Window) -> Any:
    from .eager import max_pool_backward

    _check_window(window)
    spatial = spatial_size(like, size)
    (a,) = _wide(g)
    workspace = np.ascontiguousarray(np.moveaxis(places, 1, -1)).reshape(-1).view(np.uint8)
    shape = (*g.shape[:2], *spatial)
    return _narrow(max_pool_backward(a, workspace, shape, window.covering(spatial)), g.dtype)


def _avg_window(spatial: Any, window: Window, include: bool, divisor: Any) -> Window:
    _check_window(window)
    if divisor is not None:
        raise Unsupported("avg_pool: a divisor of its own")
    covering = window.covering(spatial)
    if include and covering.padding != window.padding:
        raise Unsupported("avg_pool: windows that reach beyond the padding count fewer elements")
    return covering


def _avg_pool(x: Any, window: Window, include: bool, divisor: Any) -> Any:
    from .eager import avg_pool_forward

    window = _avg_window(x.shape[2:], window, include, divisor)
    (a,) = _wide(x)
    return _narrow(avg_pool_forward(a, window, include), x.dtype)


def _avg_pool_backward(g: Any, like: Any, size: Any, window: Window, include: bool, divisor: Any) -> Any:
    from .eager import avg_pool_backward

    spatial = spatial_size(like, size)
    window = _avg_window(spatial, window, include, divisor)
    (a,) = _wide(g)
    return _narrow(avg_pool_backward(a, (*g.shape[:2], *spatial), window, include), g.dtype)


def _spread_pays(g: Any, like: Any, size: Any, window: Window, *_: Any) -> bool:
    return _enabled and g.size * window.positions > MIN_POOL_ELEMENTS and _served(g.dtype)


def _put_pays(g: Any, places: Any, like: Any, size: Any, window: Window) -> bool:
    return _spread_pays(g, like, size, window)


def _kernels() -> list[tuple[str, Callable[..., bool], Callable[..., Any]]]:
    return [
        ("matmul", _matmul_pays, _matmul),
        ("convolution", _conv_pays, _convolution),
        ("convolution_backward_input", _conv_input_pays, _convolution_backward_input),
        ("convolution_backward_weight", _conv_weight_pays, _convolution_backward_weight),
        ("max_pool", _pool_pays, _max_pool),
        ("max_pool_backward", _put_pays, _max_pool_backward),
        ("avg_pool", _pool_pays, _avg_pool),
        ("avg_pool_backward", _spread_pays, _avg_pool_backward),
    ]
