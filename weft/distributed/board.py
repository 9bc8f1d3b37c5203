"""The board: words in shared memory by which the workers of one host agree on who does what, and on what is done.

Every unit of work of a step, a shard or a slice, has one word: (step, phase, member). Members move it forward with atomic
compare-and-swap, so each of these holds no matter when a process is killed:

* a unit is claimed by one member at a time; a claim of a dead member is released by any other (`release`);
* a shard has one winner, even if a backup computed it too, and a slice is written by the member that claimed it;
* the commit word moves from version t to t + 1 once, after every unit of step t is ready.

A word of an earlier step counts as free, so nothing is reset between steps. No lock is held anywhere.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..multiprocessing import Segment
from . import atomics

FREE, CLAIMED, WON, READY = range(4)
_PHASE_BITS, _MEMBER_BITS = 8, 16
_STEP_SHIFT = _PHASE_BITS + _MEMBER_BITS

MAGIC = 0x5745_4654_0001
LINE = 8  # words of a cache line

# The fields of a member's row. The last four are figures for those who watch the run; see `figures`.
PID, INCARNATION, BEAT, SEEN, SHARD_TIME, STEP_TIME, SHARDS_DONE, POSITION = range(LINE)
SENT_BYTES, RECEIVED_BYTES = SHARD_TIME, STEP_TIME  # of a relay, which computes no shards
MAX_MEMBERS = 256


def holder(row: int, incarnation: int) -> int:
    """How a member signs its claims: by its row, and by how many processes had the row before. So the claims of a dead process
    are told from those of its successor."""
    return (incarnation & 0xFF) << 8 | row


def word(step: int, phase: int, member: int) -> int:
    """A unit's word; words of later steps and of later phases are greater."""
    return step << _STEP_SHIFT | phase << _MEMBER_BITS | member


def split(value: int) -> tuple[int, int, int]:
    """(step, phase, member) of a word."""
    return value >> _STEP_SHIFT, value >> _MEMBER_BITS & ((1 << _PHASE_BITS) - 1), value & ((1 << _MEMBER_BITS) - 1)


class Place(NamedTuple):
    """Where a shard's values are: in which partial sum, and in whose slot."""

    level: int
    position: int
    row: int
    slot: int
    step: int
    """the step in which it was written, modulo 2**24: a shard without samples keeps an old place"""

    def pack(self) -> int:
        return self.level << 58 | self.position << 46 | self.row << 38 | self.slot << 24 | self.step & 0xFFFFFF

    @staticmethod
    def unpack(value: int) -> Place:
        return Place(value >> 58, value >> 46 & 0xFFF, value >> 38 & 0xFF, value >> 24 & 0x3FFF, value & 0xFFFFFF)

    def inside(self, shards: int) -> range:
        """The shards of the partial sum."""
        return range(self.position << self.level, min((self.position + 1) << self.level, shards))


MAX_SHARDS = 4096
NO_SLOT = 0x3FFF  # of a shard that was evaluated: there are no gradients


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a board, fixed for a run."""

    shards: int
    slices: int
    members: int
    relayed: bool = False
    """whether there are other hosts; the last row of `members` is then the relay's"""

    def words(self) -> list[tuple[str, int]]:
        """The arrays of the board in their order, and their lengths in words."""
        return [
            ("header", 16 * LINE),
            ("shards", self.shards),
            ("places", 2 * self.shards),
            ("slices", self.slices),
            ("norms", self.slices),
            ("norm_values", self.slices),
            ("members", self.members * LINE),
            ("shown", self.members),
        ]


# Words of the header. Those that are written often have a cache line each.
COMMITTED, GENERATION, BELL, PIN, WIDTH, LEAD, INITIALISED, STOP = (line * LINE for line in range(1, 9))
STATE_BYTES, SLOT_BYTES, SHARED_BYTES = 4, 5, 6  # what the relay must know of the other segments
ROWS_AT = 7  # at which byte the rows of the members begin, for readers that do not know the shape (`progress`)

# Words by which a relay and the members of its host speak to each other; see `relay`.
BLOCK, RELEASED, LEADING, STOP_AT, HOLD, PERMIT, WORLD = (line * LINE for line in range(9, 16))
TORN = HOLD + 1  # whether a relay is writing the state of another host: if it dies, this host has none


def committed_steps(segment: Segment) -> int:
    """How many steps are committed on a board whose shape is not known."""
    return int(segment.array((LINE * 2,), np.uint64)[COMMITTED]) >> 1


