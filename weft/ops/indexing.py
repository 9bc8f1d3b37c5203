"""Reading and writing parts of tensors: `x[i]`, `x[i] = v`, take, gather, scatter.

Basic indexing (integers, slices, `...`, None) is a view; its index is a static attribute. Advanced indexing (tensors,
arrays, lists, masks) copies; its index tensors are op inputs, so that they can be values of a graph.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..autograd.tape import grad_mode, note_mutation
from ..errors import describe, format_shape
from ..tensor import Tensor, wrap
from . import batching, dispatch, inplace
from .dispatch import Leaf, composite, primitive
from .registry import NOT_DIFFERENTIABLE, Op, joint
from .row_sparse import RowSparse
from .samples import Bad, Sample
from .spec import Spec, broadcast_shapes, is_known, normalize_axis, same_size

ndarray = np.ndarray


class Slice(NamedTuple):
    """A slice as a hashable attribute (Python's own slices cannot be hashed before 3.12)."""

    start: int | None
    stop: int | None
    step: int | None


HERE = "tensor"  # stands for the next index tensor in the static description of an advanced index


def freeze(index: Any) -> tuple[tuple[Any, ...], list[Tensor]]:
    """A user's index as (hashable description, index tensors)."""
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
    array = np.asarray(item)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)
    return wrap(array)


def _slice_part(value: Any) -> int | None:
    return None if value is None else operator.index(value)


