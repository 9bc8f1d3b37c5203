"""Products with one column or one row, by comparing the graphs before and after the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm.target import host
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.thin_products import thin_products

RNG = np.random.default_rng(0)


def matrix(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def products(fn: Any, *arrays: np.ndarray) -> tuple[int, int]:
    """How many products there are before and after the pass; captured agrees with float64."""
    step = wf.function(fn)
    found = step(*[wf.tensor(a) for a in arrays])
    expected = fn(*[wf.tensor(a.astype(np.float64)) for a in arrays])
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=2e-4)
    flow = step.traces[0].flow
    rewritten = check_flow(thin_products(flow, host()))
    before, after = (sum(n.op.name == "matmul" for n in f.nodes) for f in (flow, rewritten))
    return before, after


@pytest.mark.parametrize(
    ("left", "right", "left_over"),
    [((4096, 100), (100, 1), 0), ((1, 5000), (5000, 70), 0), ((2048, 128), (128, 2), 1), ((1, 512), (512, 512), 1),
     ((100, 3000), (3000, 1), 1), ((8192, 16), (16, 1), 1), ((1, 100_000), (100_000, 8), 1)],
)  # fmt: skip
def test_one_column_or_row_of_many_numbers_is_a_sum(left: Any, right: Any, left_over: int) -> None:
    assert products(lambda x, w: x @ w, matrix(*left), matrix(*right)) == (1, left_over)


def test_the_sum_is_taken_in_the_shape_that_the_matrix_had_before() -> None:
    def scores(x: wf.Tensor, y: wf.Tensor, w: wf.Tensor) -> Any:
        return wf.tanh(x + y).reshape(-1, 64) @ w

    arrays = matrix(20, 1, 30, 64), matrix(1, 25, 30, 64), matrix(64, 1)
    assert products(scores, *arrays) == (1, 0)
    step = wf.function(scores)
    step(*map(wf.tensor, arrays))
    kernels = [s.label for s in step.traces[0].compiled.program.steps]
    assert any("tanh" in label and "reduce_sum" in label for label in kernels), kernels  # one sweep, tanh nowhere


def test_gradients_of_a_scoring_layer_agree_with_float64() -> None:
    def gradients(x: wf.Tensor, w: wf.Tensor) -> Any:
        with wf.enable_grad():
            leaf = w.detach().requires_grad_()
            (wf.tanh(x) @ leaf.T).sum().backward()
            return leaf.grad

    x, w = matrix(4100, 96), matrix(1, 96)
    found = wf.function(gradients)(wf.tensor(x), wf.tensor(w))
    np.testing.assert_allclose(found.numpy(), np.tanh(x.astype(np.float64)).sum(0, keepdims=True), rtol=1e-5, atol=1e-4)
