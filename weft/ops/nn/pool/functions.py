"""Public pooling functions: max, average, Lp and adaptive pooling, and max unpooling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....tensor import Tensor
from ....typing import OutputSize, ShapeLike
from ...array.shaping import flatten, reshape, squeeze
from ...core.define import composite, primitive
from ...core.samples import Bad, Sample
from ...core.spec import Spec, check_integer, is_known, number
from ..interpolate import _matrix, resample
from ..window import Sizes, Window, per_axis, pooling_window
from ..window_arrays import batched
from .primitives import (
    _avg_reference,
    _index_reference,
    _max_reference,
    avg_pool,
    fold_batch,
    max_pool,
    max_pool_indices,
)


def _undo(single: bool, *tensors: Tensor) -> Any:
    results = tuple([squeeze(t, 0) if single else t for t in tensors])
    return results if len(results) > 1 else results[0]


# Max pooling ---------------------------------------------------------------------------------------------------------


def _max_pool(
    n: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool
) -> Any:
    op = f"max_pool{n}d"
    x, single = batched(op, x, n)
    window = pooling_window(op, n, kernel_size, stride, padding, dilation, "ceil" if ceil_mode else "floor")
    y, places = max_pool(x, window)
    if not return_indices:
        return _undo(single, y)
    return _undo(single, y, max_pool_indices(places, x, window))


def _many(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


def _reference_window(
    n: int, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Window:
    kernel = _many(kernel_size, n)
    strides = kernel if stride is None else _many(stride, n)
    return Window(kernel, strides, tuple((p, p) for p in _many(padding, n)), _many(dilation, n), ceil_mode)


def _max_pool_reference(n: int) -> Any:
    def reference(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:  # fmt: skip
        window = _reference_window(n, kernel_size, stride, padding, dilation, ceil_mode)
        single = x.ndim == n + 1
        x = x[None] if single else x
        y, places = _max_reference(x, window)
        indices = _index_reference(places, x, window)
        if single:
            y, indices = y[0], indices[0]
        return (y, indices) if return_indices else y

    return reference


def _max_bad(n: int) -> Any:
    op = f"max_pool{n}d"

    def errors(m: Any) -> list[Bad]:
        x = m.normal(2, 3, *(4,) * n)
        return [
            Bad(ValueError, f"{op}: kernel_size must be at least 1", x, 0),
            Bad(ValueError, f"{op}: stride must be at least 1", x, 2, 0),
            Bad(ValueError, f"{op}: padding must be at least 0", x, 2, padding=-1),
            Bad(ValueError, f"{op}: padding must be at most half the kernel", x, 2, padding=2),
            Bad(ValueError, f"{op}: the kernel is larger than the padded input", x, 5),
            Bad(ValueError, f"{op}: expected x of shape", m.normal(3), 2),
            Bad(TypeError, f"{op}: kernel_size must be an integer", x, 1.5),
            Bad(ValueError, f"{op}: kernel_size must be a number or {n} numbers", x, (2,) * (n + 1)),
            Bad(TypeError, f"{op}: expected real numbers. Got bool", m.bools(2, 3, *(4,) * n), 2),
        ]

    return errors


@composite(
    namespace="nn", reference=_max_pool_reference(1), errors=_max_bad(1),
    samples=lambda m: [
        Sample(m.distinct(2, 3, 7), 2),
        Sample(m.distinct(3, 7), 3, 2, 1, return_indices=True),
        Sample(m.distinct(2, 3, 8), 2, 3, dilation=3, ceil_mode=True),
        Sample(m.ints(2, 3, 8), 3),
    ],
)  # fmt: skip
def max_pool1d(
    x: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, L) or (C, L). Arguments as for `max_pool2d`."""
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(
    namespace="nn", reference=_max_pool_reference(2), errors=_max_bad(2),
    samples=lambda m: [
        Sample(m.distinct(2, 3, 6, 6), 2),
        Sample(m.distinct(2, 3, 7, 6), (3, 2), 2, 1, return_indices=True),
        Sample(m.distinct(3, 6, 7), 3, 2, ceil_mode=True),
        Sample(m.distinct(2, 2, 17, 16), 16, 1),
    ],
)  # fmt: skip
def max_pool2d(
    x: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window. NaN is larger than everything.

    Args:
        x: (N, C, H, W) or (C, H, W).
        kernel_size: of the window, a number or one per axis.
        stride: steps between windows; the kernel size unless given.
        padding: elements around the input that never win; at most half the kernel.
        dilation: steps between the elements of a window.
        ceil_mode: whether a last window may reach beyond the padded input.
        return_indices: whether to return, as second result, where in the flattened (H, W) each maximum is.

    >>> F.max_pool2d(wf.arange(16).reshape(1, 4, 4), 2).tolist()
    [[[5, 7], [13, 15]]]
    """
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(
    namespace="nn", reference=_max_pool_reference(3), errors=_max_bad(3),
    samples=lambda m: [Sample(m.distinct(1, 2, 4, 5, 4), 2), Sample(m.distinct(2, 4, 4, 4), 3, 1, 1, return_indices=True)],
)  # fmt: skip
def max_pool3d(
    x: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, D, H, W) or (C, D, H, W). Arguments as for `max_pool2d`."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _scatter_flat(values: Tensor, indices: Tensor, size: Any, add: bool) -> Tensor:
    """(N, C, *out) values put at flat `indices` of zeros (N, C, *size)."""
    from ...array.creation import zeros
    from ...array.gathering import scatter, scatter_add

    lead = tuple(values.shape[:2])
    base = zeros(*lead, prod(size), dtype=values.dtype)
    flat = (scatter_add if add else scatter)(base, flatten(indices, 2), flatten(values, 2), axis=2)
    return reshape(flat, (*lead, *size))


def _max_unpool(
    n: int, x: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    op = f"max_unpool{n}d"
    x, single = batched(op, x, n)
    indices, _ = batched(op, indices, n)
    if tuple(indices.shape) != tuple(x.shape):
        raise ValueError(
            f"{op}: x and indices must have one shape. Got {format_shape(x.shape)} and {format_shape(indices.shape)}."
        )
    window = pooling_window(op, n, kernel_size, stride, padding, 1, "floor")
    size = window.transposed_sizes(x.shape[2:], (0,) * n)
    if output_size is not None:
        wanted = per_axis(op, tuple(output_size)[-n:], n, "output_size", 1)
        if any(abs(a - b) >= s for a, b, s in zip(wanted, size, window.stride, strict=True)):
            raise ValueError(f"{op}: output_size must be within a stride of {size}. Got {output_size!r}.")
        size = wanted
    return _undo(single, _scatter_flat(x, indices, size, add=False))


def _unpool_reference(
    x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> np.ndarray:
    n = x.ndim - 2
    k = _many(kernel_size, n)
    s, p = k if stride is None else _many(stride, n), _many(padding, n)
    size = [(d - 1) * b - 2 * c + a for d, a, b, c in zip(x.shape[2:], k, s, p, strict=True)]
    size = size if output_size is None else list(output_size)[-n:]
    out = np.zeros((*x.shape[:2], int(np.prod(size))))
    for cell in np.ndindex(*x.shape):
        out[cell[0], cell[1], indices[cell]] = x[cell]
    return out.reshape(*x.shape[:2], *size)


@composite(
    namespace="nn", reference=_unpool_reference,
    samples=lambda m: [Sample(m.normal(2, 1, 3), np.array([[[0, 3, 4]], [[1, 2, 5]]]), 2)],
    errors=lambda m: [Bad(ValueError, "max_unpool1d: x and indices must have one shape", m.normal(2, 1, 3), m.ints(2, 1, 2), 2)],
)  # fmt: skip
def max_unpool1d(
    x: Tensor,
    indices: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool1d`: scatter values to `indices`, zeros elsewhere."""
    return _max_unpool(1, x, indices, kernel_size, stride, padding, output_size)


@composite(
    namespace="nn", reference=_unpool_reference,
    samples=lambda m: [
        Sample(m.normal(1, 1, 2, 2), np.array([[[[0, 3], [9, 14]]]]), 2),
        Sample(m.normal(1, 1, 2, 2), np.array([[[[0, 3], [9, 14]]]]), 2, output_size=(5, 5)),
    ],
    errors=lambda m: [
        Bad(ValueError, "max_unpool2d: output_size must be", m.normal(1, 1, 2, 2), m.ints(1, 1, 2, 2), 2, output_size=(9, 9)),
    ],
)  # fmt: skip
def max_unpool2d(
    x: Tensor,
    indices: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool2d`: scatter values to `indices`, zeros elsewhere."""
    return _max_unpool(2, x, indices, kernel_size, stride, padding, output_size)


@composite(
    namespace="nn", reference=_unpool_reference,
    samples=lambda m: [Sample(m.normal(1, 1, 1, 1, 2), np.array([[[[[0, 6]]]]]), 2)],
)  # fmt: skip
def max_unpool3d(
    x: Tensor,
    indices: Tensor,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool3d`: scatter values to `indices`, zeros elsewhere."""
    return _max_unpool(3, x, indices, kernel_size, stride, padding, output_size)


# Average and Lp pooling ----------------------------------------------------------------------------------------------


def _avg_pool(
    n: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Tensor:
    op = f"avg_pool{n}d"
    x, single = batched(op, x, n)
    window = pooling_window(op, n, kernel_size, stride, padding, 1, "ceil" if ceil_mode else "floor")
    if divisor is not None and check_integer(op, divisor, "divisor_override") == 0:
        raise ValueError(f"{op}: divisor_override must be an integer other than 0. Got {divisor!r}.")
    return _undo(single, avg_pool(x, window, bool(include), divisor))


def _avg_pool_reference(n: int) -> Any:
    def reference(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Any = None,
    ) -> np.ndarray:  # fmt: skip
        window = _reference_window(n, kernel_size, stride, padding, 1, ceil_mode)
        single = x.ndim == n + 1
        y = _avg_reference(x[None] if single else x, window, count_include_pad, divisor_override)
        return y[0] if single else y

    return reference


def _avg_bad(n: int) -> Any:
    op = f"avg_pool{n}d"

    def errors(m: Any) -> list[Bad]:
        x = m.normal(2, 3, *(4,) * n)
        return [
            Bad(ValueError, f"{op}: kernel_size must be at least 1", x, 0),
            Bad(ValueError, f"{op}: padding must be at most half the kernel", x, 2, padding=2),
            Bad(ValueError, f"{op}: the kernel is larger than the padded input", x, 5),
            Bad(TypeError, f"{op}: expected a floating tensor", m.ints(2, 3, *(4,) * n), 2),
        ]

    return errors


@composite(
    namespace="nn", reference=_avg_pool_reference(1), errors=_avg_bad(1),
    samples=lambda m: [Sample(m.normal(2, 3, 7), 2), Sample(m.normal(3, 7), 3, 2, 1, count_include_pad=False)],
)  # fmt: skip
def avg_pool1d(
    x: Tensor, kernel_size: ShapeLike, stride: ShapeLike | None = None, padding: ShapeLike = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of every window over (N, C, L) or (C, L). Arguments as for `avg_pool2d`."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(
    namespace="nn", reference=_avg_pool_reference(2),
    errors=lambda m: [
        *_avg_bad(2)(m), Bad(ValueError, "avg_pool2d: divisor_override", m.normal(2, 3, 4, 4), 2, divisor_override=0),
    ],
    samples=lambda m: [
        Sample(m.normal(2, 3, 6, 6), 2),
        Sample(m.normal(3, 7, 6), (3, 2), 2, 1, True, False),
        Sample(m.normal(2, 3, 6, 6), 3, 2, 1, True, True),
        Sample(m.normal(2, 3, 6, 6), 2, divisor_override=3),
    ],
)  # fmt: skip
def avg_pool2d(
    x: Tensor, kernel_size: ShapeLike, stride: ShapeLike | None = None, padding: ShapeLike = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of every window.

    Args:
        x: (N, C, H, W) or (C, H, W), floating.
        kernel_size: of the window, a number or one per axis.
        stride: steps between windows; the kernel size unless given.
        padding: zeros around the input, at most half the kernel.
        ceil_mode: whether a last window may reach beyond the padded input.
        count_include_pad: whether the zeros of the padding count as elements.
        divisor_override: what sums are divided by, instead of the number of elements.

    >>> F.avg_pool2d(wf.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(
    namespace="nn", reference=_avg_pool_reference(3), errors=_avg_bad(3),
    samples=lambda m: [Sample(m.normal(1, 2, 4, 5, 4), 2), Sample(m.normal(2, 4, 4, 4), 3, 1, 1)],
)  # fmt: skip
def avg_pool3d(
    x: Tensor, kernel_size: ShapeLike, stride: ShapeLike | None = None, padding: ShapeLike = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of every window over (N, C, D, H, W) or (C, D, H, W). Arguments as for `avg_pool2d`."""
    return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(n: int, x: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    """(Σ |x|^p)^(1/p); where the sum is zero so is the gradient."""
    from ...array.elementwise import abs_, where

    op = f"lp_pool{n}d"
    norm_type = number(op, "norm_type", norm_type)
    if not norm_type > 0:
        raise ValueError(f"{op}: norm_type must be positive. Got {norm_type!r}.")
    x, single = batched(op, x, n)
    window = pooling_window(op, n, kernel_size, stride, 0, 1, "ceil" if ceil_mode else "floor")
    total = avg_pool(abs_(x) ** norm_type, window, True, 1)
    zero = total == 0
    root = where(zero, 1.0, total) ** (1.0 / norm_type)
    return _undo(single, where(zero, 0.0, root))


def _lp_reference(n: int) -> Any:
    def reference(
        x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> np.ndarray:
        window = _reference_window(n, kernel_size, stride, ceil_mode=ceil_mode)
        return _avg_reference(np.abs(x) ** norm_type, window, True, 1) ** (1 / norm_type)

    return reference


@composite(
    accumulate="float32",
    namespace="nn", reference=_lp_reference(1),
    samples=lambda m: [Sample(m.positive(2, 3, 7), 2, 3, 2)],
    errors=lambda m: [Bad(ValueError, "lp_pool1d: norm_type must be positive", m.normal(2, 3, 4), 0, 2)],
)  # fmt: skip
def lp_pool1d(
    x: Tensor, norm_type: float, kernel_size: ShapeLike, stride: ShapeLike | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, L) or (C, L), with p = `norm_type`."""
    return _lp_pool(1, x, norm_type, kernel_size, stride, ceil_mode)


@composite(
    accumulate="float32",
    namespace="nn", reference=_lp_reference(2),
    samples=lambda m: [Sample(m.normal(2, 3, 4, 4), 2, 2), Sample(m.positive(1, 2, 5, 5), 3.0, (2, 3), 2, True)],
)  # fmt: skip
def lp_pool2d(
    x: Tensor, norm_type: float, kernel_size: ShapeLike, stride: ShapeLike | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, H, W) or (C, H, W), with p = `norm_type`."""
    return _lp_pool(2, x, norm_type, kernel_size, stride, ceil_mode)


@composite(
    accumulate="float32",
    namespace="nn", reference=_lp_reference(3),
    samples=lambda m: [Sample(m.normal(1, 2, 2, 4, 4), 2, 2)],
)  # fmt: skip
def lp_pool3d(
    x: Tensor, norm_type: float, kernel_size: ShapeLike, stride: ShapeLike | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`."""
    return _lp_pool(3, x, norm_type, kernel_size, stride, ceil_mode)


# Adaptive pooling: windows derived from the output size --------------------------------------------------------------


def _output_size(op: str, x: Tensor, output_size: Any, n: int) -> tuple[Any, ...]:
    """One size per axis; None keeps the input's."""
    items = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(items) != n:
        raise ValueError(
            f"{op}: output_size must be a number or {n} numbers, one per spatial axis. Got {output_size!r}."
        )
    sizes = tuple(
        [x.shape[2 + i] if s is None else per_axis(op, s, 1, "output_size", 1)[0] for i, s in enumerate(items)]
    )
    if 0 in x.shape[2:]:
        raise ValueError(f"{op}: there is nothing to pool. Got x of shape {format_shape(x.shape)}.")
    return sizes


def _regular(x: Tensor, size: Any) -> Window | None:
    """The window that gives `size` if all windows are equal and do not overlap, else None."""
    if not is_known(x.shape[2:]) or any(s % o for s, o in zip(x.shape[2:], size, strict=True)):
        return None
    kernel = tuple([s // o for s, o in zip(x.shape[2:], size, strict=True)])
    return Window(kernel, kernel, ((0, 0),) * len(kernel), (1,) * len(kernel))


def _adaptive_avg_pool(n: int, x: Tensor, output_size: Any) -> Tensor:
    op = f"adaptive_avg_pool{n}d"
    x, single = batched(op, x, n)
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(f"{op}: expected a floating tensor. Got {x.dtype.name}; use `x.astype(wf.float32)`.")
    size = _output_size(op, x, output_size, n)
    window = _regular(x, size)
    if window is not None:
        y = avg_pool(x, window, True, None)
    elif all(s == 1 for s in size):
        from ...array.reduction import mean

        y = mean(x, axis=tuple(range(2, n + 2)), keepdims=True)
    else:  # the mean over a box is a mean along each axis in turn
        y = x
        for i, s in enumerate(size):
            if s != x.shape[2 + i]:
                y = resample(y, 2 + i, s, "area", False, None)
    return _undo(single, y)


def _adaptive_avg_reference(x: Any, output_size: Any) -> np.ndarray:
    items = output_size if isinstance(output_size, tuple) else None
    n = len(items) if items else x.ndim - 2
    for axis, s in zip(range(-n, 0), items or (output_size,) * n, strict=True):
        if s is not None:
            x = np.moveaxis(np.moveaxis(x, axis, -1) @ _matrix(x.shape[axis], s, "area", False, None).T, -1, axis)
    return x


def _adaptive_bad(kind: str, n: int) -> Any:
    op = f"adaptive_{kind}_pool{n}d"
    return lambda m: [
        Bad(ValueError, f"{op}: output_size must be at least 1", m.normal(2, 3, *(4,) * n), 0),
        Bad(
            ValueError, f"{op}: output_size must be a number or {n} numbers", m.normal(2, 3, *(4,) * n), (2,) * (n + 1)
        ),
        Bad(ValueError, f"{op}: there is nothing to pool", m.normal(2, 3, *(0,) * n), 1),
        Bad(ValueError, f"{op}: expected x of shape", m.normal(2), 1),
    ]


@composite(
    accumulate="float32",
    namespace="nn", reference=_adaptive_avg_reference, errors=_adaptive_bad("avg", 1),
    samples=lambda m: [Sample(m.normal(2, 3, 7), 3), Sample(m.normal(2, 3, 6), 3)],
)  # fmt: skip
def adaptive_avg_pool1d(x: Tensor, output_size: OutputSize) -> Tensor:
    """The means over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
    return _adaptive_avg_pool(1, x, output_size)


@composite(
    accumulate="float32",
    namespace="nn", reference=_adaptive_avg_reference, errors=_adaptive_bad("avg", 2),
    samples=lambda m: [
        Sample(m.normal(2, 3, 5, 7), 1), Sample(m.normal(2, 3, 5, 7), (3, 4)), Sample(m.normal(2, 3, 4, 6), (2, 3)),
        Sample(m.normal(3, 5, 7), (None, 3)), Sample(m.normal(1, 2, 2, 3), (5, 5)),
    ],
)  # fmt: skip
def adaptive_avg_pool2d(x: Tensor, output_size: OutputSize) -> Tensor:
    """The means over windows that cover the image evenly.

    Args:
        x: (N, C, H, W) or (C, H, W), floating.
        output_size: how many windows along each axis, a number or one per axis; None keeps the input's size. Window i
            of o covers elements floor(i·L/o) to ceil((i+1)·L/o) - 1.

    >>> F.adaptive_avg_pool2d(wf.arange(16.0).reshape(1, 4, 4), 1).tolist()
    [[[7.5]]]
    """
    return _adaptive_avg_pool(2, x, output_size)


@composite(
    accumulate="float32",
    namespace="nn", reference=_adaptive_avg_reference, errors=_adaptive_bad("avg", 3),
    samples=lambda m: [Sample(m.normal(1, 2, 3, 4, 5), (2, 2, 2)), Sample(m.normal(1, 2, 3, 4, 2), 1)],
)  # fmt: skip
def adaptive_avg_pool3d(x: Tensor, output_size: OutputSize) -> Tensor:
    """The means over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly. See `adaptive_avg_pool2d`."""
    return _adaptive_avg_pool(3, x, output_size)


def _adaptive_reference(x: Any, size: Any) -> Any:
    y = np.empty((*x.shape[:2], *size))
    indices = np.empty(y.shape, np.int64)
    places = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:])
    for cell in np.ndindex(*size):
        cut = tuple(slice(i * n // s, -((i + 1) * n // -s)) for i, n, s in zip(cell, x.shape[2:], size, strict=True))
        part = x[(slice(None), slice(None), *cut)].reshape(*x.shape[:2], -1)
        y[(slice(None), slice(None), *cell)] = part.max(-1)
        indices[(slice(None), slice(None), *cell)] = places[cut].reshape(-1)[part.argmax(-1)]
    return y, indices


def _infer_adaptive(x: Any, size: Any) -> tuple[Spec, Spec]:
    if dtypes.is_complex(x.dtype) or dtypes.is_bool(x.dtype):
        raise TypeError(f"adaptive_max_pool{len(size)}d: expected real numbers. Got {x.dtype.name}.")
    shape = None if x.shape is None else (*x.shape[:2], *size)
    return Spec(shape, x.dtype), Spec(shape, dtypes.int64)


@primitive(
    accumulate="exact",
    checks_once=True,
    outputs=2,
    cost="reduce",
    infer=_infer_adaptive,
    vjp=lambda g, out1, like_x: _scatter_flat(g[0], out1, tuple(like_x.shape[2:]), add=True),
    batch=fold_batch(lambda: adaptive_max_pool),
    namespace="internal",
    reference=_adaptive_reference,
    samples=lambda m: [Sample(m.distinct(2, 3, 5, 7), (3, 4)), Sample(m.distinct(2, 2, 5), (2,))],
)
def adaptive_max_pool(x: Tensor, size: Sizes) -> Any:
    """The maxima over windows that cover the spatial axes evenly, and their flat indices."""
    y, index, unit = np.asarray(x), np.broadcast_to(np.zeros((), np.int64), x.shape), 1
    # Axis by axis from the last: the first maximum of the first row that has it is the first one of the window.
    for axis in range(y.ndim - 1, 1, -1):
        n, count = x.shape[axis], size[axis - 2]
        cell = np.arange(count)
        start, stop = cell * n // count, -((cell + 1) * n // -count)
        # (count, widest): narrower windows repeat their last element, which never wins a tie
        window = np.minimum(start[:, None] + np.arange((stop - start).max(initial=1)), stop[:, None] - 1)
        along = window.reshape(*window.shape, *(1,) * (y.ndim - 1 - axis))
        part, places = np.take(y, window, axis), np.take(index, window, axis) + along * unit
        best = part.argmax(axis + 1, keepdims=True)
        y = np.take_along_axis(part, best, axis + 1).squeeze(axis + 1)
        index = np.take_along_axis(places, best, axis + 1).squeeze(axis + 1)
        unit *= n
    return y, index


def _adaptive_max_pool(n: int, x: Tensor, output_size: Any, return_indices: bool) -> Any:
    op = f"adaptive_max_pool{n}d"
    x, single = batched(op, x, n)
    size = _output_size(op, x, output_size, n)
    window = _regular(x, size)
    if window is not None:
        y, places = max_pool(x, window)
        return _undo(single, y, max_pool_indices(places, x, window)) if return_indices else _undo(single, y)
    y, indices = adaptive_max_pool(x, size)
    return _undo(single, y, indices) if return_indices else _undo(single, y)


def _adaptive_max_reference(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    n = x.ndim - 2
    items = output_size if isinstance(output_size, tuple) else (output_size,) * n
    y, indices = _adaptive_reference(x, [x.shape[2 + i] if s is None else s for i, s in enumerate(items)])
    return (y, indices) if return_indices else y


@composite(
    namespace="nn", reference=_adaptive_max_reference, errors=_adaptive_bad("max", 1),
    samples=lambda m: [Sample(m.distinct(2, 3, 7), 3), Sample(m.distinct(2, 3, 6), 3, return_indices=True)],
)  # fmt: skip
def adaptive_max_pool1d(
    x: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
    return _adaptive_max_pool(1, x, output_size, return_indices)


@composite(
    namespace="nn", reference=_adaptive_max_reference, errors=_adaptive_bad("max", 2),
    samples=lambda m: [
        Sample(m.distinct(2, 3, 5, 7), (3, 4), return_indices=True), Sample(m.distinct(2, 3, 4, 6), (2, None)),
        Sample(m.distinct(2, 3, 4, 6), 2, return_indices=True),
    ],
)  # fmt: skip
def adaptive_max_pool2d(
    x: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over windows that cover the image evenly. Windows as for `adaptive_avg_pool2d`."""
    return _adaptive_max_pool(2, x, output_size, return_indices)


@composite(
    namespace="nn", reference=_adaptive_max_reference, errors=_adaptive_bad("max", 3),
    samples=lambda m: [Sample(m.distinct(1, 2, 3, 4, 5), (2, 2, 2))],
)  # fmt: skip
def adaptive_max_pool3d(
    x: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly."""
    return _adaptive_max_pool(3, x, output_size, return_indices)
