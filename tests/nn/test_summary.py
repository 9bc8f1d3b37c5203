"""The summary table: shapes, parameters, FLOPs, and no trace left behind."""

from __future__ import annotations

import pytest

import weft as wf
from weft import nn


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Sequential(nn.Linear(128, 10), nn.Dropout()),
    )  # fmt: skip


def test_rows_have_shapes_parameters_and_flops() -> None:
    summary = build().summary((2, 3, 4, 4))
    rows = {r.path: r for r in summary.rows}
    assert list(rows) == ["", "0", "1", "2", "3", "4", "4.0", "4.1"]
    assert rows["0"].output == "(2, 8, 4, 4)"
    assert rows["0"].flops == 2 * (2 * 8 * 4 * 4) * (3 * 9)
    assert rows["2"].flops == 2 * 8 * 4 * 4
    assert rows["4.0"].flops == 2 * 2 * 128 * 10 + 2 * 10
    assert (rows["0"].parameters, rows["1"].parameters, rows["4"].parameters) == (216, 16, 0)
    assert summary.total_parameters == 216 + 16 + 1290
    assert summary.total_flops == rows[""].flops == sum(rows[k].flops for k in ("0", "1", "2", "3", "4"))
    text = str(summary)
    assert "0: Conv2d" in text and "parameters 1,522" in text and "input (2, 3, 4, 4)" in text


def test_depth_folds_what_is_below() -> None:
    summary = build().summary((2, 3, 4, 4), depth=1)
    assert [r.path for r in summary.rows] == ["", "0", "1", "2", "3", "4"]
    assert summary.rows[-1].parameters == 1290


def test_nothing_changes() -> None:
    model = build()
    state = wf.get_rng_state().tolist()
    model.summary(wf.ones(1, 3, 4, 4))
    assert model[1].num_batches_tracked.item() == 0
    assert model.training and model[4][1].training
    assert wf.get_rng_state().tolist() == state
    model(wf.ones(1, 3, 4, 4))
    assert not any(m._hooked for m in model.modules())


def test_frozen_and_shared_parameters_and_several_inputs() -> None:
    model = nn.Bilinear(2, 3, 4)
    model.bias.requires_grad_(False)
    summary = model.summary((5, 2), (5, 3))
    assert (summary.total_parameters, summary.trainable_parameters) == (28, 24)
    assert "of which frozen 4" in str(summary)
    twice = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    twice.append(twice[0])
    rows = twice.summary(1, 2).rows
    assert sum(r.parameters for r in rows) == 6  # used twice, counted once
    state = nn.LSTM(2, 3).summary(wf.ones(4, 1, 2))
    assert state.rows[0].output == "(4, 1, 3), (1, 1, 3), (1, 1, 3)"


def test_an_error_leaves_no_hooks() -> None:
    model = build()
    with pytest.raises(ValueError, match="^0: conv2d"):
        model.summary((2, 4, 4, 4))
    assert not any(m.__dict__.get("_forward_hooks") for m in model.modules())
    assert model.training
