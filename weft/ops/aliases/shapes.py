"""Shapes under PyTorch's and NumPy's names: stacking, splitting, transposing, selecting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import ShapeLike
from ..array import creation, gathering, repeating, shaping, subscripts
from ..core.slow_path import check_memory
from ..core.spec import check_shape, check_size, normalize_axis

__all__ = [
    "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "column_stack", "diag_embed",
    "diagflat", "dsplit", "dstack", "expand", "fliplr", "flipud", "hsplit", "hstack", "movedim", "narrow", "permute", "ravel",
    "repeat_interleave", "rot90", "row_stack", "select", "t", "tensor_split", "transpose", "unbind", "unfold", "unsqueeze",
    "view_as_complex", "view_as_real", "vsplit", "vstack",
]  # fmt: skip


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """Insert an axis of size 1 before axis `dim`.

    >>> wf.unsqueeze(wf.zeros(3), 0).shape
    (1, 3)
    """
    return shaping.expand_dims(x, dim)


def transpose(x: Tensor, *axes: Any, dim0: int | None = None, dim1: int | None = None) -> Tensor:
    """Exchange two axes, as in PyTorch; reverse all axes or bring them into an order, as in NumPy.

    Args:
        axes: two axes to exchange, or all axes in their new order (by position or as one tuple), or nothing.
        dim0, dim1: two axes to exchange, by name.

    >>> x = wf.zeros(2, 3, 4)
    >>> wf.transpose(x, 0, 1).shape, wf.transpose(x).shape, wf.transpose(x, (1, 2, 0)).shape
    ((3, 2, 4), (4, 3, 2), (3, 4, 2))
    """
    axes = (*axes, *[d for d in (dim0, dim1) if d is not None])
    if len(axes) == 1 and isinstance(axes[0], (tuple, list)):
        return shaping.permute_dims(x, tuple(axes[0]))
    if not axes or axes == (None,):
        return shaping.permute_dims(x, tuple(range(x.ndim))[::-1])
    if len(axes) == 2:
        return shaping.swapaxes(x, *axes)
    return shaping.permute_dims(x, tuple(axes))


def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or number is returned as it is.

    >>> wf.t(wf.zeros(2, 3)).shape
    (3, 2)
    """
    if x.ndim > 2:
        raise ValueError(
            f"t: expected a matrix. Got shape {format_shape(x.shape)}; use `x.mT` for the last two axes, `transpose` for others."
        )
    return x if x.ndim < 2 else shaping.matrix_transpose(x)


def permute(x: Tensor, *axes: Any) -> Tensor:
    """Bring the axes into an order: `permute(x, 2, 0, 1)` or `permute(x, (2, 0, 1))`.

    >>> wf.permute(wf.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return shaping.permute_dims(x, tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes)


def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Move axes to other places; the others keep their order.

    >>> wf.movedim(wf.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return shaping.moveaxis(x, source, destination)


def ravel(x: Tensor) -> Tensor:
    """Flatten to a vector, in row-major order.

    >>> wf.ravel(wf.eye(2))
    tensor([1., 0., 0., 1.])
    """
    return shaping.reshape(x, (-1,))


def expand(x: Tensor, *shape: ShapeLike) -> Tensor:
    """Broadcast to `shape`; -1 keeps a size.

    >>> wf.zeros(3, 1).expand(-1, 4).shape
    (3, 4)
    """
    sizes: Any = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    offset = len(sizes) - x.ndim
    return shaping.broadcast_to(x, tuple([x.shape[i - offset] if d == -1 else d for i, d in enumerate(sizes)]))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors broadcast to one shape.

    >>> [x.shape for x in wf.broadcast_tensors(wf.zeros(2, 1), wf.zeros(3))]
    [(2, 3), (2, 3)]
    """
    return shaping.broadcast_arrays(*tensors)


