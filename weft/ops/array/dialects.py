"""Functions that mean different things in NumPy and in PyTorch: the word chooses.

`x.max(axis=1)` is NumPy's and gives values; `x.max(dim=1)` is PyTorch's and gives values and indices. Any of PyTorch's words
chooses (`x.max(1, keepdim=True)`); words of both in one call are an error, and so is an axis by position, which would silently
mean one or the other. Calls without a word are those of the array API.

The ops behind these functions know nothing of this; graphs, files and the tape hold ops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import Axis, DTypeLike
from . import cumulative, gathering, reduction, searching, shaping, sorting, statistics
from .elementwise import astype, isnan, maximum, minimum, where

__all__ = ["max", "median", "min", "mode", "nonzero", "sort", "squeeze", "std", "std_mean", "var", "var_mean"]


class _Default(float):
    """A default that can be told from the same number given by the caller."""


POPULATION = _Default(0.0)  # the correction of NumPy; PyTorch's is 1


class ValuesAndIndices(NamedTuple):
    """What PyTorch's form of a function returns: `values`, and their `indices` along the axis."""

    values: Tensor
    indices: Tensor


def _torch_axis(name: str, position: Any, dim: Any, keepdim: Any, axis: Any, keepdims: Any, default: Any = None) -> Any:
    """The axis of a call with a word of PyTorch's.

    Raises:
        TypeError: the call mixes the dialects, or has an axis by position and no word.
    """
    torch = "keepdim" if dim is None else "dim"
    if axis is not None or keepdims:
        numpy = "axis" if axis is not None else "keepdims"
        raise TypeError(
            f"{name}: got {numpy!r}, a word of NumPy's, and {torch!r}, one of PyTorch's; they ask for different results. Use "
            "`axis` and `keepdims`, or `dim` and `keepdim`."
        )
    if dim is not None and position is not None:
        raise TypeError(f"{name}: two values for argument 'dim', by position and by name. Give one of them.")
    found = position if dim is None else dim
    return default if found is None else found


def _refuse_position(name: str, position: Any, numpy: str, torch: str) -> None:
    """Raise for an axis by position, which the dialects read differently."""
    raise TypeError(
        f"{name}: an axis by position is ambiguous: NumPy's `x.{name}(axis={position!r})` gives {numpy}, PyTorch's "
        f"`x.{name}(dim={position!r})` gives {torch}. Write one of these."
    )


def _extreme(name: str, x: Tensor, other: Any, dim: Any, keepdim: Any, axis: Any, keepdims: Any) -> Any:
    reduce, pick, pair = _EXTREMES[name]
    if isinstance(other, Tensor):
        return pair(x, other)
    if dim is None and keepdim is None:
        if other is not None:
            _refuse_position(name, other, "values", "values and indices")
        return reduce(x, axis=axis, keepdims=keepdims)
    axis = _torch_axis(name, other, dim, keepdim, axis, keepdims)
    if axis is None:
        raise TypeError(f"{name}: `keepdim` needs `dim`. Write `x.{name}(dim=…, keepdim=True)`, or NumPy's `keepdims`.")
    return _at(x, pick(x, axis=axis, keepdims=True), axis, keepdim)


def _at(x: Tensor, indices: Tensor, axis: int, keepdim: Any) -> ValuesAndIndices:
    """The elements at `indices`, which have size 1 along `axis`; gradients go to these elements alone."""
    if x.ndim == 0:
        return ValuesAndIndices(shaping.clone(x), indices)
    values = gathering.take_along_axis(x, indices, axis=axis)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(shaping.squeeze(values, axis), shaping.squeeze(indices, axis))


def max(
    x: Tensor,
    other: Tensor | int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    dim: int | None = None,
    keepdim: bool | None = None,
) -> Tensor | ValuesAndIndices:
    """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of two tensors.

    Args:
        x: any shape.
        other: a second tensor; the result is then `maximum(x, other)`.
        axis: an axis or a tuple of axes; all axes by default. Gives values.
        keepdims: keep the reduced axes with size 1.
        dim: an axis. Gives values and the indices of the first maxima.
        keepdim: keep this axis with size 1.

    >>> x = wf.tensor([[1.0, 3.0], [5.0, 2.0]])
    >>> x.max(), x.max(axis=1)
    (tensor(5.), tensor([3., 5.]))
    >>> x.max(dim=1).indices
    tensor([1, 0])
    """
    return _extreme("max", x, other, dim, keepdim, axis, keepdims)


def min(
    x: Tensor,
    other: Tensor | int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    dim: int | None = None,
    keepdim: bool | None = None,
) -> Tensor | ValuesAndIndices:
    """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of two tensors.

    Takes the arguments of `max`.

    >>> x = wf.tensor([[1.0, 3.0], [5.0, 2.0]])
    >>> x.min(axis=0), x.min(dim=0).indices
    (tensor([1., 2.]), tensor([0, 1]))
    """
    return _extreme("min", x, other, dim, keepdim, axis, keepdims)


_EXTREMES: dict[str, Any] = {
    "max": (reduction.max_, searching.argmax, maximum),
    "min": (reduction.min_, searching.argmin, minimum),
}


