"""JIT compiler: optimises LLVM IR, generates object code, caches it on disk and loads it.

Threads: everything here is thread-safe; one thread compiles at a time and spreads many modules over worker threads
(Note [Compiling in parallel]). Code stays loaded as long as its `Code` object lives: a program, or anything else that
calls an address, must hold a reference to it.

Note [Compiling in parallel]. LLVM may run in several threads if each has its own context and target machine, as here.
llvmlite nevertheless takes one lock around every call, because its users share a context by default; the two calls that
take 90 % of the time bypass that lock and go straight to the C function, which also releases the GIL.
The workers are plain threads. A `concurrent.futures` executor takes a process-wide lock to start work, which `fork` takes
before it waits for the compiler's lock (a deadlock), and it refuses work as soon as the main thread has ended.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...compiler.loop_ir.ir import Kernel
from ...compiler.loop_ir.validate import validate
from ...runtime import forks, threads
from ...runtime.limits import LeastRecentlyUsed
from . import cache, target
from .emit import emit_kernel
from .parallel import ME, RUN, SET_WIDTH, START, TEAM, WIDTH

try:
    import resource
except ImportError:  # a system without such limits
    resource = None  # type: ignore[assignment]

# Fallbacks for OpenMP's functions without OpenMP: the calling thread is the team.
_ALONE = """define void @weft_alone(ptr %fn, ptr %data, i32 %n, i32 %flags) {
  call void %fn(ptr %data)
  ret void
}
define i32 @weft_first() {
  ret i32 0
}
define void @weft_ignore(i32 %width) {
  ret void
}
"""
# C functions that generated code may call for rare arguments.
_LIBRARY = ("sin", "cos", "tan", "fmod", "lgamma")

PASSES = ("sroa", "simplify_cfg", "instruction_combine", "new_gvn", "instruction_combine", "simplify_cfg")

# A fork waits for a running compilation: LLVM's lock, copied while held, would stay locked in the child.
_lock = forks.held_over_fork()


@dataclass(slots=True)
class Engine:
    """The process's LLJIT and the symbols generated code may use."""

    target: target.Target
    lljit: Any
    imports: dict[str, int]
    helpers: list[Code] = field(default_factory=list)
    """code that `imports` refers to"""
    loaded: int = 0
    unloaded: int = 0


_engine: Engine | None = None
_unused: deque[Any] = deque()  # pointers to the trackers of code without references


