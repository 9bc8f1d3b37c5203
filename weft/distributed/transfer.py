"""How values travel between ranks: through staging buffers, by direct reads of other processes, or not at all.

Small results take one round: every rank combines all values itself, and the result is logged. Values of up to a chunk
go through a staging buffer, larger ones by direct reads (`direct`) if the kernel allows them, else chunk by chunk.
Tensors in shared memory (`shared_tensors`) are combined where they are. In each case values are combined in the order
of the ranks, so all ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import dtypes
from ..multiprocessing import ALIGNMENT
from . import direct
from .call_log import LARGE, RESULT_BYTES, SHARED
from .communicator import Call, Communicator
from .direct import Direct
from .exchange import CHUNK_BYTES
from .in_place import combine as native_in_place
from .shared_tensors import SharedArray

PIECE_BYTES = 1 << 17
"""of tensors in shared memory, which are combined piece by piece: a piece stays in the cache until it is written back"""


def combine(parts: Sequence[np.ndarray], result: np.ndarray, op: str, ufunc: np.ufunc) -> None:
    """`result` = parts[0] ∘ parts[1] ∘ … from left to right. It may be the memory of the first part, not of another one.

    16-bit floats are accumulated in float32, as by every reduction.
    """
    if result.dtype in (dtypes.float16, dtypes.bfloat16):
        total = parts[0].astype(np.float32)
        combine([total, *parts[1:]], total, op, ufunc)
        np.copyto(result, total, casting="same_kind")
        return
    ufunc(parts[0], parts[1], out=result)
    for part in parts[2:]:
        ufunc(result, part, out=result)
    if op == "mean":
        np.divide(result, result.dtype.type(len(parts)), out=result)


def share(count: int, ranks: int, rank: int, itemsize: int) -> tuple[int, int]:
    """The elements that a rank combines, from, to: cut at the boundaries of cache lines."""
    unit = max(ALIGNMENT // itemsize, 1)
    units = -(-count // unit)
    return min(units * rank // ranks * unit, count), min(units * (rank + 1) // ranks * unit, count)


def _reads_directly(group: Communicator, call: Call, nbytes: int) -> bool:
    """Whether so many bytes are read from the ranks' processes; the call is not logged."""
    group.close_log(LARGE)
    return nbytes > CHUNK_BYTES and direct.possible(group, call)


def _logged(
    group: Communicator, call: Call, values: np.ndarray | None, result: np.ndarray, collect: Callable[[], None]
) -> None:  # fmt: skip
    """A call whose values are small: one round; `collect` computes the result from all ranks' values."""
    logged = group.replay(call)
    if logged is not None:
        np.copyto(result, logged.view(result.dtype).reshape(result.shape))
        return
    group.put(call, values)
    collect()
    if group.logs:
        group.keep(call, result)


def _in_chunks(
    group: Communicator, call: Call, values: np.ndarray, collect: Callable[[int, int], None], gives: bool = True
) -> None:  # fmt: skip
    """Pass an array to the others chunk by chunk; `collect(start, stop)` computes this part of the result from theirs."""
    size = CHUNK_BYTES // values.itemsize
    for start in range(0, values.size, size):
        stop = min(start + size, values.size)
        group.put(call, values[start:stop] if gives else None)
        collect(start, stop)


def _is_small(values: np.ndarray, result: np.ndarray) -> bool:
    """Whether a call takes one round, in which every rank combines all values itself, and is logged."""
    return max(values.nbytes, result.nbytes) <= RESULT_BYTES


# The collectives, on flat arrays ----------------------------------------------------------------------------------------


def reduce(
    group: Communicator, call: Call, values: np.ndarray, result: np.ndarray, op: str, ufunc: np.ufunc
) -> None:  # fmt: skip
    """All-reduce. `result` may be the memory of `values`."""
    ranks, dtype = range(group.world), values.dtype

    def collect(start: int, stop: int) -> None:
        count = stop - start
        if group.world == 2 or count * dtype.itemsize <= RESULT_BYTES:
            combine([group.chunk(q, dtype, count) for q in ranks], result[start:stop], op, ufunc)
            return
        # Each rank combines its share, and a second round hands the shares out.
        shares = [share(count, group.world, q, dtype.itemsize) for q in ranks]
        low, high = shares[group.rank]
        parts = [group.chunk(q, dtype, count)[low:high] for q in ranks]
        combine(parts, group.chunk(group.rank, dtype, high - low, 1), op, ufunc)
        group.arrive(call, (high - low) * dtype.itemsize)
        for q in ranks:
            low, high = shares[q]
            np.copyto(result[start + low : start + high], group.chunk(q, dtype, high - low))

    if _is_small(values, result):
        _logged(group, call, values, result, lambda: collect(0, values.size))
    elif _reads_directly(group, call, values.nbytes):
        window = Direct(group, call, values, result)
        shares = [share(values.size, group.world, q, dtype.itemsize) for q in ranks]
        low, high = shares[group.rank]
        window.combine(low, high, result[low:high], lambda parts, into: combine(parts, into, op, ufunc))
        window.meet()
        for q in ranks:
            if q != group.rank:
                window.read_result(q, shares[q][0], result[slice(*shares[q])])
        window.meet()
    else:
        _in_chunks(group, call, values, collect)


