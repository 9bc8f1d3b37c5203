"""Members: which processes take part in a run on this host, and which of them are dead.

Each member has a row on the board with its identity: process number and start time, so that a reused number is not mistaken
for the old process. A member is dead when the kernel says so (pidfd), never because it is silent. A member that is silent
for long, because it is stopped or swapped out, is killed first: only then may others use the memory it could write to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .board import BEAT, GENERATION, INCARNATION, LEAD, LEADING, LINE, PID, SEEN, Board, holder
from .failpoints import reach
from .processes import FROZEN_SECONDS, STARVED_SECONDS, Handles, identity, start_time, wait_gone, wants_to_run

REAP_SECONDS = 10.0
SUSPECT_SECONDS = 0.5  # for which this process must have run since it found another one silent
JOIN_SECONDS = 30.0  # how long to wait for a row: a process that was killed may take a while to end
RETIRED = (1 << 64) - 1  # in the place of the lead's identity: its program is complete


class Peers:
    """The members as one of them sees them."""

    def __init__(self, board: Board, relay: bool = False) -> None:
        self.board = board
        workers = board.shape.members - board.shape.relayed
        self._rows = range(workers, board.shape.members) if relay else range(workers)
        self._processes = Handles()
        self.me = self.id = 0
        self.left = False
        self.row = self._join()
        self._generation = -1
        self._live: list[int] = []
        self.killed: list[int] = []
        self._suspects: dict[int, tuple[int, int]] = {}  # row -> (last sign of life, when it was found to be old)

    def _word(self, row: int, field: int) -> int:
        return row * LINE + field

    def _join(self) -> int:
        pid = os.getpid()
        self.me = identity(pid, start_time(pid) or 0)
        return self._take_row()

    def _take_row(self) -> int:
        end = time.monotonic() + JOIN_SECONDS
        while (row := self._try_rows()) is None:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"distributed: the run has room for {len(self._rows)} workers on this host, and all are there. "
                    "Start it with a larger --workers."
                )
            time.sleep(0.01)
        return row

    def _try_rows(self) -> int | None:
        board = self.board
        for row in self._rows:
            old = board.load("members", self._word(row, PID))
            if old and self.alive(old):
                continue
            if old:
                self.bury(row, old)
            if board.swap("members", self._word(row, PID), 0, self.me):
                reach("row taken")
                incarnation = board.add("members", self._word(row, INCARNATION), 1) + 1
                self.id = holder(row, incarnation)
                board.store("members", self._word(row, BEAT), time.monotonic_ns())
                board.store("members", self._word(row, SEEN), board.committed()[0])
                if row < board.shape.members - board.shape.relayed:
                    board.swap("header", LEAD, 0, self.me)
                board.add("header", GENERATION, 1)
                board.ring()
                return row
        return None

    def leave(self) -> None:
        """Give up the row, at the end of the run."""
        self.left = True
        self.board.store("members", self._word(self.row, PID), 0)
        reach("row left")
        self.board.add("header", GENERATION, 1)
        self.board.ring()

    def beat(self) -> None:
        """Say that this process runs."""
        self.board.store("members", self._word(self.row, BEAT), time.monotonic_ns())

    def alive(self, who: int) -> bool:
        """Whether a process runs, going by its identity."""
        return self._processes.alive(who)

    def bury(self, row: int, who: int) -> None:
        """Remove a member that is dead: its claims are free, its row may be taken. Any number of members may do this at once."""
        board = self.board
        incarnation = board.load("members", self._word(row, INCARNATION))
        if board.load("members", self._word(row, PID)) != who:
            return  # another member did this, or the process left at the end of the run
        board.release(holder(row, incarnation))
        reach("claims released")
        if board.load("header", LEAD) == who:
            words = [board.load("members", self._word(r, PID)) for r in range(self.workers)]
            board.swap("header", LEAD, who, next((w for w in words if w and w != who and self.alive(w)), 0))
        if board.swap("members", self._word(row, PID), who, 0):
            board.add("header", GENERATION, 1)
        board.ring()

    @property
    def workers(self) -> int:
        """How many rows are for workers; a relay has the row after them."""
        return self.board.shape.members - self.board.shape.relayed

    def relay_runs(self) -> bool:
        """Whether there is a relay now."""
        return bool(self.board.load("members", self._word(self.workers, PID)))

    def live(self) -> list[int]:
        """The rows of all workers, as of the last change that was noticed."""
        generation = self.board.load("header", GENERATION)
        if generation != self._generation:
            self._generation = generation
            self._live = [r for r in range(self.workers) if self.board.load("members", self._word(r, PID))]
        return self._live

    def present(self, member: int) -> bool:
        """Whether the member that signs with `member` is there."""
        row = member & 0xFF
        board = self.board
        who = board.load("members", self._word(row, PID))
        return bool(who) and holder(row, board.load("members", self._word(row, INCARNATION))) == member

    def lead(self) -> bool:
        """Whether this process is the lead of all hosts."""
        if self.board.shape.relayed and not self.board.load("header", LEADING):
            return False
        lead = self.board.load("header", LEAD)
        if lead == self.me or lead == RETIRED or self.left:
            return lead == self.me
        if lead == 0 or not self.alive(lead):  # it may have been killed after it left, in the rest of its program
            return self.board.swap("header", LEAD, lead, self.me)
        return False

    def retire(self) -> None:
        """Say that the lead's program is complete: nobody needs to do the rest of it again. Nothing happens elsewhere."""
        self.board.swap("header", LEAD, self.me, RETIRED)

    def look(self) -> int:
        """Remove the members that have died; returns how many. A frozen member is killed first."""
        board, now, found = self.board, time.monotonic_ns(), 0
        for row in range(board.shape.members):
            who = board.load("members", self._word(row, PID))
            if not who or row == self.row:
                continue
            if self.alive(who):
                if not self._frozen(row, who, now) or not self._fence(who):
                    continue
                self.killed.append(row)
            self.bury(row, who)
            found += 1
        return found

    def _frozen(self, row: int, who: int, now: int) -> bool:
        """Whether a process is silent because it does not run, and will not soon.

        One that wants a processor, or its memory back from a disk, has longer: on a busy machine it may have to wait. If all
        processes were paused at once, as when a virtual machine is, each gets the time to show a sign of life first.
        """
        beat = self.board.load("members", self._word(row, BEAT))
        silent = (now - beat) / 1e9
        if silent < FROZEN_SECONDS:
            self._suspects.pop(row, None)
            return False
        before, since = self._suspects.get(row, (0, now))
        if before != beat:
            before, since = self._suspects[row] = (beat, now)
        if now - since < SUSPECT_SECONDS * 1e9:
            return False
        return silent > STARVED_SECONDS or not wants_to_run(who >> 32)

    def fence(self, member: int) -> None:
        """Kill the process that signs with `member`, if it is there, and wait until it is gone."""
        who = self.board.load("members", self._word(member & 0xFF, PID))
        if who and self.present(member):
            self._fence(who)

    def _fence(self, who: int) -> bool:
        """Kill a frozen process and wait until it is gone; False if that cannot be done."""
        handle = self._processes.of(who)
        if handle < 0:
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return wait_gone(handle, REAP_SECONDS)
