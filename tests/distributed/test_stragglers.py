"""Stragglers are named soon, once, and again when they recover."""

from __future__ import annotations

import numpy as np
import pytest

from weft.distributed.board import Board, Shape
from weft.distributed.figures import Figures
from weft.distributed.stragglers import EVERY, MIN_SHARDS, Stragglers, durations, report
from weft.multiprocessing import Segment

pytestmark = pytest.mark.xdist_group("distributed")


@pytest.fixture
def board() -> Board:
    shape = Shape(shards=4, slices=1, members=3)
    found = Board(Segment.create(Board.nbytes(shape)), shape)
    for row in range(3):
        found.members[row, 0] = np.uint64(100 + row << 32)
    return found


def test_a_slow_worker_is_named_within_ten_steps_and_only_once(board: Board) -> None:
    figures, stragglers, named = [Figures(board, row) for row in range(3)], Stragglers(), []
    for step in range(1, 41):
        for row, figure in enumerate(figures):
            figure.shard_done(5.0 if step == 1 else 0.03 if row == 2 and 11 <= step < 25 else 0.01)
            figure.step_done(0.1)
        if step % EVERY == 0:
            named += [(step, verdict) for verdict in stragglers.check(durations(board))]
    assert [(verdict.worker, verdict.slow) for _, verdict in named] == [(102, True), (102, False)]
    assert 11 <= named[0][0] < 21


def test_two_workers_are_compared_with_each_other() -> None:
    stragglers = Stragglers()
    found = [v for _ in range(5) for v in stragglers.check({1: 0.01, 2: 0.03})]
    assert [(v.worker, v.slow) for v in found] == [(2, True)]


def test_one_slow_check_names_no_worker() -> None:
    stragglers = Stragglers()
    times = [{1: 0.01, 2: 0.01}, {1: 0.01, 2: 0.09}, {1: 0.01, 2: 0.01}, {1: 0.09, 2: 0.01}]
    assert not [v for seconds in times for v in stragglers.check(seconds)]


def test_a_worker_alone_is_no_straggler_and_a_successor_is_judged_anew() -> None:
    stragglers = Stragglers()
    assert not stragglers.check({1: 1.0})
    slow = {1: 0.01, 2: 0.03}
    assert [v.worker for _ in range(2) for v in stragglers.check(slow)] == [2]
    assert not stragglers.check({1: 0.01, 3: 0.01})
    assert [v.worker for _ in range(2) for v in stragglers.check(slow)] == [2]


def test_figures_of_a_predecessor_do_not_count(board: Board) -> None:
    figures = Figures(board, 0)
    for _ in range(MIN_SHARDS):
        figures.shard_done(1.0)
    figures.step_done(1.0)
    assert durations(board) == {100: 1.0}
    Figures(board, 0)
    assert durations(board) == {}


def test_the_report_has_the_worker_and_both_durations(capsys: pytest.CaptureFixture[str]) -> None:
    stragglers = Stragglers()
    (verdict,) = [v for _ in range(2) for v in stragglers.check({7: 0.01, 8: 0.03})]
    report(verdict, 12)
    assert capsys.readouterr().err == (
        "weft: step 12: the worker with process number 8 is 3.0× slower than the others (30 ms per shard, they take 10 ms)\n"
    )
