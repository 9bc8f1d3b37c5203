"""`Spec` (shape and dtype of a value) and arithmetic on sizes that may be unknown.

A *size* is a number, a `Symbol` (a named unknown number, equal to itself) or `None` (unknown). A shape is a tuple of
sizes, or `None` when even the rank is unknown. Shape rules are written with the helpers here so that one rule serves
eager checks (all sizes are numbers) and graphs (some are not). NumPy arrays and graph values have the same `shape`,
`dtype` and `ndim`, so a rule accepts any of them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import format_shape


class Symbol:
    """A named unknown size. Two sizes are known to be equal if they are the same Symbol."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("Symbol", self.name))


Size = int | Symbol | None
Shape = tuple[Size, ...] | None


class Spec:
    """Shape and dtype of a value, and in a graph the value itself, for rules that need a size at run time."""

    __slots__ = ("shape", "dtype", "value")

    def __init__(self, shape: Any, dtype: np.dtype, value: Any = None) -> None:
        self.shape, self.dtype, self.value = shape, dtype, value

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def known(self) -> bool:
        """Whether every size is a number."""
        return is_known(self.shape)

    def __repr__(self) -> str:
        return f"Spec({format_shape(self.shape)}, {self.dtype.name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


def spec_of(data: Any) -> Spec:
    """The Spec of an array or graph value; a graph value is kept for sizes known only at run time."""
    if type(data) is np.ndarray:
        return Spec(data.shape, data.dtype)
    return Spec(data.shape, data.dtype, data)


def is_known(shape: Any) -> bool:
    if shape is None:
        return False
    for d in shape:
        if d.__class__ is not int and not isinstance(d, (int, np.integer)):
            return False
    return True


def require_sizes(op: str, *tensors: Any) -> None:
    """Raise for graph tensors of unknown sizes, so that the call is declared as a deferred node.

    For functions whose control flow depends on sizes; see Note [Deferred nodes] in `weft.graph.declared.deferred_nodes`.
    """
    for t in tensors:
        if not is_known(t.shape):
            raise ValueError(f"{op}: the sizes must be known. Got {format_shape(t.shape)}.")


def num_elements(shape: Any) -> int | None:
    """The number of elements, or None if a size is unknown."""
    if not is_known(shape):
        return None
    n = 1
    for d in shape:
        n *= d
    return n


# Axes --------------------------------------------------------------------------------------------------------------


def as_integer(value: Any) -> int:
    """`value` as an int; TypeError for a bool, a float and everything else that is no integer."""
    if value.__class__ is bool:
        raise TypeError("a bool is no integer")
    return operator.index(value)


