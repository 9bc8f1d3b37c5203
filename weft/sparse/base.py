"""The base class of COO and CSR tensors: properties, arithmetic, products, conversion and printing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import describe, format_shape
from ..ops.array.elementwise import astype
from ..ops.array.reduction import reduce_sum
from ..ops.array.shaping import expand_dims, matrix_transpose, reshape, squeeze
from ..ops.array.sparse_ops import sparse_matmul
from ..tensor import Tensor, wrap


def index_tensor(op: str, name: str, value: Any) -> Tensor:
    """Indices as an int64 tensor."""
    array = value._array(op) if isinstance(value, Tensor) else np.asarray(value)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{op}: {name} must be integers. Got {array.dtype}.")
    return wrap(array.astype(np.int64, copy=False))


def value_tensor(op: str, value: Any) -> Tensor:
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    if tensor.ndim != 1:
        raise ValueError(
            f"{op}: values must be a vector, one number per entry. Got shape {format_shape(tensor.shape)}."
        )
    return tensor


class Sparse:
    """Base class of sparse tensors. Immutable: every operation returns a new tensor that shares the indices.

    >>> a = wf.sparse.from_dense([[0.0, 2.0], [3.0, 0.0]])
    >>> a.nnz, a.shape, (2 * a).sum().item()
    (2, (2, 2), 10.0)
    """

    __slots__ = ("values", "shape")
    __array_ufunc__ = None
    weft_operators = True  # `dense @ sparse` dispatches to this class
    layout = "sparse"

    values: Tensor
    shape: tuple[int, ...]

    # Facts --------------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, including zeros."""
        return math.prod(self.shape)

    @property
    def nnz(self) -> int:
        """The number of stored elements."""
        return self.values.shape[0]

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    def _with(self, values: Tensor) -> Any:
        """A tensor with the same indices and other values."""
        raise NotImplementedError

    def _triples(self) -> tuple[Tensor, Tensor]:
        """Row and column indices of a matrix."""
        raise NotImplementedError

    def to_dense(self) -> Tensor:
        raise NotImplementedError

    def __weft_tensor__(self) -> Tensor:
        """The dense tensor, for ops without a sparse implementation (`dense + sparse`)."""
        return self.to_dense()

    def transpose(self) -> Any:
        raise NotImplementedError

    def to_coo(self) -> Any:
        raise NotImplementedError

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def detach(self) -> Any:
        """The same tensor, detached from the tape."""
        return self._with(self.values.detach())

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Record gradients of the stored elements, in `values.grad`."""
        self.values.requires_grad_(requires_grad)
        return self

    def astype(self, dtype: Any) -> Any:
        return self._with(astype(self.values, dtype))

    def numpy(self) -> np.ndarray:
        """A dense NumPy array with the same elements."""
        return self.to_dense().numpy()

    def triples(self) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, columns, values) of a matrix, as `scipy.sparse.coo_matrix((values, (rows, columns)))` takes them."""
        self._check_matrix("triples")
        rows, columns = self._triples()
        return rows, columns, self.values

    # Arithmetic with numbers -----------------------------------------------------------------------------------------

    def __neg__(self) -> Any:
        return self._with(-self.values)

    def _scaled(self, op: str, other: Any, result: Any) -> Any:
        if isinstance(other, (int, float, complex)) or isinstance(other, Tensor) and other.ndim == 0:
            return self._with(result(self.values, other))
        if isinstance(other, (Tensor, Sparse)):
            raise TypeError(
                f"{op}: a sparse tensor can be scaled by a number or a 0-d tensor. Got {describe(other)}; "
                "use `to_dense()`, or `x.multiply(dense)` for products entry by entry."
            )
        return NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self._scaled("multiply", other, lambda v, o: v * o)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._scaled("divide", other, lambda v, o: v / o)

    def multiply(self, dense: Tensor) -> Any:
        """The elementwise product with a dense tensor of the same shape; sparse, with the same indices."""
        if tuple(dense.shape) != self.shape:
            raise ValueError(
                f"multiply: shapes differ. Got {format_shape(self.shape)} and {format_shape(dense.shape)}."
            )
        return self._with(self.values * self._gather(dense))

    def _gather(self, dense: Tensor) -> Tensor:
        """Gather the elements of a dense tensor at the indices of this one."""
        raise NotImplementedError

    def sum(self) -> Tensor:
        """The sum of all elements."""
        return reduce_sum(self.values, None, False)

    # Sums ---------------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Sparse):
            return self._add(other)
        if isinstance(other, (Tensor, np.ndarray)):
            return self.to_dense() + other
        if isinstance(other, (int, float, complex)):
            raise TypeError("add: a number added to a sparse tensor makes it dense. Write `x.to_dense() + number`.")
        return NotImplemented

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        return self + (-other if isinstance(other, (Sparse, Tensor)) else -np.asarray(other))

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def _add(self, other: Sparse) -> Any:
        from .coo import COO

        if other.shape != self.shape:
            raise ValueError(f"add: shapes differ. Got {format_shape(self.shape)} and {format_shape(other.shape)}.")
        from ..ops.array.shaping import concat

        a, b = self.to_coo(), other.to_coo()
        indices = wrap(np.concatenate([a.indices._data, b.indices._data], axis=1))
        return COO._make(indices, concat([a.values, b.values]), self.shape).coalesce()

    # Products -----------------------------------------------------------------------------------------------------

    def _check_matrix(self, op: str) -> None:
        if self.ndim != 2:
            raise ValueError(f"{op}: expected a sparse matrix. Got shape {format_shape(self.shape)}.")

    def __matmul__(self, other: Any) -> Tensor:
        return self._times(other)

    def _times(self, other: Any) -> Tensor:
        self._check_matrix("matmul")
        if isinstance(other, Sparse):
            raise TypeError("matmul: the product of two sparse tensors is not supported. Use `a @ b.to_dense()`.")
        dense = other if isinstance(other, Tensor) else Tensor(other)
        if dense.ndim not in (1, 2) or dense.shape[0] != self.shape[1]:
            raise ValueError(
                f"matmul: inner dimensions differ, or the dense operand is no vector or matrix. Got {format_shape(self.shape)} "
                f"and {format_shape(dense.shape)}; expected ({self.shape[1]},) or ({self.shape[1]}, k)."
            )
        rows, columns = self._triples()
        if dense.ndim == 1:
            return squeeze(sparse_matmul(rows, columns, self.values, expand_dims(dense, 1), self.shape[0]), 1)
        return sparse_matmul(rows, columns, self.values, dense, self.shape[0])

    def __rmatmul__(self, other: Any) -> Tensor:
        """dense @ sparse = (sparseᵀ @ denseᵀ)ᵀ."""
        self._check_matrix("matmul")
        dense = other if isinstance(other, Tensor) else Tensor(other)
        if dense.ndim == 0 or dense.shape[-1] != self.shape[0]:
            raise ValueError(
                f"matmul: inner dimensions differ. Got {format_shape(dense.shape)} and {format_shape(self.shape)}."
            )
        rows, columns = self._triples()
        flat = dense if dense.ndim == 2 else reshape(dense, (-1, self.shape[0]))
        out = sparse_matmul(columns, rows, self.values, matrix_transpose(flat), self.shape[1])
        return reshape(matrix_transpose(out), (*dense.shape[:-1], self.shape[1]))

    # Text ---------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        head = f"{type(self).__name__}(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype.name}{grad}"
        if self.nnz == 0:
            return head + ")"
        shown = [f"\n  {place} {value:.6g}" for place, value in self._entries(8)]
        more = f"\n  … {self.nnz - 8} more" if self.nnz > 8 else ""
        return head + ":" + "".join(shown) + more + ")"

    def _entries(self, limit: int) -> list[tuple[tuple[int, ...], Any]]:
        coo = self.to_coo()
        places = coo.indices._data[:, :limit].T.tolist()
        numbers = coo.values.detach()._array("repr")[:limit]
        cast = complex if dtypes.is_complex(self.dtype) else float
        return [(tuple(p), cast(v)) for p, v in zip(places, numbers, strict=True)]