def thaw(spec: Any, arrays: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The inverse of `freeze`, for NumPy."""
    rest = iter(arrays)
    return tuple([slice(*i) if i.__class__ is Slice else next(rest) if i.__class__ is str else i for i in spec])


def _error(name: str, x: Any, error: Exception) -> Exception:
    return IndexError(f"{name}: {error}. The tensor has shape {format_shape(x.shape)}.")


def _infer_basic(x: Any, index: Any, name: str = "getitem") -> Spec:
    if x.shape is None:
        return Spec(None, x.dtype)
    if is_known(x.shape):
        try:
            return Spec(np.broadcast_to(np.empty((), np.int8), x.shape)[thaw(index)].shape, x.dtype)
        except (IndexError, ValueError) as error:
            raise _error(name, x, error) from None
    return Spec(_unknown_part(name, x, index), x.dtype)


def _unknown_part(name: str, x: Any, index: Any) -> tuple[Any, ...]:
    """The shape of `x[index]` for a basic index where some sizes of `x` are not known."""
    taken = sum([item.__class__ in (int, Slice) for item in index])
    if taken > len(x.shape):
        raise _error(name, x, IndexError(f"too many indices: {taken} for {len(x.shape)} axes"))
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
                raise _error(name, x, IndexError(f"index {item} is out of bounds for an axis of size {size}"))
    return tuple(shape)


def _batch_index(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    return getitem(tensors[0], (Slice(None, None, None), *attrs[0]))


@primitive(
    namespace="internal",
    checks_once=True,
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
    return np.asarray(x[thaw(index)])


@primitive(
    namespace="internal",
    infer=lambda x, value, index: _infer_put(x, value, index),
    vjp=(
        lambda g, index: setitem(g, 0.0, index),
        lambda g, like_value, index: _fit_value(getitem(g, index), like_value),
    ),
    batch=batching.setitem,
    reference=lambda x, value, index: _put_reference(x, value, index),
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(3), (1,)),
        Sample(m.normal(4, 3), m.normal(2, 1), (Slice(0, 2, None),)),
        Sample(m.normal(4), m.normal(), (Slice(None, None, 2),)),
    ],
    errors=lambda m: [Bad(ValueError, "setitem: .*does not broadcast", m.normal(4, 3), m.normal(2), (1,))],
)
def setitem(x: Tensor, value: Tensor, index: tuple[Any, ...]) -> Any:
    """A copy of `x` in which the elements at a basic `index` are `value` (broadcast)."""
    out = np.array(x)
    out[thaw(index)] = value
    return out


def _put_reference(x: ndarray, value: Any, index: Any) -> ndarray:
    out = x.copy()
    out[thaw(index)] = value
    return out


def _infer_put(x: Any, value: Any, index: Any) -> Spec:
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
    namespace="internal",
    title="setitem",
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
    namespace="internal",
    title="setitem",
    checks_once=True,
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
    """The gradient of `getitem`: `g` in its place among zeros."""
    if is_known(like.shape):
        return put_into_zeros(g, tuple(like.shape), index)
    return put_into_zeros_like(g, wrap(like.value), index)


def slice_axis(x: Tensor, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Tensor:
    """`x[..., start:stop:step, ...]` along one axis; a view."""
    axis = normalize_axis("slice", axis, x.ndim)
    return getitem(x, (Slice(None, None, None),) * axis + (Slice(start, stop, step),))


# Advanced indexing ---------------------------------------------------------------------------------------------------


def _infer_advanced(arrays: Any, spec: Any) -> Spec:
    x, indices = arrays[0], arrays[1:]
    if x.shape is None or any(i.shape is None for i in indices):
        return Spec(None, x.dtype)
    broadcast = broadcast_shapes("index", *[i.shape for i in indices])
    stand_ins = [np.broadcast_to(np.zeros((), np.intp), [d if isinstance(d, int) else 1 for d in i.shape]) for i in indices]
    sizes = [d if isinstance(d, int) else 1 for d in x.shape]
    try:
        shape = np.broadcast_to(np.empty((), np.int8), [max(d, 1) if d else d for d in sizes])[thaw(spec, stand_ins)].shape
    except (IndexError, ValueError) as error:
        if 0 in sizes and all(0 in i.shape for i in stand_ins):
            shape = np.empty(sizes, np.int8)[thaw(spec, stand_ins)].shape
        else:
            raise _error("index", x, error) from None
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
    namespace="internal",
    title="index",
    infer=_infer_advanced,
    vjp=joint(_advanced_rule),
    shape_only=(0,),
    batch=batching.advanced_index,
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
    """`x[index]` with index tensors: `arrays` is (x, index tensors in order), `spec` says where they stand."""
    x = arrays[0]
    try:
        return np.asarray(x[thaw(spec, arrays[1:])])
    except IndexError as error:
        raise _error("index", x, error) from None


def _infer_advanced_put(arrays: Any, spec: Any, accumulate: bool) -> Spec:
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
    infer=_infer_advanced_put,
    vjp=joint(_advanced_put_rule),
    shape_only=(0, 1),
    batch=batching.advanced_put,
    reference=_advanced_put_reference,
    samples=lambda m: [
        Sample((m.normal(4, 3), m.normal(2, 3), np.array([0, 2])), (HERE,)),
        Sample((m.normal(4, 3), m.normal(3, 3), np.array([0, 2, 0])), (HERE,), True),
        Sample((m.normal(4, 3), m.normal(2), np.array([0, 1]), np.array([1, 1])), (HERE, HERE)),
    ],
    test={"differentiable_inputs": (0, 1)},
)
def advanced_put(arrays: Sequence[Tensor], spec: tuple[Any, ...], accumulate: bool = False) -> Any:
    """A copy of x with `value` at an advanced index (added to what is there if `accumulate`); arrays = (x, value, index…)."""
    x, value = arrays[0], arrays[1]
    out = np.array(x)
    index = thaw(spec, arrays[2:])
    try:
        if accumulate:
            np.add.at(out, index, np.asarray(value, out.dtype))  # type: ignore[arg-type]
        else:
            out[index] = value
    except IndexError as error:
        raise _error("setitem", x, error) from None
    return out


def _expand_masks(
    x: Tensor, spec: tuple[Any, ...], tensors: list[Tensor]
) -> tuple[Tensor, tuple[Any, ...], list[Tensor]]:
    """Replace each bool mask by the integer tensors of its true places. A lone True or False, as in NumPy, indexes a new
    axis of size 1; the tensor is returned with that axis."""
    if not any(dtypes.is_bool(t.dtype) for t in tensors):
        return x, spec, tensors
    new_spec: list[Any] = []
    new_tensors: list[Tensor] = []
    rest = iter(tensors)
    consumed = 0
    n_axes = sum(
        next_.ndim if dtypes.is_bool(next_.dtype) else 1 for next_ in tensors
    ) + sum(1 for i in spec if i.__class__ in (int, Slice))
    for item in spec:
        if item is Ellipsis:
            consumed += x.ndim - n_axes
        if item.__class__ is not str:
            new_spec.append(item)
            consumed += item.__class__ in (int, Slice)
            continue
        t = next(rest)
        if not dtypes.is_bool(t.dtype):
            new_spec.append(HERE)
            new_tensors.append(t)
            consumed += 1
            continue
        expected = tuple(x.shape[consumed : consumed + t.ndim])
        if tuple(t.shape) != expected and t.ndim:
            raise IndexError(
                f"index: a bool mask of shape {format_shape(t.shape)} does not match the indexed axes, "
                f"which have shape {format_shape(expected)}."
            )
        mask = t._array("indexing with a mask (its number of results depends on the data; use `wf.where`)")
        if t.ndim == 0:
            from .shaping import expand_dims

            x = expand_dims(x, consumed)
            new_spec.append(HERE)
            new_tensors.append(wrap(np.zeros(int(bool(mask)), np.int64)))
            consumed += 1
            n_axes += 1
            continue
        for places in np.nonzero(mask):
            new_spec.append(HERE)
            new_tensors.append(wrap(places))
        consumed += t.ndim
    return x, tuple(new_spec), new_tensors


_getitem_op: Op = getitem.op  # type: ignore[attr-defined]


def tensor_getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]`."""
    cls = index.__class__
    if not dispatch._special and (cls is int or cls is slice or cls is tuple and _is_basic(index)):
        a = x._data
        if a.__class__ is ndarray:
            try:
                out = a[index]
            except (IndexError, ValueError, TypeError) as error:
                raise _error("getitem", x, error) from None
            if out.__class__ is not ndarray:  # a full index of integers: a 0-d view, not a scalar
                out = a[(*index, Ellipsis)] if cls is tuple else a[index, ...]
            t = wrap(out)
            if grad_mode.enabled:
                spec = freeze(index)[0]
                node = x._node
                if node is not None:
                    t._node = dispatch.make_node(_getitem_op, (x,), (a,), (spec,), out, 1)
                if node.__class__ is not Leaf:
                    dispatch.link(_getitem_op, x, (spec,), t)
                else:
                    t._view = dispatch.View(x, ((_getitem_op, (spec,)),))
            else:
                t._view = dispatch.UNTRACKED
            return t
    spec, tensors = freeze(index)
    if not tensors:
        return getitem(x, spec)
    x, spec, tensors = _expand_masks(x, spec, tensors)
    return advanced_index((x, *tensors), spec)


def _is_basic(index: tuple[Any, ...]) -> bool:
    for i in index:
        c = i.__class__
        if c is not int and c is not slice and i is not None and i is not Ellipsis:
            return False
    return True


def tensor_setitem(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, in place."""
    if not isinstance(value, (Tensor, bool, int, float, complex)):
        try:
            value = Tensor(value)
        except TypeError:
            raise TypeError(f"setitem: the value must be a tensor or numbers. Got {type(value).__name__}.") from None
    if isinstance(value, Tensor):
        inplace.check_cast("setitem", value.dtype, x.dtype)
        if value.dtype != x.dtype:
            from .elementwise import astype

            value = astype(value, x.dtype)
    else:
        if x.dtype.kind == "b" and value in (0, 1):
            value = bool(value)
        inplace.check_cast("setitem", dtypes.python_scalar_dtype(value), x.dtype)
    spec, tensors = freeze(index)
    if not tensors and isinstance(value, Tensor) and _is_part(value, x, spec):
        return  # `x[i] += 1` ends with `x[i] = view`, which wrote through already
    mask = tensors[0] if len(tensors) == 1 and len(spec) == 1 and dtypes.is_bool(tensors[0].dtype) else None
    if mask is not None and mask.is_symbolic and (not isinstance(value, Tensor) or value.ndim == 0):
        from .shaping import reshape

        mask = reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        inplace.apply_inplace(masked_fill.op, x, (x, mask, value))  # type: ignore[attr-defined]
        return
    if tensors:
        x, spec, tensors = _expand_masks(x, spec, tensors)
    inplace.refuse_batched("setitem", x, (value, *tensors))
    if inplace.writer_of(x) is None and not (
        grad_mode.enabled and (x._node is not None or isinstance(value, Tensor) and value._node is not None)
    ):
        _write(x, spec, tensors, value)
        return
    if tensors and not isinstance(value, Tensor):
        value = dispatch.constant(np.asarray(value, x.dtype))
    if inplace.writer_of(x) is None and all(type(t._data) is ndarray for t in (value, *tensors) if isinstance(t, Tensor)):
        _write_recorded(x, spec, tensors, value)
    elif not tensors:
        inplace.apply_inplace(setitem.op, x, (x, value, spec))  # type: ignore[attr-defined]
    else:
        op = advanced_put.op  # type: ignore[attr-defined]
        inplace.apply_inplace(op, x, ((x, value, *tensors), spec, False))


def _is_part(value: Tensor, x: Tensor, spec: Any) -> bool:
    """Whether `value` is the view `x[spec]` itself."""
    found = getattr(value, "_view", None)
    if found.__class__ is not dispatch.View:
        return False
    own = getattr(x, "_view", None)
    base, steps = (own.base, own.steps) if own.__class__ is dispatch.View else (x, ())
    return found.base is base and found.steps == (*steps, (_getitem_op, (spec,)))


def _write_recorded(x: Tensor, spec: Any, tensors: list[Tensor], value: Any) -> None:
    """Write a part of `x` and record it: the tape entry of the out-of-place op, without its copy of the whole tensor."""
    inplace.refuse_leaf("setitem", x)
    if tensors:
        op: Op = advanced_put.op  # type: ignore[attr-defined]
        operands, attrs = [x, value, *tensors], (spec, False)
    else:
        op = setitem.op  # type: ignore[attr-defined]
        operands, attrs = [x, value], (spec,)  # type: ignore[assignment]
    datas = [t._data if isinstance(t, Tensor) else t for t in operands]
    node = dispatch.make_node(op, operands, datas, attrs, x._data, dispatch._needs(op, operands))
    _write(x, spec, tensors, value)
    inplace.rebase(x, wrap(x._data, node))


def _write(x: Tensor, spec: Any, tensors: list[Tensor], value: Any) -> None:
    inplace.check_writeable("setitem", x)
    data = x._data
    array = value._data if isinstance(value, Tensor) else value
    index = thaw(spec, [t._array("index") for t in tensors])
    try:
        data[index] = array
    except IndexError as error:
        raise _error("setitem", x, error) from None
    except OverflowError as error:
        raise OverflowError(f"setitem: {error}.") from None
    except ValueError:
        if tensors:
            _infer_advanced_put((data, np.asarray(array), *[t._data for t in tensors]), spec, False)
        else:
            _infer_put(data, array, spec)
        raise
    note_mutation(data if tensors else data[(*index, Ellipsis) if Ellipsis not in spec else index], "setitem")


# Along one axis --------------------------------------------------------------------------------------------------------


def check_indices(op: str, indices: Any, size: Any, name: str = "indices") -> None:
    """Raise if an index array (not a graph value) points outside an axis of `size`."""
    if type(indices) is not ndarray or not isinstance(size, int) or indices.size == 0:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexError(f"{op}: {name} holds {bad}, which is out of range for an axis of size {size}.")


def _infer_take(x: Any, indices: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(f"take: indices must be integers. Got {indices.dtype.name}.")
    if x.shape is None or indices.shape is None:
        return Spec(None, x.dtype)
    if x.ndim == 0:
        raise ValueError("take: a 0-d tensor has no axis to take from.")
    axis = normalize_axis("take", axis, x.ndim)
    check_indices("take", indices, x.shape[axis])
    return Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


def _take_rule(g: Tensor, like_x: Any, indices: Tensor, axis: int) -> Any:
    axis = axis % len(like_x.shape)
    if axis == 0 and is_known(like_x.shape):
        return RowSparse.from_gather(indices, g, tuple(like_x.shape))
    from .creation import zeros_like_spec
    from .shaping import moveaxis, reshape

    n = indices.ndim
    base = zeros_like_spec(Spec(like_x.shape, g.dtype, like_x.value))
    moved = moveaxis(g, tuple(range(axis, axis + n)), tuple(range(n))) if n else g
    rows = reshape(moved, (-1, *moved.shape[n:]))
    flat = reshape(indices, (-1,))
    return index_add(base, flat, moveaxis(rows, 0, axis), axis)


@primitive(
    namespace="internal",
    title="take",
    name="take_axis",
    infer=_infer_take,
    vjp=(_take_rule, None),
    batch=batching.take_axis,
    reference=lambda x, indices, axis=0: np.take(x, indices, axis),
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 3, 0]), 0),
        Sample(m.normal(2, 5), np.array([[4, -1], [0, 4]]), 1),
        Sample(m.normal(5), np.array(2), 0),
    ],
    errors=lambda m: [
        Bad(IndexError, "take: indices holds 7", m.normal(4, 3), np.array([7]), 0),
        Bad(TypeError, "take: indices must be integers", m.normal(4, 3), np.array([0.5]), 0),
    ],
)
def take_axis(x: Tensor, indices: Tensor, axis: int = 0) -> Any:
    """The slices of `x` along `axis` at `indices` (of any shape): the primitive behind `take` and `embedding`."""
    return np.take(x, indices, axis)  # type: ignore[arg-type, call-overload]


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements of `x` along `axis` at `indices`. `axis` may be left out for a vector."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: axis is needed for a tensor with {x.ndim} axes.")
        axis = 0
    return take_axis(x, indices, axis)


def _infer_along(x: Any, indices: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(indices.dtype):
        raise TypeError(f"take_along_axis: indices must be integers. Got {indices.dtype.name}.")
    if x.shape is None or indices.shape is None:
        return Spec(None, x.dtype)
    if x.ndim != indices.ndim:
        raise ValueError(
            f"take_along_axis: x and indices must have as many axes. Got {format_shape(x.shape)} and "
            f"{format_shape(indices.shape)}."
        )
    axis = normalize_axis("take_along_axis", axis, x.ndim)
    rest_x = tuple([d for i, d in enumerate(x.shape) if i != axis])
    rest_i = tuple([d for i, d in enumerate(indices.shape) if i != axis])
    rest = list(broadcast_shapes("take_along_axis", rest_x, rest_i))
    check_indices("take_along_axis", indices, x.shape[axis])
    rest.insert(axis, indices.shape[axis])
    return Spec(tuple(rest), x.dtype)


def _along_rule(g: Tensor, like_x: Any, indices: Tensor, axis: int) -> Tensor:
    from .creation import zeros_like_spec
    from .shaping import broadcast_to, sum_to_like

    full = list(g.shape)
    full[axis % g.ndim] = like_x.shape[axis % g.ndim]
    base = zeros_like_spec(Spec(tuple(full), g.dtype))
    scattered = scatter_add(base, broadcast_to(indices, tuple(g.shape)), g, axis=axis)
    return sum_to_like(scattered, like_x)


@primitive(
    infer=_infer_along,
    vjp=(_along_rule, None),
    batch=batching.take_along_axis,
    reference=lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis),
    samples=lambda m: [
        Sample(m.normal(2, 4), m.ints(2, 3, low=0, high=4)),
        Sample(m.normal(4, 2), m.ints(3, 2, low=-4, high=4), axis=0),
    ],
    errors=lambda m: [Bad(IndexError, "take_along_axis: indices holds 9", m.normal(2, 3), np.array([[9], [0]]))],
)
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Any:
    """`out[i, j] = x[i, indices[i, j]]` for the last axis, and likewise for others."""
    return np.take_along_axis(x, indices, axis)  # type: ignore[arg-type]


@composite(
    reference=lambda x, axis, index: np.take_along_axis(
        x[tuple(slice(0, n) if i != axis % x.ndim else slice(None) for i, n in enumerate(index.shape))],
        index,
        axis,
    ),
    samples=lambda m: [
        Sample(m.normal(3, 4), 1, m.ints(3, 2, low=0, high=4)),
        Sample(m.normal(3, 4), 0, m.ints(2, 3, low=0, high=3)),
    ],
)
def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """PyTorch's gather: `out[i][j] = x[index[i][j]][j]` for axis 0. `index` may be smaller than `x` on other axes."""
    axis = normalize_axis("gather", axis, x.ndim)
    if index.ndim != x.ndim:
        raise ValueError(f"gather: index must have {x.ndim} axes like x. Got shape {format_shape(index.shape)}.")
    for i in range(x.ndim):
        if i != axis and index.shape[i] != x.shape[i]:
            if index.shape[i] > x.shape[i]:
                raise ValueError(f"gather: index is longer than x along axis {i}. Got {index.shape} for {x.shape}.")
            x = slice_axis(x, i, 0, index.shape[i])
    return take_along_axis(x, index, axis=axis)


def _infer_scatter(x: Any, index: Any, src: Any, axis: Any, name: str = "scatter") -> Spec:
    if not dtypes.is_integral(index.dtype):
        raise TypeError(f"{name}: index must hold integers. Got {index.dtype.name}.")
    if x.shape is not None and index.shape is not None and src.shape is not None:
        axis = normalize_axis(name, axis, x.ndim)
        if not len(x.shape) == len(index.shape) == len(src.shape) or any(
            not same_size(a, b) for a, b in zip(index.shape, src.shape, strict=True)
        ):
            raise ValueError(
                f"{name}: index and src must have one shape and as many axes as x. Got x {format_shape(x.shape)}, "
                f"index {format_shape(index.shape)}, src {format_shape(src.shape)}."
            )
        for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)):
            if i != axis and isinstance(a, int) and isinstance(b, int) and a > b:
                raise ValueError(f"{name}: index is longer than x along axis {i}. Got {index.shape} for {x.shape}.")
        check_indices(name, index, x.shape[axis], "index")
    return Spec(x.shape, x.dtype)


