"""Clipping, vectors of parameters, packed sequences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.nn import utils


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize(
    ("norm_type", "norm", "first", "second"),  # PyTorch's numbers
    [
        (2.0, 13.0, [0.4615384340286255, -0.615384578704834], [[1.846153736114502]]),
        (1.0, 19.0, [0.31578943133354187, -0.42105257511138916], [[1.2631577253341675]]),
        (math.inf, 12.0, [0.4999999701976776, -0.6666666269302368], [[1.9999998807907104]]),
    ],
)
def test_clip_grad_norm(norm_type: float, norm: float, first: list, second: list, captured: bool) -> None:
    p, q, unused = nn.Parameter(wf.ones(2)), nn.Parameter(wf.ones(1, 1)), nn.Parameter(wf.ones(1))
    g, h = wf.tensor([3.0, -4.0]), wf.tensor([[12.0]])

    def clip() -> tuple[wf.Tensor, wf.Tensor, wf.Tensor]:
        p.grad = q.grad = None
        ((p * g).sum() + (q * h).sum()).backward()
        total = utils.clip_grad_norm_([p, q, unused], 2.0, norm_type)
        return total, p.grad, q.grad

    total, a, b = (wf.function(clip) if captured else clip)()
    np.testing.assert_allclose(total.item(), norm, rtol=1e-6)
    np.testing.assert_allclose(a.numpy(), first, rtol=1e-6)
    np.testing.assert_allclose(b.numpy(), second, rtol=1e-6)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_the_norm_of_float16_gradients_does_not_overflow(captured: bool) -> None:
    p = nn.Parameter(wf.zeros(4096, dtype=wf.float16))

    def clip() -> tuple[wf.Tensor, wf.Tensor]:
        p.grad = wf.full((4096,), 3000.0, dtype=wf.float16)
        return utils.clip_grad_norm_(p, 64.0), p.grad

    norm, grad = (wf.function(clip) if captured else clip)()
    assert norm.item() == 192000.0 and grad.dtype == wf.float16
    np.testing.assert_allclose(grad.numpy(), np.ones(4096))


def test_small_gradients_are_left_alone_and_bad_ones_reported() -> None:
    p = nn.Parameter(wf.ones(2))
    p.grad = wf.tensor([0.3, 0.4])
    np.testing.assert_allclose(utils.clip_grad_norm_(p, 1.0).item(), 0.5)
    np.testing.assert_allclose(p.grad.numpy(), [0.3, 0.4])
    p.grad = wf.tensor([math.nan, 1.0])
    with pytest.raises(RuntimeError, match="the norm of the gradients is nan"):
        utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_row_sparse_gradients_are_clipped_as_dense_ones_are(captured: bool) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    dense = nn.Embedding(4, 2)
    dense.load_state_dict(table.state_dict())
    opts = [optim.SGD(t.parameters(), lr=1.0) for t in (table, dense)]

    def step(indices: wf.Tensor) -> list[wf.Tensor]:
        norms = []
        for t, opt in zip((table, dense), opts, strict=True):
            opt.zero_grad()
            (t(indices) ** 2).sum().backward()
            norms.append(utils.clip_grad_norm_(t.parameters(), 0.5))
            opt.step()
        return norms

    norms = (wf.function(step) if captured else step)(wf.tensor([1, 3, 1]))
    np.testing.assert_allclose(norms[0].item(), norms[1].item(), rtol=1e-5)
    np.testing.assert_allclose(table.weight.detach().numpy(), dense.weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_clip_grad_value() -> None:
    p = nn.Parameter(wf.ones(3))
    p.grad = wf.tensor([-5.0, 0.5, 2.0])
    utils.clip_grad_value_([p], 1.0)
    assert p.grad.tolist() == [-1.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="must not be negative"):
        utils.clip_grad_value_([p], -1.0)


def test_parameters_as_one_vector() -> None:
    model = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(model.parameters())
    assert vector.shape == (9,)
    utils.vector_to_parameters(wf.arange(9.0), model.parameters())
    assert model.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert model.bias.tolist() == [6.0, 7.0, 8.0]
    with pytest.raises(ValueError, match="expected a vector of 9 numbers"):
        utils.vector_to_parameters(wf.arange(8.0), model.parameters())
    with pytest.raises(ValueError, match="there are no parameters"):
        utils.parameters_to_vector([])
    model.bias.requires_grad_(False)
    assert utils.count_parameters(model) == 9
    assert utils.count_parameters(model, trainable_only=True) == 6
