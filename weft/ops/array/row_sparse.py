"""`RowSparse`: a gradient that touches few rows, stored as (indices, rows)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import format_shape

if TYPE_CHECKING:
    from ...tensor import Tensor


class RowSparse:
    """A row-sparse gradient: zeros of `shape` with `values[k]` added to row `indices[k]`; rows may repeat.

    The gradients of `embedding` and `take` have this form. Adding two keeps it; `coalesce()` merges repeated rows;
    `to_dense()` makes an ordinary tensor. Optimisers with a row-sparse form touch only these rows. A gradient with `keep`
    stays row-sparse when accumulated into `.grad`; others do so only on parameters with `sparse_grad`. `checked` marks
    indices that were already validated by a look-up.
    """

    __slots__ = ("indices", "values", "shape", "keep", "checked")
    is_row_sparse = True

    def __init__(
        self, indices: Tensor, values: Tensor, shape: tuple[int, ...], keep: bool = False, checked: bool = False
    ) -> None:
        operands: tuple[tuple[str, Any], ...] = (("indices", indices), ("values", values))
        for name, t in operands:
            if not hasattr(t, "_data"):
                hint = " Convert them with `wf.asarray(...)`." if isinstance(t, (list, tuple, np.ndarray)) else ""
                raise TypeError(f"RowSparse: {name} must be a tensor. Got {type(t).__name__}.{hint}")
        if not isinstance(shape, (tuple, list)) or not shape:
            raise TypeError(f"RowSparse: shape must be a tuple with one size or more. Got {shape!r}.")
        if indices.dtype.kind not in "iu":
            raise TypeError(
                f"RowSparse: indices must be integers. Got {indices.dtype.name}; use `indices.astype(wf.int64)`."
            )
        if tuple(values.shape) != (*indices.shape, *shape[1:]) or indices.ndim != 1:
            raise ValueError(
                f"RowSparse: expected one row of shape {format_shape(shape[1:])} per index. "
                f"Got indices {format_shape(indices.shape)} and values {format_shape(values.shape)}."
            )
        self.indices, self.values, self.shape, self.keep, self.checked = indices, values, tuple(shape), keep, checked

    @classmethod
    def from_gather(cls, indices: Tensor, g: Tensor, shape: tuple[int, ...], keep: bool = False) -> RowSparse:
        """The gradient of `x[indices]` for `x` of `shape`: `g` has the shape of indices followed by that of a row."""
        from .elementwise import where
        from .shaping import reshape

        flat = indices if indices.ndim == 1 else reshape(indices, (-1,))
        data = flat._data
        if type(data) is not np.ndarray or (data.dtype.kind == "i" and data.size and int(data.min()) < 0):
            flat = where(flat < 0, flat + shape[0], flat)  # negative indices count from the end
        return cls(flat, reshape(g, (flat.shape[0], *shape[1:])), shape, keep, True)

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    def detach(self) -> RowSparse:
        return RowSparse(self.indices, self.values.detach(), self.shape, self.keep, self.checked)

    def to_dense(self) -> Tensor:
        """An ordinary tensor with the same values."""
        from .creation import zeros
        from .gathering import index_add

        return index_add(zeros(self.shape, dtype=self.dtype), self.indices, self.values, 0)

    def coalesce(self) -> RowSparse:
        """The same gradient with every row named once, in rising order."""
        from ...tensor import wrap
        from .creation import zeros
        from .gathering import index_add

        rows, inverse = np.unique(self.indices._array("coalesce"), return_inverse=True)
        summed = index_add(
            zeros((len(rows), *self.shape[1:]), dtype=self.dtype), wrap(inverse.reshape(-1)), self.values, 0
        )
        return RowSparse(wrap(rows), summed, self.shape, self.keep, self.checked)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, RowSparse):
            from .shaping import concat

            if other.shape != self.shape:
                raise ValueError(f"RowSparse: cannot add shapes {self.shape} and {other.shape}.")
            return RowSparse(
                concat([self.indices, other.indices]),
                concat([self.values, other.values]),
                self.shape,
                self.keep or other.keep,
                self.checked and other.checked,
            )
        return other + self.to_dense()

    __radd__ = __add__

    def __mul__(self, other: Any) -> RowSparse:
        """Scaled by a number or a 0-d tensor (as gradient clipping does)."""
        return RowSparse(self.indices, self.values * other, self.shape, self.keep, self.checked)

    __rmul__ = __mul__

    def __neg__(self) -> RowSparse:
        return RowSparse(self.indices, -self.values, self.shape, self.keep, self.checked)

    def __deepcopy__(self, memo: dict[int, Any]) -> RowSparse:
        return RowSparse(self.indices.clone(), self.values.clone(), self.shape, self.keep, self.checked)

    def numpy(self) -> np.ndarray:
        return self.to_dense().numpy()

    def __repr__(self) -> str:
        return (
            f"RowSparse(shape={self.shape}, rows={self.indices.shape[0]}, dtype={self.dtype.name},\n"
            f"  indices={self.indices!r},\n  values={self.values!r})"
        )
