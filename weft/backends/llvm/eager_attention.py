"""Eager attention on NumPy arrays, with the kernels of `weft.compiler.loop_ir.kernels.attention` (scores never in memory).

A kernel is specialised for one combination of shapes and strides and compiled at the first call (a fraction of a second,
once per machine). It is not delayed to a later call because the NumPy path rounds differently, and results must not depend
on call history. Small problems always take the NumPy path.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.loop_ir.ir import Kernel
from ...compiler.loop_ir.kernels import attention
from ...compiler.program.layout import Layout, Storage
from ...ops.nn.attention_call import Backward, Forward
from ...runtime import memory, threads
from . import jit, target

MIN_MULTIPLY_ADDS = 1 << 22  # of queries and keys, from which a kernel is worth compiling
_kernels = jit.Kernels()


def _run(build: Any, call: Any, results: tuple[np.ndarray, ...]) -> None:
    """Run the kernel that `build` makes for arrays laid out like these; `call` is a `Forward` or a `Backward`."""
    arrays = [x for x in (*call, *results) if x.__class__ is np.ndarray]
    present = tuple([x.__class__ is np.ndarray for x in call])
    key = (build, call.attention, present, *[(a.dtype, a.shape, a.strides) for a in arrays])
    kernel = _kernels.compiled(key, lambda: _made(build, call, results))
    with threads.compute_token:
        kernel.call_objects(*[id(a) for a in arrays])


def _made(build: Any, call: Any, results: tuple[np.ndarray, ...]) -> Kernel:
    made: Kernel = build(call.map(_layout), *map(_layout, results), target.host())
    return made


def _layout(a: np.ndarray) -> Layout:
    strides = tuple([st // a.itemsize for st in a.strides])
    return Layout(Storage("argument", a.nbytes), a.dtype, a.shape, strides)


def _rows(a: np.ndarray) -> np.ndarray:
    """The array with a contiguous last axis and aligned addresses."""
    if a.strides[-1] == a.itemsize and a.flags.aligned and all(st % a.itemsize == 0 for st in a.strides):
        return a
    return np.ascontiguousarray(a)


def _prepared(call: Any) -> Any:
    """The call with operands that the kernels can read: contiguous rows, and the mask as large as the scores."""
    mask = call.mask
    if mask is not None:
        mask = np.broadcast_to(mask, (*call.query.shape[:-1], call.key.shape[-2]))
    return call._replace(query=_rows(call.query), key=_rows(call.key), value=_rows(call.value), mask=mask, state=None)


def serves(call: Forward) -> bool:
    """Whether there is a kernel for these arrays."""
    return call.query.size * call.key.shape[-2] >= MIN_MULTIPLY_ADDS and attention.serves_forward(call)


def forward(call: Forward) -> tuple[np.ndarray, np.ndarray]:
    """(out, log-sum-exp)."""
    call = _prepared(call)
    q, v = call.query, call.value
    out, lse = memory.empty((*q.shape[:-1], v.shape[-1]), q.dtype), memory.empty(q.shape[:-1], q.dtype)
    _run(attention.attention_forward, call, (out, lse))
    return out, lse


def backward(call: Backward) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of query, key and value."""
    call = _prepared(call)._replace(
        grad=_rows(call.grad),
        grad_lse=None if call.grad_lse is None else np.ascontiguousarray(call.grad_lse),
        result=_rows(call.result),
        lse=np.ascontiguousarray(call.lse),
    )
    q, k, v = (memory.empty(x.shape, x.dtype) for x in (call.query, call.key, call.value))
    _run(attention.attention_backward, call, (q, k, v))
    return q, k, v
