"""Equal clusters of a program share one kernel, and only equal ones."""

from __future__ import annotations

import numpy as np

import weft as wf
from weft.compiler.program.steps import KernelCall


def kernels(fn, *arrays):
    captured = wf.function(fn)
    tensors = [wf.tensor(a) for a in arrays]
    result = captured(*tensors)
    np.testing.assert_allclose(result.numpy(), fn(*tensors).numpy(), rtol=1e-5, atol=1e-6)
    (trace,) = captured._traces.values()
    return [st.kernel for st in trace.compiled.program.steps if isinstance(st, KernelCall)]


def layer(x, w):
    return wf.tanh(wf.linalg.matmul(x, w)) * 2 + 1


W = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
X = np.random.default_rng(1).standard_normal((256, 64)).astype(np.float32)


def test_repeated_layers_share_kernels():
    made = kernels(lambda x, w: layer(layer(layer(x, w), w), w), X, W)
    assert len(made) > len({id(k) for k in made})


def test_constants_that_compare_equal_are_not_the_same():
    def fn(x, w):
        a = wf.copysign(wf.linalg.matmul(x, w), 0.0)
        b = wf.copysign(wf.linalg.matmul(a, w), -0.0)
        return wf.linalg.matmul(b, w)

    kernels(fn, X, W)


def test_two_reads_of_one_tensor_are_not_two_tensors():
    def fn(x, w):
        a = wf.linalg.matmul(x, w)
        b = wf.linalg.matmul(a, w)
        c = wf.linalg.matmul(a * b, w)  # reads two storages
        return wf.linalg.matmul(c * c[::1], w)  # reads one twice

    kernels(fn, X, W)


def test_long_clusters_that_differ_by_a_number_share_a_kernel():
    def row(x, factor):
        x = x * factor
        for _ in range(70):
            x = wf.sin(x)
        return x

    made = kernels(lambda x: row(x, 0.5) @ row(x, 0.75) @ row(x, 1.5), X[:64])
    long = [id(k) for k in made if k.name == "k"]
    assert len(long) == 3 and len(set(long)) == 1
