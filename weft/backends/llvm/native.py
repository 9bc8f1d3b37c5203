"""ABI of compiled programs: kernels and calls as `int32 step(int64 *block)`, without Python in between.

A *block* is an array of 64-bit words owned by one program instance. A kernel's block holds the addresses of pointer
*slots*, one per buffer; the slots hold the data pointers, which change from call to call. A non-zero status stops the
program.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ...compiler.loop_ir import ir as loops
from ...compiler.loop_ir.ir import Kernel
from ...compiler.loop_ir.validate import validate
from ...ops.core import scalar as s
from . import cache, jit
from .emit import emit_kernel
from .routines import NAMES, TEXT, words

MAX_RECENT_MODULES = 256
BOXED = "boxed"
_routines: list[jit.Code] = []
_kernels: WeakValueDictionary[Kernel, jit.Code] = WeakValueDictionary()  # of live programs
_recent: deque[jit.Code] = deque(
    maxlen=MAX_RECENT_MODULES
)  # kept after their program is gone: the kernels of a trial are soon reused


def routine(name: str) -> int:
    """The address of one of the routines of `weft.backends.llvm.routines` (`weft_run`, `weft_onednn` …)."""
    if not _routines:
        with jit._lock:
            _routines.extend(_objects([("program routines\n" + TEXT, lambda: TEXT)], NAMES))
    return _routines[0].addresses[name]


def _objects(wanted: Sequence[tuple[str, Callable[[], str]]], names: list[str]) -> list[jit.Code]:
    """Load the object code of each text, from the cache or compiled now; each has the functions `names`."""
    e = jit.engine()
    about = e.target.key, jit.versions(), _emitter()
    keys = [hashlib.sha256("\0".join((text, *about)).encode()).hexdigest() for text, _ in wanted]
    codes = [cache.read(key) for key in keys]
    missing = [i for i, code in enumerate(codes) if code is None]
    for i, code in zip(missing, jit.compile_many([wanted[i][1]() for i in missing], e.target)):
        cache.write(keys[i], code)
        codes[i] = code
    return [jit._load(e, code, names) for code in codes if code is not None]


def _block_ir(kernel: Kernel) -> str:
    validate(kernel)
    return emit_kernel(kernel, jit.engine().target, "kernel", None) + _boxed(kernel)


@functools.cache
def _emitter() -> str:
    """A hash of the code generator's sources."""
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
                facts = (st.var, st.kind, st.parallel, st.workers)
            elif isinstance(st, loops.Store):
                facts = (
                    st.buffer.name,
                    st.buffer.dtype.name,
                    [number(d) for d in st.buffer.strides],
                    getattr(st, "streaming", None),
                )
            elif isinstance(st, loops.Prefetch):
                facts = (st.buffer.name, st.buffer.dtype.name, [number(d) for d in st.buffer.strides], st.write)
            elif isinstance(st, loops.Transpose):
                ends = (st.target, st.target_step), (st.source, st.source_step)
                facts = tuple([(b.name, b.dtype.name, [number(d) for d in b.strides], step) for b, step in ends])
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


def compile_kernels(kernels: Sequence[Kernel]) -> list[jit.Code]:
    """The block form of each kernel, the function `boxed`; equal kernels are compiled once."""
    distinct = {id(kernel): kernel for kernel in kernels}  # programs repeat kernels, and hashing one takes time
    with jit._lock:
        found = {kernel: _kernels.get(kernel) for kernel in distinct.values()}
        fresh = [kernel for kernel, code in found.items() if code is None]
        wanted = [(fingerprint(kernel), partial(_block_ir, kernel)) for kernel in fresh]
        for kernel, loaded in zip(fresh, _objects(wanted, [BOXED]), strict=True):
            found[kernel] = _kernels[kernel] = loaded
            _recent.append(loaded)
    by_number = {number: found[kernel] for number, kernel in distinct.items()}
    return [code for kernel in kernels if (code := by_number[id(kernel)]) is not None]


def _boxed(kernel: Kernel) -> str:
    """The block form of a kernel: read pointers and integers from the block and call it."""
    buffers = [f"%s{i}" for i in range(len(kernel.buffers))]
    numbers = [f"%n{i}" for i in range(len(kernel.params))]
    lines = ['define i32 @"boxed"(ptr %block) {']
    lines += words("%block", *[f"{name}: ptr" for name in buffers], *[f"{name}: i64" for name in numbers])
    lines += [f"  %d{i} = load ptr, ptr {slot}" for i, slot in enumerate(buffers)]
    arguments = [f"ptr %d{i}" for i in range(len(buffers))] + [f"i64 {name}" for name in numbers]
    return "\n".join(["", *lines, f'  call void @"kernel"({", ".join(arguments)})', "  ret i32 0", "}", ""])
