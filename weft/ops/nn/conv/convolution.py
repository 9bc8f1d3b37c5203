"""Convolution over one, two or three spatial axes, and its input and weight gradients as separate ops.

`convolution` is linear in x and in weight; `convolution_backward_input` and `convolution_backward_weight` are its
transposes. Each is the derivative of the others, so gradients of any order are again convolutions. The public functions are
in `weft.ops.nn.conv.functions`.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....tensor import Tensor
from ...array.shaping import broadcast_to, expand_dims, moveaxis, reshape
from ...core.define import primitive
from ...core.samples import Bad, Sample
from ...core.spec import Spec, check_size, is_known, same_size
from ..window import Sizes, Window, check_window
from ..window_arrays import sized_gradient, spatial_size
from . import reference as _conv_arrays

# Shape rules ---------------------------------------------------------------------------------------------------------


def _check_dtypes(op: str, **tensors: Any) -> np.dtype:
    given = {name: t.dtype for name, t in tensors.items() if t is not None}
    first = next(iter(given.values()))
    if any(d != first for d in given.values()):
        listed = ", ".join(f"{name} {d.name}" for name, d in given.items())
        raise TypeError(f"{op}: the tensors must have one dtype. Got {listed}. Cast with `x.astype(weight.dtype)`.")
    if dtypes.is_bool(first):
        raise TypeError(f"{op}: expected numbers. Got bool; use `x.astype(wf.float32)`.")
    return first


def _check_channels(op: str, channels: Any, weight: Any, groups: int, x: Any) -> None:
    groups = check_size(op, groups, "groups", 1)
    out, per_group = weight.shape[:2]
    if isinstance(out, int) and out % groups:
        raise ValueError(
            f"{op}: groups must divide the output channels. Got {out} output channels and groups={groups}."
        )
    if isinstance(channels, int) and channels % groups:
        raise ValueError(
            f"{op}: groups must divide the input channels. Got {channels} input channels and groups={groups}."
        )
    if isinstance(channels, int) and not same_size(channels // groups, per_group):
        hint = ""
        if groups == 1 and isinstance(per_group, int) and per_group and channels % per_group == 0:
            hint = f" If this is a grouped convolution, pass groups={channels // per_group}."
        raise ValueError(
            f"{op}: the channels of x and weight do not fit. Got x of shape {format_shape(x.shape)} with "
            f"{channels} channels, weight of "
            f"shape {format_shape(weight.shape)} and groups={groups}; expected weight.shape[1] == {channels // groups}.{hint}"
        )


@lru_cache(4096)
def _convolved_shape(x_shape: Any, w_shape: Any, window: Any, groups: int) -> Any:
    op = f"conv{len(w_shape) - 2}d"
    x, weight = Spec(x_shape, dtypes.float32), Spec(w_shape, dtypes.float32)
    if not 3 <= len(w_shape) <= 5 or len(x_shape) != len(w_shape):
        raise ValueError(
            f"convolution: x and weight must both have 3, 4 or 5 axes. Got {format_shape(x_shape)} and {format_shape(w_shape)}."
        )
    check_window(op, window, len(w_shape) - 2)
    if window.ceil_mode or not all(map(same_size, window.kernel, w_shape[2:])):
        raise ValueError(
            f"{op}: the window does not fit the weight. Got {window} and weight of shape {format_shape(w_shape)}; expected "
            f"the kernel {format_shape(w_shape[2:])} without ceil mode."
        )
    _check_channels(op, x_shape[1], weight, groups, x)
    return (x_shape[0], w_shape[0], *window.out_sizes(op, x_shape[2:]))


def _check_result(op: str, g: Any, x_shape: Any, w_shape: Any, window: Any, groups: int) -> None:
    """Raise unless `g` has the shape of the convolution's result."""
    expected = _convolved_shape(x_shape, w_shape, window, groups)
    if len(expected) != len(g.shape) or not all(same_size(a, b) for a, b in zip(expected, g.shape, strict=True)):
        raise ValueError(
            f"{op}: g does not have the shape of the convolution's result. Got {format_shape(g.shape)}; "
            f"expected {format_shape(expected)}."
        )


