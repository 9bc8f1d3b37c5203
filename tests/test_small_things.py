"""Signatures and messages that array programs meet."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import weft as wf
from tests.each import each


def test_constructors_have_the_standards_signature():
    for function in (wf.zeros, wf.ones, wf.empty):
        parameters = inspect.signature(function).parameters
        assert next(iter(parameters)) == "shape" and parameters["shape"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        for made in (
            function((2, 3)), function(2, 3), function(shape=(2, 3)), function([2, 3]), function((2, 3), wf.float32),
            function((2, 3), dtype="float32"),
        ):  # fmt: skip
            assert made.shape == (2, 3) and made.dtype == wf.float32
        assert function().shape == function(()).shape == () and function(4).shape == (4,)
        assert function((2,), np.int32).dtype == wf.int32
    with pytest.raises(TypeError, match="zeros: "):
        wf.zeros((2, 3), 4)
    assert list(inspect.signature(wf.can_cast).parameters.values())[1].kind is inspect.Parameter.POSITIONAL_ONLY


def test_more_than_64_axes_have_words():
    many = (1,) * 65
    most = wf.ones((1,) * 64)
    calls = {
        "zeros": lambda: wf.zeros(many),
        "ones": lambda: wf.ones(*many),
        "reshape": lambda: wf.ones(1).reshape(many),
        "getitem": lambda: most[None],
        "broadcast_to": lambda: wf.broadcast_to(wf.ones(1), many),
        "stack": lambda: wf.stack([most]),
        "expand_dims": lambda: wf.expand_dims(most, axis=0),
        "unsqueeze": lambda: most.unsqueeze(0),
        "rand": lambda: wf.rand(*many),
        "full": lambda: wf.full(many, 2),
        "tile": lambda: wf.tile(wf.ones(1), many),
    }

    def check(name, call):
        with pytest.raises((ValueError, IndexError), match=f"{name}: a tensor has at most 64 axes. Got (65|more)"):
            call()

    each(check, {name: (name, call) for name, call in calls.items()})


def test_an_empty_histogram_is_zeros():
    assert wf.histc(wf.ones(0), 3).tolist() == [0.0, 0.0, 0.0]
    assert wf.ones(0).histc(2, 1, 5).tolist() == [0.0, 0.0]
    found, expected = wf.histogram(wf.ones(0), bins=3), np.histogram(np.ones(0), bins=3)
    assert found[0].tolist() == expected[0].tolist() and np.allclose(found[1].numpy(), expected[1])


def test_names_of_python_are_not_names_of_weft():
    assert not hasattr(wf, "annotations") and "annotations" not in dir(wf)
