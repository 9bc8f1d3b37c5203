"""Operators and methods of Tensor, derived from the op table.

Every op whose first parameter is a tensor becomes a method of the same name. Operators and PyTorch's alternative
method names are listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import grad_mode
from ..tensor import Tensor
from ..typing import DeviceLike, DTypeLike, Operand, ShapeLike
from . import numpy_functions
from .aliases import ALIASES, in_place
from .aliases import functions as alias_functions
from .aliases import methods as alias_methods
from .array import (
    creation,
    cumulative,
    dialects,
    elementwise,
    products,
    reduction,
    repeating,
    searching,
    shaping,
    sorting,
    subscripts,
)
from .core import define, error_names, inplace
from .core.registry import Op, table

BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARE = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}

ATTACHED: set[str] = set()  # names attached to Tensor, for the type stubs


def _operand_types(value: Any) -> bool:
    """Whether ops accept `value` as an operand; objects with `weft_operators` (sparse tensors) bring their own."""
    if value is None or isinstance(value, (str, list, tuple, dict, set)):
        return False
    return not hasattr(value, "weft_operators")


def _forward(op: Op) -> Callable[..., Any]:
    function = op.call

    def operator(self: Tensor, other: Any) -> Any:
        if not _operand_types(other):
            return NotImplemented
        return function(self, other)

    return operator if op.reflected is None and op.expression is None else function


def _reflected(op: Op) -> Callable[..., Any]:
    if op.reflected is not None:
        return op.reflected
    function = op.call

    def operator(self: Tensor, other: Any) -> Any:
        if not _operand_types(other):
            return NotImplemented
        return function(other, self)

    return operator


def _comparison(op: Op) -> Callable[..., Any]:
    """Comparison operator of `op`: `==` with a non-operand is unequal, as for Python objects; `<` raises TypeError.

    A list or tuple of numbers is compared elementwise, as in NumPy.
    """
    function = op.call

    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(other, (Tensor, int, float, complex, np.ndarray, np.generic)):
            return function(self, other)
        if isinstance(other, (list, tuple)):
            try:
                other = creation.asarray(other)
            except (TypeError, ValueError):
                return NotImplemented
            return function(self, other)
        return function(self, other) if hasattr(other, "__weft_tensor__") else NotImplemented

    return operator if op.name in ("equal", "not_equal") else function


def _in_place(op: Op) -> Callable[..., Any]:
    def operator(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            if ufunc is not None and len(args) == 1 and not kwargs and not define.modes.active:
                small = not grad_mode.enabled or not _is_recorded(self, args[0])
                if small and inplace.write_small(op.title, ufunc, self, args[0]):
                    return self
            alpha = kwargs.pop("alpha", None) if op.name in ("add", "subtract") else None
            values = op.bind((self, *args), kwargs)
            if alpha is not None:
                values = (self, table["multiply"].call(values[1], alpha))
            return inplace.apply_inplace(op, self, values)
        except Exception as error:
            error_names.raise_as(error_names.renamed(op.title, error, keep_prefix=True), error)

    ufunc = op.ufunc if isinstance(op.ufunc, np.ufunc) and len(op.parameters) == 2 else None
    operator.names_errors = True  # type: ignore[attr-defined]
    operator.__wrapped__ = op.fn  # type: ignore[attr-defined]  # for inspect.signature
    operator.op = op  # type: ignore[attr-defined]
    operator.__name__ = operator.__qualname__ = op.name + "_"
    operator.__doc__ = f"`{op.name}`, in place: replaces the value of this tensor."
    return operator


def _is_recorded(x: Tensor, other: Any) -> bool:
    """Whether an in-place write to `x` concerns the tape: `x`, its base or the value may have a history."""
    view = getattr(x, "_view", None)
    if x._node is not None or view.__class__ is define.View or view is define.UNTRACKED:
        return True
    return getattr(other, "_node", None) is not None


def attach() -> None:
    """Attach operators and methods to Tensor. Called once, after all op files are imported."""
    before = set(vars(Tensor))
    for name, op_name in BINARY.items():
        op = table[op_name]
        setattr(Tensor, f"__{name}__", _forward(op))
        setattr(Tensor, f"__r{name}__", _reflected(op))
        setattr(Tensor, f"__i{name}__", _in_place(op))
    for name, op_name in COMPARE.items():
        setattr(Tensor, f"__{name}__", _comparison(table[op_name]))
    for name, op_name in UNARY.items():
        setattr(Tensor, f"__{name}__", table[op_name].call)
    setattr(Tensor, "__getitem__", subscripts.tensor_getitem)  # noqa: B010
    setattr(Tensor, "__setitem__", subscripts.tensor_setitem)  # noqa: B010
    for op in list(table.values()):
        attach_method(op)
    for name, function in aliases().items():
        setattr(Tensor, name, error_names.guarded(function, name))
    alias_methods.attach(alias_functions(methods=True), in_place())
    parts = {"real": elementwise.real, "imag": elementwise.imag}
    for name, getter in {"T": _transpose, "mT": _matrix_transpose, "H": _conjugate_transpose, **parts}.items():
        setattr(Tensor, name, property(getter))
    Tensor.__array_ufunc__ = numpy_functions.array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = numpy_functions.array_function  # type: ignore[attr-defined]
    ATTACHED.update(set(vars(Tensor)) - before)


def attach_method(op: Op) -> None:
    """Make `op` a method of Tensor (and, for elementwise ops, its in-place form with a trailing underscore)."""
    if op.namespace != "weft" or op.variadic or not op.tensor_slots or op.tensor_slots[0] != 0:
        return
    name = op.method or op.name
    if name not in Tensor.__dict__:
        setattr(Tensor, name, op.call)
    if op.expression is not None and name + "_" not in Tensor.__dict__:
        setattr(Tensor, name + "_", _in_place(op))


def _transpose(x: Tensor) -> Tensor:
    """The tensor with its axes in reverse order (the transpose of a matrix)."""
    rank: Any = x.ndim
    if rank is None:  # in a graph: deferred to run time
        return error_names.late_result("T", _transpose, (x,), {})
    return shaping.permute_dims(x, tuple(range(rank))[::-1])


def _conjugate_transpose(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two axes."""
    return elementwise.conj(shaping.matrix_transpose(x))


