"""Programs of segments: found by structure, compiled once, or run op by op where they are too short to pay.

The key of a segment is what was recorded: ops with their attributes and operands, shapes and dtypes of its inputs, and which
of its values are used afterwards. Python numbers among the operands are constants of the program as long as they are the same;
one that changed becomes an input of a second program, which serves all later values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.tape import memory_of
from ...compiler.build import compile_flow
from ...compiler.flow import from_graph
from ...ops.core.define import compute
from ...runtime import garbage
from ...runtime.limits import LeastRecentlyUsed
from ..graph import Graph, Value

if TYPE_CHECKING:
    from .segments import LazyGraph, Slot

ndarray = np.ndarray
MIN_OPS = 3  # shorter segments run op by op
MIN_ELEMENTS = 1 << 14  # of all results of a segment together, likewise


class _Builder(Graph):
    """Builds the graph of a segment; Python numbers that change are placeholders."""

    def __init__(self, name: str, opened: frozenset[int]) -> None:
        super().__init__(name)
        self.opened = opened
        self.position = 0  # among the Python numbers of the segment
        self.numbers: list[tuple[int, Value]] = []  # (position, placeholder) of those that are inputs

    def _cast(self, value: Any, dtype: np.dtype | None) -> Any:
        if value.__class__ is int or value.__class__ is float:
            position = self.position
            self.position += 1
            if position in self.opened:
                array = np.asarray(value, dtype)
                made = self.placeholder((), array.dtype, "number")
                self.numbers.append((position, made))
                return made
        return super()._cast(value, dtype)


class Program:
    """A compiled segment with the Python numbers that are constants of it."""

    def __init__(
        self,
        graph: LazyGraph,
        slots: list[Slot],
        wanted: tuple[int, ...],
        writes: Any,
        opened: frozenset[int],
        owner: Any,
    ) -> None:
        self.scalars, self.opened = list(graph.scalars), opened
        builder = _Builder(graph.name, opened)
        values: list[Any] = []
        inputs: list[Value] = []
        numbers = iter(graph.scalars)
        for op, attrs, dtype, refs in graph.calls:
            if op is None:
                inputs.append(builder.placeholder(attrs, dtype, "input"))
                values.append(inputs[-1])
                continue
            given = [
                values[r]
                if r.__class__ is int
                else None
                if r is None
                else r[1]
                if r.__class__ is tuple
                else next(numbers)
                for r in refs
            ]
            values += builder.emit(op, given, attrs).outputs
        outputs = [values[i] for i in wanted] + [values[i] for _, i in writes]
        targets = [None] * len(wanted) + [~n for n, _ in writes]
        inputs += [v for _, v in builder.numbers]
        flow = from_graph(builder, inputs, outputs)
        self.compiled = compile_flow(flow, len(inputs), [], targets, owner.memory_budget, owner.tune)
        self.numbers = [(position, v.dtype) for position, v in builder.numbers]

    def serves(self, scalars: list[Any]) -> bool:
        """Whether the constants of the program are those of a segment."""
        return all(i in self.opened or _same(a, b) for i, (a, b) in enumerate(zip(self.scalars, scalars, strict=True)))

    def changed(self, scalars: list[Any]) -> frozenset[int]:
        """The numbers that are inputs, with those that are other ones now."""
        other = {i for i, (a, b) in enumerate(zip(self.scalars, scalars, strict=True)) if not _same(a, b)}
        return self.opened | other

    def run(self, slots: list[Slot], scalars: list[Any], writes: Any) -> list[ndarray]:
        compiled = self.compiled
        arguments = [compiled.fit(i, s.source if s.final is None else s.array) for i, s in enumerate(slots)]
        arguments += [np.asarray(scalars[position], dtype) for position, dtype in self.numbers]
        outs = compiled.program(arguments, [])
        for n, _ in writes:
            if arguments[n] is not slots[n].array:
                np.copyto(slots[n].array, arguments[n])
        return outs


def _same(a: Any, b: Any) -> bool:
    return a is b or bool(a == b) and (a != 0 or str(a) == str(b))  # 0.0 and -0.0 differ


class SegmentPrograms:
    """The programs of all segments of one captured function. `owner` has its options."""

    def __init__(self, owner: Any, limit: Any) -> None:
        self.owner = owner
        self.programs: LeastRecentlyUsed[Any, Program] = LeastRecentlyUsed(limit)
        self.compilations = 0

    def run(
        self, graph: LazyGraph, slots: list[Slot], wanted: tuple[int, ...], writes: tuple[Any, ...]
    ) -> tuple[list[ndarray], bool]:
        """The arrays of the values numbered `wanted`; stores those in `writes`. Returns also whether a program ran."""
        if not pays(graph) or self.compilations >= self.max_compilations:
            return interpret(graph, slots, wanted, writes), False
        key = (tuple(graph.calls), wanted, writes)
        program = self.programs.get(key)
        if program is None or not program.serves(graph.scalars):
            opened = frozenset() if program is None else program.changed(graph.scalars)
            with garbage.paused():
                program = Program(graph, slots, wanted, writes, opened, self.owner)
            self.compilations += 1
            self.programs.put(key, program)
        return list(program.run(slots, graph.scalars, writes)[: len(wanted)]), True

    @property
    def max_compilations(self) -> int:
        """Beyond so many, a function has another structure at every call, and segments run op by op."""
        return 64


def pays(graph: LazyGraph) -> bool:
    """Whether a program is worth its compilation, by the number and size of ops."""
    return len(graph.calls) - len(graph.slots) >= MIN_OPS and graph.work >= MIN_ELEMENTS


def interpret(graph: LazyGraph, slots: list[Slot], wanted: tuple[int, ...], writes: tuple[Any, ...]) -> list[ndarray]:
    """Run a segment op by op."""
    values: list[Any] = []
    given = iter(slots)
    numbers = iter(graph.scalars)
    for op, attrs, _, refs in graph.calls:
        if op is None:
            values.append(next(given).source)
            continue
        datas = [
            values[r] if r.__class__ is int else None if r is None else r[1] if r.__class__ is tuple else next(numbers)
            for r in refs
        ]
        outs = compute(op, datas, attrs)
        values += outs if op.num_outputs != 1 else [outs]
    written = {id(memory_of(slots[n].array)) for n, _ in writes}
    known = {id(memory_of(s.array)) for s in slots}
    made: list[ndarray] = []
    seen: set[int] = set()
    for i in wanted:
        array = values[i]
        owner = id(memory_of(array))
        # not the memory of an input that is written now, nor memory that another value has already
        if owner in written or owner in seen or owner in known:
            array = array.copy()
        seen.add(owner)
        made.append(array)
    finals = [values[i] for _, i in writes]
    finals = [f.copy() if id(memory_of(f)) in written else f for f in finals]
    for (n, _), final in zip(writes, finals, strict=True):
        np.copyto(slots[n].array, final)
    return made
