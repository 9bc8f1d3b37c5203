"""Depthwise convolution on channels-last images: every channel has its own small filter.

Such a convolution does a few multiply-adds per element it reads, so it should run at memory bandwidth. The result is
computed in tiles of a few rows by one or two columns, vectorised over channels: a loaded element is used for every result
of the tile that needs it, and each row is read sequentially. (Wider tiles are up to twice as slow on images that are not
in cache: their loads jump back and forth within a row.)

The result, the input gradient and the weight gradient each read along an axis in a pattern that `forward` and `backward`
describe as a table: for each position, the taps and what they multiply. Tiles with the same table (shifted) form a *run*
and share code. Columns outside the image are left out of the table, so border columns are separate runs; a tile's
first and last rows may lie outside and are masked: all tiles but a remainder are one run.

Kernels are the same for any number of images: trials run on a few of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import IDENTITY, Epilogue
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Let, Local, Statement
from .epilogue import Operands, evaluate

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int32)
MEMORY = (1 << 40,)
MIN_TASKS = 32
"""Minimum number of tasks of a convolution that has as many tiles."""
MAX_TILE_ROWS = 8
"""Maximum rows of a tile, or of the image rows it starts at: more would be evicted from L1 before they are reused."""
MAX_TILE_PRODUCTS = 144
"""Maximum multiply-adds of a tile, per channel."""

Reads = tuple[tuple[int, int], ...]
"""(tap, position) pairs whose products a result is the sum of."""
Around = Callable[[str, Expr], tuple[Sequence[Statement], Sequence[Statement]]]
"""`around(tag, block)`: statements before and after a row of tiles, number `block` of all images."""


class Axis(NamedTuple):
    """A sliding window along one axis: the sizes of image and result, stride, padding and dilation."""

    size: int
    result: int
    taps: int
    stride: int
    before: int  # padding before the first element
    dilation: int = 1


class Shape(NamedTuple):
    """A convolution's sizes without the number of images: all that its kernels depend on."""

    channels: int
    rows: Axis
    columns: Axis

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps


# Tiles ---------------------------------------------------------------------------------------------------------------


def forward(axis: Axis, place: int) -> Reads:
    """The image elements that the result at `place` reads."""
    first = place * axis.stride - axis.before
    return tuple([(k, first + k * axis.dilation) for k in range(axis.taps)])


def backward(axis: Axis, place: int) -> Reads:
    """The elements of the result's gradient that the image gradient at `place` reads."""
    found = [(k, *divmod(place + axis.before - k * axis.dilation, axis.stride)) for k in range(axis.taps)]
    return tuple([(k, o) for k, o, rest in found if not rest])


class Run(NamedTuple):
    """`tiles` tiles of `size` positions each, the first from `start`, with the same access pattern.

    `reads`: for each position of a tile, relative to `base` in the first tile and `step` more in each further tile.
    `clipped`: the positions that are out of bounds (of `limit`) in some tile."""

    start: int
    tiles: int
    size: int
    base: int
    step: int
    reads: tuple[Reads, ...]
    limit: int

    @property
    def inputs(self) -> list[int]:
        """The positions a tile reads, in order."""
        return sorted({i for reads in self.reads for _, i in reads})

    @property
    def clipped(self) -> set[int]:
        last = self.base + self.step * (self.tiles - 1)
        return {i for i in self.inputs if self.base + i < 0 or last + i >= self.limit}


