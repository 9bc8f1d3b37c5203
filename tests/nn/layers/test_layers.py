"""What the table of layers does not show: training and evaluation, indices, masks, bad settings and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn


def test_batch_norm_uses_the_batch_in_training_and_the_averages_after() -> None:
    norm = nn.BatchNorm1d(2)
    x = wf.tensor([[1.0, 10.0], [3.0, 30.0]])
    assert np.allclose(norm(x).detach().numpy(), [[-1.0, -1.0], [1.0, 1.0]], atol=1e-4)
    np.testing.assert_allclose(norm.running_mean.numpy(), [0.2, 2.0], rtol=1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), [0.9 + 0.2, 0.9 + 20.0], rtol=1e-6)
    norm.eval()
    before = norm.running_mean.tolist()
    expected = (x.numpy() - norm.running_mean.numpy()) / np.sqrt(norm.running_var.numpy() + 1e-5)
    np.testing.assert_allclose(norm(x).detach().numpy(), expected, rtol=1e-5)
    assert norm.running_mean.tolist() == before
    norm.reset_parameters()
    assert (norm.running_mean.tolist(), norm.num_batches_tracked.item()) == ([0.0, 0.0], 0)


def test_batch_norm_without_momentum_averages_all_batches_captured_too() -> None:
    xs = [wf.tensor(np.random.default_rng(i).normal(i, 1 + i, (6, 3)).astype(np.float32)) for i in range(3)]
    eager, captured = nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3, momentum=None)
    run = wf.function(captured)
    for x in xs:
        np.testing.assert_allclose(run(x).detach().numpy(), eager(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    for norm in (eager, captured):
        np.testing.assert_allclose(norm.running_mean.numpy(), np.mean([x.numpy().mean(0) for x in xs], 0), rtol=1e-5)


def test_power_average_of_volumes() -> None:
    x = np.random.default_rng(0).random((1, 2, 4, 4, 6)).astype(np.float32)
    blocks = x.reshape(1, 2, 2, 2, 2, 2, 3, 2) ** 2
    expected = np.sqrt(blocks.sum((3, 5, 7)))
    np.testing.assert_allclose(nn.LPPool3d(2, 2)(wf.tensor(x)).numpy(), expected, rtol=1e-5)


def test_dropout_layers_drop_in_training_only() -> None:
    x = wf.ones(64, 32, 4, 4)
    y = nn.Dropout(0.25)(x).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    np.testing.assert_allclose((y == 0).mean(), 0.25, atol=0.02)
    whole = nn.Dropout2d(0.5)(x).numpy()
    assert ((whole == 0).all((2, 3)) | (whole != 0).all((2, 3))).all()
    for layer in (nn.Dropout(0.9), nn.Dropout2d(0.9), nn.AlphaDropout(0.9)):
        assert layer.eval()(x) is x or layer(x).tolist() == x.tolist()


def test_embedding_rows_padding_and_sparse_gradients() -> None:
    table = nn.Embedding(5, 2, padding_idx=1, sparse=True)
    table(wf.tensor([[0, 1], [3, 3]])).sum().backward()
    grad = table.weight.grad
    assert isinstance(grad, wf.RowSparse)
    assert grad.to_dense().tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]
    dense = nn.Embedding(5, 2)
    dense(wf.tensor([0, 3])).sum().backward()
    assert isinstance(dense.weight.grad, wf.Tensor)
    given = nn.Embedding.from_pretrained(wf.ones(3, 2))
    assert given.weight.tolist() == [[1.0, 1.0]] * 3
    assert not given.weight.requires_grad
    short = nn.Embedding(3, 2, max_norm=1.0)
    with wf.no_grad():
        short.weight.fill_(3.0)
    short(wf.tensor([1]))
    np.testing.assert_allclose(
        np.linalg.norm(short.weight.detach().numpy(), axis=1), [18**0.5, 1.0, 18**0.5], rtol=1e-5
    )


def test_embedding_bags() -> None:
    bag = nn.EmbeddingBag(4, 1, mode="sum")
    with wf.no_grad():
        bag.weight.copy_(wf.tensor([[1.0], [10.0], [100.0], [1000.0]]))
    assert bag(wf.tensor([[0, 1], [2, 3]])).tolist() == [[11.0], [1100.0]]
    assert bag(wf.tensor([0, 1, 2, 3]), wf.tensor([0, 3])).tolist() == [[111.0], [1000.0]]
    weighted = bag(wf.tensor([0, 1]), wf.tensor([0]), per_sample_weights=wf.tensor([2.0, 3.0]))
    assert weighted.tolist() == [[32.0]]


def test_pooling_returns_indices_that_unpooling_uses() -> None:
    x = wf.randn(2, 3, 4, 4)
    y, places = nn.MaxPool2d(2, return_indices=True)(x)
    back = nn.MaxUnpool2d(2)(y, places)
    assert back.shape == x.shape
    np.testing.assert_allclose(back.sum().item(), y.sum().item(), rtol=1e-5)
    y, places = nn.AdaptiveMaxPool1d(2, return_indices=True)(wf.tensor([[[1.0, 5.0, 2.0, 7.0]]]))
    assert (y.tolist(), places.tolist()) == ([[[5.0, 7.0]]], [[[1, 3]]])


def test_transposed_convolution_takes_the_size_of_its_result() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    x = wf.ones(1, 2, 5, 5)
    assert layer(x).shape == (1, 3, 9, 9)
    assert layer(x, output_size=(10, 9)).shape == (1, 3, 10, 9)
    with pytest.raises(ValueError, match="output_size of axis 0 must be from 9 to 10 for an input of size 5. Got 12"):
        layer(x, output_size=(12, 9))


def test_class_weights_move_with_the_loss_and_are_no_parameters() -> None:
    loss = nn.CrossEntropyLoss(weight=wf.tensor([1.0, 3.0]))
    assert list(loss.parameters()) == []
    assert list(loss.state_dict()) == ["weight"]
    x, y = wf.zeros(2, 2), wf.tensor([0, 1])
    np.testing.assert_allclose(loss(x, y).item(), np.log(2), rtol=1e-6)
    assert nn.NLLLoss(reduction="none")(x, y).shape == (2,)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "groups must divide both channel counts"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ValueError, "kernel_size must be an integer or 2 integers"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), ValueError, "padding must be numbers, 'same' or 'valid'"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="wrap"), ValueError, "padding_mode must be one of"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, padding="same"), ValueError, "padding must be numbers"),
        (lambda: nn.Conv2d(3, 4, 3)(wf.ones(1, 2, 8, 8)), ValueError, "conv2d: the channels of x and weight"),
        (lambda: nn.BatchNorm2d(3)(wf.ones(2, 3)), ValueError, "BatchNorm2d: expected an input with 4 axes"),
        (lambda: nn.BatchNorm1d(3)(wf.ones(2, 4)), ValueError, "batch_norm: "),
        (lambda: nn.Softmax(dim=1), TypeError, r"Softmax: unexpected argument 'dim'.*`nn.Softmax\(axis=1\)`"),
        (lambda: nn.Flatten(start_dim=2), TypeError, r"`nn.Flatten\(start_axis=2\)`"),
        (lambda: nn.GroupNorm(3, 4), ValueError, "num_groups must divide num_channels"),
        (lambda: nn.LayerNorm(()), ValueError, "normalized_shape must name at least one axis"),
        (lambda: nn.Dropout(1.5), ValueError, "Dropout: p must be between 0 and 1. Got 1.5"),
        (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError, "padding_idx 3 is out of range for 3 rows"),
        (lambda: nn.Embedding(3, 2)(wf.tensor([5])), IndexError, "embedding: "),
        (lambda: nn.Embedding.from_pretrained(wf.ones(3)), ValueError, "expected a table of two axes"),
        (lambda: nn.EmbeddingBag(3, 2, mode="min"), ValueError, "mode must be 'sum', 'mean' or 'max'"),
        (lambda: nn.MSELoss("average"), ValueError, "MSELoss: reduction must be one of"),
        (lambda: nn.MSELoss()(wf.ones(3), wf.ones(3, 1)), ValueError, "mse_loss: "),
        (lambda: nn.Upsample(), ValueError, "give size or scale_factor"),
        (lambda: nn.Unflatten(1, (2, 2))(wf.ones(1, 6)), ValueError, r"cannot be split into \(2, 2\)"),
        (lambda: nn.Unflatten(4, (2, 2))(wf.ones(1, 6)), IndexError, "axis 4 is out of range"),
        (lambda: nn.ZeroPad2d((1, 2, 3)), ValueError, "padding must be a number or 4 numbers"),
        (lambda: nn.ChannelShuffle(4)(wf.ones(1, 6, 2)), ValueError, "C divisible by 4"),
        (lambda: nn.Hardtanh(1.0, -1.0), ValueError, "min_val must be below max_val"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
