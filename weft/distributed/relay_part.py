"""What a relay knows: the parts of the run on its own host, and what its peers have said.

A part is what is trained by one optimiser: its board and memory, as bytes. See `relay`.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np

from . import atomics
from .board import (
    CLAIMED,
    COMMITTED,
    HOLD,
    INITIALISED,
    LINE,
    MAGIC,
    READY,
    SHARED_BYTES,
    SLOT_BYTES,
    STATE_BYTES,
    TORN,
    WIDTH,
    WON,
    Board,
    Log,
    Place,
    Shape,
    split,
    word,
)  # fmt: skip
from .failpoints import reach
from .members import Peers
from .memory import Memory
from .mirror import Sent
from .team import Team
from .wire import Connection, Frame

WRITE_SECONDS = 30.0
"""how long a worker may write for a step that was overtaken, before it is killed"""


class Part:
    """What is trained by one optimiser: a board and its segments, as bytes. The relay knows nothing of the model."""

    def __init__(self, number: int, prefix: str, memory: Memory, steps: int) -> None:
        self.number, self.prefix, self._memory, self._steps = number, prefix, memory, steps
        segment = memory.find(prefix + "board")
        if segment is None:
            raise LookupError(prefix)
        header = segment.array((2 * LINE,), np.uint64)
        if int(header[0]) != MAGIC:
            raise LookupError(prefix)  # a worker is about to format it
        shape = Shape(int(header[1]), int(header[2]), int(header[3]), True)
        self.board = Board(segment, shape)
        self.state_bytes, self.slot_bytes, self.shared_bytes = (
            int(header[i]) for i in (STATE_BYTES, SLOT_BYTES, SHARED_BYTES)
        )
        self.state = memory.open(prefix + "state", 2 * self.state_bytes + self.shared_bytes)
        self.slots = Team.row_slots(shape)
        self.gradients = memory.open(prefix + "gradients", shape.members * self.slots * self.slot_bytes)
        self.peers = Peers(self.board, relay=True)
        if not self.torn:
            self.board.store("header", HOLD, 0)  # of a relay that was killed while it received a state
        self._log: Log | None = None
        self._used: dict[tuple[int, int, int], int] = {}  # (step, level, position) -> slot of the relay's row
        self._lock = threading.Lock()
        self.waiting_since: tuple[int, float] = (-1, 0.0)
        self._warm = False

    @property
    def initialised(self) -> bool:
        """Whether this host has the state."""
        return self._begun and not self.torn

    @property
    def torn(self) -> bool:
        """Whether a relay was killed while it wrote the state of another host."""
        return bool(self.board.load("header", TORN))

    @property
    def _begun(self) -> bool:
        return self.board.load("header", INITIALISED) >> 32 != 0

    @property
    def version(self) -> int:
        return self.board.committed()[0]

    def log(self, width: int = 0) -> Log | None:
        """The log; None if no shard has been computed yet."""
        if width:
            self.board.swap("header", WIDTH, 0, width)
        found = self.board.load("header", WIDTH)
        if self._log is None and found:

            def open_segment(name: str, nbytes: int) -> Any:
                return self._memory.open(self.prefix + name, nbytes)

            self._log = Log(open_segment, self.board.shape.shards, found, self._steps)
        return self._log

    def slot(self, row: int, index: int) -> np.ndarray:
        """The bytes of a gradient slot."""
        at = (row * self.slots + index) * self.slot_bytes
        return self.gradients.array((self.slot_bytes,), np.uint8, at)

    def own_slot(self, step: int, level: int, position: int) -> int | None:
        """A slot of the relay's row for a partial sum that arrives; None if there is none left."""
        with self._lock:
            self._used = {key: index for key, index in self._used.items() if key[0] >= step - 1}
            found = self._used.get((step, level, position))
            if found is None:
                half = self.slots // 2
                first = half * (step & 1)
                taken = {index for key, index in self._used.items() if key[0] == step} | self._published(step)
                found = next((i for i in range(first, first + half) if i not in taken), None)
                if found is not None:
                    self._used[step, level, position] = found
            return found

    def _published(self, step: int) -> set[int]:
        """The slots of the relay's row with partial sums of `step`: a relay that was killed may have put them there."""
        places = [self.board.place(shard, step) for shard in range(self.board.shape.shards)]
        return {place.slot for place in places if place.row == self.peers.row and place.step == step & 0xFFFFFF}

    def own_nodes(self, step: int) -> dict[Place, list[int]] | None:
        """The partial sums of `step` that workers of this host have published, with their shards.

        None while one is being published: it is there with all its shards or not at all, because its memory is their sum.
        """
        board, least = self.board, word(step, READY, 0)
        shards = board.shape.shards
        ready = [board.load("shards", shard) >= least for shard in range(shards)]  # after this its place is there
        found: dict[Place, list[int]] = {}
        for shard in range(shards):
            place = board.place(shard, step)
            if ready[shard] and place.step == step & 0xFFFFFF and place.row != self.peers.row:
                found.setdefault(place, []).append(shard)
        return found if all(ready[shard] for place in found for shard in place.inside(shards)) else None

    def warm(self) -> bool:
        """Whether workers here have computed shards: their programs are compiled."""
        if not self._warm and self.initialised:
            version = self.version
            self._warm = any(self.own_nodes(step) for step in (version, version + 1) if step)
        return self._warm

    def shards_ready(self, shards: range, step: int, seconds: float) -> bool:
        """Wait until shards of `step` are ready."""
        if not len(shards):
            return True
        least = word(step, READY, 0)
        board = self.board
        at = board.address("shards", shards.start)
        return atomics.wait_all(at, len(shards), least, board.bell, 0, seconds) == atomics.READY

    def put(self, step: int, place: Place, rows: np.ndarray) -> bool:
        """Make a partial sum that arrived that of its shards; False if workers were faster with some of them.

        Args:
            rows: for each of its shards, the number of the shard and its statistics.
        """
        board, me = self.board, self.peers.id
        won: list[int] = []
        for shard in (int(s) for s in rows[:, 0]):
            old = board.load("shards", shard)
            at, phase, _ = split(old)
            free = at < step or at == step and phase in (0, CLAIMED)
            if not free or not board.swap("shards", shard, old, word(step, WON, me)):
                for other in won:
                    board.store("shards", other, word(step, 0, me))
                board.ring()
                return False
            won.append(shard)
        reach("relay won")
        log = self.log()
        assert log is not None
        for row in rows:
            log.statistics[step & 1, int(row[0])] = row[1:]
            board.set_place(int(row[0]), place)
        for shard in won:
            reach("relay placed")
            board.ready("shards", shard, step, me)
        board.ring()
        return True

    # The whole state ------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[int, list[np.ndarray], int]:
        """(version, pieces of memory, numbers per row of the log) of the committed state, copied."""
        version, buffer = self.board.pin(self.peers.id)
        try:
            state = self.state.array((self.state_bytes,), np.uint8, buffer * self.state_bytes).copy()
        finally:
            self.board.unpin()
        shared = self.state.array((self.shared_bytes,), np.uint8, 2 * self.state_bytes).copy()
        log = self.log()
        rows = np.zeros((0, 1)) if log is None else log.rows[:version]
        return version, [state, shared, rows], 0 if log is None else log.width

    def install(self, version: int, width: int, connection: Connection) -> None:
        """Receive the state of another host, and continue from there.

        Workers may be in the middle of an earlier step. They read the buffer that is overwritten, which spoils what they
        compute, and it is not used; their writes go to the other buffer, and must have ended before the next step begins.
        A relay that dies after the first change leaves a mark, and the next one asks for a state again.
        """
        board = self.board
        board.store("header", HOLD, max(version, 1))
        log = self.log(width)
        buffer = board.committed()[1]
        fresh = not self._begun
        try:
            if fresh:
                self._read_state(connection, buffer, log, version)
            else:
                scratch = np.empty(self.state_bytes, np.uint8)
                connection.read(scratch)
                connection.read(self.state.array((self.shared_bytes,), np.uint8, 2 * self.state_bytes))
                if log is not None:
                    connection.read(log.rows[:version])
                board.store("header", TORN, 1)
                buffer = self._overtake(version)
                reach("step overtaken")
                self.state.array((self.state_bytes,), np.uint8, buffer * self.state_bytes)[:] = scratch
            reach("state received")
            if fresh:
                board.store("header", COMMITTED, version << 1 | buffer)
                board.store("header", INITIALISED, 1 << 32 | self.peers.id)
            board.store("header", TORN, 0)
        finally:
            if not self.torn:
                board.store("header", HOLD, 0)
            board.ring()

    def _read_state(self, connection: Connection, buffer: int, log: Log | None, version: int) -> None:
        connection.read(self.state.array((self.state_bytes,), np.uint8, buffer * self.state_bytes))
        connection.read(self.state.array((self.shared_bytes,), np.uint8, 2 * self.state_bytes))
        if log is not None:
            connection.read(log.rows[:version])

    def _overtake(self, version: int) -> int:
        """End whatever step is going on: it counts as committed, and nothing is written for it any more."""
        board = self.board
        while True:
            old = board.load("header", COMMITTED)
            if board.swap("header", COMMITTED, old, version << 1 | old & 1):
                break
        units = (("shards", board.shape.shards), ("slices", board.shape.slices), ("norms", board.shape.slices))
        end = time.monotonic() + WRITE_SECONDS
        for kind, count in units:
            for index in range(count):
                while True:
                    old_word = board.load(kind, index)
                    step, phase, owner = split(old_word)
                    if step > version:
                        break
                    if phase == (WON if kind == "shards" else CLAIMED) and self.peers.present(owner):
                        self.peers.look()
                        time.sleep(0.0005)  # it is being written
                        if time.monotonic() > end:
                            self.peers.fence(owner)
                        continue
                    if board.swap(kind, index, old_word, word(version, READY, self.peers.id)):
                        break
        return old & 1


@dataclasses.dataclass
class Standing:
    """What a peer has said of itself for one part."""

    version: int = -1
    workers: int = 0
    warm: bool = False
    """its workers have compiled the program: it is worth waiting for"""
    joined: bool = False
    """it computes a block of the shards"""
    joins_us: bool = False
    """it counts on a block from this host"""
    sent: int = 0
    """the last step whose partial sums it was sent"""
    asked: float = 0.0


class Peer:
    """Another host, while there is a connection to it."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.host = connection, connection.host
        self.standing: dict[int, Standing] = {}
        self.wants: list[tuple[Frame, list[Any]]] = []
        self.needs: set[tuple[int, bool]] = set()
        self.has: dict[str, tuple[int, int]] = {}
        self.next_decision = 0
        self.clocks: list[
            tuple[int, int]
        ] = []  # messages about its clock to answer: when they were sent, and when they came
        self.heard = time.monotonic()
        self.reading = False
        self.closed = threading.Event()
        self.threads: list[threading.Thread] = []
        self.sending = threading.Lock()  # one thread sends at a time
        self.mirrored = Sent()

    def of(self, part: int) -> Standing:
        return self.standing.setdefault(part, Standing())

    def close(self) -> None:
        self.closed.set()
        self.connection.close()
