"""Eager attention with the compiler's kernels: the results of the NumPy path."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.backends import native_available
from weft.backends.llvm import eager_attention, kernels
from weft.nn import functional as F
from weft.ops.nn.attention_call import Attention, Forward

pytestmark = pytest.mark.skipif(not native_available(), reason="needs native code")
SHAPE = (2, 16, 48, 64)


def _mask(kind, rng):
    return {
        None: None,
        "bool": lambda: wf.asarray(rng.random((48, 48)) > 0.3),
        "float": lambda: wf.asarray(rng.standard_normal((48, 48), np.float32)),
        "keys": lambda: wf.asarray(rng.random((2, 1, 1, 48)) > 0.5),
        "nothing to see": lambda: wf.asarray(np.arange(48)[:, None] % 3 > np.zeros(48)),
    }[kind]


def _results(tensors, mask, causal):
    for t in tensors:
        t.grad = None
    out = F.scaled_dot_product_attention(*tensors, attn_mask=mask, is_causal=causal)
    (out * out).sum().backward()
    return [out.detach().numpy(), *[t.grad.numpy() for t in tensors]]


@pytest.mark.parametrize(
    ("mask", "causal"),
    [(None, False), (None, True), ("bool", False), ("float", False), ("keys", False), ("nothing to see", False)],
)
def test_native_attention_equals_the_numpy_way(mask, causal):
    rng = np.random.default_rng(0)
    tensors = [wf.asarray(rng.standard_normal(SHAPE, np.float32)).requires_grad_() for _ in range(3)]
    made = _mask(mask, rng)
    made = made() if made else None
    with kernels.disabled():
        expected = _results(tensors, made, causal)
    eager_attention._kernels.clear()
    first = _results(tensors, made, causal)
    assert len(eager_attention._kernels) == 2  # forward and backward
    found = _results(tensors, made, causal)
    assert all(np.array_equal(a, b) for a, b in zip(first, found, strict=True))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_views_of_one_projection_are_read_where_they_are():
    rng = np.random.default_rng(1)
    x = wf.asarray(rng.standard_normal((4, 48, 3 * 512), np.float32))
    q, k, v = (x[:, :, i * 512 : (i + 1) * 512].reshape((4, 48, 8, 64)).permute_dims((0, 2, 1, 3)) for i in range(3))
    with kernels.disabled():
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).numpy()
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(8, 4, 50, 64), (8, 4, 48, 60), (1, 2, 16, 16)])
def test_sizes_without_a_kernel_take_the_numpy_way(shape):
    q = wf.ones(shape)
    assert not eager_attention.serves(Forward(q._data, q._data, q._data, None, None, Attention(0.0, False, 0.1)))
    out = F.scaled_dot_product_attention(q, q, q)
    np.testing.assert_allclose(out.numpy(), 1.0, rtol=1e-5)
