"""Layouts: views as strides, against NumPy's own; and channels-last through a convolutional network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft as wf
from weft import nn
from weft.compiler.program.layout import (
    Layout,
    Storage,
    channels_last,
    like_order,
    row_major,
    same_strides,
    view_layout,
)
from weft.graph.graph import Graph
from weft.nn import functional as F
from weft.ops.array.indexing import freeze
from weft.ops.core.registry import table

F32 = np.dtype(np.float32)
SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple)
QUICK = settings(max_examples=80, deadline=None)


def lay(array: np.ndarray, whole: np.ndarray) -> Layout:
    """The layout of a view of `whole`."""
    start = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    strides = tuple([s // array.itemsize for s in array.strides])
    return Layout(Storage("arena", whole.nbytes), array.dtype, array.shape, strides, start // array.itemsize)


def read(layout: Layout, whole: np.ndarray) -> np.ndarray:
    """The elements a layout says it has."""
    index = np.full(layout.shape, layout.offset)
    for axis, stride in enumerate(layout.strides):
        shape = [1] * len(layout.shape)
        shape[axis] = layout.shape[axis]
        index = index + np.arange(layout.shape[axis]).reshape(shape) * stride
    return whole.reshape(-1)[index]


def view(name, array, attrs, whole):
    """The layout of the op `name` on `array`, a view of `whole`."""
    graph = Graph("g")
    x = graph.placeholder(array.shape, array.dtype)
    node = graph.emit(table[name], (x,), attrs)
    return view_layout(node, lay(array, whole))


@st.composite
def strided(draw):
    """(a contiguous array, a view of it with permuted, reversed and stepped axes)."""
    shape = draw(SHAPES)
    whole = np.arange(int(np.prod([2 * d for d in shape])), dtype=np.float32).reshape([2 * d for d in shape])
    array = whole.transpose(draw(st.permutations(range(len(shape)))))
    for axis in range(array.ndim):
        step = draw(st.sampled_from([1, 1, 2, -1]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    return whole, array


@QUICK
@given(strided(), st.data())
def test_permuted_views(sample, data):
    whole, array = sample
    axes = tuple(data.draw(st.permutations(range(array.ndim))))
    np.testing.assert_array_equal(read(view("permute_dims", array, (axes,), whole), whole), array.transpose(axes))


@QUICK
@given(strided(), st.data())
def test_broadcast_views(sample, data):
    whole, array = sample
    array = array[:, :1] if array.ndim > 1 else array
    shape = (data.draw(st.integers(1, 3)), *[3 if d == 1 else d for d in array.shape])
    found = view("broadcast_to", array, (shape,), whole)
    np.testing.assert_array_equal(read(found, whole), np.broadcast_to(array, shape))


@QUICK
@given(strided(), st.data())
def test_sliced_views(sample, data):
    whole, array = sample
    index = []
    for d in array.shape:
        if data.draw(st.booleans()):
            index.append(data.draw(st.integers(-d, d - 1)))
        else:
            step = data.draw(st.sampled_from([1, 2, -1, -2]))
            index.append(slice(data.draw(st.one_of(st.none(), st.integers(-d, d))), None, step))
    if data.draw(st.booleans()):
        index.insert(data.draw(st.integers(0, len(index))), None)
    expected = array[tuple(index)]
    graph = Graph("g")
    x = graph.placeholder(array.shape, array.dtype)
    node = graph.emit(table["getitem"], (x,), (freeze(tuple(index))[0],))
    np.testing.assert_array_equal(read(view_layout(node, lay(array, whole)), whole), expected)


@QUICK
@given(strided(), st.data())
def test_axes_of_size_one_come_and_go(sample, data):
    whole, array = sample
    axis = data.draw(st.integers(-array.ndim - 1, array.ndim))
    found = view("expand_dims", array, (axis,), whole)
    np.testing.assert_array_equal(read(found, whole), np.expand_dims(array, axis))
    ones = tuple([i for i, d in enumerate(array.shape) if d == 1])
    if ones:
        found = view("squeeze", array, (ones,), whole)
        np.testing.assert_array_equal(read(found, whole), np.squeeze(array, ones))


@QUICK
@given(strided(), st.data())
def test_reshapes_are_views_exactly_where_numpy_has_one(sample, data):
    whole, array = sample
    n = array.size
    shape = []
    while n > 1 and len(shape) < 4:
        d = data.draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
        shape.append(d)
        n //= d
    shape = (*shape, n)
    found = view("reshape", array, (shape, None), whole)
    try:
        copied = not np.shares_memory(np.reshape(array, shape, copy=False), whole)
    except ValueError:
        copied = True
    assert (found is None) == copied
    if found is not None:
        np.testing.assert_array_equal(read(found, whole), array.reshape(shape))


def test_reshape_of_a_transpose_is_copied_once_and_right():
    x = wf.tensor(np.arange(24, dtype="f").reshape(4, 6))
    f = wf.function(lambda x: wf.exp(x.T.reshape(4, 6) * 0.1))
    np.testing.assert_allclose(f(x).numpy(), np.exp(x.numpy().T.reshape(4, 6) * 0.1), rtol=1e-6)
    labels = [s.label for s in f.traces[0].compiled.program.steps]
    assert labels == ["copy", "multiply+exp"]
    g = wf.function(lambda x: wf.exp(x.reshape(2, 2, 6).reshape(24) * 0.1))
    g(x)
    assert [s.label for s in g.traces[0].compiled.program.steps] == ["multiply+exp"]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 1, 2), (2, 0, 3)])
def test_row_major_is_numpys_order(shape):
    layout = Layout(Storage("arena", 1), F32, shape, row_major(shape))
    assert layout.contiguous
    if 0 not in shape:
        assert layout.byte_strides == np.empty(shape, F32).strides


def test_channels_last_is_a_transposed_dense_array():
    dense = np.empty((2, 5, 6, 3), F32).transpose(0, 3, 1, 2)
    assert tuple([4 * s for s in channels_last((2, 3, 5, 6))]) == dense.strides


@QUICK
@given(SHAPES, st.data())
def test_like_order_keeps_the_order_of_axes_and_is_dense(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    array = np.empty([shape[a] for a in order], F32).transpose(np.argsort(order))
    strides = tuple([s // 4 for s in array.strides])
    assert same_strides(like_order(shape, strides), strides, shape)


def _net():
    wf.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


def test_convolutional_network_runs_channels_last():
    """Only the image on its way in is reordered: no activation of the network is copied, forward or back."""
    eager, net = _net(), _net()
    x = wf.tensor(np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype("f"))
    y = wf.tensor([0, 1, 2, 3])

    def step(model):
        def run(x, y):
            loss = F.cross_entropy(model(x), y)
            return loss, wf.grad(loss, list(model.parameters()))

        return run

    f = wf.function(step(net))
    loss, grads = f(x, y)
    expected, expected_grads = step(eager)(x, y)
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    for a, b in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=1e-5)
    assert "channels-last" in f.explain()
    program = f.traces[0].compiled.program
    activations = 4 * 8 * 16 * 16 * 4 // 8  # bytes of the smallest activation that is worth a count
    copies = [s for s in program.steps if s.label == "copy" and s.writes[0].nbytes >= activations]
    assert len(copies) <= 2, f.explain()
    layouts = f.traces[0].compiled.lowering.layouts
    for value, layout in layouts.items():
        if value.node.op.name in ("conv_forward", "conv2d", "convolution", "relu") and len(value.shape) == 4:
            assert same_strides(layout.strides, channels_last(layout.shape), layout.shape), value
