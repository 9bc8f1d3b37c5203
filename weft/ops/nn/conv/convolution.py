"""Convolution over one, two or three spatial axes, and its input and weight gradients as separate ops.

`convolution` is linear in x and in weight; `convolution_backward_input` and `convolution_backward_weight` are its
transposes. Each is the derivative of the others, so gradients of any order are again convolutions.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....tensor import Tensor
from ....typing import ShapeLike
from ...array.shaping import as_tensor, broadcast_to, expand_dims, moveaxis, reshape, squeeze
from ...core.define import composite, primitive
from ...core.samples import Bad, Sample
from ...core.spec import Spec, check_size, is_known, same_size
from ..windows import Pairs, batched, out_sizes, pad_pairs, per_axis, same_padding
from . import reference as _conv_arrays

Sizes = tuple[int, ...]


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


def _check_attrs(op: str, n: int, stride: Any, padding: Any, dilation: Any) -> None:
    for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        if not isinstance(value, tuple) or len(value) != n:
            raise ValueError(f"{op}: {name} must be a tuple with one entry per spatial axis, {n} here. Got {value!r}.")


@lru_cache(4096)
def _convolved_shape(x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    op = f"conv{len(w_shape) - 2}d"
    x, weight = Spec(x_shape, dtypes.float32), Spec(w_shape, dtypes.float32)
    if not 3 <= len(w_shape) <= 5 or len(x_shape) != len(w_shape):
        raise ValueError(
            f"convolution: x and weight must both have 3, 4 or 5 axes. Got {format_shape(x_shape)} and {format_shape(w_shape)}."
        )
    _check_attrs(op, len(w_shape) - 2, stride, padding, dilation)
    _check_channels(op, x_shape[1], weight, groups, x)
    if 0 in w_shape[2:]:
        raise ValueError(f"{op}: the kernel is empty. Got weight of shape {format_shape(w_shape)}.")
    return (x_shape[0], w_shape[0], *out_sizes(op, x, w_shape[2:], stride, padding, dilation))


def _infer(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Spec:
    if x.shape is None or weight.shape is None:
        return Spec(None, x.dtype)
    op = f"conv{len(weight.shape) - 2}d"
    dtype = _check_dtypes(op, x=x, weight=weight, bias=bias)
    shape = _convolved_shape(x.shape, weight.shape, stride, padding, dilation, groups)
    if bias is not None and bias.shape is not None and (len(bias.shape) != 1 or not same_size(bias.shape[0], shape[1])):
        raise ValueError(
            f"{op}: bias must have one number per output channel. Got bias of shape {format_shape(bias.shape)}; "
            f"expected {format_shape(shape[1:2])}."
        )
    return Spec(shape, dtype)


def _infer_input(
    g: Any, weight: Any, like: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Spec:
    if g.shape is None or weight.shape is None:
        return Spec(None, g.dtype)
    op = "convolution_backward_input"
    dtype = _check_dtypes(op, g=g, weight=weight)
    spatial = tuple(size if size is not None else like.shape[2:])
    if not isinstance(weight.shape[1], int):
        return Spec((g.shape[0], None, *spatial), dtype)
    shape = (g.shape[0], weight.shape[1] * groups, *spatial)
    expected = _convolved_shape(shape, weight.shape, stride, padding, dilation, groups)
    if len(expected) != len(g.shape) or not all(same_size(a, b) for a, b in zip(expected, g.shape, strict=True)):
        raise ValueError(
            f"{op}: g does not have the shape of the convolution's result. Got {format_shape(g.shape)}; "
            f"expected {format_shape(expected)}."
        )
    return Spec(shape, dtype)


def _infer_weight(x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Spec:
    op = "convolution_backward_weight"
    if x.shape is None or g.shape is None:
        return Spec((None, None, *kernel), x.dtype)
    dtype = _check_dtypes(op, x=x, g=g)
    channels, out = x.shape[1], g.shape[1]
    if not isinstance(channels, int) or not isinstance(out, int):
        return Spec((out, None, *kernel), dtype)
    shape = (out, channels // groups, *kernel)
    expected = _convolved_shape(x.shape, shape, stride, padding, dilation, groups)
    if len(expected) != len(g.shape) or not all(same_size(a, b) for a, b in zip(expected, g.shape, strict=True)):
        raise ValueError(
            f"{op}: g does not have the shape of the convolution's result. Got {format_shape(g.shape)}; "
            f"expected {format_shape(expected)}."
        )
    return Spec(shape, dtype)


# Gradient rules and batching -----------------------------------------------------------------------------------------


def _input_gradient(g: Tensor, weight: Tensor, like: Any, *window: Any) -> Tensor:
    if is_known(like.shape[2:]):
        return convolution_backward_input(g, weight, None, tuple(like.shape[2:]), *window)
    return convolution_backward_input(g, weight, as_tensor(like), None, *window)


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
    *window, groups = attrs
    y = convolution(
        _into_channels(x),
        _fold(weight),
        None if bias is None else _fold(expand_dims(bias, 2))[:, 0],
        *window,
        groups * size,
    )
    return _out_of_channels(y, size)


def _batch_input(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    g, weight, like = tensors
    size, *window, groups = attrs
    if like is not None:
        size = tuple(like.shape[3:] if axes[2] is not None else like.shape[2:])
    if axes[0] is None and axes[1] is None:  # only the shape operand is batched
        y = convolution_backward_input(g, weight, None, size, *window, groups)
        return broadcast_to(y, (like.shape[0], *y.shape))
    if axes[1] is None:
        y = convolution_backward_input(_fold(g), weight, None, size, *window, groups)
        return reshape(y, (*g.shape[:2], *y.shape[1:]))
    g, weight = _all_batched(axes[:2], (g, weight))
    count = g.shape[0]
    y = convolution_backward_input(_into_channels(g), _fold(weight), None, size, *window, groups * count)
    return _out_of_channels(y, count)


def _batch_weight(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    x, g = _all_batched(axes, tensors)
    *window, groups = attrs
    count = x.shape[0]
    w = convolution_backward_weight(_into_channels(x), _into_channels(g), *window, groups * count)
    return reshape(w, (count, w.shape[0] // count, *w.shape[1:]))


def _cost(x_shape: Any, w_shape: Any, out_shape: Any) -> int:
    return 2 * prod(w_shape[1:]) * prod(out_shape)


# The primitives ------------------------------------------------------------------------------------------------------


@primitive(
    accumulate="kernels",
    checks_once=True,
    infer=_infer,
    vjp=(
        lambda g, weight, like_x, stride, padding, dilation, groups: _input_gradient(
            g, weight, like_x, stride, padding, dilation, groups
        ),
        lambda g, x, like_weight, stride, padding, dilation, groups: convolution_backward_weight(
            x, g, tuple(like_weight.shape[2:]), stride, padding, dilation, groups
        ),
        lambda g: _bias_gradient(g),
    ),
    batch=_batch,
    cost=lambda x, weight, bias, *window: _cost(x.shape, weight.shape, _infer(x, weight, bias, *window).shape),
    namespace="nn",
    reference=_conv_arrays.reference,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 6), m.normal(4, 3, 3), m.normal(4), (1,), ((1, 1),), (1,), 1),
        Sample(m.normal(2, 3, 5, 6), m.normal(4, 3, 3, 2), None, (2, 1), ((0, 1), (1, 0)), (1, 2), 1),
        Sample(m.normal(2, 4, 5, 5), m.normal(6, 2, 3, 3), m.normal(6), (2, 2), ((1, 1), (1, 1)), (1, 1), 2),
        Sample(m.normal(2, 3, 5, 4), m.normal(6, 1, 3, 3), None, (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
        Sample(
            m.normal(1, 2, 4, 3, 3),
            m.normal(3, 2, 2, 2, 2),
            m.normal(3),
            (2, 1, 1),
            ((0, 0), (1, 1), (0, 0)),
            (1, 1, 1),
            1,
        ),
        Sample(m.normal(2, 3, 4, 4), m.normal(5, 3, 1, 1), None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        Sample(m.normal(0, 3, 4, 4), m.normal(5, 3, 3, 3), None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "convolution: x and weight must both have",
            m.normal(2, 3),
            m.normal(4, 3),
            None,
            (1,),
            ((0, 0),),
            (1,),
            1,
        ),
        Bad(
            ValueError,
            "conv2d: stride must be a tuple",
            m.normal(2, 3, 4, 4),
            m.normal(4, 3, 1, 1),
            None,
            (1,),
            ((0, 0),),
            (1,),
            1,
        ),
    ],
)
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int
) -> Any:
    """The primitive behind `conv1d`, `conv2d` and `conv3d`: one entry per spatial axis, padding as (before, after).

    Args:
        x: (N, C, *spatial) of any strides.
        weight: (O, C/groups, *kernel).
        bias: (O,) or None.

    Returns:
        (N, O, *out), with channels-last strides.
    """
    return _conv_arrays.forward(x, weight, bias, stride, padding, dilation, groups)  # type: ignore[arg-type]


@primitive(
    accumulate="kernels",
    checks_once=True,
    infer=_infer_input,
    vjp=(
        lambda g, weight, stride, padding, dilation, groups: convolution(
            g, weight, None, stride, padding, dilation, groups
        ),
        lambda g_out, g, like_weight, stride, padding, dilation, groups: convolution_backward_weight(
            g_out, g, tuple(like_weight.shape[2:]), stride, padding, dilation, groups
        ),
        None,
    ),
    batch=_batch_input,
    cost=lambda g, weight, *rest: _cost(None, weight.shape, g.shape),
    namespace="internal",
    reference=_conv_arrays.reference_input,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 4, 6), m.normal(4, 3, 3), None, (6,), (1,), ((1, 1),), (1,), 1),
        Sample(m.normal(2, 4, 2, 5), m.normal(4, 3, 3, 2), None, (5, 6), (2, 1), ((0, 1), (1, 0)), (1, 2), 1),
        Sample(m.normal(2, 6, 3, 3), m.normal(6, 2, 3, 3), None, (6, 5), (2, 2), ((1, 1), (1, 1)), (1, 1), 2),
        Sample(m.normal(2, 6, 5, 4), m.normal(6, 1, 3, 3), None, (5, 4), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
        Sample(
            m.normal(2, 4, 2, 2), m.normal(4, 3, 2, 2), m.normal(2, 3, 3, 3), None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1
        ),
    ],
    test={"differentiable_inputs": (0, 1)},
    errors=lambda m: [
        Bad(
            ValueError,
            "g does not have the shape",
            m.normal(2, 4, 6),
            m.normal(4, 3, 3),
            None,
            (9,),
            (1,),
            ((1, 1),),
            (1,),
            1,
        )
    ],
)
def convolution_backward_input(
    g: Tensor, weight: Tensor, like: Tensor | None, size: Sizes | None,
    stride: Sizes, padding: Pairs, dilation: Sizes, groups: int,
) -> Any:  # fmt: skip
    """The gradient of `convolution` in its input: from (N, O, *out) to (N, C, *size), or to the sizes of `like`."""
    spatial = like.shape[2:] if size is None else size  # type: ignore[union-attr]
    return _conv_arrays.backward_input(g, weight, spatial, stride, padding, dilation, groups)  # type: ignore[arg-type]


@primitive(
    accumulate="kernels",
    checks_once=True,
    infer=_infer_weight,
    vjp=(
        lambda g_out, g, like_x, stride, padding, dilation, groups: _input_gradient(
            g, g_out, like_x, stride, padding, dilation, groups
        ),
        lambda g_out, x, stride, padding, dilation, groups: convolution(
            x, g_out, None, stride, padding, dilation, groups
        ),
    ),
    batch=_batch_weight,
    cost=lambda x, g, *rest: _cost(None, _infer_weight(x, g, *rest).shape, g.shape),
    namespace="internal",
    reference=_conv_arrays.reference_weight,
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 6), m.normal(2, 4, 6), (3,), (1,), ((1, 1),), (1,), 1),
        Sample(m.normal(2, 3, 5, 6), m.normal(2, 4, 2, 5), (3, 2), (2, 1), ((0, 1), (1, 0)), (1, 2), 1),
        Sample(m.normal(2, 4, 5, 5), m.normal(2, 6, 3, 3), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 2),
        Sample(m.normal(2, 3, 5, 4), m.normal(2, 6, 5, 4), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "g does not have the shape",
            m.normal(2, 3, 6),
            m.normal(2, 4, 5),
            (3,),
            (1,),
            ((1, 1),),
            (1,),
            1,
        )
    ],
)
def convolution_backward_weight(
    x: Tensor, g: Tensor, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int
) -> Any:
    """The gradient of `convolution` in its weight: from (N, C, *spatial) and (N, O, *out) to (O, C/groups, *kernel)."""
    return _conv_arrays.backward_weight(x, g, kernel, stride, padding, dilation, groups)  # type: ignore[arg-type]


# Public functions ----------------------------------------------------------------------------------------------------


@lru_cache(1024)
def _window(op: str, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Sizes, Pairs, Sizes]:
    strides = per_axis(op, stride, n, "stride", 1)
    dilations = per_axis(op, dilation, n, "dilation", 1)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"{op}: padding must be a number, numbers, 'same' or 'valid'. Got {padding!r}.")
        if padding == "valid":
            return strides, ((0, 0),) * n, dilations
        if any(s != 1 for s in strides):
            raise ValueError(
                f"{op}: padding='same' needs a stride of 1. Got stride={stride!r}; pass the padding as numbers."
            )
        return strides, same_padding(kernel, dilations), dilations
    return strides, pad_pairs(op, padding, n), dilations


def _hashable(value: Any) -> Any:
    return tuple([_hashable(v) for v in value]) if isinstance(value, list) else value


def _check_weight(op: str, weight: Tensor, n: int) -> None:
    if not hasattr(weight, "ndim") or weight.ndim != n + 2:
        shape = getattr(weight, "shape", weight)
        raise ValueError(
            f"{op}: weight must have {n + 2} axes, (output channels, input channels / groups, *kernel). "
            f"Got {format_shape(shape)}."
        )


def _conv(
    n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    op = f"conv{n}d"
    _check_weight(op, weight, n)
    x, single = batched(op, x, n)
    window = _window(op, n, tuple(weight.shape[2:]), _hashable(stride), _hashable(padding), _hashable(dilation))
    y = convolution(x, weight, bias, *window, groups)
    return squeeze(y, 0) if single else y


def _conv_reference(n: int) -> Any:
    def reference(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> np.ndarray:
        single = x.ndim == n + 1
        many = [(v,) * n if isinstance(v, int) else tuple(v) for v in (stride, dilation)]
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(many[1], weight.shape[2:], strict=True)]
            pads = [(t // 2, t - t // 2) for t in total]
        else:
            values = (0,) * n if padding == "valid" else (padding,) * n if isinstance(padding, int) else padding
            pads = [p if isinstance(p, tuple) else (p, p) for p in values]
        y = _conv_arrays.reference(x[None] if single else x, weight, bias, many[0], pads, many[1], groups)
        return y[0] if single else y

    return reference


def _bad(op: str, n: int) -> Any:
    sizes = (6,) * n

    def errors(m: Any) -> list[Bad]:
        x, w = m.normal(2, 4, *sizes), m.normal(6, 4, *(3,) * n)
        return [
            Bad(ValueError, f"{op}: the channels of x and weight do not fit.*groups=2", x, m.normal(6, 2, *(3,) * n)),
            Bad(ValueError, f"{op}: groups must divide the input channels", x, m.normal(6, 1, *(3,) * n), groups=3),
            Bad(ValueError, f"{op}: groups must divide the output channels", x, m.normal(5, 2, *(3,) * n), groups=2),
            Bad(ValueError, f"{op}: groups must be at least 1", x, w, groups=0),
            Bad(
                ValueError, f"{op}: the kernel is larger than the padded input", x, m.normal(6, 4, *(9,) * n), padding=1
            ),
            Bad(ValueError, f"{op}: the kernel is larger than the padded input", m.normal(2, 4, *(0,) * n), w),
            Bad(ValueError, f"{op}: stride must be at least 1", x, w, stride=0),
            Bad(ValueError, f"{op}: padding must be at least 0", x, w, padding=-1),
            Bad(ValueError, f"{op}: dilation must be at least 1", x, w, dilation=0),
            Bad(ValueError, f"{op}: stride must be a number or {n} numbers", x, w, stride=(1,) * (n + 1)),
            Bad(TypeError, f"{op}: stride must be an integer", x, w, stride=1.5),
            Bad(ValueError, f"{op}: padding must be a number, numbers, 'same' or 'valid'", x, w, padding="full"),
            Bad(ValueError, f"{op}: padding='same' needs a stride of 1", x, w, padding="same", stride=2),
            Bad(ValueError, f"{op}: weight must have {n + 2} axes", x, m.normal(4, 3)),
            Bad(ValueError, f"{op}: expected x of shape \\(batch, channels", m.normal(4), w),
            Bad(ValueError, f"{op}: bias must have one number per output channel", x, w, m.normal(4)),
            Bad(TypeError, f"{op}: the tensors must have one dtype", m.ints(2, 4, *sizes), w),
        ]

    return errors


@composite(
    namespace="nn",
    reference=_conv_reference(1),
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 7), m.normal(4, 3, 3), m.normal(4), stride=2, padding=1),
        Sample(m.normal(2, 3, 7), m.normal(4, 3, 4), padding="same"),
        Sample(m.normal(4, 7), m.normal(4, 2, 3), dilation=2, groups=2),
    ],
    errors=_bad("conv1d", 1),
)
def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike | str = 0, dilation: ShapeLike = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution over one axis. Arguments as for `conv2d`.

    Args:
        x: (N, C, L) or (C, L).
        weight: (O, C/groups, K).
        bias: (O,) or None.

    >>> F.conv1d(wf.tensor([[[1.0, 2.0, 4.0, 8.0]]]), wf.tensor([[[-1.0, 1.0]]])).tolist()
    [[[1.0, 2.0, 4.0]]]
    """
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


