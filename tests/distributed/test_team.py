"""Steps of a team whose members are threads of this process and die at chosen points."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import nn, optim
from weft.distributed import failpoints
from weft.distributed.board import Board, Shape
from weft.distributed.gathering import Overtaken, Values
from weft.distributed.members import Peers
from weft.distributed.shelf import PRESENT, Shelf
from weft.distributed.team import Team
from weft.multiprocessing import Segment

SHARDS, MEMBERS, STEPS = 5, 4, 4
POINTS = [
    "shard claimed", "shard computed", "shard won", "partial sum", "shard placed", "slices claimed", "slices written",
    "log written", "before commit", "after commit",
]  # fmt: skip


class Killed(BaseException):
    """Ends a member at a fail point, as SIGKILL would: nothing after it runs."""


class ThreadPeers(Peers):
    """Members that are threads. `dead` stands for what the kernel knows."""

    def __init__(self, board: Board, number: int, dead: set[int]) -> None:
        self._number, self._dead = number, dead
        super().__init__(board)

    def _join(self) -> int:
        self.me = self._number
        return self._take_row()

    def alive(self, who: int) -> bool:
        return who not in self._dead


class Sandbox:
    """The memory of a run, and members in threads."""

    def __init__(self) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        self.shelf = Shelf(optimizer, [], [], SHARDS)
        self.shape = Shape(SHARDS, len(self.shelf.slices), MEMBERS)
        self.segments: dict[str, Segment] = {}
        self.lock = threading.Lock()
        self.board = Board(self.segment("board", Board.nbytes(self.shape)), self.shape)
        self.dead: set[int] = set()
        self.numbers = iter(range(1, 1000))
        self.samples: Counter[tuple[int, int]] = Counter()
        self.errors: list[BaseException] = []
        self.between: Callable[[int, int], None] = lambda number, step: None  # called by members after a step

    def segment(self, name: str, nbytes: int) -> Segment:
        with self.lock:
            return self.segments.setdefault(name, Segment.create(nbytes))

    def member(self, steps: int) -> None:
        """One member, from its start to the end of the run."""
        number = next(self.numbers)
        try:
            self._run(number, steps)
        except Killed:
            self.dead.add(number)
        except BaseException as error:  # reported by the test
            self.errors.append(error)
            self.dead.add(number)

    def _run(self, number: int, steps: int) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        shelf = Shelf(optim.SGD(model.parameters(), lr=0.1), [], [], SHARDS)
        shelf.attach(self.segment("state", shelf.nbytes))
        gradients = self.segment("gradients", Team.gradient_bytes(shelf, self.board.shape))

        def update(index: int, places: Any, plan: Any, scale: float, weight: float, old: int, new: int) -> None:
            if index == 0:
                return
            part = shelf.slices[index - 1]
            total = _sum(plan, {node: slot[part.family, ""] for node, slot in places.items()})
            before, after = (shelf.memory[b][part.family, ""] for b in (old, new))
            after[part.start : part.stop] = (before * np.float32(0.5) + total * np.float32(scale))[
                part.start : part.stop
            ]

        peers = ThreadPeers(self.board, number, self.dead)
        team = Team(self.board, shelf, gradients, update, self.segment, steps, peers=peers)
        try:
            for step in range(steps):

                def leaf(shard: int, slot: Any, step: int = step) -> list[float]:
                    for name, array in slot.items():
                        family = 99 if name == PRESENT else name[0]
                        array[...] = np.random.default_rng([step, shard, family]).normal(size=array.shape)
                    return [1.0, float(step * 10 + shard), 0.0]

                row = team.step(leaf, range(SHARDS), [1.0] * SHARDS, True)
                assert row[1] / row[0] == step * 10 + 2.0
                self.between(number, step)
        finally:
            team._stop.set()
        peers.leave()


def _sum(plan: Any, values: dict[Any, Any]) -> Any:
    return values[plan] if isinstance(plan[0], int) else _sum(plan[0], values) + _sum(plan[1], values)


def run(members: int, hook: Callable[[str], None] | None, replacements: int = 0) -> bytes:
    """A whole run; returns the bytes of the final weights."""
    sandbox = Sandbox()
    failpoints.hook = hook
    try:
        threads = [threading.Thread(target=sandbox.member, args=(STEPS,)) for _ in range(members)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while any(t.is_alive() for t in threads) or replacements and len(sandbox.dead) > len(threads) - members:
            assert time.monotonic() < end, "the run hangs"
            for thread in threads:
                thread.join(0.005)
            if replacements and len(sandbox.dead) > len(threads) - members:
                replacements -= 1
                threads.append(threading.Thread(target=sandbox.member, args=(STEPS,)))
                threads[-1].start()
    finally:
        failpoints.hook = None
    assert not sandbox.errors, sandbox.errors
    version, buffer = sandbox.board.committed()
    assert version == STEPS
    shelf = sandbox.shelf
    shelf.attach(sandbox.segment("state", shelf.nbytes))
    return b"".join(a.tobytes() for a in shelf.memory[buffer].values())


@pytest.fixture(scope="module")
def undisturbed() -> bytes:
    return run(1, None)


@pytest.mark.parametrize("members", [2, 3, 4])
def test_the_number_of_members_does_not_change_the_bits(members: int, undisturbed: bytes) -> None:
    assert run(members, None) == undisturbed


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_dies_at_any_point_changes_nothing(point: str, undisturbed: bytes) -> None:
    for occurrence in (1, 2, 5):
        reached = Counter[str]()
        lock = threading.Lock()

        def hook(name: str, occurrence: int = occurrence, reached: Counter[str] = reached, lock: Any = lock) -> None:
            with lock:
                reached[name] += 1
                due = name == point and reached[name] == occurrence
            if due:
                raise Killed

        assert run(2 if point == "partial sum" else 3, hook) == undisturbed
        assert reached[point], f"the point {point!r} was never reached"


def test_random_deaths_and_replacements_change_nothing(undisturbed: bytes) -> None:
    for seed in range(15):
        rng, lock = random.Random(seed), threading.Lock()
        deaths = [3]

        def hook(name: str, rng: random.Random = rng, lock: Any = lock, deaths: list[int] = deaths) -> None:
            with lock:
                due = deaths[0] > 0 and rng.random() < 0.03
                deaths[0] -= due
            if due:
                raise Killed

        assert run(4, hook, replacements=3) == undisturbed, f"seed {seed}"


def test_the_last_member_can_be_replaced(undisturbed: bytes) -> None:
    seen = [0]

    def hook(name: str) -> None:
        seen[0] += name == "shard won"
        if name == "shard won" and seen[0] == 7:
            raise Killed

    assert run(1, hook, replacements=1) == undisturbed


def test_what_a_member_reads_between_steps_is_not_overwritten() -> None:
    sandbox = Sandbox()
    reading, go_on = threading.Event(), threading.Event()

    def between(number: int, step: int) -> None:
        if number == 1 and step == 0:
            reading.set()
            assert go_on.wait(30)

    sandbox.between = between
    threads = [threading.Thread(target=sandbox.member, args=(STEPS,)) for _ in range(2)]
    threads[0].start()
    assert reading.wait(30)
    buffer = sandbox.board.committed()[1]
    sandbox.shelf.attach(sandbox.segment("state", sandbox.shelf.nbytes))
    before = {name: array.copy() for name, array in sandbox.shelf.memory[buffer].items()}
    threads[1].start()  # passes the first step, and does the second alone
    end = time.monotonic() + 30
    while sandbox.board.committed()[0] < 2:
        assert time.monotonic() < end
        time.sleep(0.001)
    time.sleep(0.1)
    assert sandbox.board.committed()[0] == 2, "the third step overwrites what the first member reads"
    for name, array in sandbox.shelf.memory[buffer].items():
        np.testing.assert_array_equal(array, before[name])
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert not sandbox.errors and sandbox.board.committed()[0] == STEPS


def test_a_shard_with_another_number_of_metrics_is_refused() -> None:
    sandbox = Sandbox()
    team = Team(
        sandbox.board, sandbox.shelf, sandbox.segment("g", 1), lambda *a: None, sandbox.segment, 3,
        peers=ThreadPeers(sandbox.board, 1, set()),
    )  # fmt: skip
    try:
        team.log(4)
        with pytest.raises(RuntimeError, match="reports 2 numbers, but the run began with 1"):
            team.log(5)
    finally:
        team._stop.set()


def test_a_member_that_was_overtaken_leaves_the_values_of_later_steps_alone():
    shape = Shape(2, 1, 3)
    segments: dict[str, Segment] = {}

    def segment(name: str, nbytes: int) -> Segment:
        return segments.setdefault(name, Segment.create(nbytes))

    board = Board(segment("board", Board.nbytes(shape)), shape)
    slow, first, second = (Values(segment, board, row) for row in range(3))

    def values(step: int, shard: int) -> np.ndarray:
        return np.array([10.0 * step + shard, 1.0])

    for step in (1, 2, 3):  # a copy of the slow member's shard wins
        for shard, member in enumerate((first, second)):
            member.publish(step, 0, 0, shard, values(step, shard))
        if step == 1:
            slow.publish(1, 0, 0, 1, values(1, 1))
            assert slow.ready(1, 0, 0, [0, 1])
        np.testing.assert_array_equal(first.read(step, 0, 0, [0, 1], 2), [values(step, 0), values(step, 1)])
        if step < 3:
            board.commit(step - 1, 0, False)
    slow.publish(1, 0, 0, 1, values(1, 1))  # late, where the third step's values would be
    np.testing.assert_array_equal(second.read(3, 0, 0, [0, 1], 2), [values(3, 0), values(3, 1)])
    assert slow.ready(1, 0, 0, [0, 1])
    with pytest.raises(Overtaken):  # not an error of the user's: nobody waits for this shard
        slow.read(1, 0, 0, [0, 1], 2)
    with pytest.raises(RuntimeError, match="at most 4,096 batches"):
        slow.publish(4, 1 << 12, 0, 0, values(4, 0))


def test_a_slice_of_lean_memory_is_not_claimed_again_between_the_look_and_the_claim():
    shape = Shape(1, 1, 2)
    board = Board(Segment.create(Board.nbytes(shape)), shape)
    assert board.claim("slices", 0, 1, 0, again=False)
    board.release(0)
    assert board.released("slices", 0, 1) and not board.claim("slices", 0, 1, 1, again=False)
    assert board.claim("slices", 0, 1, 1)
    board.ready("slices", 0, 1, 1)
    assert board.claim("slices", 0, 2, 0, again=False)  # another step
