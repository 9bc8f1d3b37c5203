"""Collectives: by ranks that are threads of this process, and by real runs."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.distributed import collective_programs as programs
from tests.distributed.launched import Launched
from tests.each import each
from weft import distributed
from weft.distributed import call_log, collectives, communicator, direct, failpoints
from weft.distributed.communicator import Communicator
from weft.distributed.context import Context
from weft.distributed.spreading import REST_SECONDS, Spreading
from weft.multiprocessing import Segment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]

PROGRAM = str(Path(programs.__file__))
SECONDS = 60.0


class Killed(BaseException):
    """Ends a rank at a fail point, as SIGKILL would: nothing after it runs."""


class World:
    """Ranks that are threads of this process, in one memory."""

    def __init__(self, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = Context("", 4, ranks, workers=ranks)
        self.segments: dict[str, Segment] = {}
        self.dead: set[int] = set()
        self.identities = itertools.count(1)
        self.lock = threading.Lock()
        self.local = threading.local()
        self.found: dict[int, Any] = {}
        group = lambda: getattr(self.local, "group", None)
        monkeypatch.setattr(collectives, "communicator", group)
        monkeypatch.setattr(communicator, "communicator", group)
        monkeypatch.setattr(collectives.contexts, "current", lambda: self.run)
        monkeypatch.setattr(communicator, "STALL_SECONDS", SECONDS)
        monkeypatch.setattr(communicator, "identity", lambda pid, started: self.local.identity)
        monkeypatch.setattr(communicator.atexit, "register", lambda function: function)
        for module in (programs, distributed):
            monkeypatch.setattr(module, "rank", lambda: self.local.group.rank, raising=False)
            monkeypatch.setattr(module, "world_size", lambda: ranks, raising=False)

    # What a communicator needs of the run's memory and of the kernel.

    def open(self, name: str, nbytes: int) -> Segment:
        with self.lock:
            if name not in self.segments:
                self.segments[name] = Segment.create(nbytes)
            return self.segments[name]

    def check(self) -> None:
        """The keeper is not there."""

    def alive(self, who: int) -> bool:
        return who not in self.dead

    def _rank(self, rank: int, program: Callable[[], Any], leaves: bool) -> None:
        self.local.identity = next(self.identities)
        group = None
        try:
            memory: Any = self
            group = self.local.group = Communicator(self.run, rank, memory, memory)
            found: Any = program() or "no error"
        except Killed:
            found = None
            self.dead.add(self.local.identity)
        except Exception as error:
            found = error
        if found is not None:
            self.found[rank] = found
            if group is not None and leaves:
                group.leave()
        if group is not None:
            group._stop.set()

    def play(self, program: Callable[[], Any], leaves: bool = True) -> list[Any]:
        """What the program returned, or the error it raised, on every rank. A rank that is killed is started again."""
        ranks = range(self.run.members)
        start = lambda rank: threading.Thread(target=self._rank, args=(rank, program, leaves), daemon=True)
        threads = {rank: start(rank) for rank in ranks}
        for thread in threads.values():
            thread.start()
        end = time.monotonic() + SECONDS
        while any(t.is_alive() for t in threads.values()) or set(self.found) != set(ranks):
            assert time.monotonic() < end, f"ranks hang: {sorted(set(ranks) - set(self.found))}; others: {self.found}"
            for rank, thread in threads.items():
                thread.join(0.002)
                if not thread.is_alive() and rank not in self.found:
                    threads[rank] = start(rank)
                    threads[rank].start()
        return [self.found[rank] for rank in ranks]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], World]:
    return lambda ranks: World(ranks, monkeypatch)


def test_every_collective_gives_every_rank_the_bits_of_the_sum_in_rank_order(
    world: Callable[[int], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ranks, reads_directly in ((2, True), (3, True), (3, False), (5, True)):
        if not reads_directly:
            monkeypatch.setattr(direct, "_read", refuse)
        found = world(ranks).play(programs.everything)
        assert len(set(map(str, found))) == 1 and len(found[0]) == 64, found
        monkeypatch.undo()


def refuse(*_: Any) -> None:
    """A kernel that lets no process read the memory of another one."""
    raise PermissionError


def test_outside_of_a_run_the_world_is_this_process() -> None:
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    distributed.barrier()
    for result in (distributed.all_reduce(x), distributed.broadcast(x), distributed.reduce_scatter(x, "max")):
        assert result.tolist() == x.tolist() and result is not x
    assert distributed.all_gather(x).shape == (1, 2, 2)
    assert distributed.all_reduce(x, "mean", out=x) is x
    assert distributed.empty((2, 3), "float64").numpy().tolist() == [[0.0] * 3] * 2
    assert float(distributed.all_reduce(3)) == 3.0
    assert (distributed.rank(), distributed.world_size(), distributed.is_lead()) == (0, 1, True)


def test_wrong_arguments_are_refused() -> None:
    x = wf.ones(4)
    recorded = wf.ones(4, requires_grad=True) * 2
    captured = wf.function(lambda v: distributed.all_reduce(v))

    def refused(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
        with pytest.raises(kind, match=words):
            call()

    each(
        refused,
        {
            "operation": (lambda: distributed.all_reduce(x, "median"), ValueError, "no operation 'median'"),
            "mean of integers": (lambda: distributed.all_reduce(3, "mean"), TypeError, "mean needs a floating"),
            "sum of truth values": (lambda: distributed.all_reduce(x > 0), TypeError, "needs numbers. Got bool"),
            "order of complex": (lambda: distributed.all_reduce(x * 1j, "max"), TypeError, "have no order"),
            "shape of out": (lambda: distributed.all_reduce(x, out=wf.ones(3)), ValueError, r"Expected float32 \(4,\)"),
            "history": (lambda: distributed.all_reduce(x, out=recorded), RuntimeError, "gradient history"),
            "source": (lambda: distributed.broadcast(x, 1), ValueError, "no rank 1"),
            "parts": (lambda: distributed.reduce_scatter(2.0), ValueError, "cut into 1 parts"),
            "captured": (lambda: captured(x), RuntimeError, "captured function"),
        },
    )
    assert "body of a step runs once per shard" in programs.inside_a_step()
    with communicator.shard_body(), pytest.raises(RuntimeError, match="inside the body of a distributed step"):
        distributed.barrier()
    distributed.barrier()


def test_an_elastic_run_has_no_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives.contexts, "current", lambda: Context("", 4, 8, workers=0))
    with pytest.raises(RuntimeError, match="--workers 8"):
        distributed.barrier()


def test_ranks_on_one_processor_move_apart_and_rest_between_moves() -> None:
    now, here, moves, said = [1.0], [0], [], []

    def move(taken: set[int]) -> bool:
        moves.append(now[0])
        return True

    rank = Spreading(said.append, lambda: ({0}, {0, 3}), lambda: now[0], lambda: here[0], move)
    for _ in range(2000):  # the system brings it back every time
        rank.look()
        now[0] += 0.001
    rests = np.diff(moves)
    assert len(moves) > 5 and rests.min() >= REST_SECONDS - 1e-9 and rank.shared
    here[0] = 2
    now[0] += 1.0
    rank.look()
    assert said[-1] == 2 and not rank.shared and len(moves) == len(rests) + 1
    here[0], count = 3, len(moves)  # a higher rank is there: that one moves
    now[0] += 1.0
    rank.look()
    assert rank.shared and len(moves) == count


# Divergence -------------------------------------------------------------------------------------------------------------


def _marked(function: Callable[..., Any], rank: int) -> str:
    """Where a program says that a rank's line is."""
    source, first = inspect.getsourcelines(function)
    number = next(
        first + i for i, line in enumerate(source) if "# LINE" in line and str(rank) in line.split("# LINE")[1]
    )
    return f"collective_programs.py:{number}"


