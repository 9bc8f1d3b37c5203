"""DataLoader: order, position, resume, sharding; in this process and with workers."""

from __future__ import annotations

import json

import loader_samples as samples
import numpy as np
import pytest

import weft as wf
import weft.random
from weft.data import BatchSampler, DataLoader, RandomSampler, Subset, TensorDataset, WeightedRandomSampler

pytestmark = pytest.mark.timeout(60)


def listed(batches):
    """Batches as plain values that can be compared."""
    return [_plain(b) for b in batches]


def _plain(tree):
    if isinstance(tree, dict):
        return {k: _plain(v) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_plain(v) for v in tree]
    return tree.tolist() if hasattr(tree, "tolist") else tree


def loader(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 4, "seed": 7, "as_numpy": True, **options})


def test_batches_are_cut_in_order_and_the_last_may_be_short():
    batches = list(loader(samples.Squares(10)))
    assert [b["square"].tolist() for b in batches] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert batches[2]["name"] == ["sample 8", "sample 9"]
    assert len(loader(samples.Squares(10))) == 3


def test_drop_last_leaves_the_short_batch_out():
    dropping = loader(samples.Squares(10), drop_last=True)
    assert len(list(dropping)) == len(dropping) == 2


def test_batch_size_none_gives_single_samples():
    single = list(loader(samples.Squares(3), batch_size=None))
    assert [s["square"] for s in single] == [0, 1, 4]
    assert single[0]["noise"].shape == (3,)


def test_tensors_come_out_and_share_the_array_of_the_batch():
    import weft

    (x, y), *_ = DataLoader(TensorDataset(np.arange(12.0).reshape(6, 2), np.arange(6)), batch_size=3)
    assert isinstance(x, weft.Tensor)
    assert isinstance(y, weft.Tensor)
    assert (x.shape, str(x.dtype), str(y.dtype)) == ((3, 2), "float64", "int64")
    assert x.numpy().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_shuffling_depends_on_seed_and_epoch_only():
    a, b, c = (loader(samples.Squares(), shuffle=True, seed=s) for s in (1, 1, 2))
    first, second = listed(a), listed(a)
    assert first != second
    assert sorted(v for x in first for v in x["square"]) == [i * i for i in range(23)]
    assert [first, second] == [listed(b), listed(b)]
    assert first != listed(c)


def test_seed_none_draws_another_seed_each_time():
    seeds = {DataLoader(samples.Squares()).seed for _ in range(5)}
    assert len(seeds) == 5


