"""Softmax, normalisation and cross entropy on NumPy arrays.

Arrays whose axes do not form rows (see `weft.compiler.loop_ir.kernels.rows`) are copied into a layout that does. All
arguments of a call share one layout, so results have the shape and memory order of the first.

Note [Prepared calls]. For small arrays that need no copy, the native function and its integer arguments are cached by
dtypes, shapes and strides: on a few elements the overhead around the native call exceeds the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...compiler.loop_ir.ir import Kernel
from ...compiler.loop_ir.kernels import norms, rows
from ...compiler.loop_ir.kernels.rows import compute_dtype
from ...ops.core import scalar as s
from ...runtime import memory, threads
from . import jit
from .eager_elementwise import MAX_PREPARED_CALLS, MIN_PARALLEL_ELEMENTS, MIN_STREAMING_BYTES, memory_order

_kernels = jit.Kernels()
_prepared: dict[Any, tuple[Any, tuple[int, ...]]] = {}  # see Note [Prepared calls]
_FLOATS = (s.FLOAT16, s.BFLOAT16, s.FLOAT32, s.FLOAT64)


def _compiled(build: Callable[..., Kernel], *arguments: Any) -> jit.Compiled:
    return _kernels.compiled((build, arguments), lambda: build(*arguments))


def _prepare(key: Any, compiled: jit.Compiled, integers: Sequence[int], given: Any, used: Any) -> None:
    """Remember a call, unless it is large or some of the arrays had to be copied first."""
    if used[0].size < MIN_PARALLEL_ELEMENTS and all(a is b for a, b in zip(given, used, strict=True)):
        if len(_prepared) >= MAX_PREPARED_CALLS:
            _prepared.clear()
        _prepared[key] = compiled.call_objects, tuple(integers)


def _run(compiled: jit.Compiled, arrays: Sequence[np.ndarray], integers: Sequence[int]) -> None:
    if arrays[0].size < MIN_PARALLEL_ELEMENTS:
        compiled.call_objects(*map(id, arrays), *integers)
        return
    with threads.compute_token:
        compiled.call_objects(*map(id, arrays), *integers)


class _Axis(NamedTuple):
    """The shape of an array as seen along an axis: (outer, n, inner), with inner 1 in the rows scheme."""

    scheme: str
    outer: int
    n: int
    inner: int
    order: tuple[int, ...] | None

    def integers(self, count: int) -> list[int]:
        """The integer arguments of a kernel with `count` full arrays in the common contiguous layout."""
        return [*self.lead(), *self.strides(count)]

    def lead(self) -> list[int]:
        if self.scheme == "strips":
            return [self.outer, self.inner, self.n, -(-self.inner // rows.STRIP)]
        return [self.outer, self.n]

    def strides(self, count: int) -> list[int]:
        """Strides of `count` arrays in the common contiguous layout."""
        each = [self.n * self.inner, self.inner] if self.scheme == "strips" else [self.n]
        return each * count


@functools.lru_cache(maxsize=4096)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], axis: int) -> _Axis:
    """The scheme for arrays with this memory order, without gaps; strides in bytes."""
    order = memory_order(shape, [strides])
    axes = order or tuple(range(len(shape)))
    place = axes.index(axis)
    outer, inner = prod(shape[a] for a in axes[:place]), prod(shape[a] for a in axes[place + 1 :])
    return _Axis("rows" if inner == 1 else "strips", outer, shape[axis], inner, order)


def _axis(x: np.ndarray, axis: int) -> _Axis:
    return _layout(x.shape, x.strides, axis)


def _dense(a: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
    """`a` itself if it has no gaps in this axis order, else a copy that has none."""
    if order is None and a.flags.c_contiguous:
        return a
    axes = order or range(a.ndim)
    step = a.itemsize
    for axis in reversed(axes):
        if a.shape[axis] != 1:
            if a.strides[axis] != step:
                copy = memory.empty(a.shape, a.dtype, order)
                copy[...] = a
                return copy
            step *= a.shape[axis]
    return a


def _serves(arrays: Sequence[np.ndarray]) -> bool:
    first = arrays[0]
    return first.dtype in _FLOATS and first.size > 0 and all(a.dtype == first.dtype for a in arrays)


def _along(build: Callable[..., Kernel], arrays: Sequence[np.ndarray], axis: int) -> np.ndarray | None:
    """Kernels from full arrays to one full array."""
    first = arrays[0]
    dtype, shape = first.dtype, first.shape
    key: tuple[Any, ...] = (build, axis, dtype, shape, first.strides)
    for a in arrays[1:]:
        key += (a.dtype, a.shape, a.strides)
    prepared = _prepared.get(key)
    if prepared is not None:
        call, integers = prepared
        out = np.empty(shape, dtype)
        call(*map(id, arrays), id(out), *integers)
        return out
    if not _serves(arrays) or any(a.shape != arrays[0].shape for a in arrays):
        return None
    layout = _axis(first, axis)
    dense = [_dense(a, layout.order) for a in arrays]
    out = memory.empty(shape, dtype, layout.order)
    count = len(arrays) + 1
    compiled = _compiled(build, layout.scheme, dtype, (1,) * count, out.nbytes >= MIN_STREAMING_BYTES)
    numbers = layout.integers(count)
    _run(compiled, [*dense, out], numbers)
    if layout.order is None:
        _prepare(key, compiled, numbers, arrays, dense)
    return out


def softmax(x: np.ndarray, axis: int) -> np.ndarray | None:
    """softmax along `axis` (non-negative)."""
    return _along(_softmax_held if x.shape[axis] <= rows.MAX_HELD_ELEMENTS else rows.softmax, (x,), axis)


def _softmax_held(scheme: str, dtype: np.dtype, strides: tuple[int, int], streaming: bool) -> Kernel:
    return rows.softmax(scheme, dtype, strides, streaming, held=True)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray | None:
    """log of softmax along `axis`."""
    return _along(rows.log_softmax, (x,), axis)


def softmax_backward(g: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray | None:
    """Gradient of softmax from its output `y`."""
    return _along(rows.softmax_backward, (g, y), axis)


def log_softmax_backward(g: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray | None:
    """Gradient of log softmax from its output `y`."""
    return _along(rows.log_softmax_backward, (g, y), axis)


def _per_row_shape(
    x: np.ndarray, axis: int, order: tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape of one element per row, and its memory order."""
    shape = tuple(n for a, n in enumerate(x.shape) if a != axis)
    if order is None:
        return shape, None
    return shape, tuple(a - (a > axis) for a in order if a != axis)


