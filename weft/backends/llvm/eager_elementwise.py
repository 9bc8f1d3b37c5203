"""Elementwise expressions on NumPy arrays.

A call is looked up by expression, dtypes, shapes and strides as a `PreparedCall`: the loaded kernel and its integer
arguments. Their number is bounded; the few kernels are shared by all shapes of one structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...compiler.loop_ir.kernels import elementwise as build
from ...compiler.loop_ir.kernels import tiled
from ...compiler.loop_ir.kernels.layout import collapse, stride_class
from ...ops.core import scalar as s
from ...runtime import memory, threads
from . import jit
from .target import host

MAX_PREPARED_CALLS = 8192
MIN_PARALLEL_ELEMENTS = 16384
"""Elements from which a call may use several threads, and so acquires the compute token."""
MIN_STREAMING_BYTES = 4 << 20
"""Bytes of output from which stores are non-temporal; chains of such loops run faster from 4 MiB on."""
MIN_TILED_ELEMENTS = 4096
"""Elements from which operands with different fastest axes go through tiles."""


class PreparedCall(NamedTuple):
    """`call(id(array)..., *integers)` computes; `order` is the memory order of a new output."""

    call: Any
    integers: tuple[int, ...]
    dtypes: tuple[np.dtype, ...]
    order: tuple[int, ...] | None
    large: bool


_prepared: dict[Any, PreparedCall | None] = {}
_traces: dict[Any, tuple[s.Expr, ...]] = {}
_kernels = jit.Kernels()


def elementwise(
    name: str,
    expression: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    out: np.ndarray | None = None,
) -> np.ndarray | None:
    """`expression(*arrays)`, broadcast to `shape`, as one native loop.

    Args:
        name: for printing.
        expression: a function in the scalar language, the same object on every call.
        arrays: real dtypes; they broadcast to `shape`.
        out: where to store, of that shape; may be one of `arrays`. A new array by default, laid out as the inputs.

    Returns:
        The result, or None where native code does not apply (complex numbers, odd strides).
    """
    key: Any
    if len(arrays) == 1:
        a = arrays[0]
        key = (expression, shape, a.dtype, a.shape, a.strides)
    elif len(arrays) == 2:
        a, b = arrays
        key = (expression, shape, a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides)
    else:
        key = (expression, shape, *[x for a in arrays for x in (a.dtype, a.shape, a.strides)])
    if out is not None:
        key = (key, out.dtype, out.strides)
    try:
        prepared = _prepared[key]
    except KeyError:
        prepared = _remember(key, _prepare(name, expression, arrays, shape, None if out is None else (out,)))
    if prepared is None:
        return None
    if out is None:
        out = memory.empty(shape, prepared.dtypes[0], prepared.order)
    else:
        arrays = apart(arrays, (out,))
    if prepared.large:
        with threads.compute_token:
            prepared.call(*map(id, arrays), id(out), *prepared.integers)
    else:
        prepared.call(*map(id, arrays), id(out), *prepared.integers)
    return out


def elementwise_many(
    name: str,
    expression: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    outs: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, ...] | None:
    """As `elementwise` for an expression that returns a tuple: one loop, several outputs.

    All results are computed before any is stored, so an output may be one of the inputs.
    """
    key = ("many", expression, shape, *[x for a in arrays for x in (a.dtype, a.shape, a.strides)])
    if outs is not None:
        key = (key, *[x for o in outs for x in (o.dtype, o.strides)])
    try:
        prepared = _prepared[key]
    except KeyError:
        prepared = _remember(key, _prepare(name, expression, arrays, shape, outs))
    if prepared is None:
        return None
    if outs is None:
        outs = [memory.empty(shape, d, prepared.order) for d in prepared.dtypes]
    else:
        arrays = apart(arrays, outs)
    with threads.compute_token:
        prepared.call(*map(id, arrays), *map(id, outs), *prepared.integers)
    return tuple(outs)


def apart(arrays: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Copies of the inputs that partially overlap an output."""
    result: list[np.ndarray] | None = None
    for k, a in enumerate(arrays):
        for out in outs:
            if a is out or not np.may_share_memory(a, out):
                continue
            same = a.shape == out.shape and a.strides == out.strides and a.dtype == out.dtype
            if same and a.__array_interface__["data"] == out.__array_interface__["data"]:
                continue
            if result is None:
                result = list(arrays)
            result[k] = _twin(a)
            break
    return arrays if result is None else result


