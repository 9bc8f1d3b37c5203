"""Every public record in every dtype: a captured function accepts what eager accepts, refuses what it refuses, and agrees."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.ops.table_cases import call_with, flat, leaves_of, map_arrays, ops, samples_of
from weft.graph.capture.tracing import CaptureError

DTYPES = (
    "bool",
    "int8",
    "uint64",
    "float16",
    "bfloat16",
    "complex64",
)  # float32 and float64: the other tests of the table
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}


def _public(op):
    return op.namespace != "internal" and not op.test.get("data_dependent") and "random" not in op.effects


def _kind(array):
    return "f" if array.dtype == wf.bfloat16 else array.dtype.kind


def _sample(op):
    """The first sample that has elements."""
    samples = samples_of(op)
    arrays = [[a for a in flat([*s.args, *s.kwargs.values()]) if isinstance(a, np.ndarray)] for s in samples]
    full = [s for s, found in zip(samples, arrays, strict=True) if found and all(a.size for a in found)]
    return full[0] if full else None


def _cast(sample, dtype):
    """The sample's floats (its integers, if it has no floats) in `dtype`."""
    arrays = [a for a in flat([*sample.args, *sample.kwargs.values()]) if isinstance(a, np.ndarray)]
    kinds = "fc" if any(_kind(a) in "fc" for a in arrays) else "iub"

    def make(a):
        if _kind(a) in kinds:
            a = wf.dtypes.convert(a.real if a.dtype.kind == "c" and dtype.kind != "c" else a, dtype)
        return wf.asarray(a.copy())

    return [map_arrays(a, make) for a in sample.args], {k: map_arrays(v, make) for k, v in sample.kwargs.items()}


@pytest.mark.parametrize("op", ops(_public))
def test_captured_agrees_with_eager_in_every_dtype(op):
    sample = _sample(op)
    if sample is None:
        return
    accepted, expected = [], []
    for name in DTYPES:
        args, kwargs = _cast(sample, wf.dtypes.as_dtype(name))
        leaves = leaves_of(args, kwargs)
        try:
            outs = call_with(op, args, kwargs, leaves)
        except (TypeError, ValueError, IndexError, OverflowError, np.linalg.LinAlgError) as error:
            with pytest.raises(type(error)):
                wf.function(lambda *t, a=args, k=kwargs: call_with(op, a, k, t), tune=False, fullgraph=True)(*leaves)
            continue
        accepted.append((args, kwargs, leaves))
        expected.append(outs)

    def run(*groups):
        return [call_with(op, a, k, t) for (a, k, _), t in zip(accepted, groups, strict=True)]

    try:
        got = wf.function(run, tune=False, fullgraph=True)(*[leaves for _, _, leaves in accepted])
    except CaptureError as error:
        assert "depends on the data" in str(error) or "is not known while" in str(error), error
        return
    for outs, reference in zip(got, expected, strict=True):
        for g, e in zip(outs, reference, strict=True):
            assert g.dtype == e.dtype and g.shape == e.shape, f"{g.dtype}{g.shape}, eager {e.dtype}{e.shape}"
            wide = np.complex128 if g.dtype.kind == "c" else np.float64
            tol = TOLERANCE.get(g.dtype.name, 2e-5) * op.tolerance if _kind(g.numpy()) in "fc" else 0
            np.testing.assert_allclose(
                g.numpy().astype(wide), e.numpy().astype(wide), rtol=tol, atol=tol, equal_nan=True, err_msg=g.dtype.name
            )
