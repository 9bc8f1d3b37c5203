"""Kernels and calls in the form a compiled program runs: `int32 step(int64 *block)`, with no Python in between.

A *block* is an array of 64-bit words that belongs to one program instance. A kernel's block holds the addresses of
pointer *slots*, one per buffer; the slots hold the data pointers and are what changes from call to call. A status other
than 0 stops the program.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...compiler import loops
from ...compiler.loops import Kernel
from ...compiler.validate import validate
from ...ops import scalar as s
from . import cache, jit
from .emit import emit_kernel

# run(steps, n): steps are pairs (function, block). Returns 0, or 1 + the position of the step that failed.
_RUN = """
define i64 @weft_run(ptr %steps, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %end, label %body
body:
  %at = shl i64 %i, 1
  %p = getelementptr ptr, ptr %steps, i64 %at
  %fn = load ptr, ptr %p
  %q = getelementptr ptr, ptr %p, i64 1
  %block = load ptr, ptr %q
  %status = call i32 %fn(ptr %block)
  %next = add i64 %i, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %stop, label %head
stop:
  ret i64 %next
end:
  ret i64 0
}

; block: execute, set_data_handle, primitive, stream, nargs, args, count, then (memory, slot address) pairs
define i32 @weft_onednn(ptr %block) {
entry:
  %execute = load ptr, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %set = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %primitive = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %block, i64 3
  %stream = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %block, i64 4
  %nargs64 = load i64, ptr %p4
  %nargs = trunc i64 %nargs64 to i32
  %p5 = getelementptr i64, ptr %block, i64 5
  %args = load ptr, ptr %p5
  %p6 = getelementptr i64, ptr %block, i64 6
  %count = load i64, ptr %p6
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %go, label %body
body:
  %twice = shl i64 %i, 1
  %at = add i64 %twice, 7
  %pm = getelementptr i64, ptr %block, i64 %at
  %memory = load ptr, ptr %pm
  %ps = getelementptr i64, ptr %pm, i64 1
  %slot = load ptr, ptr %ps
  %data = load ptr, ptr %slot
  %ignored = call i32 %set(ptr %memory, ptr %data)
  %next = add i64 %i, 1
  br label %head
go:
  %status = call i32 %execute(ptr %primitive, ptr %stream, i32 %nargs, ptr %args)
  ret i32 %status
}

; block: slot address of a flag byte. Fails if the flag is set.
define i32 @weft_check(ptr %block) {
  %slot = load ptr, ptr %block
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %status = zext i8 %byte to i32
  ret i32 %status
}

; block: slot of the condition byte, steps if true, their number, steps if false, their number
define i32 @weft_branch(ptr %block) {
  %slot = load ptr, ptr %block
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %yes = icmp ne i8 %byte, 0
  %offset = select i1 %yes, i64 1, i64 3
  %ps = getelementptr i64, ptr %block, i64 %offset
  %steps = load ptr, ptr %ps
  %pn = getelementptr i64, ptr %ps, i64 1
  %n = load i64, ptr %pn
  %failed = call i64 @weft_run(ptr %steps, i64 %n)
  %bad = icmp ne i64 %failed, 0
  %status = zext i1 %bad to i32
  ret i32 %status
}

; block: slot of the condition byte, condition steps, their number, body steps, their number
define i32 @weft_while(ptr %block) {
entry:
  %slot = load ptr, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %cond = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %ncond = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %block, i64 3
  %body = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %block, i64 4
  %nbody = load i64, ptr %p4
  br label %head
head:
  %f1 = call i64 @weft_run(ptr %cond, i64 %ncond)
  %bad1 = icmp ne i64 %f1, 0
  br i1 %bad1, label %fail, label %test
test:
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %more = icmp ne i8 %byte, 0
  br i1 %more, label %again, label %end
again:
  %f2 = call i64 @weft_run(ptr %body, i64 %nbody)
  %bad2 = icmp ne i64 %f2, 0
  br i1 %bad2, label %fail, label %head
fail:
  ret i32 1
end:
  ret i32 0
}

