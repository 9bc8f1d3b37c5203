"""Attention written with smaller ops: dropout, gradients of masks and broadcast heads without a host call."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def tensor(*shape):
    return wf.tensor(RNG.normal(size=shape).astype("float32"), requires_grad=True)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("heads", [2, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_and_its_gradients(dropout, heads, masked):
    query, key, value = tensor(3, 2, 5, 4), tensor(3, heads, 6, 4), tensor(3, heads, 6, 4)
    mask = tensor(5, 6) if masked else None
    wanted = [t for t in (query, key, value, mask) if t is not None]

    def gradients(query, key, value):
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return wf.grad(y.square().sum(), [query, key, value, *([mask] if masked else [])])

    wf.manual_seed(1)
    expected = gradients(query, key, value)
    wf.manual_seed(1)
    f = wf.function(gradients)
    got = f(query, key, value)
    assert len(got) == len(wanted)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=2e-4, atol=2e-5)
    assert [s.label for s in f.traces[0].compiled.program.steps if isinstance(s, HostCall)] == []
