"""The dtypes of Weft and the array API's promotion rules.

A Weft dtype *is* a NumPy dtype object: `wf.float32 == np.float32`, and dtypes need no translation between the two. Two
rules differ from NumPy, both taken from the array API and from the needs of model code:

* the default floating dtype is float32 (`set_default_dtype` changes it): integers combined with a Python float, a true
  division or a function such as `exp` become float32, not float64;
* promotion between a signed and an unsigned 64-bit integer, or between integers and floats of different tensors,
  is NumPy's except that an integer tensor never widens a float tensor (int64 with float32 stays float32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from .tensor import Tensor
    from .typing import DTypeLike

bool_ = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGRAL = SIGNED + UNSIGNED
FLOATING = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
ALL = (bool_, *INTEGRAL, *FLOATING, *COMPLEX)

# The rank orders kinds: bool < integer < float < complex. Promotion never lowers the kind.
_KIND = {d: k for k, group in enumerate(((bool_,), INTEGRAL, FLOATING, COMPLEX)) for d in group}
# One object per dtype: the hot path compares dtypes with `is` (NumPy may hand out equal dtypes that are not identical).
_SAME = {d: d for d in ALL}
_BY_NAME = {d.name: d for d in ALL} | {"bool_": bool_, "float": float32, "int": int64, "complex": complex64}
_KIND_NAMES = {
    "bool": (bool_,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGRAL,
    "real floating": FLOATING,
    "complex floating": COMPLEX,
    "numeric": INTEGRAL + FLOATING + COMPLEX,
}

_default_float = float32


def get_default_dtype() -> np.dtype:
    """The default floating dtype: that of Python floats and of true division of integers.

    >>> wf.get_default_dtype().name
    'float32'
    """
    return _default_float


def set_default_dtype(dtype: DTypeLike) -> None:
    """Set the default floating dtype of this process (float32 or float64)."""
    global _default_float
    dtype = as_dtype(dtype)
    if dtype not in (float32, float64):
        raise TypeError(f"set_default_dtype: dtype must be float32 or float64. Got {dtype.name}.")
    _default_float = dtype


def as_dtype(dtype: Any) -> np.dtype:
    """The Weft dtype for a dtype object, a name, a NumPy scalar type or a Python type."""
    found = _SAME.get(dtype) if isinstance(dtype, np.dtype) else None
    if found is not None:
        return found
    if dtype is float:
        return _default_float
    if dtype is int:
        return int64
    if dtype is bool:
        return bool_
    if dtype is complex:
        return complex64 if _default_float is float32 else complex128
    if isinstance(dtype, str) or dtype is None:  # NumPy would read None as float64
        found = _BY_NAME.get(dtype)
    else:
        try:
            found = np.dtype(dtype)
        except TypeError:
            found = None
    if found is not None:
        # normalise byte order, and equal dtypes that are other objects
        found = _SAME.get(found if found in _SAME else found.newbyteorder("="))
        if found is not None:
            return found
    names = ", ".join(d.name for d in ALL)
    raise TypeError(f"dtype: {dtype!r} is not a Weft dtype. Expected one of {names}.")


def is_bool(dtype: np.dtype) -> bool:
    return dtype.kind == "b"


def is_integral(dtype: np.dtype) -> bool:
    return dtype.kind in "iu"


def is_floating(dtype: np.dtype) -> bool:
    """True for real floating dtypes."""
    return dtype.kind == "f" or dtype == bfloat16


def is_complex(dtype: np.dtype) -> bool:
    return dtype.kind == "c"


def is_inexact(dtype: np.dtype) -> bool:
    """True for dtypes that can carry a gradient: real and complex floating."""
    return _KIND[dtype] >= 2


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part of `dtype`."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose parts are as precise as `dtype`."""
    return complex128 if dtype in (float64, complex128) else complex64


def float_for(dtype: np.dtype) -> np.dtype:
    """The floating dtype in which a function such as `exp` of a tensor of `dtype` is computed."""
    return dtype if _KIND[dtype] >= 2 else _default_float


# The integers of a dtype lie in [low, high): both are powers of two or 0, which every float dtype but float16 holds exactly.
_RANGE = {d: (float(np.iinfo(d).min), float(int(np.iinfo(d).max) + 1)) for d in INTEGRAL}


