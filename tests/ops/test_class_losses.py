"""Losses of class numbers, where the table of samples does not look."""

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


@pytest.mark.parametrize("shape", [(4, 10), (300, 100)])
def test_large_logits_cost_no_digits(shape):
    """Logits around 1000: their log-sum-exp is known to 6e-5 only, the loss to its own digits."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) + 1000).astype(np.float32)
    target = rng.integers(0, shape[1], shape[0])
    wide = x.astype(np.float64) - 1000
    expected = np.log(np.exp(wide).sum(1)) - wide[np.arange(shape[0]), target]
    for recorded in (False, True):
        t = wf.tensor(x, requires_grad=recorded)
        for fn in (F.cross_entropy, wf.function(F.cross_entropy)):
            for smoothing in (0.0, 0.1):
                loss = fn(t, wf.asarray(target), reduction="none", label_smoothing=smoothing).detach().numpy()
                mean = (1 - smoothing) * expected + smoothing * (np.log(np.exp(wide).sum(1)) - wide.mean(1))
                np.testing.assert_allclose(loss, mean, rtol=0, atol=2e-6)
