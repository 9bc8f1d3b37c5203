"""Batches from workers lie in shared memory, are not copied, and their memory is used again only when free."""

from __future__ import annotations

import gc

import loader_samples as samples
import numpy as np
import pytest

from weft.data import DataLoader
from weft.data.collate import plan
from weft.data.slots import SlotReader, SlotWriter

pytestmark = pytest.mark.timeout(60)


def address(array):
    return array.__array_interface__["data"][0]


def test_a_batch_lies_on_the_memory_the_worker_wrote():
    with DataLoader(samples.Images(), batch_size=4, num_workers=1, as_numpy=True) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        segments = list(iterator._pool.workers[0].reader._segments.values())
        spans = [(address(s := np.frombuffer(memory, np.uint8)), s.size) for memory, _ in segments]
        assert any(start <= address(batch) < start + size for start, size in spans)
        assert address(batch) % 64 == 0
        assert not batch.flags.owndata
        assert batch.flags.writeable
        assert batch[:, 0, 0].tolist() == [0, 1, 2, 3]


def test_a_tensor_lies_on_the_same_memory():
    with DataLoader(samples.Images(), batch_size=4, num_workers=1) as loader:
        iterator = iter(loader)
        tensor = next(iterator)
        memory, _ = iterator._pool.workers[0].reader._segments[0]
        assert np.shares_memory(tensor.numpy(), np.frombuffer(memory, np.uint8))


def test_memory_is_used_again_when_dropped_and_kept_while_held():
    with DataLoader(samples.Images(120), batch_size=4, num_workers=1, as_numpy=True) as loader:
        dropped = {address(batch) for batch in loader}
        assert len(dropped) <= 6  # 30 batches
        held = list(loader)
        assert len({address(batch) for batch in held}) == 30
        assert [batch[0, 0, 0] for batch in held] == list(range(0, 120, 4))
        rows = [batch[1, :, 3] for batch in held]  # views keep the memory as well as the batch does
        del held
        for batch in loader:
            batch[:] = -1
        assert [row[0] for row in rows] == list(range(1, 120, 4))


def test_batches_outlive_the_loader():
    loader = DataLoader(samples.Images(8), batch_size=4, num_workers=1, as_numpy=True)
    first, second = loader
    loader.close()
    del loader
    gc.collect()
    assert (first[3, 0, 0], second[3, 0, 0]) == (3, 7)


def test_slots_grow_with_the_batches():
    with DataLoader(samples.Ragged(24), batch_size=4, num_workers=1, as_numpy=True) as loader:
        for i, batch in enumerate(loader):
            assert batch.shape == (4, 2000 * (i + 1))
            assert batch[:, -1].tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]


def test_writer_and_reader_round_trip_every_kind_of_leaf():
    writer, reader = SlotWriter(2), SlotReader()
    batch = plan(
        [{"x": np.arange(5, dtype=np.int16) + i, "y": (float(i), f"s{i}"), "z": np.zeros((0, 2))} for i in (0, 1)]
    )
    tree, slot, (number, memory, size), gone = writer.write(batch)
    assert gone == []
    reader.add_segment(number, memory, size)
    out = reader.read(tree, slot)
    assert out["x"].tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
    assert out["y"][0].tolist() == [0.0, 1.0]
    assert out["y"][1] == ["s0", "s1"]
    assert out["z"].shape == (2, 0, 2)
    del out
    assert reader.take_freed() == [slot]
    writer.release([slot])
    assert writer.write(batch)[1:3] == (slot, None)


def test_a_segment_that_became_too_small_is_given_up():
    writer = SlotWriter(2)
    _, slot, _, _ = writer.write([np.zeros(10)])
    writer.release([slot])
    _, _, new, gone = writer.write([np.zeros(10_000)])
    assert gone == [slot.segment]
    assert new[0] != slot.segment


def test_trees_without_arrays_need_no_slot():
    assert SlotWriter(2).write({"name": ["a"]}) == ({"name": ["a"]}, None, None, [])