def _along_index(index: ndarray, axis: int) -> tuple[Any, ...]:
    grid = list(np.ogrid[tuple([slice(n) for n in index.shape])])
    grid[axis % index.ndim] = index
    return tuple(grid)


def _scatter(x: ndarray, index: ndarray, src: ndarray, axis: int, accumulate: bool) -> ndarray:
    out = x.copy()
    if accumulate:
        np.add.at(out, _along_index(index, axis), src)
    else:
        out[_along_index(index, axis)] = src
    return out


_scatter_samples = lambda m: [
    Sample(m.normal(3, 4), np.array([[0, 2, 1], [3, 1, 0]]), m.normal(2, 3), axis=1),
    Sample(m.normal(3, 4), np.array([[0, 2, 1, 0]]), m.normal(1, 4), axis=0),
]


@primitive(
    infer=lambda x, index, src, axis: _infer_scatter(x, index, src, axis, "scatter_add"),
    promote=None,
    vjp=(lambda g: g, None, lambda g, index, axis: gather(g, axis, index)),
    batch=batching.scatter_add,
    reference=lambda x, index, src, axis=0: _scatter(x, index, src, axis, True),
    samples=_scatter_samples,
    errors=lambda m: [Bad(IndexError, "scatter_add: index holds 5", m.normal(3), np.array([5]), m.normal(1))],
)
def scatter_add(x: Tensor, index: Tensor, src: Tensor, axis: int = 0) -> Any:
    """A copy of `x` with `src` added at `index` along `axis`; repeated places add up."""
    return _scatter(x, index, src, axis, True)  # type: ignore[arg-type]


