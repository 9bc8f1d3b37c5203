"""The caching allocator of large CPU arrays: statistics, and functions that release cached memory.

The first write to a fresh page costs a page fault and zeroing, several times the cost of the write. So an array of at
least `THRESHOLD` bytes is placed on a *block* from a pool; when its last view dies the block returns to the pool, and the
next array of about that size reuses it with its pages resident. Smaller arrays are allocated by NumPy.

**Blocks.** Private anonymous mappings, page-aligned, in eight size classes per doubling; the 2 MiB-aligned middle of a
block of 2 MiB and more requests huge pages.

**Ownership.** A pooled array `a` is an ordinary `np.ndarray` whose `a.base` is the block's owner; every view of
it, however deep, has `view.base is a` (NumPy collapses chains of views), so a view keeps the block. `root(x)`
returns the base array of all views of a memory, pooled or not. The owner returns the block in its `__del__`:
immediately, without the garbage collector, from any thread.

**Bounds.** Before mapping, the request is checked against the free memory of the system and the control group, minus
blocks mapped but not yet touched; cached blocks are released first, then `MemoryError` reports the figures. The cache
shrinks when less than an eighth of the machine's memory is free, checked once a second while arrays are allocated and
freed. `trim()` releases all cached blocks.

**Threads and processes.** All functions are thread-safe. A forked child has its own working copy of the pool.
"""

from __future__ import annotations

import ctypes
import mmap
import operator
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _host, forks

# What users see as `weft.memory`; the rest of the package calls the functions that make arrays.
__all__ = ["MemoryStats", "reset_peak", "stats", "trim"]

THRESHOLD = 32 * 1024  # bytes
_HUGE_PAGE_BYTES = 2 * 1024 * 1024
_EAGER_ACCOUNTING_BYTES = 1024 * 1024  # bytes; larger blocks are accounted for when they are freed, smaller ones lazily
_READING_SECONDS = 1.0  # seconds for which a reading of the system's free memory is valid
_RESERVED_BYTES = 64 * 1024 * 1024  # bytes; a single request leaves this much to the rest of the system
_FLOAT32 = np.dtype(np.float32)