def convert(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A new array of `dtype` with the values of `array`.

    Floats are truncated to integers; NaN becomes 0 and values out of range saturate. C and NumPy leave both undefined;
    native code does the same as this function.
    """
    if dtype.kind not in "iu" or not is_floating(array.dtype) or not array.size:
        return array.astype(dtype)
    if array.dtype.itemsize == 2:
        array = array.astype(float32)
    low, high = _RANGE[dtype]
    with np.errstate(invalid="ignore"):
        if array.min() >= low and array.max() < high:
            return array.astype(dtype)
        out = np.asarray(np.where((array > low) & (array < high), array, array.dtype.type(0))).astype(dtype)
        out[array >= high] = np.iinfo(dtype).max
        out[array <= low] = np.iinfo(dtype).min
    return out


_promotions: dict[tuple[np.dtype, np.dtype], np.dtype] = {}


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype of a result made from tensors of dtypes `a` and `b`."""
    if a is b:
        return a
    found = _promotions.get((a, b))
    if found is None:
        found = _promotions[a, b] = _promote(a, b)
    return found


def _promote(a: np.dtype, b: np.dtype) -> np.dtype:
    ka, kb = _KIND[a], _KIND[b]
    if ka > kb:
        a, b, ka, kb = b, a, kb, ka
    if kb == 3:  # complex with anything: precision of the inexact operands
        return complex128 if float64 in (a, b) or complex128 in (a, b) else complex64
    if ka != kb:  # bool < integer < float: the higher kind wins unchanged
        return b
    if {a, b} == {float16, bfloat16}:
        return float32
    if kb == 2:
        return a if a.itemsize > b.itemsize else b
    if uint64 in (a, b) and (a in SIGNED or b in SIGNED):
        raise TypeError(
            f"dtype promotion: {a.name} and {b.name} have no common integer dtype. "
            "Cast one of them first, for example `x.astype(wf.int64)`."
        )
    return np.promote_types(a, b)


def scalar_dtype(value: bool | int | float | complex, dtype: np.dtype) -> np.dtype:
    """The dtype of `tensor_of_dtype op value` for a Python scalar, which is weak: only its kind matters."""
    kind = 0 if value.__class__ is bool else 1 if isinstance(value, int) else 2 if isinstance(value, float) else 3
    have = _KIND[dtype]
    if kind <= have:
        return dtype
    if kind == 1:
        return int64
    if kind == 2:
        return _default_float
    return complex_dtype(dtype if have == 2 else _default_float)


def python_scalar_dtype(value: Any) -> np.dtype:
    """The dtype of a tensor made from a single Python scalar."""
    return as_dtype(bool if isinstance(value, bool) else int if isinstance(value, int) else type(value))


def result_type(*operands: Any) -> np.dtype:
    """The dtype to which tensors, dtypes and (weak) Python scalars promote.

    >>> wf.result_type(wf.int32, wf.float32, 1.5).name
    'float32'
    """
    result: np.dtype | None = None
    scalars = []
    for operand in operands:
        if isinstance(operand, (bool, int, float, complex)) and not isinstance(operand, np.generic):
            scalars.append(operand)
            continue
        dtype = getattr(operand, "dtype", None)
        dtype = as_dtype(operand if dtype is None or isinstance(operand, (np.dtype, type)) else dtype)
        result = dtype if result is None else promote(result, dtype)
    if result is None:
        if not scalars:
            raise ValueError("result_type: at least one tensor or dtype is needed.")
        result = python_scalar_dtype(max(scalars, key=lambda v: _KIND[python_scalar_dtype(v)]))
    for value in scalars:
        result = scalar_dtype(value, result)
    return result


def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> bool:
    """Whether `from_` (a tensor or a dtype) can be cast to `to` by the promotion rules.

    >>> wf.can_cast(wf.int32, wf.int64), wf.can_cast(wf.float32, wf.int64)
    (True, False)
    """
    source = as_dtype(from_.dtype if hasattr(from_, "dtype") and not isinstance(from_, type) else from_)
    to = as_dtype(to)
    try:
        return promote(source, to) == to
    except TypeError:
        return False


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Whether `dtype` is of `kind`: a dtype, one of the array API's kind names, or a tuple of those.

    >>> wf.isdtype(wf.float32, "real floating")
    True
    """
    dtype = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KIND_NAMES:
            raise ValueError(f"isdtype: unknown kind {kind!r}. Expected one of {', '.join(_KIND_NAMES)}.")
        return dtype in _KIND_NAMES[kind]
    return dtype == as_dtype(kind)


class FloatLimits(NamedTuple):
    """Result of `finfo`: limits as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    tiny: float
    dtype: np.dtype


def finfo(type: DTypeLike, /) -> FloatLimits:
    """Limits of a floating dtype (or of a tensor's dtype): bits, eps, max, min, smallest_normal, dtype.

    >>> wf.finfo(wf.float16).max
    65504.0
    """
    dtype = as_dtype(getattr(type, "dtype", type) if not isinstance(type, np.dtype) else type)
    if dtype not in FLOATING + COMPLEX:
        raise TypeError(f"finfo: expected a floating dtype. Got {dtype.name}; use iinfo for integers.")
    dtype = real_dtype(dtype)
    info: Any = ml_dtypes.finfo(dtype) if dtype is bfloat16 else np.finfo(dtype)
    normal = float(info.smallest_normal)
    return FloatLimits(info.bits, float(info.eps), float(info.max), float(info.min), normal, normal, dtype)


def iinfo(type: DTypeLike, /) -> Any:
    """Limits of an integer dtype (or of a tensor's dtype): bits, max, min, dtype.

    >>> wf.iinfo(wf.int8).max
    127
    """
    dtype = as_dtype(getattr(type, "dtype", type) if not isinstance(type, np.dtype) else type)
    if dtype not in INTEGRAL:
        raise TypeError(f"iinfo: expected an integer dtype. Got {dtype.name}; use finfo for floats.")
    return np.iinfo(dtype)