@pytest.mark.parametrize("make", [np.random.default_rng, wf.random.Generator])
def test_generator_determines_the_seed(make):
    seeds = [DataLoader(samples.Squares(), generator=make(n)).seed for n in (3, 3, 4)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_manual_seed_determines_the_seed():
    seeds = []
    for n in (3, 3, 4):
        wf.random.manual_seed(n)
        seeds.append(DataLoader(samples.Squares()).seed)
    assert seeds[0] == seeds[1] != seeds[2]


def test_workers_give_the_same_batches_as_this_process():
    for shuffle in (False, True):
        here = loader(samples.Squares(), shuffle=shuffle)
        there = loader(samples.Squares(), shuffle=shuffle, num_workers=2)
        for _ in range(2):
            assert listed(here) == listed(there)
        there.close()


def test_collate_randomness_is_per_batch_and_independent_of_workers():
    here = listed(loader(samples.Squares(), collate_fn=samples.batch_noise))
    with loader(samples.Squares(), collate_fn=samples.batch_noise, num_workers=2) as there:
        assert listed(there) == here
    assert len({tuple(b["mix"]) for b in here}) == len(here)


@pytest.mark.parametrize("stream", [samples.Counter, samples.Positioned])
def test_streams_are_divided_between_workers_without_changing_the_order(stream):
    here = loader(stream())
    expected = [listed(here), listed(here)]
    assert [v for b in expected[1] for v in b[0]] == list(range(1000, 1023))
    with loader(stream(), num_workers=2) as there:
        assert [listed(there), listed(there)] == expected


@pytest.mark.parametrize(
    ("dataset", "shuffle"),
    [(samples.Squares, False), (samples.Squares, True), (samples.Counter, False), (samples.Positioned, False)],
)
def test_resume_anywhere_goes_on_with_the_next_batch(dataset, shuffle):
    reference = loader(dataset(), shuffle=shuffle)
    whole = [listed(reference), listed(reference)]
    makers, others = ({n: loader(dataset(), shuffle=shuffle, num_workers=n) for n in (0, 2)} for _ in range(2))
    for saved_with, loaded_with in ((0, 0), (2, 2), (2, 0), (0, 2)):
        for taken in (0, 1, 3, len(whole[0])):
            first = makers[saved_with]
            first.set_epoch(0)
            iterator = iter(first)
            seen = [next(iterator) for _ in range(taken)]
            state = json.loads(json.dumps(first.state_dict()))
            del iterator, seen
            second = others[loaded_with]
            second.seed = 99  # the saved one counts
            second.load_state_dict(state)
            assert second.state_dict() == state
            assert [listed(second), listed(second)] == [whole[0][taken:], whole[1]], (saved_with, loaded_with, taken)
    for made in (*makers.values(), *others.values()):
        made.close()


def test_state_between_epochs_is_the_start_of_the_next():
    first = loader(samples.Squares(), shuffle=True)
    epochs = [listed(first)]
    state = first.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    epochs.append(listed(first))
    second = loader(samples.Squares(), shuffle=True, seed=0)
    second.load_state_dict(state)
    assert listed(second) == epochs[1]


def test_a_stream_with_a_state_resumes_without_making_what_was_seen():
    first = loader(samples.Positioned())
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    dataset = samples.Positioned()
    second = loader(dataset)
    second.load_state_dict(first.state_dict())
    assert len(listed(second)) == 3
    assert dataset.made == 23 - 12


class Shuffler:
    """A sampler with state."""

    def __init__(self):
        self.rng = 1

    def state_dict(self):
        return {"rng": self.rng}

    def load_state_dict(self, state):
        self.rng = state["rng"]

    def __iter__(self):
        for _ in range(20):
            self.rng = (self.rng * 7 + 3) % 23
            yield self.rng

    def __len__(self):
        return 20


def test_a_sampler_with_a_state_is_resumed_exactly():
    reference = loader(samples.Squares(), sampler=Shuffler())
    whole = [listed(reference), listed(reference)]
    assert whole[0] != whole[1]
    first = loader(samples.Squares(), sampler=Shuffler())
    list(first)
    iterator = iter(first)
    next(iterator), next(iterator)
    second = loader(samples.Squares(), sampler=Shuffler())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert listed(second) == whole[1][2:]
    between = loader(samples.Squares(), sampler=Shuffler())
    list(between)
    third = loader(samples.Squares(), sampler=Shuffler())
    third.load_state_dict(between.state_dict())
    assert listed(third) == whole[1]


def test_samplers_and_batch_samplers_are_followed():
    by_sampler = loader(samples.Squares(), sampler=[3, 1, 2, 0, 5])
    assert [b["square"].tolist() for b in by_sampler] == [[9, 1, 4, 0], [25]]
    by_batch = loader(samples.Squares(), batch_size=1, batch_sampler=[[1, 2, 3], [4]])
    assert [b["square"].tolist() for b in by_batch] == [[1, 4, 9], [16]]
    assert len(by_batch) == 2
    random = BatchSampler(RandomSampler(23, seed=1), 5)
    sampled = loader(samples.Squares(), batch_size=1, batch_sampler=random)
    assert listed(sampled) != listed(sampled)
    weighted = loader(samples.Squares(), sampler=WeightedRandomSampler([0] * 22 + [1], 6, seed=0))
    assert {v for b in weighted for v in b["square"].tolist()} == {22 * 22}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_dataset_evenly(shuffle, drop_last):
    parts = [
        [
            v
            for b in loader(samples.Squares(), shuffle=shuffle, drop_last=drop_last, batch_size=2, rank=r, world_size=3)
            for v in b["square"].tolist()
        ]
        for r in range(3)
    ]
    assert len({len(p) for p in parts}) == 1
    made = loader(samples.Squares(), shuffle=shuffle, drop_last=drop_last, batch_size=2, rank=1, world_size=3)
    assert len(list(made)) == len(made)
    seen = [v for p in parts for v in p]
    if drop_last:
        assert len(set(seen)) == len(seen) == 18
    else:
        assert set(seen) == {i * i for i in range(23)}
        assert len(seen) == 24


def test_ranks_share_a_stream_by_position():
    parts = [listed(loader(samples.Counter(10), rank=r, world_size=2, batch_size=3)) for r in range(2)]
    assert [[b[0] for b in p] for p in parts] == [[[0, 2, 4], [6, 8]], [[1, 3, 5], [7, 9]]]
    with loader(samples.Counter(10), rank=1, world_size=2, batch_size=2, num_workers=2) as shared:
        assert [b[0] for b in listed(shared)] == [[1, 3], [5, 7], [9]]


def test_gathered_rows_equal_collated_samples():
    x, y = np.random.default_rng(0).random((20, 3, 4)).astype(np.float32), np.arange(20)
    plain = TensorDataset(x, y)
    strided = TensorDataset(x.transpose(0, 2, 1).copy().transpose(0, 2, 1), y[::-1][::-1])
    single = plain.map(tuple)
    for dataset in (plain, strided, Subset(plain, range(20))):
        assert listed(loader(dataset, shuffle=True)) == listed(loader(single, shuffle=True))


def test_two_iterators_of_one_loader_do_not_disturb_each_other():
    with loader(samples.Squares(8), num_workers=1) as both:
        pairs = [(a["square"].tolist(), b["square"].tolist()) for a, b in zip(both, both, strict=True)]
    assert pairs == [([0, 1, 4, 9],) * 2, ([16, 25, 36, 49],) * 2]


def test_workers_stay_for_the_next_epoch_and_after_a_break():
    with loader(samples.Environment(), num_workers=1) as kept:
        pids = set()
        for _ in range(3):
            for batch in kept:
                pids.update(batch["pid"].tolist())
                break
        assert len(pids) == 1
    with loader(samples.Environment(2), num_workers=1, persistent_workers=False) as fresh:
        assert len({p for _ in range(2) for b in fresh for p in b["pid"].tolist()}) == 2


def test_workers_are_single_threaded_and_load_no_compiler():
    import os

    with loader(samples.Environment(), num_workers=2) as there:
        batches = list(there)
    assert {t for b in batches for t in b["threads"][0] + b["threads"][1]} == {"1"}
    assert {w for b in batches for w in b["worker"].tolist()} <= {0, 1}
    assert not any(b["llvm"].any() for b in batches)
    assert os.getpid() not in {p for b in batches for p in b["pid"].tolist()}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size must be a positive integer. Got 0"),
        ({"num_workers": -1}, "num_workers must be an integer of at least 0"),
        ({"prefetch_factor": 0}, "prefetch_factor must be an integer of at least 1"),
        ({"shuffle": True, "sampler": [1]}, "either sampler or shuffle"),
        ({"batch_sampler": [[1]]}, "batch_sampler replaces"),
        ({"rank": 2, "world_size": 2}, "rank must be between 0 and world_size - 1"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"batch_size": None, "drop_last": True}, "drop_last has no meaning"),
    ],
)
def test_settings_that_contradict_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        loader(samples.Squares(), **options)