@primitive(
    infer=_infer_scatter,
    vjp=(
        lambda g, index, axis: scatter(g, index, _zeros_of(g, index), axis),
        None,
        lambda g, index, axis: gather(g, axis, index),
    ),
    batch=batching.scatter,
    reference=lambda x, index, src, axis=0: _scatter(x, index, src, axis, False),
    samples=_scatter_samples,
)
def scatter(x: Tensor, index: Tensor, src: Tensor, axis: int = 0) -> Any:
    """A copy of `x` with the elements at `index` along `axis` replaced by `src`; of repeated places one wins."""
    return _scatter(x, index, src, axis, False)  # type: ignore[arg-type]


def _zeros_of(g: Tensor, index: Tensor) -> Tensor:
    from .creation import zeros

    return zeros(tuple(index.shape), dtype=g.dtype)


def _infer_index_add(x: Any, index: Any, source: Any, axis: Any) -> Spec:
    if not dtypes.is_integral(index.dtype):
        raise TypeError(f"index_add: index must hold integers. Got {index.dtype.name}.")
    axis = normalize_axis("index_add", axis, x.ndim)
    if x.shape is not None and source.shape is not None and index.shape is not None:
        expected = (*x.shape[:axis], index.shape[0] if len(index.shape) == 1 else None, *x.shape[axis + 1 :])
        if len(index.shape) != 1 or len(source.shape) != len(expected) or any(
            not same_size(a, b) for a, b in zip(source.shape, expected, strict=True)
        ):
            raise ValueError(
                f"index_add: source must have shape {format_shape(expected)} for x {format_shape(x.shape)} and index "
                f"{format_shape(index.shape)}. Got {format_shape(source.shape)}."
            )
        check_indices("index_add", index, x.shape[axis], "index")
    return Spec(x.shape, x.dtype)


