"""Transposed convolution: the input gradient of a convolution, as a forward op."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....errors import format_shape
from ....tensor import Tensor
from ....typing import ShapeLike
from ...array.padding import pad
from ...array.shaping import reshape, squeeze
from ...core.define import composite
from ...core.samples import Bad, Sample
from ...core.spec import is_known, same_size
from ..linear import add_bias
from ..window import Sizes, Window, pad_pairs, per_axis
from ..window_arrays import batched
from .convolution import _check_dtypes, convolution_backward_input
from .functions import window_of


def _check(op: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    _check_dtypes(op, x=x, weight=weight, bias=bias)
    if groups < 1:
        raise ValueError(f"{op}: groups must be at least 1. Got {groups}.")
    channels, per_group = weight.shape[0], weight.shape[1]
    if not same_size(x.shape[1], channels):
        raise ValueError(
            f"{op}: the channels of x and weight do not fit. Got x of shape {format_shape(x.shape)} and weight of shape "
            f"{format_shape(weight.shape)}; expected weight.shape[0] == {x.shape[1]}: the weight of a transposed convolution "
            "is (input channels, output channels / groups, *kernel)."
        )
    if channels % groups:
        raise ValueError(
            f"{op}: groups must divide the input channels. Got {channels} input channels and groups={groups}."
        )
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != per_group * groups):
        raise ValueError(
            f"{op}: bias must have one number per output channel. Got bias of shape {format_shape(bias.shape)}; "
            f"expected ({per_group * groups},)."
        )


def _sizes(op: str, x: Tensor, window: Window, extra: Sizes) -> Sizes:
    if not is_known(x.shape[2:]):
        raise ValueError(f"{op}: the spatial sizes of x must be known. Got {format_shape(x.shape)}.")
    if any(e >= max(s, d) for e, s, d in zip(extra, window.stride, window.dilation, strict=True)):
        raise ValueError(
            f"{op}: output_padding must be smaller than stride or dilation. Got output_padding={extra}, "
            f"stride={window.stride}, dilation={window.dilation}."
        )
    sizes = window.transposed_sizes(x.shape[2:], extra)
    if any(n < 1 for n in sizes):
        raise ValueError(
            f"{op}: nothing is left of the output. Got x of shape {format_shape(x.shape)}, kernel {window.kernel}, stride "
            f"{window.stride} and padding {window.padding}, which give spatial size {sizes}; expected at least 1. Use less "
            f"padding."
        )
    return sizes


def _conv_transpose(
    n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any,
    groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    op = f"conv_transpose{n}d"
    if not hasattr(weight, "ndim") or weight.ndim != n + 2:
        raise ValueError(
            f"{op}: weight must have {n + 2} axes, (input channels, output channels / groups, *kernel). "
            f"Got {format_shape(getattr(weight, 'shape', ()))}."
        )
    x, single = batched(op, x, n)
    _check(op, x, weight, bias, groups)
    window = window_of(op, weight, stride, pad_pairs(op, padding, n), dilation)
    extra = per_axis(op, output_padding, n, "output_padding", 0)
    size = _sizes(op, x, window, extra)
    # A convolution maps `stride` input sizes to one; output_padding beyond that first restores cropped padding, then
    # adds empty rows.
    beyond = [max(e - (s - 1), 0) for e, s in zip(extra, window.stride, strict=True)]
    shown = [min(b, high) for b, (_, high) in zip(beyond, window.padding, strict=True)]
    pairs = tuple([(low, high - u) for (low, high), u in zip(window.padding, shown, strict=True)])
    empty = [b - u for b, u in zip(beyond, shown, strict=True)]
    filled = tuple([full - e for full, e in zip(size, empty, strict=True)])
    y = convolution_backward_input(x, weight, None, filled, replace(window, padding=pairs), groups)
    y = pad(y, ((0, 0), (0, 0), *[(0, e) for e in empty])) if any(empty) else y
    if bias is not None:
        y = add_bias(y, reshape(bias, (-1, *(1,) * n)))
    return squeeze(y, 0) if single else y


def _reference(n: int) -> Any:
    def reference(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> np.ndarray:  # fmt: skip
        single = x.ndim == n + 1
        x = x[None] if single else x
        s, p, e, d = ((v,) * n if isinstance(v, int) else tuple(v) for v in (stride, padding, output_padding, dilation))
        kernel = weight.shape[2:]
        reach = [(x.shape[2 + i] - 1) * s[i] + 1 for i in range(n)]  # of one element of the kernel
        whole = [reach[i] + d[i] * (kernel[i] - 1) + e[i] for i in range(n)]
        parts = x.reshape(len(x), groups, -1, *x.shape[2:])
        taps = weight.reshape(groups, -1, weight.shape[1], *kernel)
        y = np.zeros((len(x), groups, weight.shape[1], *whole), np.result_type(x, weight))
        for place in np.ndindex(*kernel):
            cut = tuple([slice(k * d[i], k * d[i] + reach[i], s[i]) for i, k in enumerate(place)])
            y[:, :, :, *cut] += np.einsum("ngc...,gco->ngo...", parts, taps[:, :, :, *place])
        inside = tuple([slice(p[i], whole[i] - p[i]) for i in range(n)])
        y = y.reshape(len(x), -1, *whole)[:, :, *inside]
        y = y if bias is None else y + bias.reshape(-1, *[1] * n)
        return y[0] if single else y

    return reference


def _bad(n: int) -> Any:
    op = f"conv_transpose{n}d"

    def errors(m: Any) -> list[Bad]:
        x, w = m.normal(2, 4, *(3,) * n), m.normal(4, 2, *(3,) * n)
        return [
            Bad(ValueError, f"{op}: the channels of x and weight do not fit", x, m.normal(3, 2, *(3,) * n)),
            Bad(ValueError, f"{op}: groups must divide the input channels", x, w, groups=3),
            Bad(ValueError, f"{op}: output_padding must be smaller", x, w, output_padding=1),
            Bad(ValueError, f"{op}: nothing is left", x, w, padding=9),
            Bad(ValueError, f"{op}: bias must have one number", x, w, m.normal(3)),
            Bad(ValueError, f"{op}: weight must have {n + 2} axes", x, m.normal(3)),
        ]

    return errors


@composite(
    namespace="nn",
    reference=_reference(1),
    tolerance=4.0,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), m.normal(3, 2, 3), m.normal(2), stride=2, padding=1, output_padding=1),
        Sample(m.normal(4, 4), m.normal(4, 2, 3), groups=2, dilation=2),
        Sample(m.normal(2, 3, 4), m.normal(3, 2, 3), m.normal(2), dilation=4, output_padding=3),
        Sample(m.normal(2, 3, 4), m.normal(3, 2, 3), stride=2, padding=1, dilation=5, output_padding=4),
    ],
    errors=_bad(1),
)
def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike = 0, output_padding: ShapeLike = 0, groups: int = 1, dilation: ShapeLike = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over one axis. Arguments as for `conv_transpose2d`.

    Args:
        x: (N, C, L) or (C, L).
        weight: (C, O/groups, K).
        bias: (O,) or None.
    """
    return _conv_transpose(1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(
    namespace="nn",
    reference=_reference(2),
    tolerance=4.0,
    samples=lambda m: [
        Sample(
            m.normal(2, 3, 3, 4),
            m.normal(3, 2, 3, 2),
            m.normal(2),
            stride=(2, 1),
            padding=(1, 0),
            output_padding=(1, 0),
        ),
        Sample(m.normal(2, 4, 3, 3), m.normal(4, 1, 3, 3), groups=4, padding=1),
        Sample(m.normal(4, 3, 3), m.normal(4, 3, 2, 2), groups=2, dilation=2, stride=2),
    ],
    errors=_bad(2),
)
def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike = 0, output_padding: ShapeLike = 0, groups: int = 1, dilation: ShapeLike = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over two axes: it maps the shape of a `conv2d` result back to that of its input.

    Args:
        x: (N, C, H, W) or (C, H, W).
        weight: (C, O/groups, KH, KW), of the dtype of `x`.
        bias: (O,) or None.
        stride: of the convolution that this transposes: the output grows by it.
        padding: of the convolution that this transposes: the output shrinks by it on both sides.
        output_padding: rows and columns added at the end, to choose among the sizes that `conv2d` maps to the same size.
        groups: channels are split into this many independent groups.
        dilation: distance between kernel elements.

    Returns:
        (N, O, H', W') with H' = (H-1)·stride - 2·padding + dilation·(KH-1) + output_padding + 1.

    >>> F.conv_transpose2d(wf.ones(1, 8, 4, 4), wf.ones(8, 3, 2, 2), stride=2).shape
    (1, 3, 8, 8)
    """
    return _conv_transpose(2, x, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(
    namespace="nn",
    reference=_reference(3),
    tolerance=4.0,
    samples=lambda m: [
        Sample(
            m.normal(1, 2, 2, 3, 2), m.normal(2, 2, 2, 3, 2), m.normal(2), stride=2, padding=1, output_padding=(0, 1, 0)
        )
    ],
    errors=_bad(3),
)
def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: ShapeLike = 1, padding: ShapeLike = 0, output_padding: ShapeLike = 0, groups: int = 1, dilation: ShapeLike = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over three axes. Arguments as for `conv_transpose2d`.

    Args:
        x: (N, C, D, H, W) or (C, D, H, W).
        weight: (C, O/groups, KD, KH, KW).
        bias: (O,) or None.
    """
    return _conv_transpose(3, x, weight, bias, stride, padding, output_padding, groups, dilation)
