"""The general path of an op call: conversion, promotion, checks, kernel selection and recording.

`weft.ops.core.fast_path` falls through to it for Python scalars, dtypes to promote, large arrays, symbolic tensors, modes
and errors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape, type_name
from ...tensor import Tensor
from . import modes
from .recording import finish
from .registry import Op
from .short_floats import any_short, is_short, run_in_float32
from .spec import Spec, broadcast_shapes, is_known, only_integers

ndarray = np.ndarray
F32, BOOL = dtypes.float32, dtypes.bool_
NATIVE_MIN_ELEMENTS = 16384  # elements from which a native kernel beats NumPy, see benchmarks/dispatch.py

# NumPy warns of 1/0 and log(0) in the caller's frame: for tensors inf and nan are valid results.
warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning, r"weft\.")


def call(op: Op, values: tuple[Any, ...]) -> Any:
    """Run `op` on a full tuple of argument values: convert, compute (or add to a graph), and record on the tape."""
    if op.check_call is not None:
        op.run(op.check_call, values)
    if op.along and _along_a_number(op, values):
        return _as_vector(op, values)
    if modes.active:
        stack = modes.current_modes()
        if stack:
            with modes.suspended(len(stack) - 1):
                return stack[-1].handle(op, values)
    try:
        tensors = [operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        datas = []
        foreign = None
        for t in tensors:
            if isinstance(t, Tensor):
                t = t._data
                if type(t) is not ndarray and (foreign is None or t.priority > foreign.priority):
                    foreign = t
            datas.append(t)
        attrs = op.attrs(values)
        if foreign is None:
            outs = compute(op, datas, attrs)
            return finish(op, tensors, datas, attrs, outs)
    except Exception as error:
        from . import error_names

        error_names.raise_as(error_names.renamed(op.title, error, keep_prefix=True), error)
    return foreign.apply(op, tensors, attrs)


def _along_a_number(op: Op, values: Sequence[Any]) -> bool:
    """Whether the op's first tensor is 0-d and `axis` is 0 or -1, as for a vector of one element."""
    x, axis = values[op.tensor_slots[0]], values[op.slot_of["axis"]]
    if not isinstance(x, Tensor) or x.shape != ():
        return False
    axes = axis if isinstance(axis, tuple) else (axis,)
    return len(axes) == 1 and axes[0].__class__ is not bool and axes[0] in (0, -1)


def _as_vector(op: Op, values: Sequence[Any]) -> Any:
    """Run the op on 0-d tensors as vectors of one element; results are 0-d again, as in PyTorch."""
    from ..array.shaping import reshape

    vectors = list(values)
    for i in op.tensor_slots:
        if isinstance(vectors[i], Tensor) and vectors[i].shape == ():
            vectors[i] = reshape(vectors[i], (1,))
    outs = call(op, tuple(vectors))
    return tuple([reshape(o, ()) for o in outs]) if isinstance(outs, tuple) else reshape(outs, ())


def operand(op: Op, position: int, value: Any) -> Any:
    """Convert a tensor argument: tensors pass, arrays become tensors, Python numbers stay weak, None stays None."""
    if isinstance(value, Tensor) or type(value) in (bool, int, float, complex):
        return value
    if value is None and position in op.optional:
        return value
    if isinstance(value, (ndarray, np.generic)):
        return Tensor(value)
    to_tensor = getattr(value, "__weft_tensor__", None)
    if to_tensor is not None:
        return to_tensor()
    if isinstance(value, (int, float, complex)):  # subclasses such as IntEnum
        return value.real if not isinstance(value, complex) else value
    name = op.tensor_names[0 if op.variadic else position]
    hint = " Convert it with `wf.asarray(...)`." if isinstance(value, (list, tuple)) else ""
    raise TypeError(f"{op.title}: {name} must be a tensor. Got {type_name(value)}.{hint}")


