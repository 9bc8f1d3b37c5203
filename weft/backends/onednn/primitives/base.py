"""`Primitive`: one oneDNN computation with fixed shapes and layouts. `Execution`: its arguments.

A `Primitive` is immutable and may be executed by several threads at once, each with its own `Execution`. It never owns
memory: scratchpad and workspace are arguments like any other, so that a compiled program can plan them.

Note [One thread per primitive]. oneDNN reads the number of threads when it creates a primitive: it splits sums between
them and chooses block sizes that determine the order of additions. So a primitive is created for one thread and run by
one, and its bits do not depend on the thread count. `shares.py` splits large work into shares, by shape, and runs them in
parallel; inside such a region, and with OpenMP set to one thread (`weft.runtime.threads.alone`), a primitive starts no
threads. Primitives whose every result is a single rounding (`exact`: copies, maxima, one addition) use the process's
width, which is fixed when they are created: they run in a thread that called `ensure_width()`, never inside an OpenMP
region, where they would hang.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from weft.runtime import threads

from .. import capi, library
from ..capi import Alg, Arg, ExecArg, Query
from ..descriptors import MemoryDesc


@dataclass(frozen=True, slots=True)
class Eltwise:
    """Post-op `y = f(y)`, for instance `Eltwise(Alg.ELTWISE_RELU)`."""

    alg: Alg
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """Post-op `y = y + scale * old`, where `old` is the previous content of the destination."""

    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Binary:
    """Post-op `y = f(y, operand)`; the operand broadcasts to the destination and is one more argument."""

    alg: Alg
    operand: MemoryDesc


PostOp = Eltwise | Sum | Binary


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a primitive: its index in `dnnl_exec_arg_t`, its layout, and whether it is written."""

    index: int
    desc: MemoryDesc
    output: bool

    @property
    def nbytes(self) -> int:
        return self.desc.nbytes


class PrimitiveDesc:
    """A `dnnl_primitive_desc_t` from which primitives are created. Owns its handle."""

    handle: int
    exact: bool

    def __init__(
        self, create: str, *arguments: object, what: object, post_ops: Sequence[PostOp] = (), exact: bool = False
    ) -> None:
        """Calls `dnnl_<create>(&pd, *arguments, attributes)`, with descriptors replaced by their handles.

        `exact`: see Note [One thread per primitive].
        """
        lib = library.require()
        self.exact = exact
        handles = [item.handle if isinstance(item, MemoryDesc | PrimitiveDesc) else item for item in arguments]
        attributes = _attributes(lib, post_ops)
        try:
            with _at_width(exact):
                self.handle = lib.create(create, *handles, attributes, what=what)
        finally:
            lib.call("primitive_attr_destroy", attributes)
        weakref.finalize(self, lib.call, "primitive_desc_destroy", self.handle).atexit = False

    @property
    def implementation(self) -> str:
        """oneDNN's name for the kernel it chose, such as "brgconv:avx512_core"."""
        text = ctypes.c_char_p()
        library.require().call("primitive_desc_query", self.handle, Query.IMPL_INFO_STR, 0, ctypes.byref(text))
        return (text.value or b"").decode()

    def next_implementation(self) -> None:
        """Moves on to oneDNN's next choice; raises `Unsupported` after the last one."""
        with _at_width(self.exact):
            library.require().call("primitive_desc_next_impl", self.handle, what=self.implementation)

    def desc(self, index: int) -> MemoryDesc | None:
        """The layout of one execution argument, `None` if the primitive has no such argument."""
        lib = library.require()
        borrowed = lib.query_desc(self.handle, Query.EXEC_ARG_MD, index)
        return MemoryDesc.borrowed(borrowed) if borrowed and lib.desc_size(borrowed) else None


def _at_width(exact: bool) -> AbstractContextManager[object]:
    """While a primitive is created: the process's width if it is `exact`, else one thread."""
    threads.ensure_width(force=True)
    return nullcontext() if exact else threads.alone


def _attributes(lib: capi.Library, post_ops: Sequence[PostOp]) -> int:
    attributes = lib.create("primitive_attr_create")
    try:
        lib.call("primitive_attr_set_scratchpad_mode", attributes, capi.SCRATCHPAD_MODE_USER)
        if post_ops:
            chain = lib.create("post_ops_create")
            try:
                for op in post_ops:
                    if isinstance(op, Eltwise):
                        lib.call("post_ops_append_eltwise", chain, op.alg, op.alpha, op.beta, what=op)
                    elif isinstance(op, Sum):
                        lib.call("post_ops_append_sum", chain, op.scale, 0, 0, what=op)
                    else:
                        lib.call("post_ops_append_binary", chain, op.alg, op.operand.handle, what=op)
                lib.call("primitive_attr_set_post_ops", attributes, chain)
            finally:
                lib.call("post_ops_destroy", chain)
    except BaseException:
        lib.call("primitive_attr_destroy", attributes)
        raise
    return attributes


