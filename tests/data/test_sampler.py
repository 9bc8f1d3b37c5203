"""Samplers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler, seeds


@given(n=st.integers(0, 300), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_a_permutation_is_one_for_every_seed(n, seed, epoch):
    order = seeds.permutation(n, seed, epoch)
    assert sorted(order.tolist()) == list(range(n))
    assert order.dtype == np.int64


def test_permutations_never_change():
    """Saved positions rely on these numbers."""
    assert seeds.permutation(8, seed=0).tolist() == [6, 7, 5, 1, 4, 3, 0, 2]
    assert seeds.permutation(8, seed=1, epoch=2).tolist() == [5, 7, 1, 0, 6, 4, 2, 3]


@given(n=st.integers(0, 50), world=st.integers(1, 7), drop=st.booleans())
@settings(max_examples=40, deadline=None)
def test_ranks_get_equal_shares_that_cover_everything(n, world, drop):
    shares = [list(DistributedSampler(n, rank, world, drop_last=drop)) for rank in range(world)]
    assert {len(s) for s in shares} == {len(DistributedSampler(n, 0, world, drop_last=drop))}
    together = [i for s in shares for i in s]
    if drop:
        assert len(set(together)) == len(together) >= n - world + 1
    else:
        assert set(together) == set(range(n))


def test_weights_are_followed():
    drawn = np.bincount(list(WeightedRandomSampler([1, 0, 3], 4000, seed=0)), minlength=3)
    assert drawn[1] == 0
    assert abs(drawn[2] / 4000 - 0.75) < 0.03
    without = list(WeightedRandomSampler([1, 0, 3, 5], 3, replacement=False, seed=0))
    assert sorted(without) == [0, 2, 3]
    first = [WeightedRandomSampler([1, 9], 1, replacement=False, seed=s).order()[0] for s in range(300)]
    assert 0.82 < np.mean(first) < 0.97


def test_random_sampler_with_and_without_replacement():
    sampler = RandomSampler(100, seed=1, replacement=True, num_samples=1000)
    assert len(sampler) == len(list(sampler)) == 1000
    assert set(sampler) <= set(range(100))
    assert len(set(sampler)) > 90
    assert len(set(RandomSampler(100, seed=1, num_samples=10))) == 10


def test_batches_of_a_sampler():
    assert list(BatchSampler(SequentialSampler(5), 2)) == [[0, 1], [2, 3], [4]]
    dropping = BatchSampler(range(5), 2, drop_last=True)
    assert list(dropping) == [[0, 1], [2, 3]]
    assert len(dropping) == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomSampler(3, num_samples=4), "expected 0 to 3, or replacement=True"),
        (lambda: WeightedRandomSampler([], 1), "not all zero"),
        (lambda: WeightedRandomSampler([1, -1], 1), "non-negative"),
        (lambda: WeightedRandomSampler([1, 0], 2, replacement=False), "expected at most 1"),
        (lambda: BatchSampler(range(3), 0), "batch_size must be a positive integer"),
        (lambda: DistributedSampler(3, 3, 3), "rank must be between"),
        (lambda: RandomSampler(3, seed=1, generator=np.random.default_rng()), "either seed or generator"),
    ],
)
def test_impossible_samplers_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_seed_is_an_integer():
    with pytest.raises(TypeError, match="expected an integer. Got 1.5"):
        RandomSampler(3, seed=1.5)
    with pytest.raises(TypeError, match="Got str"):
        RandomSampler(3, generator="x")
