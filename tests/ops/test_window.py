"""The sliding window as a value: valid by construction, sizes equal to counting, and back from a graph file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft as wf
from weft.errors import FileError
from weft.nn import functional as F
from weft.ops.core.attributes import VALUES, field_names
from weft.ops.core.registry import table
from weft.ops.nn.window import MAX_WINDOW_ARGUMENT, Window, convolution_window, pooling_window

GOOD = {"kernel": (3, 2), "stride": (2, 1), "padding": ((1, 0), (0, 1)), "dilation": (1, 2), "ceil_mode": True}


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("kernel", (), ValueError), ("kernel", (1, 1, 1, 1), ValueError), ("kernel", [3, 2], ValueError),
        ("kernel", (3, None), TypeError), ("stride", (0, 1), ValueError), ("stride", (1,), ValueError),
        ("stride", (True, 1), TypeError), ("stride", (1.0, 1), TypeError), ("stride", 1, TypeError),
        ("padding", (1, 1), TypeError), ("padding", ((1, 0),), ValueError), ("padding", ((1, -1), (0, 0)), ValueError),
        ("padding", ((1, 0, 0), (0, 0)), ValueError), ("dilation", (1, MAX_WINDOW_ARGUMENT + 1), ValueError),
        ("ceil_mode", 1, TypeError), ("ceil_mode", None, TypeError),
    ],
)  # fmt: skip
def test_what_is_no_window_is_refused_when_it_is_made(field, value, error):
    with pytest.raises(error, match=f"window: .*{field}"):
        Window(**{**GOOD, field: value})


def test_windows_are_equal_and_hash_by_value_and_are_not_tuples():
    assert Window(**GOOD) == Window(**GOOD) and hash(Window(**GOOD)) == hash(Window(**GOOD))
    assert Window(**GOOD) != tuple(GOOD.values())
    with pytest.raises(AttributeError):
        Window(**GOOD).stride = (1, 1)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3),
    st.booleans(),
)  # fmt: skip
def test_sizes_equal_counting(size, kernel, stride, low, high, dilation, ceil_mode):
    window = Window((kernel,), (stride,), ((low, high),), (dilation,), ceil_mode)
    total, reach = size + low + high, dilation * (kernel - 1) + 1
    starts = [0] if reach <= total else []
    if ceil_mode:  # until a window reaches the end; the last one must not start in the right padding
        while starts and starts[-1] + reach < total:
            starts.append(starts[-1] + stride)
        starts = starts[:-1] if starts and starts[-1] >= size + low else starts
    else:
        while starts and starts[-1] + stride + reach <= total:
            starts.append(starts[-1] + stride)
    count = len(starts)
    assert window.counts((size,)) == (count,)
    if count:
        end = max(starts[-1] + reach, total)
        assert window.overhang((size,), (count,)) == (end - total,) and window.padded_sizes((size,), (count,)) == (end,)
        assert window.covering((size,), (count,)).padding == ((low, high + end - total),)
        back = window.transposed_sizes((count,), (0,))[0]
        assert ceil_mode or back < 1 or window.counts((back,)) == (count,)


def test_unknown_sizes_stay_unknown_and_a_kernel_that_does_not_fit_is_an_error():
    window = Window((3,), (1,), ((0, 0),), (2,))
    assert window.counts((None,)) == (None,) and window.counts((4,)) == (0,)
    with pytest.raises(
        ValueError, match=r"conv1d: the kernel is larger than the padded input. Got .* reaches over \(5,\)"
    ):
        window.out_sizes("conv1d", (4,))


def test_remembered_windows_do_not_let_other_kinds_of_numbers_through():
    """True and 1.0 are equal to 1, as keys of a cache too."""
    assert convolution_window("conv1d", (3,), 1, 1, 1) is convolution_window("conv1d", (3,), 1, 1, 1)
    assert convolution_window("conv2d", (3, 3), (1, 1), 0, 1) == convolution_window("conv2d", (3, 3), [1, 1], 0, 1)
    for bad in (True, 1.0, (True,), (1.0,)):
        with pytest.raises(TypeError, match="conv1d: stride must be an integer"):
            convolution_window("conv1d", (3,), bad, 1, 1)
        with pytest.raises(TypeError, match="max_pool1d: dilation must be an integer"):
            pooling_window("max_pool1d", 1, 3, 1, 1, bad, "floor")
    assert pooling_window("max_pool1d", 1, np.int64(3), None, 0, 1, "floor").kernel == (3,)


def test_every_op_with_an_attribute_value_can_read_older_files():
    names = {cls.__name__ for cls in VALUES.values()}
    ops = [op for op in table.values() if names & set(map(str, op.fn.__annotations__.values()))]
    stored = [op for op in ops if ".internal." not in op.fn.__module__]  # those of passes are in no file
    assert len(stored) > 10 and all(op.upgrade is not None and op.version > 1 for op in stored)


def _graph(folder):
    graph = wf.Graph("windows")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (1, 2, 7, 7), name="x")
        y = F.max_pool2d(F.conv2d(x, wf.ones(3, 2, 3, 3), padding=1), 3, 2, ceil_mode=True)
        wf.sum(y, axis=None)
    graph.save(folder / "g")
    program = json.loads((folder / "g.json").read_text())
    del program["checksum"]
    return graph, program


def _node(program, name):
    return next(n for n in program["graph"]["nodes"] if n["op"].get("name") == name)


def test_a_window_is_stored_by_field_names_and_comes_back(tmp_path):
    graph, program = _graph(tmp_path)
    stored = _node(program, "max_pool")
    assert stored["op"]["version"] == 2 and set(stored["attrs"][0]["window"]) == set(field_names(Window))
    loaded = wf.Graph.load(tmp_path / "g")
    for a, b in zip(graph.nodes, loaded.nodes, strict=True):
        if a.op.name in ("max_pool", "convolution"):
            assert a.attrs == b.attrs and isinstance(b.attrs[0], Window)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.update(stride={"tuple": [0, 1]}), "stride must be at least 1"),
        (lambda w: w.update(stride={"tuple": [1]}), "stride must be 2 numbers"),
        (lambda w: w.update(stride={"tuple": [True, 1]}), "stride must be a tuple of integers"),
        (lambda w: w.update(kernel={"list": [3, 3]}), "the kernel must be a tuple"),
        (lambda w: w.update(kernel={"tuple": [2, 2]}), "result 0|result|does not fit"),
        (lambda w: w.update(padding={"tuple": [1, 1]}), "padding must be a tuple"),
        (lambda w: w.update(ceil_mode=1), "ceil_mode must be a bool"),
        (lambda w: w.pop("stride"), "expected the fields kernel, stride"),
        (lambda w: w.update(other=1), "expected the fields kernel, stride"),
    ],
)
@pytest.mark.parametrize("op", ["max_pool", "convolution"])
def test_a_damaged_window_is_refused_with_its_place(tmp_path, op, change, reason):
    _, program = _graph(tmp_path)
    change(_node(program, op)["attrs"][0]["window"])
    (tmp_path / "g.json").write_text(json.dumps(program))
    with pytest.raises(FileError, match=reason):
        wf.Graph.load(tmp_path / "g")


@pytest.mark.parametrize(
    "attrs",
    [
        [],
        [1],
        [{"tuple": [3, 3]}] * 2,
        [{"tuple": [1]}, {"tuple": []}, {"tuple": [1]}, 1],
        [None] * 4,
        [{"window": {}}],
    ],
)
def test_damaged_attributes_of_an_older_version_are_refused(tmp_path, attrs):
    _, program = _graph(tmp_path)
    for name in ("max_pool", "convolution"):
        node = _node(program, name)
        node["op"]["version"], node["attrs"] = 1, attrs
    (tmp_path / "g.json").write_text(json.dumps(program))
    with pytest.raises(FileError):
        wf.Graph.load(tmp_path / "g")
