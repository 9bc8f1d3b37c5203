"""In-place writes (`x += y`, `x[i] = v`, `x.add_(y)`) and their effect on gradients and graphs.

Note [In-place]. An in-place op is its out-of-place op whose result replaces the tensor's value. Without gradients the
result is written directly into the memory. With gradients the op is recorded as usual and the tensor's tape link
moves to the new node. If the tensor is a view, its base is updated too: `put` (declared by every view op) writes the
view's new value into the base, and every other live view of that base is derived again from it. In a graph, where
values are immutable, the same steps replace values instead of memory, so that captured and eager code agree. There
`detach` and views made under no_grad are links too: they share memory but not the tape, so a write reaches their value
and not their history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf, grad_mode, no_grad, note_mutation, note_relink
from ...errors import format_shape
from ...runtime import owned_memory
from ...tensor import Tensor, wrap
from . import define
from .define import Base, View, common_dtype, elementwise_dtypes
from .recording import DETACHED, UNRECORDED
from .registry import Op

ndarray = np.ndarray


def apply_inplace(op: Op, x: Tensor, values: tuple[Any, ...]) -> Tensor:
    """Replace the value of `x`, the first of `values`, by `op(*values)`."""
    refuse_batched(op.title, x, op.tensors(values))
    writer = writer_of(x)
    if writer is not None:
        replace(x, check_result(op, x, op.run(op.call, values)), writer, op.title)
        return x
    check_writeable(op.title, x)
    recorded = grad_mode.enabled and any(isinstance(t, Tensor) and t._node is not None for t in op.tensors(values))
    if not recorded:
        write_through(op, x, values)
        if define.modes.active:
            notify_modes(op.title, x, op.tensors(values))
        return x
    refuse_leaf(op.title, x)
    values = with_old_values(op, x, values)
    result = check_result(op, x, op.run(op.call, values))
    if type(result._data) is not ndarray:
        result._data.assign(x, result)  # a graph defines how its values are stored, or raises
    note_mutation(x._data, op.title)
    np.copyto(x._data, result._data, casting="unsafe")
    rebase(x, result)
    return x


def notify_modes(name: str, x: Tensor, operands: Sequence[Any]) -> None:
    """Report an unrecorded write, which is not an op call, to the modes of this thread."""
    for mode in define.current_modes():
        mode.wrote(name, x, operands)


class ReadOnlyError(ValueError):
    """A write to read-only memory."""


class LeafWriteError(RuntimeError):
    """A recorded write to a leaf, or to a view that is not on the tape."""


def check_writeable(name: str, x: Tensor) -> None:
    if not x._data.flags.writeable:
        if (advice := owned_memory.advice(x._data)) is not None:
            raise ReadOnlyError(f"{name}: {advice}")
        raise ReadOnlyError(
            f"{name}: the tensor is read-only (it shares memory with a read-only array). Use `x.clone()`."
        )


def with_old_values(op: Op, x: Tensor, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy operands so that the values saved for gradient rules are not overwritten by the op.

    Operands that overlap `x` in memory (`y *= y`, `y[1:] += y[:-1]`) are copied if a rule saves them.
    """
    kept = {index for kind, index, _ in op.saved_items if kind == "in"}
    tensors = []
    for i, t in enumerate(op.tensors(values)):
        wanted = op.composite or op.variadic and bool(kept) or i in kept
        if wanted and isinstance(t, Tensor) and (t is x or np.shares_memory(t._data, x._data, max_work=1000)):  # type: ignore[arg-type]
            t = wrap(t._data.copy(), t._node)
        tensors.append(t)
    return tuple(op.merge(tensors, op.attrs(values)))