def _infer(x: Any, weight: Any, bias: Any, window: Any, groups: int) -> Spec:
    if x.shape is None or weight.shape is None:
        return Spec(None, x.dtype)
    op = f"conv{len(weight.shape) - 2}d"
    dtype = _check_dtypes(op, x=x, weight=weight, bias=bias)
    shape = _convolved_shape(x.shape, weight.shape, window, groups)
    if bias is not None and bias.shape is not None and (len(bias.shape) != 1 or not same_size(bias.shape[0], shape[1])):
        raise ValueError(
            f"{op}: bias must have one number per output channel. Got bias of shape {format_shape(bias.shape)}; "
            f"expected {format_shape(shape[1:2])}."
        )
    return Spec(shape, dtype)


def _infer_input(g: Any, weight: Any, like: Any, size: Any, window: Any, groups: int) -> Spec:
    op = "convolution_backward_input"
    check_window(op, window)
    if g.shape is None or weight.shape is None:
        return Spec(None, g.dtype)
    dtype = _check_dtypes(op, g=g, weight=weight)
    spatial = spatial_size(like, size)
    if not isinstance(weight.shape[1], int):
        return Spec((g.shape[0], None, *spatial), dtype)
    shape = (g.shape[0], weight.shape[1] * groups, *spatial)
    _check_result(op, g, shape, weight.shape, window, groups)
    return Spec(shape, dtype)


def _infer_weight(x: Any, g: Any, window: Any, groups: int) -> Spec:
    op = "convolution_backward_weight"
    check_window(op, window)
    kernel = window.kernel
    if x.shape is None or g.shape is None:
        return Spec((None, None, *kernel), x.dtype)
    dtype = _check_dtypes(op, x=x, g=g)
    channels, out = x.shape[1], g.shape[1]
    if not isinstance(channels, int) or not isinstance(out, int):
        return Spec((out, None, *kernel), dtype)
    shape = (out, channels // groups, *kernel)
    _check_result(op, g, x.shape, shape, window, groups)
    return Spec(shape, dtype)


# Gradient rules and batching -----------------------------------------------------------------------------------------


def _input_gradient(g: Tensor, weight: Tensor, like: Any, window: Window, groups: int) -> Tensor:
    return sized_gradient(convolution_backward_input, (g, weight), like, (window, groups))


def _upgrade(weight: Any, attrs: tuple[Any, ...]) -> tuple[Window, int]:
    """From (stride, padding, dilation, groups), the attributes before version 2."""
    stride, padding, dilation, groups = attrs
    kernel = tuple(weight.shape[2:])
    if not is_known(kernel):
        raise ValueError(
            f"convolution: the kernel size is not known. Got weight of shape {format_shape(weight.shape)}."
        )
    return Window(kernel, stride, padding, dilation), groups


def _bias_gradient(g: Tensor) -> Tensor:
    from ...array.reduction import reduce_sum

    return reduce_sum(g, (0, *range(2, g.ndim)), False)


def _all_batched(axes: Any, tensors: Any) -> list[Any]:
    """Every tensor with a batch axis at 0."""
    size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
    return [
        t if t is None or a is not None else broadcast_to(t, (size, *t.shape))
        for t, a in zip(tensors, axes, strict=True)
    ]


def _fold(x: Tensor) -> Tensor:
    """(B, N, …) as (B·N, …)."""
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _into_channels(x: Tensor) -> Tensor:
    """(B, N, C, …) as (N, B·C, …)."""
    x = moveaxis(x, 0, 1)
    return reshape(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))