def gather(group: Communicator, call: Call, values: np.ndarray, rows: np.ndarray) -> None:
    """All-gather; row q of the result gets the values of rank q."""

    def collect(start: int, stop: int) -> None:
        for q in range(group.world):
            np.copyto(rows[q, start:stop], group.chunk(q, values.dtype, stop - start))

    if _is_small(values, rows):
        _logged(group, call, values, rows, lambda: collect(0, values.size))
    elif _reads_directly(group, call, values.nbytes):
        window = Direct(group, call, values, rows)
        for q in range(group.world):
            if q != group.rank:
                window.read_values(q, 0, rows[q])
        np.copyto(rows[group.rank], values)
        window.meet()
    else:
        _in_chunks(group, call, values, collect)


def broadcast(group: Communicator, call: Call, values: np.ndarray, result: np.ndarray, source: int) -> None:
    """Broadcast. `result` may be the memory of `values`."""

    def collect(start: int, stop: int) -> None:
        np.copyto(result[start:stop], group.chunk(source, values.dtype, stop - start))

    gives = group.rank == source
    if _is_small(values, result):
        _logged(group, call, values if gives else None, result, lambda: collect(0, values.size))
    elif _reads_directly(group, call, values.nbytes):
        window = Direct(group, call, values, result)
        if gives:
            np.copyto(result, values)
        else:
            window.read_values(source, 0, result)
        window.meet()
    else:
        _in_chunks(group, call, values, collect, gives)


def reduce_scatter(
    group: Communicator, call: Call, rows: np.ndarray, result: np.ndarray, op: str, ufunc: np.ufunc
) -> None:  # fmt: skip
    """Reduce-scatter: row r of all ranks' arrays is combined by rank r."""
    world, dtype = group.world, rows.dtype

    def parts(row: int, count: int) -> list[np.ndarray]:
        return [group.chunk(q, dtype, world * count).reshape(world, count)[row] for q in range(world)]

    if rows.nbytes <= RESULT_BYTES:
        whole = np.empty_like(rows)  # logged for all ranks

        def collect() -> None:
            for row in range(world) if group.logs else (group.rank,):
                combine(parts(row, result.size), whole[row], op, ufunc)

        _logged(group, call, rows.reshape(-1), whole, collect)
        np.copyto(result, whole[group.rank])
    elif _reads_directly(group, call, rows.nbytes):
        window = Direct(group, call, rows.reshape(-1), result)
        start = group.rank * result.size
        fold = lambda parts, into: combine(parts, into, op, ufunc)
        window.combine(start, start + result.size, result, fold)
        window.meet()
    else:
        size = CHUNK_BYTES // dtype.itemsize // world
        for start in range(0, result.size, size):
            stop = min(start + size, result.size)
            count = stop - start
            np.copyto(group.chunk(group.rank, dtype, world * count, 1).reshape(world, count), rows[:, start:stop])
            group.arrive(call, world * count * dtype.itemsize)
            combine(parts(group.rank, count), result[start:stop], op, ufunc)


def reduce_shared(
    group: Communicator, call: Call, shared: SharedArray, result: np.ndarray, op: str, ufunc: np.ufunc, in_place: bool
) -> None:  # fmt: skip
    """Combine tensors where they are. In place, each rank combines its share and writes it to all ranks' tensors."""
    group.close_log(SHARED)
    group.arrive(call, 0)  # all tensors have their values
    start, end = 0, result.size
    if in_place:
        start, end = share(result.size, group.world, group.rank, result.itemsize)
        start = native_in_place(result.dtype, op, shared.addresses, start, end)
    size = PIECE_BYTES // result.itemsize
    while start < end:
        stop = min(start + size, end)
        pieces = [part[start:stop] for part in shared.parts]
        if in_place:
            combine(pieces, pieces[0], op, ufunc)
            for piece in pieces[1:]:
                np.copyto(piece, pieces[0])
        else:
            combine(pieces, result[start:stop], op, ufunc)
        start = stop
    group.arrive(call, 0)  # all have read, and written, what they need
