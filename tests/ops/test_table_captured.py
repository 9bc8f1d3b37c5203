"""Every op of the table gives the same values and gradients captured as eagerly."""

from __future__ import annotations

import numpy as np

import weft as wf
from tests.ops.table_cases import (
    call_with,
    differentiable_leaves,
    for_every_sample,
    has_gradient,
    leaves_of,
    outputs_of,
    random_weights,
    tensors_of,
    weighted_sum,
)
from weft.graph.capture.tracing import CaptureError


def _captured(function, leaves):
    """The results of the captured function; None if a size in it depends on the data."""
    try:
        return wf.function(function, fullgraph=True)(*leaves)
    except CaptureError as error:
        assert "depends on the data" in str(error) or "is not known while" in str(error), error
        return None


@for_every_sample(lambda op: not op.test.get("data_dependent"))
def test_captured_value_equals_eager(op, sample):
    args, kwargs = tensors_of(sample, "float32")
    leaves = leaves_of(args, kwargs)
    expected = outputs_of(op.call(*args, **kwargs))
    got = _captured(lambda *tensors: call_with(op, args, kwargs, tensors), leaves)
    for g, e in zip(got, expected, strict=True) if got is not None else ():
        assert g.dtype == e.dtype and g.shape == e.shape, f"{op.name}: {g.dtype}{g.shape}, eager {e.dtype}{e.shape}"
        tol = 2e-5 * op.tolerance
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=tol, atol=tol, equal_nan=True, err_msg=op.name)


@for_every_sample(has_gradient)
def test_captured_gradient_equals_eager(op, sample):
    rng = np.random.default_rng(3)
    args, kwargs = tensors_of(sample, grad=True)
    leaves = leaves_of(args, kwargs)
    chosen = differentiable_leaves(op, args, kwargs)
    outputs = outputs_of(op.call(*args, **kwargs))
    if not chosen or not any(o.requires_grad for o in outputs):
        return
    weights = random_weights(rng, outputs)
    wanted = [i for i, t in enumerate(leaves) if any(t is c for c in chosen)]

    def gradients(*tensors):
        total = weighted_sum(call_with(op, args, kwargs, tensors), weights)
        return wf.grad(total, [tensors[i] for i in wanted], allow_unused=True)

    expected = gradients(*leaves)
    got = _captured(gradients, leaves)
    for g, e in zip(got, expected, strict=True) if got is not None else ():
        assert (g is None) == (e is None)
        if g is not None:
            np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-9, atol=1e-9, err_msg=op.name)
