"""Scatters inside a program, and failing before the first write."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.ops.array.gathering import checked_indices


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


@pytest.mark.parametrize("op", [wf.scatter, wf.scatter_add])
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((7,), 0, 20), ((3, 4, 5), 1, 9), ((4, 40), 1, 30), ((30, 64), 0, 50)]
)
def test_scatter_writes_in_order(op, shape, axis, count):
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.normal(size=shape).astype("float32"))
    places = list(shape)
    places[axis] = count
    index = wf.tensor(rng.integers(-shape[axis], shape[axis], places))
    source = wf.tensor(rng.normal(size=places).astype("float32"))
    f = wf.function(lambda x, i, s: op(x, i, s, axis))
    np.testing.assert_allclose(f(x, index, source).numpy(), op(x, index, source, axis).numpy(), rtol=1e-6)
    assert host_calls(f) == []


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_index_add_along_any_axis(axis):
    rng = np.random.default_rng(1)
    x = wf.tensor(rng.normal(size=(6, 5, 8)).astype("float32"))
    shape = list(x.shape)
    shape[axis] = 11
    index = wf.tensor(rng.integers(-5, 5, 11))
    source = wf.tensor(rng.normal(size=shape).astype("float32"))
    f = wf.function(lambda x, i, s: wf.index_add(x, i, s, axis))
    np.testing.assert_allclose(f(x, index, source).numpy(), wf.index_add(x, index, source, axis).numpy(), rtol=1e-5)
    assert host_calls(f) == []


def test_an_index_out_of_range_is_found_before_anything_is_written():
    state = wf.zeros(4)

    @wf.function
    def step(index):
        state.add_(1.0)
        state.copy_(wf.scatter_add(state, index, wf.ones(3), 0))
        return state.sum()

    step(wf.tensor([0, 1, -4]))
    before = state.numpy().copy()
    for bad in ([0, 4, 1], [0, -5, 1], [2**40, 0, 0]):
        with pytest.raises(IndexError, match=r"scatter_add: .*size 4.*test_scatter.py"):
            step(wf.tensor(bad))
        np.testing.assert_array_equal(state.numpy(), before)


def test_advanced_indices_are_checked_one_by_one():
    x = wf.tensor(np.arange(12.0).reshape(3, 4))
    f = wf.function(lambda x, i, j: x[i, j])
    np.testing.assert_array_equal(f(x, wf.tensor([0, -1]), wf.tensor([3, 0])).numpy(), [3, 8])
    with pytest.raises(IndexError, match=r"index out of range: expected -4 to 3.*test_scatter.py"):
        f(x, wf.tensor([0, 0]), wf.tensor([0, 4]))  # 4 would be a place in the next row
    assert host_calls(f) == []


def _labels(fn):
    return [step.label for step in fn.traces[0].compiled.program.steps]


def test_rows_of_a_variable_are_replaced_in_place():
    state = wf.zeros((2, 64, 8))
    array = state.numpy()

    def put(place, new):
        index = wf.broadcast_to(wf.reshape(place, (1, -1, 1)), new.shape)
        state.copy_(wf.scatter(state, index, new, axis=1))
        return state * 2.0

    fn = wf.function(lambda place, new: put(checked_indices(place, 0, 64, None, "place"), new))
    expected = np.zeros((2, 64, 8), np.float32)
    for i in (3, 0, 63):
        new = np.random.default_rng(i).standard_normal((2, 1, 8)).astype(np.float32)
        expected[:, i : i + 1] = new
        np.testing.assert_array_equal(fn(wf.tensor([i]), wf.tensor(new)).numpy(), expected * 2.0)
        np.testing.assert_array_equal(array, expected)
    assert "copy" not in _labels(fn)
    with pytest.raises(IndexError):
        fn(wf.tensor([64]), wf.ones((2, 1, 8)))
    np.testing.assert_array_equal(array, expected)


def test_an_old_value_that_is_read_later_is_not_overwritten():
    state = wf.tensor(np.arange(32, dtype=np.float32))

    def step(place):
        place = checked_indices(place, 0, 32, None, "place")
        old = state + 0.0
        total = wf.cumsum(state, axis=0)
        state.copy_(wf.scatter(state, place, wf.flip(state)[:1], axis=0))
        return old, total

    old, total = wf.function(step)(wf.tensor([2]))
    np.testing.assert_array_equal(old.numpy(), np.arange(32))
    np.testing.assert_array_equal(total.numpy(), np.cumsum(np.arange(32)))
    assert state.tolist()[:4] == [0.0, 1.0, 31.0, 3.0]


def test_rows_that_come_from_the_variable_itself_are_read_before_they_are_written():
    state = wf.tensor(np.arange(8, dtype=np.float32))

    def step(place):
        place = checked_indices(place, 0, 8, None, "place")
        state.copy_(wf.scatter(state, place, state[:4], axis=0))

    wf.function(step)(wf.tensor([1, 2, 3, 4]))
    assert state.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0]


def test_rows_of_a_variable_are_updated_in_its_memory_after_the_check():
    table = wf.zeros(1000, 8)

    @wf.function
    def update(index, rows):
        table.copy_(wf.index_add(table, index, rows, 0))

    update(wf.tensor([3, 999, 3]), wf.ones(3, 8))
    assert table.numpy()[3, 0] == 2.0 and table.numpy()[999, 0] == 1.0
    storages = [x for step in update.traces[-1].compiled.program.steps for x in getattr(step, "writes", ())]
    assert all(x.nbytes < table.nbytes or x.kind == "variable" for x in storages)  # no copy of the table
    before = table.numpy().copy()
    with pytest.raises(IndexError, match="index_add"):
        update(wf.tensor([0, 1, 1000]), wf.ones(3, 8))
    np.testing.assert_array_equal(table.numpy(), before)