def _names_both(function: Callable[..., Any], text: str) -> None:
    for rank in (0, 1):
        assert f"ank {rank} " in text and _marked(function, rank) in text, text


@pytest.mark.parametrize("name", ["other_collective", "other_shape", "other_dtype", "fewer_calls"])
def test_ranks_that_disagree_get_an_error_that_names_both_lines(name: str, world: Callable[[int], World]) -> None:
    function = getattr(programs, name)
    found = world(2).play(function)
    errors = [e for e in found if isinstance(e, distributed.DivergenceError)]
    assert errors and (len(errors) == 2 or name == "fewer_calls"), found
    for error in errors:
        _names_both(function, str(error))
    assert len({str(e) for e in errors}) == 1


def test_steps_are_compared_too(world: Callable[[int], World]) -> None:
    def steps(counts: tuple[int, int], sizes: tuple[int, int] = (8, 8), then: bool = False) -> str:
        def program() -> str:
            rank = programs.rank()
            for _ in range(counts[rank]):
                communicator.begin_step("SGD", [sizes[rank]], True)
                time.sleep(0.001)
            if then:
                distributed.barrier()
            return "done"

        found = world(2).play(program)
        errors = {str(e) for e in found if isinstance(e, distributed.DivergenceError)}
        assert len(errors) == (1 if counts[0] != counts[1] or sizes[0] != sizes[1] else 0), found
        return errors.pop() if errors else ""

    assert steps((3, 3), then=True) == ""
    assert "on 8 samples" in steps((1, 1), (8, 9)) and "on 9 samples" in steps((2, 2), (9, 8))
    assert "ended its program after 2 steps" in steps((2, 4000))
    assert "ranks disagree after step 1" in steps((1, 4000), then=True)