def _index_add_array(x: ndarray, index: ndarray, source: ndarray, axis: int) -> ndarray:
    out = np.array(x)
    axis = axis % x.ndim
    view = np.moveaxis(out, axis, 0)
    np.add.at(view, index, np.moveaxis(np.asarray(source, out.dtype), axis, 0))
    return out


@primitive(
    infer=_infer_index_add,
    vjp=(lambda g: g, None, lambda g, index, axis: take_axis(g, index, axis)),
    batch=batching.index_add,
    reference=lambda x, index, source, axis=0: _index_add_array(x, index, source, axis),
    samples=lambda m: [
        Sample(m.normal(4, 3), np.array([0, 2, 0]), m.normal(3, 3), 0),
        Sample(m.normal(2, 3), np.array([2, 2]), m.normal(2, 2), 1),
    ],
    errors=lambda m: [Bad(ValueError, "index_add: source must have shape", m.normal(4, 3), np.array([0]), m.normal(2, 3), 0)],
)
def index_add(x: Tensor, index: Tensor, source: Tensor, axis: int = 0) -> Any:
    """A copy of `x` with the slices of `source` added to the slices of `x` at `index` along `axis`."""
    return _index_add_array(x, index, source, axis)  # type: ignore[arg-type]


@composite(
    reference=lambda x, mask, value: np.where(mask, value, x),
    samples=lambda m: [Sample(m.normal(2, 3), m.bools(2, 3), 0.5), Sample(m.normal(2, 3), m.bools(3), -1.0)],
)
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`x` with `value` where `mask` is true."""
    from .elementwise import where

    return where(mask, value, x)


def _infer_checked(x: Any, low: int, high: int, ignored: int | None, name: str) -> Spec:
    if not dtypes.is_integral(x.dtype):
        raise TypeError(f"{name}: expected integers. Got {x.dtype.name}.")
    return Spec(x.shape, x.dtype)


@primitive(
    infer=_infer_checked,
    vjp=NOT_DIFFERENTIABLE,
    namespace="internal",
    batch="elementwise",
    effects=("check",),
    reference=lambda x, low, high, ignored, name: x,
    samples=lambda m: [Sample(np.array([0, 2, 1]), 0, 3, None, "class"), Sample(np.array([0, -100]), 0, 3, -100, "class")],
    errors=lambda m: [Bad(IndexError, "class 3 is out of range: expected 0 to 2", np.array([0, 3]), 0, 3, None, "class")],
)
def checked_indices(x: Tensor, low: int, high: int, ignored: int | None, name: str) -> Any:
    """`x`, after a check that every element is in [low, high) or is `ignored`."""
    bad = (x < low) | (x >= high)
    if ignored is not None:
        bad &= x != ignored
    if np.any(bad):
        raise IndexError(f"{name} {x[bad][0]} is out of range: expected {low} to {high - 1}.")  # type: ignore[index]
    return x
