"""Sorting: gradients follow the elements; top-k by partition equals top-k by sorting."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def test_gradients_go_back_to_where_elements_came_from():
    x = wf.asarray([3.0, 1.0, 2.0]).requires_grad_()
    (wf.sort(x) * wf.asarray([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 7, 900, 1000])
def test_topk_by_partition_equals_sorting(k, largest):
    x = np.random.default_rng(k).standard_normal((3, 1000))
    values, indices = wf.topk(wf.asarray(x), k, largest=largest)
    expected = np.sort(x, axis=1)
    expected = expected[:, ::-1][:, :k] if largest else expected[:, :k]
    np.testing.assert_array_equal(values.numpy(), expected)
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), 1), expected)


def test_topk_takes_nan_as_the_largest():
    assert wf.topk(wf.asarray([1.0, wf.nan, 3.0]), 1).indices.tolist() == [1]
    big = wf.concat([wf.asarray([wf.nan]), wf.arange(1000.0)])
    assert wf.topk(big, 2).indices.tolist() == [0, 1000]


def test_kthvalue_and_median():
    x = wf.asarray([[3.0, 1.0, 2.0, 4.0]])
    assert wf.kthvalue(x, 2).values.tolist() == [2] and wf.kthvalue(x, 2).indices.tolist() == [2]
    assert wf.median(x).item() == 2.5 and x.median(axis=1).tolist() == [2.5]
