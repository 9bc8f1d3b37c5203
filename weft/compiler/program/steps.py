"""The steps of a program, one class for each kind.

A step says what it reads and writes, for lifetimes and hazards, and with `entry` how it runs: as a native function and
the block of words that the function reads (see `weft.backends.llvm.native`). A program is a table of such pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .layout import Layout, Storage

if TYPE_CHECKING:
    from ...graph.graph import Node
    from ..loop_ir.ir import Kernel

Word = Any
"""An integer, a slot of a binder, or a list of words, which stands for its address."""
Entry = tuple[int, list[Word]]
"""The address of a native function, and the block it is called with."""


class Binder(Protocol):
    """The memory and code that one instance of a program gives its steps."""

    control: int
    """address of the words that loops poll"""

    def slot(self, storage: Storage, byte_offset: int = 0) -> Word:
        """A word that points to an address inside a storage."""

    def start(self, storage: Storage) -> int | None:
        """The address of a storage if it is constant over calls, else None."""

    def code(self, kernel: Kernel) -> int:
        """The address of a compiled kernel."""

    def routine(self, name: str) -> int:
        """The address of one of the routines of compiled programs: "check", "branch", "while", "scan"."""

    def table(self, steps: Sequence[Step]) -> int:
        """The address of the table of nested steps."""

    def callback(self, step: HostCall) -> int:
        """The address of a function that runs a host call."""

    def keep(self, thing: Any) -> None:
        """Keep an object alive as long as the instance."""


@dataclass(eq=False)
class Step:
    """One step of a program; `nodes` are those it computes. `kind` names the class in reports."""

    label: str
    nodes: Sequence[Node]
    reads: list[Storage]
    writes: list[Storage]
    kind: ClassVar[str] = "step"

    @property
    def parts(self) -> Sequence[list[Step]]:
        """Nested lists of steps."""
        return ()

    @property
    def overwrites(self) -> Sequence[tuple[Storage, Storage]]:
        """(written, read): storages that may share memory, because every element is read before it is overwritten."""
        return ()

    def entry(self, binder: Binder) -> Entry:
        """How the step runs."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs.")


@dataclass(eq=False)
class KernelCall(Step):
    """Runs a generated kernel."""

    kernel: Kernel
    storages: list[Storage]
    """of the kernel's buffers, in order"""
    params: list[int] = field(default_factory=list)
    """integer parameters of the kernel"""
    over: list[tuple[Storage, Storage]] = field(default_factory=list)
    kind: ClassVar[str] = "kernel"

    @property
    def overwrites(self) -> Sequence[tuple[Storage, Storage]]:
        return self.over

    def entry(self, binder: Binder) -> Entry:
        return binder.code(self.kernel), [*[binder.slot(st) for st in self.storages], *self.params]


class LibraryPrimitive(Protocol):
    """A primitive of a library, prepared for memory of known layouts."""

    def entry(self, binder: Binder, arguments: Mapping[int, Layout]) -> Entry:
        """How it runs on `arguments`, by the library's numbers of them."""


@dataclass(eq=False)
class LibraryCall(Step):
    """Executes a primitive of a library."""

    primitive: LibraryPrimitive
    arguments: dict[int, Layout]
    """by argument index"""
    kind: ClassVar[str] = "primitive"

    def entry(self, binder: Binder) -> Entry:
        return self.primitive.entry(binder, self.arguments)


class HostCall(Step):
    """Runs the NumPy kernel of an op on the program's memory."""

    kind = "host"

    def __init__(self, node: Node, inputs: list[Layout | None], outputs: list[Layout]) -> None:
        super().__init__(
            node.op.name, [node], [x.storage for x in inputs if x is not None], [x.storage for x in outputs]
        )
        self.inputs, self.outputs = inputs, outputs

    def entry(self, binder: Binder) -> Entry:
        return binder.callback(self), []


class Check(Step):
    """Fails with a message if a flag is set."""

    kind = "check"

    def __init__(self, node: Node, flag: Storage, message: str) -> None:
        super().__init__("check", [node], [flag], [])
        self.flag, self.message = flag, message

    def entry(self, binder: Binder) -> Entry:
        return binder.routine("check"), [binder.slot(self.flag)]


@dataclass(eq=False)
class Branch(Step):
    """Runs one of two lists of steps, by a flag."""

    flag: Storage
    yes: list[Step]
    no: list[Step]
    kind: ClassVar[str] = "branch"

    @property
    def parts(self) -> Sequence[list[Step]]:
        return self.yes, self.no

    def entry(self, binder: Binder) -> Entry:
        return binder.routine("branch"), [binder.slot(self.flag), *_tables(binder, self.parts), binder.control]


@dataclass(eq=False)
class WhileLoop(Step):
    """Runs `condition`, which sets the flag, and then `body`, as long as the flag is set."""

    flag: Storage
    condition: list[Step]
    body: list[Step]
    kind: ClassVar[str] = "while"

    @property
    def parts(self) -> Sequence[list[Step]]:
        return self.condition, self.body

    def entry(self, binder: Binder) -> Entry:
        return binder.routine("while"), [binder.slot(self.flag), *_tables(binder, self.parts), binder.control]


@dataclass(frozen=True, slots=True)
class Move:
    """A cursor of a scan: it points `start` bytes into `whole` at first, and `stride` bytes further after each iteration."""

    cursor: Storage
    whole: Storage
    start: int
    stride: int


@dataclass(eq=False)
class Scan(Step):
    """Runs `body` a fixed number of times, with cursors that move on."""

    body: list[Step]
    count: int
    moves: list[Move]
    kind: ClassVar[str] = "scan"

    @property
    def parts(self) -> Sequence[list[Step]]:
        return (self.body,)

    def entry(self, binder: Binder) -> Entry:
        words: list[Word] = [self.count, *_tables(binder, self.parts), binder.control, len(self.moves)]
        for move in self.moves:
            words += [binder.slot(move.cursor), binder.slot(move.whole), move.start, move.stride]
        return binder.routine("scan"), words


def _tables(binder: Binder, parts: Sequence[list[Step]]) -> list[Word]:
    """The table and the length of each list of steps."""
    return [word for part in parts for word in (binder.table(part), len(part))]


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps and the steps inside them."""
    for step in steps:
        yield step
        for part in step.parts:
            yield from all_steps(part)


def nested_flags(steps: Sequence[Step]) -> list[Storage]:
    """The flags of the checks inside branches and loops."""
    inner = (nested for step in steps for part in step.parts for nested in all_steps(part))
    return [step.flag for step in inner if isinstance(step, Check)]
