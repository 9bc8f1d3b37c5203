"""Automatic mixed precision: matrix products in bfloat16 or float16, sensitive reductions in float32.

The record of an op declares its precision (the fact `autocast`): products (matrix products, convolutions, attention,
recurrent cells) take the short dtype; reductions, norms, losses and functions whose results grow or cancel take float32;
all others compute in the dtypes of their operands, by the ordinary promotion rules. The casts are ordinary ops on the
tape, so gradients arrive in the dtype of the parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import dtypes
from .ops.core import define
from .ops.core.registry import Op
from .ops.core.short_floats import in_autocast
from .tensor import Tensor


class autocast(define.Mode):
    """Context manager or decorator that runs the ops inside in mixed precision.

    Parameters and their gradients stay float32. Nest `autocast(enabled=False)` for a part that must not be cast. The
    backward pass belongs outside of the `with` block; it follows the dtypes of the forward pass.

    Args:
        dtype: the 16-bit dtype, bfloat16 (default) or float16.
        enabled: whether to cast at all.

    >>> x, w = wf.ones(1, 2), wf.ones(2, 3)
    >>> with wf.autocast(wf.bfloat16):
    ...     y = x @ w
    >>> y.dtype.name, w.dtype.name
    ('bfloat16', 'float32')
    """

    def __init__(self, dtype: Any = dtypes.bfloat16, enabled: bool = True) -> None:
        self.dtype = dtypes.as_dtype(dtype)
        if self.dtype not in (dtypes.bfloat16, dtypes.float16):
            raise TypeError(f"autocast: expected bfloat16 or float16. Got {self.dtype.name}.")
        self.casts = self.enabled = bool(enabled)

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        # the innermost autocast decides: those around it must not see the op
        outer = tuple([m for m in define.current_modes() if not isinstance(m, autocast)])
        with define.installed(outer):
            if self.enabled and op.autocast is not None:
                values = _cast(op, values, self.dtype if op.autocast == "low" else dtypes.float32)
            return define.call(op, values)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.dtype, self.enabled):
                return fn(*args, **kwargs)

        return wrapped


def _cast(op: Op, values: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """The arguments with floating tensors below float64 in `dtype`; float64, complex and integers are unchanged."""
    from .ops.array.elementwise import astype

    def convert(v: Any) -> Any:
        if isinstance(v, Tensor) and v.dtype != dtype and v.dtype in _CASTABLE:
            return astype(v, dtype)
        return v

    tensors = op.tensors(values)
    if any(isinstance(t, Tensor) and t.dtype == dtypes.float64 for t in tensors):
        return values  # explicit double precision wins
    return tuple(op.merge([convert(t) for t in tensors], op.attrs(values)))


_CASTABLE = (dtypes.float16, dtypes.bfloat16, dtypes.float32)


def is_autocast_enabled() -> bool:
    """Whether ops of this thread are being cast."""
    return in_autocast()
