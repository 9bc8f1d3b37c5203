"""Matrix multiplication of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from weft.runtime import memory, threads

from .. import capi
from ..addresses import address
from ..descriptors import MemoryDesc, contiguous_strides, data_type
from ..shares import Shares
from ..shares import matmul as matmul_shares
from .primitive_call import PrimitiveCall, cache, is_reference, sum_parts

_Shape = tuple[int, ...]
_FLOAT32 = np.dtype(np.float32)


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None, bias: np.ndarray | None = None) -> np.ndarray:
    """`a @ b + bias`.

    Args:
        a: (..., M, K). Any strides.
        b: (..., K, N), of the same dtype; batch axes broadcast as in NumPy.
        out: (..., M, N) or `None`. Any strides; must not overlap the inputs.
        bias: (N,) or `None`.

    Returns:
        `out`, or a new row-major array.

    Raises:
        ValueError, TypeError: shapes or dtypes do not fit together.
        Unsupported: oneDNN has no (fast) implementation.
    """
    key = (
        "matmul", a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, threads.get_num_threads(),
        None if out is None else (out.shape, out.strides, out.dtype),
        None if bias is None else (bias.shape, bias.strides, bias.dtype),
    )  # fmt: skip
    prepared = cache.lookup(key)
    if prepared is None:
        prepared = cache.make(key, lambda: _prepare(a, b, out, bias))
    if out is not None and not out.flags.writeable:
        raise ValueError("matmul: out is read-only.")
    result: np.ndarray = prepared(a, b, out, bias)
    return result


class _Call:
    """One prepared multiplication: which operands to copy first, which kernel, in which order of operands."""

    __slots__ = ("copy_a", "copy_b", "copy_bias", "copy_out", "dtype", "kernel", "shape", "swap")

    def __init__(
        self, kernel: PrimitiveCall, shape: _Shape, dtype: np.dtype, copies: tuple[bool, bool, bool, bool], swap: bool
    ) -> None:
        self.kernel, self.shape, self.dtype, self.swap = kernel, shape, dtype, swap
        self.copy_a, self.copy_b, self.copy_out, self.copy_bias = copies

    def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
        if self.copy_a:
            a = _contiguous(a)
        if self.copy_b:
            b = _contiguous(b)
        partial = self.kernel.work.partial
        if partial:
            parts = memory.empty((partial, prod(self.shape)), _FLOAT32)
            left, right = (b, a) if self.swap else (a, b)
            self.kernel(address(left), address(right), address(parts))
            total = sum_parts(parts).astype(self.dtype, copy=False)
            result = total.reshape(self.shape[::-1]).T if self.swap else total.reshape(self.shape)
            if out is None:
                return result
            np.copyto(out, result)
            return out
        target = memory.empty(self.shape, self.dtype) if out is None or self.copy_out else out
        left, right = (b, a) if self.swap else (a, b)
        if bias is None:
            self.kernel(address(left), address(right), address(target))
        else:
            if self.copy_bias:
                bias = np.ascontiguousarray(bias)
            self.kernel(address(left), address(right), address(bias), address(target))
        if self.copy_out:
            assert out is not None
            np.copyto(out, target)
            return out
        return target


def _contiguous(array: np.ndarray) -> np.ndarray:
    copy = memory.empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


class _Matrix:
    """An operand as oneDNN will see it: batch axes, then rows and columns, with strides in elements."""

    __slots__ = ("shape", "strides")

    def __init__(self, shape: _Shape, strides: _Shape) -> None:
        self.shape, self.strides = shape, strides

    def transposed(self) -> _Matrix:
        return _Matrix((*self.shape[:-2], *self.shape[:-3:-1]), (*self.strides[:-2], *self.strides[:-3:-1]))

    def desc(self, dtype: np.dtype) -> MemoryDesc:
        return MemoryDesc.strided(self.shape, dtype, self.strides)


def _as_matrix(array: np.ndarray, batch: _Shape) -> _Matrix | None:
    """The array with `len(batch)` batch axes, of size 1 where it broadcasts; `None` if it must be copied first."""
    itemsize = array.itemsize
    if any(stride < 0 or stride % itemsize for stride in array.strides):
        return None
    matrix = _leading_dimension(array.shape[-2:], tuple(stride // itemsize for stride in array.strides[-2:]))
    if matrix is None:
        return None
    shape, strides = [1] * (len(batch) - array.ndim + 2), [0] * (len(batch) - array.ndim + 2)
    for size, stride in zip(array.shape[:-2], array.strides[:-2], strict=True):
        # A broadcast axis (stride 0) is an axis of size 1 to oneDNN.
        shape.append(size if stride else 1)
        strides.append(stride // itemsize if size > 1 else 0)
    return _Matrix((*shape, *array.shape[-2:]), (*strides, *matrix))


def _leading_dimension(shape: _Shape, strides: _Shape) -> tuple[int, int] | None:
    """(row stride, column stride) with one of them 1 and no overlap, made definite for axes of size 1."""
    (rows, columns), (down, right) = shape, strides
    if columns == 1:
        return (max(down, 1), 1)
    if rows == 1:
        return (columns, 1) if right == 1 else (1, right) if right else None
    if right == 1 and down >= columns:
        return (down, 1)
    if down == 1 and right >= rows:
        return (1, right)
    return None


def _contiguous_matrix(shape: _Shape, batch: _Shape) -> _Matrix:
    padded = (1,) * (len(batch) + 2 - len(shape)) + shape
    return _Matrix(padded, contiguous_strides(padded))


def _merge(matrices: Sequence[_Matrix]) -> list[_Matrix]:
    """The same multiplication with as few batch axes as possible.

    Rows of `a` and batch axes become one axis where `b` does not depend on the batch: (B, M, K) @ (K, N) is one large
    matrix product, several times faster than B small ones.
    """
    a, b, out = matrices
    batch = len(out.shape) - 2
    if batch and all(size == 1 for size in b.shape[:-2]) and a.strides[-1] == 1 and out.strides[-1] == 1:
        rows_a, rows_out = _flatten(a, batch + 1), _flatten(out, batch + 1)
        if rows_a is not None and rows_out is not None and a.shape[:-1] == out.shape[:-1]:
            return [
                _Matrix((rows_a[0], a.shape[-1]), (rows_a[1], 1)),
                _Matrix(b.shape[-2:], b.strides[-2:]),
                _Matrix((rows_out[0], out.shape[-1]), (rows_out[1], 1)),
            ]
    if batch > 1:
        merged = [_flatten(matrix, batch) for matrix in matrices]
        if all(item is not None and item[0] in (1, merged[2][0] if merged[2] else 0) for item in merged):
            return [
                _Matrix((item[0], *matrix.shape[-2:]), (item[1], *matrix.strides[-2:]))
                for item, matrix in zip(merged, matrices, strict=True) if item is not None
            ]  # fmt: skip
    return list(matrices)


def _flatten(matrix: _Matrix, count: int) -> tuple[int, int] | None:
    """(size, stride) of the first `count` axes merged into one; `None` if they have no common stride."""
    size, stride = 1, 0
    for length, step in zip(reversed(matrix.shape[:count]), reversed(matrix.strides[:count]), strict=True):
        if length == 1:
            continue
        if size == 1:
            size, stride = length, step
        elif step == size * stride:
            size *= length
        else:
            return None
    return size, stride or matrix.shape[-1] * matrix.shape[-2]


def _definite(matrix: _Matrix) -> _Matrix:
    """Gives broadcast batch axes (stride 0) a stride that oneDNN accepts: they have one element, any will do."""
    extent = max((n * s for n, s in zip(matrix.shape, matrix.strides, strict=True)), default=1)
    strides = tuple(s if n > 1 or i >= len(matrix.shape) - 2 else extent
                    for i, (n, s) in enumerate(zip(matrix.shape, matrix.strides, strict=True)))  # fmt: skip
    return _Matrix(matrix.shape, strides)


def _check(a: np.ndarray, b: np.ndarray, out: np.ndarray | None, bias: np.ndarray | None) -> _Shape:
    """The batch axes of the result; raises if the arguments do not match."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"matmul: operands must be matrices. Got shapes {a.shape} and {b.shape}; expected at least 2 axes."
        )
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: inner dimensions differ. Got shapes {a.shape} and {b.shape}; expected a.shape[-1] == b.shape[-2]."
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: batch axes do not broadcast. Got shapes {a.shape} and {b.shape}.") from None
    shape = (*batch, a.shape[-2], b.shape[-1])
    if a.dtype != b.dtype or (bias is not None and bias.dtype != a.dtype) or (out is not None and out.dtype != a.dtype):
        raise TypeError(
            f"matmul: dtypes differ. Got a {a.dtype}, b {b.dtype}, bias {None if bias is None else bias.dtype}, "
            f"out {None if out is None else out.dtype}; expected one dtype."
        )
    if out is not None and out.shape != shape:
        raise ValueError(f"matmul: out has the wrong shape. Got {out.shape}; expected {shape}.")
    if bias is not None and bias.shape != shape[-1:]:
        raise ValueError(f"matmul: bias has the wrong shape. Got {bias.shape}; expected {shape[-1:]}.")
    if 0 in shape or 0 in a.shape:
        raise capi.Unsupported(f"matmul: empty operands. Got shapes {a.shape} and {b.shape}.")
    if np.dtype(a.dtype).kind in "iub":
        raise capi.Unsupported(f"matmul: integers are not oneDNN's. Got {a.dtype}.")
    data_type(a.dtype)
    return batch


