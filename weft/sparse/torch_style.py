"""Sparse tensors as PyTorch's: `wf.sparse_coo_tensor`, `x.to_sparse()`, `s.indices()`, `s.values()`, `wf.sparse.mm`.

`SparseTensor` is a `COO` or `CSR` tensor (`s.data`) with PyTorch's methods: there `indices()`, `values()` and `is_coalesced()`
are called, while those of `COO` and `CSR` are attributes. Products and gradients are theirs, on the nonzeros only. Values are
numbers; PyTorch's hybrid tensors, whose values have axes of their own, do not exist here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import describe
from ..ops.array.elementwise import astype
from ..tensor import Count, Tensor
from .base import Sparse
from .construct import coo_tensor, from_dense
from .coo import COO
from .csr import CSR


class SparseTensor:
    """A sparse tensor with PyTorch's methods; made by `wf.sparse_coo_tensor`, `wf.sparse_csr_tensor` and `x.to_sparse()`.

    >>> s = wf.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    >>> s.coalesce().indices().tolist(), (s @ wf.ones(3, 1)).tolist()
    ([[0, 1, 1], [2, 0, 2]], [[3.0], [9.0]])
    """

    __slots__ = ("data",)
    __array_ufunc__ = None
    weft_operators = True  # `dense @ sparse` dispatches to this class
    is_sparse = True

    data: COO | CSR

    def __init__(self, data: COO | CSR) -> None:
        self.data = data

    # Facts ---------------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.data.ndim

    @property
    def size(self) -> Count:
        """The number of elements with zeros; called, as in PyTorch, the shape or the size of one axis."""
        made = int.__new__(Count, self.data.size)
        made.shape = self.shape
        return made

    @property
    def layout(self) -> str:
        """ "coo" or "csr"."""
        return self.data.layout

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is "csr"."""
        return self.layout == "csr"

    @property
    def requires_grad(self) -> bool:
        """Whether the values are recorded."""
        return self.data.requires_grad

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient of the values, at the same places, or None."""
        grad = self.data.values.grad
        return None if grad is None else SparseTensor(self.data._with(grad))

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def sparse_dim(self) -> int:
        """The number of axes that have indices: all."""
        return self.ndim

    def dense_dim(self) -> int:
        """The number of axes of one value: 0."""
        return 0

    def numel(self) -> int:
        """The number of elements with zeros."""
        return self.data.size

    def _nnz(self) -> int:
        """The number of stored values."""
        return self.data.nnz

    # Parts ---------------------------------------------------------------------------------------------------------

    def _coo(self, name: str) -> COO:
        if not isinstance(self.data, COO):
            raise RuntimeError(
                f"{name}: a CSR tensor has `crow_indices()` and `col_indices()`. Write `x.to_sparse_coo()` first."
            )
        return self.data

    def indices(self) -> Tensor:
        """(ndim, nnz) integers, of a coalesced tensor."""
        return self._coalesced("indices").indices

    def values(self) -> Tensor:
        """(nnz,) numbers, of a coalesced or CSR tensor; gradients flow through them."""
        return self.data.values if isinstance(self.data, CSR) else self._coalesced("values").values

    def _coalesced(self, name: str) -> COO:
        data = self._coo(name)
        if not data.is_coalesced:
            raise RuntimeError(
                f"{name}: the tensor is not coalesced: indices may repeat. Write `x.coalesce().{name}()`, or `x._{name}()` for "
                "what is stored."
            )
        return data

    def _indices(self) -> Tensor:
        return self._coo("_indices").indices

    def _values(self, *_: Any) -> Tensor:
        return self.data.values

    def crow_indices(self) -> Tensor:
        """(rows + 1,) integers of a CSR tensor: where each row begins."""
        return self._csr("crow_indices").indptr

    def col_indices(self) -> Tensor:
        """(nnz,) integers of a CSR tensor: the columns."""
        return self._csr("col_indices").indices

    def _csr(self, name: str) -> CSR:
        if not isinstance(self.data, CSR):
            raise RuntimeError(f"{name}: a COO tensor has `indices()`. Write `x.to_sparse_csr()` first.")
        return self.data

    def is_coalesced(self) -> bool:
        """Whether indices are unique and sorted."""
        return self._coo("is_coalesced").is_coalesced

    def coalesce(self) -> SparseTensor:
        """The same tensor with unique, sorted indices; values at repeated indices are summed."""
        return SparseTensor(self._coo("coalesce").coalesce())

    # Conversion ----------------------------------------------------------------------------------------------------

    def to_dense(self) -> Tensor:
        """An ordinary tensor; gradients flow back to the values."""
        return self.data.to_dense()

    def __weft_tensor__(self) -> Tensor:
        return self.to_dense()

    def to_sparse(self) -> SparseTensor:
        """The tensor in COO format."""
        return self.to_sparse_coo()

    def to_sparse_coo(self) -> SparseTensor:
        """The tensor in COO format; that of a CSR matrix is coalesced."""
        if isinstance(self.data, COO):
            return self
        found = self.data.to_coo()
        return SparseTensor(COO._make(found.indices, found.values, found.shape)).coalesce()

    def to_sparse_csr(self) -> SparseTensor:
        """The matrix in CSR format."""
        return SparseTensor(self.data.to_csr())

    def numpy(self) -> np.ndarray:
        """A dense NumPy array."""
        return self.data.numpy()

    def tolist(self) -> Any:
        """Nested lists of all elements."""
        return self.to_dense().tolist()

    def to(self, *args: Any, dtype: Any = None, **options: Any) -> SparseTensor:
        """The tensor with another dtype; a device must be the CPU."""
        probe = self.data.values.to(*args, **({"dtype": dtype} if dtype is not None else {}), **options)
        return self._with(probe)

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self.data._with(values))

    def type(self, dtype: Any) -> SparseTensor:
        """The tensor with another dtype."""
        return self._with(astype(self.data.values, dtype))

    astype = type

    def float(self) -> SparseTensor:
        """The tensor as float32."""
        return self._with(self.data.values.float())

    def double(self) -> SparseTensor:
        """The tensor as float64."""
        return self._with(self.data.values.double())

    def detach(self) -> SparseTensor:
        """The tensor without history."""
        return SparseTensor(self.data.detach())

    def clone(self) -> SparseTensor:
        """A copy of the values, recorded."""
        return self._with(self.data.values.clone())

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Record the values; their gradient is `grad`."""
        self.data.requires_grad_(requires_grad)
        return self

    # Arithmetic ----------------------------------------------------------------------------------------------------

    def t(self) -> SparseTensor:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    @property
    def T(self) -> SparseTensor:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """The tensor with two axes exchanged."""
        source = self.data.to_coo()
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        indices = np.ascontiguousarray(source.indices._data[order])
        made = COO(indices, source.values, tuple([self.shape[i] for i in order]))
        return SparseTensor(made.coalesce() if source.is_coalesced or isinstance(self.data, CSR) else made)

    def sum(self, dim: Any = None) -> Any:
        """The sum of all elements, or over the axes `dim`, a dense tensor."""
        return self.data.sum() if dim is None else self.to_dense().sum(dim=dim)

    def matmul(self, other: Any) -> Any:
        """`self @ other`."""
        return self @ other

    def mm(self, other: Any) -> Any:
        """`self @ other`, of matrices."""
        return self @ other

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            return SparseTensor(_as_coo(from_dense(self.data @ other.to_dense())))
        return self.data @ other

    def __rmatmul__(self, other: Any) -> Any:
        return self.data.__rmatmul__(other)

    def __neg__(self) -> SparseTensor:
        return SparseTensor(-self.data)

    def __mul__(self, other: Any) -> SparseTensor:
        if isinstance(other, SparseTensor):
            left = self.data.to_coo().coalesce()
            return SparseTensor(left.multiply(other.to_dense()))
        if isinstance(other, Tensor) and other.ndim:
            return SparseTensor(self.data.multiply(other))
        return SparseTensor(self.data * other)

    __rmul__ = __mul__

    def mul(self, other: Any) -> SparseTensor:
        """The product, element by element."""
        return self * other

    def __truediv__(self, other: Any) -> SparseTensor:
        return SparseTensor(self.data / other)

    def __add__(self, other: Any) -> Any:
        result = self.data + (other.data if isinstance(other, SparseTensor) else other)
        return SparseTensor(result) if isinstance(result, (COO, CSR)) else result

    __radd__ = __add__

    def add(self, other: Any) -> Any:
        """The sum: sparse with a sparse tensor, dense with a dense one."""
        return self + other

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __repr__(self) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        if isinstance(self.data, CSR):
            parts = f"crow_indices={self.data.indptr.tolist()}, col_indices={self.data.indices.tolist()}"
        else:
            parts = f"indices={self.data.indices.tolist()}"
        values = self.data.values.detach().tolist()
        return f"tensor({parts}, values={values}, size={self.shape}, nnz={self._nnz()}, layout={self.layout}{grad})"

    def __reduce__(self) -> Any:
        return (SparseTensor, (self.data,))


