"""Running sums and products where formulas with division or plain exponentials would fail."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


@pytest.mark.parametrize("values", [[2.0, 0.0, 3.0], [0.0, 0.0, 1.0], [0.0, 5.0, 0.0], [1.0, 2.0, 3.0]])
def test_cumulative_prod_has_exact_gradients_at_zeros(values):
    x = wf.asarray(values, dtype=wf.float64)
    jacobian = wf.jacobian(lambda x: wf.cumulative_prod(x), x).numpy()
    for i in range(3):
        for j in range(3):
            expected = np.prod([v for k, v in enumerate(values[: i + 1]) if k != j]) if j <= i else 0.0
            assert jacobian[i, j] == expected


def test_logcumsumexp_neither_overflows_nor_loses_small_values():
    x = wf.asarray([-1000.0, 0.0, 1000.0, -wf.inf, 999.0], dtype=wf.float64).requires_grad_()
    out = wf.logcumsumexp(x)
    np.testing.assert_allclose(out.detach().numpy(), [-1000, 0, 1000, 1000, 1000 + np.log1p(np.exp(-1))], rtol=1e-12)
    out.sum().backward()
    share = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(x.grad.numpy(), [1, 1, 2 + share, 0, 1 - share], atol=1e-12)


def test_logcumsumexp_of_nothing_yet():
    x = wf.asarray([-wf.inf, -wf.inf, 0.0], dtype=wf.float64).requires_grad_()
    wf.logcumsumexp(x)[2].backward()
    assert x.grad.tolist() == [0, 0, 1]


def test_running_extremes_point_at_the_latest_of_equal_elements():
    values, indices = wf.cummax(wf.asarray([1, 3, 3, 2, 3]))
    assert values.tolist() == [1, 3, 3, 3, 3] and indices.tolist() == [0, 1, 2, 2, 4]
    x = wf.asarray([3.0, 1.0, 2.0]).requires_grad_()
    x.cummin().values.sum().backward()
    assert x.grad.tolist() == [1, 2, 0]


def test_linear_recurrence_is_exponential_smoothing():
    x = wf.asarray(np.arange(1.0, 1001.0))
    got = wf.linear_recurrence(wf.full(1000, 0.5, dtype=wf.float64), x).numpy()
    h, expected = 0.0, []
    for v in x.tolist():
        h = 0.5 * h + v
        expected.append(h)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_half_precision_is_accumulated_in_float32():
    x = wf.ones(4096, dtype=wf.float16)
    assert wf.cumulative_sum(x)[-1].item() == 4096  # float16 alone would stop at 2048


def test_short_names_and_methods():
    x = wf.asarray([[1, 2], [3, 4]])
    assert wf.cumsum(x, 0).tolist() == x.cumsum(0).tolist() == wf.cumulative_sum(x, axis=0).tolist() == [[1, 2], [4, 6]]
    assert wf.cumprod(x, 1).tolist() == x.cumprod(1).tolist() == [[1, 2], [3, 12]]
