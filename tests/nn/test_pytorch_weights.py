"""Weights that PyTorch wrote load unchanged and mean the same.

`pytorch_layers.safetensors` was written once by PyTorch 2.13 from `module.state_dict()` of small modules: for each case
the weights under PyTorch's names, the inputs `in0` … and the results `out0` … in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn

FILE = Path(__file__).with_name("pytorch_layers.safetensors")

CASES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 2),
    "bilinear": lambda: nn.Bilinear(2, 3, 2),
    "conv1d": lambda: nn.Conv1d(2, 3, 3, padding=1),
    "conv2d": lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2),
    "conv3d": lambda: nn.Conv3d(1, 2, 2),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
    "batch_norm": lambda: nn.BatchNorm2d(3),
    "group_norm": lambda: nn.GroupNorm(2, 4),
    "layer_norm": lambda: nn.LayerNorm((3, 4)),
    "embedding": lambda: nn.Embedding(5, 3, padding_idx=1),
    "embedding_bag": lambda: nn.EmbeddingBag(5, 3, mode="mean"),
    "prelu": lambda: nn.PReLU(3),
    "rnn": lambda: nn.RNN(3, 2, 2, nonlinearity="relu"),
    "gru": lambda: nn.GRU(3, 2, 2, bidirectional=True, batch_first=True),
    "lstm": lambda: nn.LSTM(3, 2, 2, bidirectional=True, batch_first=True),
    "lstm_projected": lambda: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
    "lstm_cell": lambda: nn.LSTMCell(3, 2),
    "gru_cell": lambda: nn.GRUCell(3, 2, bias=False),
    "attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True),
    "attention_other_widths": lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=2, add_bias_kv=True),
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=True, activation="gelu"), 2, nn.LayerNorm(4)
    ),
    "decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 6), 2),
    "transformer": lambda: nn.Transformer(4, 2, 1, 1, 6),
}
PAIRED = {"lstm_projected": 1, "lstm_cell": 1}  # where the inputs from this one on are a pair of states

CAPTURED = ("conv_transpose2d", "batch_norm", "lstm_projected", "attention_other_widths", "decoder")


@pytest.fixture(scope="module")
def stored() -> dict[str, wf.Tensor]:
    return nn.load_weights(FILE)


def flat(value: Any) -> list[wf.Tensor]:
    if isinstance(value, wf.Tensor):
        return [value]
    return [t for v in value if v is not None for t in flat(v)]


@pytest.mark.parametrize("name", CASES)
def test_a_layer_with_pytorchs_weights_gives_pytorchs_result(name: str, stored: dict[str, wf.Tensor]) -> None:
    part = {k.removeprefix(f"{name}/"): v for k, v in stored.items() if k.startswith(f"{name}/")}
    ins = [part.pop(f"in{i}") for i in range(4) if f"in{i}" in part]
    outs = [part.pop(f"out{i}") for i in range(4) if f"out{i}" in part]
    args: list[Any] = list(ins)
    if name in PAIRED:
        args[PAIRED[name] :] = [tuple(args[PAIRED[name] :])]
    layer = CASES[name]().eval()
    assert sorted(part) == sorted(layer.state_dict())  # the same names, and none besides
    layer.load_state_dict(part)
    with wf.no_grad():
        for run in (layer, wf.function(layer)) if name in CAPTURED else (layer,):
            got = flat(run(*args))
            assert len(got) == len(outs)
            for g, expected in zip(got, outs, strict=True):
                np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_every_case_of_the_file_is_tested(stored: dict[str, wf.Tensor]) -> None:
    assert {k.partition("/")[0] for k in stored} == set(CASES)
