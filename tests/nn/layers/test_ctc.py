"""CTCLoss against PyTorch's numbers."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F

VALUE = 1.5788023108946465
GRADIENT = [-0.006860173333108157, 0.07143129198701456, 0.011411672935155276, -0.07598279158906167]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_ctc_loss_and_gradient_are_pytorchs(captured: bool) -> None:
    # x[t, n, c] = sin(t + 2 n + 3 c); PyTorch 2.13, float64; the third sequence is too short for its labels
    t, n, c = np.meshgrid(np.arange(6), np.arange(3), np.arange(4), indexing="ij")
    x = wf.tensor(np.sin(t + 2.0 * n + 3.0 * c), requires_grad=True)
    targets = wf.tensor([[1, 1, 2], [3, 2, 0], [1, 1, 3]])
    loss_fn = nn.CTCLoss(zero_infinity=True)

    def loss(x: wf.Tensor) -> wf.Tensor:
        return loss_fn(F.log_softmax(x, -1), targets, [6, 5, 3], [3, 2, 3])

    value = (wf.function(loss) if captured else loss)(x)
    assert value.item() == pytest.approx(VALUE, rel=1e-10)
    if not captured:
        value.backward()
        np.testing.assert_allclose(x.grad.numpy()[2, 1], GRADIENT, rtol=1e-9)
        assert not x.grad.numpy()[:, 2].any() and not x.grad.numpy()[5, 1].any()


def test_there_is_no_second_derivative() -> None:
    x = wf.zeros(4, 1, 3).requires_grad_()
    value = nn.CTCLoss()(F.log_softmax(x, -1), wf.tensor([[1, 2]]), [4], [2])
    (g,) = wf.grad(value, [x], create_graph=True)
    with pytest.raises(RuntimeError, match="ctc_loss: there is no second derivative"):
        g.sum().backward()