def _at_least(rank: int, tensors: tuple[Any, ...], grow: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    made = tuple([grow(x if isinstance(x, Tensor) else creation.asarray(x)) for x in tensors])
    return made[0] if len(made) == 1 else made


def atleast_1d(*tensors: Tensor) -> Any:
    """Give numbers one axis.

    >>> wf.atleast_1d(wf.tensor(1.0)).shape
    (1,)
    """
    return _at_least(1, tensors, lambda x: shaping.reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*tensors: Tensor) -> Any:
    """Give numbers and vectors two axes: a vector becomes a row.

    >>> wf.atleast_2d(wf.zeros(3)).shape
    (1, 3)
    """
    return _at_least(2, tensors, _matrix)


def _matrix(x: Tensor) -> Tensor:
    return x if x.ndim >= 2 else shaping.reshape(x, (1, -1))


def atleast_3d(*tensors: Tensor) -> Any:
    """Give numbers, vectors and matrices three axes: a matrix gets a last one.

    >>> wf.atleast_3d(wf.zeros(2, 3)).shape
    (2, 3, 1)
    """
    return _at_least(3, tensors, lambda x: x if x.ndim >= 3 else shaping.expand_dims(_matrix(x), -1))


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along the second axis, vectors along the first.

    >>> wf.hstack([wf.zeros(2, 1), wf.zeros(2, 3)]).shape
    (2, 4)
    """
    parts = _parts(atleast_1d, tensors)
    return shaping.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along the first axis; vectors are rows.

    >>> wf.vstack([wf.zeros(3), wf.zeros(3)]).shape
    (2, 3)
    """
    return shaping.concat(_parts(atleast_2d, tensors), axis=0)


def row_stack(tensors: Sequence[Tensor]) -> Tensor:
    """`vstack`.

    >>> wf.row_stack([wf.zeros(3), wf.zeros(3)]).shape
    (2, 3)
    """
    return vstack(tensors)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along the third axis.

    >>> wf.dstack([wf.zeros(2, 3), wf.zeros(2, 3)]).shape
    (2, 3, 2)
    """
    return shaping.concat(_parts(atleast_3d, tensors), axis=2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate along the second axis; vectors are columns.

    >>> wf.column_stack([wf.zeros(3), wf.zeros(3)]).shape
    (3, 2)
    """
    made = [shaping.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in _parts(lambda *x: x, tensors)]
    return shaping.concat(made, axis=1)


def _parts(grow: Any, tensors: Any) -> list[Tensor]:
    made = grow(*shaping.check_sequence("stack", tensors))
    return [made] if isinstance(made, Tensor) else list(made)


MAX_PARTS = 1_000_000
"""of a tensor: each is a Python object"""


def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into parts of nearly equal size, or before given positions.

    Args:
        indices_or_sections: the number of parts, or the positions along `dim` at which parts begin.

    >>> [part.shape for part in wf.tensor_split(wf.zeros(5), 2)]
    [(3,), (2,)]
    """
    dim = normalize_axis("tensor_split", dim, x.ndim, "dim")
    size = x.shape[dim]
    if isinstance(indices_or_sections, Tensor) and indices_or_sections.ndim == 0:
        indices_or_sections = int(indices_or_sections)
    if isinstance(indices_or_sections, (int, np.integer)):
        count = check_size("tensor_split", indices_or_sections, "sections", 1, MAX_PARTS)
        bounds = [i * (size // count) + builtin_min(i, size % count) for i in range(1, count)]
    else:
        bounds = [int(i) for i in indices_or_sections]
    edges = [0, *[builtin_min(builtin_max(i + size if i < 0 else i, 0), size) for i in bounds], size]
    return tuple([narrow(x, dim, a, builtin_max(b - a, 0)) for a, b in zip(edges, edges[1:])])


builtin_min, builtin_max = min, max


def hsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the second axis, for a vector along the first.

    >>> len(wf.hsplit(wf.zeros(2, 4), 2))
    2
    """
    return tensor_split(x, indices_or_sections, 0 if x.ndim == 1 else 1)


def vsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the first axis.

    >>> len(wf.vsplit(wf.zeros(4, 2), 2))
    2
    """
    return tensor_split(x, indices_or_sections, 0)


def dsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the third axis.

    >>> len(wf.dsplit(wf.zeros(2, 2, 4), 2))
    2
    """
    return tensor_split(x, indices_or_sections, 2)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`.

    >>> len(wf.unbind(wf.zeros(3, 2)))
    3
    """
    return shaping.unstack(x, axis=dim)


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The `length` slices from `start` on along `dim`; a view.

    >>> wf.narrow(wf.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    size = x.shape[dim]
    start = int(start)
    begin = start + size if start < 0 else start
    if not 0 <= begin <= size or length < 0 or begin + length > size:
        raise IndexError(f"narrow: start {start} and length {length} are outside of axis {dim} with size {size}.")
    return _cut(x, dim, slice(begin, begin + length))


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """The slice number `index` along `dim`; a view.

    >>> wf.select(wf.eye(2), 0, 1)
    tensor([0., 1.])
    """
    return _cut(x, dim, index)


def _cut(x: Tensor, dim: int, key: Any) -> Tensor:
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(f"dim {dim} is out of range for a tensor with {x.ndim} axes.")
    return subscripts.tensor_getitem(x, (*[slice(None)] * (dim % x.ndim), key))


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` neighbours along an axis, as a new last axis.

    >>> wf.arange(5).unfold(0, 3, 1)
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    n = x.shape[dimension]
    if not 0 < size <= n or step < 1:
        raise ValueError(
            f"unfold: expected a size between 1 and {n}, the length of axis {dimension}, and a positive step. "
            f"Got size {size} and step {step}."
        )
    starts = np.arange(0, n - size + 1, step)
    axis = dimension % x.ndim
    taken = gathering.take(x, Tensor((starts[:, None] + np.arange(size)).reshape(-1)), axis=axis)
    return shaping.moveaxis(shaping.unflatten(taken, axis, (len(starts), size)), axis + 1, -1)


def as_strided(x: Tensor, size: ShapeLike, stride: ShapeLike, storage_offset: int = 0) -> Tensor:
    """A copy of the elements of a contiguous tensor that a view with these strides would show.

    Args:
        size: the new shape.
        stride: how many elements the next one along each axis is away.
        storage_offset: the first element.

    >>> wf.arange(6).as_strided((2, 2), (1, 3))
    tensor([[0, 3],
            [1, 4]])
    """
    sizes, strides = _numbers(size), _numbers(stride)
    if len(sizes) != len(strides):
        raise ValueError(f"as_strided: size and stride must have one length. Got {len(sizes)} and {len(strides)}.")
    flat = shaping.reshape(x, (-1,))
    check_shape("as_strided", sizes, "size")
    check_memory("as_strided", sizes, np.dtype(np.int64))
    first = last = storage_offset  # by the strides: the places themselves could be beyond 64 bits
    for n, step in zip(sizes, strides):
        first, last = first + builtin_min(step * (n - 1), 0), last + builtin_max(step * (n - 1), 0)
    if 0 not in sizes and not 0 <= first <= last < flat.shape[0]:
        raise IndexError(f"as_strided: elements {first} to {last} are not all inside of a tensor with {flat.shape[0]}.")
    places = np.full((), storage_offset if 0 not in sizes else 0, np.int64)
    for n, step in zip(sizes, strides):
        places = places[..., None] + np.arange(n) * (step if 0 not in sizes else 0)
    return shaping.reshape(gathering.take(flat, Tensor(places.reshape(-1)), axis=0), sizes)


def _numbers(value: Any) -> tuple[int, ...]:
    return (int(value),) if isinstance(value, int) else tuple([int(v) for v in value])


def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Repeat each element: `[a, b]` becomes `[a, a, b, b]` for 2.

    Args:
        repeats: how often, one number or one for each element.
        dim: the axis; without it the tensor is flattened.
        output_size: accepted for PyTorch programs and not needed.

    >>> wf.repeat_interleave(wf.arange(2), 2)
    tensor([0, 0, 1, 1])
    """
    return repeating.repeat(x, repeats, axis=dim)


def fliplr(x: Tensor) -> Tensor:
    """Reverse the order of the columns.

    >>> wf.fliplr(wf.tensor([[1, 2]]))
    tensor([[2, 1]])
    """
    return repeating.flip(x, axis=1)


def flipud(x: Tensor) -> Tensor:
    """Reverse the order of the rows.

    >>> wf.flipud(wf.tensor([1, 2]))
    tensor([2, 1])
    """
    return repeating.flip(x, axis=0)


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turn by 90 degrees `k` times in the plane of two axes, from the first towards the second.

    >>> wf.rot90(wf.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    first, second = dims
    turns = k % 4
    if turns == 2:
        return repeating.flip(x, axis=(first, second))
    if turns == 1:
        return shaping.swapaxes(repeating.flip(x, axis=second), first, second)
    return repeating.flip(shaping.swapaxes(x, first, second), axis=second) if turns else shaping.clone(x)


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis of `x` on a diagonal, in the axes `dim1` and `dim2` of the result.

    >>> wf.diag_embed(wf.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    n = x.shape[-1]
    size = n + abs(offset)
    rows = np.arange(n) + builtin_max(-offset, 0)
    places = np.zeros((size * size,), np.int64)
    places[rows * size + rows + offset] = np.arange(1, n + 1)
    zero = creation.zeros((*x.shape[:-1], 1), dtype=x.dtype)
    flat = gathering.take(shaping.concat([zero, x], axis=-1), Tensor(places), axis=-1)
    made = shaping.reshape(flat, (*x.shape[:-1], size, size))
    return shaping.moveaxis(made, (-2, -1), (dim1, dim2))


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements of `x` on a diagonal.

    >>> wf.diagflat(wf.tensor([[1, 2]]))
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(shaping.reshape(x, (-1,)), offset)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices along its diagonal.

    >>> wf.block_diag(wf.ones(1, 1), wf.ones(1, 2)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    from ..array.padding import pad

    parts = _parts(atleast_2d, tensors)
    width = sum(p.shape[1] for p in parts)
    rows, left = [], 0
    for p in parts:
        rows.append(pad(p, ((0, 0), (left, width - left - p.shape[1]))))
        left += p.shape[1]
    return shaping.concat(rows, axis=0)


def view_as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs (real, imaginary) in a new last axis.

    >>> wf.view_as_real(wf.tensor([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    if not dtypes.is_complex(x.dtype):
        raise TypeError(f"view_as_real: expected complex numbers. Got {x.dtype.name}.")
    return shaping.stack([x.real, x.imag], axis=-1)


def view_as_complex(x: Tensor) -> Tensor:
    """Pairs (real, imaginary) in the last axis as complex numbers.

    >>> wf.view_as_complex(wf.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if x.shape[-1:] != (2,):
        raise ValueError(f"view_as_complex: expected a last axis of size 2. Got shape {format_shape(x.shape)}.")
    real, imag = shaping.unstack(x, axis=-1)
    return creation.complex_(real, imag)