; block: iterations, steps, their number, cursors, then (cursor slot, slot of what it walks over, start, stride)
define i32 @weft_scan(ptr %block) {
entry:
  %count = load i64, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %steps = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %n = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %block, i64 3
  %cursors = load i64, ptr %p3
  br label %head
head:
  %t = phi i64 [ 0, %entry ], [ %t.next, %ran ]
  %done = icmp eq i64 %t, %count
  br i1 %done, label %end, label %move
move:
  %i = phi i64 [ 0, %head ], [ %i.next, %one ]
  %moved = icmp eq i64 %i, %cursors
  br i1 %moved, label %run, label %one
one:
  %four = shl i64 %i, 2
  %at = add i64 %four, 4
  %pc = getelementptr i64, ptr %block, i64 %at
  %slot = load ptr, ptr %pc
  %pb = getelementptr i64, ptr %pc, i64 1
  %base.slot = load ptr, ptr %pb
  %ps = getelementptr i64, ptr %pc, i64 2
  %start = load i64, ptr %ps
  %pd = getelementptr i64, ptr %pc, i64 3
  %stride = load i64, ptr %pd
  %base = load i64, ptr %base.slot
  %far = mul i64 %t, %stride
  %near = add i64 %base, %start
  %address = add i64 %near, %far
  store i64 %address, ptr %slot
  %i.next = add i64 %i, 1
  br label %move
run:
  %failed = call i64 @weft_run(ptr %steps, i64 %n)
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %fail, label %ran
ran:
  %t.next = add i64 %t, 1
  br label %head
fail:
  ret i32 1
end:
  ret i32 0
}
"""

_routines: dict[str, int] = {}
_kernels: dict[Kernel, int] = {}


def routine(name: str) -> int:
    """The address of one of the routines above (`weft_run`, `weft_onednn` …)."""
    if not _routines:
        with jit._lock:
            names = ["weft_run", "weft_onednn", "weft_check", "weft_branch", "weft_while", "weft_scan"]
            _routines.update(_object("program routines\n" + _RUN, lambda: _RUN, names))
    return _routines[name]


def _object(key_text: str, make_ir: Callable[[], str], names: list[str]) -> dict[str, int]:
    """Load the object code known by `key_text`, from the cache or made now."""
    e = jit.engine()
    key = hashlib.sha256("\0".join((key_text, e.target.key, jit.versions(), _emitter())).encode()).hexdigest()
    code = cache.read(key)
    if code is None:
        code = jit.compile_ir(make_ir(), e.target)
        cache.write(key, code)
    return jit._load(e, code, names)


def _block_ir(kernel: Kernel) -> str:
    validate(kernel)
    return emit_kernel(kernel, jit.engine().target, "kernel", None) + _boxed(kernel)


@functools.cache
def _emitter() -> str:
    """Changes whenever the code that makes code does."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint(kernel: Kernel) -> str:
    """A text that two kernels share only if they are the same: cheaper than their LLVM IR, which a cache hit never needs."""
    numbers: dict[Any, int] = {}
    lines: list[str] = [repr([(b.name, b.dtype.str, b.dtype.name) for b in kernel.buffers]), repr(kernel.params)]

    def number(root: Any) -> int:
        found = numbers.get(root)
        if found is None:
            for e in s.topological([root]):
                if e not in numbers:
                    numbers[e] = len(numbers)
                    payload = e.payload.name if isinstance(e.payload, loops.Buffer) else e.payload
                    lines.append(f"{e.fn} {e.dtype.name} {[numbers[a] for a in e.args]} {payload!r}")
            found = numbers[root]
        return found

    def visit(statements: Any) -> None:
        for st in statements:
            texts = [str(number(e)) for e in loops.expressions(st)]
            facts: Any = ()
            if isinstance(st, loops.Loop):
                facts = (st.var, st.kind, st.parallel)
            elif isinstance(st, loops.Store):
                facts = (
                    st.buffer.name,
                    st.buffer.dtype.name,
                    [number(d) for d in st.buffer.strides],
                    getattr(st, "streaming", None),
                )
            elif isinstance(st, loops.Let):
                facts = (st.name,)
            elif isinstance(st, loops.Accumulator):
                facts = (st.name, st.op, st.dtype.name)
            elif isinstance(st, loops.Update):
                facts = (st.accumulator.name,)
            elif isinstance(st, loops.Local):
                facts = (st.buffer.name, st.buffer.dtype.name, [number(d) for d in st.buffer.strides])
            lines.append(f"{type(st).__name__} {facts} {texts}")
            if isinstance(st, loops.Loop):
                lines.append("{")
                visit(st.body)
                lines.append("}")

    visit(kernel.body)
    return "\n".join(lines)


def runner() -> Callable[..., int]:
    """`weft_run` as a function that releases the GIL."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(routine("weft_run"))


def compile_kernels(kernels: Sequence[Kernel]) -> list[int]:
    """The addresses of the block form of each kernel; equal kernels are compiled once."""
    fresh = []
    for kernel in kernels:
        if kernel not in _kernels and kernel not in fresh:
            fresh.append(kernel)
    with jit._lock:
        for kernel in fresh:
            _kernels[kernel] = _object(fingerprint(kernel), partial(_block_ir, kernel), ["boxed"])["boxed"]
    return [_kernels[k] for k in kernels]


def _boxed(kernel: Kernel) -> str:
    lines = ['define i32 @"boxed"(ptr %block) {']
    for i in range(len(kernel.buffers)):
        lines += [
            f"  %p{i} = getelementptr ptr, ptr %block, i64 {i}",
            f"  %s{i} = load ptr, ptr %p{i}",
            f"  %d{i} = load ptr, ptr %s{i}",
        ]
    count = len(kernel.buffers)
    for i in range(count, count + len(kernel.params)):
        lines += [f"  %p{i} = getelementptr i64, ptr %block, i64 {i}", f"  %d{i} = load i64, ptr %p{i}"]
    types = ["ptr"] * count + ["i64"] * len(kernel.params)
    arguments = ", ".join(f"{t} %d{i}" for i, t in enumerate(types))
    return "\n".join(["", *lines, f'  call void @"kernel"({arguments})', "  ret i32 0", "}", ""])
