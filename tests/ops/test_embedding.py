"""Bags of embeddings: offsets that make no bags are refused in every mode."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F

WEIGHT = wf.asarray(np.arange(21, dtype=np.float32).reshape(7, 3))
INDICES = wf.asarray(np.array([0, 1, 2, 3, 4]))


def _bags(offsets):
    return F.embedding_bag(INDICES, WEIGHT, offsets)


@pytest.mark.parametrize("offsets", [[0, 2, 4], [0, 2, 5], [0], [0, 0, 0]])
def test_captured_bags_equal_eager_ones(offsets):
    offsets = wf.asarray(np.array(offsets))
    np.testing.assert_array_equal(wf.function(_bags)(offsets).numpy(), _bags(offsets).numpy())


@pytest.mark.parametrize("run", [_bags, wf.function(_bags)], ids=["eager", "captured"])
@pytest.mark.parametrize("offsets", [[1, 2, 4], [0, 3, 2], [0, 2, 6], [-1, 2, 3], [3], [2**63 - 1, -(2**63), 0]])
def test_offsets_that_do_not_rise_from_zero_are_refused(run, offsets):
    with pytest.raises((ValueError, IndexError), match="embedding_bag: "):
        run(wf.asarray(np.array(offsets)))
