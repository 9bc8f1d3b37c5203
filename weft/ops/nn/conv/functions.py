"""Public convolution functions: `conv1d`, `conv2d`, `conv3d`, and `convolution` for any of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import format_shape
from ....tensor import Tensor
from ....typing import ShapeLike
from ...array.shaping import squeeze
from ...core.define import composite
from ...core.samples import Bad, Sample
from ..window import Pairs, Sizes, Window, convolution_window
from ..window_arrays import batched
from . import convolution as primitives
from .reference import reference as reference_convolution

# Functions for users that are not ops; ops are public by their records.
__all__ = ["convolution"]


def window_of(op: str, weight: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    """The window of a convolution with this weight."""
    return convolution_window(op, tuple(weight.shape[2:]), stride, padding, dilation)


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int
) -> Tensor:
    """Convolution over one to three axes, as many as the weight has: `conv1d`, `conv2d` and `conv3d` in one.

    Args:
        x: (N, C, *spatial) of any strides.
        weight: (O, C/groups, *kernel).
        bias: (O,) or None.
        stride, dilation: one number per spatial axis.
        padding: (before, after) per spatial axis.
        groups: channels are split into this many independent groups.

    Returns:
        (N, O, *out), with channels-last strides.

    >>> F.convolution(wf.ones(1, 1, 4), wf.ones(1, 1, 2), None, (1,), ((0, 0),), (1,), 1).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    window = window_of("convolution", weight, stride, padding, dilation)
    return primitives.convolution(x, weight, bias, window, groups)


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
    y = primitives.convolution(x, weight, bias, window_of(op, weight, stride, padding, dilation), groups)
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
        window = Window(weight.shape[2:], many[0], tuple(pads), many[1])
        y = reference_convolution(x[None] if single else x, weight, bias, window, groups)
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
