"""Program: a compiled flow that runs natively, and the instances in which it runs.

A `Program` is immutable: its steps, layouts and code. An `Instance` owns what one run needs: an arena for temporaries, a
table of pointer slots, and the blocks of its steps. Several threads may run one program at once; each takes an instance
from a pool and puts it back. What a program returns never lives in its arena. The GIL is released while it runs; host
calls take it again.

A program may have a prologue (see `weft.compiler.lowering.frozen`): steps whose results are the same at every call.
They run before the first call, into memory that all instances share (`Kept`), and once more after `refresh()`.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.llvm.routines import CONTROL
from ..backends.onednn.addresses import address
from ..compiler.program.layout import Layout, Storage
from ..compiler.program.steps import Check, HostCall, KernelCall, Scan, Step, WhileLoop, all_steps, nested_flags
from ..ops.core import define
from . import forks, limits, memory, threads
from .interrupts import Interrupted, attended

if TYPE_CHECKING:
    from ..compiler.loop_ir.ir import Kernel

ndarray = np.ndarray
_HOST = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
alive: weakref.WeakSet[Program] = weakref.WeakSet()
"""all live compiled programs"""
_alive_lock = forks.held_over_fork()
_SPREAD_SECONDS = 5e-4  # a program that runs longer gains from spreading its threads over processors


class ProgramError(RuntimeError):
    """A check failed while a program ran. Variables are unchanged by the call."""


class Program:
    """See the module's docstring. `arguments` and `variables` are the layouts of inputs, `results` those of outputs."""

    def __init__(
        self, name: str, steps: list[Step], storages: list[Storage], arena: int,
        arguments: list[Layout], variables: list[Layout], results: list[Layout],
        prologue: Sequence[Step] = (), kept: int = 0,
    ) -> None:  # fmt: skip
        from ..backends.llvm import native

        self.name = name
        self.steps = steps
        self.storages = storages
        self.arena = arena
        self.prologue, self.kept_nbytes = list(prologue), kept
        self.kept = Kept(kept) if prologue else None
        self.arguments, self.variables, self.results = arguments, variables, results
        self.fresh = [(i, x) for i, x in enumerate(results) if x.storage.kind == "output"]
        self.makers = [maker_of(x) for _, x in self.fresh]
        every = [*all_steps(self.prologue), *all_steps(steps)]
        kernels = [st.kernel for st in every if isinstance(st, KernelCall)]
        self.code = dict(zip(map(id, kernels), native.compile_kernels(kernels), strict=True))  # keeps it loaded
        self.routines = {
            k: native.routine(f"weft_{k}") for k in ("onednn", "shares", "check", "branch", "while", "scan")
        }
        self.run_native = native.runner()
        self._lock = threading.Lock()
        forks.renewed_in_child(self)
        self._free: list[Instance] = []
        self.instances = 0
        self.has_host = any(isinstance(st, HostCall) for st in every)
        self.has_loops = any(isinstance(st, (WhileLoop, Scan)) for st in every)
        with _alive_lock:
            alive.add(self)  # last: other threads iterate over this set

    def instance(self) -> Instance:
        """A new instance, which joins the pool after its first run."""
        _make_room(self.arena)
        with self._lock:
            self.instances += 1
            return Instance(self)

    def refresh(self) -> None:
        """Re-run the prologue at the next call, after variables it reads have changed. Calls in progress are not affected."""
        with self._lock:
            if self.kept is not None:
                self.kept = Kept(self.kept_nbytes)
                self._free.clear()

    def __call__(self, arguments: Sequence[ndarray], variables: Sequence[ndarray]) -> list[ndarray]:
        """Run on arrays that have the layouts the program was compiled for; returns the fresh outputs.

        `variables` is retained and must not be modified: a call with the same list object skips the comparison.
        """
        try:
            instance = self._free.pop()
            if instance.kept is not self.kept:  # returned to the pool during a refresh
                instance = self.instance()
        except IndexError:
            instance = self.instance()
        try:
            return instance.run(arguments, variables)
        finally:
            if instance.kept is self.kept:
                self._free.append(instance)


def idle_bytes() -> int:
    """Bytes of temporaries that idle programs keep."""
    with _alive_lock:
        return sum(len(program._free) * program.arena for program in alive)


