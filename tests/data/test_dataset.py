"""Datasets and their combinations."""

from __future__ import annotations

import loader_samples as samples
import numpy as np
import pytest

from weft import data
from weft.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split


def test_tensor_dataset_takes_arrays_and_tensors():
    import weft

    x = np.arange(6.0).reshape(3, 2)
    dataset = TensorDataset(weft.asarray(x), [7, 8, 9])
    assert len(dataset) == 3
    row, label = dataset[-1]
    assert (row.tolist(), int(label)) == ([4.0, 5.0], 9)
    assert np.shares_memory(dataset.arrays[0], x)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [((), "no arrays"), ((np.zeros(3), np.zeros(4)), "differ in length"), ((np.float32(1),), "differ in length")],
)
def test_tensor_dataset_refuses_what_does_not_fit(arrays, text):
    with pytest.raises(ValueError, match=text):
        TensorDataset(*arrays)


def test_out_of_range_indices_are_errors():
    dataset = TensorDataset(np.arange(3))
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range. Expected -3 to 2"):
            dataset[index]
    with pytest.raises(IndexError, match="Subset: index 5 is out of range"):
        Subset(dataset, [0, 5])
    with pytest.raises(IndexError, match="ConcatDataset: index 6"):
        ConcatDataset([dataset, dataset])[6]


def test_concatenation_goes_through_the_parts():
    joined = TensorDataset(np.arange(3)) + TensorDataset(np.arange(10, 12))
    assert [int(v) for (v,) in joined] == [0, 1, 2, 10, 11]
    assert int(joined[-1][0]) == 11
    with pytest.raises(TypeError, match="Got an IterableDataset"):
        ConcatDataset([joined, samples.Counter()])


def test_map_changes_the_sample_or_one_element():
    base = TensorDataset(np.arange(3), np.arange(3))
    assert list(base.map(sum)) == [0, 2, 4]
    assert [int(x) for x, _ in base.map(np.negative, element=0)] == [0, -1, -2]
    changed = data.map(np.sqrt, samples.Squares(4), element="square")
    assert [s["square"] for s in changed] == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="element=0 needs samples that are tuples"):
        base.map(sum).map(abs, element=0)[0]
    with pytest.raises(TypeError, match="map: expected a function of a sample. Got int"):
        base.map(3)


def test_map_of_a_stream_computes_only_what_is_wanted():
    seen = []

    def note(sample):
        seen.append(int(sample[0]))
        return sample[0]

    stream = samples.Counter(6).map(note)
    assert [p for p, _ in stream.select(lambda i: i % 2 == 1)] == [1, 3, 5] == seen
    assert [int(v) for v in stream] == list(range(6))


def test_random_split_is_a_partition_that_depends_on_the_seed():
    dataset = TensorDataset(np.arange(11))
    parts = random_split(dataset, [0.5, 0.3, 0.2], seed=4)
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(int(v) for p in parts for (v,) in p) == list(range(11))
    again = random_split(dataset, [6, 3, 2], seed=4)
    assert [p.indices.tolist() for p in parts] == [p.indices.tolist() for p in again]
    assert random_split(dataset, [6, 5], seed=5)[0].indices.tolist() != again[0].indices.tolist()


@pytest.mark.parametrize(
    ("lengths", "text"),
    [([0.5, 0.6], "must add up to 1"), ([5, 5], r"Got \[5, 5\] for 11 samples"), ([-1, 12], "add up")],
)
def test_random_split_refuses_other_sums(lengths, text):
    with pytest.raises(ValueError, match=text):
        random_split(TensorDataset(np.arange(11)), lengths)


def test_a_list_is_a_dataset_too():
    assert [b.tolist() for b in DataLoader([3, 1, 2], batch_size=2, as_numpy=True)] == [[3, 1], [2]]
