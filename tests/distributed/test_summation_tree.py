"""The order of summation: a tree that depends on the shards alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weft.distributed import tree


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 8, 13])
def test_every_sample_belongs_to_exactly_one_shard(shards: int) -> None:
    for samples in (0, 1, shards - 1, shards, shards + 1, 97):
        ranges = [range(*tree.bounds(samples, shards, s)) for s in range(shards)]
        assert [i for r in ranges for i in r] == list(range(samples))
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
        assert tree.present(samples, shards) == [s for s, r in enumerate(ranges) if len(r)]


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 8, 13])
def test_blocks_cover_all_shards_for_any_number_of_workers(shards: int) -> None:
    for workers in (1, 2, 3, 7, 20):
        assert [s for w in range(workers) for s in tree.block(shards, w, workers)] == list(range(shards))


def test_any_division_of_the_work_gives_the_same_bits() -> None:
    rng = random.Random(0)
    for _ in range(200):
        shards = rng.randint(1, 17)
        leaves = sorted(rng.sample(range(shards), rng.randint(1, shards)))
        values = {s: np.float32(rng.gauss(0, 1)) for s in leaves}
        results = set()
        for _ in range(4):
            held: dict[tuple[int, int], np.float32] = {}
            rest = leaves[:]
            while rest:  # workers take contiguous runs of shards, and sum what makes complete subtrees
                run = rest[: rng.randint(1, len(rest))]
                rest = rest[len(run) :]
                stack: list[tuple[int, int]] = []
                sums: list[np.float32] = []
                for shard in run:
                    value = values[shard]
                    for _ in range(tree.push(stack, shard)):
                        value = sums.pop() + value
                    sums.append(value)
                held.update(zip(stack, sums, strict=True))
            plan = tree.plan(shards, leaves, held)
            results.add(_total(plan, held).tobytes())
        assert len(results) == 1


def _total(plan: object, held: dict[tuple[int, int], np.float32]) -> np.float32:
    left, right = plan  # type: ignore[misc]
    return held[left, right] if isinstance(left, int) else _total(left, held) + _total(right, held)


def test_partial_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="shard 3 is in no partial sum"):
        tree.plan(4, range(4), [(1, 0), (0, 2)])
    with pytest.raises(ValueError, match="belong to no place"):
        tree.plan(4, range(4), [(2, 0), (0, 2)])
    with pytest.raises(ValueError, match="no shards"):
        tree.plan(4, [], [])