# Deaths -----------------------------------------------------------------------------------------------------------------


def _calls() -> list[float]:
    """Small calls whose results depend on those before them."""
    total, rank = 0.0, programs.rank()
    for number in range(6):
        total = float(distributed.all_reduce(total + rank + number, "mean"))
        total += float(distributed.all_gather(np.arange(3.0) * (rank + number)).sum())
        total += float(distributed.broadcast(total + 1, number % programs.world_size()))
        parts = distributed.reduce_scatter(np.arange(4.0 * programs.world_size()) + total)
        total = float(distributed.all_reduce(parts.sum()))
        distributed.barrier()
    return [total]


@contextlib.contextmanager
def _hook(hook: Callable[[str], None]) -> Iterator[None]:
    failpoints.hook = hook
    try:
        yield
    finally:
        failpoints.hook = None


def test_ranks_that_are_killed_repeat_their_program_with_the_same_results(world: Callable[[int], World]) -> None:
    expected = world(3).play(_calls)
    assert len(expected) == 3 and expected[0] == expected[1] == expected[2]
    for seed in range(40):
        rng, lock, deaths = random.Random(seed), threading.Lock(), [5]

        def hook(point: str, rng: random.Random = rng, lock: Any = lock, deaths: list[int] = deaths) -> None:
            with lock:
                due = deaths[0] > 0 and rng.random() < 0.04
                deaths[0] -= due
            if due:
                raise Killed

        with _hook(hook):
            assert world(3).play(_calls) == expected, f"seed {seed}"
        assert deaths[0] < 5, "no rank was killed"


def test_a_rank_that_cannot_repeat_its_program_ends_the_run_with_the_reason(world: Callable[[int], World]) -> None:
    def shared() -> None:
        x = distributed.empty(8)
        while True:
            distributed.all_reduce(x, out=x)

    def large() -> None:
        while True:
            distributed.all_reduce(np.zeros(20_000))

    def many() -> None:
        while True:
            distributed.all_gather(np.zeros(3000))

    def lost(program: Callable[[], None], points_before: int, words: str) -> None:
        lock, points = threading.Lock(), [0]

        def hook(point: str) -> None:
            with lock:
                points[0] += 1
                due = points[0] == points_before
            if due:
                raise Killed

        with _hook(hook):
            found = world(2).play(program)
        assert all(isinstance(e, distributed.WorkerLostError) and words in str(e) for e in found), found

    call_log_bytes = call_log.LOG_BYTES
    call_log.LOG_BYTES = 1 << 17
    try:
        each(
            lost,
            {
                "shared": (shared, 12, "changed in place"),
                "large": (large, 12, "larger than the 65,536 bytes"),
                "full": (many, 40, "of the log were full"),
            },
        )
    finally:
        call_log.LOG_BYTES = call_log_bytes


