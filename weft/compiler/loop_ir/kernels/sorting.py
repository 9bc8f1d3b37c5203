"""Branch-free sorting by unsigned keys that order as the elements do.

Short rows are sorted by rank: an element's position is the number of elements that precede it, counted for all elements of
the row at once. Longer rows use an LSD radix sort. Both are stable and independent of the number of threads.

Note [Sort keys]. NaN is the largest element, all NaNs are equal and so are the two zeros; the key of a descending sort is
the complement of the key of an ascending one, so that equal elements keep their order either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr

MAX_RANK_ELEMENTS = 96  # elements of a row up to which ranks are counted
_NAN = {32: 0xFF800001, 64: 0xFFF0000000000001}  # just above the key of infinity


def key_bits(dtype: np.dtype) -> int:
    """The number of significant bits of a key of this dtype."""
    if s.kind(dtype) == "f":
        return max(8 * dtype.itemsize, 32)
    return 8 * dtype.itemsize


def key_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if key_bits(dtype) == 64 else np.uint32)


def key(x: Expr, descending: bool, one_zero: bool = True) -> Expr:
    """An unsigned integer that orders as `x` does, see Note [Sort keys]; with `one_zero` both zeros have one key."""
    bits, target = key_bits(x.dtype), key_dtype(x.dtype)
    mask = (1 << bits) - 1
    if s.kind(x.dtype) == "f":
        wide = s.cast(x, np.float32) if bits == 32 else x
        plain = s.where(s.eq(wide, 0), s.const(0.0, wide.dtype), wide) if one_zero else wide
        raw = s.bitcast(plain, target)
        top = s.const(1 << (bits - 1), target)
        made = s.where(s.ge(raw, top), s.bitwise_not(raw), s.bitwise_or(raw, top))
        made = s.where(s.isnan(wide), s.const(_NAN[bits], target), made)
    elif s.kind(x.dtype) == "i":
        signed = s.cast(x, np.int64 if bits == 64 else np.int32)
        raw = s.bitcast(signed, target)
        made = s.bitwise_and(s.add(raw, s.const(1 << (bits - 1), target)), s.const(mask, target))
    else:
        made = s.cast(x, target)
    return s.bitwise_xor(made, s.const(mask, target)) if descending else made


def element(value: Expr, dtype: np.dtype, descending: bool) -> Expr:
    """The element with the key `value`, which was made without `one_zero`."""
    bits = key_bits(dtype)
    if descending:
        value = s.bitwise_xor(value, s.const((1 << bits) - 1, value.dtype))
    top = s.const(1 << (bits - 1), value.dtype)
    if s.kind(dtype) == "f":
        raw = s.where(s.ge(value, top), s.bitwise_xor(value, top), s.bitwise_not(value))
        return s.cast(s.bitcast(raw, np.float64 if bits == 64 else np.float32), dtype)
    if s.kind(dtype) == "i":
        signed = np.dtype(np.int64 if bits == 64 else np.int32)
        return s.cast(s.bitcast(s.sub(value, top), signed), dtype)
    return s.cast(value, dtype)


def digits(bits: int, n: int) -> list[tuple[int, int]]:
    """(shift, width) of the digits of a key; long rows use wide digits, so that there are fewer passes."""
    width = 8 if n < 8192 or bits <= 16 else 11
    return [(at, min(width, bits - at)) for at in range(0, bits, width)]


def digit(value: Expr, shift: int, width: int) -> Expr:
    """A digit of a key, as an index."""
    moved = s.right_shift(value, s.const(shift, value.dtype)) if shift else value
    return s.cast(s.bitwise_and(moved, s.const((1 << width) - 1, value.dtype)), np.int64)


def before(a: Expr, i: Any, b: Expr, j: Any) -> Expr:
    """Whether the element with key `a` at `i` goes before that with key `b` at `j`."""
    return s.bitwise_or(s.lt(a, b), s.bitwise_and(s.eq(a, b), s.lt(i, j)))