def _out_of_channels(y: Tensor, size: int) -> Tensor:
    return moveaxis(reshape(y, (y.shape[0], size, y.shape[1] // size, *y.shape[2:])), 1, 0)


def _batch(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    x, weight, bias = tensors
    if axes[1] is None and (bias is None or axes[2] is None):
        y = convolution(_fold(x), weight, bias, *attrs)
        return reshape(y, (*x.shape[:2], *y.shape[1:]))
    x, weight, bias = _all_batched(axes, tensors)
    size = x.shape[0]
    window, groups = attrs
    columns = None if bias is None else _fold(expand_dims(bias, 2))[:, 0]
    y = convolution(_into_channels(x), _fold(weight), columns, window, groups * size)
    return _out_of_channels(y, size)


def _batch_input(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    g, weight, like = tensors
    size, window, groups = attrs
    if like is not None:
        size = tuple(like.shape[3:] if axes[2] is not None else like.shape[2:])
    if axes[0] is None and axes[1] is None:  # only the shape operand is batched
        y = convolution_backward_input(g, weight, None, size, window, groups)
        return broadcast_to(y, (like.shape[0], *y.shape))
    if axes[1] is None:
        y = convolution_backward_input(_fold(g), weight, None, size, window, groups)
        return reshape(y, (*g.shape[:2], *y.shape[1:]))
    g, weight = _all_batched(axes[:2], (g, weight))
    count = g.shape[0]
    y = convolution_backward_input(_into_channels(g), _fold(weight), None, size, window, groups * count)
    return _out_of_channels(y, count)


def _batch_weight(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    x, g = _all_batched(axes, tensors)
    window, groups = attrs
    count = x.shape[0]
    w = convolution_backward_weight(_into_channels(x), _into_channels(g), window, groups * count)
    return reshape(w, (count, w.shape[0] // count, *w.shape[1:]))


def _cost(x_shape: Any, w_shape: Any, out_shape: Any) -> int:
    return 2 * prod(w_shape[1:]) * prod(out_shape)


# The primitives ------------------------------------------------------------------------------------------------------


def _window(kernel: Any, stride: Any, padding: Any, dilation: Any = None) -> Window:
    return Window(kernel, stride, padding, dilation or (1,) * len(kernel))


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: _upgrade(inputs[1], attrs),
    autocast="low",
    accumulate="kernels",
    checks_once=True,
    infer=_infer,
    vjp=(
        lambda g, weight, like_x, window, groups: _input_gradient(g, weight, like_x, window, groups),
        lambda g, x, window, groups: convolution_backward_weight(x, g, window, groups),
        lambda g: _bias_gradient(g),
    ),
    batch=_batch,
    cost=lambda x, weight, bias, *window: _cost(x.shape, weight.shape, _infer(x, weight, bias, *window).shape),
    namespace="internal",
    reference=_conv_arrays.reference,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 6), m.normal(4, 3, 3), m.normal(4), _window((3,), (1,), ((1, 1),)), 1),
        Sample(
            m.normal(2, 3, 5, 6), m.normal(4, 3, 3, 2), None, _window((3, 2), (2, 1), ((0, 1), (1, 0)), (1, 2)), 1
        ),
        Sample(m.normal(2, 4, 5, 5), m.normal(6, 2, 3, 3), m.normal(6), _window((3, 3), (2, 2), ((1, 1), (1, 1))), 2),
        Sample(m.normal(2, 3, 5, 4), m.normal(6, 1, 3, 3), None, _window((3, 3), (1, 1), ((1, 1), (1, 1))), 3),
        Sample(
            m.normal(1, 2, 4, 3, 3), m.normal(3, 2, 2, 2, 2), m.normal(3),
            _window((2, 2, 2), (2, 1, 1), ((0, 0), (1, 1), (0, 0))), 1,
        ),
        Sample(m.normal(2, 3, 4, 4), m.normal(5, 3, 1, 1), None, _window((1, 1), (1, 1), ((0, 0), (0, 0))), 1),
        Sample(m.normal(0, 3, 4, 4), m.normal(5, 3, 3, 3), None, _window((3, 3), (1, 1), ((0, 0), (0, 0))), 1),
    ],
    errors=lambda m: [
        Bad(
            ValueError, "convolution: x and weight must both have",
            m.normal(2, 3), m.normal(4, 3), None, _window((1,), (1,), ((0, 0),)), 1,
        ),
        Bad(
            ValueError, "conv2d: expected a window over 2 spatial axes",
            m.normal(2, 3, 4, 4), m.normal(4, 3, 1, 1), None, _window((1,), (1,), ((0, 0),)), 1,
        ),
        Bad(
            ValueError, "conv2d: the window does not fit the weight",
            m.normal(2, 3, 4, 4), m.normal(4, 3, 1, 1), None, _window((2, 1), (1, 1), ((0, 0), (0, 0))), 1,
        ),
        Bad(
            TypeError, "conv2d: expected a Window. Got \\(1, 1\\)",
            m.normal(2, 3, 4, 4), m.normal(4, 3, 1, 1), None, (1, 1), 1,
        ),
    ],
)  # fmt: skip
def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, window: Window, groups: int) -> Any:
    """The primitive behind `conv1d`, `conv2d` and `conv3d`.

    Args:
        x: (N, C, *spatial) of any strides.
        weight: (O, C/groups, *kernel), with the kernel of `window`.
        bias: (O,) or None.

    Returns:
        (N, O, *out), with channels-last strides.
    """
    return _conv_arrays.forward(x, weight, bias, window, groups)  # type: ignore[arg-type]


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (attrs[0], *_upgrade(inputs[1], attrs[1:])),
    autocast="low",
    accumulate="kernels",
    checks_once=True,
    infer=_infer_input,
    vjp=(
        lambda g, weight, window, groups: convolution(g, weight, None, window, groups),
        lambda g_out, g, window, groups: convolution_backward_weight(g_out, g, window, groups),
        None,
    ),
    batch=_batch_input,
    cost=lambda g, weight, *rest: _cost(None, weight.shape, g.shape),
    namespace="internal",
    reference=_conv_arrays.reference_input,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 4, 6), m.normal(4, 3, 3), None, (6,), _window((3,), (1,), ((1, 1),)), 1),
        Sample(
            m.normal(2, 4, 2, 5), m.normal(4, 3, 3, 2), None, (5, 6),
            _window((3, 2), (2, 1), ((0, 1), (1, 0)), (1, 2)), 1,
        ),
        Sample(
            m.normal(2, 6, 3, 3), m.normal(6, 2, 3, 3), None, (6, 5), _window((3, 3), (2, 2), ((1, 1), (1, 1))), 2
        ),
        Sample(
            m.normal(2, 6, 5, 4), m.normal(6, 1, 3, 3), None, (5, 4), _window((3, 3), (1, 1), ((1, 1), (1, 1))), 3
        ),
        Sample(
            m.normal(2, 4, 2, 2), m.normal(4, 3, 2, 2), m.normal(2, 3, 3, 3), None,
            _window((2, 2), (1, 1), ((0, 0), (0, 0))), 1,
        ),
    ],
    test={"differentiable_inputs": (0, 1)},
    errors=lambda m: [
        Bad(
            ValueError, "g does not have the shape",
            m.normal(2, 4, 6), m.normal(4, 3, 3), None, (9,), _window((3,), (1,), ((1, 1),)), 1,
        )
    ],
)  # fmt: skip
def convolution_backward_input(
    g: Tensor, weight: Tensor, like: Tensor | None, size: Sizes | None, window: Window, groups: int
) -> Any:
    """The gradient of `convolution` in its input: from (N, O, *out) to (N, C, *size), or to the sizes of `like`."""
    return _conv_arrays.backward_input(g, weight, spatial_size(like, size), window, groups)  # type: ignore[arg-type]


