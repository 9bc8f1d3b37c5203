"""The loop IR: kernels as nested loops over scalar expressions, small enough to print and read.

A `Kernel` takes buffers and run-time integers and runs statements in order::

    kernel softmax(x: float32[rows, n], y: float32[rows, n], rows, n):
      parallel for r < rows (grain 1 + 32768 // n):
        acc m: max float32
        vector for i < n:
          m max= x[r, i]
        acc z: sum float32
        vector for j < n:
          let e = exp(x[r, j] - m)
          y[r, j] = e
          z sum= e
        vector for k < n:
          y[r, k] = y[r, k] / z

Meaning
* Values are `weft.ops.core.scalar.Expr`. Loop variables are `index` leaves (int64), run-time integers `param` leaves,
  `Let`s and accumulators `var` leaves; `buffer[i, j]` makes a `load`.
* Statements run in order; a load sees every store before it. To use an old value after a store, `Let` it first.
* A *vector* loop's iterations may run side by side in any order, several at once, so they must not depend on each
  other except through accumulators. Buffers may share memory only if equal indices mean the same element.
* A *parallel* loop's iterations may also run on several threads. It stands at the top of the kernel; fewer than
  `grain` iterations are not worth a thread, and how they are shared out never changes the result. If it has `workers`,
  no more threads than these run it, and `var.worker` is the number of the one that runs an iteration: for
  a scratch buffer per thread, which stays in its cache. No result may depend on that number.
* An accumulator belongs to the iteration that declares it: declared outside a vector loop and updated inside, it
  combines lanes and is reduced when it is read; declared inside, every lane has its own. The order of combination
  depends on extents only, never on the number of threads.
* An *unroll* loop has a constant extent and is written out. A `Local` buffer with constant shape, indexed only by
  unrolled and vector loops of constant extent, lives in registers: that is how a matmul tile is written.
* `transpose` transposes a tile of `SQUARE` x `SQUARE` elements through registers.
* `prefetch b[i]` prefetches a cache line. It has no effect on results, and its address may lie outside the buffer.

The IR knows no vector width and no pointer size; a backend chooses them. `validate` checks structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from ...ops.core import reductions
from ...ops.core import scalar as s
from ...ops.core.reductions import Reduction
from ...ops.core.scalar import INT64, Expr

Dim = int | Expr
LoopKind = Literal["serial", "vector", "unroll"]
INDEXED_REDUCTIONS = ("argmax", "argmin")
"""Reductions that keep a position besides the value; all others are named by `weft.ops.core.reductions`."""
MAX_KEPT = 128
"""Maximum cached kernels of one family per process: a large one takes 100 kB."""
MAX_LOCAL_BYTES = 64 * 1024
"""Local buffers live on a worker's stack."""


def as_index(value: Dim) -> Expr:
    """An int64 expression for a Python integer or an integer expression."""
    if isinstance(value, Expr):
        if s.kind(value.dtype) not in "iu":
            raise TypeError(f"loops: expected an integer expression. Got {value!r} of {value.dtype}.")
        return s.cast(value, INT64)
    return s.const(int(value), INT64)