def _as_coo(x: Any) -> COO:
    assert isinstance(x, COO)
    return x


def _values(values: Any, dtype: Any, requires_grad: bool) -> Tensor:
    made = values if isinstance(values, Tensor) else Tensor(values)
    if dtype is not None:
        made = astype(made, dtype)
    if requires_grad and not made.requires_grad:
        made = made.detach().clone().requires_grad_()
    return made


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    is_coalesced: bool | None = None,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """A sparse tensor from coordinates, with PyTorch's arguments and methods.

    Args:
        indices: (ndim, nnz) integers, a row per axis. Values at repeated indices are summed.
        values: (nnz,) numbers; gradients flow back to a tensor.
        size: the shape; by default the smallest that holds all indices.
        dtype: that of the values.
        device: the CPU.
        requires_grad: record the values.
        is_coalesced: promise that the indices are unique and sorted.
        check_invariants: accepted; indices are always checked.

    >>> s = wf.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> s.to_dense().tolist()
    [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    """
    _check_device("sparse_coo_tensor", device)
    made = coo_tensor(indices, _values(values, dtype, requires_grad), size)
    if is_coalesced:
        flat = made._flat()
        if flat.size and (np.diff(flat) <= 0).any():
            raise ValueError("sparse_coo_tensor: is_coalesced is given, but the indices repeat or are not sorted.")
        made = COO._make(made.indices, made.values, made.shape, True)
    return SparseTensor(made)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """A sparse matrix in CSR format, with PyTorch's arguments and methods.

    Args:
        crow_indices: (rows + 1,) integers: where each row begins.
        col_indices: (nnz,) integers: the columns.
        values: (nnz,) numbers; gradients flow back to a tensor.
        size: (rows, columns); by default as many columns as the largest index needs.
        dtype, device, requires_grad, check_invariants: as for `sparse_coo_tensor`.

    >>> wf.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0]).to_dense().tolist()
    [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    """
    _check_device("sparse_csr_tensor", device)
    if size is None:
        columns = np.asarray(col_indices)
        size = (len(crow_indices) - 1, int(columns.max()) + 1 if columns.size else 0)
    return SparseTensor(CSR(crow_indices, col_indices, _values(values, dtype, requires_grad), size))