def _matrix_transpose(x: Tensor) -> Tensor:
    """The transpose of the last two axes."""
    return shaping.matrix_transpose(x) if x.ndim is not None else error_names.public(shaping.matrix_transpose)(x)


def _reshape(x: Tensor, *shape: ShapeLike) -> Tensor:
    """Change the shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`. One size may be -1 and is inferred.

    >>> wf.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape)


def _view_as(x: Tensor, other: Tensor) -> Tensor:
    """Reshape to the shape of `other`."""
    return shaping.reshape(x, other.shape)


def _expand_as(x: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of `other`."""
    return shaping.broadcast_to(x, other.shape)


def _named(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Methods with the names of `functions` that are not in the op table."""
    return {f.__name__: error_names.public(f) for f in functions}


def _flatten(x: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Join the axes from `start_axis` to `end_axis` into one.

    >>> wf.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    return shaping.flatten(x, start_axis, end_axis)


def _fill(x: Tensor, value: Operand) -> Tensor:
    """Set every element to `value`, in place.

    >>> wf.zeros(2).fill_(7)
    tensor([7., 7.])
    """
    subscripts.tensor_setitem(x, Ellipsis, value)
    return x


def _zero(x: Tensor) -> Tensor:
    """Set every element to zero, in place."""
    return _fill(x, 0)


def _copy(x: Tensor, source: Operand) -> Tensor:
    """Copy the elements of `source` (broadcast) into this tensor, in place.

    >>> wf.zeros(2).copy_(wf.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    subscripts.tensor_setitem(x, Ellipsis, source)
    return x


def _to(
    x: Tensor, *args: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None, copy: bool = False
) -> Tensor:
    """Cast to a dtype; returns the tensor itself if nothing changes.

    Args:
        args: a dtype, a tensor whose dtype to take, or a device.
        dtype: the new dtype.
        device: only the CPU is supported for eager tensors.
        copy: copy even if nothing changes.

    >>> wf.zeros(2).to(wf.float64).dtype.name
    'float64'
    """
    for a in args:
        if isinstance(a, Tensor):
            dtype = a.dtype
        elif isinstance(a, str) and a not in dtypes._BY_NAME or type(a).__name__ in ("Device", "device"):
            device = a
        else:
            dtype = a
    creation.check_device("to", device)
    return elementwise.astype(x, x.dtype if dtype is None else dtype, copy=copy)


def _to_device(x: Tensor, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
    """Move to `device`; only the CPU is supported for eager tensors."""
    creation.check_device("to_device", device)
    return x


def _sizes(given: tuple[ShapeLike, ...]) -> tuple[int, ...]:
    """The numbers of `f(2, 3)` or `f((2, 3))`."""
    return tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given  # type: ignore[return-value]


def _cpu(x: Tensor) -> Tensor:
    """The tensor itself: eager tensors are on the CPU."""
    return x


def _tile(x: Tensor, *repeats: ShapeLike) -> Tensor:
    """Repeat the whole tensor along its axes: `[a, b]` becomes `[a, b, a, b]` for 2.

    >>> wf.arange(2).repeat(2)
    tensor([0, 1, 0, 1])
    """
    return repeating.tile(x, _sizes(repeats))


def _contiguous(x: Tensor) -> Tensor:
    """The tensor in row-major order: itself if contiguous, else a copy."""
    return x if x.is_symbolic or x.is_contiguous() else shaping.clone_contiguous(x)


def _caster(dtype_name: str) -> Callable[..., Any]:
    def method(x: Tensor) -> Tensor:
        from .. import dtypes

        return elementwise.astype(x, dtypes.as_dtype(dtype_name))

    method.__doc__ = f"`x` as {dtype_name}."
    return method


def aliases() -> dict[str, Callable[..., Any]]:
    names: dict[str, Callable[..., Any]] = {
        "astype": elementwise.astype, "to": _to, "to_device": _to_device,
        "reshape": _reshape, "view": _reshape,
        "flatten": _flatten,

        "fill_": _fill, "zero_": _zero, "copy_": _copy, "copy": shaping.clone,
        "expand_as": _expand_as, "contiguous": _contiguous,
        "view_as": _view_as, "real_part": elementwise.real, "imag_part": elementwise.imag,
        "float": _caster("float32"), "double": _caster("float64"), "half": _caster("float16"), "int": _caster("int32"),
        "long": _caster("int64"), "bool": _caster("bool"), "bfloat16": _caster("bfloat16"),
        "cpu": _cpu, "split": shaping.split, "chunk": shaping.chunk,
        "repeat": _tile, "tile": _tile, "unstack": shaping.unstack,
    }  # fmt: skip
    names |= _named(
        sorting.topk, searching.nonzero, searching.argwhere, searching.masked_select, searching.searchsorted,
        cumulative.cumsum, cumulative.cumprod, cumulative.cummax, cumulative.cummin, cumulative.logcumsumexp,
        products.tensordot, reduction.sum, reduction.mean, reduction.prod,
    )  # fmt: skip
    names |= {name: error_names.guarded(getattr(dialects, name)) for name in dialects.__all__}
    names |= {alias: table[name].call for alias, name in ALIASES.items() if name in table and table[name].tensor_slots}
    for short, op_name in (
        ("add", "add"),
        ("sub", "subtract"),
        ("mul", "multiply"),
        ("div", "divide"),
        ("neg", "negative"),
    ):
        names[short + "_"] = _in_place(table[op_name])
    names["clamp_"] = _in_place(table["clip"])
    names["clip_"] = _in_place(table["clip"])
    names["masked_fill_"] = _in_place(table["masked_fill"])
    for name in ("relu", "softmax", "log_softmax"):  # also methods in PyTorch
        names[name] = table[name].call
    return names
