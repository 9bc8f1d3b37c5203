"""Determinants of singular matrices, systems with mixed dtypes, and batches."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def test_determinant_of_a_singular_matrix_has_a_gradient():
    x = wf.asarray([[1.0, 2.0], [2.0, 4.0]], dtype=wf.float64).requires_grad_()
    wf.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[4, -2], [-2, 1]], atol=1e-12)  # the cofactors


def test_second_derivative_of_the_determinant():
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.standard_normal((2, 2))).requires_grad_()
    (g,) = wf.grad(wf.linalg.det(x), [x], create_graph=True)
    (h,) = wf.grad((g * wf.asarray([[1.0, 2.0], [3.0, 4.0]])).sum(), [x])
    np.testing.assert_allclose(h.numpy(), [[4, -3], [-2, 1]], atol=1e-10)  # det = ad - bc is bilinear


def test_solve_promotes_and_gives_each_input_its_own_dtype_back():
    a = wf.eye(2, dtype=wf.float32).requires_grad_()
    b = wf.ones(2, dtype=wf.float64).requires_grad_()
    out = wf.linalg.solve(a, b)
    assert out.dtype == wf.float64
    out.sum().backward()
    assert a.grad.dtype == wf.float32 and b.grad.dtype == wf.float64


def test_a_vector_is_one_vector_also_for_a_stack_of_matrices():
    a = wf.eye(2).reshape(1, 2, 2) * wf.asarray([1.0, 2.0]).reshape(2, 1, 1)
    assert wf.linalg.solve(a, wf.asarray([2.0, 4.0])).tolist() == [[2, 4], [1, 2]]


def test_singular_systems_name_the_function_and_the_way_out():
    with pytest.raises(wf.linalg.LinAlgError, match=r"solve: the matrix is singular; use `wf.linalg.pinv`"):
        wf.linalg.solve(wf.zeros((2, 2)), wf.ones(2))
    with pytest.raises(ValueError, match="matrix_power: the matrix is singular"):
        wf.linalg.matrix_power(wf.zeros((2, 2)), -1)


def test_pinv_of_a_rank_deficient_matrix():
    x = np.outer([1.0, 2.0, 3.0], [1.0, -1.0])
    np.testing.assert_allclose(wf.linalg.pinv(wf.asarray(x)).numpy(), np.linalg.pinv(x), atol=1e-12)
    assert wf.linalg.pinv(wf.asarray(np.diag([1.0, 1e-3])), rtol=0.1).tolist() == [[1, 0], [0, 0]]
    assert wf.linalg.matrix_rank(wf.asarray(np.diag([1.0, 1e-3])), rtol=wf.asarray(0.1)).item() == 1


def test_cholesky_looks_at_the_symmetric_part():
    x = wf.asarray([[2.0, 1.0], [0.0, 2.0]], dtype=wf.float64).requires_grad_()
    factor = wf.linalg.cholesky(x)
    np.testing.assert_allclose((factor @ factor.mT).detach().numpy(), [[2, 0.5], [0.5, 2]])
    factor.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), x.grad.numpy().T)


@pytest.mark.parametrize("captured", [False, True])
def test_logarithms_of_determinants_have_gradients_where_they_have_values(captured):
    x = wf.tensor([[[1.5, 0.0], [0.5, 2.0]], [[0.0, 1.0], [1.0, 0.0]]], dtype=wf.float64)
    value_and_grad = wf.value_and_grad(lambda x: wf.logdet(x)[0])
    value, slope = (wf.function(value_and_grad) if captured else value_and_grad)(x)
    assert value.item() == pytest.approx(np.log(3.0))
    np.testing.assert_allclose(slope.numpy()[0], np.linalg.inv(x.numpy()[0]).T)
    assert np.isnan(wf.logdet(x)[1].item())  # a negative determinant
    z = wf.tensor([[1j, 0.0], [0.0, 2.0]], dtype=wf.complex128)
    assert wf.logdet(z).item() == pytest.approx(np.log(2j))
