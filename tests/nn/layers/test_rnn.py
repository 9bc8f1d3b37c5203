"""Recurrent layers on sequences of different lengths; packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn

Y = [0.060776, 0.023188, -0.082485, 0.229384, 0.064459, 0.024565, -0.108182, 0.212602, 0.08506, 0.038332, -0.088958,
     0.233608, 0.105903, 0.033836, -0.113188, 0.187087, 0.102044, 0.051455, -0.114735, 0.219451, 0.0, 0.0, 0.0, 0.0,
     0.121545, 0.054264, -0.11259, 0.188671, 0.0, 0.0, 0.0, 0.0]  # fmt: skip
H = [0.290823, 0.141404, 0.269002, 0.143675, -0.362587, -0.222494, -0.360305, -0.350003, 0.121545, 0.054264, 0.105903,
     0.033836, -0.082485, 0.229384, -0.108182, 0.212602]  # fmt: skip
C = [0.45947, 0.220771, 0.436458, 0.225096, -1.014699, -0.445401, -0.651185, -0.565251, 0.322531, 0.227196, 0.282973,
     0.136091, -0.126405, 0.35111, -0.16158, 0.334482]  # fmt: skip


def lstm(**settings: Any) -> nn.LSTM:
    layer = nn.LSTM(2, 2, 2, bidirectional=True, **settings)
    with wf.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_((wf.arange(float(p.size)) + i).sin().reshape(p.shape) * 0.5)
    return layer


X = wf.arange(16.0).cos().reshape(4, 2, 2)


def check(y: Any, h: Any, c: Any) -> None:
    for found, expected in ((y, Y), (h, H), (c, C)):
        np.testing.assert_allclose(found.detach().numpy().reshape(-1), expected, atol=2e-6)


def test_lengths_stop_each_sequence_at_its_end() -> None:
    y, (h, c) = lstm()(X, lengths=[4, 2])
    check(y, h, c)
    y, (h, c) = lstm(batch_first=True)(X.transpose(0, 1), lengths=wf.tensor([4, 2]))
    check(y.transpose(0, 1), h, c)


def test_packed_sequences_go_in_and_come_out() -> None:
    packed = nn.utils.pack_padded_sequence(X, [4, 2])
    out, (h, c) = lstm()(packed)
    assert isinstance(out, nn.PackedSequence)
    y, lengths = nn.utils.pad_packed_sequence(out)
    assert lengths.tolist() == [4, 2]
    check(y, h, c)


def test_packing_helpers() -> None:
    sequences = [wf.ones(3, 2), wf.ones(1, 2) * 2]
    padded = nn.utils.pad_sequence(sequences, batch_first=True, padding_value=-1.0)
    assert padded[:, :, 0].tolist() == [[1.0, 1.0, 1.0], [2.0, -1.0, -1.0]]
    packed = nn.utils.pack_sequence(sequences)
    data, lengths = nn.utils.pad_packed_sequence(packed, batch_first=True, padding_value=9.0, total_length=4)
    assert data[:, :, 0].tolist() == [[1.0, 1.0, 1.0, 9.0], [2.0, 9.0, 9.0, 9.0]]
    assert lengths.tolist() == [3, 1]
    for call, text in (
        (lambda: nn.utils.pack_padded_sequence(X, [4, 5]), "lengths must be from 1 to 4"),
        (lambda: nn.utils.pack_padded_sequence(X, [4]), "lengths must be 2 integers"),
        (lambda: nn.utils.pack_padded_sequence(X, [1, 2], enforce_sorted=True), "lengths must fall"),
        (lambda: nn.utils.pad_packed_sequence(packed, total_length=1), "total_length must be at least 3"),
        (lambda: nn.utils.pad_sequence([]), "there are no sequences"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_states_continue_a_sequence() -> None:
    for layer in (nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3)):
        whole, last = layer(X)
        first, state = layer(X[:2])
        second, state = layer(X[2:], state)
        np.testing.assert_allclose(wf.concat([first, second]).detach().numpy(), whole.detach().numpy(), rtol=1e-5)


def test_dropout_between_layers_only_in_training() -> None:
    layer = nn.GRU(2, 4, 2, dropout=0.5)
    assert layer(X)[0].tolist() != layer(X)[0].tolist()
    layer.eval()
    assert layer(X)[0].tolist() == layer(X)[0].tolist()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: nn.LSTM(2, 3)(wf.ones(4, 2, 5)),
            r"LSTM: expected an input \(time, batch, features\).*with 2 features",
        ),
        (lambda: nn.LSTM(2, 0), "hidden_size must be at least 1"),
        (lambda: nn.LSTM(2, 3, dropout=2.0), "dropout must be between 0 and 1"),
        (lambda: nn.RNN(2, 3, nonlinearity="sine"), "nonlinearity must be 'tanh' or 'relu'"),
        (lambda: nn.Sequential(nn.GRU(2, 3))(wf.ones(2, 4)), "^0: GRU: expected an input"),
    ],
)
def test_bad_input(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_a_gru_learns_the_parity_of_short_sequences(captured: bool) -> None:
    from weft import optim

    layer, head = nn.GRU(1, 12, batch_first=True), nn.Linear(12, 2)
    opt = optim.Adam([*layer.parameters(), *head.parameters()], lr=0.03)
    bits = np.array([[b >> i & 1 for i in range(3)] for b in range(8)])
    x, y = wf.asarray(bits[..., None].astype(np.float32)), wf.asarray(bits.sum(1) % 2)

    def step() -> wf.Tensor:
        loss = nn.functional.cross_entropy(head(layer(x)[1][0]), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = wf.function(step) if captured else step
    for _ in range(150):
        loss = run()
    assert loss.item() < 0.1
