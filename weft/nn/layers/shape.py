"""Layers that reshape, rearrange and resample."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import format_shape
from ...ops.core.spec import check_integer, check_size
from ...tensor import Tensor
from ...typing import ShapeLike
from .. import functional as F
from ..module import Layer
from .words import explain_torch_names


@explain_torch_names
class Flatten(Layer):
    """Merge the axes from `start_axis` to `end_axis` into one; by default all but the batch axis.

    >>> nn.Flatten()(wf.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        super().__init__()
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_axis, self.end_axis)

    def extra_repr(self) -> str:
        return f"start_axis={self.start_axis}, end_axis={self.end_axis}"


@explain_torch_names
class Unflatten(Layer):
    """Split axis `axis` into axes of sizes `unflattened_size` (one of them may be -1).

    >>> nn.Unflatten(1, (3, 4))(wf.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, axis: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.axis, self.unflattened_size = axis, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.axis, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"axis={self.axis}, unflattened_size={self.unflattened_size}"


class Upsample(Layer):
    """Resample the spatial axes to `size`, or by `scale_factor`. Modes: nearest, linear, bilinear, trilinear.

    >>> nn.Upsample(scale_factor=2)(wf.ones(1, 3, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: ShapeLike | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        super().__init__()
        if (size is None) == (scale_factor is None):
            raise ValueError(f"Upsample: give size or scale_factor. Got size={size}, scale_factor={scale_factor}.")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        by = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{by}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Two-dimensional nearest-neighbour resampling."""

    def __init__(self, size: ShapeLike | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Two-dimensional bilinear resampling with aligned corners."""

    def __init__(self, size: ShapeLike | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Layer):
    """Rearrange channels into pixels: (…, C·r², H, W) → (…, C, H·r, W·r).

    >>> nn.PixelShuffle(2)(wf.ones(1, 12, 4, 4)).shape
    (1, 3, 8, 8)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Layer):
    """Rearrange pixels into channels: (…, C, H·r, W·r) → (…, C·r², H, W), the inverse of `PixelShuffle`."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Layer):
    """Split the channels into groups and interleave them: (N, C, …) → the same shape."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = check_size("ChannelShuffle", groups, "groups", 1)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] % self.groups:
            raise ValueError(
                f"ChannelShuffle: expected (N, C, …) with C divisible by {self.groups}. Got {format_shape(x.shape)}."
            )
        n, c = x.shape[:2]
        split = x.reshape((n, self.groups, c // self.groups, *x.shape[2:]))
        return split.transpose(1, 2).reshape(x.shape)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Layer):
    """Extract sliding windows as columns (im2col): (N, C, H, W) → (N, C · kernel elements, windows).

    >>> nn.Unfold(3)(wf.ones(1, 2, 5, 5)).shape
    (1, 18, 9)
    """

    def __init__(
        self, kernel_size: ShapeLike, dilation: ShapeLike = 1, padding: ShapeLike = 0, stride: ShapeLike = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}"


class Fold(Layer):
    """Sum sliding windows into an image (col2im): the transpose of `Unfold`.

    >>> nn.Fold((5, 5), 3)(wf.ones(1, 18, 9)).shape
    (1, 2, 5, 5)
    """

    def __init__(
        self,
        output_size: ShapeLike,
        kernel_size: ShapeLike,
        dilation: ShapeLike = 1,
        padding: ShapeLike = 0,
        stride: ShapeLike = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, kernel_size={self.kernel_size}, stride={self.stride}"


class _Pad(Layer):
    """`padding` is a number or (before, after) per axis, last axis first."""

    _axes: int
    _mode = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        op, given = type(self).__name__, (padding,) * (2 * self._axes) if isinstance(padding, int) else padding
        if not isinstance(given, (tuple, list)):
            raise TypeError(f"{op}: padding must be a number or {2 * self._axes} numbers. Got {padding!r}.")
        self.padding = tuple([check_integer(op, n, "padding") for n in given])
        if len(self.padding) != 2 * self._axes:
            raise ValueError(f"{op}: padding must be a number or {2 * self._axes} numbers. Got {padding!r}.")
        self.value = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, mode=self._mode, value=self.value if self._mode == "constant" else None)

    def extra_repr(self) -> str:
        return f"padding={self.padding}" + (f", value={self.value}" if self.value else "")


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value


def _pads(kind: str, base: type[_Pad], mode: str, axes: int, doc: str) -> type[_Pad]:
    name = f"{kind}{axes}d"
    return type(name, (base,), {"_axes": axes, "_mode": mode, "__module__": __name__, "__doc__": doc})


ZeroPad1d, ZeroPad2d, ZeroPad3d = (
    _pads("ZeroPad", _Pad, "constant", n, f"Zeros around the last {n} axes.") for n in (1, 2, 3)
)
ConstantPad1d, ConstantPad2d, ConstantPad3d = (
    _pads("ConstantPad", _ConstantPad, "constant", n, f"A value around the last {n} axes.") for n in (1, 2, 3)
)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (
    _pads("ReflectionPad", _Pad, "reflect", n, f"The input mirrored at its border, last {n} axes.") for n in (1, 2, 3)
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (
    _pads("ReplicationPad", _Pad, "replicate", n, f"The border repeated, last {n} axes.") for n in (1, 2, 3)
)
CircularPad1d, CircularPad2d, CircularPad3d = (
    _pads("CircularPad", _Pad, "circular", n, f"The input continued from its other end, last {n} axes.")
    for n in (1, 2, 3)
)
