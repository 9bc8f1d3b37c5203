"""Translation of `x[i]` and `x[i] = v` to ops, views and in-place writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf, grad_mode, note_mutation
from ...errors import format_shape
from ...tensor import Tensor, wrap
from ..core import define, error_names, inplace
from ..core.registry import Op
from ..core.spec import same_size
from .creation import asarray
from .gathering import masked_fill
from .indexing import (
    HERE,
    Slice,
    advanced_index,
    advanced_put,
    freeze,
    getitem,
    index_error,
    infer_advanced_put,
    infer_put,
    setitem,
    thaw,
)

ndarray = np.ndarray


def _expand_masks(
    x: Tensor, spec: tuple[Any, ...], tensors: list[Tensor]
) -> tuple[Tensor, tuple[Any, ...], list[Tensor]]:
    """Replace each bool mask by the integer indices of its true elements.

    A lone True or False indexes a new axis of size 1, as in NumPy; the tensor is returned with that axis.
    """
    if not any(dtypes.is_bool(t.dtype) for t in tensors):
        return x, spec, tensors
    new_spec: list[Any] = []
    new_tensors: list[Tensor] = []
    rest = iter(tensors)
    consumed = 0
    n_axes = sum(next_.ndim if dtypes.is_bool(next_.dtype) else 1 for next_ in tensors) + sum(
        1 for i in spec if i.__class__ in (int, Slice)
    )
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
        if t.ndim and (len(expected) != t.ndim or not all(map(same_size, t.shape, expected))):
            raise IndexError(
                f"index: a bool mask of shape {format_shape(t.shape)} does not match the indexed axes, "
                f"which have shape {format_shape(expected)}."
            )
        if t.ndim and getattr(t._data, "dynamic", False):
            from .searching import nonzero_places

            rows = nonzero_places(t)
            new_spec += [HERE] * t.ndim
            new_tensors += [getitem(rows, (i,)) for i in range(t.ndim)]
            consumed += t.ndim
            continue
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
    if not define.modes.active and (cls is int or cls is slice or cls is tuple and _is_basic(index)):
        a = x._data
        if a.__class__ is ndarray:
            try:
                out = a[index]
            except (IndexError, ValueError, TypeError) as error:
                raise index_error("getitem", x, error) from None
            if out.__class__ is not ndarray:  # a full index of integers: a 0-d view, not a scalar
                out = a[(*index, Ellipsis)] if cls is tuple else a[index, ...]
            t = wrap(out)
            if grad_mode.enabled:
                spec = freeze(index)[0]
                node = x._node
                if node is not None:
                    t._node = define.make_node(_getitem_op, (x,), (a,), (spec,), out, 1)
                if node.__class__ is not Leaf:
                    define.link(_getitem_op, x, (spec,), t)
                else:
                    t._view = define.View(x, (_getitem_op, (spec,)))
            else:
                t._view = define.UNTRACKED
            return t
    if cls is Tensor and not define.modes.active and (out := _rows_at(x, index)) is not None:
        return out
    spec, tensors = freeze(index)
    if not tensors:
        return getitem(x, spec)
    try:
        x, spec, tensors = _expand_masks(x, spec, tensors)
        return advanced_index((x, *tensors), spec)
    except Exception:
        made = error_names.late_result("getitem", tensor_getitem, (x, index), {})
        if made is None:
            raise
        return made


_advanced_op: Op = advanced_index.op  # type: ignore[attr-defined]


def _rows_at(x: Tensor, index: Tensor) -> Tensor | None:
    """`x[index]` for one integer tensor, or None: the general path then raises the appropriate error."""
    a, i = x._data, index._data
    if (
        a.__class__ is not ndarray
        or i.__class__ is not ndarray
        or i.dtype.kind != "i"
        or not i.ndim
        or a.size > define.NATIVE_MIN_ELEMENTS
    ):
        return None
    try:
        out = wrap(np.asarray(a[i]))
    except IndexError:
        return None
    if grad_mode.enabled and x._node is not None:
        out._node = define.make_node(_advanced_op, (x, index), (a, i), ((HERE,),), out._data, 1)
    return out


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
            value = asarray(value)
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
        value = define.constant(np.asarray(value, x.dtype))
    if inplace.writer_of(x) is None and all(
        type(t._data) is ndarray for t in (value, *tensors) if isinstance(t, Tensor)
    ):
        _write_recorded(x, spec, tensors, value)
    elif not tensors:
        inplace.apply_inplace(setitem.op, x, (x, value, spec))  # type: ignore[attr-defined]
    else:
        op = advanced_put.op  # type: ignore[attr-defined]
        inplace.apply_inplace(op, x, ((x, value, *tensors), spec, False))


def _is_part(value: Tensor, x: Tensor, spec: Any) -> bool:
    """Whether `value` is the view `x[spec]` itself."""
    found = getattr(value, "_view", None)
    if found.__class__ is not define.View:
        return False
    own = getattr(x, "_view", None)
    if found.step != (_getitem_op, (spec,)):
        return False
    if own.__class__ is define.View:
        return found.base is own.base and found.before is own
    return found.base is x and found.before is None


def _write_recorded(x: Tensor, spec: Any, tensors: list[Tensor], value: Any) -> None:
    """Write a part of `x` and record it: the tape entry of the out-of-place op without copying the whole tensor."""
    inplace.refuse_leaf("setitem", x)
    if tensors:
        op: Op = advanced_put.op  # type: ignore[attr-defined]
        operands, attrs = [x, value, *tensors], (spec, False)
    else:
        op = setitem.op  # type: ignore[attr-defined]
        operands, attrs = [x, value], (spec,)  # type: ignore[assignment]
    datas = [t._data if isinstance(t, Tensor) else t for t in operands]
    node = define.make_node(op, operands, datas, attrs, x._data, define.needs_of(op, operands))
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
        raise index_error("setitem", x, error) from None
    except OverflowError as error:
        raise OverflowError(f"setitem: {error}.") from None
    except ValueError:
        if tensors:
            infer_advanced_put((data, np.asarray(array), *[t._data for t in tensors]), spec, False)
        else:
            infer_put(data, array, spec)
        raise
    note_mutation(data if tensors else data[(*index, Ellipsis) if Ellipsis not in spec else index], "setitem")
