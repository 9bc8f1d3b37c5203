"""TensorArray: an array of tensors of one shape, written and read by index, in loops and outside of them.

Every method that writes returns a new TensorArray, so gradients and loops need nothing special: it is a tree (`weft.tree`) with
one leaf, the tensor of all elements, and may be a state of `wf.while_loop`, an argument of a captured function or a fetch.
"""

from __future__ import annotations

from typing import Any

from . import dtypes
from .autograd.tree import Kind, register
from .errors import describe, format_shape
from .ops.aliases.indexing import index_copy
from .ops.array.creation import asarray, zeros
from .ops.array.gathering import take
from .ops.array.shaping import concat, reshape
from .tensor import Tensor
from .typing import DTypeLike


class TensorArray:
    """An array of `size` tensors of one dtype and shape, each written by index.

    Args:
        dtype: of the elements.
        size: how many elements.
        element_shape: the shape of an element. Without it the first `write`, `unstack` or `scatter` sets it, which must happen
            outside of a loop.
        dynamic_size: let eager writes past the end enlarge the array.

    Elements that were not written are zero.

    >>> def body(i, squares):
    ...     return i + 1, squares.write(i, i * i)
    >>> _, squares = wf.while_loop(lambda i, a: i < 4, body, (wf.tensor(0), wf.TensorArray(wf.int64, 4, ())))
    >>> squares.stack().tolist(), squares.read(3).item()
    ([0, 1, 4, 9], 9)
    """

    __slots__ = ("dtype", "_size", "_dynamic", "_values")

    def __init__(self, dtype: DTypeLike, size: int = 0, element_shape: Any = None, dynamic_size: bool = False) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"TensorArray: size must be an integer of at least 0. Got {size!r}.")
        self.dtype = dtypes.as_dtype(dtype)
        self._size, self._dynamic = size, dynamic_size
        self._values: Tensor | None = None
        if element_shape is not None:
            self._values = zeros(size, *element_shape, dtype=self.dtype)

    @property
    def element_shape(self) -> tuple[int, ...] | None:
        """The shape of an element; None before it is known."""
        return None if self._values is None else tuple(self._values.shape[1:])

    def size(self) -> int:
        """The number of elements."""
        return self._size

    def __len__(self) -> int:
        return self._size

    # Writing --------------------------------------------------------------------------------------------------------------

    def write(self, index: Any, value: Any) -> TensorArray:
        """A TensorArray with `value` at `index`."""
        value = self._element("write", value)
        values = self._room("write", index, tuple(value.shape))
        return self._new(index_copy(values, 0, _indices("write", index), reshape(value, (1, *value.shape))))

    def scatter(self, indices: Any, value: Any) -> TensorArray:
        """A TensorArray with the rows of `value` at `indices`."""
        value = self._element("scatter", value)
        found = _indices("scatter", indices)
        values = self._room("scatter", indices, tuple(value.shape[1:]))
        return self._new(index_copy(values, 0, found, value))

    def unstack(self, value: Any) -> TensorArray:
        """A TensorArray of the rows of `value`, which may be as many as there are elements, or any number if it is dynamic."""
        value = self._element("unstack", value)
        if value.ndim == 0 or value.shape[0] != self._size and not (self._dynamic or self._size == 0):
            raise ValueError(
                f"TensorArray.unstack: expected {self._size} rows. Got a value of shape {format_shape(value.shape)}."
            )
        self._check_shape("unstack", tuple(value.shape[1:]))
        return self._new(value)

    def split(self, value: Any, lengths: Any) -> TensorArray:
        """A TensorArray of consecutive parts of `value`, which must be of one length, `lengths[0]`."""
        sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
        if len(set(sizes)) != 1:
            raise ValueError(f"TensorArray.split: elements have one shape, so the lengths must be equal. Got {sizes}.")
        value = self._element("split", value)
        return self.unstack(reshape(value, (len(sizes), sizes[0], *value.shape[1:])))

    # Reading --------------------------------------------------------------------------------------------------------------

    def read(self, index: Any) -> Tensor:
        """The element at `index`."""
        values = self._filled("read")
        return reshape(take(values, _indices("read", index), axis=0), tuple(values.shape[1:]))

    def gather(self, indices: Any) -> Tensor:
        """The elements at `indices`, stacked."""
        return take(self._filled("gather"), _indices("gather", indices), axis=0)

    def stack(self) -> Tensor:
        """All elements as one tensor, (size, …)."""
        return self._filled("stack")

    def concat(self) -> Tensor:
        """All elements joined along their first axis."""
        values = self._filled("concat")
        if values.ndim < 2:
            raise ValueError("TensorArray.concat: the elements have no axis to join them along. Use `stack()`.")
        return reshape(values, (values.shape[0] * values.shape[1], *values.shape[2:]))

    def __repr__(self) -> str:
        shape = "unknown" if self._values is None else format_shape(self._values.shape[1:])
        return f"TensorArray(size={self._size}, dtype={self.dtype.name}, element_shape={shape})"

    # Helpers --------------------------------------------------------------------------------------------------------------

    def _new(self, values: Tensor) -> TensorArray:
        made = TensorArray.__new__(TensorArray)
        made.dtype, made._dynamic, made._values = self.dtype, self._dynamic, values
        made._size = values.shape[0]
        return made

    def _element(self, what: str, value: Any) -> Tensor:
        value = value if isinstance(value, Tensor) else asarray(value, dtype=self.dtype)
        if value.dtype != self.dtype:
            raise TypeError(
                f"TensorArray.{what}: expected {self.dtype.name}. Got {describe(value)}; write `.astype(wf.{self.dtype.name})`."
            )
        return value

    def _check_shape(self, what: str, shape: tuple[Any, ...]) -> None:
        if self._values is not None and tuple(self._values.shape[1:]) != shape:
            raise ValueError(
                f"TensorArray.{what}: elements have shape {format_shape(self._values.shape[1:])}. Got {format_shape(shape)}."
            )

    def _room(self, what: str, index: Any, shape: tuple[Any, ...]) -> Tensor:
        """The tensor of all elements, made or enlarged for a write at `index`."""
        self._check_shape(what, shape)
        values = zeros(self._size, *shape, dtype=self.dtype) if self._values is None else self._values
        known = None if isinstance(index, Tensor) and index.is_symbolic else index
        if known is not None:
            places = known.tolist() if isinstance(known, Tensor) else known
            most = max(places, default=-1) if isinstance(places, (list, tuple)) else int(places)
            least = min(places, default=0) if isinstance(places, (list, tuple)) else int(places)
            if least < 0 or most >= values.shape[0] and not self._dynamic:
                hint = "" if self._dynamic else " Make it with `dynamic_size=True`, or larger."
                raise IndexError(f"TensorArray.{what}: index {known} is outside of {values.shape[0]} elements.{hint}")
            if most >= values.shape[0]:
                values = concat([values, zeros(most + 1 - values.shape[0], *shape, dtype=self.dtype)], axis=0)
        return values

    def _filled(self, what: str) -> Tensor:
        if self._values is None:
            raise ValueError(f"TensorArray.{what}: nothing was written, so the shape of the elements is not known.")
        return self._values


def _indices(what: str, index: Any) -> Tensor:
    """One index or several as a tensor of one axis."""
    found = index if isinstance(index, Tensor) else asarray(index, dtype=dtypes.int64)
    if not dtypes.is_integral(found.dtype) or found.ndim > 1:
        raise TypeError(f"TensorArray.{what}: expected an integer or a list of them. Got {describe(index)}.")
    return reshape(found, (-1,)) if found.ndim == 0 else found


def _split(array: TensorArray) -> tuple[Any, list[Any]]:
    return (array.dtype, array._size, array._dynamic), [array._values]


def _join(cls: Any, kept: Any, children: list[Any]) -> TensorArray:
    made = TensorArray.__new__(TensorArray)
    made.dtype, made._size, made._dynamic = kept
    (made._values,) = children
    return made


register(TensorArray, Kind(_split, _join, lambda cls, kept, count: [".stack()"]))
