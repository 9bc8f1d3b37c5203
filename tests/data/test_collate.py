"""default_collate: the result for each kind of sample, and the errors for samples that do not match."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import weft as wf
from weft.data import TensorDataset
from weft.data.collate import default_collate, fill, plan


class Point(NamedTuple):
    x: int
    y: float


def collate(samples):
    return fill(plan(samples), np.empty)


@pytest.mark.parametrize(
    ("samples", "dtype", "values"),
    [
        ([1, 2], "int64", [1, 2]),
        ([1.5, 2], "float32", [1.5, 2]),
        ([1, 2.5], "float32", [1, 2.5]),
        ([True, False], "bool", [True, False]),
        ([1j, 2.0], "complex64", [1j, 2]),
        ([np.int8(1), np.int8(2)], "int8", [1, 2]),
        ([np.float64(1), np.float64(2)], "float64", [1, 2]),
        ([np.arange(2, dtype=np.uint8)] * 2, "uint8", [[0, 1], [0, 1]]),
        ([np.arange(2, dtype=np.uint8), np.arange(2, dtype=np.float32)], "float32", [[0, 1], [0, 1]]),
        ([np.arange(2, dtype=">i4")] * 2, "int32", [[0, 1], [0, 1]]),
        ([np.array(3.0)] * 2, "float64", [3, 3]),
        ([np.ones(1, ml_dtypes.bfloat16)] * 2, "bfloat16", [[1], [1]]),
    ],
)
def test_numbers_and_arrays_gain_a_batch_axis(samples, dtype, values):
    batch = collate(samples)
    assert batch.dtype == np.dtype(dtype)
    assert batch.dtype.isnative
    assert batch.astype(complex).tolist() == np.asarray(values, complex).tolist()


def test_containers_keep_their_type():
    batch = collate([{"p": Point(i, i / 2), "l": [i, (i, "a")], "b": b"x"} for i in range(3)])
    assert isinstance(batch["p"], Point)
    assert batch["p"].y.tolist() == [0, 0.5, 1]
    assert isinstance(batch["l"], list)
    assert isinstance(batch["l"][1], tuple)
    assert batch["l"][1][1] == ["a", "a", "a"]
    assert batch["b"] == [b"x"] * 3


def test_default_collate_gives_tensors_and_takes_them():
    import weft

    x, label = default_collate([(weft.asarray(np.ones(3)), 0), (weft.asarray(np.zeros(3)), 1)])
    assert isinstance(x, weft.Tensor)
    assert x.shape == (2, 3)
    assert label.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([], ValueError, "no samples"),
        ([np.zeros(3), np.zeros(4)], ValueError, r"Got \(3,\) for sample 0 and \(4,\) for sample 1"),
        ([{"a": [np.zeros(3)]}, {"a": [np.zeros(4)]}], ValueError, r"differ in shape at sample\['a'\]\[0\]"),
        ([(1, 2), (1,)], ValueError, "2 items for sample 0 and 1 items for sample 1"),
        ([{"a": 1}, {"b": 1}], ValueError, r"Got \['a'\] for sample 0 and \['b'\] for sample 1"),
        ([1, "a"], TypeError, "Got int for sample 0 and str for sample 1"),
        ([None, None], TypeError, "cannot stack None"),
        ([object()], TypeError, "cannot stack object.*pass collate_fn="),
        ([np.array([None])], TypeError, "arrays of Python objects"),
    ],
)
def test_what_cannot_be_stacked_says_where_and_why(samples, error, text):
    with pytest.raises(error, match=text):
        collate(samples)


def test_samples_that_require_gradients_are_refused():
    x = wf.ones(2, requires_grad=True)
    for make in (lambda: collate([x, x]), lambda: TensorDataset(x)):
        with pytest.raises(RuntimeError, match=r"numpy: the tensor requires gradients. Write `x.detach\(\).numpy\(\)`"):
            make()