class Primitive:
    """See the module's docstring. `arguments` lists everything to pass, in the order `Execution` keeps them."""

    __slots__ = ("__weakref__", "_positions", "arguments", "exact", "handle", "implementation", "name")

    handle: int
    name: str
    arguments: tuple[Argument, ...]
    implementation: str
    exact: bool  # see Note [One thread per primitive]

    def __init__(
        self,
        name: str,
        desc: PrimitiveDesc,
        inputs: Sequence[int],
        outputs: Sequence[int],
        post_ops: Sequence[PostOp] = (),
    ) -> None:
        """`inputs` and `outputs` are candidate argument indices; those the primitive does not use are dropped."""
        lib = library.require()
        self.name = name
        self.exact = desc.exact
        with _at_width(self.exact):
            self.handle = lib.create("primitive_create", desc.handle, what=name)
        weakref.finalize(self, lib.call, "primitive_destroy", self.handle).atexit = False
        operands = [capi.post_op_argument(i) for i, op in enumerate(post_ops) if isinstance(op, Binary)]
        found = []
        for indices, output in (((*inputs, *operands), False), ((*outputs, Arg.SCRATCHPAD), True)):
            for index in indices:
                layout = desc.desc(index)
                if layout is not None:
                    found.append(Argument(int(index), layout, output))
        self.arguments = tuple(found)
        self._positions = {argument.index: i for i, argument in enumerate(found)}
        self.implementation = desc.implementation

    def position(self, index: int) -> int:
        """The position of the argument with this index in `arguments`; -1 if the primitive does not take it."""
        return self._positions.get(index, -1)

    def takes(self, index: int) -> bool:
        return index in self._positions

    def desc(self, index: int) -> MemoryDesc:
        """The layout that the primitive requires or produces for this argument."""
        position = self.position(index)
        if position < 0:
            raise KeyError(f"{self.name}: no argument {Arg(index).name}.")
        return self.arguments[position].desc

    @property
    def scratchpad_nbytes(self) -> int:
        return self.desc(Arg.SCRATCHPAD).nbytes if self.takes(Arg.SCRATCHPAD) else 0

    @property
    def workspace_nbytes(self) -> int:
        return self.desc(Arg.WORKSPACE).nbytes if self.takes(Arg.WORKSPACE) else 0

    def __repr__(self) -> str:
        return f"Primitive({self.name}, {self.implementation})"


class Execution:
    """The arguments of one primitive, ready to run: `dnnl_memory` objects and the `dnnl_exec_arg_t` array.

    Belongs to one thread at a time (one Program instance, or one eager call). It keeps the primitive alive but not
    the memory the pointers lead to. `address` and `nargs` stay the same for its whole life.
    """

    __slots__ = ("__weakref__", "_array", "last", "address", "memories", "nargs", "primitive")

    def __init__(self, primitive: Primitive, pointers: Mapping[int, int] | None = None) -> None:
        """`pointers` maps argument indices to addresses; the rest is bound later."""
        lib = library.require()
        self.primitive = primitive
        self.nargs = len(primitive.arguments)
        self._array = (ExecArg * self.nargs)()
        self.address = ctypes.addressof(self._array)
        memories: list[int] = []
        weakref.finalize(self, _destroy_memories, lib, memories).atexit = False
        for i, argument in enumerate(primitive.arguments):
            memory = lib.create("memory_create", argument.desc.handle, lib.engine, None, what=argument.desc)
            memories.append(memory)
            self._array[i].arg, self._array[i].memory = argument.index, memory
        self.memories = tuple(memories)
        self.last = [0] * self.nargs
        for index, pointer in (pointers or {}).items():
            self.bind(index, pointer)

    def bind(self, index: int, pointer: int) -> None:
        """Points one argument at memory of at least `primitive.desc(index).nbytes` bytes."""
        position = self.primitive.position(index)
        if position < 0:
            raise KeyError(f"{self.primitive.name}: no argument {index}.")
        self.bind_at(position, pointer)

    def bind_at(self, position: int, pointer: int) -> None:
        """`bind` by the position in `primitive.arguments`."""
        if self.last[position] != pointer:
            status = library.require().set_data_handle(self.memories[position], pointer)
            if status:
                raise capi.failure("dnnl_memory_set_data_handle", status, f"argument {position} of {self.primitive}")
            self.last[position] = pointer

    def unbound(self) -> list[int]:
        """Indices of the arguments that have no memory yet."""
        return [a.index for a, pointer in zip(self.primitive.arguments, self.last, strict=True) if not pointer]

    def run(self) -> None:
        """Executes now, in this thread, with the GIL released. Every argument must be bound."""
        lib = library.require()
        missing = self.unbound()
        if missing:
            raise RuntimeError(f"{self.primitive.name}: arguments without memory. Got none for {missing}.")
        threads.ensure_width()
        with nullcontext() if self.primitive.exact else threads.alone:
            status = lib.execute(self.primitive.handle, lib.stream, self.nargs, self.address)
        if status:
            raise capi.failure("dnnl_primitive_execute", status, repr(self.primitive))


def _destroy_memories(lib: capi.Library, memories: list[int]) -> None:
    for memory in memories:
        lib.call("memory_destroy", memory)