def check_integer(op: str, value: Any, name: str) -> int:
    """`value` as an int; the error names the argument."""
    try:
        return as_integer(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer. Got {value!r}.") from None


def only_integers(value: Any) -> bool:
    """Whether `value` is a plain integer or a possibly nested tuple of them; None may take the place of one."""
    if value.__class__ is tuple:
        for v in value:
            if v.__class__ is not int and not only_integers(v):
                return False
        return True
    return value.__class__ is int or value is None


def normalize_axis(op: str, axis: Any, ndim: int | None, name: str = "axis") -> int:
    """`axis` as a number in [0, ndim). Negative axes count from the end."""
    axis = check_integer(op, axis, name)
    if ndim is None:
        return axis
    if not -ndim <= axis < ndim:
        if ndim == 0:
            raise IndexError(f"{op}: {name} {axis} is out of range: a 0-d tensor has no axes.")
        raise IndexError(
            f"{op}: {name} {axis} is out of range for a tensor with {ndim} axes. Expected {-ndim} to {ndim - 1}."
        )
    return axis + ndim if axis < 0 else axis


def rank_of(x: Any) -> int | None:
    """The rank for ops that treat a 0-d tensor as a vector of one element; None while unknown in a graph."""
    return 1 if x.ndim == 0 else x.ndim


def normalize_axes(op: str, axis: Any, ndim: int | None, name: str = "axis") -> tuple[int, ...]:
    """`axis` (None for all, an integer or several) as a tuple of distinct numbers in [0, ndim).

    A 0-d tensor may be reduced over axis 0 or -1, as in NumPy and PyTorch.
    """
    if axis is None:
        return tuple(range(ndim or 0))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if ndim == 0 and len(axes) == 1 and normalize_axis(op, axes[0], 1, name) == 0:
        return ()
    result = tuple(normalize_axis(op, a, ndim, name) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"{op}: {name} names an axis twice. Got {axis!r}.")
    return result


MAX_LAYERS = 1 << 16  # layers in one stack: each is built in turn, so a typing error must not exhaust memory


def check_size(op: str, value: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """`value` as an int of at least `least` and at most `most`."""
    value = check_integer(op, value, name)
    if value < least:
        raise ValueError(f"{op}: {name} must be at least {least}. Got {value}.")
    if most is not None and value > most:
        raise ValueError(f"{op}: {name} must be at most {most}. Got {value}.")
    return value


def number(op: str, name: str, value: Any, *, least: float | None = None, above: float | None = None) -> float:
    """An attribute as a Python float that is not NaN, of at least `least` or larger than `above`."""
    refuse_gradients(op, name, value)
    try:
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{op}: {name} must be a number. Got {value!r}.") from None
    if least is not None and not found >= least:
        raise ValueError(f"{op}: {name} must be at least {least}. Got {value}.")
    if above is not None and not found > above:
        raise ValueError(f"{op}: {name} must be greater than {above}. Got {value}.")
    if found != found:
        raise ValueError(f"{op}: {name} must be a number. Got nan.")
    return found


def refuse_gradients(op: str, name: str, value: Any) -> None:
    """Raise if an attribute is a tensor that requires gradients: they flow to tensor arguments only."""
    if getattr(value, "requires_grad", False):
        raise TypeError(
            f"{op}: {name} must be a number. Got a tensor that requires gradients, which would be lost; "
            "write `x.item()` if that is meant."
        )


def check_shape(op: str, shape: Any, name: str = "shape") -> tuple[int, ...]:
    """`shape` (a number or a sequence) as a tuple of non-negative ints."""
    if hasattr(shape, "__index__") and getattr(shape, "ndim", 0) == 0:  # a number, or a 0-d integer tensor
        shape = (shape,)
    try:
        sizes = tuple([as_integer(d) for d in shape])
    except TypeError:
        raise TypeError(f"{op}: {name} must be a tuple of integers. Got {shape!r}.") from None
    if any(d < 0 for d in sizes):
        raise ValueError(f"{op}: {name} must not have negative sizes. Got {sizes}.")
    if len(sizes) > MAX_AXES:
        raise ValueError(f"{op}: {too_many_axes(len(sizes))}")
    return sizes


MAX_AXES = 64  # NumPy's limit, and so ours


def too_many_axes(count: Any) -> str:
    """The message, after the name of the op, for a tensor that would have `count` axes."""
    return f"a tensor has at most {MAX_AXES} axes. Got {count}; join some of them, `x.flatten(0, 1)`."


# Shapes ------------------------------------------------------------------------------------------------------------


def broadcast_shapes(op: str, *shapes: Any, names: Sequence[str] = ()) -> Any:
    """The shape that `shapes` broadcast to; raises if they cannot."""
    if any(s is None for s in shapes):
        return None
    rank = max((len(s) for s in shapes), default=0)
    result: list[Size] = []
    for axis in range(-rank, 0):
        size: Size = 1
        for shape in shapes:
            if len(shape) < -axis:
                continue
            d = shape[axis]
            if d == 1 or d == size:
                continue
            if isinstance(size, int) and size == 1:
                size = d
            elif isinstance(d, int) and isinstance(size, int):
                given = " and ".join(
                    f"{names[i] + ' of shape ' if i < len(names) else ''}{format_shape(s)}"
                    for i, s in enumerate(shapes)
                )
                raise ValueError(
                    f"{op}: shapes do not broadcast. Got {given}; "
                    f"sizes {size} and {d} meet at axis {axis}, expected equal sizes or a 1."
                )
            elif isinstance(d, int):
                size = d  # a number beats an unknown: at run time they must agree
            elif not isinstance(size, int):
                size = None
        result.append(size)
    return tuple(result)


def reduced_shape(shape: Any, axes: Iterable[int], keepdims: bool) -> Any:
    """`shape` after reducing over `axes`."""
    if shape is None:
        return None
    gone = set(axes)
    if keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def same_size(a: Size, b: Size) -> bool:
    """False only if both sizes are numbers and differ."""
    return not (isinstance(a, (int, np.integer)) and isinstance(b, (int, np.integer)) and a != b)