def _prepare(a: np.ndarray, b: np.ndarray, out: np.ndarray | None, bias: np.ndarray | None) -> _Call:
    batch = _check(a, b, out, bias)
    shape = (*batch, a.shape[-2], b.shape[-1])
    bias_copied = bias is not None and bias.shape != (1,) and bias.strides != (bias.itemsize,)
    refused: Shares | None = None
    for copy_a, copy_b, copy_out in _attempts(out):
        operands: list[_Matrix | None] = []
        for array, copied in ((a, copy_a), (b, copy_b), (out, copy_out)):
            if array is None or copied:
                operands.append(_contiguous_matrix(shape if array is None else array.shape, batch))
            else:
                operands.append(_as_matrix(array, batch))
        left, right, target = operands
        if left is None or right is None or target is None or target.shape != shape:
            continue
        # A result laid out by columns is the row-major result of the transposed problem.
        swap = target.strides[-1] != 1
        if swap:
            if bias is not None:
                continue
            left, right, target = right.transposed(), left.transposed(), target.transposed()
        matrices = [_definite(matrix) for matrix in _merge([left, right, target])]
        if any(
            n not in (1, full)
            for matrix in matrices[:2]
            for n, full in zip(matrix.shape[:-2], matrices[2].shape[:-2], strict=True)
        ):
            continue  # fmt: skip
        if not _spans_batch(matrices):
            continue
        work = _create(matrices, a.dtype, bias is not None)
        if is_reference(work):
            refused = work
            continue
        return _Call(PrimitiveCall(work), shape, a.dtype, (copy_a, copy_b, copy_out, bias_copied), swap)
    raise capi.Unsupported(f"matmul: no fast implementation for shapes {a.shape} and {b.shape}, {a.dtype} ({refused}).")


def _spans_batch(matrices: Sequence[_Matrix]) -> bool:
    """Whether every batch axis of the result comes from an operand (one broadcast in both must be copied)."""
    a, b, out = matrices
    return all(n == 1 or n in (i, j) for i, j, n in zip(a.shape[:-2], b.shape[:-2], out.shape[:-2], strict=True))


def _attempts(out: np.ndarray | None) -> Iterator[tuple[bool, bool, bool]]:
    """The subsets of (a, b, out) to copy, in the order to try: from none to all."""
    for copy_out in (False,) if out is None else (False, True):
        for copy_a, copy_b in ((False, False), (True, False), (False, True), (True, True)):
            yield copy_a, copy_b, copy_out


def _create(matrices: Sequence[_Matrix], dtype: np.dtype, biased: bool) -> Shares:
    a, b, out = matrices
    ndim = len(out.shape)
    bias = MemoryDesc.strided((1,) * (ndim - 1) + (out.shape[-1],), dtype) if biased else None
    return matmul_shares(a.desc(dtype), b.desc(dtype), out.desc(dtype), bias, deep=True)
