"""Starting values: bounds, spreads, orthogonality, repeatability, and those the layers begin with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import init


def array(tensor: wf.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (lambda t: init.xavier_uniform_(t, gain=2.0), 2 * math.sqrt(2 / 700)),
        (lambda t: init.xavier_normal_(t), math.sqrt(2 / 700)),
        (lambda t: init.kaiming_uniform_(t, nonlinearity="relu"), math.sqrt(2 / 300)),
        (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), math.sqrt(1 / 900)),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="linear"), math.sqrt(1 / 400)),
        (lambda t: init.uniform_(t, -1, 3), 4 / math.sqrt(12)),
        (lambda t: init.normal_(t, 0.0, 0.3), 0.3),
        (lambda t: init.trunc_normal_(t, 0.0, 0.5, -1.0, 1.0), 0.5 * 0.8796),  # of a normal cut off at two sigma
    ],
)
def test_spread(fill: Any, std: float) -> None:
    weight = nn.Parameter(wf.empty(400, 300))
    assert fill(weight) is weight
    assert weight.requires_grad
    np.testing.assert_allclose(array(weight).std(), std, rtol=0.02)


def test_truncated_normal_stays_inside_and_has_the_right_shape() -> None:
    x = array(init.trunc_normal_(wf.empty(50000), 1.0, 2.0, -1.0, 6.0))
    assert x.min() >= -1 and x.max() <= 6
    # P(X <= 1 | -1 <= X <= 6) for a normal of mean 1 and deviation 2
    np.testing.assert_allclose((x <= 1).mean(), 0.3413 / (0.3413 + 0.4938), atol=0.01)
    with pytest.raises(ValueError, match="too far from the mean"):
        init.trunc_normal_(wf.empty(2), 0.0, 0.01, 5.0, 6.0)
    with pytest.raises(ValueError, match="std > 0 and a < b"):
        init.trunc_normal_(wf.empty(2), 0.0, 1.0, 2.0, 1.0)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (3, 2, 4)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    weight = init.orthogonal_(wf.empty(shape, dtype=wf.float64), gain=3)
    m = array(weight).reshape(shape[0], -1)
    product = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
    np.testing.assert_allclose(product, 9 * np.eye(len(product)), atol=1e-12)


def test_fixed_patterns() -> None:
    assert init.eye_(wf.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert init.ones_(wf.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(wf.ones(2)).tolist() == [0.0, 0.0]
    x = wf.randn(1, 2, 5, 5)
    weight = init.dirac_(wf.empty(4, 1, 3, 3), groups=2)
    y = nn.functional.conv2d(x, weight, padding=1, groups=2)
    np.testing.assert_array_equal(array(y[:, [0, 2]]), array(x))
    assert not array(y[:, [1, 3]]).any()
    sparse = array(init.sparse_(wf.empty(10, 20), 0.25, std=1.0))
    assert ((sparse == 0).sum(0) == 3).all()


def test_a_seed_repeats_and_a_generator_is_used() -> None:
    made = []
    for _ in range(2):
        wf.manual_seed(1)
        made.append(array(nn.Linear(3, 4).weight).copy())
    np.testing.assert_array_equal(*made)
    one = init.normal_(wf.empty(5), generator=wf.Generator(7))
    two = init.normal_(wf.empty(5), generator=wf.Generator(7))
    assert one.tolist() == two.tolist()


def test_layers_begin_where_pytorchs_do() -> None:
    """Bounds of uniform starts (both ends nearly reached), deviations of normal ones, constants."""

    def bound(tensor: wf.Tensor, expected: float) -> None:
        x = np.abs(array(tensor)).max()
        assert 0.97 * expected < x <= expected

    bound(nn.Linear(100, 50).weight, 0.1)
    bound(nn.Linear(100, 500).bias, 0.1)
    bound(nn.Conv2d(8, 32, 5, groups=2).weight, 1 / math.sqrt(4 * 25))
    bound(nn.ConvTranspose2d(8, 32, 5).weight, 1 / math.sqrt(32 * 25))
    bound(nn.Bilinear(25, 10, 40).weight, 0.2)
    bound(nn.LSTM(10, 64).weight_hh_l0, 0.125)
    bound(nn.GRUCell(10, 64).weight_ih, 0.125)
    attention = nn.MultiheadAttention(64, 4)
    bound(attention.in_proj_weight, math.sqrt(6 / 256))
    bound(attention.out_proj.weight, 0.125)
    assert not array(attention.in_proj_bias).any() and not array(attention.out_proj.bias).any()
    np.testing.assert_allclose(array(nn.Embedding(500, 50).weight).std(), 1.0, rtol=0.02)
    assert not array(nn.Embedding(5, 4, padding_idx=-1).weight)[4].any()
    norm = nn.BatchNorm2d(3)
    assert (norm.weight.tolist(), norm.bias.tolist(), norm.running_var.tolist()) == ([1.0] * 3, [0.0] * 3, [1.0] * 3)
    assert nn.PReLU().weight.tolist() == [0.25]
    transformer = nn.Transformer(32, 2, 1, 1, 64)
    bound(transformer.encoder.layers[0].linear1.weight, math.sqrt(6 / 96))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: init.xavier_uniform_(wf.empty(3)), "xavier_uniform_: needs a tensor with at least two axes"),
        (lambda: init.kaiming_normal_(wf.empty(2, 2), mode="fan"), "mode must be 'fan_in' or 'fan_out'"),
        (lambda: init.calculate_gain("swish"), "unknown nonlinearity 'swish'"),
        (lambda: init.eye_(wf.empty(3)), "eye_: needs a matrix"),
        (lambda: init.dirac_(wf.empty(3, 3)), "dirac_: needs a convolution weight"),
        (lambda: init.orthogonal_(wf.empty(3)), "orthogonal_: needs at least two axes"),
        (lambda: init.sparse_(wf.empty(3, 3), 1.5), "0 <= sparsity <= 1"),
    ],
)
def test_bad_input(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
