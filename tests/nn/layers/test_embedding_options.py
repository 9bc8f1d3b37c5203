"""max_norm and scale_grad_by_freq of embeddings, eagerly and captured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn

MODES = pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
LAYERS = pytest.mark.parametrize("make", [nn.Embedding, nn.EmbeddingBag])


@MODES
@LAYERS
def test_rows_that_are_looked_up_are_shortened_in_place(make: Any, captured: bool) -> None:
    layer = make(4, 2, max_norm=1.0)
    with wf.no_grad():
        layer.weight.copy_(wf.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0], [30.0, 40.0]]))
    run = wf.function(layer) if captured else layer
    y = run(wf.tensor([[0, 1, 0]]))
    weight = layer.weight.detach().numpy()
    np.testing.assert_allclose(weight, [[0.6, 0.8], [0.3, 0.4], [6, 8], [30, 40]], rtol=1e-5)
    expected = weight[[0, 1, 0]] if make is nn.Embedding else weight[[0, 1, 0]].mean(0)
    np.testing.assert_allclose(y.detach().numpy()[0], expected, rtol=1e-5)
    with pytest.raises(IndexError):
        run(wf.tensor([[0, 1, 4]]))


@MODES
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@LAYERS
def test_the_gradient_of_a_row_is_shared_among_its_uses(make: Any, sparse: bool, captured: bool) -> None:
    settings = {} if make is nn.Embedding else {"mode": "sum"}
    layer = make(4, 2, scale_grad_by_freq=True, sparse=sparse, **settings)

    def step(x: wf.Tensor) -> wf.Tensor:
        layer.weight.grad = None
        loss = (layer(x) * 6.0).sum()
        loss.backward()
        return loss

    run = wf.function(step, keep_grads=True) if captured else step
    run(wf.tensor([[1, 2, 1], [1, 3, 3]]))
    grad = layer.weight.grad
    assert isinstance(grad, wf.Tensor) != sparse
    dense = grad.to_dense() if sparse else grad
    np.testing.assert_allclose(dense.numpy(), [[0, 0], [6, 6], [6, 6], [6, 6]], rtol=1e-6)
