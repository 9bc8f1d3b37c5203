"""One time step of an LSTM layer as one kernel: the recurrent matmul with the gates as its epilogue.

A task owns some hidden units for the whole batch. Its weights are packed once per sequence and used in every step:
forward, 16 units by their four gates are the 64 columns of a panel; backward, 64 units are. L1 holds the current
panel of weights and the sums of a block of rows, and the gates are computed on those before anything is stored. Which task
computes a unit does not change the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.core import scalar as s
from ....ops.core.scalar import FLOAT32, Expr
from ...program.layout import Layout
from ...target import Target
from .. import ir as loops
from ..ir import SQUARE, Buffer, Kernel, Let, Local, Statement
from .tiles import ROWS as TILE_ROWS
from .tiles import open_parts, parts, product, row_tiles

UNITS = SQUARE  # forward: hidden units of a task, times four gates
COLUMNS = 4 * UNITS
DEPTH = 128  # rows of a panel of weights at a time: 32 KiB
ROWS = 64  # of the batch at a time


class _Matrix:
    """A layout of shape (rows, columns) as a buffer."""

    def __init__(self, name: str, layout: Layout) -> None:
        self.layout = layout
        self.buffer = Buffer.of(name, layout.dtype, (1 << 40,))

    def at(self, row: Any, column: Any) -> Expr:
        r, c = self.layout.strides
        return self.buffer[loops.as_index(row) * r + loops.as_index(column) * c + self.layout.offset]


class _Rows:
    """Some rows of the batch: `blocks` times `most` from `first` on; the last block of `open` rows may have fewer."""

    def __init__(self, tag: str, first: int, blocks: int, most: int, total: int, is_open: bool) -> None:
        self.tag, self.blocks, self.most, self.is_open = tag, blocks, most, is_open
        self.base = s.index(tag) * most + first
        self.count: loops.Dim = most
        self.lets: list[Statement] = []
        if is_open:
            here = Let(f"{tag}here", s.minimum(loops.as_index(most), loops.as_index(total) - s.index(tag) * most))
            self.count, self.lets = here.var, [here]

    def tiles(self) -> Sequence[tuple[loops.Dim, loops.Dim, int]]:
        return open_parts(self.count, TILE_ROWS) if self.is_open else row_tiles(self.most)


def _blocks_of_rows(prefix: str, rows: int, is_open: bool) -> list[_Rows]:
    """The rows of a batch in blocks of `ROWS`. With `is_open`, kernels for different batches differ in numbers alone."""
    if is_open:
        return [_Rows(f"{prefix}r", 0, -(-rows // ROWS), ROWS, rows, True)]
    return [_Rows(f"{prefix}r{row0}", row0, blocks, count, rows, False) for row0, blocks, count in parts(rows, ROWS)]


def _kernel(name: str, operands: list[_Matrix], tasks: int, body: list[Statement]) -> Kernel:
    return Kernel(name, tuple([m.buffer for m in operands]), (), (loops.loop("task", tasks, body, parallel=True),))


def pack_gates(weight: Layout, packed: Layout) -> Kernel:
    """Weights (4·H, H) as panels: packed[u, k, gate, unit] = weight[gate·H + 16·u + unit, k]."""
    hidden = weight.shape[1]
    w, p = _Matrix("w", weight), Buffer.of("p", FLOAT32, (1 << 40,))
    task, block, g = (s.index(name) for name in ("task", "block", "g"))
    row, column = Let("row", g * hidden + task * UNITS), Let("column", block * UNITS)
    place = (task * hidden + column.var) * COLUMNS + g * UNITS + packed.offset
    turn = loops.transpose(p[place], COLUMNS, w.at(row.var, column.var), weight.strides[0])
    body: list[Statement] = [loops.loop("g", 4, [row, loops.loop("block", hidden // UNITS, [column, turn])])]
    kernel_loop = loops.loop("task", hidden // UNITS, body, parallel=True)
    return Kernel("pack_gates", (w.buffer, p), (), (kernel_loop,))


def _times_panel(
    tag: str, sums: Buffer, rows: _Rows, depth: int, left: _Matrix, panel: Buffer, start: Expr, columns: int,
    target: Target,
) -> list[Statement]:  # fmt: skip
    """sums += left[rows] @ panel, a slice of the depth at a time so that the panel is read from L1.

    The weights of a layer exceed L2: each tile prefetches its share of the next slice, which may be the next task's first.
    """
    made: list[Statement] = []
    for first, count, piece in parts(depth, DEPTH):
        at = Let(f"{tag}at{first}", s.index(f"{tag}d{first}") * piece + first)
        body: list[Statement] = [at]
        for row0, tiles, high in rows.tiles():
            name = f"{tag}m{first}_{high if rows.is_open else row0}"
            i = Let(f"{name}o", s.index(name) * high + row0)
            of_left = lambda r, k, i=i, at=at: left.at(rows.base + i.var + r, at.var + k)
            of_panel = lambda k, c, at=at: panel[start + (at.var + k) * columns + c]
            keep = lambda r, c, y, i=i: loops.store(sums[i.var + r, c], y)
            begin = lambda r, c, i=i: sums[i.var + r, c]
            share = -(-high * columns // rows.most)  # elements prefetched per step of the depth
            ahead = start + (at.var + piece) * columns + s.floor_divide(i.var, high) * (piece * share)
            each = lambda k, ahead=ahead, share=share: [loops.prefetch(panel[ahead + k * share])]
            inner = product(name, (high, columns, piece), of_left, of_panel, keep, begin, target=target, each=each)
            body.append(loops.loop(name, tiles, [i, *inner]))
        made.append(loops.loop(f"{tag}d{first}", count, body))
    return made


def lstm_step(
    gates: Layout,
    h: Layout | None,
    c: Layout,
    packed: Layout | None,
    hidden: Layout,
    cells: Layout,
    acts: Layout,
    target: Target,
    any_rows: bool = False,
) -> Kernel:
    """i, f, o = σ, g = tanh of gates + h Wᵀ; c' = f c + i g; h' = o tanh(c').

    Without `h` and `packed`, h is zero. With `any_rows`, kernels for different batches differ in numbers alone. Buffers in the
    order of the arguments that are given.
    """
    rows, size = hidden.shape
    named = {"a": gates, "h": h, "c": c, "w": packed, "hidden": hidden, "cells": cells, "acts": acts}
    m = {n: _Matrix(n, x) for n, x in named.items() if x is not None}
    first = Let("first", s.index("task") * UNITS)
    start = Let("start", s.index("task") * (size * COLUMNS) + (packed.offset if packed is not None else 0))
    body: list[Statement] = [first, start]
    for block in _blocks_of_rows("", rows, any_rows):
        tag, base, count = block.tag, block.base, block.count
        sums = Buffer.of(f"{tag}sums", FLOAT32, (block.most, COLUMNS))
        b, u = s.index(f"{tag}b"), s.index(f"{tag}u")
        z, g, v = s.index(f"{tag}z"), s.index(f"{tag}g"), s.index(f"{tag}v")
        load = loops.store(sums[z, g * UNITS + v], m["a"].at(base + z, g * size + first.var + v))
        i, f, o = (Let(f"{tag}{n}", s.sigmoid(sums[b, k * UNITS + u])) for n, k in (("i", 0), ("f", 1), ("o", 3)))
        cell = Let(f"{tag}c", s.tanh(sums[b, 2 * UNITS + u]))
        unit = first.var + u
        new = Let(f"{tag}n", s.fma(i.var, cell.var, f.var * m["c"].at(base + b, unit)))
        finish: list[Statement] = [
            i, f, cell, o, new,
            loops.store(m["cells"].at(base + b, unit), new.var),
            loops.store(m["hidden"].at(base + b, unit), o.var * s.tanh(new.var)),
            *[loops.store(m["acts"].at(base + b, unit + k * size), x.var) for k, x in enumerate((i, f, cell, o))],
        ]  # fmt: skip
        multiply: list[Statement] = []
        if h is not None:
            multiply = _times_panel(tag, sums, block, size, m["h"], m["w"].buffer, start.var, COLUMNS, target)
        body.append(loops.loop(tag, block.blocks, [
            *block.lets, Local(sums),
            loops.loop(f"{tag}z", count, [loops.loop(f"{tag}g", 4, [loops.loop(f"{tag}v", UNITS, [load], "vector")])]),
            *multiply,
            loops.loop(f"{tag}b", count, [loops.loop(f"{tag}u", UNITS, finish, "vector")]),
        ]))  # fmt: skip
    return _kernel("lstm_step", list(m.values()), size // UNITS, body)


def lstm_step_backward(
    later: Layout | None, packed: Layout | None, g_hidden: Layout | None, g_cells: Layout | None, acts: Layout,
    cells: Layout, before: Layout, carry: Layout, g_gates: Layout, target: Target,
    any_rows: bool = False,
) -> Kernel:  # fmt: skip
    """The gradient of this step's gates, from that of the next step's gates (`later`, None at the end).

    dh = g_hidden + later W; d = dh o (1 - tanh²c) + dc + g_cells; `carry` holds dc and gets d f. Buffers in the order of the
    arguments that are given.
    """
    rows, size = cells.shape
    named = {
        "later": later, "w": packed, "gh": g_hidden, "gc": g_cells, "acts": acts, "cells": cells, "before": before,
        "carry": carry, "out": g_gates,
    }  # fmt: skip
    m = {n: _Matrix(n, x) for n, x in named.items() if x is not None}
    made: list[Statement] = []
    for column0, panels, columns in parts(size, COLUMNS):
        name = f"t{column0}"
        first = Let(f"{name}first", s.index(name) * columns + column0)
        body: list[Statement] = [first]
        for block in _blocks_of_rows(name, rows, any_rows):
            tag, base, count = block.tag, block.base, block.count
            sums = Buffer.of(f"{tag}sums", FLOAT32, (block.most, columns))
            z, v, b, u = (s.index(tag + n) for n in "zvbu")
            zero = s.const(0.0, FLOAT32)
            start = m["gh"].at(base + z, first.var + v) if g_hidden is not None else zero
            inside: list[Statement] = [
                *block.lets,
                Local(sums),
                loops.loop(
                    f"{tag}z", count, [loops.loop(f"{tag}v", columns, [loops.store(sums[z, v], start)], "vector")]
                ),
            ]
            if later is not None:
                at = first.var * (4 * size) + (packed.offset if packed is not None else 0)
                inside += _times_panel(tag, sums, block, 4 * size, m["later"], m["w"].buffer, at, columns, target)
            unit = first.var + u
            row = base + b
            i, f, g, o = (m["acts"].at(row, unit + k * size) for k in range(4))
            dh = Let(f"{tag}dh", sums[b, u])
            tc = Let(f"{tag}tc", s.tanh(m["cells"].at(row, unit)))
            dc = m["carry"].at(row, unit)
            if g_cells is not None:
                dc = dc + m["gc"].at(row, unit)
            d = Let(f"{tag}d", (1.0 - tc.var * tc.var) * dh.var * o + dc)
            slopes = (
                d.var * g * i * (1.0 - i), d.var * m["before"].at(row, unit) * f * (1.0 - f), d.var * i * (1.0 - g * g),
                dh.var * tc.var * o * (1.0 - o),
            )  # fmt: skip
            inside.append(loops.loop(f"{tag}b", count, [loops.loop(f"{tag}u", columns, [
                dh, tc, d, loops.store(m["carry"].at(row, unit), d.var * f),
                *[loops.store(m["out"].at(row, unit + k * size), x) for k, x in enumerate(slopes)],
            ], "vector")]))  # fmt: skip
            body.append(loops.loop(tag, block.blocks, inside))
        made.append(loops.loop(name, panels, body, parallel=True))
    return Kernel("lstm_step_backward", tuple([x.buffer for x in m.values()]), (), tuple(made))


def times_panels(left: Layout, packed: Layout, out: Layout, target: Target, any_rows: bool = False) -> Kernel:
    """out = left @ weights, packed by `pack_panels` in panels of `COLUMNS`."""
    rows, size = out.shape
    depth = left.shape[1]
    m = {n: _Matrix(n, x) for n, x in {"left": left, "w": packed, "out": out}.items()}
    made: list[Statement] = []
    for column0, panels, columns in parts(size, COLUMNS):
        name = f"t{column0}"
        first = s.index(name) * columns + column0
        body: list[Statement] = []
        for block in _blocks_of_rows(name, rows, any_rows):
            tag, base, count = block.tag, block.base, block.count
            sums = Buffer.of(f"{tag}sums", FLOAT32, (block.most, columns))
            z, v, b, u = (s.index(tag + n) for n in "zvbu")
            clear = loops.store(sums[z, v], s.const(0.0, FLOAT32))
            store = loops.store(m["out"].at(base + b, first + u), sums[b, u])
            body.append(loops.loop(tag, block.blocks, [
                *block.lets, Local(sums),
                loops.loop(f"{tag}z", count, [loops.loop(f"{tag}v", columns, [clear], "vector")]),
                *_times_panel(tag, sums, block, depth, m["left"], m["w"].buffer, first * depth + packed.offset, columns,
                              target),
                loops.loop(f"{tag}b", count, [loops.loop(f"{tag}u", columns, [store], "vector")]),
            ]))  # fmt: skip
        made.append(loops.loop(name, panels, body, parallel=True))
    return Kernel("times_panels", tuple([x.buffer for x in m.values()]), (), tuple(made))
