"""Batch norm in a program: its statistics take one pass over memory and keep their digits."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


def normalised(x):
    return F.batch_norm(x, None, None, training=True)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
@pytest.mark.parametrize("shape", [(8, 32, 28, 28), (4, 16, 200, 3), (64, 300), (16, 24, 50), (2, 8, 16, 16, 16)])
def test_statistics_agree_with_float64(shape, offset):
    x = (np.random.default_rng(0).standard_normal(shape) + offset).astype(np.float32)
    axes = tuple(a for a in range(len(shape)) if a != 1)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    result = wf.function(normalised)(wf.tensor(x)).numpy()
    np.testing.assert_allclose(result, expected, atol=1e-6 * (1 + offset))


def test_a_large_input_is_read_for_the_statistics_once_and_once_to_be_normalised():
    fn = wf.function(normalised)
    x = wf.tensor(np.ones((16, 64, 32, 32), np.float32))
    fn(x)
    reading = [
        st.label
        for st in fn.traces[0].compiled.program.steps
        if any(storage.kind == "argument" for storage in st.reads)
    ]
    assert len(reading) == 2, reading