def runs(axis: Axis, transposed: bool, tile: int, clip: bool) -> list[Run]:
    """An axis of the result (of the image, if `transposed`) in tiles. Unless `clip`, nothing outside is read."""
    made: list[Run] = []
    size, limit = (axis.size, axis.result) if transposed else (axis.result, axis.size)
    for start in range(0, size, tile):
        places = range(start, min(start + tile, size))
        table = [(backward if transposed else forward)(axis, p) for p in places]
        if not clip:
            table = [tuple([(k, i) for k, i in reads if 0 <= i < limit]) for reads in table]
        base = min((i for reads in table for _, i in reads), default=0)
        shifted = tuple([tuple([(k, i - base) for k, i in reads]) for reads in table])
        last = made[-1] if made else None
        if last is not None and (last.size, last.reads) == (len(places), shifted):
            step = base - (last.base + last.step * (last.tiles - 1))
            if last.tiles == 1 or step == last.step:
                made[-1] = last._replace(tiles=last.tiles + 1, step=step)
                continue
        made.append(Run(start, 1, len(places), base, 0, shifted, limit))
    return made


class Grid:
    """The tiles of a result (of the image's gradient, if `transposed`), in tasks: a strip of an image each.

    Kernels take the number of `strips` of an image and of `tasks` as parameters."""

    def __init__(self, shape: Shape, transposed: bool) -> None:
        # The access pattern of an image gradient repeats every `stride` rows and columns.
        unit, wide = (shape.rows.stride, shape.columns.stride) if transposed else (1, 1)
        most = MAX_TILE_ROWS if transposed else MAX_TILE_ROWS // shape.rows.stride
        tall = max(1, min(most, MAX_TILE_PRODUCTS // shape.taps) // unit) * unit
        height = shape.rows.size if transposed else shape.rows.result
        tall = next((t for t in range(tall, tall // 2, -unit) if height % t == 0), tall)
        self.rows = runs(shape.rows, transposed, tall, True)
        self.columns = runs(shape.columns, transposed, wide, False)
        self.tiles = sum(run.tiles for run in self.rows)

    @property
    def pieces(self) -> int:
        """Number of runs that need their own code."""
        return len(self.rows) * len(self.columns)

    def split(self, images: int) -> list[int]:
        """(strips, tasks) for so many images, independent of the thread count: the sums of a gradient are per task."""
        strips = min(self.tiles, -(-MIN_TASKS // images))
        return [strips, strips * images]

    def over_tiles(self, make: Callable[[str, Tile], list[Statement]], around: Around | None = None) -> list[Statement]:
        """Statements for the tiles of task `task`, with `make(tag, tile)` for one of them; a tag makes names unique."""
        strips = s.param("strips")
        image = Let("image", s.floor_divide(s.index("task"), strips))
        strip = s.index("task") - image.var * strips
        begin = Let("begin", s.floor_divide(strip * self.tiles, strips))
        end = Let("end", s.floor_divide((strip + 1) * self.tiles, strips))
        body: list[Statement] = [image, begin, end]
        before = 0
        for r, rows in enumerate(self.rows):
            first = Let(f"first{r}", s.maximum(begin.var, before))
            count = s.maximum(s.minimum(end.var, before + rows.tiles) - first.var, 0)
            row = Let(f"row{r}", first.var - before + s.index(f"next{r}"))
            start, stop = around(f"{r}", image.var * self.tiles + before + row.var) if around else ((), ())
            across: list[Statement] = [row, *start]
            for c, columns in enumerate(self.columns):
                tile = Tile(rows, columns, image.var, row.var, s.index(f"column{r}_{c}"))
                across.append(loops.loop(f"column{r}_{c}", columns.tiles, make(f"{r}_{c}", tile)))
            body += [first, loops.loop(f"next{r}", count, [*across, *stop])]
            before += rows.tiles
        return body


class Tile(NamedTuple):
    """A tile of `image`: number `row` of its run of rows, `column` of its run of columns."""

    rows: Run
    columns: Run
    image: Expr
    row: Expr
    column: Expr

    def source(
        self,
        tag: str,
        x: Buffer,
        width: int,
        channels: int,
        made: Callable[[Expr, Expr], Expr] = lambda value, _: value,
    ) -> tuple[list[Let], Callable[[int, int, Expr], Expr]]:
        """(lets, load): `load(i, j, c)` is channel c at position (i, j) of the tile's input in the images `x`, mapped by
        `made(value, c)`; zero outside the image."""
        top = self.rows.base + self.row * self.rows.step
        left = (self.columns.base + self.column * self.columns.step) * channels + s.param("x_offset")
        first = self.image * self.rows.limit
        start = Let(f"x{tag}", (first + top) * (width * channels) + left)
        lets, starts, masks = [start], {}, {}
        for i in sorted(self.rows.clipped):
            inside = s.minimum(s.maximum(top + i, 0), self.rows.limit - 1)
            at = Let(f"x{tag}_{i}", (first + inside) * (width * channels) + left)
            mask = Let(f"mask{tag}_{i}", s.where(s.eq(inside, top + i), s.const(-1, INT), s.const(0, INT)))
            lets += [at, mask]
            starts[i], masks[i] = at.var, mask.var

        def load(i: int, j: int, c: Expr) -> Expr:
            if i not in starts:
                return made(x[start.var + c + (i * width + j) * channels], c)
            value = made(x[starts[i] + c + j * channels], c)
            return s.bitcast(s.bitwise_and(s.bitcast(value, INT), masks[i]), FLOAT)

        return lets, load

    def target(self, height: int, width: int, channels: int) -> Expr:
        """The offset of the tile in the result."""
        y = self.image * height + self.rows.start + self.row * self.rows.size
        return (y * width + self.columns.start + self.column * self.columns.size) * channels

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(r, c) for r in range(self.rows.size) for c in range(self.columns.size)]

    def products(self) -> Iterator[tuple[tuple[int, int], list[tuple[tuple[int, int], int, int]]]]:
        """For each element the tile reads: its (row, column), and its uses as (position in the tile, tap row, tap column). In
        this order few accumulators are live at a time."""
        for i in self.rows.inputs:
            for j in self.columns.inputs:
                uses = [
                    ((r, c), a, b)
                    for r, down in enumerate(self.rows.reads)
                    for a, at in down
                    if at == i
                    for c, across in enumerate(self.columns.reads)
                    for b, place in across
                    if place == j
                ]
                yield (i, j), uses


# Kernels -------------------------------------------------------------------------------------------------------------


class Moments:
    """Mean and sum of squared deviations per channel, of a *block*: a row of tiles.

    A tile's moments are computed in registers and merged with those of the previous tiles (Chan, Golub and LeVeque): no
    cancellation for any mean, and no second read. The results are parts[block, 0 and 1, channel].
    """

    def __init__(self, shape: Shape) -> None:
        self.channels = shape.channels
        self.sums = Buffer.of("sums", FLOAT, (2, shape.channels))
        self.parts = Buffer.of("parts", FLOAT, (1 << 40, 2, shape.channels))
        self.locals = [Local(self.sums)]

    def around(self, tag: str, block: Expr) -> tuple[list[Statement], list[Statement]]:
        def over(name: str, make: Callable[[int, Expr], Statement]) -> Statement:
            c = s.index(f"{name}{tag}")
            return loops.loop(f"{name}{tag}", self.channels, [make(k, c) for k in (0, 1)], "vector")

        zero = over("zero", lambda k, c: loops.store(self.sums[k, c], s.const(0, FLOAT)))
        done = over("done", lambda k, c: loops.store(self.parts[block, k, c], self.sums[k, c]))
        return [zero], [done]

    def add(self, tag: str, tile: Tile, values: list[Expr], c: Expr) -> tuple[list[Let], list[Statement]]:
        """Statements for a tile: once, and for a channel of it."""
        count = len(values)
        earlier = s.cast((tile.columns.start + tile.column * tile.columns.size) * tile.rows.size, FLOAT)
        share = Let(f"share{tag}", count / (earlier + float(count)))
        weight = Let(f"weight{tag}", earlier * share.var)
        mean = Let(f"mean{tag}", _sum(values) * (1.0 / count))
        apart = [Let(f"apart{tag}_{i}", v - mean.var) for i, v in enumerate(values)]
        squares = Let(f"squares{tag}", _sum_of_squares([a.var for a in apart]))
        step = Let(f"step{tag}", mean.var - self.sums[0, c])
        return [share, weight], [
            mean, *apart, squares, step,
            loops.store(self.sums[0, c], s.fma(step.var, share.var, self.sums[0, c])),
            loops.store(self.sums[1, c], self.sums[1, c] + s.fma(step.var * step.var, weight.var, squares.var)),
        ]  # fmt: skip


def _sum(values: list[Expr]) -> Expr:
    """Pairwise: a short dependency chain."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) // 2 * 2 :]
    return values[0]


def _sum_of_squares(values: list[Expr]) -> Expr:
    halves = []
    for half in (values[::2], values[1::2]):
        total: Expr | None = None
        for v in half:
            total = plus(v, v, total)
        halves += [total] if total is not None else []
    return _sum(halves)


@functools.lru_cache(loops.MAX_KEPT)
def convolution(
    shape: Shape, transposed: bool, epilogue: Epilogue = IDENTITY, streaming: bool = False, before: Epilogue = IDENTITY,
    moments: bool = False,
) -> Kernel:  # fmt: skip
    """depthwise(x, w, *operands, *columns, y, moments, strips, tasks, offsets of x, w, y, operands and columns): y = `before`
    of x convolved with w, then `epilogue`.

    The inputs of `before` are x and the per-channel `columns`. With `moments`, those of each row of tiles are stored, see
    `Moments`.

    `w` is (tap rows, tap columns, channels). If `transposed`, x is the gradient of the result and y that of the image.
    """
    x, w, y = (Buffer.of(name, FLOAT, MEMORY) for name in ("x", "w", "y"))
    operands, columns = Operands(epilogue.operands), Operands(before.operands, "column")
    channels = shape.channels
    height, width = (shape.rows.size, shape.columns.size) if transposed else (shape.rows.result, shape.columns.result)
    x_width = shape.columns.result if transposed else shape.columns.size
    grid = Grid(shape, transposed)
    kept = Moments(shape) if moments else None

    def one(tag: str, tile: Tile) -> list[Statement]:
        c = s.index(f"c{tag}")
        lets, load = tile.source(tag, x, x_width, channels, lambda value, c: evaluate(before, value, columns.at(c)))
        y_at = Let(f"y{tag}", tile.target(height, width, channels))
        sums: dict[tuple[int, int], Expr] = {}
        body: list[Statement] = []
        for (i, j), uses in tile.products():
            loaded = Let(f"v{tag}_{i}_{j}", load(i, j, c))
            body.append(loaded)
            for place, row, column in uses:
                weight = w[s.param("w_offset") + c + (row * shape.columns.taps + column) * channels]
                total = Let(f"s{tag}_{place[0]}_{place[1]}_{row}_{column}",
                            plus(loaded.var, weight, sums.get(place)))  # fmt: skip
                body.append(total)
                sums[place] = total.var
        made: list[Expr] = []
        for row, column in tile.places:
            here = y_at.var + c + (row * width + column) * channels
            # A window may lie entirely in the padding.
            summed = sums.get((row, column), s.const(0, FLOAT))
            value = Let(f"y{tag}_{row}_{column}", evaluate(epilogue, summed, operands.at(c, here)))
            body += [value, loops.store(y[here + s.param("y_offset")], value.var, streaming)]
            made.append(value.var)
        if kept is None:
            return [*lets, y_at, loops.loop(f"c{tag}", channels, body, "vector")]
        shares, statements = kept.add(tag, tile, made, c)
        return [*lets, y_at, *shares, loops.loop(f"c{tag}", channels, [*body, *statements], "vector")]

    tiles = grid.over_tiles(one, None if kept is None else kept.around)
    body = [*([] if kept is None else kept.locals), *tiles]
    task = loops.loop("task", s.param("tasks"), body, parallel=True, grain=task_grain(shape))
    name = "_".join(["depthwise_transposed" if transposed else "depthwise", *epilogue.names])
    params = ("strips", "tasks", "x_offset", "w_offset", "y_offset", *operands.params, *columns.params)
    buffers = (x, w, *operands.buffers, *columns.buffers, y, *([] if kept is None else [kept.parts]))
    return Kernel(name, buffers, params, (task,))


def plus(a: Expr, b: Expr, total: Expr | None) -> Expr:
    """a * b + the accumulator, if there is one."""
    return a * b if total is None else s.fma(a, b, total)


def task_grain(shape: Shape) -> Expr:
    """Minimum number of tasks per thread."""
    products = shape.taps * shape.rows.result * shape.columns.result * shape.channels
    return s.floor_divide(s.param("strips") * (1 << 17), products) + 1


def over_sums(name: str, rows: int, channels: int, make: Callable[[Expr, Expr], Statement]) -> Statement:
    """`make(row, channel)` for every sum."""
    row, channel = s.index(f"{name}_row"), s.index(f"{name}_channel")
    inner = loops.loop(f"{name}_channel", channels, [make(row, channel)], "vector")
    return loops.loop(f"{name}_row", rows, [inner])


@functools.lru_cache(loops.MAX_KEPT)
def weight_gradient(shape: Shape) -> Kernel:
    """depthwise_weight(x, g, parts, strips, tasks, x_offset, g_offset): parts[task, tap, channel] of the gradient.

    Each task has its own sums, which fit in L1; a tile is reduced in registers before it is added to them.
    """
    x, g = Buffer.of("x", FLOAT, MEMORY), Buffer.of("g", FLOAT, MEMORY)
    channels, taps = shape.channels, shape.taps
    grid = Grid(shape, False)
    sums = Buffer.of("sums", FLOAT, (taps, channels))
    parts = Buffer.of("parts", FLOAT, (s.param("tasks"), taps, channels))
    height, width = shape.rows.result, shape.columns.result

    def one(tag: str, tile: Tile) -> list[Statement]:
        c = s.index(f"c{tag}")
        lets, load = tile.source(tag, x, shape.columns.size, channels)
        g_at = Let(f"g{tag}", tile.target(height, width, channels) + s.param("g_offset"))
        gradients = {
            (row, column): Let(f"g{tag}_{row}_{column}", g[g_at.var + c + (row * width + column) * channels])
            for row, column in tile.places
        }
        body: list[Statement] = [*gradients.values()]
        totals: dict[int, Expr] = {}
        for (i, j), uses in tile.products():
            value = Let(f"v{tag}_{i}_{j}", load(i, j, c))
            body.append(value)
            for place, row, column in uses:
                tap = row * shape.columns.taps + column
                total = Let(f"s{tag}_{place[0]}_{place[1]}_{tap}",
                            plus(value.var, gradients[place].var, totals.get(tap)))  # fmt: skip
                body.append(total)
                totals[tap] = total.var
        body += [loops.store(sums[tap, c], sums[tap, c] + total) for tap, total in totals.items()]
        return [*lets, g_at, loops.loop(f"c{tag}", channels, body, "vector")]

    zero = over_sums("zero", taps, channels, lambda tap, c: loops.store(sums[tap, c], s.const(0, FLOAT)))
    done = over_sums("done", taps, channels, lambda tap, c: loops.store(parts[s.index("task"), tap, c], sums[tap, c]))
    body = [Local(sums), zero, *grid.over_tiles(one), done]
    task = loops.loop("task", s.param("tasks"), body, parallel=True, grain=task_grain(shape))
    return Kernel("depthwise_weight", (x, g, parts), ("strips", "tasks", "x_offset", "g_offset"), (task,))


@functools.lru_cache(loops.MAX_KEPT)
def add_parts(rows: int, columns: int, channels: int, sums: int = 0) -> Kernel:
    """depthwise_weight_sum(parts, w, *totals, tasks, offset, strides of channel, row, column, offsets of totals).

    w[channel, row, column] is the sum of parts[:, tap, channel]; parts of other sums, stored behind those of the taps, go to
    `totals`."""
    tasks = s.param("tasks")
    parts = Buffer.of("parts", FLOAT, (tasks, rows * columns + sums, channels))
    w, *totals = (Buffer.of(name, FLOAT, MEMORY) for name in ("w", *[f"total{k}" for k in range(sums)]))

    def over(name: str, row: Expr | int, target: Callable[[Expr], Expr]) -> Statement:
        channel = s.index(f"channel{name}")
        total = Accumulator(f"sum{name}", "sum", FLOAT)
        add = loops.loop(f"task{name}", tasks, [loops.update(total, parts[s.index(f"task{name}"), row, channel])])
        done = loops.store(target(channel), total.value)
        return loops.loop(f"channel{name}", channels, [total, add, done], "vector")

    def at(total: Buffer, k: int, channel: Expr) -> Expr:
        return total[channel + s.param(f"offset{k}")]

    row, column = s.index("row"), s.index("column")
    tap = s.param("offset") + row * s.param("row_stride") + column * s.param("column_stride")
    weight = over("", row * columns + column, lambda c: w[tap + c * s.param("channel_stride")])
    across = loops.loop("column", columns, [weight])
    body = [
        loops.loop("row", rows, [across], parallel=True, grain=loops.grain_for(tasks * columns * channels)),
        *[over(f"{k}", rows * columns + k, functools.partial(at, total, k)) for k, total in enumerate(totals)],
    ]
    params = ("tasks", "offset", "channel_stride", "row_stride", "column_stride", *[f"offset{k}" for k in range(sums)])
    return Kernel("depthwise_weight_sum", (parts, w, *totals), params, tuple(body))


@functools.lru_cache(loops.MAX_KEPT)
def join_moments(shape: Shape) -> Kernel:
    """depthwise_moments(parts, mean, var, images, offsets of mean and var): merges the moments of the blocks."""
    grid = Grid(shape, False)
    parts = Buffer.of("parts", FLOAT, (1 << 40, 2, shape.channels))
    mean, var = (Buffer.of(name, FLOAT, MEMORY) for name in ("mean", "var"))
    c, images = s.index("c"), s.param("images")
    width = shape.columns.result

    def over(name: str, make: Callable[[Expr, int], Expr]) -> tuple[Accumulator, list[Statement]]:
        """The sum of `make(block, count)` over all blocks."""
        total = Accumulator(name, "sum", s.FLOAT64)
        inner: list[Statement] = []
        before = 0
        for r, run in enumerate(grid.rows):
            block = s.index(f"{name}_image") * grid.tiles + before + s.index(f"{name}{r}")
            value = s.cast(make(block, run.size * width), s.FLOAT64)
            inner.append(loops.loop(f"{name}{r}", run.tiles, [loops.update(total, value)]))
            before += run.tiles
        return total, [total, loops.loop(f"{name}_image", images, inner)]

    share = Let("share", s.const(1.0, s.FLOAT64) / s.cast(images * (shape.rows.result * width), s.FLOAT64))
    total, first = over("total", lambda block, count: parts[block, 0, c] * float(count))
    middle = Let("middle", s.cast(total.value * share.var, FLOAT))
    squares, second = over(
        "squares", lambda block, count: parts[block, 1, c] + s.square(parts[block, 0, c] - middle.var) * float(count)
    )
    body = [
        *first, middle, *second,
        loops.store(mean[c + s.param("mean_offset")], middle.var),
        loops.store(var[c + s.param("var_offset")], s.cast(squares.value * share.var, FLOAT)),
    ]  # fmt: skip
    sweep = loops.loop("c", shape.channels, body, "vector")
    return Kernel("depthwise_moments", (parts, mean, var), ("images", "mean_offset", "var_offset"), (share, sweep))
