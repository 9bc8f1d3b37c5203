"""Indexing as ops: basic (`getitem`, `setitem`) and advanced (`advanced_index`, `advanced_put`).

Basic indexing (integers, slices, `...`, None) is a view; its index is a static attribute. Advanced indexing (tensors,
arrays, lists, masks) copies; its index tensors are op inputs, so that they can be values of a graph. The translation
of `x[i]` and `x[i] = v` to these ops is in `weft.ops.array.subscripts`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import describe, format_shape
from ...tensor import Tensor, wrap
from ..core import vmap_rules
from ..core.define import primitive
from ..core.registry import joint
from ..core.samples import Bad, Sample
from ..core.spec import Spec, broadcast_shapes, is_known, normalize_axis
from . import view_rules
from .row_sparse import RowSparse

# Functions for users that are not ops; ops are public by their records.
__all__ = ["slice_axis"]

ndarray = np.ndarray


class Slice(NamedTuple):
    """A slice as a hashable attribute (Python's own slices cannot be hashed before 3.12)."""

    start: int | None
    stop: int | None
    step: int | None


HERE = "tensor"  # stands for the next index tensor in the static description of an advanced index


def freeze(index: Any) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Convert a user's index to (hashable description, index tensors)."""
    items = index if isinstance(index, tuple) else (index,)
    spec: list[Any] = []
    tensors: list[Tensor] = []
    for item in items:
        if item is None or item is Ellipsis:
            spec.append(item)
        elif isinstance(item, slice):
            spec.append(Slice(*[_slice_part(v) for v in (item.start, item.stop, item.step)]))
        elif isinstance(item, (bool, np.bool_)):
            tensors.append(wrap(np.asarray(item)))
            spec.append(HERE)
        elif isinstance(item, (int, np.integer)):
            spec.append(int(item))
        elif isinstance(item, (Tensor, ndarray, list, tuple, range)):
            tensor = item if isinstance(item, Tensor) else _index_tensor(item)
            if tensor.ndim == 0 and dtypes.is_integral(tensor.dtype) and not tensor.is_symbolic:
                spec.append(int(tensor))
                continue
            if not (dtypes.is_integral(tensor.dtype) or dtypes.is_bool(tensor.dtype)):
                raise IndexError(f"index: expected integer or bool tensors. Got {describe(tensor)}.")
            tensors.append(tensor)
            spec.append(HERE)
        else:
            try:
                spec.append(operator.index(item))
            except TypeError:
                raise IndexError(
                    f"index: expected integers, slices, None, ..., tensors or lists. Got {type(item).__name__}."
                ) from None
    if spec.count(Ellipsis) > 1:
        raise IndexError("index: only one `...` may stand in an index.")
    return tuple(spec), tensors


def _index_tensor(item: Any) -> Tensor:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise IndexError(f"index: a list of indices has no single shape. {error}") from None
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)
    return wrap(array)


def _slice_part(value: Any) -> int | None:
    return None if value is None else operator.index(value)


