"""Gradients that the table cannot check: complex matrices, where vectors have a free phase, and singular ones."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each


def _matrix(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal(shape) * 0.3
        + np.eye(*shape[-2:]) * np.arange(1.0, 1 + shape[-1])
        + 0.3j * rng.standard_normal(shape)
    )


def _check(loss, array, tol=1e-6):
    """The gradient of a real loss equals its numeric derivative in a random complex direction."""
    x = wf.asarray(array.copy()).requires_grad_()
    (g,) = wf.grad(loss(x), [x])
    rng = np.random.default_rng(3)
    d = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        d = d + 1j * rng.standard_normal(array.shape)
    eps = 1e-6
    high, low = (loss(wf.asarray(array + s * eps * d)).item() for s in (1, -1))
    numeric = (high - low) / (2 * eps)
    analytic = float(np.sum((np.conj(g.numpy()) * d).real))
    assert analytic == pytest.approx(numeric, rel=tol, abs=tol)


def _weight(shape, seed=5):
    rng = np.random.default_rng(seed)
    return wf.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))


def _projectors(vectors, weights):
    """Σ w_k |v_kᴴ a|²: depends on the columns, not on their phases."""
    a = _weight((vectors.shape[-2], 1))
    return (wf.abs(wf.matmul(vectors.H, a))[..., 0] ** 2 * weights).sum()


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_eigh_of_hermitian_matrices(shape):
    weights = wf.asarray([1.0, -2.0, 0.5], dtype=wf.float64)

    def loss(x):
        w, v = wf.linalg.eigh(x)
        return (w * weights * w).sum() + _projectors(v, weights)

    _check(loss, _matrix(*shape))


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (2, 2, 3)])
def test_svd_of_complex_matrices(shape):
    k = min(shape[-2:])
    weights = wf.asarray(np.arange(1.0, k + 1))

    def loss(x):
        u, s, vh = wf.linalg.svd(x, full_matrices=False)
        both = wf.matmul(u * wf.expand_dims(weights, 0), vh)  # u and v turn together
        return (s * weights).sum() + _projectors(u, weights) + wf.real(both * _weight(both.shape)).sum()

    _check(loss, _matrix(*shape))


def test_svd_full_matrices_of_rectangular_matrix_has_the_thin_gradient():
    x = wf.asarray(_matrix(4, 2).real.copy()).requires_grad_()
    u, s, vh = wf.linalg.svd(x)
    assert u.shape == (4, 4)
    thin = wf.linalg.svd(x, full_matrices=False)
    (g,) = wf.grad((s * s).sum() + u[:, :2].sum(), [x])
    (h,) = wf.grad((thin.S * thin.S).sum() + thin.U.sum(), [x])
    np.testing.assert_allclose(g.numpy(), h.numpy(), atol=1e-12)


@pytest.mark.parametrize("real", [True, False])
def test_eig(real):
    array = _matrix(3, 3)
    array = array.real.copy() if real else array

    def loss(x):
        w, v = wf.linalg.eig(x)
        order = wf.asarray([1.0, 2.0, 3.0], dtype=wf.float64)
        return (wf.abs(w) ** 2 * order).sum() + _projectors(v, order)

    _check(loss, array, 1e-5)


def test_eig_of_a_rotation_is_complex():
    w, v = wf.linalg.eig(wf.asarray([[0.0, -1.0], [1.0, 0.0]]))
    assert w.dtype == v.dtype == wf.complex64
    np.testing.assert_allclose(sorted(w.numpy().imag), [-1, 1], atol=1e-6)


def test_qr_complete_says_where_it_has_no_gradient():
    x = wf.asarray(_matrix(4, 2).real.copy()).requires_grad_()
    q, r = wf.linalg.qr(x, mode="complete")
    assert q.shape == (4, 4) and r.shape == (4, 2)
    with pytest.raises(RuntimeError, match="qr: mode='complete' has no gradient"):
        r.sum().backward()


def test_norm_at_zero_has_gradient_zero():
    for norm in (wf.linalg.vector_norm, lambda x: wf.linalg.vector_norm(x, ord=3)):
        x = wf.zeros(3, requires_grad=True)
        norm(x).backward()
        assert x.grad.tolist() == [0, 0, 0]
    x = wf.zeros((2, 2), requires_grad=True)
    wf.linalg.matrix_norm(x).backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]


def test_nan_is_an_error_of_the_matrix_not_a_crash():
    bad = wf.full((3, 3), float("nan"))
    for name in (
        "eigh",
        "eig",
        "svd",
        "svdvals",
        "eigvals",
        "eigvalsh",
        "pinv",
        "matrix_rank",
        "cholesky",
        "inv",
        "det",
    ):
        try:
            out = getattr(wf.linalg, name)(bad)
        except wf.linalg.LinAlgError as error:
            assert str(error).startswith(f"{name}: ")
        else:
            first = out if isinstance(out, wf.Tensor) else out[0]
            assert name == "matrix_rank" or not bool(wf.isfinite(wf.abs(first)).all())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    x = wf.eye(2, dtype=getattr(wf, dtype)) * 2
    assert wf.linalg.inv(x).dtype == x.dtype and wf.linalg.inv(x).tolist() == [[0.5, 0], [0, 0.5]]
    assert wf.linalg.svd(x).S.dtype == x.dtype and wf.linalg.eigh(x).eigenvalues.tolist() == [2, 2]


@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
def test_exponentials_of_matrices_of_any_size(size):
    """A rotation by `size`, eagerly, captured, and beside a matrix of another size."""
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    expected = np.array([[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]])
    both = wf.asarray(np.stack([turn * size, turn * 7.0]))
    for way in (wf.linalg.matrix_exp, wf.function(wf.linalg.matrix_exp)):
        np.testing.assert_allclose(way(wf.asarray(turn * size)).numpy(), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(way(both).numpy()[0], expected, rtol=1e-9, atol=1e-12)
    assert np.isnan(wf.linalg.matrix_exp(wf.full((2, 2), np.nan)).numpy()).all()


def test_the_exponential_of_a_matrix_has_every_derivative():
    x = wf.tensor([[0.5, -0.2], [0.3, 0.1]], dtype=wf.float64, requires_grad=True)
    assert wf.gradcheck(wf.linalg.matrix_exp, x) and wf.gradgradcheck(wf.linalg.matrix_exp, x)


def _third_powers(vectors):
    return (wf.abs(vectors) ** 3).sum()


def test_losses_that_depend_on_the_phases_of_complex_vectors_have_no_gradient():
    """As in PyTorch: the phases are LAPACK's choice, so such a gradient would mean nothing."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))
    h = a + np.conj(np.swapaxes(a, -1, -2))
    linalg = wf.linalg
    refused = {
        "eigh": (lambda x: linalg.eigh(x)[1].real.sum(), h),
        "svd": (lambda x: linalg.svd(x)[0].real.sum(), a),
        "svd, thin": (lambda x: linalg.svd(x, full_matrices=False)[2].imag.sum(), a[:, :2]),
        "eig": (lambda x: linalg.eig(x)[1].real.sum(), a),
        "eig of a real matrix": (lambda x: linalg.eig(x)[1].real.sum(), np.array([[0.0, -1.0], [1.0, 0.5]])),
    }
    allowed = {
        "eigh": (lambda x: _third_powers(linalg.eigh(x)[1]), h),
        "eigh of a real matrix": (lambda x: linalg.eigh(x)[1].sum(), h.real),
        "large": (lambda x: 1e6 * _third_powers(linalg.eigh(x)[1]), h.astype(np.complex64)),
        "svd": (lambda x: _third_powers(linalg.svd(x)[0]), a),
        "large svd": (lambda x: 1e6 * wf.matmul(*linalg.svd(x)[::2]).real.sum(), a.astype(np.complex64)),
        "svd, both vectors": (lambda x: wf.matmul(*linalg.svd(x)[::2]).real.sum(), a),
        "eig": (lambda x: _third_powers(linalg.eig(x)[1]), a),
        "values": (lambda x: linalg.svd(x)[1].sum() + wf.abs(linalg.eig(x)[0]).sum(), a),
    }

    def by_backward(fn, matrix):
        x = wf.asarray(matrix).requires_grad_()
        fn(x).backward()
        return x.grad.numpy()

    ways = [
        by_backward,
        lambda loss, matrix: by_backward(wf.function(loss), matrix),
        lambda loss, matrix: wf.function(wf.grad_fn(loss))(wf.asarray(matrix)).numpy(),
    ]

    def check_refused(loss, matrix):
        for way in ways:
            with pytest.raises(ValueError, match=r"^backward of (eigh|svd|eig): .* known up to a factor exp\(iφ\)"):
                way(loss, matrix)

    def check_allowed(loss, matrix):
        first, *others = [way(loss, matrix) for way in ways]
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-3 if first.dtype == np.complex64 else 1e-9, atol=1e-9)

    each(check_refused, refused)
    each(check_allowed, allowed)
