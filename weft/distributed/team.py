"""Team: one global step after the other, computed by whichever members are there.

Every member runs the same program and calls the same steps in the same order. A step has *shards*, each computed by one
member (`leaf`), and *slices* of the state, each updated by one member. Members prefer their own block and then take what is
free, so a dead or slow member's work is done by the others within the step. The result of a step is one row of numbers in the
log; a member that comes late, or was overtaken, reads it there. See `board` for what makes this safe.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..multiprocessing import Segment
from ..runtime._host import usable_cpus
from . import events, tree
from .board import (
    BLOCK,
    CLAIMED,
    FREE,
    HOLD,
    LEAD,
    LINE,
    NO_SLOT,
    READY,
    RELEASED,
    SEEN,
    SHARD_TIME,
    STOP,
    STOP_AT,
    WIDTH,
    Board,
    Log,
    Place,
    Shape,
    split,
)  # fmt: skip
from .checks import Checks
from .communicator import check_abort, shard_body
from .failpoints import reach
from .figures import Figures
from .keeper import LOST
from .members import Peers
from .shelf import Shelf
from .stragglers import EVERY, Stragglers, durations, report
from .trace import recorder, traced

SPIN_ROUNDS = 4000  # polls before a member sleeps, about 0.1 ms
NAP_SECONDS = 0.02  # how long it sleeps before it looks after the others
GLANCE_SECONDS = 0.0005  # and before it looks for shards that are left
BEAT_SECONDS = 0.2
BACKUP_AFTER = 1.0  # times the usual duration of a shard, after the own ones, before a copy of another's is started
SLOW = 1.5  # times as long as the own ones: the shards of such a member are copied without waiting
MIN_PATIENCE = 0.005

Leaf = Callable[[int, Any], Sequence[float]]
"""computes shard number s; for training it leaves gradients in the slot given. Returns the shard's statistics: the weight of its
loss and gradients, its loss, numbers that are summed over the shards, and whether the step must not change the state"""


class StateLost(SystemExit):
    """A member died while it updated a slice of a state that is kept once: this worker ends, and the run starts anew."""

    def __init__(self) -> None:
        super().__init__(LOST)


class Team:
    """This process's part in a run.

    Args:
        board: where members coordinate.
        shelf: the state, attached to its memory.
        gradients: memory for `slots` gradient slots per member.
        update: computes a slice: (index, {node: slot}, plan, factor of the gradients or None to keep the old state, sum of the
            samples' weights, old buffer, new buffer).
        norm: the sum of the squares of a slice's gradient, (index, {node: slot}, plan, scale), and None if nothing needs it.
        clip: the factor of the gradients, from their squared norm.
        open_segment: opens more of the run's memory: (name, bytes).
        steps: how many steps the run may have.
        peers: the other members; by default processes of this host.
        on_idle: called now and then by the heartbeat.
    """

    def __init__(
        self,
        board: Board,
        shelf: Shelf,
        gradients: Segment,
        update: Callable[[int, dict[tuple[int, int], Any], Any, float | None, float, int, int], None],
        open_segment: Callable[[str, int], Segment],
        steps: int,
        norm: Callable[[int, dict[tuple[int, int], Any], Any, float], float] | None = None,
        clip: Callable[[float], float] = lambda square: 1.0,
        on_idle: Callable[[], None] = lambda: None,
        peers: Peers | None = None,
    ) -> None:
        self.board, self.shelf, self.update, self.norm, self.clip = board, shelf, update, norm, clip
        self.peers = Peers(board) if peers is None else peers
        self.on_idle = on_idle
        self._gradients, self._open, self._steps = gradients, open_segment, steps
        self._log: Log | None = None
        self._slots: dict[tuple[int, int], dict[Any, np.ndarray]] = {}
        self.version = 0
        self.lean = shelf.copies == 1
        self.checks: Checks | None = None  # against silent corruption
        self.together: Callable[[_Step], None] | None = None
        """computes the shards of a step at the same time, for models whose shards gather values"""
        self._cpus = usable_cpus()
        self.figures = Figures(board, self.peers.row)
        self.stragglers = Stragglers()
        self.recorder = recorder()
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="weft-heartbeat", daemon=True)
        self._beating.start()

    @property
    def rounds(self) -> int:
        """How long to spin: not at all if the members need the processors."""
        return SPIN_ROUNDS if len(self.peers.live()) <= self._cpus else 0

    @property
    def member(self) -> int:
        """How this member signs what it claims."""
        return self.peers.id

    @property
    def row(self) -> int:
        """This member's row on the board, and the number of its gradient slots."""
        return self.peers.row

    @staticmethod
    def slots_per_member(shards: int) -> int:
        """Slots a member may need: partial sums of its own and those that its predecessor in the row left."""
        return shards + 2 * max(shards - 1, 1).bit_length() + 2

    @staticmethod
    def gradient_bytes(shelf: Shelf, shape: Shape) -> int:
        return shape.members * Team.row_slots(shape) * shelf.slot.nbytes

    @staticmethod
    def row_slots(shape: Shape) -> int:
        """Slots in a member's row. With a relay, two steps use them in turn: it may still send those of the step before."""
        return Team.slots_per_member(shape.shards) * (2 if shape.relayed else 1)

    def slot(self, member: int, index: int) -> dict[Any, np.ndarray]:
        """The arrays of a gradient slot."""
        found = self._slots.get((member, index))
        if found is None:
            number = member * self.row_slots(self.board.shape) + index
            found = self._slots[member, index] = self.shelf.slot.views(self._gradients, number * self.shelf.slot.nbytes)
        return found

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self.peers.beat()
            self.on_idle()

    def close(self) -> None:
        """Leave the run."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._beating.join(5.0)
        self.peers.leave()

    # A step ---------------------------------------------------------------------------------------------------------

    def step(self, leaf: Leaf, shards: Sequence[int], weights: Sequence[float], trains: bool) -> np.ndarray:
        """One global step.

        Returns its row of the log: the sum of the weights, the weighted sum of the losses, the sums of the other statistics, and
        whether a member was asked to stop.

        Args:
            leaf: computes one shard.
            shards: the shards that have samples.
            weights: the samples of each of them, relative to their mean, by position: the weights of buffers.
            trains: whether the state is updated.
        """
        board, number = self.board, self.version + 1
        board.show(self.row, None)
        if self.version >= self._steps:
            raise RuntimeError(f"distributed: the run's log holds {self._steps:,} steps, and they are used up.")
        kind = _Step if self.recorder is None or not self.recorder.wants(number) else traced(_Step)
        work = kind(self, leaf, list(shards), dict(zip(shards, weights)), number, trains)
        if board.shape.relayed:
            self._await_permission(number)
        if board.committed()[0] < number:
            if self.checks is not None:
                self.checks.before(number)
            started = time.perf_counter()
            work.run()
            self.figures.step_done(time.perf_counter() - started)
            if number == 1 and board.load("header", LEAD) == self.peers.me:
                events.tell("first_step", step=1)
            if number % EVERY == 0 and board.load("header", LEAD) == self.peers.me:
                for verdict in self.stragglers.check(durations(board)):
                    report(verdict, number)
        self._passed(number)
        row: np.ndarray = self.log().rows[number - 1]
        if self.checks is not None:
            self.checks.after(number, row, work.shards, trains)
        return row

    def write(self, copy: Callable[[int, int], None]) -> None:
        """A step without shards, for what is changed outside of steps.

        Args:
            copy: writes a slice of the new state: (index, new buffer). All members would write the same.
        """
        board, number = self.board, self.version + 1
        board.show(self.row, None)
        if board.shape.relayed:
            self._await_permission(number)
        if board.committed()[0] < number:
            _Step(self, lambda shard, slot: (), [], {}, number, True).write(copy)
        self._passed(number)

    def _passed(self, number: int) -> None:
        """Step `number` is over: show its result, unless the others are ahead."""
        board = self.board
        self.version = number
        board.store("members", self.row * LINE + SEEN, number)
        version, buffer = board.committed()
        if version == number:
            board.show(self.row, buffer)
            if board.committed()[0] != number:  # the others may have begun to overwrite it before they knew
                board.show(self.row, None)
            self.shelf.bind(buffer)

    def log(self, width: int | None = None) -> Log:
        """The run's log. Its width, the numbers per step, is fixed by the first shard of the run that is computed.

        Raises:
            RuntimeError: this shard reports another number of statistics than the first one.
        """
        if self._log is None:
            if width is not None:
                self.board.swap("header", WIDTH, 0, width)
            found = self.board.load("header", WIDTH)
            self._log = Log(self._open, self.board.shape.shards, found, self._steps)
        if width is not None and width != self._log.width:
            raise RuntimeError(
                f"distributed: a shard reports {width - 3} numbers, but the run began with {self._log.width - 3}. All shards of "
                "all steps must report the same metrics."
            )
        return self._log

    def _await_permission(self, number: int) -> None:
        """Wait while the relay holds this host back."""
        board = self.board
        while not board.load("header", BLOCK) or 0 < board.load("header", HOLD) <= number:
            self.nap()
            time.sleep(0.001)

    def shards_of_host(self) -> range:
        """The shards that the workers of this host compute; those of other hosts come from the relay."""
        board = self.board
        if not board.shape.relayed:
            return range(board.shape.shards)
        word = board.load("header", BLOCK)
        return range(word >> 16 & 0xFFFF, word & 0xFFFF)

    def may_take(self, shard: int, number: int) -> bool:
        """Whether workers may compute a shard: it is this host's, or has not come from another host in time."""
        if not self.board.shape.relayed or shard in self.shards_of_host():
            return True
        return self.board.load("header", RELEASED) >= number or not self.peers.relay_runs()

    def settle(self) -> None:
        """Show the committed state in the model, before anything but a step reads it.

        Other members may be ahead; `pinned` keeps the state from being overwritten while it is read.
        """
        self.shelf.bind(self.board.committed()[1])

    def nap(self) -> None:
        """Look after the others while there is nothing to do."""
        self.peers.look()
        check_abort()

    @property
    def patience(self) -> float:
        """Seconds after which a shard that another member computes is computed here too."""
        return max(BACKUP_AFTER * self.figures.shard_seconds, MIN_PATIENCE)

    def patience_with(self, member: int) -> float:
        """As `patience`, for the shards of one member: there is none with a straggler, whose shard would end later than a copy
        that is begun now. The members take their turns, so that not all make a copy at once."""
        own, row, live = self.figures.shard_seconds, member & 0xFF, self.peers.live()
        usual = int(self.board.members[row, SHARD_TIME]) / 1e9
        first = MIN_PATIENCE if usual > SLOW * own else self.patience
        if row not in live or self.row not in live:
            return first
        turn = (live.index(self.row) - live.index(row)) % len(live) - 1
        return first + turn * own


class _Step:
    """One step as one member runs it."""

    def __init__(
        self, team: Team, leaf: Leaf, shards: list[int], weights: dict[int, float], number: int, trains: bool
    ) -> None:
        self.team, self.board, self.leaf = team, team.board, leaf
        self.shards, self.weights, self.number, self.trains = shards, weights, number, trains
        self.buffer = team.board.committed()[1]
        self.stack: list[tuple[tuple[int, int], int]] = []  # (node, slot) of the partial sums not published yet
        self.unsealed: list[int] = []  # the shards in them
        self.sealed: set[int] = set()  # slots that others may read
        self.free_slots = self._unused_slots()

    def _unused_slots(self) -> list[int]:
        """Slots of this member's row, but those that hold what a predecessor published in this step."""
        board, row = self.board, self.team.row
        used = set()
        for shard in self.shards:
            step, phase, owner = split(board.load("shards", shard))
            if step == self.number and phase == READY and owner & 0xFF == row:
                used.add(board.place(shard, step).slot)
        count = self.team.slots_per_member(board.shape.shards)
        first = count * (self.number & 1) if board.shape.relayed else 0
        return [i for i in range(first + count - 1, first - 1, -1) if i not in used]

    @property
    def over(self) -> bool:
        """Whether the others have committed this step meanwhile."""
        return self.board.committed()[0] >= self.number

    def run(self) -> None:
        """Compute shards, then slices, then commit; returns early when the others are done."""
        self._compute_shards()
        if self.over:
            return
        if self.trains:
            places = self._places()
            if places is None:
                return
            plan = tree.plan(self.board.shape.shards, self.shards, places)
            self._update_slices(places, plan)
        else:
            self._update_slices({}, None)
        if not self.over:
            self._commit()

    def _commit(self) -> None:
        reach("before commit")
        self.board.commit(self.number - 1, self.buffer, self.trains)
        reach("after commit")

    def _await(self, kind: str, count: int, seconds: float = NAP_SECONDS) -> bool:
        """Wait until all units of a kind are ready; False after a short time, to look after the others."""
        return self.board.all_ready(kind, count, self.number, self.team.rounds, seconds)

    # Shards ---------------------------------------------------------------------------------------------------------

    def _compute_shards(self) -> None:
        team, board = self.team, self.board
        if team.together is not None:
            team.together(self)
            return
        live = team.peers.live()
        position = live.index(team.row) if team.row in live else 0
        mine = team.shards_of_host()
        for index in tree.block(len(mine), position, max(len(live), 1)):
            if board.claim("shards", mine[index], self.number, team.member):
                self._compute(mine[index], team.member)
        self.seal()
        for shard in range(board.shape.shards):
            if shard not in self.weights and board.claim("shards", shard, self.number, team.member):
                self._compute(shard, team.member)
        waited, glances = time.perf_counter(), 0
        pause = min(NAP_SECONDS, max(GLANCE_SECONDS, team.figures.shard_seconds / 4))
        while not self._await("shards", board.shape.shards, pause if glances else GLANCE_SECONDS):
            if self.over:
                return
            if glances:
                team.nap()
            glances += 1
            if self._take_free():
                waited = time.perf_counter()
            elif self._copy_slow(time.perf_counter() - waited):
                waited = time.perf_counter()

    def _take_free(self) -> bool:
        """Compute a shard that nobody has claimed."""
        team = self.team
        for shard, phase, _ in reversed(self.board.pending("shards", self.board.shape.shards, self.number)):
            if phase != FREE or not team.may_take(shard, self.number):
                continue
            if self.board.claim("shards", shard, self.number, team.member):
                self._compute(shard, team.member)
                self.seal()
                return True
        return False

    def _copy_slow(self, waited: float) -> bool:
        """Compute a copy of a shard that another member has not finished for too long; the first result counts."""
        team = self.team
        slow = [
            (i, owner)
            for i, phase, owner in self.board.pending("shards", self.board.shape.shards, self.number)
            if phase == CLAIMED and owner != team.member and i in self.weights and waited > team.patience_with(owner)
        ]
        if not slow:
            return False
        shard, owner = slow[-1 - team.row % len(slow)]
        self._compute(shard, owner)
        self.seal()
        return True

    def _compute(self, shard: int, claimant: int) -> None:
        """Compute a claimed shard."""
        team, board = self.team, self.board
        if shard not in self.weights:  # no samples
            board.ready("shards", shard, self.number, team.member)
            return
        index, slot = self.take_slot()
        started = time.perf_counter()
        self.load_buffers()
        statistics = self.compute_leaf(shard, slot)
        self.finish(shard, claimant, index, statistics, time.perf_counter() - started)

    def take_slot(self) -> tuple[int, Any]:
        """A slot for the gradients of a shard: its number, and its arrays if the step trains."""
        index = self.free_slots.pop()
        return index, self.team.slot(self.team.row, index) if self.trains else None

    def load_buffers(self) -> None:
        """Let the model have the committed values of its buffers."""
        self.team.shelf.buffers.load(self.team.shelf.memory[self.buffer])

    def compute_leaf(self, shard: int, slot: Any) -> Sequence[float]:
        """Run the program of a shard."""
        reach("shard claimed")
        with shard_body():
            return self.leaf(shard, slot)

    def finish(self, shard: int, claimant: int, index: int, statistics: Sequence[float], seconds: float) -> None:
        """A shard was computed, in `seconds`: if it wins, its gradients join the partial sums of this member."""
        team, board = self.team, self.board
        slot = team.slot(team.row, index) if self.trains else None
        if slot is not None:
            team.shelf.buffers.store(slot, self.weights[shard], team.shelf.memory[self.buffer])
        if team.checks is not None:
            team.checks.shard(self, shard, slot)
        team.figures.shard_done(seconds)
        reach("shard computed")
        if not board.win(shard, self.number, team.member, claimant):
            self.free_slots.append(index)
            return
        reach("shard won")
        team.log(len(statistics) + 1).statistics[self.number & 1, shard, :-1] = statistics
        self.unsealed.append(shard)
        if slot is None:
            board.set_place(shard, Place(0, shard, team.row, NO_SLOT, self.number))
            self.free_slots.append(index)
            return
        nodes = [node for node, _ in self.stack]
        sums = tree.push(nodes, shard)
        for _ in range(sums):
            _, into = self.stack.pop()
            team.shelf.add(team.slot(team.row, into), team.slot(team.row, index))
            reach("partial sum")
            self.free_slots.append(index)
            index = into
        self.stack.append((nodes[-1], index))

    def seal(self) -> None:
        """Publish the partial sums; they are not changed any more in this step."""
        board, member = self.board, self.team.member
        for node, index in self.stack:
            level, position = node
            place = Place(level, position, self.team.row, index, self.number)
            for shard in place.inside(board.shape.shards):
                if shard in self.weights:
                    board.set_place(shard, place)
        for shard in self.unsealed:
            reach("shard placed")
            board.ready("shards", shard, self.number, member)
        if self.unsealed:
            board.ring()
        self.stack, self.unsealed = [], []

    def _places(self) -> dict[tuple[int, int], Any] | None:
        """The published partial sums and their memory; None if the step is over."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for shard in self.shards:
            place = self.board.place(shard, self.number)
            found[place.level, place.position] = (place.row, place.slot)
        if self.over:
            return None
        return {node: self.team.slot(*where) for node, where in found.items()}

    # Slices ---------------------------------------------------------------------------------------------------------

    def _update_slices(self, places: dict[tuple[int, int], Any], plan: Any) -> None:
        team, target = self.team, self.buffer ^ 1
        samples = float(tree.total([self.weights[s] for s in self.shards]))
        scale = self._scale() if self.trains else None
        norm = team.norm
        if scale is not None and norm is not None:
            mean = scale

            def measure(index: int) -> None:
                self.board.norm_values[index] = norm(index, places, plan, mean)

            if not self._all_units("norms", self.board.shape.slices, measure):
                return
            square = float(tree.total(list(self.board.norm_values)))
            if self.over:
                return
            scale *= team.clip(square)

        def update(index: int) -> None:
            if index == 0:
                self._write_log()
            if self.trains:
                team.update(index, places, plan, scale, samples, self.buffer, target)
                if team.checks is not None:
                    team.checks.slice(self.number, index, target)

        if self.trains and not self._await_readers(target):
            return
        self._all_units("slices", self.board.shape.slices if self.trains else 1, update)

    def write(self, copy: Callable[[int, int], None]) -> None:
        """A step without shards: copy the slices of the new state, then commit."""
        target = self.buffer ^ 1
        if not self._await_readers(target):
            return
        if self._all_units("slices", self.board.shape.slices, lambda index: copy(index, target)):
            self._commit()

    def _await_readers(self, target: int) -> bool:
        """Wait until no other member reads the buffer that will be overwritten; False if the step is over."""
        team, board = self.team, self.board
        while not board.writable(target, team.member) or any(
            board.read_by_others(buffer, team.row) for buffer in ((0, 1) if team.lean else (target,))
        ):
            if self.over:
                return False
            team.nap()
            time.sleep(0.0002)
        return True

    def _all_units(self, kind: str, count: int, compute: Callable[[int], None]) -> bool:
        """Compute the units of this member's block and those that are free, until all are ready; False if the step is over."""
        team, board = self.team, self.board
        live = team.peers.live()
        position = live.index(team.row) if team.row in live else 0
        wanted: Iterable[int] = tree.block(count, position, max(len(live), 1))
        in_place = team.lean and self.trains and kind == "slices"  # then a slice cannot be computed a second time
        while True:
            for index in wanted:
                if in_place and board.released(kind, index, self.number):
                    raise StateLost
                if board.claim(kind, index, self.number, team.member, again=not in_place):
                    reach(f"{kind} claimed")
                    compute(index)
                    reach(f"{kind} written")
                    board.ready(kind, index, self.number, team.member)
            board.ring()
            if self._await(kind, count):
                return not self.over
            if self.over:
                return False
            team.nap()
            wanted = [i for i, phase, _ in board.pending(kind, count, self.number) if phase == FREE]

    def _asked_to_stop(self) -> int:
        """The signal at which the run ends with this step; all hosts know the step beforehand."""
        if not self.board.shape.relayed:
            return self.board.load("header", STOP)
        word = self.board.load("header", STOP_AT)
        return word & 0xFF if word >> 8 == self.number else 0

    def _scale(self) -> float | None:
        """The factor that makes the sum of the shards' gradients their mean; None if the state must not change."""
        table = self.team.log().statistics[self.number & 1]
        if any(table[s, -2] for s in self.shards):
            return None
        weight = float(tree.total([table[s, 0] for s in self.shards]))
        return 1.0 / weight if weight else math.nan

    def _write_log(self) -> None:
        """The sum of the weights, the weighted sum of the losses, the sums of the other statistics."""
        log = self.team.log()
        table = log.statistics[self.number & 1]
        row = np.zeros(log.width)
        row[-1] = self._asked_to_stop()
        row[0] = tree.total([table[s, 0] for s in self.shards])
        row[1] = tree.total([table[s, 0] * table[s, 1] for s in self.shards])
        row[2:-1] = tree.total([table[s, 2:-1] for s in self.shards])
        log.rows[self.number - 1] = row
        reach("log written")
