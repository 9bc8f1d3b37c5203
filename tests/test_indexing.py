"""Indexing and assignment agree with NumPy, for whatever index Hypothesis comes up with; gradients agree with differences."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import weft as wf

SETTINGS = settings(max_examples=150, deadline=None, database=None)

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


@st.composite
def basic_items(draw, size):
    """An integer in range, a slice, for an axis of `size`."""
    if size > 0 and draw(st.booleans()):
        return draw(st.integers(-size, size - 1))
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.none() | st.integers(1, 3) | st.integers(-3, -1))
    return slice(draw(bound), draw(bound), step)


@st.composite
def basic_indices(draw, shape):
    count = draw(st.integers(0, len(shape)))
    items = [draw(basic_items(shape[i])) for i in range(count)]
    if draw(st.booleans()) and count < len(shape):  # an ellipsis, then items for the last axes
        rest = draw(st.integers(0, len(shape) - count))
        items += [Ellipsis] + [draw(basic_items(shape[len(shape) - rest + i])) for i in range(rest)]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if len(items) == 1 and draw(st.booleans()):
        return items[0]
    return tuple(items)


@st.composite
def advanced_indices(draw, shape):
    """Index arrays, masks, integers and slices mixed."""
    broadcast = draw(st.lists(st.integers(1, 3), min_size=0, max_size=2).map(tuple))
    items, axis, ellipsis = [], 0, False
    while axis < len(shape):
        size = shape[axis]
        kind = draw(st.sampled_from(["array", "slice", "integer", "mask", "none", "ellipsis", "stop"]))
        if kind == "array" and size:
            dims = tuple(draw(st.sampled_from([d, 1])) for d in broadcast[draw(st.integers(0, len(broadcast))) :])
            values = draw(
                st.lists(st.integers(-size, size - 1), min_size=int(np.prod(dims)), max_size=int(np.prod(dims)))
            )
            items.append(np.array(values, np.int64).reshape(dims))
            axis += 1
        elif kind == "slice":
            items.append(draw(basic_items(size).filter(lambda i: isinstance(i, slice))))
            axis += 1
        elif kind == "integer" and size:
            items.append(draw(st.integers(-size, size - 1)))
            axis += 1
        elif kind == "mask" and not any(isinstance(i, np.ndarray) for i in items):
            n = draw(st.integers(1, min(2, len(shape) - axis)))
            part = shape[axis : axis + n]
            total = int(np.prod(part))
            items.append(np.array(draw(st.lists(st.booleans(), min_size=total, max_size=total)), bool).reshape(part))
            axis += n
            broadcast = ()
            break
        elif kind == "none":
            items.append(None)
        elif kind == "ellipsis" and not ellipsis:
            items.append(Ellipsis)
            ellipsis = True
            break
        elif kind == "stop":
            break
    return tuple(items)


def _array(shape):
    return np.asarray(np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape) + 1)


def _tensor_index(index):
    if isinstance(index, tuple):
        return tuple(wf.asarray(i) if isinstance(i, np.ndarray) else i for i in index)
    return index


@given(st.data(), shapes)
@SETTINGS
def test_basic_indexing(data, shape):
    a = _array(shape)
    index = data.draw(basic_indices(shape))
    t = wf.asarray(a)
    got, expected = t[index], a[index]
    np.testing.assert_array_equal(got.numpy(), expected)
    assert got.shape == np.shape(expected)
    if got.size:
        assert np.shares_memory(got.numpy(), a)  # a view


@given(st.data(), shapes)
@SETTINGS
def test_advanced_indexing(data, shape):
    a = _array(shape)
    index = data.draw(advanced_indices(shape))
    try:
        expected = a[index]
    except (IndexError, ValueError):
        with pytest.raises((IndexError, ValueError)):
            wf.asarray(a)[_tensor_index(index)]
        return
    for given_index in (index, _tensor_index(index)):
        got = wf.asarray(a)[given_index]
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got.numpy(), expected)


@given(st.data(), shapes)
@SETTINGS
def test_assignment(data, shape):
    a = _array(shape)
    index = data.draw(st.one_of(basic_indices(shape), advanced_indices(shape)))
    try:
        part = np.shape(a[index])
    except (IndexError, ValueError):
        return
    keep = data.draw(st.integers(0, len(part)))
    value_shape = tuple(data.draw(st.sampled_from([d, 1])) for d in part[keep:])
    value = -_array(value_shape) if data.draw(st.booleans()) else -7.0
    t = wf.asarray(a.copy())
    a[index] = value
    t[_tensor_index(index)] = wf.asarray(value) if isinstance(value, np.ndarray) else value
    np.testing.assert_array_equal(t.numpy(), a)


@given(st.data(), shapes)
@settings(max_examples=60, deadline=None, database=None)
def test_gradients_of_reading_and_writing(data, shape):
    """The gradient of x[i] puts ones where NumPy reads, that of x[i] = v takes them where NumPy writes."""
    a = _array(shape)
    index = data.draw(st.one_of(basic_indices(shape), advanced_indices(shape)))
    try:
        part = np.asarray(a[index])
    except (IndexError, ValueError):
        return
    x = wf.asarray(a).requires_grad_()
    weights = np.arange(part.size, dtype=np.float64).reshape(part.shape) + 0.5
    (x[_tensor_index(index)] * wf.asarray(weights)).sum().backward()
    expected = np.zeros(shape)
    np.add.at(expected, index, weights)
    np.testing.assert_array_equal(x.grad.numpy(), expected)

    x = wf.asarray(a).requires_grad_()
    v = wf.asarray(np.ones(part.shape)).requires_grad_()
    y = x * 1
    y[_tensor_index(index)] = v
    w = np.asarray(np.arange(a.size, dtype=np.float64).reshape(shape) + 0.5)
    (y * wf.asarray(w)).sum().backward()
    kept = w.copy()
    kept[index] = 0
    np.testing.assert_array_equal(x.grad.numpy(), kept)
    places = np.arange(a.size).reshape(shape)[index]
    if len(np.unique(places)) == places.size:  # of places written twice the last one wins, which NumPy leaves open
        np.testing.assert_array_equal(v.grad.numpy(), w[index])


@pytest.mark.parametrize("index", [
    5, -6, (0, 7), (0, 0, 0), 1.0, "a", (Ellipsis, Ellipsis), 2**70, -(2**70), {0}, 1j, (0, "b"), slice(None, None, 0),
    slice("a"), np.array([9]), np.array([0.5]), np.array([True]), [[0, 1], [2]], pytest.param(object(), id="object"),
], ids=str)  # fmt: skip
def test_bad_indices_raise_index_errors_for_reading_and_writing(index):
    t = wf.zeros(5, 3)
    for action in (lambda: t[index], lambda: t.__setitem__(index, 1.0)):
        with pytest.raises((IndexError, TypeError, ValueError)) as caught:
            action()
        assert len(str(caught.value)) > 10
    assert not t.numpy().any()


def test_error_texts():
    t = wf.zeros(5, 3)
    with pytest.raises(
        IndexError, match=r"index 5 is out of bounds for axis 0 with size 5. The tensor has shape \(5, 3\)"
    ):
        t[5]
    with pytest.raises(IndexError, match="index: expected integers, slices, None, ..., tensors or lists. Got str"):
        t["a"]
    with pytest.raises(
        IndexError, match=r"a bool mask of shape \(4,\) does not match the indexed axes, which have shape \(5,\)"
    ):
        t[wf.ones(4, dtype=wf.bool)]
    with pytest.raises(
        ValueError,
        match=r"setitem: a value of shape \(2,\) does not broadcast to the indexed part, which has shape \(3,\)",
    ):
        t[0] = wf.ones(2)
    with pytest.raises(TypeError, match="setitem: the value must be a tensor or numbers. Got str"):
        t[0] = "a"
    with pytest.raises(OverflowError, match="setitem: .*300 out of bounds for uint8"):
        wf.zeros(2, dtype=wf.uint8)[0] = 300


def test_kinds_of_index():
    t = wf.arange(12).reshape(3, 4)
    a = t.numpy()
    for index in (
        np.int64(1), np.uint8(2), True, False, [0, 2], [True, False, True], range(2), (slice(None), [3, 0]), [], ([0, 1], [2, 3]),
        (None, 1), (Ellipsis, 0), (), Ellipsis, None, (1, True), (np.True_, 1),
        np.array(1), (np.array([[0], [2]]), np.array([1, 3])),
    ):  # fmt: skip
        np.testing.assert_array_equal(t[index].numpy(), a[index], err_msg=str(index))
    for index in (
        wf.tensor(1),
        wf.tensor([0, 2]),
        (wf.tensor(1), 2),
        wf.tensor([True, False, True]),
        wf.tensor(True),
        slice(wf.tensor(1), wf.tensor(3)),
    ):
        plain = index
        if isinstance(index, wf.Tensor):
            plain = index.numpy()
        elif isinstance(index, tuple):
            plain = tuple(i.numpy() if isinstance(i, wf.Tensor) else i for i in index)
        elif isinstance(index, slice):
            plain = slice(int(index.start), int(index.stop))
        np.testing.assert_array_equal(t[index].numpy(), a[plain])


def test_scalars_are_0d_tensors_that_share_memory():
    t = wf.zeros(2, 2)
    v = t[0, 1]
    assert v.shape == () and isinstance(v, wf.Tensor)
    v += 5
    assert t.tolist() == [[0, 5], [0, 0]]


def test_augmented_assignment():
    t = wf.zeros(4)
    t[1:3] += 2
    t[[0, 3]] -= 1
    t[t > 0] *= 3
    t[-1] /= 2
    assert t.tolist() == [-1, 6, 6, -0.5]


def test_assignment_casts_within_the_kind_and_refuses_across():
    t = wf.zeros(2, dtype=wf.float32)
    t[0] = wf.tensor(1.5, dtype=wf.float64)
    t[1] = wf.tensor(3)
    assert t.tolist() == [1.5, 3]
    n = wf.zeros(2, dtype=wf.int32)
    n[0] = wf.tensor(7, dtype=wf.int64)
    with pytest.raises(TypeError, match="float32.*int32"):
        n[0] = wf.tensor(0.5)
    with pytest.raises(TypeError, match="complex64.*float32"):
        t[0] = 1j


def test_assigning_a_tensor_to_part_of_itself():
    t = wf.arange(6)
    t[1:] = t[:-1]
    assert t.tolist() == [0, 0, 1, 2, 3, 4]
    t[:] = t[::-1]
    assert t.tolist() == [4, 3, 2, 1, 0, 0]
