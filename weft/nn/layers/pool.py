"""Max, average, Lp and adaptive pooling layers."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from ...typing import OutputSize, ShapeLike
from .. import functional as F
from ..module import Layer, Module


class _MaxPool(Module):
    def __init__(
        self,
        kernel_size: ShapeLike,
        stride: ShapeLike | None = None,
        padding: ShapeLike = 0,
        dilation: ShapeLike = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def _pool(self, pool: Any, x: Tensor) -> Any:
        return pool(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """Maximum over each window of (N, C, L) or (C, L). Arguments as for `MaxPool2d`.

    >>> nn.MaxPool1d(2)(wf.tensor([[[1.0, 3.0, 2.0, 5.0]]])).tolist()
    [[[3.0, 5.0]]]
    """

    def forward(self, x: Tensor) -> Any:
        return self._pool(F.max_pool1d, x)


class MaxPool2d(_MaxPool):
    """Maximum over each window.

    Args:
        kernel_size: size of the window, a number or one per axis.
        stride: distance between windows; the window's size by default.
        padding: implicit padding on both sides; padded elements are never the maximum.
        dilation: distance between the elements of a window.
        return_indices: also return the flat index of each maximum.
        ceil_mode: round the output size up, keeping partial windows.

    Shapes: x (N, C, H, W) or without N → (N, C, H', W').

    >>> nn.MaxPool2d(2)(wf.reshape(wf.arange(16.0), (1, 1, 4, 4))).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    def forward(self, x: Tensor) -> Any:
        return self._pool(F.max_pool2d, x)


class MaxPool3d(_MaxPool):
    """Maximum over each window of (N, C, D, H, W) or (C, D, H, W). Arguments as for `MaxPool2d`."""

    def forward(self, x: Tensor) -> Any:
        return self._pool(F.max_pool3d, x)


class _MaxUnpool(Layer):
    def __init__(self, kernel_size: ShapeLike, stride: ShapeLike | None = None, padding: ShapeLike = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Inverse of `MaxPool1d`: scatter the maxima back to their `indices`, zeros elsewhere."""

    def forward(self, x: Tensor, indices: Tensor, output_size: ShapeLike | None = None) -> Tensor:
        return F.max_unpool1d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Inverse of `MaxPool2d`: scatter the maxima back to their `indices`, zeros elsewhere."""

    def forward(self, x: Tensor, indices: Tensor, output_size: ShapeLike | None = None) -> Tensor:
        return F.max_unpool2d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Inverse of `MaxPool3d`: scatter the maxima back to their `indices`, zeros elsewhere."""

    def forward(self, x: Tensor, indices: Tensor, output_size: ShapeLike | None = None) -> Tensor:
        return F.max_unpool3d(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPool(Layer):
    def __init__(
        self,
        kernel_size: ShapeLike,
        stride: ShapeLike | None = None,
        padding: ShapeLike = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Mean over each window of (N, C, L) or (C, L). Arguments as for `AvgPool2d`, without `divisor_override`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolDivisor(_AvgPool):
    def __init__(
        self,
        kernel_size: ShapeLike,
        stride: ShapeLike | None = None,
        padding: ShapeLike = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def _pool(self, pool: Any, x: Tensor) -> Tensor:
        return pool(
            x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPoolDivisor):
    """Mean over each window.

    Args:
        kernel_size, stride, padding, ceil_mode: as for `MaxPool2d`; padding is zero.
        count_include_pad: whether padding counts towards the number of elements.
        divisor_override: divisor to use instead of the number of elements.

    Shapes: x (N, C, H, W) or without N → (N, C, H', W').

    >>> nn.AvgPool2d(2)(wf.arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._pool(F.avg_pool2d, x)


class AvgPool3d(_AvgPoolDivisor):
    """Mean over each window. Arguments as for `AvgPool2d`."""

    def forward(self, x: Tensor) -> Tensor:
        return self._pool(F.avg_pool3d, x)


class _LPPool(Layer):
    def __init__(
        self, norm_type: float, kernel_size: ShapeLike, stride: ShapeLike | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"


class LPPool1d(_LPPool):
    """p-norm of each window: (Σ xᵖ)^(1/p)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool1d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """p-norm of each window: (Σ xᵖ)^(1/p)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool2d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """p-norm of each window: (Σ xᵖ)^(1/p)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool3d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class _Adaptive(Module):
    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """Mean over windows chosen to give an output of length `output_size`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean over windows chosen to give an output of size `output_size`.

    Args:
        output_size: an integer or (H', W'); None keeps the size of that axis.

    Shapes: x (N, C, H, W) or without N → (N, C, H', W').

    >>> nn.AdaptiveAvgPool2d(1)(wf.ones(2, 3, 7, 5)).shape
    (2, 3, 1, 1)
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveAvgPool3d(_Adaptive):
    """Mean over windows chosen to give an output of size `output_size`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(x, self.output_size)


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Maximum over windows chosen to give an output of length `output_size`."""

    def forward(self, x: Tensor) -> Any:
        return F.adaptive_max_pool1d(x, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Maximum over windows chosen to give an output of size `output_size`.

    >>> nn.AdaptiveMaxPool2d((2, 2))(wf.ones(1, 3, 8, 6)).shape
    (1, 3, 2, 2)
    """

    def forward(self, x: Tensor) -> Any:
        return F.adaptive_max_pool2d(x, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """Maximum over windows chosen to give an output of size `output_size`."""

    def forward(self, x: Tensor) -> Any:
        return F.adaptive_max_pool3d(x, self.output_size, self.return_indices)