def median(
    x: Tensor,
    position: int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    dim: int | None = None,
    keepdim: bool | None = None,
) -> Tensor | ValuesAndIndices:
    """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch.

    Of an even number of elements NumPy takes the mean of the middle two, PyTorch the lower one.

    >>> x = wf.tensor([[1.0, 2.0, 3.0, 10.0]])
    >>> x.median(axis=1), x.median(dim=1).values
    (tensor([2.5]), tensor([2.]))
    """
    if dim is None and keepdim is None:
        if position is not None:
            _refuse_position("median", position, "the mean of the middle two", "the lower one and its index")
        return statistics.median(x, axis=axis, keepdims=keepdims)
    along = _torch_axis("median", position, dim, keepdim, axis, keepdims, -1)
    if x.ndim == 0:
        return ValuesAndIndices(shaping.clone(x), searching.argmax(x))
    order = sorting.argsort(x, axis=along)
    middle = shaping.split(
        order, [(x.shape[along] - 1) // 2, 1, x.shape[along] - (x.shape[along] - 1) // 2 - 1], along
    )[1]
    if dtypes.is_inexact(x.dtype):  # a NaN makes the median NaN
        unknown = isnan(x)
        middle = where(reduction.any_(unknown, axis=along, keepdims=True), _first(unknown, along), middle)
    return _at(x, middle, along, keepdim)


def _first(mask: Tensor, axis: int) -> Tensor:
    """The index of the first True along `axis`."""
    return searching.argmax(mask.astype(dtypes.int8), axis=axis, keepdims=True)


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The most frequent element along `dim`, the smallest of several, and the index of its last occurrence.

    >>> wf.mode(wf.tensor([3, 1, 3, 1, 2])).values
    tensor(1)
    """
    if x.ndim == 0:
        return ValuesAndIndices(shaping.clone(x), searching.argmax(x))
    order = sorting.argsort(x, axis=dim)
    ordered = gathering.take_along_axis(x, order, axis=dim)
    size = x.shape[dim]
    left, right = shaping.split(ordered, [size - 1, 1], dim)[0], shaping.split(ordered, [1, size - 1], dim)[1]
    begins = shaping.concat([_ones_like_first(ordered, dim), left != right], axis=dim)
    places = _places(ordered, dim)
    starts = cumulative.cummax(where(begins, places, places * 0), dim).values  # where the run of equals began
    longest = searching.argmax(places - starts, axis=dim, keepdims=True)
    return _at(x, gathering.take_along_axis(order, longest, axis=dim), dim, keepdim)


def _ones_like_first(x: Tensor, axis: int) -> Tensor:
    first = shaping.split(x, [1, x.shape[axis] - 1], axis)[0]
    return first == first


def _places(x: Tensor, axis: int) -> Tensor:
    """The position along `axis` of every element."""
    ones = x.astype(dtypes.int64) * 0 + 1
    return cumulative.cumsum(ones, axis) - 1


def sort(
    x: Tensor,
    position: int | None = None,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    dim: int | None = None,
) -> Tensor | ValuesAndIndices:
    """Sort along an axis: `axis` gives the values as in NumPy, `dim` values and indices as in PyTorch.

    Args:
        x: any shape.
        axis: the axis, the last by default.
        descending: the largest first.
        stable: keep the order of equal elements.
        dim: the axis, for values and indices.

    >>> x = wf.tensor([3.0, 1.0, 2.0])
    >>> wf.sort(x), x.sort(dim=0).indices
    (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    """
    if dim is None:
        if position is not None:
            _refuse_position("sort", position, "values", "values and indices")
        return sorting.sort(x, axis=axis, descending=descending, stable=stable)
    along = _torch_axis("sort", position, dim, None, None if axis == -1 else axis, False)
    order = sorting.argsort(x, axis=along, descending=descending, stable=stable)
    return ValuesAndIndices(gathering.take_along_axis(x, order, axis=along), order)


def squeeze(x: Tensor, position: Axis = None, /, *, axis: Axis = None, dim: Axis = None) -> Tensor:
    """Remove axes of size 1: all of them, those in `axis`, or those in `dim` that have size 1.

    `axis`, by name or position, must name axes of size 1, as in the array API; `dim` leaves other axes alone, as in PyTorch.

    >>> x = wf.zeros(1, 3, 1)
    >>> x.squeeze().shape, x.squeeze(axis=0).shape, x.squeeze(dim=1).shape
    ((3,), (3, 1), (1, 3, 1))
    """
    if (position is not None) + (axis is not None) + (dim is not None) > 1:
        raise TypeError("squeeze: expected one of `axis` and `dim`, once. Got several.")
    if dim is not None:
        dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        return shaping.squeeze(x, tuple([d for d in dims if x.ndim and x.shape[d] == 1]))
    if axis is None:
        axis = position
    if axis is None:
        axis = tuple([i for i, d in enumerate(x.shape) if d == 1])
    for a in axis if isinstance(axis, (tuple, list)) else (axis,):
        if isinstance(a, int) and -x.ndim <= a < x.ndim and x.shape[a] not in (1, None):
            raise ValueError(
                f"squeeze: axis {a} has size {x.shape[a]}, expected 1. Got shape {format_shape(x.shape)}. PyTorch's "
                f"`squeeze(dim={a})` leaves such an axis alone."
            )
    return shaping.squeeze(x, _plain(axis))


def _spread_of(name: str, x: Tensor, position: Any, axis: Any, keepdims: Any, words: dict[str, Any]) -> Tensor:
    """`std` or `var`; `words` are the arguments that both dialects give by name."""
    dim, keepdim, unbiased, correction, dtype = (
        words[k] for k in ("dim", "keepdim", "unbiased", "correction", "dtype")
    )
    function: Any = statistics.std if name == "std" else statistics.var
    x = x if dtype is None else astype(x, dtypes.as_dtype(dtype))
    if dim is None and keepdim is None and unbiased is None:
        if position is not None:
            _refuse_position(name, position, "that of the population", "the unbiased one of a sample")
        return function(x, axis=_plain(axis), correction=float(correction), keepdims=keepdims)
    axis = _torch_axis(name, position, dim, keepdim, axis, keepdims)
    if unbiased is not None and correction is not POPULATION:
        raise TypeError(f"{name}: `unbiased` and `correction` say the same. Give one of them.")
    if correction is POPULATION:
        correction = 1.0 if unbiased is None else float(unbiased)
    return function(x, axis=_plain(axis), correction=correction, keepdims=bool(keepdim))


def _plain(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def std(
    x: Tensor,
    position: int | None = None,
    /,
    *,
    axis: Axis = None,
    correction: float = POPULATION,
    keepdims: bool = False,
    dim: Axis = None,
    keepdim: bool | None = None,
    unbiased: bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Standard deviation: of a population over `axis` as in NumPy, or of a sample over `dim` as in PyTorch.

    Args:
        x: any shape.
        axis: an axis or a tuple of axes; all by default. Divides by n - correction, where correction is 0 by default.
        correction: what is subtracted from the number of elements.
        keepdims: keep the reduced axes with size 1.
        dim: an axis or a tuple of axes. Divides by n - 1 by default.
        keepdim: keep these axes with size 1.
        unbiased: False divides by n.
        dtype: converts `x` first.

    >>> x = wf.tensor([1.0, 3.0, 5.0, 7.0])
    >>> (x.std(axis=0) ** 2).item(), (x.std(dim=0, unbiased=False) ** 2).item()
    (5.0, 5.0)
    """
    words = {"dim": dim, "keepdim": keepdim, "unbiased": unbiased, "correction": correction, "dtype": dtype}
    return _spread_of("std", x, position, axis, keepdims, words)


def var(
    x: Tensor,
    position: int | None = None,
    /,
    *,
    axis: Axis = None,
    correction: float = POPULATION,
    keepdims: bool = False,
    dim: Axis = None,
    keepdim: bool | None = None,
    unbiased: bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Variance: of a population over `axis` as in NumPy, or of a sample over `dim` as in PyTorch. Arguments as for `std`.

    >>> x = wf.tensor([1.0, 2.0, 3.0])
    >>> x.var(), x.var(dim=0)
    (tensor(0.6666667), tensor(1.))
    """
    words = {"dim": dim, "keepdim": keepdim, "unbiased": unbiased, "correction": correction, "dtype": dtype}
    return _spread_of("var", x, position, axis, keepdims, words)


def std_mean(
    x: Tensor, dim: Axis = None, *, correction: float = POPULATION, keepdim: bool = False, unbiased: bool | None = None
) -> tuple[Tensor, Tensor]:
    """Standard deviation of a sample and mean over `dim`, as in PyTorch.

    >>> wf.std_mean(wf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    words = {"dim": dim, "keepdim": keepdim, "unbiased": unbiased, "correction": correction, "dtype": None}
    deviation = _spread_of("std", x, None, None, False, words)
    return deviation, reduction.mean(x, axis=_plain(dim), keepdims=keepdim)


def var_mean(
    x: Tensor, dim: Axis = None, *, correction: float = POPULATION, keepdim: bool = False, unbiased: bool | None = None
) -> tuple[Tensor, Tensor]:
    """Variance of a sample and mean over `dim`, as in PyTorch.

    >>> wf.var_mean(wf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    words = {"dim": dim, "keepdim": keepdim, "unbiased": unbiased, "correction": correction, "dtype": None}
    variance = _spread_of("var", x, None, None, False, words)
    return variance, reduction.mean(x, axis=_plain(dim), keepdims=keepdim)


def nonzero(x: Tensor, /, *, as_tuple: bool = True) -> Any:
    """Indices of the elements that are not zero: one tensor per axis, or a matrix with a row per element.

    Args:
        x: any shape.
        as_tuple: False for the matrix, which is what PyTorch's `nonzero(x)` gives.

    >>> wf.nonzero(wf.tensor([0, 3, 5]))
    (tensor([1, 2]),)
    >>> wf.nonzero(wf.tensor([0, 3, 5]), as_tuple=False).shape
    (2, 1)
    """
    return searching.nonzero(x) if as_tuple else searching.argwhere(x)
