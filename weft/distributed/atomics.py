"""Atomic operations on 64-bit words in shared memory, and a wait that spins before it sleeps.

Waking a sleeping process costs 20 to 40 microseconds, more than most messages, so `wait_all` polls the words for a bounded
number of rounds and then sleeps in the kernel (a futex on Linux; short sleeps elsewhere). All functions release the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..backends.llvm import jit

READY, TIMED_OUT, DIFFERENT = 0, 1, 2

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
# What tells the processor that a loop polls: (declaration, call).
_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_DECLARE_PAUSE, _PAUSE = _PAUSES.get(platform.machine(), ("", "fence acquire"))


TEXT = f"""
{_DECLARE_PAUSE}
define i64 @weft_atomic_load(ptr %at) {{
  %value = load atomic i64, ptr %at acquire, align 8
  ret i64 %value
}}

define void @weft_atomic_store(ptr %at, i64 %value) {{
  store atomic i64 %value, ptr %at seq_cst, align 8
  ret void
}}

define i64 @weft_atomic_swap(ptr %at, i64 %old, i64 %new) {{
  %pair = cmpxchg ptr %at, i64 %old, i64 %new seq_cst acquire, align 8
  %found = extractvalue {{ i64, i1 }} %pair, 0
  ret i64 %found
}}

define i64 @weft_atomic_add(ptr %at, i64 %amount) {{
  %old = atomicrmw add ptr %at, i64 %amount seq_cst, align 8
  ret i64 %old
}}

