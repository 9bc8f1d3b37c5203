"""A native loop that combines several arrays element by element and writes the result to all of them, in one pass.

NumPy needs two passes, one that adds and one that copies; the second took a third of the time of an all-reduce of 1 MB in
shared memory. Other dtypes and operations than those below, and the elements that do not fill a block, are left to NumPy.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends.llvm import jit

_TYPES = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}
_VECTOR_BYTES, _VECTORS = 64, 4
_BLOCK_BYTES = _VECTOR_BYTES * _VECTORS


def _text(kind: str, lanes: int, instruction: str, mean: bool) -> str:
    """The loop over blocks. The values of a block stay in registers while those of the other arrays are combined with them."""
    vector = f"<{lanes} x {kind}>"
    each = range(_VECTORS)

    def lines(*templates: str) -> str:
        return "\n".join(f"  {t.format(u=u, offset=u * lanes)}" for u in each for t in templates)

    divide = f"%r{{u}} = fdiv {vector} %s{{u}}, %divisor" if mean else f"%r{{u}} = bitcast {vector} %s{{u}} to {vector}"
    splat = (
        f"""  %n_value = uitofp i64 %n to {kind}
  %n_lane = insertelement {vector} poison, {kind} %n_value, i64 0
  %divisor = shufflevector {vector} %n_lane, {vector} poison, <{lanes} x i32> zeroinitializer"""
        if mean
        else ""
    )
    return f"""
define void @weft_combine(ptr %parts, i64 %n, i64 %start, i64 %stop) {{
entry:
{splat}
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %next, %stored ]
  %end = icmp uge i64 %i, %stop
  br i1 %end, label %done, label %first
first:
  %p0 = load ptr, ptr %parts
{
        lines(
            "%o{u} = add i64 %i, {offset}",
            f"%a{{u}} = getelementptr {kind}, ptr %p0, i64 %o{{u}}",
            f"%v{{u}} = load {vector}, ptr %a{{u}}, align 4",
        )
    }
  br label %fold
fold:
  %k = phi i64 [ 1, %first ], [ %k_next, %more ]
{lines(f"%s{{u}} = phi {vector} [ %v{{u}}, %first ], [ %t{{u}}, %more ]")}
  %folded = icmp eq i64 %k, %n
  br i1 %folded, label %finish, label %more
more:
  %at = getelementptr ptr, ptr %parts, i64 %k
  %p = load ptr, ptr %at
{
        lines(
            f"%b{{u}} = getelementptr {kind}, ptr %p, i64 %o{{u}}",
            f"%w{{u}} = load {vector}, ptr %b{{u}}, align 4",
            f"%t{{u}} = {instruction} {vector} %s{{u}}, %w{{u}}",
        )
    }
  %k_next = add i64 %k, 1
  br label %fold
finish:
{lines(divide)}
  br label %store
store:
  %m = phi i64 [ 0, %finish ], [ %m_next, %write ]
  %all = icmp eq i64 %m, %n
  br i1 %all, label %stored, label %write
write:
  %to = getelementptr ptr, ptr %parts, i64 %m
  %q = load ptr, ptr %to
{lines(f"%c{{u}} = getelementptr {kind}, ptr %q, i64 %o{{u}}", f"store {vector} %r{{u}}, ptr %c{{u}}, align 4")}
  %m_next = add i64 %m, 1
  br label %store
stored:
  %next = add i64 %i, {lanes * _VECTORS}
  br label %head
done:
  ret void
}}
"""


@functools.cache
def _native(dtype: str, op: str) -> tuple[Callable[..., Any], object] | None:
    """The loop for a dtype and an operation, and what keeps its code loaded; None if there is none."""
    kind = _TYPES.get(dtype)
    if kind is None or op not in ("sum", "mean", "prod"):
        return None
    floating = kind in ("float", "double")
    instruction = ("f" if floating else "") + ("mul" if op == "prod" else "add")
    lanes = _VECTOR_BYTES // np.dtype(dtype).itemsize
    code = jit.load_text(_text(kind, lanes, instruction, op == "mean"), ["weft_combine"])
    word, address = ctypes.c_uint64, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, address, word, word, word)(code.addresses["weft_combine"]), code


def addresses(parts: Sequence[np.ndarray]) -> Any:
    """The addresses of contiguous arrays, for `combine`."""
    return (ctypes.c_void_p * len(parts))(*[p.__array_interface__["data"][0] for p in parts])


def combine(dtype: np.dtype, op: str, at: Any, start: int, stop: int) -> int:
    """Combine the elements from `start` on of all arrays, in their order; returns up to where, at most `stop`.

    >>> a, b = np.arange(70.0), np.ones(70)
    >>> combine(a.dtype, "sum", addresses([a, b]), 0, 70), a[:3].tolist(), b[:3].tolist()
    (64, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    """
    native = _native(dtype.name, op)
    if native is None:
        return start
    stop -= (stop - start) % (_BLOCK_BYTES // dtype.itemsize)
    native[0](at, len(at), start, stop)
    return stop