def _check_device(name: str, device: Any) -> None:
    from ..ops.array.creation import check_device

    check_device(name, device)


def to_sparse(x: Tensor, layout: str = "coo") -> SparseTensor:
    """The nonzero elements of a tensor; gradients flow back to it."""
    if x.ndim == 0:
        raise ValueError("to_sparse: a scalar has no axes whose indices could be stored. Got shape ().")
    return SparseTensor(from_dense(x, layout))


def mm(sparse: Any, dense: Any) -> Any:
    """The product of matrices of which one or both are sparse; that of two sparse ones is sparse.

    >>> wf.sparse.mm(wf.eye(2).to_sparse(), wf.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    if not any(isinstance(m, (SparseTensor, Sparse)) for m in (sparse, dense)):
        raise TypeError(
            f"sparse.mm: one matrix must be sparse. Got {describe(sparse)} and {describe(dense)}; use `wf.mm`."
        )
    return sparse @ dense


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """`beta * mat + alpha * (mat1 @ mat2)`, where `mat1` is sparse.

    >>> wf.sparse.addmm(wf.ones(2, 1), wf.eye(2).to_sparse(), wf.ones(2, 1)).tolist()
    [[2.0], [2.0]]
    """
    return beta * mat + alpha * mm(mat1, mat2)


def sum(input: Any, dim: Any = None) -> Any:
    """The sum of the elements of a sparse tensor, or over the axes `dim`.

    >>> wf.sparse.sum(wf.eye(3).to_sparse()).item()
    3.0
    """
    return input.sum() if dim is None else input.to_dense().sum(dim=dim)