@composite(
    namespace="nn",
    reference=_conv_reference(2),
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 6, 5), m.normal(4, 3, 3, 3), m.normal(4), stride=(2, 1), padding=(1, 0)),
        Sample(m.normal(2, 3, 5, 5), m.normal(4, 3, 2, 4), padding="same", dilation=(1, 2)),
        Sample(m.normal(2, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(4), padding=1, groups=4),
        Sample(m.normal(4, 5, 6), m.normal(6, 2, 3, 3), padding=((0, 1), (2, 0)), groups=2),
        Sample(m.normal(2, 3, 5, 5), m.normal(4, 3, 3, 3), padding="valid", stride=[2, 2]),
    ],
    errors=_bad("conv2d", 2),
)
def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike | str = 0, dilation: ShapeLike = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution over two axes: y[o] = bias[o] + Σ over c and kernel positions of weight[o, c] · x[c].

    Args:
        x: (N, C, H, W) or (C, H, W).
        weight: (O, C/groups, KH, KW), of the dtype of `x`.
        bias: (O,) or None.
        stride: distance between windows, a number or one per axis.
        padding: zeros around the input: a number, one per axis, (before, after) per axis, "same" or "valid".
        dilation: distance between kernel elements.
        groups: channels are split into this many independent groups.

    Returns:
        (N, O, H', W'), with channels-last strides.

    >>> F.conv2d(wf.ones(1, 1, 3, 3), wf.ones(1, 1, 3, 3), padding="same")[0, 0].tolist()
    [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


@composite(
    namespace="nn",
    reference=_conv_reference(3),
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(1, 2, 4, 4, 3), m.normal(3, 2, 3, 2, 2), m.normal(3), stride=(1, 2, 1), padding=1),
        Sample(m.normal(1, 2, 3, 3, 3), m.normal(2, 1, 2, 2, 2), padding="same", groups=2),
    ],
    errors=_bad("conv3d", 3),
)
def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike | str = 0, dilation: ShapeLike = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution over three axes. Arguments as for `conv2d`.

    Args:
        x: (N, C, D, H, W) or (C, D, H, W).
        weight: (O, C/groups, KD, KH, KW).
        bias: (O,) or None.

    >>> F.conv3d(wf.ones(1, 1, 3, 3, 3), wf.ones(2, 1, 3, 3, 3)).shape
    (1, 2, 1, 1, 1)
    """
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)
