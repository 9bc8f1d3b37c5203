"""The Philox4x32-10 counter-based random number generator, written in the scalar language.

Note [Random numbers]. Element i of a draw is `philox(counter=(i, offset), key=seed)`: four 32-bit words that depend on
nothing else, so results are independent of the number of threads, the order of computation and the execution mode
(NumPy, native code, a graph). `state` is the int64 tensor [seed, offset]; a draw uses the current state, then the
generator increments the offset. The functions here accept arrays or expressions: NumPy runs them and the compiler
turns the same code into vector instructions, so the bits agree by construction (for normal numbers up to the last bits
of a logarithm and a cosine).

Reference: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import dtypes
from ..core import scalar as s

M0, M1 = 0xD2511F53, 0xCD9E8D57  # multipliers
W0, W1 = 0x9E3779B9, 0xBB67AE85  # Weyl sequence of the key: the golden ratio and sqrt(3) - 1
ROUNDS = 10
MASK32 = 0xFFFFFFFF

_BLOCK = 1 << 15  # elements per block in NumPy, so that temporaries stay in cache


def _multiply(x: Any, m: int) -> tuple[Any, Any]:
    """The upper and lower halves of the 64-bit product of 32-bit words."""
    if isinstance(x, s.Expr):
        constant = s.const(m, np.uint32)
        return s.mulhi(x, constant), s.mul(x, constant)
    product = np.asarray(x, np.uint32).astype(np.uint64) * np.uint64(m)
    return (product >> np.uint64(32)).astype(np.uint32), product.astype(np.uint32)


def _bump(key: Any, step: int) -> Any:
    if isinstance(key, s.Expr):
        return s.add(key, s.const(step, np.uint32))
    return np.uint32((int(key) + step) & MASK32)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The four words for a counter and a key, all uint32 (arrays, numbers or expressions)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for i in range(ROUNDS):
        if i:
            k0, k1 = _bump(k0, W0), _bump(k1, W1)
        high0, low0 = _multiply(c0, M0)
        high1, low1 = _multiply(c2, M1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0, c1, c2, c3


def halves(value: int) -> tuple[np.uint32, np.uint32]:
    """Split a 64-bit integer (two's complement) into (low, high) words."""
    value &= 0xFFFFFFFFFFFFFFFF
    return np.uint32(value & MASK32), np.uint32(value >> 32)


def words(state: np.ndarray, start: int, count: int) -> tuple[Any, Any, Any, Any]:
    """The random words of elements `start` to `start + count` of the draw with `state`."""
    seed, offset = (halves(int(v)) for v in state)
    index = np.arange(start, start + count, dtype=np.uint64)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    return philox((low, high if start + count > MASK32 else np.uint32(0), *offset), seed)


def blocks(count: int) -> Iterator[tuple[int, int]]:
    """Split `count` elements into cache-sized (start, stop) blocks."""
    for start in range(0, count, _BLOCK):
        yield start, min(start + _BLOCK, count)


# From words to numbers ------------------------------------------------------------------------------------------------


def join(low: Any, high: Any) -> Any:
    """Join two 32-bit words into one of 64 bits."""
    return s.bitwise_or(s.cast(low, np.uint64), s.left_shift(s.cast(high, np.uint64), _u64(low, 32)))


def _u64(like: Any, value: int) -> Any:
    return s.const(value, np.uint64) if isinstance(like, s.Expr) else np.uint64(value)


def _u32(like: Any, value: int) -> Any:
    return s.const(value, np.uint32) if isinstance(like, s.Expr) else np.uint32(value)


_HALF_BITS = {dtypes.float16: 11, dtypes.bfloat16: 8}


def uniform(w: tuple[Any, Any, Any, Any], dtype: np.dtype) -> Any:
    """Uniform number in [0, 1) with as many random bits as the mantissa of `dtype`, so that rounding never gives 1."""
    if dtype == dtypes.float64:
        bits = s.right_shift(join(w[1], w[0]), _u64(w[0], 11))
        return s.mul(s.cast(bits, np.float64), 2.0**-53)
    n = _HALF_BITS.get(dtype, 24)
    value = s.mul(s.cast(s.right_shift(w[0], _u32(w[0], 32 - n)), np.float32), 2.0**-n)
    return value if n == 24 else s.cast(value, dtype)


def polar(w: tuple[Any, Any, Any, Any], dtype: np.dtype) -> tuple[Any, Any]:
    """Radius and angle of a standard normal point in the plane (Box–Muller)."""
    if dtype == dtypes.float64:
        first = s.cast(s.right_shift(join(w[1], w[0]), _u64(w[0], 11)), np.float64)
        second = s.cast(s.right_shift(join(w[3], w[2]), _u64(w[0], 11)), np.float64)
        u, angle = s.mul(s.add(first, 1.0), 2.0**-53), s.mul(second, 2.0**-53 * 2 * math.pi)
    else:
        u = s.mul(s.add(s.cast(w[0], np.float32), 1.0), 2.0**-32)  # in (0, 1]: its logarithm is finite
        angle = s.mul(s.cast(s.right_shift(w[1], _u32(w[1], 8)), np.float32), 2.0**-24 * 2 * math.pi)
    return s.sqrt(s.mul(s.log(u), -2.0)), angle


def normal(w: tuple[Any, Any, Any, Any], dtype: np.dtype) -> Any:
    """A standard normal number; half precision is computed in float32."""
    radius, angle = polar(w, dtype)
    value = s.mul(radius, s.cos(angle))
    return s.cast(value, dtype) if dtype in _HALF_BITS else value


def complex_normal(w: tuple[Any, Any, Any, Any], dtype: np.dtype) -> np.ndarray:
    """A complex normal number of variance 1: half in each part. NumPy only: expressions are real."""
    real = dtypes.real_dtype(dtype)
    radius, angle = polar(w, real)
    radius = radius * real.type(math.sqrt(0.5))
    out = np.empty(radius.shape, dtype)
    out.real, out.imag = radius * np.cos(angle), radius * np.sin(angle)
    return out


def below(word: Any, count: int) -> Any:
    """Integer in [0, count), as uint64: the upper half of a 64-bit random word times `count` (1 to 2**64).

    Probabilities of any two values differ by less than count / 2**64.
    """
    if count == 1 << 64:
        return word
    shift, mask = _u64(word, 32), _u64(word, MASK32)
    a, b = s.right_shift(word, shift), s.bitwise_and(word, mask)  # the word is a · 2³² + b
    low, high = _u64(word, count & MASK32), _u64(word, count >> 32)
    # (a · 2³² + b)(high · 2³² + low) >> 64, with every intermediate below 2⁶⁴
    middle = s.add(s.mul(a, low), s.right_shift(s.mul(b, low), shift))
    if count <= MASK32:
        return s.right_shift(middle, shift)
    other = s.add(s.mul(b, high), s.bitwise_and(middle, mask))
    return s.add(s.mul(a, high), s.add(s.right_shift(middle, shift), s.right_shift(other, shift)))
