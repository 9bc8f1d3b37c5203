"""Masks of multi-head attention, against PyTorch's numbers; transformer layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn

BOTH = [0.324203, -0.827601, -0.145872, -0.126606, 0.350498, -0.728812, -0.301312, -0.022189, 0.606822, -1.247813,
        0.120847, -0.055072, 0.407473, -0.94047, -0.081589, -0.097773, 0.419072, -0.878475, -0.174234, -0.038655,
        0.696811, -1.242162, 0.023471, 0.066576]  # fmt: skip
WEIGHTS = [1.0, 0.0, 0.0, 0.768494, 0.231506, 0.0, 0.535596, 0.464404, 0.0, 1.0, 0.0, 0.0, 0.82042, 0.17958, 0.0,
           0.350171, 0.468357, 0.181472]  # fmt: skip
ADDED = [0.530395, -1.150218, 0.069689, -0.085789, 0.339392, -0.699804, -0.328128, -0.016142, 0.580878, -1.136791,
         0.001654, -0.010275, 0.481505, -0.939859, -0.156421, -0.000558, 0.426926, -0.837459, -0.235707, 0.000692,
         0.696811, -1.242162, 0.023471, 0.066576]  # fmt: skip
PER_HEAD = [0.500055, -1.071977, -0.002254, -0.06998, 0.328599, -0.648116, -0.384907, 0.006396, 0.580878, -1.136791,
            0.001654, -0.010275, 0.538523, -0.964391, -0.181368, 0.056588, 0.413279, -0.760099, -0.323192, 0.0377,
            0.696811, -1.242162, 0.023471, 0.066576]  # fmt: skip


def attention() -> nn.MultiheadAttention:
    module = nn.MultiheadAttention(4, 2, batch_first=True)
    with wf.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_((wf.arange(float(p.size)) + i).sin().reshape(p.shape) * 0.5)
    return module


X = np.cos(np.arange(24.0)).reshape(2, 3, 4).astype(np.float32)
PADDING = wf.tensor([[False, False, True], [False, False, False]])
LATER = wf.tensor([[False, True, True], [False, False, True], [False, False, False]])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_masks(need_weights: bool, captured: bool) -> None:
    module, x = attention(), wf.asarray(X)

    def run(x: wf.Tensor, **masks: Any) -> Any:
        return module(x, x, x, need_weights=need_weights, **masks)

    def values(**masks: Any) -> Any:
        def call(x: wf.Tensor) -> Any:
            return run(x, **masks)

        y, w = (wf.function(call) if captured else call)(x)
        return y.detach().numpy().reshape(-1), None if w is None else w.detach().numpy().reshape(-1)

    y, w = values(key_padding_mask=PADDING, attn_mask=LATER)
    np.testing.assert_allclose(y, BOTH, atol=2e-6)
    if need_weights:
        np.testing.assert_allclose(w, WEIGHTS, atol=2e-6)
    else:
        assert w is None
    np.testing.assert_allclose(values(attn_mask=LATER.astype(wf.float32) * -1.5)[0], ADDED, atol=2e-6)
    per_head = wf.zeros(4, 3, 3)
    per_head[1, 0, 0] = -2.0
    np.testing.assert_allclose(values(attn_mask=per_head)[0], PER_HEAD, atol=2e-6)
    causal, masked = values(is_causal=True)[0], values(attn_mask=LATER)[0]
    np.testing.assert_allclose(causal, masked, atol=2e-6)
    causal, masked = values(is_causal=True, key_padding_mask=PADDING)[0], BOTH
    np.testing.assert_allclose(causal, masked, atol=2e-6)


def test_weights_per_head_average_to_the_weights() -> None:
    module, x = attention(), wf.asarray(X)
    _, mean = module(x, x, x)
    _, each = module(x, x, x, average_attn_weights=False)
    assert each.shape == (2, 2, 3, 3)
    np.testing.assert_allclose(each.mean(axis=1).detach().numpy(), mean.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([(2, 3, 4), (2, 3, 5), (2, 3, 4)], "key must have 4 features in its last axis"),
        ([(2, 3, 4), (3, 4), (3, 4)], "must all have 3 axes"),
        ([(2, 3, 4), (1, 3, 4), (1, 3, 4)], "must share the batch size"),
        ([(2, 3, 4), (2, 5, 4), (2, 6, 4)], "key and value the length"),
    ],
)
def test_bad_shapes(shapes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        attention()(*[wf.zeros(s) for s in shapes])


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="num_heads must divide embed_dim"):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(ValueError, match="activation must be 'relu', 'gelu' or a function"):
        nn.TransformerEncoderLayer(4, 2, activation="swish")


def test_layers_of_an_encoder_are_copies_and_errors_name_them() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 3)
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight
    encoder.layers[2].linear2 = nn.Linear(7, 4)
    with pytest.raises(ValueError, match=r"^layers\.2\.linear2: linear: "):
        encoder(wf.ones(5, 1, 4))


def test_a_transformer_learns_to_copy() -> None:
    """Decoder with causal mask: the loss of a tiny copying task falls by a lot, captured."""
    from weft import optim

    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(6, 16), nn.Linear(16, 6)
    parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
    opt = optim.Adam(parameters, lr=0.005)
    source = wf.tensor([[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 5, 1]])
    shifted = wf.concat([wf.zeros(3, 1, dtype=wf.int64), source[:, :-1]], axis=1)

    @wf.function
    def step(source: wf.Tensor, shifted: wf.Tensor) -> wf.Tensor:
        y = head(model(embed(source), embed(shifted), tgt_is_causal=True))
        loss = nn.functional.cross_entropy(y.reshape(-1, 6), source.reshape(-1))
        opt.zero_grad()
        loss.backward()
        utils_norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        opt.step()
        return loss + 0.0 * utils_norm

    first = step(source, shifted).item()
    for _ in range(60):
        last = step(source, shifted).item()
    assert last < 0.3 * first


@pytest.mark.parametrize(
    ("masks", "error", "words"),
    [
        (
            {"attn_mask": np.zeros((4, 4), bool)},
            ValueError,
            r"attn_mask has shape \(4, 4\); expected \(3, 3\) or \(4, 3, 3\)",
        ),
        ({"attn_mask": np.zeros((2, 3, 3), bool)}, ValueError, r"attn_mask has shape \(2, 3, 3\)"),
        (
            {"key_padding_mask": np.zeros((3, 2), bool)},
            ValueError,
            r"key_padding_mask has shape \(3, 2\); expected \(2, 3\)",
        ),
        ({"key_padding_mask": np.zeros((1, 3), bool)}, ValueError, "key_padding_mask has shape"),  # would broadcast
        (
            {"key_padding_mask": np.zeros((2, 3), int)},
            TypeError,
            "key_padding_mask must be bool, or floating.*Got int64",
        ),
        ({"attn_mask": np.zeros((3, 3), np.uint8)}, TypeError, "attn_mask must be bool, or floating.*Got uint8"),
    ],
)
def test_masks_that_do_not_fit_are_named(masks: dict[str, Any], error: type[Exception], words: str) -> None:
    """Zeros and ones of an integer mask would be added to the scores without a word."""
    x, given = wf.ones(2, 3, 4), {name: wf.tensor(mask) for name, mask in masks.items()}
    for call in (attention(), wf.function(attention())):
        with pytest.raises(error, match=words):
            call(x, x, x, **given)