def test_a_program_that_does_something_else_when_repeated_is_an_error(world: Callable[[int], World]) -> None:
    lives = itertools.count()
    lock, points = threading.Lock(), [0]

    def program() -> None:
        if programs.rank() == 1 and next(lives):
            distributed.all_gather(1.0)
        while True:
            distributed.all_reduce(1.0)

    def hook(point: str) -> None:
        if point == "round published" and programs.rank() == 1:
            with lock:
                points[0] += 1
                due = points[0] == 4
            if due:
                raise Killed

    with _hook(hook):
        found = world(2).play(program)
    assert all("was killed and repeats its program" in str(e) for e in found), found


# Whole runs -------------------------------------------------------------------------------------------------------------


class Runs:
    """Runs of the programs; each has a directory in which its ranks leave what they found."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, name: str, workers: int = 2, **given: Any) -> tuple[int, dict[int, str], str]:
        """(status, what each rank found, messages)"""
        folder = self._directory / f"{name}-{len(list(self._directory.iterdir()))}"
        folder.mkdir()
        status, _, err = Launched(workers, name, str(folder), script=PROGRAM, **given).wait()
        return status, {int(p.name[5:]): p.read_text() for p in folder.glob("rank-?")}, err

    def good(self, name: str, **given: Any) -> str:
        """What all ranks found, which is the same."""
        status, found, err = self(name, **given)
        assert status == 0 and len(found) == 2 and len(set(found.values())) == 1, f"{found}\n{err}"
        return found[0]

    def bad(self, name: str, error: str, ranks: int = 2, **given: Any) -> str:
        """The error that so many ranks got."""
        status, found, err = self(name, **given)
        errors = {text for text in found.values() if text.startswith(error)}
        count = sum(text.startswith(error) for text in found.values())
        assert status == 1 and len(errors) == 1 and count >= ranks, f"status {status}: {found}\n{err}"
        return errors.pop()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_collectives_of_a_run_give_the_same_bits_on_one_host_and_on_two(
    runs: Runs, world: Callable[[int], World]
) -> None:  # fmt: skip
    (expected, *_) = world(2).play(programs.everything)
    assert runs.good("everything") == expected
    assert runs.good("everything", hosts=2) == expected


def test_divergence_ends_all_tasks_of_a_run(runs: Runs) -> None:
    _names_both(programs.steps_without_end, runs.bad("steps_without_end", "DivergenceError"))
    text = runs.bad("other_collective", "DivergenceError", hosts=2)
    _names_both(programs.other_collective, text)
    assert "on host 0" in text and "on host 1" in text


def test_a_killed_worker_repeats_small_collectives_and_cannot_repeat_large_ones(runs: Runs, tmp_path: Path) -> None:
    def kill(point: str) -> dict[str, str]:
        return {failpoints.VARIABLE: f"{point}:{tmp_path / point.replace(' ', '-')}-killed"}

    undisturbed = runs.good("small_calls", check_every=3)
    assert runs.good("small_calls", environment=kill("call logged:7")) == undisturbed
    text = runs.bad("large_calls", "WorkerLostError", ranks=1, environment=kill("round published:9"))
    assert "was killed in or after all_reduce" in text and "larger than the 65,536 bytes" in text
    assert len(list(tmp_path.glob("*-killed"))) == 2, "no worker was killed"


def test_corruption_is_found_and_the_worker_is_named(runs: Runs) -> None:
    text = runs.bad("other_gradient", "CorruptionError", check_every=4)
    assert "rank 0 (called at" in text and "rank 1 (called at" in text
    assert "parameters of shape (1, 4)" in runs.bad("changed_weights", "CorruptionError", check_every=4)
    text = runs.bad("nan_in_one_shard", "DivergenceError", check_every=4)
    assert "the loss of step 4 is NaN in shard 0, computed by rank" in text
    text = runs.bad("other_weights_on_a_host", "CorruptionError", check_every=5, hosts=2)
    assert "have the checksum" in text and "rank 0 on host 0" in text and "rank 1 on host 1" in text
