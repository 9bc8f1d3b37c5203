"""Convolution and transposed convolution layers over one to three axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ops.array.creation import empty
from ...ops.core.spec import check_size
from ...tensor import Tensor
from ...typing import DTypeLike, ShapeLike
from .. import functional as F
from .. import init
from ..module import Layer
from ..parameter import Parameter

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _sizes(op: str, name: str, value: Any, n: int, least: int = 0) -> tuple[int, ...]:
    """`value` as one integer of at least `least` per axis."""
    given = (value,) * n if isinstance(value, int) else value
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == n:
        return tuple([check_size(op, v, name, least) for v in given])
    raise ValueError(f"{op}: {name} must be an integer or {n} integers. Got {value!r}.")


class _ConvNd(Layer):
    """Base of all convolutions: settings, parameters and initialisation."""

    _axes: int
    _min_in_channels = 1
    _transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: ShapeLike,
        stride: ShapeLike = 1,
        padding: ShapeLike | str = 0,
        dilation: ShapeLike = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        output_padding: ShapeLike = 0,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        op, n = type(self).__name__, self._axes
        in_channels = check_size(op, in_channels, "in_channels", self._min_in_channels)
        out_channels = check_size(op, out_channels, "out_channels", 1)
        groups = check_size(op, groups, "groups", 1)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{op}: groups must divide both channel counts. "
                f"Got in_channels={in_channels}, out_channels={out_channels}, groups={groups}."
            )
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"{op}: padding_mode must be one of {PADDING_MODES}. Got {padding_mode!r}.")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"{op}: padding must be numbers, 'same' or 'valid'. Got {padding!r}.")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _sizes(op, "kernel_size", kernel_size, n, 1)
        self.stride = _sizes(op, "stride", stride, n, 1)
        self.padding: Any = padding if isinstance(padding, str) else _sizes(op, "padding", padding, n)
        self.dilation = _sizes(op, "dilation", dilation, n, 1)
        self.output_padding = _sizes(op, "output_padding", output_padding, n)
        self.padding_mode = padding_mode
        first, second = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self.weight = Parameter(empty((first, second // groups, *self.kernel_size), dtype=dtype))
        self.bias = Parameter(empty((out_channels,), dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values: uniform in ±1/√(inputs of one output)."""
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        init.fan_in_uniform_(self.weight, fan_in)
        if self.bias is not None:
            init.fan_in_uniform_(self.bias, fan_in)

    def _border(self) -> tuple[int, ...]:
        """The padding as `F.pad` wants it: (before, after) per axis, last axis first."""
        if self.padding == "valid":
            return (0, 0) * self._axes
        pairs: list[int] = []
        for i in reversed(range(self._axes)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                pairs += [total // 2, total - total // 2]
            else:
                pairs += [self.padding[i], self.padding[i]]
        return tuple(pairs)

    def _convolve(self, convolution: Any, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self._border(), mode=self.padding_mode), 0
        return convolution(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self._axes, (1,) * self._axes
        for name, default in (
            ("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1), ("padding_mode", "zeros"),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value!r}"
        return text if self.bias is not None else text + ", bias=False"


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: ShapeLike,
        stride: ShapeLike = 1,
        padding: ShapeLike | str = 0,
        dilation: ShapeLike = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, dtype=dtype
        )


class Conv1d(_Conv):
    """Convolution over one axis. Arguments as for `Conv2d`.

    Shapes: x (N, in_channels, L) or without N → (N, out_channels, L').

    >>> nn.Conv1d(3, 8, 5, padding="same")(wf.ones(1, 3, 16)).shape
    (1, 8, 16)
    """

    _axes = 1

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(F.conv1d, x)


class Conv2d(_Conv):
    """Convolution over two axes.

    Args:
        in_channels, out_channels: channels of the input and of the result.
        kernel_size, stride, dilation: a number or one per axis.
        padding: a number, one per axis, "same" or "valid".
        groups: channels are split into this many independent groups.
        bias: whether to add a learned bias per output channel.
        padding_mode: how the input is padded: "zeros", "reflect", "replicate" or "circular".

    Shapes: x (N, in_channels, H, W) or without N → (N, out_channels, H', W'); `weight` is (out, in/groups, KH, KW).

    >>> nn.Conv2d(3, 8, 3, stride=2, padding=1)(wf.ones(1, 3, 8, 8)).shape
    (1, 8, 4, 4)
    """

    _axes = 2

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(F.conv2d, x)


class Conv3d(_Conv):
    """Convolution over three axes. Arguments as for `Conv2d`.

    Shapes: x (N, in_channels, D, H, W) or without N → (N, out_channels, D', H', W').

    >>> nn.Conv3d(1, 4, 3)(wf.ones(1, 1, 5, 5, 5)).shape
    (1, 4, 3, 3, 3)
    """

    _axes = 3

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(F.conv3d, x)


class _ConvTranspose(_ConvNd):
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: ShapeLike,
        stride: ShapeLike = 1,
        padding: ShapeLike | str = 0,
        output_padding: ShapeLike = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: ShapeLike = 1,
        padding_mode: str = "zeros",
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        if padding_mode != "zeros" or isinstance(padding, str):
            raise ValueError(
                f"{type(self).__name__}: padding must be numbers with padding_mode 'zeros'. "
                f"Got padding={padding!r}, padding_mode={padding_mode!r}."
            )
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            output_padding, dtype,
        )  # fmt: skip

    def _spread(self, convolution: Any, x: Tensor, output_size: Sequence[int] | None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        return convolution(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that gives `output_size`, one of the `stride` valid sizes."""
        op, n = type(self).__name__, self._axes
        wanted = _sizes(op, "output_size", tuple(output_size)[-n:], n)
        extra = []
        for i in range(n):
            smallest = (
                (x.shape[-n + i] - 1) * self.stride[i] - 2 * self.padding[i]
                + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            )  # fmt: skip
            if not smallest <= wanted[i] < smallest + self.stride[i]:
                raise ValueError(
                    f"{op}: output_size of axis {i} must be from {smallest} to {smallest + self.stride[i] - 1} "
                    f"for an input of size {x.shape[-n + i]}. Got {wanted[i]}."
                )
            extra.append(wanted[i] - smallest)
        return tuple(extra)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one axis. Arguments as for `ConvTranspose2d`."""

    _axes = 1

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._spread(F.conv_transpose1d, x, output_size)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over two axes: it maps the shape of a convolution's result back to that of its input.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as for `Conv2d`.
        output_padding: extra rows and columns at the end; `forward(x, output_size=…)` derives it from a size instead.

    Shapes: x (N, in_channels, H, W) → (N, out_channels, H', W'); `weight` is (in, out/groups, KH, KW).

    >>> nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1)(wf.ones(1, 8, 4, 4)).shape
    (1, 3, 8, 8)
    """

    _axes = 2

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._spread(F.conv_transpose2d, x, output_size)


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three axes. Arguments as for `ConvTranspose2d`."""

    _axes = 3

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._spread(F.conv_transpose3d, x, output_size)