def _make_room(nbytes: int) -> None:
    """Release temporaries of least recently run programs, such that `nbytes` more fit into the limit."""
    limit = limits.program_bytes()
    with _alive_lock:
        idle = [(instance.started, program, instance) for program in alive for instance in list(program._free)]
    total = nbytes + sum(program.arena for _, program, _ in idle)
    for _, program, instance in sorted(idle, key=lambda entry: entry[0]):
        if total <= limit:
            return
        try:
            program._free.remove(instance)
        except ValueError:
            continue  # it is running
        total -= program.arena


class Kept:
    """Memory with the results of a program's prologue. Filled once and read-only afterwards."""

    def __init__(self, nbytes: int) -> None:
        self.memory = memory.empty((max(nbytes, 64),), np.uint8)
        self.lock = threading.Lock()
        forks.renewed_in_child(self)
        self.filled = False


class Instance:
    """The memory and tables of one run of a program at a time; the `Binder` of its steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memory = memory.empty((max(program.arena, 64),), np.uint8)
        for flag in nested_flags(program.steps):
            self.memory[flag.offset] = 0
        self.kept = program.kept
        self._bases = {"arena": address(self.memory)}
        if self.kept is not None:
            self._bases["kept"] = address(self.kept.memory)
        self.slot_of: dict[tuple[int, int], int] = {}
        self.dynamic: dict[int, list[tuple[int, int]]] = {}  # storage -> (slot, byte offset)
        self._slots: list[int] = []
        self.error: BaseException | None = None
        self.failed: Step | None = None  # the host call that raised it
        self.seconds = 0.0  # how long the last run took
        self.started = 0.0  # when it began
        self.arrays: dict[int, ndarray] = {}  # arrays of the current call, by storage
        self._keep: list[Any] = []
        control = (ctypes.c_int64 * len(CONTROL))()  # polled by loops in every iteration
        self.control = ctypes.addressof(control)
        self.stop, self.tick = [ctypes.c_int64.from_buffer(control, 8 * CONTROL.index(w)) for w in ("stop", "tick")]
        if program.has_loops:
            poll = _HOST(self._poll())
            self._keep += [control, poll]
            control[CONTROL.index("poll")] = ctypes.cast(poll, ctypes.c_void_p).value or 0
        self._later: list[tuple[Any, list[Any]]] = []  # blocks whose slots are patched once all addresses are known
        self.table_at = self.table(program.steps)
        self.prologue = None if self.kept is None or self.kept.filled else self.table(program.prologue)
        self.slots = (ctypes.c_int64 * max(len(self._slots), 1))(*self._slots)
        at = ctypes.addressof(self.slots)
        for made, words in self._later:
            for i, w in enumerate(words):
                made[i] = at + 8 * w.index if isinstance(w, _Slot) else w
        self.count = len(program.steps)
        self.argument_slots = [self._dynamic_slots(x.storage) for x in program.arguments]
        self.variable_slots = [self._dynamic_slots(x.storage) for x in program.variables]
        self.output_slots = [self._dynamic_slots(x.storage) for _, x in program.fresh]
        self.bound: Sequence[Any] = [None] * len(program.variables)

    # Tables -------------------------------------------------------------------------------------------------------------

    def slot(self, storage: Storage, byte_offset: int = 0) -> _Slot:
        key = (id(storage), byte_offset)
        found = self.slot_of.get(key)
        if found is None:
            found = self.slot_of[key] = len(self._slots)
            start = self.start(storage)
            value = 0 if start is None else start + byte_offset
            if start is None:  # set per call, or per iteration of a scan
                self.dynamic.setdefault(id(storage), []).append((found, byte_offset))
            self._slots.append(value)
        return _Slot(found)

    def start(self, storage: Storage) -> int | None:
        """The address of a storage if it is constant over calls, else None."""
        base = self._bases.get(storage.kind)
        if base is not None:
            return base + storage.offset
        return address(storage.array) if storage.kind == "constant" else None

    def _dynamic_slots(self, storage: Storage) -> list[tuple[int, int]]:
        return self.dynamic.get(id(storage), [])

    def table(self, steps: Sequence[Step]) -> int:
        """The address of the (function, block) pairs of steps, and of the steps inside them."""
        table = (ctypes.c_int64 * (2 * max(len(steps), 1)))()
        self._keep.append(table)
        for i, step in enumerate(steps):
            function, words = step.entry(self)
            table[2 * i] = function
            table[2 * i + 1] = self._words(words)
        return ctypes.addressof(table)

    def _words(self, words: list[Any]) -> int:
        """The address of a block of words; slots are patched later, and a nested list is replaced by its address."""
        words = [self._words(w) if isinstance(w, list) else w for w in words]
        block = (ctypes.c_int64 * max(len(words), 1))()
        self._keep.append(block)
        self._later.append((block, words))
        return ctypes.addressof(block)

    def code(self, kernel: Kernel) -> int:
        return self.program.code[id(kernel)].addresses["boxed"]

    def routine(self, name: str) -> int:
        return self.program.routines[name]

    def keep(self, thing: Any) -> None:
        self._keep.append(thing)

    def callback(self, step: HostCall) -> int:
        function = _HOST(self._host(step))
        self._keep.append(function)
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def _host(self, step: HostCall) -> Any:
        """A callable that runs the step's NumPy kernel and returns a status.

        It is the `send` of a generator that waits inside its `try`: an interrupt that came while native code ran is
        raised the moment Python code runs again, and a plain function would not have entered its `try` by then.
        """
        node = step.nodes[0]

        def serve() -> Generator[int, Any, None]:
            status = 0
            while True:
                try:
                    yield status
                    status = 1
                    inputs = [None if x is None else self.array(x) for x in step.inputs]
                    with define.suspended():
                        outs = define.compute(node.op, inputs, node.attrs)
                    for layout, out in zip(step.outputs, outs if isinstance(outs, tuple) else (outs,), strict=True):
                        np.copyto(self.array(layout), out)
                    status = 0
                except GeneratorExit:
                    return
                except BaseException as error:  # stored, and re-raised by `run` after native code returns
                    self.error, self.failed = error, step
                    status = 1

        server = serve()
        next(server)
        return server.send

    def _poll(self) -> Any:
        """What a loop calls now and then from the main thread, so that Python runs the handlers of signals: 1 if one raised.
        A generator for the reason that `_host` is one."""

        def serve() -> Generator[int, Any, None]:
            status = 0
            while True:
                try:
                    yield status
                    status = 1
                    self.tick.value = 0
                    status = 0
                except GeneratorExit:
                    return
                except BaseException as error:  # Ctrl-C, mostly
                    self.error, self.failed = error, None
                    status = 1

        server = serve()
        next(server)
        return server.send

    def array(self, layout: Layout) -> ndarray:
        """A NumPy view of a layout in this instance's memory."""
        storage = layout.storage
        if storage.kind in self._bases:
            return np.ndarray(
                layout.shape,
                layout.dtype,
                self.memory if storage.kind == "arena" or self.kept is None else self.kept.memory,
                storage.offset + layout.byte_offset,
                layout.byte_strides,
            )
        if storage.kind == "cursor":
            return _at(int(self.slots[self.slot_of[id(storage), 0]]), layout)
        whole = storage.array if storage.kind == "constant" else self.arrays[id(storage)]
        if whole.shape == layout.shape and whole.strides == layout.byte_strides and layout.offset == 0:
            return whole
        return _at(address(whole), layout)

    # Running ------------------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[ndarray], variables: Sequence[ndarray]) -> list[ndarray]:
        slots = self.slots
        program = self.program
        for array, where in zip(arguments, self.argument_slots, strict=True):
            if where:
                at = address(array)
                for slot, offset in where:
                    slots[slot] = at + offset
        if variables is not self.bound:
            self._bind(variables)
        outputs = []
        for make, where in zip(program.makers, self.output_slots, strict=True):
            array = make()
            outputs.append(array)
            if where:
                at = address(array)
                for slot, offset in where:
                    slots[slot] = at + offset
        if program.has_host:
            self._bind_arrays(arguments, variables, outputs)
        threads.ensure_width()
        if self.seconds > _SPREAD_SECONDS:
            threads.spread_out()
        if program.has_loops:
            with attended(self.stop, self.tick):
                failed = self._execute()
            stopped, self.stop.value = self.stop.value, 0
            if failed and stopped and self.error is None:
                raise Interrupted(f"{program.name}: a loop was stopped.")
        else:
            failed = self._execute()
        if failed:
            self._fail(program.steps[failed - 1])
        return outputs

    def _execute(self) -> int:
        """Run the steps; 0, or 1 + the position of the one that failed."""
        if self.prologue is not None:
            self._prepare()
        start = self.started = time.perf_counter()
        failed: int = self.program.run_native(self.table_at, self.count) if not _profilers else self._profiled()
        self.seconds = time.perf_counter() - start
        return failed

    def _bind(self, variables: Sequence[ndarray]) -> None:
        """Update the pointers of variables whose arrays changed since the last call."""
        slots = self.slots
        for array, before, where in zip(variables, self.bound, self.variable_slots, strict=True):
            if array is not before:
                at = address(array)
                for slot, offset in where:
                    slots[slot] = at + offset
        self.bound = variables

    def _prepare(self) -> None:
        """Run the prologue unless another instance has done so."""
        kept, steps = self.kept, self.program.prologue
        assert kept is not None
        with kept.lock:
            if not kept.filled:
                failed = self.program.run_native(self.prologue, len(steps))
                if failed:
                    self._fail(steps[failed - 1])
                kept.filled = True
        self.prologue = None

    def _bind_arrays(
        self, arguments: Sequence[ndarray], variables: Sequence[ndarray], outputs: Sequence[ndarray]
    ) -> None:
        program = self.program
        arrays = self.arrays
        for layout, array in zip(program.arguments, arguments, strict=True):
            arrays[id(layout.storage)] = array
        for layout, array in zip(program.variables, variables, strict=True):
            arrays[id(layout.storage)] = array
        for (_, layout), array in zip(program.fresh, outputs, strict=True):
            arrays[id(layout.storage)] = array

    def _profiled(self) -> int:
        """Run step by step and report the duration of each step to the profilers."""
        for i, step in enumerate(self.program.steps):
            start = time.perf_counter_ns()
            failed = self.program.run_native(self.table_at + 16 * i, 1)
            end = time.perf_counter_ns()
            for profiler in _profilers:
                profiler.span(step, start, end)
            if failed:
                return i + 1
        return 0

    def _fail(self, step: Step) -> None:
        error, self.error = self.error, None
        failed, self.failed = self.failed, None
        step = failed or self._failed_check(step) or step
        node = step.nodes[0]
        if error is not None:
            error.add_note(f"In node {node.name} of the captured function {self.program.name}, made at {node.where}.")
            raise error
        if isinstance(step, Check):
            raise node.op.check_error(f"{step.message.rstrip('.')}. In node {node.name}, made at {node.where}.")
        raise ProgramError(f"{step.label}: a native step failed. In node {node.name}, made at {node.where}.")

    def _failed_check(self, outer: Step) -> Check | None:
        """The failed check inside a branch or loop, or None; clears all flags."""
        found = None
        for part in outer.parts:
            for step in all_steps(part):
                if isinstance(step, Check):
                    at = step.flag.offset
                    if self.memory[at] and found is None:
                        found = step
                    self.memory[at] = 0
        return found


class _Slot:
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


_profilers: list[Any] = []


def maker_of(layout: Layout) -> Callable[[], ndarray]:
    """A function that allocates one output in its layout."""
    if layout.contiguous:
        return memory.maker(layout.shape, layout.dtype)
    order = sorted(range(len(layout.shape)), key=lambda a: -layout.strides[a])
    dense = memory.maker(tuple([layout.shape[a] for a in order]), layout.dtype)
    axes = np.argsort(order)
    return lambda: dense().transpose(axes)


def _at(start: int, layout: Layout) -> ndarray:
    """A view of `layout` whose storage begins at the address `start`, valid while that memory is."""
    span = layout.dtype.itemsize * (
        1 + sum((d - 1) * abs(s) for d, s in zip(layout.shape, layout.strides, strict=True))
    )
    low = sum((d - 1) * s for d, s in zip(layout.shape, layout.byte_strides, strict=True) if s < 0)
    raw = (ctypes.c_char * max(span, 1)).from_address(start + layout.byte_offset + low)
    return np.ndarray(layout.shape, layout.dtype, raw, -low, layout.byte_strides)  # type: ignore[arg-type]
