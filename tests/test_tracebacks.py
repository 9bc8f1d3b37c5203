"""Errors have one traceback, and notebooks show the user's frames and the message only."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from tests.each import each
from weft import nn


def _wrong_product(x):
    return x @ wf.ones(7, 2)


def _deep(x, depth):
    return _wrong_product(x) if depth == 0 else _deep(x, depth - 1)


def _shown(call):
    """The error of a call, and the lines that a notebook shows: IPython asks the error for them while it handles it."""
    try:
        call()
    except Exception as error:
        return error, error._render_traceback_(), traceback.format_exc()
    raise AssertionError("nothing was raised")


def _check(call, line):
    error, lines, everything = _shown(call)
    assert len(lines) <= 10 and lines[0] == "Traceback (most recent call last):", lines
    assert any(line in text for text in lines) and str(error).splitlines()[0] in "\n".join(lines)
    assert not any("/weft/" in text and "File" in text for text in lines)
    assert everything.count("Traceback (most recent call last)") == 1


def test_notebooks_show_the_users_frames_and_one_traceback():
    x = wf.ones(2, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    each(
        _check,
        {
            "op": (lambda: _wrong_product(x), "x @ wf.ones(7, 2)"),
            "raw error of NumPy": (lambda: wf.stack([object()]), "wf.stack([object()])"),
            "module": (lambda: model(x), "model(x)"),
            "captured": (lambda: wf.function(_wrong_product)(x), "x @ wf.ones(7, 2)"),
            "captured model": (lambda: wf.function(model)(x), "wf.function(model)(x)"),
            "capture": (lambda: wf.function(lambda t: t.item(), fullgraph=True)(wf.ones(())), "t.item()"),
            "deep": (lambda: _deep(x, 20), "x @ wf.ones(7, 2)"),
        },
    )


def test_messages_name_foreign_types_and_labels_and_suggest_once():
    foreign = type("Tensor", (), {"__module__": "torch"})()
    for call in (lambda: wf.add(wf.ones(2), foreign), lambda: nn.Linear(2, 2)(foreign), lambda: F.relu(foreign)):
        with pytest.raises(TypeError, match=r"must be a tensor. Got torch\.Tensor\."):
            call()
    with pytest.raises(TypeError, match=r"cross_entropy: class labels must be integers. Got float32 \(2,\)"):
        F.cross_entropy(wf.ones(2, 3), wf.tensor([0.0, 1.0]))
    assert np.isfinite(F.cross_entropy(wf.ones(3), wf.tensor([0.2, 0.3, 0.5])).item())  # probabilities
    for module in (wf, F):
        with pytest.raises(AttributeError, match="Did you mean") as caught:
            module.cross_entropi if module is F else module.zers
        assert caught.value.obj is None  # so that Python adds no second suggestion
