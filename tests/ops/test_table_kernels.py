"""The op table once more with every library kernel used for every sample, however small: oneDNN on, and oneDNN off.

The samples of the table are far below the sizes from which native code pays, so the other table tests see NumPy only.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import weft as wf
from tests.each import each
from tests.ops.table_cases import ops, samples_of
from weft.backends import register_kernels
from weft.backends.llvm import eager_attention
from weft.backends.llvm import kernels as llvm_kernels
from weft.backends.onednn import kernels as onednn_kernels
from weft.ops.core import slow_path
from weft.ops.core.registry import table

register_kernels()


def _has_library_kernels(op):
    # Elementwise ops have none; their native loops are tested by capture.
    return op.expression is None and op.samples is not None and "float32" in op.test.get("dtypes", ("float32",))


def _tensor(value, grad):
    if isinstance(value, (tuple, list)) and any(isinstance(v, np.ndarray) for v in value):
        return tuple(_tensor(v, grad) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f":
        made = wf.asarray(value.astype(np.float32))
        return made.requires_grad_() if grad else made
    return wf.asarray(value.astype(np.complex64) if value.dtype.kind == "c" else value)


def _results(op, sample):
    """Outputs and first gradients of a call, as arrays."""
    grad = op.differentiable and not op.test.get("no_gradient")
    args = [_tensor(a, grad) for a in sample.args]
    kwargs = {k: _tensor(v, grad) for k, v in sample.kwargs.items()}
    out = op.call(*args, **kwargs)
    outputs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, wf.Tensor)]
    found = [o.detach().numpy() for o in outputs]
    live = [o for o in outputs if o.requires_grad]
    if live:
        rng = np.random.default_rng(3)
        weights = [wf.asarray(rng.standard_normal(o.shape).astype(o.detach().numpy().dtype)) for o in live]
        total = sum(((o * w).sum() for o, w in zip(live, weights, strict=True)), wf.zeros(()))
        total = wf.real(total) if total.is_complex() else total
        leaves = [t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, tuple) else (a,))]
        leaves = [t for t in leaves if isinstance(t, wf.Tensor) and t.requires_grad]
        gradients = wf.grad(total, leaves, allow_unused=True)
        found += [None if g is None else wf.asarray(g).detach().numpy() for g in gradients]
    return found


@pytest.mark.parametrize("op", ops(_has_library_kernels))
def test_kernels_of_libraries_give_the_numbers_of_the_numpy_bodies(op, monkeypatch):
    samples = {f"{op.name} {i}: {sample}": sample for i, sample in enumerate(samples_of(op))}
    with llvm_kernels.disabled(), onednn_kernels.disabled():
        expected = {name: _results(op, sample) for name, sample in samples.items()}
    monkeypatch.setattr(llvm_kernels, "MIN_NATIVE_ELEMENTS", 0)
    monkeypatch.setattr(eager_attention, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(onednn_kernels, "MIN_MATMUL_WORK", 0)
    monkeypatch.setattr(onednn_kernels, "MIN_POOL_ELEMENTS", 0)
    monkeypatch.setattr(slow_path, "KERNEL_LOOKUP_MIN_ELEMENTS", 0)

    def check(name, onednn):
        with nullcontext() if onednn else onednn_kernels.disabled():
            found = _results(op, samples[name])
        for got, truth in zip(found, expected[name], strict=True):
            assert (got is None) == (truth is None)
            if got is not None:
                assert got.shape == truth.shape and got.dtype == truth.dtype
                np.testing.assert_allclose(got, truth, rtol=2e-4, atol=2e-4, err_msg=op.name)

    ways = {"oneDNN on": True, "oneDNN off": False}
    each(check, {f"{name}, {way}": (name, onednn) for name in samples for way, onednn in ways.items()})


def test_samples_reach_the_kernels_of_both_libraries(monkeypatch):
    """The test above would pass for nothing if no kernel ran."""
    if not (onednn_kernels.register() and llvm_kernels.register()):
        pytest.skip("needs oneDNN and native code")
    monkeypatch.setattr(llvm_kernels, "MIN_NATIVE_ELEMENTS", 0)
    monkeypatch.setattr(onednn_kernels, "MIN_MATMUL_WORK", 0)
    monkeypatch.setattr(onednn_kernels, "MIN_POOL_ELEMENTS", 0)
    reached = set()
    for op in table.values():
        for sample in samples_of(op) if op.kernels and op.samples else ():
            arrays = [
                a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in sample.args
            ]
            values = op.bind(tuple(arrays), sample.kwargs)
            reached |= {k.name for k in op.kernels if k.when is not None and op.run(k.when, values)}
    for name in ("onednn matmul", "onednn convolution", "onednn max_pool", "llvm softmax", "llvm reduce_sum"):
        assert name in reached, sorted(reached)