def thaw(spec: Any, arrays: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The inverse of `freeze`, for NumPy."""
    rest = iter(arrays)
    return tuple([slice(*i) if i.__class__ is Slice else next(rest) if i.__class__ is str else i for i in spec])


def index_error(name: str, x: Any, error: Exception) -> Exception:
    """NumPy's index error, with the op and the tensor's shape added."""
    return IndexError(f"{name}: {error}. The tensor has shape {format_shape(x.shape)}.")


def _infer_basic(x: Any, index: Any, name: str = "getitem") -> Spec:
    if x.shape is None:
        return Spec(None, x.dtype)
    if is_known(x.shape):
        try:
            return Spec(np.broadcast_to(np.empty((), np.int8), x.shape)[thaw(index)].shape, x.dtype)
        except (IndexError, ValueError) as error:
            raise index_error(name, x, error) from None
    return Spec(_unknown_part(name, x, index), x.dtype)


def _unknown_part(name: str, x: Any, index: Any) -> tuple[Any, ...]:
    """The shape of `x[index]` for a basic index where some sizes of `x` are unknown."""
    taken = sum([item.__class__ in (int, Slice) for item in index])
    if taken > len(x.shape):
        raise index_error(name, x, IndexError(f"too many indices: {taken} for {len(x.shape)} axes"))
    rest = len(x.shape) - taken
    sizes = iter(x.shape)
    shape: list[Any] = []
    for item in index if Ellipsis in index else (*index, Ellipsis):
        if item is None:
            shape.append(1)
        elif item is Ellipsis:
            shape += [next(sizes) for _ in range(rest)]
        else:
            size = next(sizes)
            known = isinstance(size, (int, np.integer))
            if item.__class__ is Slice:
                whole = item.start in (None, 0) and item.stop is None and item.step in (None, 1, -1)
                shape.append(len(range(size)[slice(*item)]) if known else size if whole else None)
            elif known and not -size <= item < size:
                raise index_error(name, x, IndexError(f"index {item} is out of bounds for an axis of size {size}"))
    return tuple(shape)


def _batch_index(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    return getitem(tensors[0], (Slice(None, None, None), *attrs[0]))


@primitive(
    namespace="internal",
    checks_once=True,
    view=view_rules.SLICED,
    infer=_infer_basic,
    vjp=lambda g, like_x, index: put_zeros(g, like_x, index),
    alias="x",
    put=lambda base, value, index: setitem(base, value, index),
    batch=_batch_index,
    reference=lambda x, index: x[thaw(index)],
    samples=lambda m: [
        Sample(m.normal(4, 3), (1,)),
        Sample(m.normal(4, 3), (Slice(1, None, 2), -1)),
        Sample(m.normal(4, 3), (Ellipsis, None, Slice(None, None, -1))),
        Sample(m.normal(2, 3, 2), (0, Ellipsis, 1)),
        Sample(m.normal(3), (Slice(5, 9, None),)),
    ],
    errors=lambda m: [
        Bad(IndexError, "getitem: .*out of bounds", m.normal(2, 3), (2,)),
        Bad(IndexError, "too many", m.normal(2), (0, 0)),
    ],
)
def getitem(x: Tensor, index: tuple[Any, ...]) -> Any:
    """`x[index]` for a basic index: a view."""
    found = thaw(index)
    return x[found if Ellipsis in index else (*found, Ellipsis)]  # with an ellipsis an index of integers is a view, too


@primitive(
    accumulate="exact",
    namespace="internal",
    cost="scatter",
    scatter="slice",
    infer=lambda x, value, index: infer_put(x, value, index),
    vjp=(
        lambda g, index: setitem(g, 0.0, index),
        lambda g, like_value, index: _fit_value(getitem(g, index), like_value),
    ),
    batch=vmap_rules.setitem,
    reference=lambda x, value, index: _put_reference(x, value, index),
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(3), (1,)),
        Sample(m.normal(4, 3), m.normal(2, 1), (Slice(0, 2, None),)),
        Sample(m.normal(4), m.normal(), (Slice(None, None, 2),)),
    ],
    errors=lambda m: [Bad(ValueError, "setitem: .*does not broadcast", m.normal(4, 3), m.normal(2), (1,))],
)
def setitem(x: Tensor, value: Tensor, index: tuple[Any, ...]) -> Any:
    """Copy `x` and set the elements at a basic `index` to `value` (broadcast)."""
    out = np.array(x)
    out[thaw(index)] = value
    return out


def _put_reference(x: ndarray, value: Any, index: Any) -> ndarray:
    out = x.copy()
    out[thaw(index)] = value
    return out


def infer_put(x: Any, value: Any, index: Any) -> Spec:
    part = _infer_basic(x, index, "setitem")
    shape = getattr(value, "shape", ())
    if is_known(part.shape) and is_known(shape):
        trimmed = tuple(shape)
        while len(trimmed) > len(part.shape) and trimmed[0] == 1:
            trimmed = trimmed[1:]
        try:
            fits = broadcast_shapes("setitem", part.shape, trimmed) == tuple(part.shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"setitem: a value of shape {format_shape(shape)} does not broadcast to the indexed part, which has "
                f"shape {format_shape(part.shape)}."
            )
    return Spec(x.shape, x.dtype)


def _fit_value(g: Tensor, like: Any) -> Tensor:
    from .elementwise import astype
    from .shaping import reshape_like, sum_to_like

    if len(like.shape) > g.ndim:
        return reshape_like(g, like)
    g = sum_to_like(g, like)
    return g if g.dtype == like.dtype else astype(g, like.dtype)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="setitem",
    cost="put",
    infer=lambda x, like, index: Spec(like.shape, x.dtype),
    vjp=(lambda g, index: getitem(g, index), None),
    reference=lambda x, like, index: _put_reference(np.zeros_like(like), x, index),
    samples=lambda m: [Sample(m.normal(3), m.normal(4, 3), (1,))],
)
def put_into_zeros_like(x: Tensor, like: Tensor, index: tuple[Any, ...]) -> Any:
    """Zeros shaped like `like` with `x` at a basic `index`; in a graph the shape may be known only at run time."""
    out = np.zeros(like.shape, x.dtype)
    out[thaw(index)] = x
    return out


@primitive(
    accumulate="exact",
    namespace="internal",
    title="setitem",
    checks_once=True,
    cost="put",
    infer=lambda x, shape, index: Spec(shape, x.dtype),
    vjp=lambda g, index: getitem(g, index),
    batch=lambda axes, tensors, attrs: put_into_zeros(
        tensors[0], (tensors[0].shape[0], *attrs[0]), (Slice(None, None, None), *attrs[1])
    ),
    reference=lambda x, shape, index: _put_reference(np.zeros(shape), x, index),
    samples=lambda m: [Sample(m.normal(3), (4, 3), (1,)), Sample(m.normal(2), (5,), (Slice(1, 5, 2),))],
)
def put_into_zeros(x: Tensor, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """Zeros of `shape` with `x` at a basic `index`: the transpose of `getitem`."""
    out = np.zeros(shape, x.dtype)
    out[thaw(index)] = x
    return out


def put_zeros(g: Tensor, like: Any, index: Any) -> Tensor:
    """Gradient of `getitem`: scatters `g` into zeros."""
    if is_known(like.shape):
        return put_into_zeros(g, tuple(like.shape), index)
    return put_into_zeros_like(g, wrap(like.value), index)


def slice_axis(x: Tensor, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Tensor:
    """Slice `x[..., start:stop:step, ...]` along one axis; a view.

    >>> wf.slice_axis(wf.arange(5), 0, 1, 3)
    tensor([1, 2])
    """
    axis = normalize_axis("slice", axis, x.ndim)
    return getitem(x, (Slice(None, None, None),) * axis + (Slice(start, stop, step),))


# Advanced indexing ---------------------------------------------------------------------------------------------------


def _infer_advanced(arrays: Any, spec: Any) -> Spec:
    x, indices = arrays[0], arrays[1:]
    if x.shape is None or any(i.shape is None for i in indices):
        return Spec(None, x.dtype)
    broadcast = broadcast_shapes("index", *[i.shape for i in indices])
    stand_ins = [
        np.broadcast_to(np.zeros((), np.intp), [d if isinstance(d, int) else 1 for d in i.shape]) for i in indices
    ]
    sizes = [d if isinstance(d, int) else 1 for d in x.shape]
    try:
        shape = np.broadcast_to(np.empty((), np.int8), [max(d, 1) if d else d for d in sizes])[
            thaw(spec, stand_ins)
        ].shape
    except (IndexError, ValueError) as error:
        if 0 in sizes and all(0 in i.shape for i in stand_ins):
            shape = np.empty(sizes, np.int8)[thaw(spec, stand_ins)].shape
        else:
            raise index_error("index", x, error) from None
    if not is_known(x.shape) or not is_known(broadcast):
        return Spec((None,) * len(shape), x.dtype)
    return Spec(shape, x.dtype)


def _advanced_rule(g: Tensor, arrays: Any, spec: Any, needs: Any) -> list[Any]:
    x = arrays[0]
    if spec == (HERE,) and x.ndim >= 1:
        rows: Any = RowSparse.from_gather(arrays[1], g, tuple(x.shape))
    else:
        from .creation import zeros_like

        rows = advanced_put((zeros_like(x), g, *arrays[1:]), spec, True)
    return [rows] + [None] * (len(arrays) - 1)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="index",
    cost="gather",
    infer=_infer_advanced,
    vjp=joint(_advanced_rule),
    shape_only=(0,),
    batch=vmap_rules.advanced_index,
    reference=lambda arrays, spec: arrays[0][thaw(spec, arrays[1:])],
    samples=lambda m: [
        Sample((m.normal(4, 3), np.array([0, -1, 0])), (HERE,)),
        Sample((m.normal(4, 3), np.array([[0], [2]]), np.array([1, 2])), (HERE, HERE)),
        Sample((m.normal(4, 3, 2), np.array([1, 1])), (Slice(None, None, None), HERE)),
        Sample((m.normal(4, 3, 2), np.array([1, 1]), np.array([0, 1])), (HERE, Slice(0, 2, None), HERE)),
    ],
    errors=lambda m: [Bad(IndexError, "index: .*out of bounds", (m.normal(2, 3), np.array([2])), (HERE,))],
    test={"differentiable_inputs": (0,)},
)
def advanced_index(arrays: Sequence[Tensor], spec: tuple[Any, ...]) -> Any:
    """`x[index]` with index tensors: `arrays` is (x, *index tensors), `spec` describes their positions."""
    x = arrays[0]
    try:
        return np.asarray(x[thaw(spec, arrays[1:])])
    except IndexError as error:
        raise index_error("index", x, error) from None


def infer_advanced_put(arrays: Any, spec: Any, accumulate: bool) -> Spec:
    x, value = arrays[0], arrays[1]
    part = _infer_advanced((x, *arrays[2:]), spec)
    if is_known(part.shape) and is_known(value.shape):
        try:
            fits = broadcast_shapes("setitem", part.shape, value.shape) == tuple(part.shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"setitem: a value of shape {format_shape(value.shape)} does not broadcast to the indexed part, which "
                f"has shape {format_shape(part.shape)}."
            )
    return Spec(x.shape, x.dtype)


def _advanced_put_rule(g: Tensor, arrays: Any, spec: Any, accumulate: bool, needs: Any) -> list[Any]:
    from .shaping import sum_to_like

    indices = arrays[2:]
    gx = gv = None
    if needs[0]:
        gx = g if accumulate else advanced_put((g, wrap(np.zeros((), g.dtype)), *indices), spec, False)
    if needs[1]:
        gv = sum_to_like(advanced_index((g, *indices), spec), arrays[1])
    return [gx, gv] + [None] * len(indices)


def _advanced_put_reference(arrays: Any, spec: Any, accumulate: bool = False) -> ndarray:
    out = arrays[0].copy()
    index = thaw(spec, arrays[2:])
    if accumulate:
        np.add.at(out, index, arrays[1])
    else:
        out[index] = arrays[1]
    return out


@primitive(
    namespace="internal",
    title="setitem",
    cost="scatter",
    infer=infer_advanced_put,
    vjp=joint(_advanced_put_rule),
    shape_only=(0, 1),
    batch=vmap_rules.advanced_put,
    reference=_advanced_put_reference,
    samples=lambda m: [
        Sample((m.normal(4, 3), m.normal(2, 3), np.array([0, 2])), (HERE,)),
        Sample((m.normal(4, 3), m.normal(3, 3), np.array([0, 2, 0])), (HERE,), True),
        Sample((m.normal(4, 3), m.normal(2), np.array([0, 1]), np.array([1, 1])), (HERE, HERE)),
    ],
    test={"differentiable_inputs": (0, 1)},
)
def advanced_put(arrays: Sequence[Tensor], spec: tuple[Any, ...], accumulate: bool = False) -> Any:
    """Copy x and put (or, with `accumulate`, add) `value` at an advanced index; arrays = (x, value, *index tensors)."""
    x, value = arrays[0], arrays[1]
    out = np.array(x)
    index = thaw(spec, arrays[2:])
    try:
        if accumulate:
            np.add.at(out, index, np.asarray(value, out.dtype))
        else:
            out[index] = value
    except IndexError as error:
        raise index_error("setitem", x, error) from None
    return out
