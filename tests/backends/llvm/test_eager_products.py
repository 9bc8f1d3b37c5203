"""Matrix-vector products run natively from a few thousand elements on, with the results of NumPy."""

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm import kernels
from weft.backends.llvm.eager_products import vector_product

SHAPES = {
    "row": ((1, 300), (300, 200)),
    "column": ((200, 300), (300, 1)),
    "row and column": ((1, 20000), (20000, 1)),
    "vectors": ((20000,), (20000,)),
    "vector on the left": ((300,), (300, 200)),
    "vector on the right": ((200, 300), (300,)),
    "vector and batches": ((300,), (3, 300, 20)),
    "batches and vector": ((3, 20, 300), (300,)),
    "rows of batches": ((4, 1, 300), (4, 300, 20)),
    "broadcast batches": ((5, 1, 20, 300), (4, 300, 1)),
    "one matrix for all": ((40, 1, 300), (300, 20)),
}


def operands(name, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES[name]]


def transposed(a):
    """The same numbers, laid out by columns."""
    return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2) if a.ndim > 1 else np.repeat(a, 2)[::2]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "layout", [lambda a: a, transposed, lambda a: a[..., ::-1]], ids=["rows", "columns", "reversed"]
)
def test_same_results_as_numpy_in_float64(name, layout):
    a, b = map(layout, operands(name))
    want = np.matmul(a.astype(np.float64), b.astype(np.float64))
    got = vector_product(a, b)
    assert got.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.sqrt(a.shape[-1]))


def test_other_dtypes():
    for dtype, tolerance in ((wf.float64, 1e-12), (wf.float16, 1e-2), (wf.bfloat16, 1e-1)):
        a, b = operands("row", dtype)
        got = vector_product(a, b)
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


def test_products_of_two_matrices_are_not_served():
    assert vector_product(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)) is None


@pytest.mark.parametrize("name", SHAPES)
def test_numpy_is_not_asked(name, monkeypatch):
    """Its threads would spin on the processors that the next op needs."""
    assert kernels.register()
    a, b = map(wf.asarray, operands(name))
    with kernels.disabled():
        want = wf.matmul(a, b).numpy()
    monkeypatch.setattr(np, "matmul", lambda *_: pytest.fail("np.matmul was called"))
    got = wf.matmul(a, b).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def test_gradients():
    a, b = (wf.asarray(x.astype(np.float64)).requires_grad_() for x in operands("row"))
    wf.sum(wf.tanh(a @ b)).backward()
    slope = 1 - np.tanh(a.detach().numpy() @ b.detach().numpy()) ** 2
    np.testing.assert_allclose(a.grad.numpy(), slope @ b.detach().numpy().T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(b.grad.numpy(), a.detach().numpy().T @ slope, rtol=1e-9, atol=1e-9)
