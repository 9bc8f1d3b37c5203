"""How far apart two processors are: the time a number takes from one to the other.

Two virtual processors may run on cores that share a cache at one moment and on cores far apart at the next, and what threads
tell each other then takes several times as long. Nothing inside the machine shows it but this.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable

ROUNDS = 5000
PATIENCE = 1 << 24
"""Looks at the other's cell before giving up: the other thread may have lost its processor."""

# Writes 1, 2, 3 ... into `mine`, each after (or, if it is the first to write, before) the same number stands in `other`.
_PING = f"""
define i64 @ping(ptr %mine, ptr %other, i64 %rounds, i1 %first) nounwind {{
entry:
  br label %round
round:
  %i = phi i64 [ 1, %entry ], [ %next, %done ]
  br i1 %first, label %say, label %wait
say:
  store atomic i64 %i, ptr %mine release, align 8
  br label %wait
wait:
  br label %look
look:
  %looks = phi i64 [ 0, %wait ], [ %more, %again ]
  %seen = load atomic i64, ptr %other acquire, align 8
  %there = icmp sge i64 %seen, %i
  br i1 %there, label %answer, label %again
again:
  %more = add i64 %looks, 1
  %enough = icmp eq i64 %more, {PATIENCE}
  br i1 %enough, label %out, label %look
answer:
  br i1 %first, label %done, label %reply
reply:
  store atomic i64 %i, ptr %mine release, align 8
  br label %done
done:
  %next = add i64 %i, 1
  %all = icmp sgt i64 %next, %rounds
  br i1 %all, label %out, label %round
out:
  %result = phi i64 [ 0, %again ], [ %i, %done ]
  ret i64 %result
}}"""


@functools.cache
def _native() -> Callable[[int, int, int, bool], int]:
    """`ping(mine, other, rounds, first)`: 0 if the other gave no answer. The GIL is released meanwhile."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    jit = llvm.create_lljit_compiler()
    library = llvm.JITLibraryBuilder().add_ir(_PING).export_symbol("ping").link(jit, "ping")
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool)
    function = kind(library["ping"])
    function.keep = (jit, library)  # type: ignore[attr-defined]
    return function


def nanoseconds() -> float | None:
    """One way between two processors that this process may use; None if it has one only or the other gave no answer."""
    allowed = os.sched_getaffinity(0)
    processors = sorted(allowed)[:2]
    if len(processors) < 2:
        return None
    ping = _native()
    cells = (ctypes.c_int64 * 64)()  # two lines that are no neighbours
    one, two = ctypes.addressof(cells), ctypes.addressof(cells) + 256

    def answer() -> None:
        os.sched_setaffinity(0, processors[1:])
        ping(two, one, ROUNDS, False)

    other = threading.Thread(target=answer)
    os.sched_setaffinity(0, processors[:1])
    try:
        other.start()
        if not ping(one, two, 1, True):  # until both are there
            return None
        start = time.perf_counter()
        answered = ping(one, two, ROUNDS, True)
        took = time.perf_counter() - start
    finally:
        other.join()
        os.sched_setaffinity(0, allowed)
    return 1e9 * took / (2 * ROUNDS) if answered else None
