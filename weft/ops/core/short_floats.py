"""float32 accumulation for 16-bit floats in eager calls; see Note [Short floats] in `weft.ops.core.registry`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from . import modes
from .registry import Op

SHORT = (dtypes.float16, dtypes.bfloat16)
F32 = dtypes.float32
ndarray = np.ndarray


def is_short(dtype: np.dtype) -> bool:
    """Whether `dtype` is a 16-bit float."""
    return dtype.itemsize == 2 and dtype in SHORT


def any_short(operands: Sequence[Any]) -> bool:
    """Whether any of the arrays, tensors or Specs has a 16-bit float dtype."""
    for x in operands:
        if x is not None and x.dtype.itemsize == 2 and x.dtype in SHORT:
            return True
    return False


# Arrays ---------------------------------------------------------------------------------------------------------------


def run_in_float32(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...], run: Callable[[list[Any]], Any]) -> Any:
    """`run(arrays)`, a kernel of `op`, on float32 instead of 16-bit floats; results have the dtypes of the shape rule."""
    specs = op.run(op.infer, op.merge(arrays, attrs))  # type: ignore[arg-type]
    outs = run([a if a is None or not is_short(a.dtype) else a.astype(F32) for a in arrays])
    if type(outs) is tuple:
        return tuple([_rounded(o, spec.dtype) for o, spec in zip(outs, specs, strict=True)])
    return _rounded(outs, specs.dtype)


def _rounded(array: ndarray, dtype: np.dtype) -> ndarray:
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):  # overflow gives inf, without a warning
        return array.astype(dtype)


# Tensors --------------------------------------------------------------------------------------------------------------


def widened(value: Any) -> Any:
    """`value`, a tensor or a sequence of tensors and other things, with 16-bit floats as float32."""
    if isinstance(value, Tensor):
        if is_short(value.dtype):
            from ..array.elementwise import astype

            return astype(value, F32)
        return value
    if isinstance(value, (list, tuple)):
        return [widened(v) for v in value] if value.__class__ is list else tuple([widened(v) for v in value])
    return value


def narrowed(value: Any, dtype: np.dtype) -> Any:
    """The results of a composed function with float32 rounded to `dtype`."""
    if isinstance(value, Tensor):
        if value.dtype == F32:
            from ..array.elementwise import astype

            return astype(value, dtype)
        return value
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([narrowed(v, dtype) for v in value])
    if isinstance(value, (list, tuple)):
        return value.__class__([narrowed(v, dtype) for v in value])
    return value


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The composite `fn` with 16-bit operands widened to float32 and results rounded to the operands' dtype.

    Within `autocast` the results stay float32, as for all accumulating ops.
    """

    def composed(*args: Any, **kwargs: Any) -> Any:
        for value in args:  # `_holds_short` inlined: on the path of every loss call
            if isinstance(value, Tensor):
                if value._data.dtype.itemsize == 2:
                    break
            elif isinstance(value, (list, tuple)) and _holds_short(value):
                break
        else:
            if not kwargs or not _holds_short(tuple(kwargs.values())):
                return fn(*args, **kwargs)
        kept = _common(args, kwargs)
        out = fn(*[widened(a) for a in args], **{name: widened(v) for name, v in kwargs.items()})
        return out if kept is None or in_autocast() else narrowed(out, kept)

    composed.__name__, composed.__qualname__ = fn.__name__, fn.__qualname__
    composed.__doc__, composed.__module__ = fn.__doc__, fn.__module__
    composed.__wrapped__ = fn  # type: ignore[attr-defined]  # inspect.signature, help() and stubs show the definition
    return composed


def accumulates(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a composed function that adds numbers up: as users call it, it is `in_float32(fn)`."""
    fn.float32_body = in_float32(fn)  # type: ignore[attr-defined]
    return fn


def _holds_short(value: Any) -> bool:
    if isinstance(value, Tensor):
        return is_short(value._data.dtype)
    return isinstance(value, (list, tuple)) and any(_holds_short(v) for v in value)


def _common(args: tuple[Any, ...], kwargs: dict[str, Any]) -> np.dtype | None:
    """The 16-bit dtype to which the floating tensors among the arguments promote; None if that is a longer one."""
    found = [t.dtype for t in _tensors((*args, *kwargs.values())) if dtypes.is_inexact(t.dtype)]
    dtype = dtypes.result_type(*found)
    return dtype if is_short(dtype) else None


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for v in values:
        if isinstance(v, Tensor):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found += _tensors(v)
    return found


def in_autocast() -> bool:
    """Whether the innermost autocast of this thread, if there is one, is enabled."""
    if modes.active:
        for mode in reversed(modes.current_modes()):
            if mode.casts is not None:
                return bool(mode.casts)
    return False