Shape = SupportsIndex | Sequence[SupportsIndex]


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Statistics of the allocator. Bytes count whole blocks; arrays below `THRESHOLD` bytes are not included."""

    in_use: int
    """bytes in blocks used by arrays"""
    cached: int
    """bytes in free blocks kept for reuse"""
    peak: int
    """largest `in_use` since the start or `reset_peak()`"""
    hits: int
    """requests served from the cache"""
    misses: int
    """requests that needed a new mapping"""
    released: int
    """bytes returned to the system so far"""

    def __str__(self) -> str:
        requests = self.hits + self.misses
        share = f"{self.hits / requests:.0%}" if requests else "none"
        return (
            f"{format_bytes(self.in_use)} in use (peak {format_bytes(self.peak)}), "
            f"{format_bytes(self.cached)} cached, {requests} requests, {share} from the cache"
        )


def format_bytes(count: int) -> str:
    """`1536` → `"1.5 KiB"`."""
    if abs(count) < 1024:
        return f"{count} B"
    figure = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        figure /= 1024
        if abs(figure) < 1024:
            return f"{figure:.1f} {unit}"
    return f"{figure / 1024:.3g} EiB"


class _Mapping:
    """One block of memory. `fresh` until its first use: it then reads as zeros."""

    __slots__ = ("address", "fresh", "memory", "size")

    def __init__(self, size: int) -> None:
        huge = size >= _HUGE_PAGE_BYTES
        # A mapping starts at any page; the slack allows the block to start at a huge-page boundary. It is never
        # touched, so it costs address space only.
        length = size + _HUGE_PAGE_BYTES if huge else size
        if hasattr(mmap, "MAP_ANONYMOUS"):
            self.memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self.memory = mmap.mmap(-1, length)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.address = start
        self.size = size
        self.fresh = True
        if huge:
            self.address = -(-start // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
            if hasattr(mmap, "MADV_HUGEPAGE"):
                # Only whole huge pages of the block: a huge page at its end would reach into the slack.
                try:
                    whole = size // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
                    self.memory.madvise(mmap.MADV_HUGEPAGE, self.address - start, whole)
                except OSError:  # a kernel without huge pages
                    return

    def close(self) -> None:
        self.memory.close()


class _SizeClass:
    """The free blocks of one size, and the type of their owners."""

    __slots__ = ("blocks", "last_use", "owner", "size")

    def __init__(self, size: int, give_back: Callable[[int], None]) -> None:
        self.size = size
        self.blocks: list[_Mapping] = []
        self.last_use = 0  # in requests, the pool's clock
        self.owner = _owner_type(size, give_back)


def _owner_type(size: int, give_back: Callable[[int], None]) -> type[ctypes.Array[Any]]:
    """A ctypes array type of `size` bytes: the cheapest Python object that has both a buffer and a `__del__`."""

    # The functions are defaults, not globals: globals may be gone when the last arrays die at exit.
    def __del__(self: Any, addressof: Callable[[Any], int] = ctypes.addressof, give_back: Any = give_back) -> None:
        give_back(addressof(self))

    contents = {"_type_": ctypes.c_uint8, "_length_": size, "__slots__": (), "__del__": __del__, "pooled": True}
    kind: type[ctypes.Array[Any]] = type(ctypes.Array)("Block", (ctypes.Array,), contents)  # type: ignore[misc]
    return kind


def size_class(nbytes: int) -> int:
    """Size of the block that serves `nbytes`: rounded up to one of eight steps per power of two, whole pages."""
    shift = max((nbytes - 1).bit_length() - 4, 12)
    return ((nbytes - 1 >> shift) + 1) << shift


class _Pool:
    """Free and live blocks. One per process; every method is thread-safe and may be re-entered by `__del__`."""

    def __init__(self) -> None:
        # Re-entrant because an owner's __del__ may run (through the garbage collector) while this thread holds it.
        # Held over a fork, so that the child's copy of the pool is consistent.
        self.lock = forks.held_over_fork()
        self.live: dict[int, _Mapping] = {}
        self.returned: deque[int] = deque()  # addresses of freed blocks that are not accounted for yet
        self.classes: dict[int, _SizeClass] = {}
        self.in_use = self.cached = self.peak = self.hits = self.misses = self.released = 0
        self.headroom = 0  # bytes that may be mapped without another reading of free memory
        self.cache_limit = 0
        self.read_at = -_READING_SECONDS
        self.anonymous_before: int | None = None

    # ---- taking and giving back

    def class_for(self, nbytes: int) -> _SizeClass:
        """The class that serves requests of `nbytes`."""
        size = size_class(nbytes)
        with self.lock:
            found = self.classes.get(size)
            if found is None:
                # Taking the lock to account for a freed small block would cost as much as the work on the block.
                give_back = self.give_back if size >= _EAGER_ACCOUNTING_BYTES else self.returned.append
                found = self.classes[size] = _SizeClass(size, give_back)
            return found

    def take(self, wanted: _SizeClass) -> ctypes.Array[Any]:
        """Allocate a block of at least that size; it is freed when the returned owner dies."""
        with self.lock:
            if self.returned:
                self._settle()
            found = wanted if wanted.blocks else self._near(wanted)
            if found is not None:
                mapping = found.blocks.pop()
                self.hits += 1
                self.cached -= mapping.size
            else:
                found = wanted
                mapping = self._map(wanted.size)
                self.misses += 1
            address = mapping.address
            self.live[address] = mapping
            self.in_use += mapping.size
            if self.in_use > self.peak:  # twice as fast as max()
                self.peak = self.in_use
        return found.owner.from_address(address)

    def _near(self, wanted: _SizeClass) -> _SizeClass | None:
        """One of the next two classes with a free block: wastes at most a quarter, cheaper than a new mapping."""
        size = wanted.size
        for _ in range(2):
            size = size_class(size + 1)
            near = self.classes.get(size)
            if near is not None and near.blocks:
                return near
        return None

    def give_back(self, address: int) -> None:
        """Free the block at `address`, and keep the cache within its bounds."""
        self.returned.append(address)
        with self.lock:
            self._settle()
            if time.monotonic() - self.read_at > _READING_SECONDS:
                self._look()
            if self.cached > self.cache_limit:
                self._evict(self.cached - self.cache_limit)

    def _settle(self) -> None:
        """Account for the blocks whose owners have died."""
        returned = self.returned
        while returned:
            mapping = self.live.pop(returned.popleft(), None)
            if mapping is None:  # a copied owner: its memory is not in the pool
                continue
            size = mapping.size
            mapping.fresh = False
            self.in_use -= size
            self.cached += size
            home = self.classes[size]
            home.blocks.append(mapping)
            home.last_use = self.hits + self.misses

    def _evict(self, wanted: int) -> int:
        """Unmap cached blocks, least recently used classes first, until `wanted` bytes are freed."""
        freed = 0
        for candidate in sorted(self.classes.values(), key=lambda each: each.last_use):
            while candidate.blocks and freed < wanted:
                candidate.blocks.pop().close()
                freed += candidate.size
        self.cached -= freed
        self.released += freed
        return freed

    def trim(self) -> int:
        with self.lock:
            self._settle()
            return self._evict(self.cached)

    def stats(self) -> MemoryStats:
        with self.lock:
            self._settle()
            return MemoryStats(self.in_use, self.cached, self.peak, self.hits, self.misses, self.released)

    def reset_peak(self) -> None:
        with self.lock:
            self._settle()
            self.peak = self.in_use

    # ---- the system's limits

    def _map(self, size: int) -> _Mapping:
        if size > self.headroom or time.monotonic() - self.read_at > _READING_SECONDS:
            self._make_room(size)
        try:
            mapping = _Mapping(size)
        except (OSError, ValueError, OverflowError):  # an address-space limit, which only mmap detects
            self._evict(self.cached)
            try:
                mapping = _Mapping(size)
            except (OSError, ValueError, OverflowError) as error:
                raise self._too_much(size, f"the system refused the mapping ({error})") from error
        self.headroom -= size
        return mapping

    def _make_room(self, size: int) -> None:
        free = self._look()
        if free is None:
            return
        if size > free:
            self._evict(size - free)
            free = self._look()
            if free is not None and size > free:
                raise self._too_much(size, f"{format_bytes(max(free, 0))} are available")

    def _look(self) -> int | None:
        """Read the system's free memory; return the largest allowed request, `None` if unknown."""
        self.read_at = time.monotonic()
        available = _host.memory_available()
        if available is None:
            self.headroom = self.cache_limit = sys.maxsize
            return None
        free = available - self._untouched() - _RESERVED_BYTES
        self.headroom = max(free // 16, 0)
        spare = available - (_host.memory_total() or 0) // 8
        self.cache_limit = max(self.cached + spare, 0)
        return free

    def _untouched(self) -> int:
        """Bytes mapped but not resident yet (estimated from this process's footprint)."""
        anonymous = _host.anonymous_resident()
        if anonymous is None:
            return 0
        mapped = self.in_use + self.cached
        if self.anonymous_before is None:
            self.anonymous_before = anonymous - mapped
        return max(mapped - max(anonymous - self.anonymous_before, 0), 0)

    def _too_much(self, size: int, found: str) -> MemoryError:
        return MemoryError(
            f"memory: the request does not fit. Got a request for {format_bytes(size)}; {found}, and Weft's arrays use "
            f"{format_bytes(self.in_use)}. "
            "Use a smaller batch or shape, or drop references to arrays that are no longer needed."
        )


_pool = _Pool()


# --------------------------------------------------------------------------------------------------- arrays


def empty(shape: Shape, dtype: DTypeLike = _FLOAT32, strides_order: tuple[int, ...] | None = None) -> NDArray[Any]:
    """An uninitialised array.

    Args:
        shape: its sizes.
        dtype: its element type.
        strides_order: the axes from outermost to innermost in memory; row-major when left out. The strides leave
            no gaps.

    Raises:
        MemoryError: it does not fit into the free memory.

    >>> empty((2, 3, 4, 5), "float32", strides_order=(0, 2, 3, 1)).strides
    (240, 4, 60, 12)
    """
    try:
        dtype, strides, block_class = _plan(shape, dtype, strides_order)  # type: ignore[arg-type]
    except TypeError:  # something that cannot be hashed, a list for one, or nonsense
        shape = _normal_shape("empty", shape)
        order = None if strides_order is None else _normal_shape("empty", strides_order)
        dtype, strides, block_class = _plan(shape, np.dtype(dtype), order)
    if block_class is not None:
        return np.ndarray(shape, dtype, _pool.take(block_class), 0, strides)  # type: ignore[arg-type]
    if strides is None:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, None, 0, strides)