def compute(op: Op, datas: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Run `op` on arrays (and weak scalars) with the best kernel that applies; returns an array or a tuple of arrays."""
    if op.expression is not None:
        return compute_elementwise(op, datas)
    arrays = promoted(op, datas)
    if op.widens and any_short(arrays):
        return run_in_float32(op, arrays, attrs, lambda wide: compute(op, wide, attrs))
    values = op.merge(arrays, attrs)
    if op.infer is not None:
        if op.checks_once:
            check_once(op, arrays, attrs, values)
        else:
            result = op.run(op.infer, values)
            refuse_non_integers(op, attrs)
            if op.alias is None:
                check_fits(op, result)
    if op.refuse is not None:
        op.run(op.refuse, values)
    if not _backends_ready:
        _prepare_backends(op, arrays)
    try:
        for kernel in op.kernels:
            if kernel.device == "cpu" and (kernel.when is None or op.run(kernel.when, values)):
                return as_arrays(op.run(kernel.fn, values))
        with np.errstate(all="ignore"):
            return as_arrays(op.run(op.fn, values))
    except (TypeError, ValueError, IndexError):
        if op.infer is not None and op.checks_once:
            # a signature may equal a checked one and still be invalid (1.0 == 1): the rule raises the better error
            op.run(op.infer, values)
        raise


_backends_ready = False
KERNEL_LOOKUP_MIN_ELEMENTS = 2048  # below this, native kernels are not looked up


def _prepare_backends(op: Op, arrays: Sequence[Any]) -> None:
    """Register the backends' kernels on first need, so that small programs do not load them."""
    global _backends_ready
    if op.several_calls or any(type(a) is ndarray and a.size >= KERNEL_LOOKUP_MIN_ELEMENTS for a in arrays):
        _backends_ready = True
        from ...backends import register_kernels

        register_kernels()


def check_once(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...], values: Sequence[Any]) -> None:
    """Run the shape rule of `op` unless this signature passed it before (see `Op.checks_once`)."""
    if has_non_integers(attrs, op.integer_attrs):
        check_integers(op, attrs)
        op.run(op.infer, values)  # type: ignore[arg-type]
        refuse_non_integers(op, attrs)
        return
    if len(arrays) == 1 and not op.variadic:
        key: tuple[Any, ...] = (arrays[0].shape, arrays[0].dtype, attrs)
    else:
        key = (*[None if a is None else (a.shape, a.dtype) for a in arrays], attrs)
    try:
        if key in op.checked:
            return
    except TypeError:  # unhashable attributes are left to the shape rule
        op.run(op.infer, values)  # type: ignore[arg-type]
        return
    check_integers(op, attrs)
    result = op.run(op.infer, values)  # type: ignore[arg-type]
    if op.alias is None:
        check_fits(op, result)
    if len(op.checked) >= 4096:
        op.checked.clear()
    op.checked.add(key)


def has_non_integers(attrs: Sequence[Any], integer_attrs: Sequence[int]) -> bool:
    """Whether an attribute that holds integers has something else, such as 1.0 or True, which equal 1 as keys of a cache."""
    for i in integer_attrs:
        value = attrs[i]
        if value.__class__ is not int and value is not None and not only_integers(value):
            return True
    return False


def refuse_non_integers(op: Op, attrs: Sequence[Any]) -> None:
    """Raise for an attribute that holds True or 1.0 in place of an integer; the shape rule may have a better error."""
    if has_non_integers(attrs, op.integer_attrs):
        for i in op.integer_attrs:
            if any(isinstance(v, _NO_INTEGERS) for v in _parts(attrs[i])):
                raise TypeError(f"{op.title}: {op.attr_names[i]} must be an integer. Got {attrs[i]!r}.")


_NO_INTEGERS = (bool, np.bool_, float, complex, np.inexact)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _parts(v)
    else:
        yield value


def check_integers(op: Op, attrs: Sequence[Any]) -> None:
    """Raise for an integer attribute outside 64 bits, which NumPy, ctypes or LLVM would reject or truncate.

    Shapes are left to the memory checks.
    """
    for i in op.integer_attrs:
        value = attrs[i]
        if value.__class__ is int:
            if _MIN_INTEGER <= value <= _MAX_INTEGER:
                continue
        elif value is None or all([_MIN_INTEGER <= v <= _MAX_INTEGER for v in _integers(value)]):  # noqa: C419 - a list is faster
            continue
        raise OverflowError(f"{op.title}: {op.attr_names[i]} does not fit into 64 bits. Got {value}.")


_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), 1 << 64  # the end of a range of unsigned integers is one more than the last


def _integers(value: Any) -> Iterator[int]:
    """The integers in a possibly nested attribute; other values are left to the shape rule."""
    if isinstance(value, (int, np.integer)):
        yield int(value)
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _integers(v)


MAX_ADDRESSABLE_BYTES = 1 << 47  # bytes: more than any process can map


