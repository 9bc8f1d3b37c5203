"""Sparse tensors: conversion, arithmetic, products and gradients against dense tensors; validation; text."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse

import weft as wf
from weft import sparse


def _dense(shape, density=0.4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * (rng.random(shape) < density)


@pytest.fixture(params=["coo", "csr", "uncoalesced"])
def pair(request):
    """A sparse matrix and the dense array that it stands for."""
    array = _dense((5, 4))
    if request.param == "uncoalesced":
        indices = np.array([[4, 0, 4, 2], [1, 3, 1, 0]])
        values = np.array([1.0, 2.0, 3.0, -1.0])
        array = np.zeros((5, 4))
        np.add.at(array, tuple(indices), values)
        return sparse.coo_tensor(indices, wf.asarray(values), (5, 4)), array
    return sparse.from_dense(wf.asarray(array), request.param), array


def test_conversion_both_ways(pair):
    a, array = pair
    np.testing.assert_array_equal(a.numpy(), array)
    np.testing.assert_array_equal(a.to_coo().coalesce().to_csr().to_coo().numpy(), array)
    rows, columns, values = a.triples()
    np.testing.assert_array_equal(
        scipy.sparse.coo_matrix((values.numpy(), (rows.numpy(), columns.numpy())), a.shape).toarray(), array
    )
    assert a.shape == (5, 4) and a.ndim == 2 and a.size == 20 and a.dtype == wf.float64


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_from_scipy(kind):
    matrix = scipy.sparse.random(6, 3, 0.5, kind, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(sparse.from_scipy(matrix).numpy(), matrix.toarray())


def test_products_with_dense(pair):
    a, array = pair
    rng = np.random.default_rng(1)
    x, v, y = rng.standard_normal((4, 3)), rng.standard_normal(4), rng.standard_normal((2, 6, 5))
    np.testing.assert_allclose((a @ wf.asarray(x)).numpy(), array @ x)
    np.testing.assert_allclose((a @ wf.asarray(v)).numpy(), array @ v)
    np.testing.assert_allclose((a.T @ wf.asarray(y[0].T)).numpy(), array.T @ y[0].T)
    np.testing.assert_allclose((wf.asarray(y) @ a).numpy(), y @ array)
    np.testing.assert_allclose((wf.asarray(y[0, 0]) @ a).numpy(), y[0, 0] @ array)
    np.testing.assert_allclose(sparse.matmul(wf.asarray(y), a).numpy(), y @ array)


def test_gradients_of_products_equal_those_of_dense_tensors(pair):
    a, array = pair
    x = wf.asarray(np.random.default_rng(2).standard_normal((4, 3))).requires_grad_()
    a.requires_grad_()
    weights = wf.asarray(np.random.default_rng(3).standard_normal((5, 3)))
    g_values, g_x = wf.grad(((a @ x) * weights).sum(), [a.values, x], create_graph=True)
    dense = wf.asarray(array).requires_grad_()
    g_dense, g_x_dense = wf.grad(((dense @ x) * weights).sum(), [dense, x])
    rows, columns, _ = a.triples()
    np.testing.assert_allclose(g_values.detach().numpy(), g_dense.numpy()[rows.numpy(), columns.numpy()])
    np.testing.assert_allclose(g_x.detach().numpy(), g_x_dense.numpy())
    # second order: the gradient of x depends on the values
    (second,) = wf.grad((g_x * g_x).sum(), a.values)
    assert second.shape == a.values.shape and np.abs(second.numpy()).sum() > 0


def test_gradients_through_conversion():
    x = wf.asarray(_dense((3, 4))).requires_grad_()
    weights = wf.asarray(np.random.default_rng(3).standard_normal((3, 4)))
    a = sparse.from_dense(x)
    (a.to_dense() * weights).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.where(x.detach().numpy() != 0, weights.numpy(), 0))
    values = wf.tensor([1.0, 2.0, 3.0], requires_grad=True)
    merged = sparse.coo_tensor([[0, 1, 0], [1, 0, 1]], values, (2, 2)).coalesce()
    assert merged.nnz == 2 and merged.indices.tolist() == [[0, 1], [1, 0]] and merged.values.tolist() == [4.0, 2.0]
    (merged.values * wf.tensor([10.0, 1.0])).sum().backward()
    assert values.grad.tolist() == [10.0, 1.0, 10.0]


def test_arithmetic(pair):
    a, array = pair
    other = sparse.from_dense(wf.asarray(_dense((5, 4), seed=9)))
    dense = wf.asarray(_dense((5, 4), 1.0, seed=4))
    np.testing.assert_allclose((a + other).numpy(), array + other.numpy())
    np.testing.assert_allclose((a - other).numpy(), array - other.numpy())
    assert (a + other).is_coalesced
    np.testing.assert_allclose((a + dense).numpy(), array + dense.numpy())
    np.testing.assert_allclose((dense + a).numpy(), array + dense.numpy())
    np.testing.assert_allclose((dense - a).numpy(), dense.numpy() - array)
    np.testing.assert_allclose((a * 3).numpy(), array * 3)
    np.testing.assert_allclose((a * wf.tensor(2.0, dtype=wf.float64) / 4).numpy(), array / 2)
    np.testing.assert_allclose((-a).numpy(), -array)
    np.testing.assert_allclose(a.multiply(dense).numpy(), array * dense.numpy())
    np.testing.assert_allclose(a.T.numpy(), array.T)
    np.testing.assert_allclose(a.sum().item(), array.sum())
    assert a.astype(wf.float32).dtype == wf.float32


def test_sampled_product_computes_only_its_places(pair):
    a, _ = pair
    rng = np.random.default_rng(1)
    x, y = (
        wf.asarray(rng.standard_normal((5, 3))).requires_grad_(),
        wf.asarray(rng.standard_normal((3, 4))).requires_grad_(),
    )
    out = sparse.sampled_matmul(a, x, y)
    rows, columns, _ = a.triples()
    full = x.detach().numpy() @ y.detach().numpy()
    np.testing.assert_allclose(out.values.detach().numpy(), full[rows.numpy(), columns.numpy()])
    out.values.sum().backward()
    mask = np.zeros((5, 4))
    np.add.at(mask, (rows.numpy(), columns.numpy()), 1)
    np.testing.assert_allclose(x.grad.numpy(), mask @ y.detach().numpy().T)
    np.testing.assert_allclose(y.grad.numpy(), x.detach().numpy().T @ mask)


def test_products_under_vmap_with_gradients(pair):
    a, array = pair
    x = wf.asarray(np.random.default_rng(1).standard_normal((3, 4, 2)))
    np.testing.assert_allclose(wf.vmap(lambda v: a @ v)(x).numpy(), array @ x.numpy())
    values = wf.asarray(np.random.default_rng(2).standard_normal((3, a.nnz)))

    def loss(v, y):
        return ((a._with(v) @ y) ** 2).sum()

    grads = wf.vmap(lambda v, y: wf.grad_fn(loss, (0, 1))(v, y))(values, x)
    for i in range(3):
        for got, expected in zip(grads, wf.grad_fn(loss, (0, 1))(values[i], x[i]), strict=True):
            np.testing.assert_allclose(got[i].numpy(), expected.numpy())


def test_tensors_of_other_ranks():
    array = _dense((2, 3, 4))
    a = sparse.from_dense(wf.asarray(array))
    np.testing.assert_array_equal(a.numpy(), array)
    np.testing.assert_array_equal(a.T.numpy(), array.T)
    np.testing.assert_array_equal((a + a).numpy(), 2 * array)
    with pytest.raises(ValueError, match="expected a sparse matrix"):
        a @ wf.ones(4)
    with pytest.raises(ValueError, match="expected a sparse matrix"):
        a.to_csr()
    vector = sparse.coo_tensor([[5]], [2.0])
    assert vector.shape == (6,) and vector.numpy().tolist() == [0, 0, 0, 0, 0, 2.0]


def test_empty_and_identity():
    a = sparse.coo_tensor(np.zeros((2, 0)), np.zeros(0, np.float32), (3, 2))
    np.testing.assert_array_equal((a @ wf.ones(2, 4)).numpy(), np.zeros((3, 4)))
    assert a.coalesce().nnz == 0 and "nnz=0" in repr(a)
    x = wf.rand(4, 2)
    np.testing.assert_array_equal((sparse.eye(4) @ x).numpy(), x.numpy())


def test_large_product_in_blocks_matches_scipy():
    matrix = scipy.sparse.random(300, 200, 0.2, "csr", rng=np.random.default_rng(0), dtype=np.float64)
    x = np.random.default_rng(1).standard_normal((200, 150))
    np.testing.assert_allclose((sparse.from_scipy(matrix) @ wf.asarray(x)).numpy(), matrix @ x, atol=1e-12)


def test_text_copy_and_pickle(pair):
    a, array = pair
    assert repr(a).startswith(f"{type(a).__name__}(shape=(5, 4), nnz={a.nnz}, dtype=float64:\n")
    many = sparse.from_dense(wf.asarray(np.ones((5, 5))))
    assert "… 17 more" in repr(many)
    for other in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), a.detach()):
        np.testing.assert_array_equal(other.numpy(), array)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sparse.coo_tensor([[0, 5], [0, 0]], [1.0, 2.0], (3, 2)), IndexError, "axis 0 hold 5; expected 0 to 2"),
        (lambda: sparse.coo_tensor([[0, -1], [0, 0]], [1.0, 2.0], (3, 2)), IndexError, "axis 0 hold -1"),
        (lambda: sparse.coo_tensor([[0], [0]], [1.0, 2.0], (3, 2)), ValueError, "indices have shape"),
        (lambda: sparse.coo_tensor([[0.5], [0]], [1.0], (3, 2)), TypeError, "indices must be integers"),
        (lambda: sparse.coo_tensor([[0], [0]], [[1.0]], (3, 2)), ValueError, "values must be a vector"),
        (lambda: sparse.coo_tensor(np.zeros((2, 0)), []), ValueError, "shape is needed"),
        (lambda: sparse.csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)), ValueError, "indptr must rise"),
        (lambda: sparse.csr_tensor([0, 2], [0, 1], [1.0, 2.0], (2, 2)), ValueError, "indptr has shape"),
        (lambda: sparse.csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2)), IndexError, "hold 2; expected 0 to 1"),
        (lambda: sparse.csr_tensor([0, 1, 2], [0], [1.0, 2.0], (2, 2)), ValueError, "indices have shape"),
        (lambda: sparse.csr_tensor([0, 0], [], [], (1, 2, 3)), ValueError, "expected a matrix"),
        (lambda: sparse.from_dense(wf.ones(2, 2), "csc"), ValueError, "layout must be"),
        (lambda: sparse.eye(2) @ wf.ones(3, 1), ValueError, "inner dimensions differ"),
        (lambda: wf.ones(1, 3) @ sparse.eye(2), ValueError, "inner dimensions differ"),
        (lambda: sparse.eye(2) @ sparse.eye(2), TypeError, "two sparse tensors"),
        (lambda: sparse.eye(2) * wf.ones(2), TypeError, "scaled by a number"),
        (lambda: sparse.eye(2) + 1.0, TypeError, "makes it dense"),
        (lambda: sparse.eye(2) + sparse.eye(3), ValueError, "shapes differ"),
        (lambda: sparse.eye(2).multiply(wf.ones(3, 2)), ValueError, "shapes differ"),
        (lambda: sparse.matmul(wf.ones(2, 2), wf.ones(2, 2)), TypeError, "one operand must be sparse"),
        (lambda: sparse.sampled_matmul(sparse.eye(2), wf.ones(2, 3), wf.ones(2, 3)), ValueError, "expected a"),
        (lambda: sparse.from_scipy(3), TypeError, "scipy.sparse matrix"),
    ],
)
def test_bad_input_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()
