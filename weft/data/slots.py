"""Zero-copy transfer of batches from a worker to the loader through slots of shared memory.

Note [Slots]: a worker owns *segments* of shared memory, each divided into equal *slots*; a batch is written into one
slot. The pipe carries the structure of the batch with an `ArrayRef` for every array and, once per segment, the file
descriptor. The loader maps the segment and creates arrays on it. They hold a *lease* on the slot; when the last array
(or view, or tensor) on it dies, the slot is returned to the worker with its next task and reused. Keeping batches alive
only makes the worker allocate more slots.

Segments grow geometrically: the first has the slots of a steady loop, each further one twice as many (up to 64 MB), so
keeping every batch of a long epoch needs few mappings. Segments whose slots became too small are unmapped once free.
"""

from __future__ import annotations

import ctypes
import dataclasses
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ..multiprocessing import ALIGNMENT, Segment
from ._tensor import map_leaves
from .collate import Leaf

PAGE = 4096
SEGMENT_LIMIT = 64 << 20  # bytes; a segment with several slots does not grow beyond this


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayRef:
    """An array of a batch as shape, dtype and offset in the slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


class Slot(NamedTuple):
    """Identifies a slot: the segment's number within its worker, and the slot's offset."""

    segment: int
    offset: int


def _aligned(nbytes: int, unit: int = ALIGNMENT) -> int:
    return -(-nbytes // unit) * unit


class SlotWriter:
    """The worker's side: finds a free slot and writes a batch into it."""

    def __init__(self, first_slots: int) -> None:
        self._next_slots = first_slots
        self._segments: dict[int, tuple[Segment, int, int]] = {}  # number: memory, slot size, slots
        self._free: dict[int, list[int]] = {}  # number: offsets
        self._count = 0

    def release(self, slots: list[Slot]) -> None:
        """Mark slots as free; the loader no longer uses them."""
        for slot in slots:
            self._free[slot.segment].append(slot.offset)

    def write(self, tree: Any) -> tuple[Any, Slot | None, tuple[int, Segment, int] | None, list[int]]:
        """Write the arrays of a plan into a slot.

        Returns:
            The tree with references, the slot (None if there is no array), the segment that was made for it as
            (number, segment, slot size) if one was, and the numbers of segments that were unmapped.
        """
        sizes: list[int] = []

        def measure(leaf: Any) -> None:
            if isinstance(leaf, Leaf) or _travels_in_slot(leaf):
                sizes.append(_aligned(leaf.nbytes))

        map_leaves(measure, tree)
        if not sizes:
            return tree, None, None, []
        slot, new, gone = self._take(sum(sizes))
        memory = self._segments[slot.segment][0]
        offset = slot.offset

        def write(leaf: Any) -> Any:
            nonlocal offset
            if isinstance(leaf, Leaf):
                leaf.write(memory.array(leaf.shape, leaf.dtype, offset))
            elif _travels_in_slot(leaf):
                memory.array(leaf.shape, leaf.dtype, offset)[...] = leaf
            else:
                return leaf
            reference = ArrayRef(offset - slot.offset, leaf.shape, leaf.dtype)
            offset += _aligned(leaf.nbytes)
            return reference

        try:
            return map_leaves(write, tree), slot, new, gone
        except BaseException:
            self.release([slot])
            raise

    def _take(self, nbytes: int) -> tuple[Slot, tuple[int, Segment, int] | None, list[int]]:
        fitting = [
            (size, number) for number, (_, size, _) in self._segments.items() if size >= nbytes and self._free[number]
        ]
        if fitting:
            _, number = min(fitting)
            return Slot(number, self._free[number].pop()), None, []
        gone = [
            number
            for number, (_, size, slots) in self._segments.items()
            if size < nbytes and len(self._free[number]) == slots
        ]
        for number in gone:
            del self._segments[number], self._free[number]
        size = max(_aligned(nbytes, PAGE), PAGE)
        slots = max(1, min(self._next_slots, SEGMENT_LIMIT // size))
        memory = Segment.create(size * slots)
        number = self._count
        self._count += 1
        self._next_slots *= 2
        self._segments[number] = (memory, size, slots)
        self._free[number] = [size * i for i in reversed(range(1, slots))]
        return Slot(number, 0), (number, memory, size), gone


def _travels_in_slot(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject


class SlotReader:
    """The loader's side, one per worker: creates arrays on slots and collects freed slots."""

    def __init__(self) -> None:
        self._segments: dict[int, tuple[Segment, int]] = {}
        self._freed: deque[Slot] = deque()  # appended to by finalizers, from any thread

    def add_segment(self, number: int, memory: Segment, slot_size: int) -> None:
        self._segments[number] = (memory, slot_size)

    def drop_segments(self, numbers: list[int]) -> None:
        for number in numbers:
            del self._segments[number]

    def read(self, tree: Any, slot: Slot | None) -> Any:
        """The batch, with arrays on the slot's memory."""
        if slot is None:
            return tree
        memory, size = self._segments[slot.segment]
        lease = (ctypes.c_ubyte * size).from_buffer(memory, slot.offset)
        weakref.finalize(lease, self._freed.append, slot).atexit = False

        def view(leaf: Any) -> Any:
            if isinstance(leaf, ArrayRef):
                return np.ndarray(leaf.shape, leaf.dtype, buffer=lease, offset=leaf.offset)  # type: ignore[arg-type]
            return leaf

        return map_leaves(view, tree)

    def discard(self, slot: Slot | None) -> None:
        """Free the slot of an unused batch."""
        if slot is not None:
            self._freed.append(slot)

    def take_freed(self) -> list[Slot]:
        """The slots freed since the last call, to be sent to the worker."""
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        return freed