def maker(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], NDArray[Any]]:
    """A function that allocates arrays like `empty`, specialised for one shape and dtype.

    >>> maker((2, 3), np.dtype("float32"))().shape
    (2, 3)
    """
    dtype, _, block_class = _plan(shape, dtype, None)
    if block_class is None:
        return partial(np.empty, shape, dtype)
    return lambda: np.ndarray(shape, dtype, _pool.take(block_class))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _plan(
    shape: Any, dtype: Any, order: tuple[int, ...] | None
) -> tuple[np.dtype[Any], tuple[int, ...] | None, _SizeClass | None]:
    """The dtype, strides and size class of such an array."""
    sizes = _normal_shape("empty", shape)
    element = np.dtype(dtype)
    if element.kind in "biufc":  # one object per dtype: C's `long long` and `long` are equal, and this is a cache
        element = np.dtype(element.str)
    nbytes = prod(sizes, start=element.itemsize)
    # NumPy itself refuses sizes whose product, zeros left out, overflows.
    if prod((size for size in sizes if size), start=element.itemsize) > sys.maxsize // 2:
        raise MemoryError(
            f"memory: the request does not fit. Got shape {sizes} of {element.name}, {format_bytes(nbytes)}; "
            "expected a size the processor can address."
        )
    strides = None if order is None else _strides(sizes, element.itemsize, order)
    pooled = nbytes >= THRESHOLD and not element.hasobject
    return element, strides, _pool.class_for(nbytes) if pooled else None