@primitive(
    version=2,
    upgrade=lambda version, inputs, attrs: (Window(*attrs[:4]), *attrs[4:]),
    autocast="low",
    accumulate="kernels",
    checks_once=True,
    infer=_infer_weight,
    vjp=(
        lambda g_out, g, like_x, window, groups: _input_gradient(g, g_out, like_x, window, groups),
        lambda g_out, x, window, groups: convolution(x, g_out, None, window, groups),
    ),
    batch=_batch_weight,
    cost=lambda x, g, *rest: _cost(None, _infer_weight(x, g, *rest).shape, g.shape),
    namespace="internal",
    reference=_conv_arrays.reference_weight,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 6), m.normal(2, 4, 6), _window((3,), (1,), ((1, 1),)), 1),
        Sample(m.normal(2, 3, 5, 6), m.normal(2, 4, 2, 5), _window((3, 2), (2, 1), ((0, 1), (1, 0)), (1, 2)), 1),
        Sample(m.normal(2, 4, 5, 5), m.normal(2, 6, 3, 3), _window((3, 3), (2, 2), ((1, 1), (1, 1))), 2),
        Sample(m.normal(2, 3, 5, 4), m.normal(2, 6, 5, 4), _window((3, 3), (1, 1), ((1, 1), (1, 1))), 3),
    ],
    errors=lambda m: [
        Bad(
            ValueError, "g does not have the shape",
            m.normal(2, 3, 6), m.normal(2, 4, 5), _window((3,), (1,), ((1, 1),)), 1,
        )
    ],
)  # fmt: skip
def convolution_backward_weight(x: Tensor, g: Tensor, window: Window, groups: int) -> Any:
    """The gradient of `convolution` in its weight: from (N, C, *spatial) and (N, O, *out) to (O, C/groups, *kernel)."""
    return _conv_arrays.backward_weight(x, g, window, groups)  # type: ignore[arg-type]
