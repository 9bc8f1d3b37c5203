"""Both gradients of a depthwise convolution in one pass over memory, fused with the ops on its input side.

    h = before(x); y = convolution(h, w); ...                        forward: see `depthwise.convolution`

    g                                                                the gradient of y
    dw = convolution_backward_weight(h, g)
    dh = convolution_backward_input(g, w)
    a, b, c = after(dh, x); a is stored, b and c are summed          the activation's gradient, and the sums of a batch norm

Two images are read and one is written, where separate ops read six and write two. A tile reads its input twice, first for
dw, then for the rest, while it is in L1: the accumulators of both would not fit into registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import Epilogue, Input, expression
from .. import ir as loops
from ..ir import Buffer, Kernel, Let, Local, Statement
from .depthwise import FLOAT, MEMORY, Grid, Shape, Tile, over_sums, plus, task_grain
from .epilogue import Operands, evaluate

Place = tuple[int, int]
Load = Callable[[int, int, Expr], Expr]
"""`load(i, j, c)`: an element of the result's gradient, see `Tile.source`."""
At = Callable[[Place, Expr], Expr]
"""`at(place, c)`: the offset of channel c of a position of the tile in the image."""


@functools.lru_cache(loops.MAX_KEPT)
def gradients(shape: Shape, before: Epilogue, after: Epilogue, streaming: bool = False) -> Kernel:
    """depthwise_gradients(g, x, w, *columns, y, parts, strips, tasks, offsets of g, x, w, y and columns).

    The inputs of `before` are x and the per-channel `columns`; those of `after` dh, x and `columns`. The first result of
    `after` is written to y, the others are summed up. parts[task] holds sums of the task, a row of channels each: those for
    the taps of the weight, then those of results.
    """
    made = _Gradients(shape, before, after, streaming)
    rows, channels, sums = made.rows, shape.channels, made.sums
    parts = Buffer.of("parts", FLOAT, (s.param("tasks"), rows, channels))
    zero = over_sums("zero", rows, channels, lambda row, c: loops.store(sums[row, c], s.const(0, FLOAT)))
    done = over_sums("done", rows, channels, lambda row, c: loops.store(parts[s.index("task"), row, c], sums[row, c]))
    body = [Local(sums), zero, *Grid(shape, True).over_tiles(made.tile), done]
    task = loops.loop("task", s.param("tasks"), body, parallel=True, grain=task_grain(shape))
    columns = made.columns
    params = ("strips", "tasks", "x_offset", "image_offset", "w_offset", "y_offset", *columns.params)
    buffers = (made.g, made.x, made.w, *columns.buffers, made.y, parts)
    return Kernel("depthwise_gradients", buffers, params, (task,))


class _Gradients:
    """The statements for a tile of the image."""

    def __init__(self, shape: Shape, before: Epilogue, after: Epilogue, streaming: bool) -> None:
        self.shape, self.before, self.after, self.streaming = shape, before, after, streaming
        self.g, self.x, self.w, self.y = (Buffer.of(name, FLOAT, MEMORY) for name in ("g", "x", "w", "y"))
        columns = max(before.num_inputs - 1, after.num_inputs - 2)
        self.columns = Operands([Input(k, per_channel=True) for k in range(columns)], "column")
        self.rows = shape.taps + len(after.results) - 1
        self.sums = Buffer.of("sums", FLOAT, (self.rows, shape.channels))

    def tile(self, tag: str, tile: Tile) -> list[Statement]:
        channels = self.shape.channels
        lets, load = tile.source(tag, self.g, self.shape.columns.result, channels)
        start = Let(f"at{tag}", tile.target(self.shape.rows.size, self.shape.columns.size, channels))

        def at(place: Place, c: Expr) -> Expr:
            return start.var + c + (place[0] * self.shape.columns.size + place[1]) * channels

        return [*lets, start, self._of_weight(f"w{tag}", tile, load, at), self._of_image(f"i{tag}", tile, load, at)]

    def _of_weight(self, tag: str, tile: Tile, load: Load, at: At) -> Statement:
        c = s.index(f"c{tag}")
        body: list[Statement] = []
        hidden: dict[Place, Expr] = {}
        totals: dict[int, Expr] = {}
        for (i, j), uses in tile.products():
            value = Let(f"v{tag}_{i}_{j}", load(i, j, c))
            body.append(value)
            for place, row, column in uses:
                name = f"{tag}_{place[0]}_{place[1]}"
                if place not in hidden:
                    image = self.x[at(place, c) + s.param("image_offset")]
                    made = Let(f"h{name}", evaluate(self.before, image, self.columns.at(c)))
                    body.append(made)
                    hidden[place] = made.var
                tap = row * self.shape.columns.taps + column
                total = Let(f"s{name}_{tap}", plus(value.var, hidden[place], totals.get(tap)))
                body.append(total)
                totals[tap] = total.var
        return self._over_channels(tag, body, totals)

    def _of_image(self, tag: str, tile: Tile, load: Load, at: At) -> Statement:
        c = s.index(f"c{tag}")
        body: list[Statement] = []
        down: dict[Place, Expr] = {}
        for (i, j), uses in tile.products():
            value = Let(f"v{tag}_{i}_{j}", load(i, j, c))
            body.append(value)
            for place, row, column in uses:
                tap = row * self.shape.columns.taps + column
                weight = self.w[s.param("w_offset") + c + tap * self.shape.channels]
                total = Let(f"d{tag}_{place[0]}_{place[1]}_{tap}", plus(value.var, weight, down.get(place)))
                body.append(total)
                down[place] = total.var
        totals: dict[int, Expr] = {}
        for place in tile.places:
            name = f"{tag}_{place[0]}_{place[1]}"
            image = self.x[at(place, c) + s.param("image_offset")]
            # A position may be in no window at all.
            inputs = [down.get(place, s.const(0, FLOAT)), image, *self.columns.at(c)]
            made = self.after.apply_all(expression, inputs)
            kept, *summed = [Let(f"r{name}_{k}", value) for k, value in enumerate(made)]
            body += [kept, loops.store(self.y[at(place, c) + s.param("y_offset")], kept.var, self.streaming), *summed]
            for row, term in enumerate(summed, self.shape.taps):
                total = Let(f"t{name}_{row}", totals[row] + term.var if row in totals else term.var)
                body.append(total)
                totals[row] = total.var
        return self._over_channels(tag, body, totals)

    def _over_channels(self, tag: str, body: list[Statement], totals: dict[int, Expr]) -> Statement:
        """The loop over channels that adds a tile's sums to those of its task."""
        c = s.index(f"c{tag}")
        add = [loops.store(self.sums[row, c], self.sums[row, c] + total) for row, total in sorted(totals.items())]
        return loops.loop(f"c{tag}", self.shape.channels, [*body, *add], "vector")