def test_streams_cannot_be_shuffled_and_non_datasets_not_loaded():
    with pytest.raises(ValueError, match="is a stream and has no random order"):
        loader(samples.Counter(), shuffle=True)
    with pytest.raises(TypeError, match="int is not a dataset"):
        loader(3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"batch_size": 5}, "batch_size was 5 and is 4"),
        ({"length": 9}, "length was 9 and is 23"),
        ({"epoch": -1}, "epoch is -1, not an integer"),
        ({"batches": "3"}, "batches is '3', not an integer"),
        ({"version": 9}, "not the state of a DataLoader"),
        ({"stream": {}}, "state of an iterable dataset"),
    ],
)
def test_a_state_of_another_loader_is_refused(change, text):
    made = loader(samples.Squares())
    with pytest.raises(ValueError, match=text):
        made.load_state_dict({**made.state_dict(), **change})


def test_an_error_in_this_process_is_the_original_with_the_index():
    with pytest.raises(ValueError, match="cannot read number 5") as caught:
        list(loader(samples.Fails()))
    assert caught.value.__notes__ == ["DataLoader: while loading index 5"]


def test_a_bad_index_from_a_sampler_is_an_index_error():
    with pytest.raises(IndexError, match="index 99 is out of range"):
        list(loader(TensorDataset(np.arange(3)), sampler=[0, 99]))
    with pytest.raises(TypeError, match="Expected integer indices"):
        list(loader(samples.Squares(), sampler=["a"]))


def test_a_sampler_without_a_listed_order_is_shared_by_ranks():
    parts = [loader(samples.Squares(), sampler=Shuffler(), rank=r, world_size=2) for r in range(2)]
    assert [len(p) for p in parts] == [3, 3]
    whole = [v for b in loader(samples.Squares(), sampler=Shuffler()) for v in b["square"].tolist()]
    halves = [[v for b in p for v in b["square"].tolist()] for p in parts]
    assert halves == [whole[::2], whole[1::2]]


def test_without_shared_memory_batches_travel_through_the_pipe(monkeypatch):
    from weft import multiprocessing

    expected = listed(loader(samples.Squares()))
    monkeypatch.setattr(multiprocessing, "SUPPORTED", False)
    with loader(samples.Squares(), num_workers=1) as there:
        assert listed(there) == expected
    with pytest.raises(RuntimeError, match="shared memory: not available"):
        multiprocessing.Segment.create(8)
