"""Checks against silent corruption: `weft run --check-every K`.

A processor that computes wrong values, or memory that changes by itself, does not say so. Every K steps of training

* each worker computes one shard of the next worker of its host again, and the two gradients must have the same
  checksum;
* each slice of the new weights and optimiser state gets a checksum. The hosts' must agree, and in the next step the
  slices, as they are read, must still have it.

In every step, a loss that is NaN in some shards only is an error; with `--memory lean` that is the only check. The run
ends with an error on all workers that names the worker that computed the values. What this costs: every K steps one
more shard per worker and two passes over the weights.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..multiprocessing import Segment
from . import communicator as communicators
from . import tree
from .communicator import CORRUPTED, DIVERGED, shard_body
from .context import WORKER

if TYPE_CHECKING:
    from .team import Team, _Step

_STEP_SHIFT, _RANK_SHIFT = 44, 32  # a word: the step modulo 2**20, the rank, the checksum
_STEPS, _RANKS, _SUMS = (1 << 20) - 1, (1 << 12) - 1, (1 << 32) - 1


class Checks:
    """The checks of one part of a run, in the order in which a step calls them.

    Args:
        team: does the steps.
        every: after how many steps gradients and weights are checked.
        open_segment: opens memory of the run by name and size.
        order: the slice of each unit of work.
    """

    def __init__(
        self, team: Team, every: int, open_segment: Callable[[str, int], Segment], order: list[int]
    ) -> None:  # fmt: skip
        self._team, self._every, self._order = team, every, order
        self._rank = int(os.environ.get(WORKER, "0"))
        shape = team.board.shape
        words = open_segment("checks", 8 * (2 * shape.shards + shape.slices)).array(
            (2 * shape.shards + shape.slices,), np.uint64
        )
        self._gradients, self._owners = words[: shape.shards], words[shape.shards : 2 * shape.shards]
        self._slices = words[2 * shape.shards :]
        self._repeated = 0  # the last step in which this worker repeated another one's shard
        self._count = 0  # checks of the weights

    def _due(self, number: int) -> bool:
        """Whether gradients and weights are checked. With lean memory they are overwritten while others still compute."""
        return number % self._every == 0 and not self._team.lean

    # Before a step --------------------------------------------------------------------------------------------------

    def before(self, number: int) -> None:
        """The weights that step `number` begins with must be those that were written."""
        board = self._team.board
        version, buffer = board.committed()
        if number < 2 or not self._due(number - 1) or version != number - 1:
            return
        live, row = self._team.peers.live(), self._team.row
        position = live.index(row) if row in live else 0
        for index in tree.block(board.shape.slices, position, max(len(live), 1)):
            word = int(self._slices[index])
            if not _is_of(word, number - 1):
                continue
            found = self._slice_checksum(index, buffer)
            if board.committed()[0] != number - 1:
                return  # the others are ahead: this memory may be in use again
            if found != word & _SUMS:
                self._fail(
                    f"{self._named(index)}, written by {self._name(_rank_of(word))} in step {number - 1}, changed in memory "
                    f"before the next step, as {self._name(self._rank)} found"
                )

    # In a step ------------------------------------------------------------------------------------------------------

    def shard(self, step: _Step, shard: int, slot: dict[Any, np.ndarray] | None) -> None:
        """A shard was computed here."""
        number = step.number
        self._owners[shard] = _word(number, self._rank, 0)
        if slot is None or not self._due(number):
            return
        self._compare(step, shard, self._gradient_checksum(slot))
        if self._repeated != number:
            self._repeated = number
            self._repeat(step)

    def _repeat(self, step: _Step) -> None:
        """Compute a shard of the next worker as well."""
        team = self._team
        shard = self._other_shard(step)
        if shard is None or not step.free_slots:
            return
        index = step.free_slots.pop()
        slot = team.slot(team.row, index)
        team.shelf.buffers.load(team.shelf.memory[step.buffer])
        with shard_body():
            step.leaf(shard, slot)
        self._compare(step, shard, self._gradient_checksum(slot))
        step.free_slots.append(index)

    def _other_shard(self, step: _Step) -> int | None:
        team = self._team
        live, mine = team.peers.live(), team.shards_of_host()
        position = live.index(team.row) if team.row in live else 0
        block = tree.block(len(mine), (position + 1) % max(len(live), 1), max(len(live), 1))
        shards = [mine[i] for i in block if mine[i] in step.weights]
        return shards[step.number // self._every % len(shards)] if shards else None

    def _compare(self, step: _Step, shard: int, checksum: int) -> None:
        """Compare a shard's gradient with that of another worker; the first one leaves its checksum."""
        if step.over:
            return  # what was read meanwhile may be of another step
        word = int(self._gradients[shard])
        if not _is_of(word, step.number):
            self._gradients[shard] = _word(step.number, self._rank, checksum)
        elif word & _SUMS != checksum:
            self._fail(
                f"the gradient of shard {shard} in step {step.number} is another one on {self._called(self._rank)} than on "
                f"{self._called(_rank_of(word))}. If the function of the step does the same on every worker, one of them "
                "computes wrong values"
            )

    def slice(self, number: int, index: int, buffer: int) -> None:
        """A slice of the new state was written here."""
        if self._due(number):
            self._slices[index] = _word(number, self._rank, self._slice_checksum(index, buffer))

    # After a step ---------------------------------------------------------------------------------------------------

    def after(self, number: int, row: np.ndarray, shards: list[int], trains: bool) -> None:
        """Step `number` is committed, and this is its row of the log."""
        if np.isnan(row[1]):
            self._check_losses(number, shards)
        if trains and self._due(number):
            self._count += 1
            self._check_hosts(number)

    def _check_losses(self, number: int, shards: list[int]) -> None:
        """A loss is NaN: in all shards, which is the model's affair, or only in some?"""
        losses = self._team.log().statistics[number & 1, :, 1].copy()
        owners = self._owners.copy()
        if self._team.board.committed()[0] != number:
            return  # the others are ahead; those who were not have looked
        bad = [s for s in shards if np.isnan(losses[s])]
        good = [s for s in shards if not np.isnan(losses[s])]
        if bad and good:
            first = bad[0]
            other = next((s for s in good if owners[s] != owners[first]), good[0])
            self._fail(
                f"the loss of step {number} is NaN in shard {first}, computed by {self._owner(owners, first, number)}, but "
                f"{losses[other]:.6g} in shard {other}, computed by {self._owner(owners, other, number)}",
                DIVERGED,
            )

    def _owner(self, owners: np.ndarray, shard: int, number: int) -> str:
        word = int(owners[shard])
        return self._called(_rank_of(word)) if _is_of(word, number) else "another host"

    def _called(self, rank: int) -> str:
        """A rank, and the line at which it called the step."""
        group = communicators.communicator()
        return self._name(rank) if group is None else f"{group.name(rank)}{group.step_line(rank)}"

    def _check_hosts(self, number: int) -> None:
        """Compare the checksum of all slices with that of the other ranks."""
        words = [int(w) for w in self._slices]
        if not all(_is_of(w, number) for w in words):
            return  # the state came from another host, or the others are ahead
        checksum = zlib.crc32(np.array([w & _SUMS for w in words], np.uint64).tobytes())
        group = communicators.communicator()
        if group is None:
            return
        other = group.compare_state(self._count, checksum)
        if other is not None:
            self._fail(
                f"the weights after step {number} have the checksum {checksum:08x} on {self._name(self._rank)}, but "
                f"{other[1]:08x} on {self._name(other[0])}"
            )

    # Checksums ------------------------------------------------------------------------------------------------------

    def _gradient_checksum(self, slot: dict[Any, np.ndarray]) -> int:
        return _checksum(self._gradient_arrays(slot))

    def _gradient_arrays(self, slot: dict[Any, np.ndarray]) -> Iterator[np.ndarray]:
        for number, family in enumerate(self._team.shelf.families):
            if family.rows is not None:
                yield from family.rows.read(slot)
            else:
                yield slot[number, ""]

    def _slice_checksum(self, index: int, buffer: int) -> int:
        shelf = self._team.shelf
        part = shelf.slices[self._order[index]]
        if part.family < 0:
            return 0
        memory, keys = shelf.memory[buffer], ("", *shelf.families[part.family].keys)
        return _checksum(memory[part.family, key][part.start : part.stop] for key in keys)

    # Words ----------------------------------------------------------------------------------------------------------

    def _named(self, index: int) -> str:
        part = self._team.shelf.slices[self._order[index]]
        family = self._team.shelf.families[part.family]
        inside = [
            p for p, start in zip(family.params, family.starts) if start < part.stop and start + p.size > part.start
        ]
        shapes = ", ".join(str(tuple(p.shape)) for p in inside[:3]) + (", …" if len(inside) > 3 else "")
        return f"a slice of the weights (parameters of shape {shapes})"

    def _name(self, rank: int) -> str:
        group = communicators.communicator()
        return f"rank {rank}" if group is None else group.name(rank)

    def _fail(self, text: str, kind: int = CORRUPTED) -> NoReturn:
        communicators.fail(kind, f"{text}.")


def _checksum(arrays: Any) -> int:
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data, found)
    return found


def _word(number: int, rank: int, checksum: int) -> int:
    return (number & _STEPS) << _STEP_SHIFT | (rank & _RANKS) << _RANK_SHIFT | checksum


def _is_of(word: int, number: int) -> bool:
    return word >> _STEP_SHIFT == number & _STEPS


def _rank_of(word: int) -> int:
    return word >> _RANK_SHIFT & _RANKS
