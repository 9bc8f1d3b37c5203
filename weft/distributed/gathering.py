"""Gathering: values that the shards of a step show each other while they are computed, as synchronised batch norm needs.

A shard that gathers writes its values into shared memory and waits for those of all other shards of the batch. So a member
cannot compute its shards one after the other: each runs in a thread of its own, and the threads take turns; a thread gives up
its turn where it waits. The guarantees of a step are the same: values depend on the shard alone, so one that is computed again,
by another member or as a copy, shows the same bytes and finds the others' values there. Each member writes to memory of its own:
one that is behind, because a copy of its shard won and the others went on, must not overwrite what they show in later steps. It
notices that what it looks for is gone, and ends the shard (`Overtaken`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..multiprocessing import Segment
from . import atomics, tree
from .board import CLAIMED, FREE, Board
from .communicator import shard_body
from .failpoints import reach

if TYPE_CHECKING:
    from .team import _Step

MAX_BATCHES, MAX_ROUNDS = 1 << 12, 1 << 16  # of a step, and of a batch
_ROW_BITS = 8  # see `board.holder`
WAIT_SECONDS = 0.02


class Overtaken(BaseException):
    """Ends the thread of a shard whose step the others have committed, or that failed elsewhere in this process."""


class Values:
    """The gathered values of a run's steps, in shared memory.

    A word per shard says how far it is, and in which member's memory its values are: (step, batch, gatherings done, row).

    Args:
        open_segment: opens memory that all members share, whose pages are there once they are written.
        board: of the run.
        row: this member's row on the board.
    """

    def __init__(self, open_segment: Callable[[str, int], Segment], board: Board, row: int) -> None:
        self._open, self._board, self._shards, self._row = open_segment, board, board.shape.shards, row
        self._f = atomics.functions()
        self._words = open_segment("gathered", 8 * self._shards).array((self._shards,), np.uint64)
        self._at = self._words.__array_interface__["data"][0]
        self._rooms: dict[tuple[int, int], np.ndarray] = {}

    def _progress(self, step: int, batch: int, done: int) -> int:
        """A word without its row: later ones are greater."""
        if batch >= MAX_BATCHES or done >= MAX_ROUNDS:
            raise RuntimeError(
                f"distributed: SyncBatchNorm exchanges values in at most {MAX_BATCHES:,} batches per step, "
                f"{MAX_ROUNDS - 1:,} times each. Got batch {batch:,}, exchange {done:,}."
            )
        return (step * MAX_BATCHES + batch) * MAX_ROUNDS + done

    def _room(self, batch: int, number: int, length: int) -> np.ndarray:
        """Memory for one gathering: two steps use it in turn, and every member has its own. A row begins with its step."""
        found = self._rooms.get((batch, number))
        if found is None:
            shape = (2, self._board.shape.members, self._shards, 1 + length)
            segment = self._open(f"gathered-{batch}-{number}", 8 * int(np.prod(shape)))
            found = self._rooms[batch, number] = segment.array(shape, np.float64)
        if found.shape[3] != 1 + length:
            raise _mismatch()
        return found

    def publish(self, step: int, batch: int, number: int, shard: int, values: np.ndarray) -> None:
        """Show the values of a shard in gathering `number` of a batch."""
        row = self._room(batch, number, len(values))[step & 1, self._row, shard]
        row[1:] = values
        row[0] = step
        reach("values written")
        new, at = self._progress(step, batch, number + 1), self._at + 8 * shard
        while (old := int(self._f.load(at))) >> _ROW_BITS < new:  # a copy of the shard may be ahead
            self._f.swap(at, old, new << _ROW_BITS | self._row)
        self._board.ring()

    def ready(self, step: int, batch: int, number: int, present: Sequence[int]) -> bool:
        """Whether all shards that have samples in the batch have published."""
        least = self._progress(step, batch, number + 1)
        return all(int(self._f.load(self._at + 8 * s)) >> _ROW_BITS >= least for s in present)

    def read(self, step: int, batch: int, number: int, present: Sequence[int], length: int) -> np.ndarray:
        """The values of all shards, one row each.

        Raises:
            Overtaken: the step is over, and the others have begun to overwrite them.
        """
        rows = [int(self._f.load(self._at + 8 * s)) & (1 << _ROW_BITS) - 1 for s in present]
        found = self._room(batch, number, length)[step & 1, rows, list(present)]
        if self._board.committed()[0] >= step:
            raise Overtaken
        if not (found[:, 0] == step).all():
            raise _mismatch()
        return found[:, 1:]


def _mismatch() -> RuntimeError:
    return RuntimeError(
        "distributed: the shards of a batch went through different layers with SyncBatchNorm. Which layers run must not depend "
        "on the data of a shard."
    )


class Switch(Protocol):
    """What belongs to the shard that runs, beside its thread: generators, buffers, gradients."""

    def take(self) -> Any:
        """A copy of all of it."""
        ...

    def put(self, taken: Any) -> None:
        """Restore what `take` returned."""
        ...


class ShardThread:
    """A shard that is being computed. Only one thread of a member runs at a time."""

    def __init__(self, shard: int, claimant: int, compute: Callable[[], Sequence[float]]) -> None:
        self.shard, self.claimant, self._compute = shard, claimant, compute
        self.awaits: tuple[int, int, Sequence[int]] | None = None  # batch, number, shards: what it waits for
        self.statistics: Sequence[float] | None = None
        self.error: BaseException | None = None
        self.done = False
        self.taken: Any = None
        self.index = -1  # of its slot
        self.seconds = 0.0  # that it has run
        self._ended = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"weft-shard-{shard}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._ended:
                self.statistics = self._compute()
        except BaseException as error:  # raised again by the member's main thread
            self.error = error
        self.done = True
        self._back.release()

    def resume(self) -> None:
        """Let it run until it waits or is done."""
        self.awaits, started = None, time.perf_counter()
        self._go.release()
        self._back.acquire()
        self.seconds += time.perf_counter() - started

    def wait_for(self, batch: int, number: int, present: Sequence[int]) -> None:
        """Called in the thread: give up the turn until all shards have published."""
        self.awaits = (batch, number, present)
        self._back.release()
        self._go.acquire()
        if self._ended:
            raise Overtaken

    def end(self) -> None:
        """End a thread that waits."""
        if not self.done:
            self._ended = True
            self.resume()
        self._thread.join()


class Together:
    """The shards of a step that this member computes, all at the same time."""

    def __init__(
        self, step: _Step, values: Values, switch: Switch, running: Callable[[ShardThread | None], None]
    ) -> None:
        self._step, self._values, self._switch, self._running = step, values, switch, running
        self._threads: list[ShardThread] = []

    def run(self) -> None:
        """Compute shards until all of the step are ready."""
        team = self._step.team
        outer = self._switch.take()
        live = team.peers.live()
        position = live.index(team.row) if team.row in live else 0
        with shard_body():  # once for all threads
            self._run(outer, position, max(len(live), 1))

    def _run(self, outer: Any, position: int, members: int) -> None:
        step, team, board = self._step, self._step.team, self._step.board
        try:
            for shard in tree.block(board.shape.shards, position, members):
                self._claim(shard)
            for shard in range(board.shape.shards):
                if shard not in step.weights:
                    self._claim(shard)
            waited = time.perf_counter()
            while not step.over:
                if self._advance(outer):
                    waited = time.perf_counter()
                    continue
                if board.all_ready("shards", board.shape.shards, step.number, team.rounds, WAIT_SECONDS):
                    return
                team.nap()
                if self._take_free() or time.perf_counter() - waited > team.patience and self._copy_slow():
                    waited = time.perf_counter()
        finally:
            for thread in self._threads:
                thread.end()
            self._switch.put(outer)

    def _claim(self, shard: int) -> bool:
        step = self._step
        if not step.board.claim("shards", shard, step.number, step.team.member):
            return False
        self._start(shard, step.team.member)
        return True

    def _start(self, shard: int, claimant: int) -> None:
        step = self._step
        if shard not in step.weights:  # no samples
            step.board.ready("shards", shard, step.number, step.team.member)
            return
        index, slot = step.take_slot()
        reach("shard claimed")
        thread = ShardThread(shard, claimant, lambda: step.leaf(shard, slot))
        thread.index = index
        self._threads.append(thread)

    def _advance(self, outer: Any) -> bool:
        """Run the shards that wait for nothing; whether there were any."""
        moved = False
        for thread in [t for t in self._threads if not t.done]:
            if thread.awaits is not None and not self._values.ready(self._step.number, *thread.awaits):
                continue
            moved = True
            if thread.taken is None:
                self._step.load_buffers()
            else:
                self._switch.put(thread.taken)
            self._running(thread)
            thread.resume()
            self._running(None)
            if isinstance(thread.error, Overtaken):
                self._switch.put(outer)
                return True
            if thread.error is not None:
                raise thread.error
            if thread.statistics is not None:
                self._step.finish(thread.shard, thread.claimant, thread.index, thread.statistics, thread.seconds)
            else:
                thread.taken = self._switch.take()
            self._switch.put(outer)
        if moved and all(t.done for t in self._threads):
            self._step.seal()
        return moved

    def _take_free(self) -> bool:
        step = self._step
        pending = step.board.pending("shards", step.board.shape.shards, step.number)
        return any(phase == FREE and self._claim(shard) for shard, phase, _ in reversed(pending))

    def _copy_slow(self) -> bool:
        """Compute a copy of a shard that another member has not finished; the first result counts."""
        step = self._step
        mine = {t.shard for t in self._threads}
        slow = [
            (shard, owner)
            for shard, phase, owner in step.board.pending("shards", step.board.shape.shards, step.number)
            if phase == CLAIMED and owner != step.team.member and shard in step.weights and shard not in mine
        ]
        if slow:
            self._start(*slow[-1 - step.team.row % len(slow)])
        return bool(slow)
