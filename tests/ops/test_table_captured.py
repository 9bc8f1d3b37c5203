"""Every op of the table gives the same values and gradients captured as eagerly."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.graph.capture.tracing import CaptureError

_spec = importlib.util.spec_from_file_location("table_cases", Path(__file__).with_name("test_table.py"))
_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_table)


def _captured(op, args, kwargs, leaves):
    """The op as a captured function of its tensor arguments."""

    def run(*tensors):
        table = {id(old): new for old, new in zip(leaves, tensors, strict=True)}

        def swap(v):
            if isinstance(v, wf.Tensor):
                return table[id(v)]
            return (
                tuple(swap(x) for x in v)
                if isinstance(v, (tuple, list)) and any(isinstance(x, wf.Tensor) for x in v)
                else v
            )

        return op.call(*[swap(a) for a in args], **{k: swap(v) for k, v in kwargs.items()})

    return wf.function(run)


def _cases():
    return [c for c in _table._samples() if not c.values[0].test.get("data_dependent")]


@pytest.mark.parametrize(("op", "sample"), _cases())
def test_captured_value_equals_eager(op, sample):
    args, kwargs = _table._tensors(sample, "float32")
    leaves = _table._leaves(args, kwargs)
    expected = _table._outputs(op.call(*args, **kwargs))
    try:
        got = _table._outputs(_captured(op, args, kwargs, leaves)(*leaves))
    except CaptureError as error:
        assert "depends on the data" in str(error) or "is not known while" in str(error), error
        return
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape, f"{op.name}: {g.dtype}{g.shape}, eager {e.dtype}{e.shape}"
        tol = 2e-5 * op.tolerance
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=tol, atol=tol, equal_nan=True, err_msg=op.name)


@pytest.mark.parametrize(("op", "sample"), _table._gradient_cases())
def test_captured_gradient_equals_eager(op, sample):
    rng = np.random.default_rng(3)
    args, kwargs = _table._tensors(sample, grad=True)
    leaves = _table._leaves(args, kwargs)
    chosen = _table._differentiable_leaves(op, args, kwargs)
    outputs = _table._outputs(op.call(*args, **kwargs))
    if not chosen or not any(o.requires_grad for o in outputs):
        return
    weights = _table._weights(rng, outputs)
    wanted = [i for i, t in enumerate(leaves) if any(t is c for c in chosen)]

    def gradients(*tensors):
        table = {id(old): new for old, new in zip(leaves, tensors, strict=True)}

        def swap(v):
            if isinstance(v, wf.Tensor):
                return table[id(v)]
            return (
                tuple(swap(x) for x in v)
                if isinstance(v, (tuple, list)) and any(isinstance(x, wf.Tensor) for x in v)
                else v
            )

        total = _table._scalar(op, [swap(a) for a in args], {k: swap(v) for k, v in kwargs.items()}, weights)
        return wf.grad(total, [tensors[i] for i in wanted], allow_unused=True)

    expected = gradients(*leaves)
    try:
        got = wf.function(gradients)(*leaves)
    except CaptureError as error:
        assert "depends on the data" in str(error) or "is not known while" in str(error), error
        return
    for g, e in zip(got, expected, strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-9, atol=1e-9, err_msg=op.name)
