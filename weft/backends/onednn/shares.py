"""Splits work into shares by shape alone: each share is a single-threaded primitive, and shares run in parallel.

See Note [One thread per primitive] in `primitives/base.py` for the reason. Images are split into groups of images or,
where there are few, bands of rows; matmuls into rows, columns or batches. These shares write disjoint results. The shares
of a weight gradient (and of a matmul that is large only in depth) write one partial result each, `partial` of them, which
the caller adds up in order.

A `Shares` has the interface of a primitive. Its arguments are those of the whole computation: a share finds its part
`Share.offsets[index]` bytes behind the start of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...compiler.program.layout import Layout
from ...compiler.program.steps import Binder, Entry
from ...ops.nn.window import Window
from . import library
from .capi import Alg, Arg, post_op_argument
from .descriptors import MemoryDesc, channels_last_strides
from .primitives.base import Argument, Binary, Execution, PostOp, Primitive
from .primitives.convolution import convolution_backward_data, convolution_backward_weights, convolution_forward
from .primitives.matmul import gemm_is_faster
from .primitives.matmul import matmul as matmul_primitive
from .primitives.pooling import pooling_backward, pooling_forward

TARGET_SHARES = 16
"""Shares of large work, about: enough for as many threads, and for two to finish together."""
MIN_WORK = 1 << 21
"""Minimum multiply-adds of a share: some 40 µs, about the time to wake a thread."""
MIN_MOVES = 1 << 16
"""Minimum elements that a share of a pooling reads."""
MIN_ROWS = 3
"""Minimum rows of a band of an image."""
MIN_SIDE = 64
"""Minimum rows or columns of a share of a matmul: packed panels should be reused often."""
MIN_DEPTH = 512
"""Minimum depth of a share of a deep matmul."""
PIXELS_PER_SUM, MIN_PIXELS_PER_SUM = 512, 64
"""Minimum pixels of a share of a weight gradient: for more than two shares, and for two. Writing and rereading a partial
gradient takes as long as some 25 pixels."""
MAX_SCRATCHPADS = 16
"""Maximum threads that run shares concurrently: each has a scratchpad."""

_Ints = tuple[int, ...]
_WEIGHTS = (Arg.WEIGHTS, Arg.DIFF_WEIGHTS)


@dataclass(frozen=True, slots=True)
class Share:
    """A primitive, and how many bytes behind the start of each argument its part begins."""

    primitive: Primitive
    offsets: Mapping[int, int]


class Shares:
    """See the module's docstring. `arguments` have the descriptors of the first share."""

    __slots__ = ("arguments", "exact", "implementation", "name", "partial", "shares")

    def __init__(self, shares: Sequence[Share], partial: int = 0) -> None:
        first = shares[0].primitive
        self.shares = tuple(shares)
        self.partial = partial
        self.exact = first.exact
        self.name, self.implementation = first.name, first.implementation
        arguments = [a for a in first.arguments if a.index != Arg.SCRATCHPAD]
        largest = max((s.primitive for s in shares), key=lambda p: p.scratchpad_nbytes)
        arguments += [a for a in largest.arguments if a.index == Arg.SCRATCHPAD]
        self.arguments: tuple[Argument, ...] = tuple(arguments)

    def takes(self, index: int) -> bool:
        return any(a.index == index for a in self.arguments)

    def desc(self, index: int) -> MemoryDesc:
        """The layout that the first share requires or produces for its part of this argument."""
        return self.shares[0].primitive.desc(index)

    @property
    def pad_nbytes(self) -> int:
        """Bytes of one thread's scratchpad, a multiple of a cache line."""
        return -(-max(s.primitive.scratchpad_nbytes for s in self.shares) // 64) * 64

    @property
    def pads(self) -> int:
        """How many threads may run shares at once."""
        return min(len(self.shares), MAX_SCRATCHPADS)

    @property
    def scratchpad_nbytes(self) -> int:
        return self.pad_nbytes * self.pads

    @property
    def workspace_nbytes(self) -> int:
        return sum(s.primitive.workspace_nbytes for s in self.shares)

    def entry(self, binder: Binder, arguments: Mapping[int, Layout]) -> Entry:
        """How a program executes the primitive on `arguments`, by argument index."""
        if self.exact:
            return binder.routine("onednn"), _exact_words(self, binder, arguments)
        return binder.routine("shares"), _bound_share_words(self, binder, arguments)

    def __repr__(self) -> str:
        return f"Shares({len(self.shares)} of {self.name}, {self.implementation})"


def whole(primitive: Primitive) -> Shares:
    """A primitive as the only share."""
    return Shares([Share(primitive, {})])


def _exact_words(work: Shares, binder: Binder, arguments: Mapping[int, Layout]) -> list[Any]:
    """The block that `weft_onednn` reads (see `weft.backends.llvm.routines`): one primitive on memory of one layout."""
    lib = library.require()
    primitive = work.shares[0].primitive
    execution = Execution(primitive)
    binder.keep(execution)
    pairs: list[Any] = []
    for argument, handle in zip(primitive.arguments, execution.memories, strict=True):
        layout = arguments.get(argument.index)
        if layout is None:
            continue
        start = binder.start(layout.storage)
        if start is not None:
            execution.bind(argument.index, start + layout.byte_offset)
        else:
            pairs += [handle, binder.slot(layout.storage, layout.byte_offset)]
    return [
        lib.execute_address, lib.set_data_handle_address, primitive.handle, lib.stream, execution.nargs,
        execution.address, len(pairs) // 2, *pairs,
    ]  # fmt: skip


def share_words(
    work: Shares,
    keep: Callable[[Any], None],
    place: Callable[[Execution, int, int], tuple[Any, int] | None],
    scratch: Any,
) -> list[Any]:
    """The block that `weft_shares` reads (see `weft.backends.llvm.routines`); a list of words in it stands for its address.

    Args:
        keep: is given objects that must outlive the block.
        place: `place(execution, index, offset)` is the slot of an argument and how many bytes behind it the share's part
            begins; or None, and it has bound the argument for good.
        scratch: the slot of the scratchpads.
    """
    lib = library.require()
    blocks = []
    for share in work.shares:
        execution = Execution(share.primitive)
        keep(execution)
        triples: list[Any] = []
        pad = 0
        for argument, memory in zip(share.primitive.arguments, execution.memories, strict=True):
            if argument.index == Arg.SCRATCHPAD:
                pad = memory
                continue
            found = place(execution, argument.index, share.offsets.get(argument.index, 0))
            if found is not None:
                triples += [memory, *found]
        words = [share.primitive.handle, execution.nargs, execution.address, pad, len(triples) // 3, *triples]
        blocks.append(words)
    return [
        lib.execute_address, lib.set_data_handle_address, lib.stream, scratch, work.pad_nbytes, work.pads,
        len(blocks), *blocks,
    ]  # fmt: skip


def _bound_share_words(work: Shares, binder: Binder, arguments: Mapping[int, Layout]) -> list[Any]:
    """`share_words` in the memory of a program."""

    def place(execution: Execution, index: int, offset: int) -> tuple[Any, int] | None:
        layout = arguments[index]
        start = binder.start(layout.storage)
        if start is None:
            return binder.slot(layout.storage, layout.byte_offset), offset
        execution.bind(index, start + layout.byte_offset + offset)
        return None

    pads = arguments.get(int(Arg.SCRATCHPAD))
    scratch = 0 if pads is None else binder.slot(pads.storage, pads.byte_offset)
    return share_words(work, binder.keep, place, scratch)


def cut(n: int, parts: int) -> list[int]:
    """Sizes of at most `parts` (or up to twice as many, if they are then equal) parts of n, the larger ones first."""
    parts = min(n, parts)
    equal = next((p for p in range(parts, min(2 * parts, n) + 1) if n % p == 0), parts) if parts > 1 else 1
    return [n // equal + (i < n % equal) for i in range(equal)]


def _power(n: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (n.bit_length() - 1)


def _image(shape: _Ints, dtype: np.dtype) -> MemoryDesc:
    return MemoryDesc.strided(shape, dtype, channels_last_strides(shape))


def _agree(shares: Sequence[Share]) -> bool:
    """Whether all shares use the same layout for the weights, of which there is one copy."""
    first = shares[0].primitive
    return all(
        not first.takes(index) or s.primitive is first or s.primitive.desc(index) == first.desc(index)
        for s in shares
        for index in _WEIGHTS
    )


def _by_image(n: int, parts: int, make: Callable[[int], Primitive], nbytes: Mapping[int, int]) -> Shares:
    """Shares of groups of images, made by `make(images)`; `nbytes` of one image by argument."""
    made: dict[int, Primitive] = {}
    for sizes in (cut(n, parts), [n]):
        shares, start = [], 0
        for size in sizes:
            if size not in made:
                made[size] = make(size)
            shares.append(Share(made[size], {index: start * step for index, step in nbytes.items()}))
            start += size
        if _agree(shares):
            break
    return Shares(shares)


# Convolution ---------------------------------------------------------------------------------------------------------


def _parts(work: int, least: int = MIN_WORK) -> int:
    return max(1, min(TARGET_SHARES, work // least))


def conv_forward(
    x_shape: _Ints, w: MemoryDesc, bias: MemoryDesc | None, y_shape: _Ints, dtype: np.dtype, window: Window,
    post_ops: Sequence[PostOp] = (), isa: str = "",
) -> Shares:  # fmt: skip
    """`convolution_forward` of channels-last images."""

    def make(images: int, x_rows: int, y_rows: int, window: Window) -> Primitive:
        x, y = (images, x_shape[1], x_rows, *x_shape[3:]), (images, y_shape[1], y_rows, *y_shape[3:])
        return convolution_forward(
            _image(x, dtype), w, bias, _image(y, dtype), window,
            [_post_op_of(op, y_shape, y, dtype) for op in post_ops], isa=isa,
        )  # fmt: skip

    n = x_shape[0]
    steps = {int(Arg.SRC): dtype.itemsize * prod(x_shape[1:]), int(Arg.DST): dtype.itemsize * prod(y_shape[1:])}
    for i, op in enumerate(post_ops):
        if isinstance(op, Binary):
            cut_too = op.operand.shape[0] == n > 1 or op.operand.shape == y_shape
            steps[post_op_argument(i)] = op.operand.nbytes // n if cut_too else 0
    work = prod(y_shape) * prod(w.shape) // y_shape[1]
    parts = _parts(work)
    count = _band_count(n, parts, y_shape[2])
    if count > 1 and all(_sliced(op, y_shape) for op in post_ops):
        bands = _bands_of_result(count, x_shape[2], y_shape[2], window)
        found = _by_band(bands, x_shape, y_shape, make, steps, Arg.SRC)
        if found is not None:
            return found
    return _by_image(n, parts, lambda size: make(size, x_shape[2], y_shape[2], window), steps)


def _band_count(n: int, parts: int, rows: int) -> int:
    """The number of bands per image, if n images alone make too few shares."""
    return _power(max(1, min(parts // n, rows // MIN_ROWS))) if n < TARGET_SHARES // 2 else 1


def _sliced(op: PostOp, y_shape: _Ints) -> bool:
    """Whether a band of rows reads a part of the operand, or all of it."""
    return not isinstance(op, Binary) or op.operand.shape == y_shape or prod(op.operand.shape) == op.operand.shape[1]


def _post_op_of(op: PostOp, whole: _Ints, part: _Ints, dtype: np.dtype) -> PostOp:
    """A post-op of all of a result for a part of it."""
    if not isinstance(op, Binary):
        return op
    sizes = zip(op.operand.shape, whole, part, strict=True)
    return Binary(op.alg, _image(tuple([size if has == full else has for has, full, size in sizes]), dtype))


@dataclass(frozen=True, slots=True)
class _Band:
    """Rows of the input and output images of a convolution, (first, count) each, and the window between them."""

    x: tuple[int, int]
    y: tuple[int, int]
    window: Window


def _bands_of_result(count: int, x_rows: int, y_rows: int, window: Window) -> list[_Band] | None:
    """Bands of the result, each with all rows of the image that it needs; None where one would see no row of the image."""
    stride, before, reach = window.stride[0], window.before[0], window.reach[0]
    found, start = [], 0
    for rows in cut(y_rows, count):
        first = start * stride - before
        end = first + (rows - 1) * stride + reach
        low, high = max(first, 0), min(end, x_rows)
        if low >= high:
            return None
        found.append(_Band((low, high - low), (start, rows), _padded(window, low - first, end - high)))
        start += rows
    return found


def _bands_of_image(count: int, x_rows: int, y_rows: int, window: Window) -> list[_Band] | None:
    """Bands of the image, each with all rows of the result that see it; None where a window does not describe one."""
    stride, before, last_tap = window.stride[0], window.before[0], window.reach[0] - 1
    found, start = [], 0
    for rows in cut(x_rows, count):
        first = max(0, -((last_tap - start - before) // stride))
        last = min(y_rows - 1, (start + rows - 1 + before) // stride)
        above = start + before - first * stride
        below = (last - first) * stride + last_tap + 1 - rows - above
        if last < first or above < 0 or below <= -stride:
            return None
        found.append(_Band((start, rows), (first, last - first + 1), _padded(window, above, max(below, 0))))
        start += rows
    return found


def _padded(window: Window, before: int, after: int) -> Window:
    return replace(window, padding=((before, after), *window.padding[1:]))


def _by_band(
    bands: Sequence[_Band] | None, x_shape: _Ints, y_shape: _Ints, make: Callable[[int, int, int, Window], Primitive],
    steps: Mapping[int, int], x_index: Arg,
) -> Shares | None:  # fmt: skip
    """Shares of bands of single images. `steps`: bytes of an image by argument; all but `x_index` are shaped like the result."""
    if bands is None:
        return None
    made: dict[tuple[int, int, Window], Primitive] = {}
    shares = []
    for image in range(x_shape[0]):
        for band in bands:
            key = band.x[1], band.y[1], band.window
            if key not in made:
                made[key] = make(1, *key)
            offsets = {}
            for index, step in steps.items():
                height, at = (x_shape[2], band.x[0]) if index == x_index else (y_shape[2], band.y[0])
                offsets[index] = image * step + at * (step // height)
            shares.append(Share(made[key], offsets))
    return Shares(shares) if _agree(shares) else None


def conv_backward_data(x_shape: _Ints, w: MemoryDesc, y_shape: _Ints, dtype: np.dtype, window: Window) -> Shares:
    """`convolution_backward_data` of channels-last images."""

    def make(images: int, x_rows: int, y_rows: int, window: Window) -> Primitive:
        x, y = (images, x_shape[1], x_rows, *x_shape[3:]), (images, y_shape[1], y_rows, *y_shape[3:])
        return convolution_backward_data(_image(x, dtype), w, _image(y, dtype), window)

    n = x_shape[0]
    steps = {
        int(Arg.DIFF_SRC): dtype.itemsize * prod(x_shape[1:]),
        int(Arg.DIFF_DST): dtype.itemsize * prod(y_shape[1:]),
    }
    parts = _parts(prod(y_shape) * prod(w.shape) // y_shape[1])
    count = _band_count(n, parts, x_shape[2])
    if count > 1:
        bands = _bands_of_image(count, x_shape[2], y_shape[2], window)
        found = _by_band(bands, x_shape, y_shape, make, steps, Arg.DIFF_SRC)
        if found is not None:
            return found
    return _by_image(n, parts, lambda size: make(size, x_shape[2], y_shape[2], window), steps)


def _sums(pixels: int) -> int:
    """The number of partial gradients that pays off."""
    return max(2, pixels // PIXELS_PER_SUM) if pixels >= 2 * MIN_PIXELS_PER_SUM else 1


def conv_backward_weights(
    x_shape: _Ints, w: MemoryDesc, bias: MemoryDesc | None, y_shape: _Ints, dtype: np.dtype, window: Window
) -> Shares:
    """`convolution_backward_weights` of channels-last images: `partial` gradients, one behind the other."""

    def make(images: int, x_rows: int, y_rows: int, window: Window) -> Primitive:
        x, y = (images, x_shape[1], x_rows, *x_shape[3:]), (images, y_shape[1], y_rows, *y_shape[3:])
        return convolution_backward_weights(_image(x, dtype), w, bias, _image(y, dtype), window)

    n, pixels = x_shape[0], prod(y_shape) // y_shape[1]
    parts = min(_parts(prod(y_shape) * prod(w.shape) // y_shape[1]), _sums(pixels))
    steps = {int(Arg.SRC): dtype.itemsize * prod(x_shape[1:]), int(Arg.DIFF_DST): dtype.itemsize * prod(y_shape[1:])}
    found = None
    count = min(_band_count(n, parts, y_shape[2]), parts // n)
    if count > 1:
        bands = _bands_of_result(_power(count), x_shape[2], y_shape[2], window)
        found = _by_band(bands, x_shape, y_shape, make, steps, Arg.SRC)
    if found is None:
        found = _by_image(n, _power(parts), lambda size: make(size, x_shape[2], y_shape[2], window), steps)
    results = {i: found.desc(i).nbytes for i in (Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS) if found.takes(i)}
    return Shares(
        [
            Share(s.primitive, {**s.offsets, **{int(k): i * nbytes for k, nbytes in results.items()}})
            for i, s in enumerate(found.shares)
        ],
        partial=len(found.shares),
    )


# Pooling -------------------------------------------------------------------------------------------------------------


def pool_forward(alg: Alg, x_shape: _Ints, y_shape: _Ints, dtype: np.dtype, window: Window) -> Shares:
    """`pooling_forward` of channels-last images."""
    if alg == Alg.POOLING_MAX:  # exact
        return whole(pooling_forward(alg, _image(x_shape, dtype), _image(y_shape, dtype), window))

    def make(images: int) -> Primitive:
        x, y = (images, *x_shape[1:]), (images, *y_shape[1:])
        return pooling_forward(alg, _image(x, dtype), _image(y, dtype), window)

    steps = {int(Arg.SRC): dtype.itemsize * prod(x_shape[1:]), int(Arg.DST): dtype.itemsize * prod(y_shape[1:])}
    return _by_image(x_shape[0], _parts(max(prod(x_shape), prod(y_shape) * window.positions), MIN_MOVES), make, steps)


def pool_backward(alg: Alg, x_shape: _Ints, y_shape: _Ints, dtype: np.dtype, window: Window) -> Shares:
    """`pooling_backward` of channels-last images."""

    def make(images: int) -> Primitive:
        x, y = (images, *x_shape[1:]), (images, *y_shape[1:])
        return pooling_backward(alg, _image(x, dtype), _image(y, dtype), window)

    n = x_shape[0]
    steps = {
        int(Arg.DIFF_SRC): dtype.itemsize * prod(x_shape[1:]),
        int(Arg.DIFF_DST): dtype.itemsize * prod(y_shape[1:]),
    }
    found = _by_image(n, _parts(max(prod(x_shape), prod(y_shape) * window.positions), MIN_MOVES), make, steps)
    if not found.takes(Arg.WORKSPACE):
        return found
    per_image = found.workspace_nbytes // n
    start, shares = 0, []
    for share in found.shares:
        shares.append(Share(share.primitive, {**share.offsets, int(Arg.WORKSPACE): start * per_image}))
        start += share.primitive.desc(Arg.DIFF_SRC).shape[0]
    return Shares(shares)


# Products ------------------------------------------------------------------------------------------------------------


def matmul(
    a: MemoryDesc, b: MemoryDesc, out: MemoryDesc, bias: MemoryDesc | None = None, post_ops: Sequence[PostOp] = (),
    deep: bool = False,
) -> Shares:  # fmt: skip
    """The primitive `matmul`, whose descriptors have equally many axes.

    `deep`: the depth may be split (split-K); the `partial` results are then stored consecutively.
    """
    gemm = gemm_is_faster(a, b)
    m, k, n = *a.shape[-2:], b.shape[-1]
    operands = {
        int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.DST): out, **({} if bias is None else {int(Arg.BIAS): bias}),
        **{post_op_argument(i): op.operand for i, op in enumerate(post_ops) if isinstance(op, Binary)},
    }  # fmt: skip

    def make(parts: Mapping[int, MemoryDesc]) -> Primitive:
        post = [
            Binary(op.alg, parts[post_op_argument(i)]) if isinstance(op, Binary) else op
            for i, op in enumerate(post_ops)
        ]
        return matmul_primitive(
            parts[Arg.SRC], parts[Arg.WEIGHTS], parts[Arg.DST], parts.get(int(Arg.BIAS)), post, gemm=gemm
        )

    parts = _parts(prod(out.shape) * k)
    batch = out.shape[0] if len(out.shape) > 2 else 1
    if parts == 1 or any(d.strides is None for d in operands.values()):
        return whole(make(operands))
    if batch >= min(parts, TARGET_SHARES // 2):
        return _blocks(operands, {0: cut(batch, parts)}, make)
    rows, columns = _grid(m, n, k, parts, transposed=(a.strides[-1] != 1, b.strides[-1] != 1))  # type: ignore[index]
    if rows * columns > 1:
        last = len(out.shape) - 1
        return _blocks(operands, {last - 1: _sizes(m, rows, 16), last: _sizes(n, columns, 64)}, make)
    if batch > 1:
        return _blocks(operands, {0: cut(batch, parts)}, make)
    if deep and bias is None and not post_ops and k >= 2 * MIN_DEPTH:
        return _deep(operands, k, min(parts, k // MIN_DEPTH), make)
    return whole(make(operands))


PACKING_COST, TRANSPOSED_PACKING_COST, READING_COST = 7, 28, 3
"""Cost of an operand per element and share, in multiply-adds: packing it by rows or transposed, or reading a left operand
unpacked."""
MAX_PACKING = 0.03
"""Maximum packing overhead relative to the matmul, for more than two shares."""


def _grid(m: int, n: int, k: int, parts: int, transposed: tuple[bool, bool]) -> tuple[int, int]:
    """The grid of blocks of a matmul, at most `parts` in total: a block packs its columns of the right operand, and reads (or
    packs) its rows of the left one."""
    left, right = (
        TRANSPOSED_PACKING_COST if transposed[0] else READING_COST,
        TRANSPOSED_PACKING_COST if transposed[1] else PACKING_COST,
    )
    count = _power(parts)
    while count > 1:
        grids = [(1 << i, count >> i) for i in range(count.bit_length())]
        costs = {
            (r, c): k * ((r - 1) * n * right + (c - 1) * m * left)
            for r, c in grids
            if m >= r * MIN_SIDE and n >= c * MIN_SIDE
        }
        best = min(costs, key=lambda grid: costs[grid], default=None)
        if best is not None and (costs[best] <= MAX_PACKING * m * n * k or count == 2):
            return best
        count //= 2
    return 1, 1


def _sizes(extent: int, parts: int, unit: int) -> list[int]:
    """`parts` sizes, whole units but for the last."""
    units = cut(-(-extent // unit), parts)
    return [*[u * unit for u in units[:-1]], extent - sum(units[:-1]) * unit]


def _part(desc: MemoryDesc, axis: int, start: int, size: int) -> tuple[MemoryDesc, int]:
    """A part of a strided array along an axis, and how many bytes behind its start it begins."""
    strides = desc.strides
    assert strides is not None
    shape = (*desc.shape[:axis], size, *desc.shape[axis + 1 :])
    return MemoryDesc.strided(shape, desc.dtype, strides), start * strides[axis] * desc.dtype.itemsize


def _blocks(
    operands: Mapping[int, MemoryDesc], sizes: Mapping[int, Sequence[int]],
    make: Callable[[Mapping[int, MemoryDesc]], Primitive],
) -> Shares:  # fmt: skip
    """Shares of blocks of the result: `sizes` along each of some axes. An operand is split along the same axes
    unless it is broadcast there."""
    last = len(operands[Arg.DST].shape) - 1
    depth = {(int(Arg.SRC), last), (int(Arg.WEIGHTS), last - 1)}
    made: dict[_Ints, Primitive] = {}
    shares = []
    spans = [[(sum(each[:i]), size) for i, size in enumerate(each)] for each in sizes.values()]
    for block in product(*spans):
        descs, offsets = dict(operands), dict.fromkeys(operands, 0)
        for axis, (start, size) in zip(sizes, block, strict=True):
            for index in operands:
                if (index, axis) not in depth and operands[index].shape[axis] != 1:
                    descs[index], offset = _part(descs[index], axis, start, size)
                    offsets[index] += offset
        key = tuple([size for _, size in block])
        if key not in made:
            made[key] = make(descs)
        shares.append(Share(made[key], offsets))
    return Shares(shares)


def _deep(
    operands: Mapping[int, MemoryDesc], depth: int, parts: int, make: Callable[[Mapping[int, MemoryDesc]], Primitive]
) -> Shares:
    """Shares of the depth (split-K), each with its own contiguous result."""
    a, b, out = (operands[i] for i in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
    dense = MemoryDesc.strided(out.shape, np.dtype(np.float32))
    made: dict[int, Primitive] = {}
    shares, start = [], 0
    for i, units in enumerate(cut(-(-depth // 64), parts)):
        size = min(units * 64, depth - start)
        left, at = _part(a, len(a.shape) - 1, start, size)
        right, below = _part(b, len(b.shape) - 2, start, size)
        if size not in made:
            made[size] = make({int(Arg.SRC): left, int(Arg.WEIGHTS): right, int(Arg.DST): dense})
        offsets = {int(Arg.SRC): at, int(Arg.WEIGHTS): below, int(Arg.DST): i * dense.nbytes}
        shares.append(Share(made[size], offsets))
        start += size
    return Shares(shares, partial=len(shares))