def check_addressable(op: Op, specs: Sequence[Any]) -> None:
    """Raise MemoryError for graph results beyond the address space, before rules and passes allocate arrays of such sizes.

    Whether smaller results fit into this machine is checked when the program is built: fused values need no memory.
    """
    for spec in specs:
        shape = spec.shape
        if shape is None or not is_known(shape):
            continue
        size = math.prod(shape) * spec.dtype.itemsize
        if size > MAX_ADDRESSABLE_BYTES or max(shape, default=0) >= 1 << 63:
            from ...runtime import memory

            raise MemoryError(
                f"{op.title}: the result does not fit into memory. Got a shape {format_shape(shape)} that needs "
                f"{memory.format_bytes(size)}; expected at most {memory.format_bytes(MAX_ADDRESSABLE_BYTES)}."
            )


MEMORY_CHECK_BYTES = 1 << 28  # results of this size are checked against available memory


def check_fits(op: Op, result: Any) -> None:
    """Raise MemoryError for a result larger than the available memory, before the system kills the process."""
    if result.__class__ is tuple:
        for part in result:
            check_fits(op, part)
        return
    shape = result.shape
    if shape is not None and None not in shape:
        check_memory(op.title, shape, result.dtype)


def check_memory(title: str, shape: tuple[int, ...], dtype: np.dtype, scratch: int = 0) -> None:
    """Raise MemoryError if an array of `shape` plus `scratch` bytes of temporaries exceeds the available memory."""
    size = math.prod(shape) * dtype.itemsize + scratch
    if size < MEMORY_CHECK_BYTES:
        return
    from ...runtime import _host, memory

    room = _host.memory_available()
    if room is not None and size > room:
        memory.trim()
        room = _host.memory_available() or size
        if size > room:
            raise MemoryError(
                f"{title}: the result does not fit into memory. Got a shape {format_shape(shape)} that needs "
                f"{memory.format_bytes(size)}; {memory.format_bytes(room)} are available."
            )


def as_arrays(outs: Any) -> Any:
    """A kernel's results, with NumPy scalars converted to 0-d arrays."""
    if type(outs) is ndarray:
        return outs
    return tuple([np.asarray(o) for o in outs]) if isinstance(outs, (tuple, list)) else np.asarray(outs)


def promoted(op: Op, datas: Sequence[Any]) -> list[Any]:
    """The tensor arguments as arrays, cast to their common dtype if the op promotes."""
    if op.promote is None:
        return [
            d if d is None or isinstance(d, ndarray) else np.asarray(d, dtypes.python_scalar_dtype(d)) for d in datas
        ]
    dtype = common_dtype(op, datas)
    return [None if d is None else cast_data(d, dtype) for d in datas]


def cast_data(data: Any, dtype: np.dtype) -> ndarray:
    if type(data) is ndarray and (data.dtype is dtype or data.dtype == dtype):
        return data
    with np.errstate(all="ignore"):  # overflow of a 16-bit float gives inf, without a warning
        return data.astype(dtype) if type(data) is ndarray else np.asarray(data, dtype)


def common_dtype(op: Op, datas: Sequence[Any]) -> np.dtype:
    """The dtype in which `op` computes, from its operands and its `promote` kind."""
    dtype = dtypes.result_type(*[d for d in datas if d is not None])
    return check_kind(op, op.promote or "numeric", dtype)


def check_kind(op: Op, kind: str, dtype: np.dtype) -> np.dtype:
    """Apply the rule of `kind` to the promoted operand dtype: the compute dtype, or a TypeError."""
    if kind == "float":  # functions such as exp: integers become the default float
        return dtypes.float_for(dtype)
    if kind == "floating" and not dtypes.is_inexact(dtype):
        raise TypeError(f"{op.title}: expected a floating tensor. Got {dtype.name}; use `x.astype(wf.float32)`.")
    if kind == "real" and dtypes.is_complex(dtype):
        raise TypeError(f"{op.title}: expected a real tensor. Got {dtype.name}; use `wf.real(x)` or `wf.abs(x)`.")
    if (
        kind == "wide float" and dtype.itemsize == 2 and dtypes.is_floating(dtype)
    ):  # computed in float32, it would be no step
        raise TypeError(f"{op.title}: expected float32 or float64. Got {dtype.name}; use `x.astype(wf.float32)`.")
    if kind in ("real float", "wide float"):
        if dtypes.is_complex(dtype):
            raise TypeError(f"{op.title}: expected a real tensor. Got {dtype.name}.")
        return dtypes.float_for(dtype)
    if kind == "bitwise" and not (dtypes.is_integral(dtype) or dtypes.is_bool(dtype)):
        raise TypeError(f"{op.title}: expected integer or bool tensors. Got {dtype.name}.")
    if kind == "integer" and not dtypes.is_integral(dtype):
        raise TypeError(f"{op.title}: expected integer tensors. Got {dtype.name}.")
    if kind == "logical":
        return BOOL
    if kind == "arithmetic" and dtypes.is_bool(dtype):
        raise TypeError(f"{op.title}: expected numbers. Got bool; use `x.astype(wf.int64)` or a logical function.")
    return dtype


