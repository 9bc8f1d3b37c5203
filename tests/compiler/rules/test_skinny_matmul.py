"""Skinny matmuls with a transposed weight: the weight is not packed, and the results are right."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.backends.onednn.library import available
from weft.compiler.program.steps import KernelCall


@pytest.mark.skipif(not available(), reason="needs oneDNN")
@pytest.mark.parametrize("rows", [1, 4])
def test_a_row_times_a_transposed_matrix_reads_the_matrix_once(rows):
    rng = np.random.default_rng(0)
    w = wf.tensor(rng.standard_normal((512, 384)).astype(np.float32))
    x = rng.standard_normal((rows, 384)).astype(np.float32)
    fn = wf.function(lambda x: x @ w.T)
    np.testing.assert_allclose(fn(wf.tensor(x)).numpy(), x @ w.numpy().T, rtol=1e-4, atol=1e-4)
    assert "copy" not in [st.label for st in fn.traces[0].compiled.program.steps]


def test_small_matrices_stay_with_our_kernel():
    w, x = wf.ones(64, 64), wf.ones(16, 64)
    fn = wf.function(lambda x: (x @ w.T) @ w)
    assert fn(x).tolist()[0][0] == 64.0 * 64
    assert all(isinstance(st, KernelCall) for st in fn.traces[0].compiled.program.steps)


def labels(fn):
    return [st.label for st in fn.traces[0].compiled.program.steps]


@pytest.mark.skipif(not available(), reason="steps are taken into products where oneDNN is")
@pytest.mark.parametrize("rows", [1, 4])
def test_bias_and_activation_of_a_linear_layer_are_one_step_with_it(rows):
    wf.manual_seed(0)
    layer = wf.nn.Linear(384, 512)
    x = wf.randn(rows, 1, 384)

    def forward(x):
        with wf.no_grad():
            return wf.nn.functional.gelu(layer(x), approximate="tanh")

    fn = wf.function(forward)
    np.testing.assert_allclose(fn(x).numpy(), forward(x).numpy(), rtol=1e-4, atol=1e-5)
    assert "matmul + add + gelu_tanh" in labels(fn)


@pytest.mark.parametrize("columns", [512, 500])
def test_results_that_leave_the_program_and_odd_sizes(columns):
    rng = np.random.default_rng(0)
    w, b = (wf.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((columns, 200), (columns,)))
    x = rng.standard_normal((2, 200)).astype(np.float32)
    fn = wf.function(lambda x: (x @ w.T + b, (x @ w.T).T))
    plain, transposed = fn(wf.tensor(x))
    np.testing.assert_allclose(plain.numpy(), x @ w.numpy().T + b.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(transposed.numpy(), w.numpy() @ x.T, rtol=1e-4, atol=1e-4)


def test_the_same_bits_with_one_thread_and_two():
    w, x = wf.randn(1024, 384), wf.randn(1, 384)
    found = []
    before = wf.get_num_threads()
    for count in (1, 2):
        wf.set_num_threads(count)
        try:
            found.append(wf.function(lambda x: x @ w.T)(x).numpy().tobytes())
        finally:
            wf.set_num_threads(before)
    assert found[0] == found[1]