def _twin(a: np.ndarray) -> np.ndarray:
    """A copy with the same strides: the call was prepared for them."""
    reach = [(n - 1) * step for n, step in zip(a.shape, a.strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0)
    memory_ = np.empty(high - low + a.itemsize, np.uint8)
    twin = np.ndarray(a.shape, a.dtype, memory_, -low, a.strides)
    twin[...] = a
    return twin


def _remember(key: Any, prepared: PreparedCall | None) -> PreparedCall | None:
    if len(_prepared) >= MAX_PREPARED_CALLS:
        _prepared.clear()
    _prepared[key] = prepared
    return prepared


def element_strides(a: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides in elements after broadcasting to `shape`; None if they are not multiples of the element size."""
    steps: list[int] = [0] * (len(shape) - a.ndim)
    for n, st, wanted in zip(a.shape, a.strides, shape[len(shape) - a.ndim :], strict=True):
        if n == 1 and wanted != 1:
            steps.append(0)
            continue
        if n != wanted:
            raise ValueError(f"elementwise: shapes do not broadcast. Got {a.shape}; expected {shape}.")
        whole, odd = divmod(st, a.itemsize)
        if odd and n > 1:
            return None
        steps.append(whole)
    return tuple(steps)


def serves(arrays: Sequence[np.ndarray]) -> bool:
    """Whether native code handles these dtypes."""
    return all(isinstance(a, np.ndarray) and a.dtype in s.DTYPES for a in arrays)


def _prepare(
    name: str,
    expression: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    outs: Sequence[np.ndarray] | None,
) -> PreparedCall | None:
    if not serves(arrays) or (outs is not None and not serves(outs)):
        return None
    inputs = tuple(a.dtype for a in arrays)
    trace_key = (expression, inputs)
    if trace_key not in _traces:
        if len(_traces) >= MAX_PREPARED_CALLS:
            _traces.clear()
        traced = s.trace(expression, inputs)
        _traces[trace_key] = traced if isinstance(traced, tuple) else (traced,)
    exprs = _traces[trace_key]
    dtypes = tuple(e.dtype for e in exprs) if outs is None else tuple(o.dtype for o in outs)
    strides = [element_strides(a, shape) for a in arrays]
    if outs is None:
        order = memory_order(shape, strides)
        steps = dense_strides(shape, order)
        strides += [steps] * len(exprs)
    else:
        order = None
        for o in outs:
            if o.shape != shape:
                raise ValueError(f"{name}: out has the wrong shape. Got {o.shape}; expected {shape}.")
            if not o.flags.writeable:
                raise ValueError(f"{name}: out is read-only. Got an array that cannot be written; copy it first.")
        strides += [element_strides(o, shape) for o in outs]
    if any(st is None for st in strides):
        return None
    size = prod(shape)
    dims = collapse(shape, strides, first=len(arrays))  # type: ignore[arg-type]
    sizes, steps_by_operand = dims.sizes, dims.strides
    if size == 0 or not sizes:
        sizes, steps_by_operand = (size,), tuple((1,) for _ in strides)
    streaming = size * dtypes[0].itemsize >= MIN_STREAMING_BYTES
    if (turn := _transposed_axes(sizes, steps_by_operand, len(arrays))) is not None and size >= MIN_TILED_ELEMENTS:
        call, integers = _tiled(name, exprs, inputs, dtypes, sizes, steps_by_operand, turn, streaming)
        return PreparedCall(call, integers, dtypes, order, True)
    ndim = len(sizes)
    classes = tuple(stride_class(st[-1]) for st in steps_by_operand)
    kernel_key = (exprs, inputs, dtypes, ndim, classes, streaming)
    compiled = _kernels.compiled(
        kernel_key, lambda: build.elementwise(exprs, inputs, dtypes, ndim, classes, name, streaming)
    )
    numbers: list[int] = []
    if ndim == 1:
        numbers.append(sizes[0])
    else:
        rows = prod(sizes[:-1])
        numbers += [rows, *build.blocking(rows, sizes[-1]), *sizes]
    for st, c in zip(steps_by_operand, classes, strict=True):
        numbers += st[:-1]
        if c == 2:
            numbers.append(st[-1])
    return PreparedCall(compiled.call_objects, tuple(numbers), dtypes, order, size >= MIN_PARALLEL_ELEMENTS)


def _transposed_axes(sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]], inputs: int) -> int | None:
    """The dimension along which some inputs are contiguous while the outputs are along the last; None if none is."""
    if len(sizes) < 2 or any(st[-1] != 1 for st in strides[inputs:]) or sizes[-1] < 16:
        return None
    found = {st.index(1) for st in strides[:inputs] if st[-1] not in (0, 1) and 1 in st}
    if len(found) != 1:
        return None
    (axis,) = found
    return axis if sizes[axis] >= 16 else None


def _tiled(
    name: str,
    exprs: tuple[s.Expr, ...],
    inputs: tuple[np.dtype, ...],
    outputs: tuple[np.dtype, ...],
    sizes: tuple[int, ...],
    strides: Sequence[tuple[int, ...]],
    axis: int,
    streaming: bool,
) -> tuple[Any, tuple[int, ...]]:
    """The call and integers of a `PreparedCall` for operands with different fastest axes."""
    last = len(sizes) - 1
    order = [d for d in range(last) if d != axis] + [axis, last]
    sizes = tuple(sizes[d] for d in order)
    steps = [tuple(st[d] for d in order) for st in strides]
    transposed = tuple(st[-2] == 1 and st[-1] not in (0, 1) for st in steps[: len(inputs)])
    flat = tuple(stride_class(st[-1]) for st in steps)
    key = ("tiled", exprs, inputs, outputs, len(sizes), transposed, flat, streaming)
    compiled = _kernels.compiled(
        key,
        lambda: tiled.tiled_elementwise(exprs, inputs, outputs, len(sizes), transposed, flat, host(), name, streaming),
    )
    side = tiled.tile_size(max(d.itemsize for d in (*inputs, *outputs)), host())
    integers = [prod(sizes[:-2]), -(-sizes[-2] // side), -(-sizes[-1] // side), *sizes]
    for k, st in enumerate(steps):
        integers += st[:-2]
        if k < len(inputs) and transposed[k]:
            integers.append(st[-1])
        else:
            integers.append(st[-2])
            if flat[k] == 2:
                integers.append(st[-1])
    return compiled.call_objects, tuple(integers)


def memory_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """Axis order for a new result: that of the first input that fills the shape, so layouts pass through."""
    row_major = tuple(range(len(shape)))
    for st in strides:
        if st is None or any(step == 0 and n > 1 for step, n in zip(st, shape, strict=True)):
            continue
        order = tuple(sorted(row_major, key=lambda a: (-abs(st[a]) if shape[a] > 1 else 0, a)))
        moving = [a for a in order if shape[a] > 1]
        return None if moving == sorted(moving) else order
    return None


def dense_strides(shape: tuple[int, ...], order: tuple[int, ...] | None) -> tuple[int, ...]:
    """Strides without gaps, in elements."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order or range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
