"""Few rows times a large matrix that lies the wrong way round: nothing is packed, the numbers are right."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.compiler.primitives import available


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
    assert all(st.kind == "kernel" for st in fn.traces[0].compiled.program.steps)