class Log:
    """The result of every step, one row of numbers each, and the statistics of the shards of the current step.

    A row is never changed once its step is committed. `statistics` is used by two steps in turn.
    """

    def __init__(self, open_segment: Callable[[str, int], Segment], shards: int, width: int, steps: int) -> None:
        self.width = width
        self.rows = open_segment("log", 8 * steps * width).array((steps, width), np.float64)
        self.statistics = open_segment("statistics", 16 * shards * width).array((2, shards, width), np.float64)


class Board:
    """A view of the board's memory. All methods may be called by any member at any time."""

    def __init__(self, segment: Segment, shape: Shape) -> None:
        self.segment, self.shape = segment, shape
        self.arrays: dict[str, np.ndarray] = {}
        self._at: dict[str, int] = {}
        offset = 0
        for name, length in shape.words():
            array = segment.array((length,), np.uint64, offset)
            self.arrays[name] = array
            self._at[name] = array.__array_interface__["data"][0]
            offset += -(-length // LINE) * LINE * 8
        self.norm_values = self.arrays["norm_values"].view(np.float64)
        self.header, self.members = self.arrays["header"], self.arrays["members"].reshape(shape.members, LINE)
        self._f = atomics.functions()
        self.bell = self._at["header"] + 8 * BELL

    @staticmethod
    def nbytes(shape: Shape) -> int:
        """Bytes that the board of this shape takes."""
        return sum(-(-length // LINE) * LINE * 8 for _, length in shape.words())

    def format(self, sizes: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Write the header of a new, zeroed board; `sizes` are the bytes of the state, of a slot and of what is shared once."""
        self.header[1:4] = (self.shape.shards, self.shape.slices, self.shape.members)
        self.header[STATE_BYTES : ROWS_AT + 1] = (*sizes, self._at["members"] - self._at["header"])
        self._f.store(self._at["header"], MAGIC)

    def check(self) -> None:
        """Raise if this memory is not a board of the expected shape."""
        found = [int(v) for v in self.header[:4]]
        expected = [MAGIC, self.shape.shards, self.shape.slices, self.shape.members]
        if found != expected:
            raise ValueError(
                f"distributed: the shared memory belongs to another run. Got {found}; expected {expected}."
            )

    # Single words ---------------------------------------------------------------------------------------------------

    def address(self, name: str, index: int) -> int:
        return self._at[name] + 8 * index

    def load(self, name: str, index: int) -> int:
        return int(self._f.load(self._at[name] + 8 * index))

    def store(self, name: str, index: int, value: int) -> None:
        self._f.store(self._at[name] + 8 * index, value)

    def swap(self, name: str, index: int, old: int, new: int) -> bool:
        """Replace `old` by `new`; False if the word is not `old` any more."""
        return int(self._f.swap(self._at[name] + 8 * index, old, new)) == old

    def add(self, name: str, index: int, amount: int) -> int:
        return int(self._f.add(self._at[name] + 8 * index, amount))

    def ring(self) -> None:
        """Wake the members that wait."""
        self._f.ring(self.bell, self._f.syscall, self._f.number)

    # Units of work --------------------------------------------------------------------------------------------------

    def claim(self, kind: str, index: int, step: int, member: int, again: bool = True) -> bool:
        """Take a unit of `step` that is free; unless `again`, only one that nobody had before."""
        old = self.load(kind, index)
        at, phase, _ = split(old)
        if at > step or at == step and (phase != FREE or not again):
            return False
        return self.swap(kind, index, old, word(step, CLAIMED, member))

    def win(self, index: int, step: int, member: int, claimant: int) -> bool:
        """Become the one whose result of a shard counts; False if another already is, or was given the shard anew."""
        return self.swap("shards", index, word(step, CLAIMED, claimant), word(step, WON, member))

    def ready(self, kind: str, index: int, step: int, member: int) -> None:
        """Publish a unit whose memory is written. Only its winner, or the claimant of a slice, calls this."""
        self.store(kind, index, word(step, READY, member))

    def released(self, kind: str, index: int, step: int) -> bool:
        """Whether a unit of `step` was claimed by a member that died, and is free again."""
        at, phase, _ = split(self.load(kind, index))
        return at == step and phase == FREE

    def all_ready(self, kind: str, count: int, step: int, rounds: int, seconds: float) -> bool:
        """Wait until all units of `step` are ready."""
        least = word(step, READY, 0)
        return atomics.wait_all(self._at[kind], count, least, self.bell, rounds, seconds) == atomics.READY

    def pending(self, kind: str, count: int, step: int) -> list[tuple[int, int, int]]:
        """(index, phase, member) of the units of `step` that are not ready; those of earlier steps are free."""
        found = []
        for index in range(count):
            at, phase, member = split(self.load(kind, index))
            if at < step:
                found.append((index, FREE, 0))
            elif at == step and phase != READY:
                found.append((index, phase, member))
        return found

    def release(self, member: int) -> int:
        """Free everything that a dead member had claimed and not published; returns the number of units.

        The caller has made sure that the process is gone: it may no longer write to the memory of these units.
        """
        freed = 0
        for kind, count in (("shards", self.shape.shards), ("slices", self.shape.slices), ("norms", self.shape.slices)):
            for index in range(count):
                old = self.load(kind, index)
                step, phase, owner = split(old)
                if owner == member and phase in (CLAIMED, WON):
                    freed += self.swap(kind, index, old, word(step, FREE, member))
        freed += self._release_torn(member)
        pinned = self.load("header", PIN)
        if pinned and (pinned & 0xFFFF) == member:
            self.swap("header", PIN, pinned, 0)
        self.ring()
        return freed

    def _release_torn(self, member: int) -> int:
        """Free the shards of partial sums of which the dead member published only a part before it died."""
        current, freed = self.committed()[0] + 1, 0
        words = [split(self.load("shards", i)) for i in range(self.shape.shards)]
        for index, (step, phase, owner) in enumerate(words):
            if step != current or phase != READY or owner != member:
                continue
            inside = self.place(index, current).inside(self.shape.shards)
            if any(words[i] != (current, READY, member) for i in inside):
                freed += self.swap("shards", index, word(step, READY, member), word(step, FREE, member))
        return freed

    def place(self, shard: int, step: int) -> Place:
        """Where a shard of `step` is, once it is ready; two steps use the words in turn."""
        return Place.unpack(self.load("places", shard + (step & 1) * self.shape.shards))

    def set_place(self, shard: int, place: Place) -> None:
        self.store("places", shard + (place.step & 1) * self.shape.shards, place.pack())

    # Versions -------------------------------------------------------------------------------------------------------

    def committed(self) -> tuple[int, int]:
        """(version, buffer): how many steps are committed, and which of the two buffers holds the state after them."""
        value = self.load("header", COMMITTED)
        return value >> 1, value & 1

    def commit(self, version: int, buffer: int, flips: bool) -> bool:
        """Move from `version` to the next; False if another member did."""
        done = self.swap("header", COMMITTED, version << 1 | buffer, (version + 1) << 1 | buffer ^ flips)
        self.ring()
        return done

    def pin(self, member: int) -> tuple[int, int]:
        """Keep the committed buffer from being overwritten until `unpin`; returns the committed version, and the buffer."""
        while True:
            version, buffer = self.committed()
            if self.swap("header", PIN, 0, (version + 1) << 18 | buffer << 17 | 1 << 16 | member):
                if self.committed()[0] == version:
                    return version, buffer
                self.store("header", PIN, 0)
            time.sleep(0.0005)

    def unpin(self) -> None:
        self.store("header", PIN, 0)
        self.ring()

    def writable(self, buffer: int, member: int) -> bool:
        """Whether a member may write to a buffer: no other has pinned it."""
        word = self.load("header", PIN)
        return not word or (word >> 17 & 1) != buffer or (word & 0xFFFF) == member

    def show(self, row: int, buffer: int | None) -> None:
        """Say which buffer a member reads outside of steps: it is not overwritten until then. None: it reads none."""
        self.store("shown", row, 0 if buffer is None else 1 + buffer)

    def read_by_others(self, buffer: int, row: int) -> bool:
        """Whether a member other than that of `row` reads a buffer outside of steps."""
        return any(
            self.load("shown", other) == 1 + buffer and self.load("members", other * LINE + PID)
            for other in range(self.shape.members)
            if other != row
        )

    def wait_version(self, version: int, rounds: int, seconds: float) -> bool:
        """Wait until at least `version` steps are committed."""
        at = self._at["header"] + 8 * COMMITTED
        return atomics.wait_all(at, 1, version << 1, self.bell, rounds, seconds) == atomics.READY