class SymbolicWriter:
    """Takes writes to a symbolic tensor outside of any mode that does: the data knows how its values are stored."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def assign(self, x: Tensor, value: Tensor) -> None:
        self._data.assign(x, value)

    def touch(self, x: Tensor) -> None:
        pass

    def views_of(self, base: Tensor) -> None:
        return None

    def in_layout_of(self, x: Tensor, value: Tensor) -> Tensor:
        return value


Writer = define.Mode | SymbolicWriter


def writer_of(x: Tensor) -> Writer | None:
    """The object that takes writes to `x`, if any: a capture in progress, or its symbolic data."""
    if define.modes.active:
        for mode in reversed(define.current_modes()):
            if mode.takes_writes and mode.takes(x):
                return mode
    if type(x._data) is not ndarray:
        return SymbolicWriter(x._data)
    return None


def refuse_batched(name: str, x: Tensor, operands: Sequence[Any]) -> None:
    """Raise inside vmap if an unbatched tensor would be overwritten by a batched value."""
    level = getattr(x._data, "level", 0)
    for t in operands:
        if isinstance(t, Tensor) and getattr(t._data, "level", 0) > level:
            raise RuntimeError(
                f"vmap: {name} writes a value that differs from example to example into a tensor that is the same for all "
                "examples. Start from a tensor that is mapped too, for example `wf.zeros_like(x)`."
            )


def refuse_leaf(name: str, x: Tensor) -> None:
    """Raise if a recorded op would overwrite a leaf that requires gradients: its gradient would be meaningless."""
    view = getattr(x, "_view", None)
    if view is define.UNTRACKED or view.__class__ is View and view.cut is UNRECORDED:
        raise LeafWriteError(
            f"{name}: this tensor is a view that was made under no_grad, so a recorded write to it cannot reach the tensor "
            "it shows. Make the view again outside of no_grad, write under no_grad, or `.clone()` it first."
        )
    root = view.base if view.__class__ is View and type(x._data) is ndarray else tape_root(x)
    if root._node.__class__ is Leaf or x._node.__class__ is Leaf:
        what = "a leaf" if x._node.__class__ is Leaf else "a view of a leaf"
        raise LeafWriteError(
            f"{name}: {what} tensor that requires gradients is written in place. "
            "Wrap the update in `with wf.no_grad():`, or compute out of place."
        )


def check_result(op: Op, x: Tensor, result: Tensor) -> Tensor:
    """Check that the new value has the shape of `x` and a dtype that `x` can hold."""
    if result.shape != x.shape:
        raise ValueError(
            f"{op.name}: the result of an in-place op must keep the shape {format_shape(x.shape)}. "
            f"Got {format_shape(result.shape)}; write it out of place."
        )
    if result.dtype != x.dtype:
        check_cast(op.name, result.dtype, x.dtype)
        from ..array.elementwise import astype

        result = astype(result, x.dtype)
    return result


def check_cast(name: str, source: np.dtype, target: np.dtype) -> None:
    if dtypes._KIND[source] > dtypes._KIND[target]:
        raise TypeError(
            f"{name}: a result of dtype {source.name} cannot be stored in place in a tensor of {target.name}. "
            f"Cast first, for example `x = x.astype(wf.{source.name})`."
        )


def write_through(op: Op, x: Tensor, values: tuple[Any, ...]) -> None:
    """Compute `op` into the memory of `x` without recording anything."""
    data = x._data
    datas = [
        v._data if isinstance(v, Tensor) else v
        for v in (define.operand(op, i, t) for i, t in enumerate(op.tensors(values)))
    ]
    if op.expression is not None:
        wanted = elementwise_dtypes(op, datas)
    elif op.promote is not None:
        wanted = (common_dtype(op, datas),)
    else:
        wanted = (data.dtype,)
    kept = define.keeps_scalars(op, datas, wanted[0])
    ufunc = op.ufunc if not kept else None
    if ufunc is not None and wanted[0] == data.dtype and data.size < define.NATIVE_MIN_ELEMENTS:
        arrays = [d if type(d) is ndarray and d.dtype == data.dtype else np.asarray(d, data.dtype) for d in datas]
        try:
            with np.errstate(all="ignore"):
                ufunc(*arrays, out=data)
            note_mutation(data, op.title)
            return
        except (ValueError, TypeError):
            pass  # the general path below raises the proper error
    if (
        op.expression is not None
        and not kept
        and data.size >= define.NATIVE_MIN_ELEMENTS
        and _write_native(op, data, datas, wanted)
    ):
        return
    out = define.compute(op, datas, op.attrs(values))
    if out.shape != data.shape:
        check_result(op, x, wrap(out))
    check_cast(op.name, out.dtype, data.dtype)
    note_mutation(data, op.title)
    np.copyto(data, out, casting="unsafe")


def write_small(name: str, ufunc: np.ufunc, x: Tensor, other: Any) -> bool:
    """Shortcut for an unrecorded `x += y` on small arrays of one dtype; False where it does not apply."""
    data = x._data
    if type(data) is not ndarray or data.size >= define.NATIVE_MIN_ELEMENTS or not data.flags.writeable:
        return False
    dtype = data.dtype
    if dtype is not dtypes.float32 and dtype is not dtypes.float64:
        return False
    if isinstance(other, Tensor):
        other = other._data
        if type(other) is not ndarray or other.dtype is not dtype:
            return False
    elif other.__class__ is not float and other.__class__ is not int:
        return False
    try:
        ufunc(data, other, out=data)
    except (ValueError, TypeError, OverflowError):
        return False  # the general path raises the proper error
    except (RuntimeWarning, FloatingPointError):
        pass  # raised after the write if NumPy warnings are errors: inf and nan are valid results
    note_mutation(data, name)
    return True


def _write_native(op: Op, data: ndarray, datas: list[Any], wanted: tuple[np.dtype, ...]) -> bool:
    """Run the expression of `op` as a native loop that stores into `data`, if no cast is needed."""
    arrays = [define.cast_data(d, w) for d, w in zip(datas, wanted, strict=True)]
    if any(dtypes.is_complex(w) for w in wanted):
        return False
    spec = define.infer_elementwise(op, *arrays)
    if spec.shape != data.shape or spec.dtype != data.dtype:
        return False
    if define.native_elementwise(op, arrays, data.shape, data) is None:
        return False
    note_mutation(data, op.title)
    return True


def tape_root(x: Tensor) -> Any:
    """The tensor through which the tape reaches the symbolic `x`: itself or its base; None if off the tape."""
    view = getattr(x, "_view", None)
    if view.__class__ is not View or type(x._data) is ndarray or view.cut is DETACHED:
        return x
    if view.cut is UNRECORDED:
        return None
    return view.base if view.root is None else view.root


def replace(x: Tensor, result: Tensor, writer: Writer, name: str = "in-place") -> None:
    """Give `x` a new symbolic value and update the tensors that share its memory: its base and the base's other views.

    `name` is that of the op in errors.
    """
    view = getattr(x, "_view", None)
    for t in (x, view.base) if view.__class__ is View else (x,):
        if type(t._data) is ndarray:
            check_writeable(name, t)
    if grad_mode.enabled and result._node is not None:
        refuse_leaf(name, x)
    if view.__class__ is not View or type(x._data) is ndarray and writer.views_of(x) is not None:
        set_value(x, result, writer)
        refresh_views(x, writer, x, x)
        return
    root = tape_root(x) if type(x._data) is not ndarray else view.base
    if root is view.base:
        set_value(root, put_steps(root, view.steps, result), writer)
    else:  # the base gets the value but not the history
        with no_grad():
            set_value(view.base, put_steps(view.base, view.steps, result), writer)
        if root is not None and root is not x:
            set_value(root, put_steps(root, view.steps_after(root._view), result), writer)
    set_value(x, result, writer)
    refresh_views(view.base, writer, x, root)


def set_value(x: Tensor, value: Tensor, writer: Writer) -> None:
    """Bind `x` to `value` in the graph in progress."""
    writer.touch(x)
    value = writer.in_layout_of(x, value)
    if type(x._data) is ndarray or getattr(
        x._data, "holds_memory", False
    ):  # an outside tensor: the writer keeps its value
        writer.assign(x, value)
    else:
        x._data = value._data
    if grad_mode.enabled and x._node.__class__ is not Leaf:
        x._node = value._node


def rebase(x: Tensor, result: Tensor) -> None:
    """Move the tape links of `x`, its base and its views after `result` was written into the memory of `x`."""
    note_relink()
    view = getattr(x, "_view", None)
    if view.__class__ is not View:
        x._node = result._node
        _relink_views(x, None)
        return
    base = view.base
    base._node = put_steps(base, view.steps, result)._node
    x._node = result._node
    _relink_views(base, x)


def put_steps(base: Tensor, steps: list[Any], value: Tensor) -> Tensor:
    """`base` with its view along `steps` replaced by `value`, out of place."""
    inner = [base]
    for op, attrs in steps[:-1]:
        inner.append(op.run(op.call, op.merge([inner[-1]], attrs)))
    for (op, attrs), part in zip(reversed(steps), reversed(inner), strict=True):
        if op.put is None:
            raise ReadOnlyError(
                f"in-place: cannot write through the view made by {op.name}: several of its elements may share one place. "
                "Use `.clone()` before writing."
            )
        value = op.put(part, value, *attrs)
    return value


def derive(start: Tensor, steps: Sequence[Any]) -> Tensor:
    """Apply the view `steps` to `start`."""
    for op, attrs in steps:
        start = op.run(op.call, op.merge([start], attrs))
    return start


def _live_views(found: Any) -> list[Tensor]:
    if not isinstance(found, Base):
        return []
    views, found.views = found.views, []
    live = []
    for ref in views:
        view = ref()
        if view is None or view.__class__ is not Tensor and view._data is None:
            continue
        found.views.append(ref)
        live.append(view)
    return live


def _relink_views(base: Tensor, written: Tensor | None) -> None:
    """Derive the tape link of every live view of `base` again after a recorded write to its memory."""
    for view in _live_views(getattr(base, "_view", None)):
        if view is not written and view._node.__class__ is not Leaf:
            fresh = derive(base, view._view.steps)
            if grad_mode.enabled:
                view._node = fresh._node


def refresh_views(base: Tensor, writer: Writer, written: Tensor, root: Any) -> None:
    """Derive every live symbolic view of `base` again after a write through `written`.

    Views that the tape reaches through the same `root` get a new history; the others only share the memory.
    """
    views = writer.views_of(base) if type(base._data) is ndarray else None
    for view in _live_views(getattr(base, "_view", None) if views is None else views):
        if view is written or type(view._data) is ndarray:
            continue
        writer.touch(view)
        if root is not None and view is not root and tape_root(view) is root:
            fresh = derive(root, view._view.steps_after(getattr(root, "_view", None) if root is not base else None))
            if grad_mode.enabled and view._node.__class__ is not Leaf:
                view._node = fresh._node
        elif view is root:
            continue
        else:
            with no_grad():
                fresh = derive(base, view._view.steps)
        view._data = fresh._data


class _Detach:
    """`x.detach()` as a step of a symbolic view: the same value without history."""

    name = "detach"

    @staticmethod
    def merge(tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Sequence[Any]:
        return tensors

    @staticmethod
    def run(fn: Callable[..., Any], values: Sequence[Any]) -> Any:
        return fn(*values)

    @staticmethod
    def call(x: Tensor) -> Tensor:
        return x.detach() if type(x._data) is ndarray else x

    @staticmethod
    def put(base: Tensor, value: Tensor) -> Tensor:
        return value


DETACH = _Detach()