; whether all of n words are at least `least`
define internal i1 @weft_all(ptr %words, i64 %n, i64 %least) {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %yes, label %body
body:
  %at = getelementptr i64, ptr %words, i64 %i
  %word = load atomic i64, ptr %at acquire, align 8
  %next = add i64 %i, 1
  %enough = icmp uge i64 %word, %least
  br i1 %enough, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

; 0 once all words are at least `least`; 1 after the rounds and one sleep of at most `timeout` (a timespec).
; bell[0] is the word that sleepers sleep on, bell[1] counts them
define i64 @weft_wait_all(ptr %words, i64 %n, i64 %least, i64 %rounds, ptr %bell, ptr %syscall, i64 %number, ptr %timeout) {{
entry:
  br label %spin
spin:
  %round = phi i64 [ 0, %entry ], [ %again, %relax ]
  %there = call i1 @weft_all(ptr %words, i64 %n, i64 %least)
  br i1 %there, label %ready, label %more
more:
  %tired = icmp uge i64 %round, %rounds
  br i1 %tired, label %rest, label %relax
relax:
  {_PAUSE}
  %again = add i64 %round, 1
  br label %spin
rest:
  %asleep = getelementptr i64, ptr %bell, i64 1
  %before = atomicrmw add ptr %asleep, i64 1 seq_cst, align 8
  %rung = load atomic i32, ptr %bell seq_cst, align 4
  %now = call i1 @weft_all(ptr %words, i64 %n, i64 %least)
  br i1 %now, label %awake, label %sleep
sleep:
  %ignored = call i64 (i64, ...) %syscall(i64 %number, ptr %bell, i64 0, i32 %rung, ptr %timeout, ptr null, i64 0)
  br label %awake
awake:
  %after = atomicrmw sub ptr %asleep, i64 1 seq_cst, align 8
  %last = call i1 @weft_all(ptr %words, i64 %n, i64 %least)
  br i1 %last, label %ready, label %late
ready:
  ret i64 0
late:
  ret i64 1
}}

; a round of `exchange`: word number `me` becomes `seq`, sleepers are woken, then as `weft_wait_all` for all words.
; 0 if all records then hold the same (seq, digest, steps) in their words 0, 2 and 3; 1 after a sleep; 2 if they differ
define i64 @weft_round(ptr %words, i64 %n, i64 %me, i64 %seq, i64 %rounds, ptr %bell, ptr %syscall, i64 %number, ptr %timeout,
    ptr %records, i64 %stride, i64 %digest, i64 %steps) {{
entry:
  %mine = getelementptr i64, ptr %words, i64 %me
  store atomic i64 %seq, ptr %mine seq_cst, align 8
  call void @weft_ring(ptr %bell, ptr %syscall, i64 %number)
  %late = call i64 @weft_wait_all(ptr %words, i64 %n, i64 %seq, i64 %rounds, ptr %bell, ptr %syscall, i64 %number, ptr %timeout)
  %timed_out = icmp ne i64 %late, 0
  br i1 %timed_out, label %sleepy, label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %same, label %body
body:
  %offset = mul i64 %i, %stride
  %record = getelementptr i8, ptr %records, i64 %offset
  %digest_at = getelementptr i64, ptr %record, i64 2
  %steps_at = getelementptr i64, ptr %record, i64 3
  %its_seq = load i64, ptr %record
  %its_digest = load i64, ptr %digest_at
  %its_steps = load i64, ptr %steps_at
  %a = icmp eq i64 %its_seq, %seq
  %b = icmp eq i64 %its_digest, %digest
  %c = icmp eq i64 %its_steps, %steps
  %ab = and i1 %a, %b
  %abc = and i1 %ab, %c
  %next = add i64 %i, 1
  br i1 %abc, label %head, label %different
same:
  ret i64 0
sleepy:
  ret i64 1
different:
  ret i64 2
}}

; wake the sleepers, if there are any
define void @weft_ring(ptr %bell, ptr %syscall, i64 %number) {{
entry:
  %asleep = getelementptr i64, ptr %bell, i64 1
  %count = load atomic i64, ptr %asleep seq_cst, align 8
  %none = icmp eq i64 %count, 0
  br i1 %none, label %end, label %wake
wake:
  %old = atomicrmw add ptr %bell, i32 1 seq_cst, align 4
  %ignored = call i64 (i64, ...) %syscall(i64 %number, ptr %bell, i64 1, i32 2147483647, ptr null, ptr null, i64 0)
  br label %end
end:
  ret void
}}
"""


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64)]


@functools.lru_cache(64)
def timespec(seconds: float) -> ctypes.Structure:
    """A duration in the kernel's form."""
    return _Timespec(int(seconds), int(seconds % 1 * 1e9))


class Functions(NamedTuple):
    """The compiled functions; addresses are integers."""

    load: Callable[..., Any]
    store: Callable[..., Any]
    swap: Callable[..., Any]
    add: Callable[..., Any]
    wait: Callable[..., Any]
    round: Callable[..., Any]
    ring: Callable[..., Any]
    syscall: int
    number: int
    code: object  # keeps the code loaded


@functools.cache
def functions() -> Functions:
    """The native functions, compiled at the first call.

    Raises:
        RuntimeError: this system has no futex.
    """
    number = _FUTEX_NUMBERS.get(platform.machine())
    if number is None or sys.platform != "linux":
        raise RuntimeError(
            f"distributed: workers on one machine need Linux on x86-64, ARM64 or RISC-V. Got {sys.platform} on "
            f"{platform.machine()}."
        )
    names = ["load", "store", "swap", "add"]
    symbols = [f"weft_atomic_{name}" for name in names] + ["weft_wait_all", "weft_round", "weft_ring"]
    code = jit.load_text(TEXT, symbols)
    word, address = ctypes.c_uint64, ctypes.c_void_p
    shapes: list[tuple[Any, ...]] = [
        (word, address), (None, address, word), (word, address, word, word), (word, address, ctypes.c_int64),
        (word, address, word, word, word, address, address, word, address),
        (word, address, word, word, word, word, address, address, word, address, address, word, word, word),
        (None, address, address, word),
    ]  # fmt: skip
    made: list[Any] = [ctypes.CFUNCTYPE(*shape)(code.addresses[s]) for shape, s in zip(shapes, symbols, strict=True)]
    libc = ctypes.CDLL(None)
    syscall = ctypes.cast(libc.syscall, ctypes.c_void_p).value or 0
    load, store, swap, add, wait, round, ring = made
    return Functions(load, store, swap, add, wait, round, ring, syscall, number, code)


def wait_all(words: int, count: int, least: int, bell: int, rounds: int, seconds: float) -> int:
    """Wait until all of `count` words from the address `words` on are at least `least`: READY or TIMED_OUT.

    Args:
        bell: the address of two words, on which `ring` wakes the sleepers.
        rounds: how often the words are polled before the process sleeps.
        seconds: how long it sleeps at most.
    """
    f = functions()
    return int(f.wait(words, count, least, rounds, bell, f.syscall, f.number, ctypes.addressof(timespec(seconds))))


def ring(bell: int) -> None:
    """Wake every process that sleeps on `bell`."""
    f = functions()
    f.ring(bell, f.syscall, f.number)
