"""What a relay sends to other hosts: partial sums as a whole, never a part of their shards."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from weft.distributed.board import READY, Board, Place, Shape, word
from weft.distributed.relay_part import Part
from weft.multiprocessing import Segment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")


def test_a_partial_sum_that_is_being_published_is_not_sent_yet() -> None:
    shape = Shape(8, 1, 3, relayed=True)
    board = Board(Segment.create(Board.nbytes(shape)), shape)
    part: Any = object.__new__(Part)
    part.board, part.peers = board, SimpleNamespace(row=2)
    step, whole = 5, Place(2, 0, 0, 1, 5)
    for shard in (3, 2):  # a worker is at it; the relay looks in between
        board.set_place(shard, whole)
    assert part.own_nodes(step) == {}
    for shard in (0, 1):
        board.set_place(shard, whole)
    for shard in range(3):
        board.store("shards", shard, word(step, READY, 0))
        assert part.own_nodes(step) is None
    board.store("shards", 3, word(step, READY, 0))
    assert part.own_nodes(step) == {whole: [0, 1, 2, 3]}
    board.set_place(6, Place(0, 6, 2, 0, step))  # what the relay itself received
    board.store("shards", 6, word(step, READY, 2))
    board.store("shards", 7, word(step, READY, 0))  # without samples: its place is an old one
    assert part.own_nodes(step) == {whole: [0, 1, 2, 3]}
    for shard in range(8):
        board.store("shards", shard, word(step + 1, 0, 0))  # the next step has begun
    assert part.own_nodes(step) == {whole: [0, 1, 2, 3]}