def engine() -> Engine:
    """The engine, created on first use."""
    global _engine
    with _lock:
        if _engine is None:
            import llvmlite.binding as llvm

            host = target.host()
            # JITLink maps all sections of an object together. LLVM's older loader maps each one separately:
            # in a process with gigabytes of arrays that can be further apart than the code's 32-bit distances reach.
            lljit = llvm.create_lljit_compiler(target.machine(host), use_jit_link=True)
            imports = {WIDTH: threads.width_cell_address()}
            library = ctypes.CDLL(None)
            for name in _LIBRARY:
                for symbol in (name, name + "f"):
                    function = getattr(library, symbol, None) or getattr(_libm(), symbol)
                    imports[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
            made = Engine(host, lljit, imports)
            wanted = {START: "weft_alone", ME: "weft_first", SET_WIDTH: "weft_ignore"}
            found = {name: threads.symbol_address(name) for name in wanted}
            if None in found.values():
                alone = _load(made, compile_ir(_ALONE, host), list(wanted.values()))
                made.helpers.append(alone)
                found = {name: alone.addresses[instead] for name, instead in wanted.items()}
            imports.update({name: at for name, at in found.items() if at is not None})
            team = _object(made, TEAM, [RUN])
            made.helpers.append(team)
            imports.update(team.addresses)
            _engine = made  # set last: an interrupt before this leaves no engine
        return _engine


def _libm() -> ctypes.CDLL:
    from ctypes.util import find_library

    return ctypes.CDLL(find_library("m") or "libm.so.6")


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock around it (Note [Compiling in parallel])."""
    from llvmlite.binding import ffi

    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def optimise(ir: str, machine: Any) -> Any:
    """Parse, verify and optimise a module, in its own context.

    A short list of passes instead of LLVM's standard pipeline: the emitter has already vectorised, unrolled
    and inlined, and the standard pipeline takes ten times as long. Invariants are hoisted by the code generator.
    """
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(ir, llvm.create_context())
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    run = _unlocked("LLVMPY_RunNewFunctionPassManager")
    for function in module.functions:
        if not function.is_declaration:
            run(passes, function, builder)
    return module


def compile_ir(ir: str, host: target.Target) -> bytes:
    """Object code for a module."""
    from llvmlite.binding import ffi

    machine = target.machine(host)
    module = optimise(ir, machine)
    with ffi.OutputString() as problem:
        made = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, problem)
        if not made:
            raise RuntimeError(f"llvm: generating code failed: {problem}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(made), ffi.lib.LLVMPY_GetBufferSize(made))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(made)


def compile_many(modules: Sequence[str], host: target.Target) -> list[bytes]:
    """Object code for each module, compiled by as many threads as native code may use, including the caller's.

    The caller holds the lock, and all threads have finished when this returns or raises.
    """
    # The largest first: a large module started last would delay the end.
    waiting = deque(sorted(range(len(modules)), key=lambda i: -len(modules[i])))
    found: dict[int, bytes] = {}
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                try:
                    i = waiting.popleft()
                except IndexError:
                    return
                found[i] = compile_ir(modules[i], host)
        except BaseException as error:  # an interrupt too: the others stop, and the caller raises it
            waiting.clear()
            problems.append(error)

    helpers: list[threading.Thread] = []
    width = _affordable_threads(min(threads.get_num_threads(), len(modules))) if modules else 0
    try:
        _start_helpers(helpers, work, width - 1)
    except KeyboardInterrupt as error:
        waiting.clear()
        problems.append(error)
    work()
    for helper in helpers:
        while helper.is_alive():
            try:
                helper.join()
            except KeyboardInterrupt as error:
                waiting.clear()
                problems.append(error)
    if problems:
        raise problems[0]
    return [found[i] for i in range(len(modules))]


_COMPILE_BYTES = 192 << 20  # address space for one compilation: stack, malloc arena, and LLVM's own memory


def _affordable_threads(width: int) -> int:
    """How many of `width` threads may compile at once where the process's address space is limited.

    LLVM ends the process when it is refused memory, so a mapping of that size is tried first.
    """
    if resource is None or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return width
    while width > 0:
        try:
            mmap.mmap(-1, width * _COMPILE_BYTES).close()
        except (OSError, ValueError):
            width //= 2
        else:
            return width
    raise MemoryError(
        f"llvm: there is no room to compile. The limit of this process's address space leaves less than "
        f"{_COMPILE_BYTES >> 20} MiB. "
        "Raise the limit (`ulimit -v`), free memory, or set WEFT_LLVM=0."
    )


_STACK_BYTES = 1 << 20  # that LLVM may need; the program may have set a smaller default


def _start_helpers(helpers: list[threading.Thread], work: Callable[[], None], count: int) -> None:
    """Add up to `count` threads that run `work`: fewer, or none, when the system or an ending interpreter gives no more."""
    asked = threading.stack_size()
    if 0 < asked < _STACK_BYTES:
        threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(count):
            helper = threading.Thread(target=work, name="weft-compile", daemon=True)
            helpers.append(helper)
            helper.start()
    except RuntimeError:
        helpers.pop()
    finally:
        if 0 < asked < _STACK_BYTES:
            threading.stack_size(asked)


class Code:
    """Loaded object code and the `addresses` of its symbols. It is unloaded some time after the last reference is
    dropped: that may happen at any moment, and LLVM is only called with the lock held.

    It holds the bare pointer. An object with a finaliser of its own, as llvmlite's, would be finalised together with this one
    when the garbage collector finds both in a cycle, and `_unload` would then free, perhaps at the same time, what is freed.
    """

    __slots__ = ("addresses", "_tracker", "__weakref__")

    def __init__(self, tracker: Any, addresses: dict[str, int]) -> None:
        self._tracker, self.addresses = tracker, addresses

    def __del__(self, unused: Any = _unused) -> None:
        unused.append(self._tracker)


def loaded() -> int:
    """The number of loaded `Code` objects."""
    return 0 if _engine is None else _engine.loaded - _engine.unloaded


def _unload(e: Engine) -> None:
    from llvmlite.binding import ffi

    while _unused:
        e.unloaded += 1
        with ffi.OutputString() as problem:
            if ffi.lib.LLVMPY_LLJIT_Dylib_Tracker_Dispose(_unused.pop(), problem):
                raise RuntimeError(f"llvm: unloading code failed: {problem}")


def _load(e: Engine, code: bytes, symbols: list[str]) -> Code:
    import llvmlite.binding as llvm

    _unload(e)
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in e.imports.items():
        builder.import_symbol(name, address)
    for name in symbols:
        builder.export_symbol(name)
    e.loaded += 1
    tracker = builder.link(e.lljit, f"weft{e.loaded}")
    pointer, addresses = tracker._ptr, {name: tracker[name] for name in symbols}
    tracker.detach()  # an interrupt after this leaves the code loaded, but nothing unloads it twice
    return Code(pointer, addresses)


def versions() -> str:
    """Everything besides the IR and the CPU that object code depends on."""
    import llvmlite

    return f"{' '.join(PASSES)}/llvmlite-{llvmlite.__version__}"


@dataclass(slots=True)
class Compiled:
    """A loaded kernel: `call(pointers..., integers...)`, or `call_objects(id(array)..., integers...)`.

    Both release the GIL while they run, and keep the code loaded as long as they live themselves.
    """

    kernel: Kernel
    call: Any
    call_objects: Any


def compile_kernel(kernel: Kernel) -> Compiled:
    """Compile (or fetch from the cache) and load a kernel."""
    validate(kernel)
    with _lock:
        code = _object(engine(), kernel_ir(kernel), ["kernel", "kernel.objects"])
    arguments = [ctypes.c_void_p] * len(kernel.buffers) + [ctypes.c_int64] * len(kernel.params)
    prototype = ctypes.CFUNCTYPE(None, *arguments)
    calls: list[Any] = [prototype(code.addresses[name]) for name in ("kernel", "kernel.objects")]
    for call in calls:
        call.code = code
    return Compiled(kernel, *calls)


class Kernels(LeastRecentlyUsed[Any, Compiled]):
    """The compiled kernels of a family of eager ops, by key; at most `MAX_KERNELS`, the most recently used ones."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(lambda: MAX_KERNELS)

    def compiled(self, key: Any, build: Callable[[], Kernel]) -> Compiled:
        """The kernel of `key`, built by `build` on a miss."""
        found = self.get(key)
        if found is None:
            found = compile_kernel(build())
            self.put(key, found)
        return found


MAX_KERNELS = 1024


def _object(e: Engine, ir: str, symbols: list[str]) -> Code:
    """Load the object code of a module, from the cache or compiled now."""
    key = hashlib.sha256("\0".join((ir, e.target.key, versions())).encode()).hexdigest()
    code = cache.read(key)
    if code is None:
        (code,) = compile_many([ir], e.target)
        cache.write(key, code)
    return _load(e, code, symbols)


def load_text(ir: str, symbols: list[str]) -> Code:
    """Load a module of LLVM IR that exports `symbols`, from the cache or compiled now."""
    with _lock:
        return _object(engine(), ir, symbols)


def kernel_ir(kernel: Kernel) -> str:
    """The LLVM IR of a kernel before optimisation, for reading and for the cache key."""
    return emit_kernel(kernel, target.host(), "kernel", data_offset())


def assembly(kernel: Kernel) -> str:
    """The machine code of a kernel as text, for reading."""
    with _lock:
        return _emit_assembly(kernel_ir(kernel), target.host())


def _emit_assembly(ir: str, host: target.Target) -> str:
    machine = target.machine(host)
    return str(machine.emit_assembly(optimise(ir, machine)))


@functools.cache
def data_offset() -> int:
    """The offset of the data pointer in an ndarray object: right after the object header, since NumPy 1.0.

    Verified once against `ctypes.data` before any kernel relies on it.
    """
    offset = object.__basicsize__
    for probe in (np.zeros(3), np.zeros((2, 2), np.int8)[1:]):
        found = ctypes.c_void_p.from_address(id(probe) + offset).value
        if found != probe.__array_interface__["data"][0]:
            raise RuntimeError(
                "llvm: this NumPy lays arrays out in an unknown way. Set WEFT_LLVM=0 to compute with NumPy alone."
            )
    return offset