def zeros(shape: Shape, dtype: DTypeLike = _FLOAT32, strides_order: tuple[int, ...] | None = None) -> NDArray[Any]:
    """An array of zeros; arguments as for `empty`.

    >>> zeros((2, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    array = empty(shape, dtype, strides_order)
    if array.base is None:
        array.fill(0)
    else:
        mapping = _pool.live[ctypes.addressof(array.base)]  # type: ignore[arg-type]
        if not mapping.fresh:  # the kernel hands out zeros
            ctypes.memset(mapping.address, 0, array.nbytes)
    return array


def empty_channels_last(shape: Shape, dtype: DTypeLike = _FLOAT32) -> NDArray[Any]:
    """An uninitialised array of shape `(N, C, *spatial)` with contiguous channels (channels-last layout).

    >>> empty_channels_last((1, 3, 2, 2)).strides
    (48, 4, 24, 12)
    """
    try:
        rank = len(shape)  # type: ignore[arg-type]
    except TypeError:
        rank = len(_normal_shape("empty_channels_last", shape))
    if rank < 3:
        raise ValueError(
            f"empty_channels_last: shape has no spatial axes. Got {shape}; expected (N, C, *spatial), at least 3 axes."
        )
    return empty(shape, dtype, channels_last_order(rank))


@cache
def channels_last_order(rank: int) -> tuple[int, ...]:
    """The `strides_order` of channels-last: `(0, 2, …, rank-1, 1)`."""
    return (0, *range(2, rank), 1)


def root(array: NDArray[Any]) -> NDArray[Any]:
    """The base array of a memory: the same object for all its views.

    >>> a = empty((1000, 1000)); root(a[1:].T[2:]) is a
    True
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def is_pooled(array: NDArray[Any]) -> bool:
    """Whether `array` is on a block of the pool."""
    base: Any = root(array).base
    return isinstance(base, ctypes.Array) and ctypes.addressof(base) in _pool.live


def _normal_shape(name: str, shape: Any) -> tuple[int, ...]:
    """`shape` as a tuple of Python integers, checked."""
    normal: tuple[int, ...]
    try:
        normal = (operator.index(shape),)
    except TypeError:
        try:
            normal = tuple(operator.index(size) for size in shape)
        except TypeError:
            raise TypeError(
                f"{name}: shape must be an integer or a sequence of integers. Got {shape!r} "
                f"of type {type(shape).__name__}; expected for example (3, 4)."
            ) from None
    if any(size < 0 for size in normal):
        raise ValueError(f"{name}: sizes cannot be negative. Got shape {normal}; expected every size to be 0 or more.")
    return normal


def _strides(shape: tuple[int, ...], itemsize: int, order: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(order) != list(range(len(shape))):
        raise ValueError(
            f"empty: strides_order is not an order of the axes. Got {order!r} for shape {shape}; "
            f"expected each of 0 to {len(shape) - 1} once, outermost first."
        )
    strides = [0] * len(shape)
    step = itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


# ----------------------------------------------------------------------------------------------- statistics


def stats() -> MemoryStats:
    """Statistics of the allocator: bytes in use, cached and at the peak, and counts of requests.

    >>> x = wf.zeros(1024, 1024)
    >>> wf.memory.stats().in_use >= x.nbytes
    True
    """
    return _pool.stats()


def trim() -> int:
    """Return all cached blocks to the system; returns the number of bytes.

    >>> x = wf.zeros(1024, 1024)
    >>> del x  # its memory stays cached
    >>> wf.memory.trim() > 0, wf.memory.stats().cached
    (True, 0)
    """
    return _pool.trim()


def reset_peak() -> None:
    """Reset `stats().peak` to the bytes in use now.

    >>> wf.memory.reset_peak()
    >>> wf.memory.stats().peak == wf.memory.stats().in_use
    True
    """
    _pool.reset_peak()
