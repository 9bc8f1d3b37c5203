"""Sparse tensors with PyTorch's constructors and methods, and PyTorch's flags and names for capture."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import weft as wf
from tests.each import each

INDICES = [[0, 1, 1, 0], [2, 0, 2, 2]]
VALUES = [3.0, 4.0, 5.0, 1.0]
DENSE = np.array([[0.0, 0.0, 4.0], [4.0, 0.0, 5.0]], np.float32)


def coo(**options):
    return wf.sparse_coo_tensor(INDICES, VALUES, (2, 3), **options)


def test_construction_and_parts():
    s = coo()
    assert s.shape == s.size() == (2, 3) and s.size(1) == 3 and s.numel() == 6 and s._nnz() == 4
    assert s.is_sparse and not s.is_sparse_csr and s.sparse_dim() == 2 and s.dense_dim() == 0 and s.dim() == 2
    assert not s.is_coalesced() and s._indices().tolist() == INDICES and s._values().tolist() == VALUES
    with pytest.raises(RuntimeError, match=r"indices: the tensor is not coalesced.*x.coalesce\(\).indices\(\)"):
        s.indices()
    c = s.coalesce()
    assert (
        c.is_coalesced() and c.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and c.values().tolist() == [4.0, 4.0, 5.0]
    )
    assert np.array_equal(s.to_dense().numpy(), DENSE) and np.array_equal(c.numpy(), DENSE)
    assert wf.sparse_coo_tensor(INDICES, VALUES).shape == (2, 3) and coo(dtype=wf.float64).dtype == wf.float64
    assert wf.sparse_coo_tensor([[0, 1]], [1, 2], (3,), is_coalesced=True).indices().tolist() == [[0, 1]]
    csr = wf.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [4.0, 4.0, 5.0])
    assert csr.is_sparse_csr and csr.crow_indices().tolist() == [0, 1, 3] and csr.col_indices().tolist() == [2, 0, 2]
    assert csr.values().tolist() == [4.0, 4.0, 5.0] and np.array_equal(csr.to_dense().numpy(), DENSE)
    assert csr.to_sparse_coo().indices().tolist() == c.indices().tolist()
    again = pickle.loads(pickle.dumps(c))
    assert np.array_equal(again.numpy(), DENSE) and "layout=coo" in repr(c) and "nnz=3" in repr(c)


def test_tensors_become_sparse_and_dense_again():
    x = wf.asarray(DENSE)
    assert x.to_sparse().indices().tolist() == [[0, 1, 1], [2, 0, 2]] and x.to_dense() is x
    assert np.array_equal(x.to_sparse().to_dense().numpy(), DENSE)
    assert x.to_sparse_csr().crow_indices().tolist() == [0, 1, 3]
    assert x.to_sparse().to(wf.float64).dtype == x.to_sparse().double().dtype == wf.float64
    assert x.to_sparse().float().dtype == wf.float32


def test_products_and_sums():
    s, other = coo(), wf.asarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    d = s.to_dense()
    cases = {
        "matmul": (s @ other, d @ other),
        "mm": (wf.sparse.mm(s, other), d @ other),
        "wf.mm": (wf.mm(s, other), d @ other),
        "dense first": (other @ s, other @ d),
        "vector": (s @ wf.ones(3), d @ wf.ones(3)),
        "sparse": ((s @ other.to_sparse()).to_dense(), d @ other),
        "addmm": (wf.sparse.addmm(wf.ones(2, 2), s, other, beta=2.0), 2.0 + d @ other),
        "t": (s.t().to_dense(), d.T),
        "T": (s.coalesce().T.to_dense(), d.T),
        "scaled": ((2 * s / 4).to_dense(), d / 2),
        "times dense": ((s.coalesce() * d).to_dense(), d * d),
        "times sparse": ((s * s).to_dense(), d * d),
        "sum": (s + s.coalesce(), None),
        "minus": (s - d, d - d),
        "negative": ((-s).to_dense(), -d),
        "total": (wf.sparse.sum(s), d.sum()),
        "sum of rows": (wf.sparse.sum(s, dim=1), d.sum(axis=1)),
        "csr": (s.to_sparse_csr() @ other, d @ other),
    }

    def check(found, expected):
        if expected is None:
            found, expected = found.to_dense(), 2 * d
        np.testing.assert_allclose(found.numpy(), expected.numpy())

    each(check, cases)


def test_gradients_reach_values_and_dense_tensors():
    s = coo(requires_grad=True)
    (s @ wf.ones(3, 1)).sum().backward()
    assert s.requires_grad and s.grad.to_dense().tolist() == [[0.0, 0.0, 2.0], [1.0, 0.0, 1.0]]
    values = wf.tensor(VALUES, requires_grad=True)
    wf.sparse_coo_tensor(INDICES, values, (2, 3)).coalesce().values().sum().backward()
    assert values.grad.tolist() == [1.0] * 4
    x = wf.asarray(DENSE).requires_grad_()
    x.to_sparse().to_dense().sum().backward()
    assert x.grad.tolist() == (DENSE != 0).astype(float).tolist()
    assert not s.detach().requires_grad and s.clone().requires_grad


def test_mistakes_have_words():
    cases = {
        "range": (lambda: wf.sparse_coo_tensor([[5]], [1.0], (3,)), "indices of axis 0 hold 5"),
        "hybrid": (lambda: wf.sparse_coo_tensor([[0]], [[1.0, 2.0]], (3, 2)), "values must be a vector"),
        "csr of coo": (lambda: coo().crow_indices(), r"Write `x.to_sparse_csr\(\)`"),
        "coo of csr": (lambda: coo().to_sparse_csr().indices(), r"`x.to_sparse_coo\(\)`"),
        "dense": (lambda: wf.sparse.mm(wf.ones(2, 2), wf.ones(2, 2)), "use `wf.mm`"),
        "promise": (lambda: coo(is_coalesced=True), "repeat or are not sorted"),
        "device": (lambda: coo(device="cuda"), "cuda"),
    }

    def check(call, text):
        with pytest.raises((ValueError, TypeError, RuntimeError, IndexError), match=text):
            call()

    each(check, cases)


def test_flags_of_backends_and_names_of_jit():
    import weft.backends.cudnn as cudnn

    before = cudnn.benchmark
    cudnn.benchmark = True
    assert wf.backends.cudnn.benchmark and not cudnn.is_available() and cudnn.version() is None
    cudnn.benchmark = before
    assert not wf.backends.mps.is_available() and not wf.backends.cuda.is_built()
    wf.backends.cuda.matmul.allow_tf32 = False
    assert isinstance(wf.backends.mkldnn.is_available(), bool)
    model = wf.nn.Linear(3, 2)
    traced = wf.jit.trace(model, wf.ones(1, 3))
    scripted = wf.jit.script(model)
    x = wf.ones(1, 3)
    np.testing.assert_allclose(traced(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(scripted(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    assert wf.jit.script(lambda v: v * (2.0 if wf.jit.is_tracing() else 3.0))(x).sum().item() == 6.0
    assert not wf.jit.is_tracing() and not wf.jit.is_scripting()
