"""Random tensors for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft as wf

from .. import dtypes
from ..ops.core.spec import check_shape
from ..tensor import Tensor


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
) -> Tensor:
    """A tensor of uniform random numbers in [low, high), drawn with Weft's generator.

    Args:
        shape: integers or one tuple.
        dtype: any dtype.
        device: the CPU.
        low, high: bounds; [-9, 9] by default, [0, 1] for bools, [0, 9] for unsigned integers.
        requires_grad: whether the result requires gradients.
        noncontiguous: a view with gaps between elements.
        exclude_zero: replace zeros by the smallest positive number.

    >>> x = wf.testing.make_tensor((2, 3), dtype=wf.float32, low=1, high=2)
    >>> x.shape, bool((x >= 1).all())
    ((2, 3), True)
    """
    sizes = check_shape("make_tensor", shape[0] if len(shape) == 1 else shape)
    resolved = dtypes.as_dtype(dtype)
    start, stop = (0.0, 2.0) if dtypes.is_bool(resolved) else (0.0, 10.0) if resolved.kind == "u" else (-9.0, 9.0)
    start, stop = start if low is None else float(low), stop if high is None else float(high)
    if not start < stop:
        raise ValueError(f"make_tensor: low must be below high. Got {start} and {stop}.")
    drawn = (*sizes[:-1], 2 * sizes[-1]) if noncontiguous and sizes else sizes
    values = wf.rand(drawn, dtype=wf.float64).numpy() * (stop - start) + start
    if dtypes.is_complex(resolved):
        values = values + 1j * (wf.rand(drawn, dtype=wf.float64).numpy() * (stop - start) + start)
    elif not dtypes.is_inexact(resolved):
        values = np.floor(values)
    array = np.asarray(dtypes.convert(np.asarray(values), resolved))
    if exclude_zero:
        small = (
            1
            if not dtypes.is_inexact(resolved)
            else np.finfo(dtypes.real_dtype(resolved)).tiny
            if resolved.kind in "fc"
            else 1e-38
        )
        array = np.where(array == 0, np.asarray(small, resolved), array)
    result = wf.asarray(array[..., ::2] if noncontiguous and sizes else array)
    return result.requires_grad_() if requires_grad else result