def elementwise_dtypes(op: Op, datas: Sequence[Any]) -> tuple[np.dtype, ...]:
    """The dtype of each operand as the scalar expression of `op` sees it."""
    if op.kind == "select":  # where(condition, x, y)
        rest = dtypes.result_type(*datas[1:])
        return (BOOL, rest, rest)
    dtype = check_kind(op, op.kind, dtypes.result_type(*datas))
    return (dtype,) * len(datas)


def keeps_scalars(op: Op, datas: Sequence[Any], dtype: np.dtype) -> bool:
    """Whether a Python number among the operands of `op` would change in 16 bits (0.1, or 1e5 with float16).

    Arithmetic is then done in float32; comparisons and selections use the rounded number.
    """
    if not is_short(dtype) or not op.widens:
        return False
    with np.errstate(all="ignore"):
        return any(d.__class__ in (float, int) and d == d and float(dtype.type(d)) != d for d in datas)


def compute_elementwise(op: Op, datas: Sequence[Any]) -> ndarray:
    wanted = elementwise_dtypes(op, datas)
    if keeps_scalars(op, datas, wanted[0]):
        wide = compute_elementwise(op, [d.astype(F32) if type(d) is ndarray else d for d in datas])
        return cast_data(wide, wanted[0]) if wide.dtype == F32 else wide
    arrays = [cast_data(d, w) for d, w in zip(datas, wanted, strict=True)]
    shape = broadcast_shapes(op.title, *[a.shape for a in arrays], names=op.tensor_names)
    size = 1
    for d in shape:
        size *= d
    if op.refuse is not None:
        op.refuse(*arrays)
    if size >= NATIVE_MIN_ELEMENTS and not any(dtypes.is_complex(w) for w in wanted):
        for kernel in op.kernels:
            if kernel.device == "cpu" and (kernel.when is None or kernel.when(*arrays)):
                return kernel.fn(*arrays)
        out = native_elementwise(op, arrays, shape)
        if out is not None:
            return out
    return plain_elementwise(op, arrays)


def plain_elementwise(op: Op, arrays: Sequence[ndarray]) -> ndarray:
    """Reference implementation: the scalar expression run by NumPy, half precision in float32 as in native code."""
    assert op.expression is not None
    half = next((a.dtype for a in arrays if a.dtype.itemsize == 2 and dtypes.is_floating(a.dtype)), None)
    with np.errstate(all="ignore"):
        if half is not None:
            out = op.expression(*[a.astype(F32) if a.dtype == half else a for a in arrays])
            return np.asarray(out, half) if out.dtype == F32 else np.asarray(out)
        return np.asarray(op.expression(*arrays))


_native: Any = None


def native_kernels() -> Any:
    """The module of native kernels on arrays (`weft.backends.llvm.eager`), loaded on first use; False if unavailable."""
    global _native
    if _native is None:
        from ... import backends

        _native = backends.native_kernels()
    return _native


def native_elementwise(
    op: Op, arrays: Sequence[ndarray], shape: tuple[int, ...], out: ndarray | None = None
) -> ndarray | None:
    """Run the scalar expression as a native loop (into `out`, if given); None if native code is unavailable."""
    native = _native if _native is not None else native_kernels()
    if native is False:
        return None
    return native.elementwise(op.name, op.expression, arrays, shape, out)


_expression_dtypes: dict[tuple[Any, ...], np.dtype] = {}


def infer_elementwise(op: Op, *specs: Any) -> Any:
    """Shape and dtype of an elementwise op's result, without computing it."""

    shape = broadcast_shapes(op.title, *[getattr(x, "shape", ()) for x in specs], names=op.tensor_names)
    wanted = elementwise_dtypes(op, specs)
    key = (op.name, *wanted)
    dtype = _expression_dtypes.get(key)
    if dtype is None:
        with np.errstate(all="ignore"):
            half = any(w.itemsize == 2 and dtypes.is_floating(w) for w in wanted)
            ones = [np.ones(1, F32 if half and dtypes.is_floating(w) else w) for w in wanted]
            dtype = np.asarray(op.expression(*ones)).dtype  # type: ignore[misc]
            if half and dtype == F32:
                dtype = next(w for w in wanted if w.itemsize == 2)
        _expression_dtypes[key] = dtype
    return Spec(shape, dtype)
