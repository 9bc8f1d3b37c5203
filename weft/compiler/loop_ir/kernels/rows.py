"""Fused kernels along one axis: softmax and its relatives.

A *row* is a one-dimensional slice along the axis. Each kernel is a short program per row, written once against `Rows`:
reduce an expression over the row, name a scalar, store along the row. `Rows` maps it to one of two schemes:

* *rows*: the row is (nearly) contiguous; lanes run along it, one row after another;
* *strips*: the axis is an outer one; lanes hold neighbouring rows, and each lane iterates over its row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Let, Statement

STRIP = 64
"""Rows per task in the strips scheme."""
MAX_HELD_ELEMENTS = 4096
"""Maximum elements of a row that are kept in a scratch buffer, which stays in L1."""


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Half precision is computed in float32."""
    return s.FLOAT32 if dtype.itemsize == 2 else dtype


class Rows:
    """Collects the statements of one row.

    Full buffers have shape (rows, n) or, in strips, (outer, n, inner) with contiguous inner; `strides` gives the
    class of the stride along the row. Row buffers hold one element per row, column buffers one per element of a row.
    The kernel's integers are `rows` (or `outer`, `inner`), `n`, then per full buffer its row stride and, if its class
    along the row is 2, that stride; in strips its outer stride and the stride along the row.
    """

    def __init__(self, name: str, scheme: str, streaming: bool = False) -> None:
        self.name = name
        self.streaming = (
            streaming  # whether stores along rows bypass the cache, because the results are too large to stay in it
        )
        self.strips = scheme == "strips"
        self.n = s.param("n")
        self.params = ["outer", "inner", "n"] if self.strips else ["rows", "n"]
        self.buffers: list[Buffer] = []
        self.statements: list[Statement] = []
        self.loops = 0
        if self.strips:
            self.lane = Let("lane", s.remainder(s.index("task"), s.param("strips")) * STRIP)
            self.row: tuple[Expr, ...] = (s.var("o", s.INT64), self.lane.var + s.index("k"))
            self.params.append("strips")
        else:
            self.row = (s.index("row"),)

    def full(self, name: str, dtype: np.dtype, stride: int = 1) -> Buffer:
        """A buffer over all rows."""
        if self.strips:
            self.params += [f"{name}_outer", f"{name}_step"]
            strides: tuple[Expr | int, ...] = (s.param(f"{name}_outer"), s.param(f"{name}_step"), 1)
            shape: tuple[Expr, ...] = (s.param("outer"), self.n, s.param("inner"))
        else:
            self.params.append(f"{name}_row")
            step: Expr | int = stride
            if stride == 2:
                self.params.append(f"{name}_step")
                step = s.param(f"{name}_step")
            strides = (s.param(f"{name}_row"), step)
            shape = (s.param("rows"), self.n)
        return self._add(Buffer.of(name, dtype, shape, strides))

    def per_row(self, name: str, dtype: np.dtype) -> Buffer:
        """A contiguous buffer of one element per row."""
        shape = (s.param("outer"), s.param("inner")) if self.strips else (s.param("rows"),)
        return self._add(Buffer.of(name, dtype, shape))

    def per_column(self, name: str, dtype: np.dtype) -> Buffer:
        """A contiguous buffer of one element per column."""
        return self._add(Buffer.of(name, dtype, (self.n,)))

    def _add(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def at(self, buffer: Buffer, j: Expr) -> Expr:
        """Element j of this row, in the dtype it is computed in."""
        place = (self.row[0], j, *self.row[1:])
        return s.cast(buffer[place], compute_dtype(buffer.dtype))

    def own(self, buffer: Buffer) -> Expr:
        """This row's element of a per-row buffer."""
        return buffer[self.row]

    def _along(self, body: Callable[[Expr], list[Statement]]) -> None:
        var = f"j{self.loops}"
        self.loops += 1
        kind = "serial" if self.strips else "vector"
        self.statements.append(loops.loop(var, self.n, body(s.index(var)), kind))  # type: ignore[arg-type]

    def let(self, value: Expr, name: str) -> Expr:
        definition = Let(name, value)
        self.statements.append(definition)
        return definition.var

    def reduce(self, name: str, op: str, value: Callable[[Expr], Expr], index: bool = False) -> Accumulator:
        """Reduce along the row; read the result by `.value`."""
        return self.each([(name, op, value)])[0]

    def each(
        self,
        reductions: list[tuple[str, str, Callable[[Expr], Expr]]],
        stores: Callable[[Expr], list[tuple[Buffer, Expr]]] | None = None,
        names: Callable[[Expr], list[Let]] | None = None,
    ) -> list[Accumulator]:
        """One loop over the row with several reductions and stores; `names` are evaluated first."""
        probe = s.index(f"j{self.loops}")
        accumulators = [Accumulator(name, op, value(probe).dtype) for name, op, value in reductions]
        self.statements += accumulators

        def body(j: Expr) -> list[Statement]:
            lets = names(j) if names else []
            updates = [loops.update(a, value(j)) for a, (_, _, value) in zip(accumulators, reductions, strict=True)]
            places = [
                loops.store(b[(self.row[0], j, *self.row[1:])], v, self.streaming)
                for b, v in (stores(j) if stores else [])
            ]
            return [*lets, *updates, *places]

        self._along(body)
        return accumulators

    def store(self, buffer: Buffer, value: Callable[[Expr], Expr]) -> None:
        """Store along the row."""
        self.each([], lambda j: [(buffer, value(j))])

    def store_own(self, buffer: Buffer, value: Expr) -> None:
        """Store this row's element of a per-row buffer."""
        self.statements.append(loops.store(self.own(buffer), value))

    def kernel(self) -> Kernel:
        if not self.strips:
            loop = loops.loop(
                "row", s.param("rows"), self.statements, parallel=True, grain=loops.grain_for(self.n, 8192)
            )
            return Kernel(self.name, tuple(self.buffers), tuple(self.params), (loop,))
        strips, inner = s.param("strips"), s.param("inner")
        outer = Let("o", s.floor_divide(s.index("task"), strips))
        lanes = loops.loop("k", s.minimum(loops.as_index(STRIP), inner - self.lane.var), self.statements, "vector")
        grain = loops.grain_for(self.n * STRIP, 8192)
        loop = loops.loop("task", s.param("outer") * strips, [outer, self.lane, lanes], parallel=True, grain=grain)
        return Kernel(self.name, tuple(self.buffers), tuple(self.params), (loop,))


def _base(r: Rows, x: Buffer) -> Expr:
    """The largest element, to be subtracted before exp; 0 if it is infinite, because inf - inf is NaN."""
    top = r.reduce("top", "max", lambda j: r.at(x, j))
    return r.let(s.where(s.isinf(top.value), 0, top.value), "base")


def _log_sum_exp(r: Rows, x: Buffer) -> tuple[Expr, Expr]:
    """(base, log of the sum of exponentials above it)."""
    base = _base(r, x)
    total = r.reduce("total", "sum", lambda j: s.exp(r.at(x, j) - base))
    return base, r.let(s.log(total.value), "log_total")


def softmax(scheme: str, dtype: np.dtype, strides: tuple[int, int], streaming: bool, held: bool = False) -> Kernel:
    """softmax(x, y): y = exp(x - max) / sum. `held`: no row has more than `MAX_HELD_ELEMENTS` elements."""
    r = Rows("softmax", scheme, streaming)
    x, y = r.full("x", dtype, strides[0]), r.full("y", dtype, strides[1])
    base = _base(r, x)
    if held and scheme == "rows" and (dtype.itemsize == 2 or streaming):
        row = Buffer.of("row_of_exp", compute_dtype(dtype), (MAX_HELD_ELEMENTS,))
        r.statements.append(loops.Local(row))
        total = _hold(r, row, lambda j: s.exp(r.at(x, j) - base))
        scale = r.let(1 / total.value, "scale")
        r.store(y, lambda j: row[j] * scale)
        return r.kernel()
    if dtype.itemsize == 2 or streaming:
        # exp twice: a rounded intermediate would be rounded twice, and one in `y` would be written to memory twice.
        total = r.reduce("total", "sum", lambda j: s.exp(r.at(x, j) - base))
        scale = r.let(1 / total.value, "scale")
        r.store(y, lambda j: s.exp(r.at(x, j) - base) * scale)
        return r.kernel()
    e = s.var("e", dtype)
    (total,) = r.each(
        [("total", "sum", lambda j: e)], lambda j: [(y, e)], lambda j: [Let("e", s.exp(r.at(x, j) - base))]
    )
    scale = r.let(1 / total.value, "scale")
    r.store(y, lambda j: r.at(y, j) * scale)
    return r.kernel()


def _hold(r: Rows, row: Buffer, value: Callable[[Expr], Expr]) -> Accumulator:
    """The sum of `value` over the row; the values are kept in `row`."""
    total = Accumulator("total", "sum", row.dtype)
    r.statements.append(total)
    e = s.var("e", row.dtype)
    r._along(lambda j: [Let("e", value(j)), loops.update(total, e), loops.store(row[j], e)])
    return total


def softmax_backward(scheme: str, dtype: np.dtype, strides: tuple[int, int, int], streaming: bool) -> Kernel:
    """softmax_backward(g, y, dx): dx = y * (g - sum(g * y))."""
    r = Rows("softmax_backward", scheme, streaming)
    g, y, dx = (r.full(name, dtype, st) for name, st in zip(("g", "y", "dx"), strides, strict=True))
    dot = r.reduce("dot", "sum", lambda j: r.at(g, j) * r.at(y, j))
    r.store(dx, lambda j: r.at(y, j) * (r.at(g, j) - dot.value))
    return r.kernel()


def log_softmax(scheme: str, dtype: np.dtype, strides: tuple[int, int], streaming: bool) -> Kernel:
    """log_softmax(x, y): y = x - max - log(sum)."""
    r = Rows("log_softmax", scheme, streaming)
    x, y = r.full("x", dtype, strides[0]), r.full("y", dtype, strides[1])
    top, log_total = _log_sum_exp(r, x)
    r.store(y, lambda j: (r.at(x, j) - top) - log_total)
    return r.kernel()


def log_softmax_backward(scheme: str, dtype: np.dtype, strides: tuple[int, int, int], streaming: bool) -> Kernel:
    """log_softmax_backward(g, y, dx): dx = g - exp(y) * sum(g)."""
    r = Rows("log_softmax_backward", scheme, streaming)
    g, y, dx = (r.full(name, dtype, st) for name, st in zip(("g", "y", "dx"), strides, strict=True))
    total = r.reduce("total", "sum", lambda j: r.at(g, j))
    r.store(dx, lambda j: r.at(g, j) - s.exp(r.at(y, j)) * total.value)
    return r.kernel()


def logsumexp(scheme: str, dtype: np.dtype, strides: tuple[int]) -> Kernel:
    """logsumexp(x, out): one value per row; infinite rows stay infinite."""
    r = Rows("logsumexp", scheme)
    x, out = r.full("x", dtype, strides[0]), r.per_row("out", dtype)
    base, log_total = _log_sum_exp(r, x)
    r.store_own(out, base + log_total)
    return r.kernel()


def cross_entropy(scheme: str, dtype: np.dtype, strides: tuple[int]) -> Kernel:
    """cross_entropy(x, label, loss, lse): loss = logsumexp(x) - x[label], per row; labels are int64."""
    r = Rows("cross_entropy", scheme)
    x = r.full("x", dtype, strides[0])
    label = r.per_row("label", s.INT64)
    loss, lse = r.per_row("loss", dtype), r.per_row("lse", compute_dtype(dtype))
    top, log_total = _log_sum_exp(r, x)
    whole = r.let(top + log_total, "whole")
    # The caller checks labels; clamping makes an out-of-range read impossible all the same.
    place = r.let(s.maximum(s.minimum(r.own(label), r.n - 1), 0), "place")
    picked = r.let(r.at(x, place), "picked")
    r.store_own(lse, whole)
    r.store_own(loss, (top - picked) + log_total)
    return r.kernel()


def cross_entropy_backward(scheme: str, dtype: np.dtype, strides: tuple[int, int], streaming: bool) -> Kernel:
    """cross_entropy_backward(x, label, lse, g, dx): dx = (exp(x - lse) - [j == label]) * g, g per row."""
    r = Rows("cross_entropy_backward", scheme, streaming)
    x = r.full("x", dtype, strides[0])
    label, lse, g = r.per_row("label", s.INT64), r.per_row("lse", compute_dtype(dtype)), r.per_row("g", dtype)
    dx = r.full("dx", dtype, strides[1])
    mine, whole = r.let(r.own(label), "mine"), r.let(r.own(lse), "whole")
    scale = r.let(s.cast(r.own(g), compute_dtype(dtype)), "scale")
    r.store(dx, lambda j: (s.exp(r.at(x, j) - whole) - s.cast(s.eq(j, mine), compute_dtype(dtype))) * scale)
    return r.kernel()


def mean_cross_entropy(dtype: np.dtype) -> Kernel:
    """mean_cross_entropy(x, label, mean, wrong; rows, n, ignored): the mean loss of all rows whose label is not `ignored`,
    and the number of labels out of range. For small arrays: one thread, one loop."""
    n, row = s.param("n"), s.index("row")
    x = Buffer.of("x", dtype, (s.param("rows"), n))
    label = Buffer.of("label", s.INT64, (s.param("rows"),))
    mean, wrong = Buffer.of("mean", dtype, (loops.as_index(1),)), Buffer.of("wrong", dtype, (loops.as_index(1),))
    losses, counted, beyond = (Accumulator(name, "sum", dtype) for name in ("losses", "counted", "beyond"))
    top, total = Accumulator("top", "max", dtype), Accumulator("total", "sum", dtype)
    base = Let("base", s.where(s.isinf(top.value), 0, top.value))
    mine = Let("mine", label[row])
    counts = Let("counts", s.cast(s.ne(mine.var, s.param("ignored")), dtype))
    place = Let("place", s.maximum(s.minimum(mine.var, n - 1), 0))
    i, j = s.index("i"), s.index("j")
    loss = (base.var - x[row, place.var]) + s.log(total.value)
    each: list[Statement] = [
        top,
        loops.loop("i", n, [loops.update(top, x[row, i])], "vector"),
        base,
        total,
        loops.loop("j", n, [loops.update(total, s.exp(x[row, j] - base.var))], "vector"),
        mine,
        counts,
        place,
        loops.update(losses, s.where(s.gt(counts.var, 0), loss, 0)),
        loops.update(counted, counts.var),
        loops.update(beyond, s.where(s.ne(mine.var, place.var), counts.var, 0)),
    ]
    body: list[Statement] = [
        losses,
        counted,
        beyond,
        loops.loop("row", s.param("rows"), each, "serial"),
        loops.store(mean[0], losses.value / counted.value),
        loops.store(wrong[0], beyond.value),
    ]
    return Kernel("mean_cross_entropy", (x, label, mean, wrong), ("rows", "n", "ignored"), tuple(body))
