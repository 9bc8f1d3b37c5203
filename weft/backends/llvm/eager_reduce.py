"""Reductions of NumPy arrays over any axes and strides, bitwise reproducible for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from ...compiler.loop_ir.kernels import reduce as build
from ...compiler.loop_ir.kernels.layout import collapse, stride_class
from ...ops.core import reductions
from ...ops.core import scalar as s
from ...runtime import memory, threads
from . import jit
from .eager_elementwise import MAX_PREPARED_CALLS, MIN_PARALLEL_ELEMENTS, dense_strides, element_strides, serves

CHUNK_ELEMENTS = 8192
"""Elements of a long row per task: enough tasks to run in parallel, and short sums with small rounding errors."""
TARGET_TASKS = 64
MAX_STRIP_ELEMENTS = 32
"""Maximum reduced elements for the strips scheme, in which each lane iterates over its elements."""


class _PreparedCall(NamedTuple):
    call: Any
    integers: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    scratch: tuple[tuple[int, np.dtype], ...]
    large: bool


_prepared: dict[Any, _PreparedCall | None] = {}
_kernels = jit.Kernels()


def _identity(x: Any) -> Any:
    return x


def reduce(op: str, x: np.ndarray, axes: tuple[int, ...], dtype: np.dtype | None = None) -> np.ndarray | None:
    """Reduce `x` over `axes` (non-negative, distinct). The result does not have the reduced axes.

    Args:
        op: the name of a `Reduction`, "mean", "argmax" or "argmin". Over several axes the last two give positions in
            those axes flattened in row-major order.
        dtype: of the result; as NumPy's by default, except that half precision sums in float32 and is rounded once.

    Returns:
        The result, or None where native code does not apply (complex numbers, the maximum of an empty array).
    """
    return map_reduce(op, _identity, (x,), x.shape, axes, dtype)


def map_reduce(
    op: str,
    expression: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: np.dtype | None = None,
) -> np.ndarray | None:
    """`reduce` of `expression(*arrays)`, broadcast to `shape`, without storing it."""
    key = (op, expression, shape, axes, dtype, *[x for a in arrays for x in (a.dtype, a.shape, a.strides)])
    try:
        prepared = _prepared[key]
    except KeyError:
        prepared = _prepare(op, expression, arrays, shape, axes, dtype)
        if len(_prepared) >= MAX_PREPARED_CALLS:
            _prepared.clear()
        _prepared[key] = prepared
    if prepared is None:
        return None
    out = memory.empty(prepared.shape, prepared.dtype)
    if not prepared.large:
        prepared.call(*map(id, arrays), id(out), *prepared.integers)
        return out
    scratch = [memory.empty((n,), d) for n, d in prepared.scratch]
    with threads.compute_token:
        prepared.call(*map(id, arrays), id(out), *map(id, scratch), *prepared.integers)
    return out


def _types(op: str, expr: s.Expr, dtype: np.dtype | None) -> tuple[s.Expr, np.dtype, np.dtype]:
    """(expression, accumulator's dtype, result's dtype)."""
    kind = s.kind(expr.dtype)
    if op in ("argmax", "argmin"):
        wide = s.FLOAT32 if kind == "f" and expr.dtype.itemsize == 2 else expr.dtype
        return expr, np.dtype(np.uint8) if wide == s.BOOL else wide, dtype or s.INT64
    if op in reductions.table and reductions.table[op].boolean:
        return s.cast(expr, s.BOOL), s.BOOL, dtype or s.BOOL
    if op in ("max", "min"):
        wide = s.FLOAT32 if kind == "f" and expr.dtype.itemsize == 2 else expr.dtype
        return expr, np.dtype(np.uint8) if wide == s.BOOL else wide, dtype or expr.dtype
    if op == "mean" and kind != "f":
        return s.cast(expr, s.FLOAT64), s.FLOAT64, dtype or s.FLOAT64
    result = dtype or (expr.dtype if kind == "f" else np.dtype(np.uint64) if kind == "u" else s.INT64)
    wide = s.FLOAT32 if s.kind(result) == "f" and result.itemsize == 2 else result
    return expr, wide, result


def _prepare(
    op: str,
    expression: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: np.dtype | None,
) -> _PreparedCall | None:
    if not serves(arrays):
        return None
    inputs = tuple(a.dtype for a in arrays)
    expr, accumulate, result = _types(op, s.trace(expression, inputs), dtype)
    strides = [element_strides(a, shape) for a in arrays]
    if any(st is None for st in strides):
        return None
    kept = [a for a in range(len(shape)) if a not in axes]
    out_shape = tuple(shape[a] for a in kept)
    count = 1
    for a in axes:
        count *= shape[a]
    size = count
    for n in out_shape:
        size *= n
    if size == 0:
        return None  # nothing to read: NumPy gives the identity, or the error
    indexed = op in ("argmax", "argmin")
    out_strides = _scatter(dense_strides(out_shape, None), kept, len(shape))
    operands = [*strides, out_strides]
    if indexed:
        ordered = sorted(axes)
        operands.append(_scatter(dense_strides(tuple(shape[a] for a in ordered), None), ordered, len(shape)))
    dims = collapse(shape, operands, ["r" if a in axes else "k" for a in range(len(shape))])  # type: ignore[arg-type]
    sizes, labels, steps = dims.sizes, "".join(dims.labels), dims.strides
    if "r" not in labels:  # every reduced axis has one element
        sizes, labels = (*sizes, 1), labels + "r"
        steps = tuple((*st, 0) for st in steps)
    scheme, chunks, chunk, chunked = _scheme(labels, sizes, count, indexed)
    classes = tuple(tuple(stride_class(step) for step in st) for st in steps)
    r = build.Reduction(
        "sum" if op == "mean" else op,
        expr, inputs, accumulate, result, "mean" if op == "mean" else "none", scheme, labels, classes, chunked,
    )  # fmt: skip
    compiled = _kernels.compiled(r, lambda: build.reduction(r))
    scratch: list[tuple[int, np.dtype]] = []
    rows = 1
    for n, label in zip(sizes, labels, strict=True):
        rows *= n if label == "k" else 1
    if scheme == "columns":
        scratch.append((rows * chunks, accumulate))
    elif chunked:
        scratch.append((rows * chunks, accumulate))
        if indexed:
            scratch.append((rows * chunks, s.INT64))
    integers = [count, chunks, chunk, *sizes]
    for st, cl in zip(steps, classes, strict=True):
        integers += [step for step, c in zip(st, cl, strict=True) if c == 2]
    large = bool(scratch) or size >= MIN_PARALLEL_ELEMENTS
    return _PreparedCall(compiled.call_objects, tuple(integers), out_shape, result, tuple(scratch), large)


def _scatter(strides: tuple[int, ...], axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    result = [0] * ndim
    for axis, step in zip(axes, strides, strict=True):
        result[axis] = step
    return tuple(result)


def _scheme(labels: str, sizes: tuple[int, ...], count: int, indexed: bool) -> tuple[str, int, int, bool]:
    """(scheme, chunks, chunk, chunked), from the shape alone."""
    rows = 1
    for n, label in zip(sizes, labels, strict=True):
        rows *= n if label == "k" else 1
    inner_reduced = labels[-1] == "r"
    if "k" in labels:
        lane = sizes[labels.rindex("k")]
        if (inner_reduced and count <= MAX_STRIP_ELEMENTS and lane >= 64) or (
            not inner_reduced and (count <= 128 or indexed)
        ):
            block = 256
            return "strips", -(-lane // block), block, False
        if not inner_reduced:
            outer = rows // lane
            # Enough chunks for all threads, and about as many as rows in each, which keeps rounding errors small.
            chunks = max(1, min(count // 64, max(-(-TARGET_TASKS // outer), isqrt(count) // 2)))
            chunk = -(-count // chunks)
            return "columns", -(-count // chunk), chunk, True
    cut = sizes[labels.index("r")]
    per_step = count // cut
    if count < (8 if rows >= TARGET_TASKS else 2) * CHUNK_ELEMENTS:
        return "rows", 1, cut, False
    chunks = max(1, min(count // CHUNK_ELEMENTS, cut))
    chunk = -(-cut // chunks)
    if per_step == 1:
        chunk = -(-chunk // 64) * 64
    return "rows", -(-cut // chunk), chunk, True
