"""Shape manipulation: reshape, permute, broadcast, concatenate, split, and their `_like` forms.

Ops that may return a view declare it (`alias`), and how a write to the view reaches its base (`put`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import describe, format_shape
from ...tensor import Tensor, wrap
from ..core import vmap_rules
from ..core.define import composite, primitive
from ..core.registry import NOT_DIFFERENTIABLE, joint
from ..core.samples import Bad, Sample
from ..core.spec import (
    Spec,
    as_integer,
    check_shape,
    check_size,
    is_known,
    normalize_axes,
    normalize_axis,
    num_elements,
    rank_of,
    same_size,
)
from ..core.spec import broadcast_shapes as _broadcast_shapes
from . import view_rules

# Functions for users that are not ops; ops are public by their records.
__all__ = ["broadcast_arrays", "broadcast_shapes", "concat"]

# Reshape -------------------------------------------------------------------------------------------------------------


def resolve_shape(shape: Any, x: Any) -> tuple[Any, ...]:
    """`shape` with its -1 inferred from the number of elements of `x`."""
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        sizes = [None if d is None else as_integer(d) for d in shape]
    except TypeError:
        raise TypeError(f"reshape: shape must be a tuple of integers. Got {shape!r}.") from None
    if sizes.count(-1) > 1 or any(d is not None and d < -1 for d in sizes):
        raise ValueError(f"reshape: at most one size may be -1 and none may be below. Got {shape!r}.")
    total = num_elements(x.shape)
    if total is None:
        return tuple([None if d == -1 else d for d in sizes])
    known = 1
    for d in sizes:
        known *= d if d is not None and d != -1 else 1
    if -1 in sizes:
        if known == 0 or total % known:
            raise ValueError(f"reshape: {total} elements of shape {format_shape(x.shape)} do not fit {tuple(shape)}.")
        sizes[sizes.index(-1)] = total // known
    elif known != total and None not in sizes:
        raise ValueError(
            f"reshape: {total} elements of shape {format_shape(x.shape)} do not fit {format_shape(sizes)}, "
            f"which has {known}."
        )
    return tuple(sizes)


@primitive(
    checks_once=True,
    view=view_rules.RESHAPED,
    identity="same spec",
    infer=lambda x, shape, copy: Spec(resolve_shape(shape, x), x.dtype),
    vjp=lambda g, like_x: reshape_like(g, like_x),
    alias="x",
    put=lambda base, value, shape, copy: reshape_like(value, base),
    batch=lambda axes, tensors, attrs: _batch_reshape(tensors[0], attrs),
    reference=lambda x, shape, copy=None: np.reshape(x, shape),
    samples=lambda m: [
        Sample(m.normal(2, 6), (3, 4)),
        Sample(m.normal(2, 6), (-1,)),
        Sample(m.normal(1), ()),
        Sample(m.normal(0, 3), (3, 0)),
    ],
    errors=lambda m: [
        Bad(ValueError, r"reshape: 6 elements of shape \(2, 3\) do not fit \(4,\)", m.normal(2, 3), (4,)),
        Bad(ValueError, "at most one size", m.normal(2, 3), (-1, -1)),
        Bad(TypeError, "tuple of integers", m.normal(2, 3), ("a",)),
    ],
)
def reshape(x: Tensor, /, shape: int | tuple[int, ...], *, copy: bool | None = None) -> Any:
    """Change the shape, keeping the elements in row-major order.

    Args:
        x: any shape.
        shape: the new shape; one size may be -1 and is inferred.
        copy: True always copies, False raises ValueError if a copy is needed, None returns a view where possible.

    >>> wf.reshape(wf.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    if copy:
        return np.array(x).reshape(resolve_shape(shape, x))
    # already checked by the shape rule: only -1 or None needs resolving
    known = shape.__class__ is tuple and None not in shape
    out = x.reshape(shape if known else resolve_shape(shape, x))
    if copy is False and not np.may_share_memory(out, x):
        raise ValueError("reshape: this reshape needs a copy, but copy=False was given.")
    return out


def _batch_reshape(x: Tensor, attrs: tuple[Any, ...]) -> Tensor:
    inner = resolve_shape(attrs[0], Spec(x.shape[1:], x.dtype))
    return reshape(x, (x.shape[0], *inner))


def reshape_like(x: Tensor, like: Any) -> Tensor:
    """`x` with the shape of `like` (a tensor or a Spec), which may be known only at run time."""
    if is_known(like.shape):
        return x if x.shape == tuple(like.shape) else reshape(x, tuple(like.shape))
    return reshape_as(x, as_tensor(like))


def as_tensor(like: Any) -> Tensor:
    """The tensor behind a Spec saved in a graph."""
    return like if isinstance(like, Tensor) else wrap(like.value)


@primitive(
    identity="same spec",
    accumulate="exact",
    title="reshape",
    cost="view",
    infer=lambda x, like: Spec(like.shape, x.dtype),
    vjp=(lambda g, like_x: reshape_like(g, like_x), None),
    reference=lambda x, like: x.reshape(like.shape),
    samples=lambda m: [Sample(m.normal(6), m.normal(2, 3))],
)
def reshape_as(x: Tensor, like: Tensor) -> Any:
    """Reshape to the shape of `like`, which in a graph may be known only at run time."""
    return x.reshape(like.shape)


# Order of axes -------------------------------------------------------------------------------------------------------


def _infer_permute(x: Any, axes: Any) -> Spec:
    order = normalize_axes("permute_dims", axes, x.ndim, "axes")
    if x.shape is not None and len(order) != x.ndim:
        raise ValueError(f"permute_dims: axes must name all {x.ndim} axes once. Got {axes!r}.")
    return Spec(None if x.shape is None else tuple([x.shape[a] for a in order]), x.dtype)


def _inverse(axes: Any) -> tuple[int, ...]:
    n = len(axes)
    inverse = [0] * n
    for i, a in enumerate(axes):
        inverse[a % n] = i
    return tuple(inverse)


@primitive(
    checks_once=True,
    view=view_rules.PERMUTED,
    infer=_infer_permute,
    vjp=lambda g, axes: permute_dims(g, _inverse(axes)),
    alias="x",
    put=lambda base, value, axes: permute_dims(value, _inverse(axes)),
    batch=lambda axes, tensors, attrs: permute_dims(
        tensors[0], (0, *[a % (tensors[0].ndim - 1) + 1 for a in attrs[0]])
    ),
    reference=lambda x, axes: np.transpose(x, axes),
    samples=lambda m: [Sample(m.normal(2, 3, 4), (2, 0, 1)), Sample(m.normal(2, 3), (-1, 0)), Sample(m.normal(), ())],
    errors=lambda m: [
        Bad(ValueError, "must name all 2 axes", m.normal(2, 3), (0,)),
        Bad(ValueError, "twice", m.normal(2, 3), (0, 0)),
        Bad(IndexError, "out of range", m.normal(2, 3), (0, 2)),
    ],
)
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Any:
    """Permute the axes; a view.

    Args:
        x: any shape.
        axes: every axis of `x` once, in the new order.

    >>> wf.permute_dims(wf.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return x.transpose(axes)  # an array's


@composite(
    reference=lambda x: np.swapaxes(x, -1, -2),
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal(4, 2, 3))],
    errors=lambda m: [Bad(ValueError, "matrix_transpose: expected at least 2 axes", m.normal(3))],
)
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Transpose the last two axes; a view. Also `x.mT`.

    >>> wf.matrix_transpose(wf.zeros(5, 2, 3)).shape
    (5, 3, 2)
    """
    n = x.ndim
    if n < 2:
        raise ValueError(f"matrix_transpose: expected at least 2 axes. Got shape {format_shape(x.shape)}.")
    return permute_dims(x, (*range(n - 2), n - 1, n - 2))


@composite(
    reference=lambda x, axis1, axis2: np.swapaxes(x, axis1, axis2),
    samples=lambda m: [Sample(m.normal(2, 3, 4), 0, 2), Sample(m.normal(2, 3), -1, 0)],
)
def swapaxes(x: Tensor, /, axis1: int, axis2: int) -> Tensor:
    """Swap two axes; a view.

    >>> wf.swapaxes(wf.zeros(2, 3, 4), 0, 2).shape
    (4, 3, 2)
    """
    n = rank_of(x)
    a, b = normalize_axis("swapaxes", axis1, n, "axis1"), normalize_axis("swapaxes", axis2, n, "axis2")
    order = list(range(x.ndim))
    if order:
        order[a], order[b] = b, a
    return permute_dims(x, tuple(order))


@composite(
    reference=lambda x, source, destination: np.moveaxis(x, source, destination),
    samples=lambda m: [Sample(m.normal(2, 3, 4), 0, -1), Sample(m.normal(2, 3, 4), (0, 1), (-1, -2))],
    errors=lambda m: [Bad(ValueError, "moveaxis: source and destination", m.normal(2, 3), (0, 1), 0)],
)
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Move the axes `source` to the positions `destination`; the others keep their order. A view.

    >>> wf.moveaxis(wf.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    sources = normalize_axes("moveaxis", source, x.ndim, "source")
    destinations = normalize_axes("moveaxis", destination, x.ndim, "destination")
    if len(sources) != len(destinations):
        raise ValueError(f"moveaxis: source and destination must be equally many. Got {source!r} and {destination!r}.")
    order = [a for a in range(x.ndim) if a not in sources]
    for d, a in sorted(zip(destinations, sources, strict=True)):
        order.insert(d, a)
    return permute_dims(x, tuple(order))


def _infer_expand(x: Any, axis: Any) -> Spec:
    if x.shape is None:
        return Spec(None, x.dtype)
    axes = axis if isinstance(axis, tuple) else (axis,)
    places = normalize_axes("expand_dims", axes, x.ndim + len(axes))
    shape = list(x.shape)
    for a in sorted(places):
        shape.insert(a, 1)
    return Spec(tuple(shape), x.dtype)


def _batch_axes(op: Any, extra: int) -> Any:
    """Batching rule for ops with one tensor and an `axis`: non-negative axes shift by one for the batch axis."""

    def rule(axes: Any, tensors: Any, attrs: Any) -> Tensor:
        axis = attrs[0]
        n = tensors[0].ndim - 1
        if isinstance(axis, tuple):
            shifted: Any = tuple([a % (n + extra * len(axis)) + 1 for a in axis])
        else:
            shifted = axis % (n + extra) + 1
        return op()(tensors[0], shifted, *attrs[1:])

    return rule


@primitive(
    checks_once=True,
    view=view_rules.EXPANDED,
    identity="same spec",
    infer=_infer_expand,
    vjp=lambda g, axis: squeeze(g, axis),
    alias="x",
    put=lambda base, value, axis: squeeze(value, axis),
    batch=_batch_axes(lambda: expand_dims, 1),
    reference=lambda x, axis=0: np.expand_dims(x, axis),
    samples=lambda m: [
        Sample(m.normal(2, 3), 1),
        Sample(m.normal(2), axis=-1),
        Sample(m.normal(), 0),
        Sample(m.normal(2, 3), (0, -1)),
    ],
    errors=lambda m: [Bad(IndexError, "expand_dims: axis 4 is out of range", m.normal(2, 3), 4)],
)
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Any:
    """Insert axes of size 1 at the positions `axis` of the result; a view. PyTorch's `unsqueeze`.

    >>> wf.expand_dims(wf.zeros(2, 3), 1).shape
    (2, 1, 3)
    """
    return np.expand_dims(x, axis)


def _infer_squeeze(x: Any, axis: Any) -> Spec:
    if x.shape is None:
        return Spec(None, x.dtype)
    axes = normalize_axes("squeeze", axis, x.ndim)
    for a in axes:
        if not same_size(x.shape[a], 1):
            raise ValueError(f"squeeze: axis {a} has size {x.shape[a]}, expected 1. Got shape {format_shape(x.shape)}.")
    return Spec(tuple([d for i, d in enumerate(x.shape) if i not in axes]), x.dtype)


def _restore(g: Tensor, axis: Any, like: Any) -> Tensor:
    if like.shape is not None:
        return expand_dims(g, normalize_axes("squeeze", axis, len(like.shape)))
    return reshape_like(g, like)


@primitive(
    checks_once=True,
    view=view_rules.SQUEEZED,
    identity="same spec",
    infer=_infer_squeeze,
    vjp=lambda g, like_x, axis: _restore(g, axis, like_x),
    alias="x",
    put=lambda base, value, axis: reshape_like(value, base),
    batch=_batch_axes(lambda: squeeze, 0),
    reference=lambda x, axis: np.squeeze(x, axis),
    samples=lambda m: [Sample(m.normal(2, 1, 3), 1), Sample(m.normal(1, 2, 1), (0, -1)), Sample(m.normal(1), 0)],
    errors=lambda m: [Bad(ValueError, "squeeze: axis 0 has size 2", m.normal(2, 1), 0)],
)
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Any:
    """Remove the axes `axis`, which must have size 1; a view.

    >>> wf.squeeze(wf.zeros(2, 1, 3), 1).shape
    (2, 3)
    """
    return np.squeeze(x, axis)


# Broadcasting ----------------------------------------------------------------------------------------------------------


def _infer_broadcast(x: Any, shape: Any) -> Spec:
    target = check_shape("broadcast_to", shape)
    if x.shape is not None:
        result = _broadcast_shapes("broadcast_to", x.shape, target)
        if is_known(result) and result != target:
            raise ValueError(
                f"broadcast_to: shape {format_shape(x.shape)} does not broadcast to {format_shape(target)}."
            )
    return Spec(target, x.dtype)


@primitive(
    checks_once=True,
    view=view_rules.BROADCAST,
    identity="same spec",
    infer=_infer_broadcast,
    vjp=lambda g, like_x: sum_to_like(g, like_x),
    alias="x",
    batch=lambda axes, tensors, attrs: _batch_broadcast(tensors[0], check_shape("broadcast_to", attrs[0])),
    reference=np.broadcast_to,
    samples=lambda m: [
        Sample(m.normal(3), (2, 3)),
        Sample(m.normal(2, 1), (2, 4)),
        Sample(m.normal(), (2, 2)),
        Sample(m.normal(1), (0,)),
    ],
    errors=lambda m: [Bad(ValueError, "broadcast_to: shape", m.normal(3), (2, 2))],
)
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Any:
    """Broadcast `x` to `shape`; a read-only view.

    >>> wf.broadcast_to(wf.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    if x.size == 1 and x.ndim == 0 and x.dtype.kind in "biufc" and shape.__class__ is tuple and len(shape) < 32:
        # 0-d: the same as np.broadcast_to, several times faster
        view = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))  # type: ignore[arg-type]
        view.flags.writeable = False
        return view
    return np.broadcast_to(x, check_shape("broadcast_to", shape))


def _batch_broadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    missing = len(shape) - (x.ndim - 1)
    return broadcast_to(reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:])), (x.shape[0], *shape))


def broadcast_to_like(x: Tensor, like: Any) -> Tensor:
    """`x` broadcast to the shape of `like` (a tensor or a Spec), which may be known only at run time."""
    if is_known(like.shape):
        return x if x.shape == tuple(like.shape) else broadcast_to(x, tuple(like.shape))
    return broadcast_as(x, as_tensor(like))


@primitive(
    identity="same spec",
    accumulate="exact",
    namespace="internal",
    title="broadcast_to",
    cost="view",
    infer=lambda x, like: Spec(like.shape, x.dtype),
    vjp=(lambda g, like_x: sum_to_like(g, like_x), None),
    reference=lambda x, like: np.broadcast_to(x, like.shape),
    samples=lambda m: [Sample(m.normal(3), m.normal(2, 3))],
)
def broadcast_as(x: Tensor, like: Tensor) -> Any:
    """`x` broadcast to the shape of `like`; in a graph the shape may be known only at run time."""
    return np.broadcast_to(x, like.shape)


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Broadcast tensors against each other.

    >>> a, b = wf.broadcast_arrays(wf.zeros(3, 1), wf.zeros(2))
    >>> a.shape, b.shape
    ((3, 2), (3, 2))
    """
    shape = _broadcast_shapes("broadcast_arrays", *[a.shape for a in arrays])
    return tuple([broadcast_to_like(a, Spec(shape, a.dtype)) for a in arrays])


def broadcast_shapes(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape to which `shapes` broadcast; unknown sizes are None.

    >>> wf.broadcast_shapes((3, 1), (2,))
    (3, 2)
    """
    sizes = []
    for shape in shapes:
        known = check_shape("broadcast_shapes", [0 if d is None else d for d in shape])
        sizes.append(tuple([None if d is None else k for d, k in zip(shape, known, strict=True)]))
    return _broadcast_shapes("broadcast_shapes", *sizes)


def _sum_array(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple([i + extra for i, d in enumerate(shape) if d == 1 and x.shape[i + extra] != 1])
    if not axes:
        return x
    return np.asarray(x.sum(axis=axes, keepdims=True)).reshape(shape)


def sum_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum `x` over the axes that broadcasting from `shape` adds or repeats."""
    from .reduction import sum as sum_

    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple([i + extra for i, d in enumerate(shape) if d == 1 and x.shape[i + extra] != 1])
    if axes:
        x = sum_(x, axis=axes, keepdims=True)
    return reshape(x, shape) if x.shape != tuple(shape) else x


def sum_to_like(x: Tensor, like: Any) -> Tensor:
    """`x` summed back to the shape of `like` (a tensor or a Spec), which may be known only at run time."""
    if is_known(like.shape) and is_known(x.shape):
        return x if x.shape == tuple(like.shape) else sum_to(x, tuple(like.shape))
    return sum_as(x, as_tensor(like))


@primitive(
    identity="same spec",
    autocast="float32",
    namespace="internal",
    title="sum",
    cost="reduce",
    infer=lambda x, like: Spec(like.shape, x.dtype),
    vjp=(lambda g, like_x: broadcast_to_like(g, like_x), None),
    reference=lambda x, like: _sum_array(x, like.shape),
    samples=lambda m: [Sample(m.normal(2, 3), m.normal(3)), Sample(m.normal(2, 3), m.normal(2, 1))],
)
def sum_as(x: Tensor, like: Tensor) -> Any:
    """`x` summed back to the shape of `like`; in a graph the shape may be known only at run time."""
    return _sum_array(x, like.shape)  # type: ignore[arg-type]


# Joining and splitting ---------------------------------------------------------------------------------------------------


def _infer_concat(arrays: Any, axis: Any) -> Spec:
    if not arrays:
        raise ValueError("concat: expected at least one tensor. Got none.")
    if any(a.shape is None for a in arrays):
        return Spec(None, arrays[0].dtype)
    first = arrays[0].shape
    axis = normalize_axis("concat", axis, len(first))
    total: Any = 0
    for i, a in enumerate(arrays):
        if len(a.shape) != len(first) or any(
            j != axis and not same_size(p, q) for j, (p, q) in enumerate(zip(a.shape, first, strict=True))
        ):
            raise ValueError(
                f"concat: shapes differ outside axis {axis}. Got {format_shape(first)} for tensor 0 and "
                f"{format_shape(a.shape)} for tensor {i}."
            )
        d = a.shape[axis]
        total = total + d if isinstance(total, int) and isinstance(d, int) else None
    return Spec((*first[:axis], total, *first[axis + 1 :]), arrays[0].dtype)


def _concat_rule(g: Tensor, like_arrays: Any, axis: int) -> list[Tensor]:
    from .indexing import slice_axis

    axis = axis % g.ndim
    pieces, start = [], 0
    for like in like_arrays:
        size = like.shape[axis]
        pieces.append(slice_axis(g, axis, start, start + size))
        start += size
    return pieces


@primitive(
    accumulate="exact",
    namespace="internal",
    title="concat",
    name="concat_axis",
    checks_once=True,
    cost="move",
    infer=_infer_concat,
    promote="numeric",
    vjp=joint(_concat_rule),
    batch=vmap_rules.concat_axis,
    reference=lambda arrays, axis=0: np.concatenate(arrays, axis),
    samples=lambda m: [
        Sample((m.normal(2, 3), m.normal(1, 3))),
        Sample((m.normal(2, 3), m.normal(2, 1)), axis=-1),
        Sample((m.normal(0), m.normal(2))),
    ],
    errors=lambda m: [
        Bad(ValueError, "concat: shapes differ", (m.normal(2, 3), m.normal(2, 4))),
        Bad(ValueError, "at least one", ()),
    ],
)  # fmt: skip
def concat_axis(arrays: Sequence[Tensor], axis: int = 0) -> Any:
    """Tensors joined along an existing axis: the primitive behind `concat` and `stack`."""
    return np.concatenate(arrays, axis)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Concatenate tensors along an existing axis.

    Args:
        arrays: a sequence of tensors whose shapes agree except along `axis`.
        axis: the axis to join; None flattens the tensors first.

    >>> wf.concat([wf.zeros(2, 3), wf.ones(1, 3)]).shape
    (3, 3)
    """
    arrays = check_sequence("concat", arrays)
    if not arrays:
        raise ValueError("concat: expected at least one tensor. Got none.")
    if axis is None:
        return concat_axis(tuple([reshape(a, (-1,)) for a in arrays]), 0)
    return concat_axis(tuple(arrays), axis)


def check_sequence(op: str, arrays: Any) -> Sequence[Any]:
    if isinstance(arrays, Tensor):
        raise TypeError(f"{op}: expected a list or tuple of tensors. Got one tensor; write `{op}([x, y])`.")
    try:
        return tuple(arrays)
    except TypeError:
        raise TypeError(f"{op}: expected a list or tuple of tensors. Got {type(arrays).__name__}.") from None


@composite(
    reference=lambda arrays, axis=0: np.stack(arrays, axis),
    samples=lambda m: [Sample((m.normal(2, 3), m.normal(2, 3))), Sample((m.normal(2), m.normal(2)), axis=-1)],
    errors=lambda m: [Bad(ValueError, "stack: all tensors must have one shape", (m.normal(2), m.normal(3)))],
)
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join tensors of the same shape along a new axis at position `axis`.

    >>> wf.stack([wf.tensor([1, 2]), wf.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    arrays = check_sequence("stack", arrays)
    if not arrays:
        raise ValueError("stack: expected at least one tensor. Got none.")
    for a in arrays:
        if a.shape != arrays[0].shape:
            raise ValueError(f"stack: all tensors must have one shape. Got {describe(arrays[0])} and {describe(a)}.")
    axis = normalize_axis("stack", axis, arrays[0].ndim + 1)
    return concat_axis(tuple([expand_dims(a, axis) for a in arrays]), axis)


@composite(
    reference=lambda x, axis=0: tuple(np.moveaxis(x, axis, 0)),
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal(2, 3), axis=-1)],
    test={"tuple": True},
)
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` into its slices along `axis`; views.

    >>> wf.unstack(wf.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    if x.ndim == 0:
        raise ValueError("unstack: a 0-d tensor has no axes.")
    moved = moveaxis(x, axis, 0)
    return tuple([moved[i] for i in range(moved.shape[0])])


@composite(
    reference=lambda x, indices_or_sections, axis=0: tuple(
        np.split(x, range(indices_or_sections, x.shape[axis], indices_or_sections) if isinstance(indices_or_sections, int)
                 else np.cumsum(indices_or_sections)[:-1], axis)
    ),
    samples=lambda m: [Sample(m.normal(5, 2), 2), Sample(m.normal(2, 5), (1, 4), axis=1)],
    errors=lambda m: [Bad(ValueError, "split: sizes", m.normal(5), (1, 2))],
    test={"tuple": True},
)  # fmt: skip
def split(x: Tensor, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into pieces; views.

    Args:
        x: any shape.
        split_size_or_sections: the size of every piece (the last may be smaller), or a sequence of sizes.
        axis: the axis to split.

    >>> [piece.tolist() for piece in wf.split(wf.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    from .indexing import slice_axis

    axis = normalize_axis("split", axis, x.ndim)
    total = x.shape[axis]
    if isinstance(split_size_or_sections, (int, np.integer)):
        size = int(split_size_or_sections)
        if size < 1:
            raise ValueError(f"split: the size of a piece must be at least 1. Got {size}.")
        sizes = [min(size, total - i) for i in range(0, total, size)] or [0]
    else:
        sizes = [int(n) for n in split_size_or_sections]
        if sum(sizes) != total or min(sizes, default=0) < 0:
            raise ValueError(f"split: sizes {sizes} must add up to {total}, the size of axis {axis}.")
    pieces, start = [], 0
    for n in sizes:
        pieces.append(slice_axis(x, axis, start, start + n))
        start += n
    return tuple(pieces)


@composite(
    reference=lambda x, chunks, axis=0: tuple(
        np.split(x, range(-(-x.shape[axis] // chunks), x.shape[axis], -(-x.shape[axis] // chunks)), axis)
    ),
    samples=lambda m: [Sample(m.normal(6, 2), 3), Sample(m.normal(2, 5), 2, axis=1)],
    test={"tuple": True},
)  # fmt: skip
def chunk(x: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into at most `chunks` pieces of equal size (the last may be smaller); views.

    >>> [piece.tolist() for piece in wf.chunk(wf.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    chunks = check_size("chunk", chunks, "chunks", 1)
    axis = normalize_axis("chunk", axis, x.ndim)
    return split(x, max(1, -(-x.shape[axis] // chunks)), axis)


# Copies ----------------------------------------------------------------------------------------------------------------


@primitive(
    identity="always",
    accumulate="exact",
    checks_once=True,
    cost="move",
    infer=lambda x: Spec(x.shape, x.dtype),
    vjp=lambda g: g,
    batch="elementwise",
    reference=np.array,
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal())],
)
def clone(x: Tensor) -> Any:
    """Copy `x`; gradients flow through the copy.

    >>> x = wf.zeros(2)
    >>> y = wf.clone(x)
    >>> y[0] = 1
    >>> x
    tensor([0., 0.])
    """
    return np.array(x)


@primitive(
    identity="always",
    accumulate="exact",
    checks_once=True,
    cost="view",
    infer=lambda x: Spec(x.shape, x.dtype),
    vjp=NOT_DIFFERENTIABLE,
    batch="elementwise",
    reference=lambda x: x,
    samples=lambda m: [Sample(m.normal(2, 3))],
)
def stop_gradient(x: Tensor) -> Any:
    """Return `x` as a constant: no gradient flows through.

    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> (x * wf.stop_gradient(x)).backward()
    >>> x.grad
    tensor(3.)
    """
    return x


@primitive(
    identity="always",
    accumulate="exact",
    namespace="internal",
    checks_once=True,
    cost="move",
    infer=lambda x: Spec(x.shape, x.dtype),
    vjp=lambda g: g,
    batch="elementwise",
    reference=np.ascontiguousarray,
    samples=lambda m: [Sample(m.normal(2, 3))],
)
def clone_contiguous(x: Tensor) -> Any:
    """Copy `x` in row-major order; gradients flow through the copy."""
    return np.array(x, order="C")


@composite(
    reference=lambda x, start_axis=0, end_axis=-1: x.reshape(
        x.shape[:start_axis] + (-1,) + x.shape[end_axis % x.ndim + 1:]) if x.ndim else x.reshape(1),
    samples=lambda m: [
        Sample(m.normal(2, 3, 4)),
        Sample(m.normal(2, 3, 4), 1),
        Sample(m.normal(2, 3, 4), 0, 1),
        Sample(m.normal()),
    ],
)  # fmt: skip
def flatten(x: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Join the axes from `start_axis` to `end_axis` into one.

    >>> wf.flatten(wf.zeros(2, 3, 4), 1).shape
    (2, 12)
    """
    if x.ndim == 0:
        return reshape(x, (1,))
    start = normalize_axis("flatten", start_axis, x.ndim, "start_axis")
    end = normalize_axis("flatten", end_axis, x.ndim, "end_axis")
    if start > end:
        raise ValueError(f"flatten: start_axis must not come after end_axis. Got {start_axis} and {end_axis}.")
    joined = num_elements(x.shape[start : end + 1])
    return reshape(x, (*x.shape[:start], -1 if joined is None else joined, *x.shape[end + 1 :]))


def _np_unflatten(x: np.ndarray, axis: int, sizes: Any) -> np.ndarray:
    axis %= x.ndim
    return x.reshape(x.shape[:axis] + tuple(sizes) + x.shape[axis + 1 :])


@composite(
    reference=_np_unflatten,
    samples=lambda m: [
        Sample(m.normal(2, 6), 1, (2, 3)),
        Sample(m.normal(4, 3, 5), 0, (-1, 2)),
        Sample(m.normal(2, 3, 4), -1, (4, 1)),
    ],
    errors=lambda m: [
        Bad(ValueError, "unflatten: axis 1 of size 6 cannot be split into", m.normal(2, 6), 1, (4, 2)),
        Bad(IndexError, "unflatten: axis 2", m.normal(2, 6), 2, (4, 2)),
    ],
)
def unflatten(x: Tensor, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """Split one axis into several of the given `sizes`, one of which may be -1: the inverse of `flatten`.

    >>> wf.unflatten(wf.zeros(2, 12), 1, (3, -1)).shape
    (2, 3, 4)
    """
    axis = normalize_axis("unflatten", axis, x.ndim)
    sizes = tuple(sizes)
    here = x.shape[axis]
    known = math.prod([d for d in sizes if d != -1])
    if (
        -1 not in sizes
        and not same_size(known, here)
        or -1 in sizes
        and is_known((here,))
        and (not known or here % known)
    ):
        raise ValueError(
            f"unflatten: axis {axis} of size {here} cannot be split into {sizes}. Got shape {format_shape(x.shape)}."
        )
    return reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
