"""Reductions of an elementwise expression over any axes.

Dimensions are labelled `k` (kept) or `r` (reduced) and ordered from outermost to innermost in memory; three schemes
cover all cases:

* *rows*: the innermost dimension is reduced. Each kept element is a row: lanes run along it.
* *strips*: the innermost kept dimension is vectorised, and each lane walks its reduced elements. For few reduced
  elements, and for argmax/argmin along outer axes.
* *columns*: like strips, for many reduced elements: whole rows are added into a row of partial results, several at a
  time, so memory is read sequentially.

Rows and columns split long reductions into chunks whose number depends on the shape alone; the partial results are
combined in order afterwards. So the result has the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from .. import ir as loops
from ..ir import INDEXED_REDUCTIONS, Accumulator, Buffer, Kernel, Let, Loop, Statement
from .elementwise import place_arguments
from .layout import unflatten

POST: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda total, count: total,
    "mean": lambda total, count: total / s.cast(count, total.dtype),
}
ROWS_PER_PASS = 4
"""Rows combined in one pass over the partial results, in the columns scheme."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The structure of a reduction kernel, without sizes.

    `labels` names the dimensions, outermost first; `classes` gives per operand (inputs, output, and for argmax and
    argmin the index) the class of each dimension's stride. `chunked` is whether the reduction is cut into chunks.
    """

    op: str
    expr: Expr
    inputs: tuple[np.dtype, ...]
    accumulate: np.dtype
    output: np.dtype
    post: str
    scheme: str
    labels: str
    classes: tuple[tuple[int, ...], ...]
    chunked: bool

    @property
    def indexed(self) -> bool:
        return self.op in INDEXED_REDUCTIONS


class _Builder:
    """Holds the parameters and buffers of a kernel while it is built."""

    def __init__(self, r: Reduction) -> None:
        self.r = r
        self.params: list[str] = ["count", "chunks", "chunk"]
        self.sizes: list[Expr] = []
        for d, label in enumerate(r.labels):
            self.params.append(f"{label}{d}")
            self.sizes.append(s.param(self.params[-1]))
        self.inputs = [self.buffer(f"x{k}", dtype, k) for k, dtype in enumerate(r.inputs)]
        self.output = self.buffer("y", r.output, len(r.inputs))
        self.position = self.strides("at", len(r.inputs) + 1) if r.indexed else []
        self.kept = [d for d, label in enumerate(r.labels) if label == "k"]
        self.reduced = [d for d, label in enumerate(r.labels) if label == "r"]

    def strides(self, name: str, operand: int) -> list[Expr | int]:
        result: list[Expr | int] = []
        for d, c in enumerate(self.r.classes[operand]):
            if c == 2:
                self.params.append(f"{name}_s{d}")
                result.append(s.param(self.params[-1]))
            else:
                result.append(c)
        return result

    def buffer(self, name: str, dtype: np.dtype, operand: int) -> Buffer:
        return Buffer.of(name, dtype, self.sizes, self.strides(name, operand))

    def value(self, where: Sequence[Expr]) -> Expr:
        loads = [b[tuple(where)] for b in self.inputs]
        return s.cast(place_arguments(self.r.expr, loads), self.r.accumulate)

    def at(self, where: Sequence[Expr]) -> Expr | None:
        """The position of an element in the flattened reduced axes, for argmax and argmin."""
        if not self.r.indexed:
            return None
        total = loops.as_index(0)
        for i, stride in zip(where, self.position, strict=True):
            total = total + i * stride
        return total

    def accumulator(self, name: str = "total") -> Accumulator:
        return Accumulator(name, self.r.op, self.r.accumulate)

    def result(self, a: Accumulator) -> Expr:
        return a.index if self.r.indexed else POST[self.r.post](a.value, s.param("count"))

    def kernel(self, body: Sequence[Statement], *scratch: Buffer) -> Kernel:
        name = f"{self.r.op}_{self.r.scheme}"
        return Kernel(name, (*self.inputs, self.output, *scratch), tuple(self.params), tuple(body))

    def spread(self, indices: dict[int, Expr]) -> list[Expr]:
        """One index per dimension, 0 where none is given."""
        return [indices.get(d, loops.as_index(0)) for d in range(len(self.sizes))]


def reduction(r: Reduction) -> Kernel:
    """The kernel; its integers are `count`, `chunks`, `chunk`, the sizes, then every stride of class 2 in order."""
    b = _Builder(r)
    return {"rows": _rows, "strips": _strips, "columns": _columns}[r.scheme](b)


def _product(sizes: Sequence[Expr]) -> Expr:
    total = loops.as_index(1)
    for size in sizes:
        total = total * size
    return total


def _nest(
    b: _Builder, dims: Sequence[int], indices: dict[int, Expr], innermost: Callable[[dict[int, Expr]], Statement]
) -> Statement:
    """Serial loops over `dims` around one statement."""
    if not dims:
        return innermost(indices)
    d, *rest = dims
    inner = {**indices, d: s.index(f"i{d}")}
    return loops.loop(f"i{d}", b.sizes[d], [_nest(b, rest, inner, innermost)])


def _rows(b: _Builder) -> Kernel:
    kept, (cut, *rest) = b.kept, b.reduced
    rows = _product([b.sizes[d] for d in kept])
    task = s.index("task")
    chunks, chunk = s.param("chunks"), s.param("chunk")
    total = b.accumulator()
    statements: list[Statement] = []
    row = task
    start: Expr = loops.as_index(0)
    length: Expr = b.sizes[cut]
    if b.r.chunked:
        row_let = Let("row", s.floor_divide(task, chunks))
        start_let = Let("start", s.remainder(task, chunks) * chunk)
        statements += [row_let, start_let]
        row, start = row_let.var, start_let.var
        length = s.minimum(chunk, b.sizes[cut] - start)
    lets, outer = unflatten(row, [b.sizes[d] for d in kept], "q") if kept else ([], [])
    indices = dict(zip(kept, outer, strict=True))
    statements += [*lets, total]

    def update(where: dict[int, Expr]) -> Statement:
        place = b.spread(where)
        return loops.update(total, b.value(place), b.at(place))

    first = {**indices, cut: start + s.index("i")}
    if rest:
        *middle, last = rest

        def vector(where: dict[int, Expr]) -> Statement:
            return loops.loop("j", b.sizes[last], [update({**where, last: s.index("j")})], "vector")

        statements.append(loops.loop("i", length, [_nest(b, middle, first, vector)]))
    else:
        statements.append(loops.loop("i", length, [update(first)], "vector"))
    work = (
        _product([length, *(b.sizes[d] for d in rest)])
        if not b.r.chunked
        else chunk * _product([b.sizes[d] for d in rest])
    )
    if not b.r.chunked:
        statements.append(loops.store(b.output[tuple(b.spread(indices))], b.result(total)))
        loop = loops.loop("task", rows, statements, parallel=True, grain=loops.grain_for(work))
        return b.kernel([loop])
    parts = Buffer.of("parts", b.r.accumulate, (rows, chunks))
    where_parts = Buffer.of("parts_at", s.INT64, (rows, chunks)) if b.r.indexed else None
    flat = (row, s.remainder(task, chunks))
    statements.append(loops.store(parts[flat], total.value))
    if where_parts is not None:
        statements.append(loops.store(where_parts[flat], total.index))
    first_loop = loops.loop("task", rows * chunks, statements, parallel=True, grain=loops.grain_for(work))

    final = b.accumulator("final")
    last_row = s.index("row_")
    lets, outer = unflatten(last_row, [b.sizes[d] for d in kept], "f") if kept else ([], [])
    place = tuple(b.spread(dict(zip(kept, outer, strict=True))))
    c = s.index("c")
    joined = loops.update(final, parts[last_row, c], where_parts[last_row, c] if where_parts is not None else None)
    second = loops.loop(
        "row_", rows, [*lets, final, loops.loop("c", chunks, [joined], "vector"), loops.store(b.output[place], b.result(final))]
    )  # fmt: skip
    return b.kernel([first_loop, second], parts, *([where_parts] if where_parts is not None else []))


def _strips(b: _Builder) -> Kernel:
    *outer_kept, lane = b.kept
    task = s.index("task")
    chunks, chunk = s.param("chunks"), s.param("chunk")
    row, start = Let("row", s.floor_divide(task, chunks)), Let("start", s.remainder(task, chunks) * chunk)
    lets, outer = unflatten(row.var, [b.sizes[d] for d in outer_kept], "q") if outer_kept else ([], [])
    indices = {**dict(zip(outer_kept, outer, strict=True)), lane: start.var + s.index("j")}
    total = b.accumulator()

    def update(where: dict[int, Expr]) -> Statement:
        place = b.spread(where)
        return loops.update(total, b.value(place), b.at(place))

    store = loops.store(b.output[tuple(b.spread(indices))], b.result(total))
    body: list[Statement] = [total, _nest(b, b.reduced, indices, update), store]
    lanes = loops.loop("j", s.minimum(chunk, b.sizes[lane] - start.var), body, "vector")
    rows = _product([b.sizes[d] for d in outer_kept])
    work = chunk * _product([b.sizes[d] for d in b.reduced])
    loop = loops.loop("task", rows * chunks, [row, start, *lets, lanes], parallel=True, grain=loops.grain_for(work))
    return b.kernel([loop])


def _columns(b: _Builder) -> Kernel:
    *outer_kept, lane = b.kept
    width = b.sizes[lane]
    rows = _product([b.sizes[d] for d in outer_kept])
    reduced_sizes = [b.sizes[d] for d in b.reduced]
    length = _product(reduced_sizes)
    chunks, chunk = s.param("chunks"), s.param("chunk")
    parts = Buffer.of("parts", b.r.accumulate, (rows, chunks, width))
    combine = b.accumulator().reduction.combine
    task = s.index("task")
    row, part = Let("row", s.floor_divide(task, chunks)), Let("part", s.remainder(task, chunks))
    start = Let("start", part.var * chunk)
    count = Let("rows_here", s.minimum(chunk, length - start.var))
    lets, outer = unflatten(row.var, [b.sizes[d] for d in outer_kept], "q") if outer_kept else ([], [])
    base = dict(zip(outer_kept, outer, strict=True))

    def line(number: Expr, prefix: str, j: Expr) -> tuple[list[Let], Expr]:
        """One element of a reduced row: (definitions of its indices, its value in column j)."""
        row_lets, indices = unflatten(number, reduced_sizes, prefix)
        return row_lets, b.value(b.spread({**base, **dict(zip(b.reduced, indices, strict=True)), lane: j}))

    def add(var: str, value: Expr, first: bool) -> Loop:
        target = parts[row.var, part.var, s.index(var)]
        return loops.loop(var, width, [loops.store(target, value if first else combine(target, value))], "vector")

    # The first row starts the partial results; then groups of rows; then the remaining ones.
    first_lets, first_value = line(start.var, "a", s.index("j0"))
    groups = s.floor_divide(count.var - 1, loops.as_index(ROWS_PER_PASS))
    g = s.index("g")
    group_lets: list[Let] = []
    values = []
    for t in range(ROWS_PER_PASS):
        row_lets, value = line(start.var + 1 + g * ROWS_PER_PASS + t, f"b{t}_", s.index("j1"))
        group_lets += row_lets
        values.append(value)
    while len(values) > 1:
        values = [combine(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    done = Let("done", 1 + groups * ROWS_PER_PASS)
    last_lets, last_value = line(start.var + done.var + s.index("l"), "c", s.index("j2"))
    body: list[Statement] = [
        row, part, start, count, *lets, *first_lets, add("j0", first_value, True),
        loops.loop("g", groups, [*group_lets, add("j1", values[0], False)]),
        done,
        loops.loop("l", count.var - done.var, [*last_lets, add("j2", last_value, False)]),
    ]  # fmt: skip
    first_loop = loops.loop("task", rows * chunks, body, parallel=True, grain=loops.grain_for(chunk * width))

    final = b.accumulator("final")
    lets, outer = unflatten(s.index("row_"), [b.sizes[d] for d in outer_kept], "f") if outer_kept else ([], [])
    place = tuple(b.spread({**dict(zip(outer_kept, outer, strict=True)), lane: s.index("j3")}))
    c = s.index("c")
    joined = loops.loop("c", chunks, [loops.update(final, parts[s.index("row_"), c, s.index("j3")])])
    store = loops.store(b.output[place], b.result(final))
    columns = loops.loop("j3", width, [final, joined, store], "vector")
    second = loops.loop("row_", rows, [*lets, columns], parallel=True, grain=loops.grain_for(chunks * width))
    return b.kernel([first_loop, second], parts)
