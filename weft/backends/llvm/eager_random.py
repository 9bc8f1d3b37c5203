"""Random draws on NumPy arrays as native loops."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...compiler.loop_ir.kernels import random as build
from ...ops.array import philox
from ...ops.core import scalar as s
from ...runtime import memory, threads
from . import jit

_kernels = jit.Kernels()


def draw(
    make: Callable[..., Any],
    state: np.ndarray,
    shape: tuple[int, ...],
    dtype: np.dtype,
    start: int = 0,
    out: np.ndarray | None = None,
) -> np.ndarray | None:
    """`make(words)` for elements `start`, `start + 1`, … of the draw that `state` (int64 [seed, offset]) stands for.

    Args:
        make: a function of four uint32 expressions, the same object on every call; None is returned for complex.
        out: a contiguous array to fill, instead of a new one.
    """
    if dtype not in s.DTYPES:
        return None
    state = np.ascontiguousarray(state, np.int64)
    if state.shape != (2,):
        raise ValueError(f"draw: state must be [seed, offset]. Got shape {state.shape}; expected (2,).")
    compiled = _kernels.compiled((make, dtype), lambda: build.draw(make, dtype))
    if out is None:
        out = memory.empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"draw: out does not fit. Got {out.dtype} {out.shape}; expected contiguous {dtype} {shape}.")
    with threads.compute_token:
        compiled.call_objects(id(state), id(out), prod(shape), start)
    return out


def _bits(w: tuple[s.Expr, ...]) -> s.Expr:
    return w[0]


_makers: dict[Any, Callable[..., Any]] = {}


def _maker(function: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    key = (function, dtype)
    if key not in _makers:
        _makers[key] = lambda w: function(w, dtype)
    return _makers[key]


def _state(seed: int, offset: int) -> np.ndarray:
    mask = 0xFFFFFFFFFFFFFFFF
    return np.array([seed & mask, offset & mask], np.uint64).view(np.int64)


def random_bits(shape: tuple[int, ...], seed: int, offset: int) -> np.ndarray | None:
    """uint32 words: the first of each element."""
    return draw(_bits, _state(seed, offset), shape, s.UINT32)


def random_uniform(
    shape: tuple[int, ...], dtype: np.dtype, seed: int, offset: int, out: np.ndarray | None = None
) -> np.ndarray | None:
    """Numbers in [0, 1), as `weft.ops.array.philox.uniform`."""
    return draw(_maker(philox.uniform, dtype), _state(seed, offset), shape, dtype, 0, out)


def random_normal(
    shape: tuple[int, ...], dtype: np.dtype, seed: int, offset: int, out: np.ndarray | None = None
) -> np.ndarray | None:
    """Standard normal numbers, as `weft.ops.array.philox.normal`."""
    return draw(_maker(philox.normal, dtype), _state(seed, offset), shape, dtype, 0, out)