def logsumexp(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    """log(sum(exp(x))) over `axes`, which the result does not have."""
    if not _serves((x,)) or not axes:
        return None
    if len(axes) > 1:  # the axes as one, last
        kept = [a for a in range(x.ndim) if a not in axes]
        x = x.transpose(*kept, *sorted(axes)).reshape(*(x.shape[a] for a in kept), -1)
        axes = (x.ndim - 1,)
    layout = _axis(x, axes[0])
    x = _dense(x, layout.order)
    out = memory.empty(*_shape_args(x, axes[0], layout.order))
    _run(_compiled(rows.logsumexp, layout.scheme, x.dtype, (1,)), [x, out], layout.integers(1))
    return out


def _shape_args(x: np.ndarray, axis: int, order: tuple[int, ...] | None) -> tuple[Any, ...]:
    shape, row_order = _per_row_shape(x, axis, order)
    return shape, x.dtype, row_order


def cross_entropy(x: np.ndarray, labels: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(loss, logsumexp) per row of logits; `labels` are integers in range, shaped as `x` without `axis`."""
    key = (cross_entropy, axis, x.dtype, x.shape, x.strides, labels.dtype, labels.shape, labels.strides)
    prepared = _prepared.get(key)
    if prepared is not None:
        call, integers = prepared
        loss, lse = np.empty(labels.shape, x.dtype), np.empty(labels.shape, x.dtype)
        call(id(x), id(labels), id(loss), id(lse), *integers)
        return loss, lse
    if not _serves((x,)):
        return None
    given = x, labels
    layout = _axis(x, axis)
    x = _dense(x, layout.order)
    shape, order = _per_row_shape(x, axis, layout.order)
    labels = _dense(np.asarray(labels, np.int64), order)
    compute = compute_dtype(x.dtype)
    loss, lse = memory.empty(shape, x.dtype, order), memory.empty(shape, compute, order)
    compiled = _compiled(rows.cross_entropy, layout.scheme, x.dtype, (1,))
    _run(compiled, [x, labels, loss, lse], layout.integers(1))
    if layout.order is None and compute == x.dtype:
        _prepare(key, compiled, layout.integers(1), given, (x, labels))
    return loss, lse


def mean_cross_entropy(x: np.ndarray, labels: np.ndarray, ignored: int) -> np.ndarray | None:
    """The mean loss (0-d) of the rows of a small matrix whose label is not `ignored`; None for other arrays, and if a label
    is out of range."""
    dtype = x.dtype
    key = (mean_cross_entropy, dtype, x.shape, x.strides, labels.dtype, labels.shape, labels.strides)
    prepared = _prepared.get(key)
    if prepared is None:
        fits = x.ndim == 2 and x.flags.c_contiguous and labels.flags.c_contiguous and labels.shape == x.shape[:1]
        if (
            not fits
            or labels.dtype != s.INT64
            or dtype not in (s.FLOAT32, s.FLOAT64)
            or not 0 < x.size < MIN_PARALLEL_ELEMENTS
        ):
            return None
        _prepare(key, _compiled(rows.mean_cross_entropy, dtype), x.shape, (x,), (x,))
        prepared = _prepared[key]
    mean, wrong = np.empty((), dtype), np.empty((), dtype)
    prepared[0](id(x), id(labels), id(mean), id(wrong), *prepared[1], ignored)
    return None if wrong else mean


def cross_entropy_backward(
    x: np.ndarray, labels: np.ndarray, lse: np.ndarray, g: np.ndarray, axis: int
) -> np.ndarray | None:
    """Gradient of `cross_entropy` from its `lse`; `g` is per row."""
    if not _serves((x, g)):
        return None
    layout = _axis(x, axis)
    x = _dense(x, layout.order)
    shape, order = _per_row_shape(x, axis, layout.order)
    labels = _dense(np.asarray(labels, np.int64), order)
    dx = memory.empty(x.shape, x.dtype, layout.order)
    compiled = _compiled(rows.cross_entropy_backward, layout.scheme, x.dtype, (1, 1), dx.nbytes >= MIN_STREAMING_BYTES)
    arrays = [x, labels, _dense(lse, order), _dense(np.broadcast_to(g, shape), order), dx]
    _run(compiled, arrays, layout.integers(2))
    return dx


# ------------------------------------------------------------------------------------------------ normalisation


def _flat(x: np.ndarray, axes: int) -> tuple[int, int]:
    """(rows, n) of a row-major array normalised over its last `axes` axes."""
    return prod(x.shape[: x.ndim - axes]), prod(x.shape[x.ndim - axes :])


def _same(x: np.ndarray, *others: np.ndarray | None) -> bool:
    return _serves((x,)) and all(o is None or o.dtype == x.dtype for o in others)


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, axes: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(y, mean, rstd): `x` normalised over its last `axes` axes; mean and rstd have the shape of the others."""
    shape, dtype = x.shape, x.dtype
    key = (
        layer_norm, axes, eps, dtype, shape, x.strides,
        None if weight is None else (weight.dtype, weight.strides),
        None if bias is None else (bias.dtype, bias.strides),
    )  # fmt: skip
    prepared = _prepared.get(key)
    if prepared is not None:
        call, integers = prepared
        lead = shape[: len(shape) - axes]
        y, mean, rstd = np.empty(shape, dtype), np.empty(lead, dtype), np.empty(lead, dtype)
        if weight is not None and bias is not None:
            call(id(x), id(weight), id(bias), id(y), id(mean), id(rstd), *integers)
        elif weight is None and bias is None:
            call(id(x), id(y), id(mean), id(rstd), *integers)
        else:
            call(id(x), id(bias if weight is None else weight), id(y), id(mean), id(rstd), *integers)
        return y, mean, rstd
    if not _same(x, weight, bias):
        return None
    affine = [a for a in (weight, bias) if a is not None]
    given = [x, *affine]
    n_rows, n = _flat(x, axes)
    x = _dense(x, None)
    y = memory.empty(x.shape, x.dtype)
    lead = x.shape[: x.ndim - axes]
    mean, rstd = (memory.empty(lead, compute_dtype(x.dtype)) for _ in range(2))
    affine = [_dense(a, None) for a in affine]
    kind = weight is not None, bias is not None
    compiled = _compiled(norms.layer_norm, x.dtype, *kind, float(eps), y.nbytes >= MIN_STREAMING_BYTES)
    integers = (n_rows, n, n, n)
    _run(compiled, [x, *affine, y, mean, rstd], integers)
    if mean.dtype == x.dtype:
        _prepare(key, compiled, integers, given, [x, *affine])
    return y, mean, rstd


def rms_norm(x: np.ndarray, weight: np.ndarray | None, axes: int, eps: float) -> tuple[np.ndarray, np.ndarray] | None:
    """(y, rstd): `x` divided by the root of its mean square over its last `axes` axes."""
    if not _same(x, weight):
        return None
    n_rows, n = _flat(x, axes)
    x = _dense(x, None)
    y = memory.empty(x.shape, x.dtype)
    rstd = memory.empty(x.shape[: x.ndim - axes], compute_dtype(x.dtype))
    affine = [] if weight is None else [_dense(weight, None)]
    compiled = _compiled(norms.rms_norm, x.dtype, weight is not None, float(eps), y.nbytes >= MIN_STREAMING_BYTES)
    _run(compiled, [x, *affine, y, rstd], [n_rows, n, n, n])
    return y, rstd


def chunks_of_rows(n_rows: int, n: int) -> tuple[int, int]:
    """(chunks, rows per chunk) by shape alone: about 64 chunks, none below 16k elements."""
    per_chunk = max(-(-n_rows // 64), -(-16384 // max(n, 1)), 1)
    return -(-n_rows // per_chunk), per_chunk


def layer_norm_backward(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, rstd: np.ndarray, axes: int, bias: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None] | None:
    """(dx, dweight, dbias); the last two are None where there is no weight or `bias` is false."""
    return _norm_backward(g, x, weight, mean, rstd, axes, bias)


def rms_norm_backward(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, rstd: np.ndarray, axes: int
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """(dx, dweight)."""
    result = _norm_backward(g, x, weight, None, rstd, axes, False)
    return None if result is None else result[:2]


def _norm_backward(
    g: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray | None,
    rstd: np.ndarray,
    axes: int,
    bias: bool,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None] | None:
    if not _same(x, g, weight):
        return None
    n_rows, n = _flat(x, axes)
    x, g = _dense(x, None), _dense(g, None)
    dx = memory.empty(x.shape, x.dtype)
    chunks, per_chunk = chunks_of_rows(n_rows, n)
    compute = compute_dtype(x.dtype)
    arrays = [g, x, *([] if weight is None else [_dense(weight, None)])]
    arrays += [*([] if mean is None else [_dense(mean, None)]), _dense(rstd, None), dx]
    sums: list[np.ndarray | None] = []
    for wanted in (weight is not None, bias):
        sums.append(memory.empty(x.shape[x.ndim - axes :], x.dtype) if wanted else None)
        if wanted:
            arrays += [sums[-1], memory.empty((chunks, n), compute)]  # type: ignore[list-item]
    compiled = _compiled(
        norms.norm_backward, x.dtype, weight is not None, bias, mean is not None, dx.nbytes >= MIN_STREAMING_BYTES
    )
    _run(compiled, arrays, [n_rows, n, chunks, per_chunk, n, n, n])
    return dx, sums[0], sums[1]


def batch_statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(mean, biased variance) per channel of `x` with channels last, shape (..., channels), in float32 or float64."""
    if not _serves((x,)) or x.ndim < 1:
        return None
    x = _dense(x, None)
    n = x.shape[-1]
    n_rows = x.size // n
    chunks, per_chunk = chunks_of_rows(n_rows, n)
    compute = compute_dtype(x.dtype)
    mean, variance = memory.empty((n,), compute), memory.empty((n,), compute)
    scratch = [memory.empty((chunks, n), compute) for _ in range(2)]
    compiled = _compiled(norms.batch_statistics, x.dtype)
    _run(compiled, [x, mean, variance, *scratch], [n_rows, n, chunks, per_chunk, n])
    return mean, variance


# Batch norm: columns are channels. With too few channels to fill a few vectors, k pixels form one row: the matrix
# (pixels, channels) is viewed as (pixels / k, k * channels), and the k columns of a channel are combined afterwards.

_MIN_COLUMNS = 64


def _columns(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(N, C, ...) as a contiguous channels-last matrix (rows, k * C); and k."""
    pixels = _dense(x.transpose(0, *range(2, x.ndim), 1), None).reshape(-1, x.shape[1])
    count, n = pixels.shape
    k = 1
    while k * n < _MIN_COLUMNS and count % (2 * k) == 0:
        k *= 2
    return pixels.reshape(count // k, k * n), k


def _image_like(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A new channels-last array shaped like `x`, and its memory as `_columns` shows it (in any matrix shape)."""
    made = memory.empty(x.shape, x.dtype, memory.channels_last_order(x.ndim))
    return made, made.transpose(0, *range(2, x.ndim), 1).reshape(-1)


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(y, mean, biased variance): (N, C, ...) with every channel normalised, channels-last in memory."""
    if not _serves((x,)) or x.ndim < 2:
        return None
    matrix, k = _columns(x)
    found = batch_statistics(matrix)
    assert found is not None
    mean, variance = found
    if k > 1:
        means, n = mean.reshape(k, -1), x.shape[1]
        mean = np.add.reduce(means, 0) / mean.dtype.type(k)
        variance = np.add.reduce(variance.reshape(k, n) + np.square(means - mean), 0) / mean.dtype.type(k)
    scale = 1 / np.sqrt(variance + mean.dtype.type(eps))
    if weight is not None:
        scale = scale * weight
    shift = np.zeros_like(mean) if bias is None else bias
    y, flat = _image_like(x)
    compiled = _compiled(norms.batch_norm, x.dtype, y.nbytes >= MIN_STREAMING_BYTES)
    _run(compiled, [matrix, *_tiled(k, mean, scale, shift), flat], matrix.shape)
    return y, mean, variance


def _tiled(k: int, *columns: np.ndarray) -> list[np.ndarray]:
    """Values per channel, repeated k times, in the dtype of the first."""
    dtype = columns[0].dtype
    return [np.tile(c.astype(dtype, copy=False), k) if k > 1 else np.ascontiguousarray(c, dtype) for c in columns]


def batch_norm_backward(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, variance: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(dx, gradient of the weight, gradient of the bias) of `batch_norm`; the last two in float32 or float64."""
    if not _serves((x, g)) or x.ndim < 2:
        return None
    compute = compute_dtype(x.dtype)
    mean, variance = mean.astype(compute, copy=False), variance.astype(compute, copy=False)
    (slopes, k), (matrix, _) = _columns(g), _columns(x)
    rows, n = matrix.shape
    chunks, per_chunk = chunks_of_rows(rows, n)
    sums = [memory.empty((n,), compute) for _ in range(2)]
    scratch = [memory.empty((chunks, n), compute) for _ in range(2)]
    compiled = _compiled(norms.batch_gradient_sums, x.dtype)
    _run(compiled, [slopes, matrix, *_tiled(k, mean), *sums, *scratch], [rows, n, chunks, per_chunk])
    g_sum, gx_sum = (np.add.reduce(total.reshape(k, -1), 0) for total in sums)
    rstd = 1 / np.sqrt(variance + compute.type(eps))
    count = compute.type(rows * k)
    by_g = rstd if weight is None else rstd * weight
    by_x = -by_g * rstd * rstd * (gx_sum / count)
    dx, flat = _image_like(x)
    compiled = _compiled(norms.batch_norm_backward, x.dtype, dx.nbytes >= MIN_STREAMING_BYTES)
    _run(compiled, [slopes, matrix, *_tiled(k, mean, by_g, by_x, -by_g * (g_sum / count)), flat], [rows, n])
    return dx, gx_sum * rstd, g_sum