def constant(value: Expr) -> int | None:
    """The integer a constant expression stands for, else None."""
    return int(value.payload) if value.fn == "const" else None


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory with a dtype, a shape and element strides; dimensions are constants or int64 expressions of params.

    `Buffer.of` accepts Python integers and fills in row-major strides. `b[i, j]` loads.
    """

    name: str
    dtype: np.dtype
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @staticmethod
    def of(name: str, dtype: DTypeLike, shape: Sequence[Dim], strides: Sequence[Dim] | None = None) -> Buffer:
        dims = tuple(map(as_index, shape))
        if strides is None:
            steps: list[Expr] = []
            step = as_index(1)
            for dim in reversed(dims):
                steps.append(step)
                step = step * dim
            return Buffer(name, np.dtype(dtype), dims, tuple(reversed(steps)))
        return Buffer(name, np.dtype(dtype), dims, tuple(map(as_index, strides)))

    def __hash__(self) -> int:
        return hash(self.name)  # looked up often; two of one name in one kernel are rare

    def __getitem__(self, indices: Dim | tuple[Dim, ...]) -> Expr:
        return s.load(self, tuple(map(as_index, indices if isinstance(indices, tuple) else (indices,))))

    def offset(self, indices: Sequence[Expr]) -> Expr:
        """Offset of an element, in elements."""
        total = as_index(0)
        for i, stride in zip(indices, self.strides, strict=True):
            total = total + as_index(i) * stride
        return total


@dataclass(frozen=True, slots=True)
class Loop:
    """`for var in range(extent): body`; see the module's docstring for kinds, `parallel`, `grain` and `workers`."""

    var: str
    extent: Expr
    body: tuple[Statement, ...]
    kind: LoopKind = "serial"
    parallel: bool = False
    grain: Expr = field(default_factory=lambda: as_index(1))
    workers: int | None = None

    @property
    def index(self) -> Expr:
        return s.index(self.var)


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[indices] = value`; the dtypes agree.

    `streaming` hints a non-temporal store: the element is not read soon and should bypass the caches.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Let:
    """`name = value`, evaluated once, visible to the statements after it in the same body and below."""

    name: str
    value: Expr

    @property
    def var(self) -> Expr:
        return s.var(self.name, self.value.dtype)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Declares a reduction and sets it to the operation's identity.

    `op` is the name of a `weft.ops.core.reductions.Reduction`. `argmax`/`argmin` keep the first extreme value (the first
    nan, if any) and its position: `value` and `index`.
    """

    name: str
    op: str
    dtype: np.dtype

    @property
    def indexed(self) -> bool:
        """Whether the accumulator keeps a position besides the value."""
        return self.op in INDEXED_REDUCTIONS

    @property
    def reduction(self) -> Reduction:
        """What combines two partial results; of argmax and argmin, their values."""
        return reductions.table[self.op.removeprefix("arg")]

    @property
    def value(self) -> Expr:
        return s.var(self.name, self.dtype)

    @property
    def index(self) -> Expr:
        if not self.indexed:
            raise ValueError(f"accumulator {self.name}: only argmax and argmin have an index. Got {self.op}.")
        return s.var(self.name + ".index", INT64)


@dataclass(frozen=True, slots=True)
class Update:
    """Combines `value` (and, for argmax/argmin, its `index`) into an accumulator."""

    accumulator: Accumulator
    value: Expr
    index: Expr | None = None


@dataclass(frozen=True, slots=True)
class Local:
    """Declares scratch memory of constant shape, private to the iteration; its contents start undefined."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Prefetches the cache line of an element for a read or, with `write`, a store. Not in vector loops."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool = False


SQUARE = 16
"""Rows and columns of a `Transpose`."""


@dataclass(frozen=True, slots=True)
class Transpose:
    """`target[j, i] = source[i, j]` for a square that starts at the given elements; all loads precede all stores. Row
    strides are `source_step` and `target_step`. Not in vector loops; 4-byte elements."""

    target: Buffer
    target_at: tuple[Expr, ...]
    target_step: Dim
    source: Buffer
    source_at: tuple[Expr, ...]
    source_step: Dim


Statement = Loop | Store | Let | Accumulator | Update | Local | Prefetch | Transpose


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of `buffers` then `params` (int64), in this order, that runs `body`."""

    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[str, ...]
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return format_kernel(self)


# --------------------------------------------------------------------------------------------------- making


def loop(var: str, extent: Dim, body: Sequence[Statement], kind: LoopKind = "serial", *,
         parallel: bool = False, grain: Dim = 1, workers: int | None = None) -> Loop:  # fmt: skip
    """A `Loop` from Python integers and lists."""
    return Loop(var, as_index(extent), tuple(body), kind, parallel, as_index(grain), workers)


def worker(var: str) -> Expr:
    """The number of the thread that runs an iteration of the loop over `var`, which has `workers`."""
    return s.var(f"{var}.worker", INT64)


def store(target: Expr, value: Expr, streaming: bool = False) -> Store:
    """`store(y[i, j], value)`: the load expression names the place. The value is cast to the buffer's dtype."""
    if target.fn != "load":
        raise TypeError(f"store: the target must be an element of a buffer. Got {target!r}.")
    return Store(target.payload, target.args, s.cast(value, target.dtype), streaming)


def transpose(target: Expr, target_step: int, source: Expr, source_step: int) -> Transpose:
    """`transpose(y[p], 64, x[q], 1024)`: the square at x[q] (row stride 1024), transposed, to y[p] (row stride 64)."""
    for place in (target, source):
        if place.fn != "load" or place.dtype != target.dtype or place.dtype.itemsize != 4:
            raise TypeError(
                f"transpose: expected two elements of 4 bytes and one dtype. Got {target!r} and {source!r}."
            )
    return Transpose(target.payload, target.args, target_step, source.payload, source.args, source_step)


def prefetch(target: Expr, write: bool = False) -> Prefetch:
    """`prefetch(x[i, j])`: the load expression names the place."""
    if target.fn != "load":
        raise TypeError(f"prefetch: the target must be an element of a buffer. Got {target!r}.")
    return Prefetch(target.payload, target.args, write)


def update(accumulator: Accumulator, value: Expr, index: Dim | None = None) -> Update:
    """An `Update` with the value cast to the accumulator's dtype."""
    return Update(accumulator, s.cast(value, accumulator.dtype), None if index is None else as_index(index))


def grain_for(work_per_iteration: Dim, least_work: int = 32768) -> Expr:
    """The iterations worth a thread, given the elements that each touches."""
    return s.floor_divide(as_index(least_work), as_index(work_per_iteration)) + 1


# -------------------------------------------------------------------------------------------------- reading


def expressions(statement: Statement) -> Iterator[Expr]:
    """The expressions a statement holds itself (not those of the statements in a loop's body)."""
    match statement:
        case Loop():
            yield statement.extent
            yield statement.grain
        case Store():
            yield from statement.indices
            yield statement.value
        case Prefetch():
            yield from statement.indices
        case Transpose():
            yield from statement.target_at
            yield from statement.source_at
            yield from (step for step in (statement.target_step, statement.source_step) if isinstance(step, Expr))
        case Let():
            yield statement.value
        case Update():
            yield statement.value
            if statement.index is not None:
                yield statement.index
        case Local():
            yield from statement.buffer.shape


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, outer before inner."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from walk(statement.body)


def coefficient(expr: Expr, var: str) -> Expr | None:
    """`c` such that `expr == c * index(var) + rest`, with `c` and `rest` free of `var`; None if there is none."""
    found: dict[Expr, Expr | None] = {}
    zero = as_index(0)
    for node in s.topological([expr]):
        c: Expr | None
        parts = [found[x] for x in node.args]
        if node.fn == "index":
            c = as_index(1) if node.payload == var else zero
        elif all(part is zero for part in parts):
            c = zero
        elif None in parts or node.dtype != INT64:
            c = None
        elif node.fn == "add":
            c = parts[0] + parts[1]  # type: ignore[operator]
        elif node.fn == "sub":
            c = parts[0] - parts[1]  # type: ignore[operator]
        elif node.fn == "mul" and zero in parts:
            c = parts[1] * node.args[0] if parts[0] is zero else parts[0] * node.args[1]
        else:
            c = None
        found[node] = c
    return found[expr]


# ------------------------------------------------------------------------------------------------- printing


def _dims(buffer: Buffer) -> str:
    def texts(dims: Sequence[Expr]) -> str:
        return ", ".join(map(repr, dims))

    row_major = Buffer.of(buffer.name, buffer.dtype, buffer.shape)
    return texts(buffer.shape) if row_major == buffer else f"{texts(buffer.shape)}; strides {texts(buffer.strides)}"


def format_kernel(kernel: Kernel) -> str:
    """The kernel as text, one statement per line (see the module's docstring)."""
    buffers = [f"{b.name}: {b.dtype.name}[{_dims(b)}]" for b in kernel.buffers]
    lines = [f"kernel {kernel.name}({', '.join([*buffers, *kernel.params])}):"]
    counter = 0

    def show(statement: Statement, indent: str) -> None:
        nonlocal counter
        # One numbering of shared parts for the whole kernel, so that no name means two things.
        shared, texts = s.format_exprs(list(expressions(statement)), f"t{counter}_" if counter else "t")
        counter += bool(shared)
        lines.extend(indent + line for line in shared)
        match statement:
            case Loop():
                extent, grain = texts
                words = [w for w in ("parallel" if statement.parallel else "", statement.kind) if w and w != "serial"]
                notes = [f"grain {grain}"] * (grain != "1") + [f"workers {statement.workers}"] * (
                    statement.workers is not None
                )
                note = f" ({', '.join(notes)})" if notes else ""
                lines.append(f"{indent}{' '.join([*words, 'for'])} {statement.var} < {extent}{note}:")
                for inner in statement.body:
                    show(inner, indent + "  ")
            case Store():
                *where, value = texts
                arrow = "<-" if statement.streaming else "="
                lines.append(f"{indent}{statement.buffer.name}[{', '.join(where)}] {arrow} {value}")
            case Prefetch():
                lines.append(
                    f"{indent}prefetch {statement.buffer.name}[{', '.join(texts)}]{' to write' * statement.write}"
                )
            case Transpose():
                n = len(statement.target_at)
                to = f"{statement.target.name}[{', '.join(texts[:n])}] step {statement.target_step}"
                of = f"{statement.source.name}[{', '.join(texts[n : n + len(statement.source_at)])}] step {statement.source_step}"
                lines.append(f"{indent}transpose {of} to {to}")
            case Let():
                lines.append(f"{indent}let {statement.name} = {texts[0]}")
            case Accumulator():
                lines.append(f"{indent}acc {statement.name}: {statement.op} {statement.dtype.name}")
            case Update():
                a = statement.accumulator
                lines.append(f"{indent}{a.name} {a.op}= {texts[0]}{f' at {texts[1]}' if len(texts) > 1 else ''}")
            case Local():
                b = statement.buffer
                lines.append(f"{indent}local {b.name}: {b.dtype.name}[{_dims(b)}]")

    for statement in kernel.body:
        show(statement, "  ")
    return "\n".join(lines)
