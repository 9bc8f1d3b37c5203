"""Eager attention on NumPy arrays, with the kernels of `weft.compiler.loop_ir.kernels.attention` (scores never in memory).

A kernel is specialised for one combination of shapes and strides and compiled at the first call (a fraction of a second,
once per machine). It is not delayed to a later call because the NumPy path rounds differently, and results must not depend
on call history. Small problems always take the NumPy path.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.layout import Layout, Storage
from ...compiler.loop_ir.ir import Kernel
from ...compiler.loop_ir.kernels import attention
from ...runtime import memory, threads
from . import jit

MIN_MULTIPLY_ADDS = 1 << 22  # of queries and keys, from which a kernel is worth compiling
_kernels = jit.Kernels()


def _kernel(build: Any, arrays: list[np.ndarray | None], causal: bool, scale: float) -> jit.Compiled:
    """The kernel for arrays laid out like these."""
    key = (build, causal, scale, *[None if a is None else (a.dtype, a.shape, a.strides) for a in arrays])

    def make() -> Kernel:
        layouts = [None if a is None else _layout(a, i) for i, a in enumerate(arrays)]
        made: Kernel = build(*layouts, causal, scale)
        return made

    return _kernels.compiled(key, make)


def _layout(a: np.ndarray, index: int) -> Layout:
    strides = tuple([st // a.itemsize for st in a.strides])
    return Layout(Storage("argument", a.nbytes, index=index), a.dtype, a.shape, strides)


def _rows(a: np.ndarray) -> np.ndarray:
    """The array with a contiguous last axis and aligned addresses."""
    if a.strides[-1] == a.itemsize and a.flags.aligned and all(st % a.itemsize == 0 for st in a.strides):
        return a
    return np.ascontiguousarray(a)


def _spread(mask: np.ndarray | None, query: np.ndarray, key: np.ndarray) -> np.ndarray | None:
    return None if mask is None else np.broadcast_to(mask, (*query.shape[:-1], key.shape[-2]))


def _run(kernel: jit.Compiled, arrays: list[np.ndarray | None]) -> None:
    with threads.compute_token:
        kernel.call_objects(*[id(a) for a in arrays if a is not None])


def serves(query: Any, key: Any, value: Any, mask: Any, dropout_p: float) -> bool:
    """Whether there is a kernel for these arrays."""
    return (
        not dropout_p
        and query.size * key.shape[-2] >= MIN_MULTIPLY_ADDS
        and attention.suits(query, key, value)
        and (mask is None or mask.dtype in (np.bool_, np.float32))
    )


def forward(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(out, log-sum-exp)."""
    q, k, v, m = _rows(query), _rows(key), _rows(value), _spread(mask, query, key)
    out, lse = memory.empty((*q.shape[:-1], v.shape[-1]), q.dtype), memory.empty(q.shape[:-1], q.dtype)
    arrays = [q, k, v, m, out, lse]
    _run(_kernel(attention.attention_forward, arrays, bool(causal), float(scale)), arrays)
    return out, lse


def backward(
    grad: Any,
    grad_lse: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    lse: Any,
    causal: bool,
    scale: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of query, key and value."""
    g, q, k, v, o = (_rows(a) for a in (grad, query, key, value, out))
    stat = np.ascontiguousarray(lse)
    g_stat = None if grad_lse is None else np.ascontiguousarray(grad_lse)
    m = _spread(mask, query, key)
    results = (memory.empty(q.shape, q.dtype), memory.empty(k.shape, k.dtype), memory.empty(v.shape, v.dtype))
    arrays = [g, g_stat, q, k, v, m, o, stat, *results]
    _run(_kernel(attention.attention_backward, arrays, bool(causal), float(scale)), arrays)
    return results
