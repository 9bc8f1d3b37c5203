"""Batch, instance, layer, RMS, group and local response normalisation layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import format_shape
from ...ops.array.creation import ones, zeros
from ...ops.core.spec import check_shape, check_size
from ...ops.nn.norm.batch_norm import check_momentum
from ...tensor import Tensor, wrap
from ...typing import DTypeLike, ShapeLike
from .. import functional as F
from .. import init
from ..module import Layer
from ..parameter import Parameter
from .dtypes import check_dtype


class _RunningNorm(Layer):
    """Base of batch and instance norm: scale, shift and running statistics per channel."""

    _ndims: tuple[int, ...]

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool, dtype: Any
    ) -> None:
        super().__init__()
        num_features = check_size(type(self).__name__, num_features, "num_features")
        if momentum is not None:
            check_momentum(type(self).__name__, momentum)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter(ones((num_features,), dtype=dtype)) if affine else None
        self.bias = Parameter(zeros((num_features,), dtype=dtype)) if affine else None
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros((num_features,), dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones((num_features,), dtype=dtype) if tracked else None)
        count = wrap(np.zeros((), np.int64)) if tracked else None  # a shard without samples does not count a batch
        self.register_buffer("num_batches_tracked", count, reduce="max")

    def reset_running_stats(self) -> None:
        """Reset the running statistics."""
        if self.running_mean is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self._ndims:
            expected = " or ".join(str(n) for n in self._ndims)
            raise ValueError(
                f"{type(self).__name__}: expected an input with {expected} axes. Got shape {format_shape(x.shape)}."
            )
        check_dtype(self, x, self.weight, short=True)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        mean, var = self.running_mean, self.running_var
        momentum: Any = self.momentum
        if self.training and mean is not None:
            self.num_batches_tracked += 1
            if momentum is None:  # the plain average over all batches so far
                momentum = 1.0 / self.num_batches_tracked.to(mean.dtype)
        return F.batch_norm(
            x, mean, var, self.weight, self.bias, self.training or mean is None,
            0.0 if momentum is None else momentum, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L). Arguments as for `BatchNorm2d`.

    >>> nn.BatchNorm1d(2)(wf.tensor([[1.0, 10.0], [3.0, 30.0]])).round().tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    _ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation: every channel gets mean 0 and variance 1 over the batch, then a learned scale and shift.

    Args:
        num_features: the number of channels C.
        eps: added to the variance.
        momentum: weight of a batch in the running statistics; None averages over all batches.
        affine: whether to learn scale and shift.
        track_running_stats: keep running statistics, used instead of the batch's in evaluation mode.

    Shapes: x (N, C, H, W) → the same.

    >>> sorted(nn.BatchNorm2d(3).state_dict())
    ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """

    _ndims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W). Arguments as for `BatchNorm2d`."""

    _ndims = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        single = x.ndim == min(self._ndims)
        if single:
            x = x.unsqueeze(0)
        use_input = self.training or not self.track_running_stats
        y = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, use_input, self.momentum or 0.0, self.eps
        )
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L): each channel of each sample is normalised on its own."""

    _ndims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W): each channel of each sample is normalised on its own.

    >>> nn.InstanceNorm2d(3)(wf.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    _ndims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W): each channel of each sample is normalised on its own."""

    _ndims = (4, 5)


def _trailing_shape(op: str, shape: Any) -> tuple[int, ...]:
    sizes = check_shape(op, shape, "normalized_shape")
    if not sizes:
        raise ValueError(f"{op}: normalized_shape must name at least one axis. Got {shape!r}.")
    return sizes


class LayerNorm(Layer):
    """Layer normalisation over the last axes, with a learned scale and shift per element.

    Args:
        normalized_shape: sizes of the trailing axes to normalise over (an integer for the last one).
        eps: added to the variance.
        elementwise_affine: whether to learn a scale (and, with `bias`, a shift).

    >>> nn.LayerNorm(4)(wf.tensor([[1.0, 1.0, 3.0, 3.0]])).round().tolist()
    [[-1.0, -1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: ShapeLike,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing_shape("LayerNorm", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(zeros(self.normalized_shape, dtype=dtype)) if elementwise_affine and bias else None

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_dtype(self, x, self.weight, short=True)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Layer):
    """RMS normalisation over the last axes, with a learned scale: `x / √(mean(x²) + eps) · weight`.

    Args:
        normalized_shape: sizes of the trailing axes.
        eps: added to the mean square; None: the machine epsilon of the dtype.
        elementwise_affine: whether to learn the scale.

    >>> nn.RMSNorm(2)(wf.tensor([[3.0, 3.0]])).round().tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: ShapeLike,
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing_shape("RMSNorm", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        check_dtype(self, x, self.weight, short=True)
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Layer):
    """Group normalisation: groups of channels per sample, with a learned scale and shift per channel.

    Args:
        num_groups: groups that the channels are split into.
        num_channels: the number of channels, divisible by `num_groups`.

    Shapes: x (N, C, …) → the same.

    >>> nn.GroupNorm(2, 4)(wf.randn(1, 4, 8, 8)).shape
    (1, 4, 8, 8)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        num_groups = check_size("GroupNorm", num_groups, "num_groups", 1)
        num_channels = check_size("GroupNorm", num_channels, "num_channels")
        if num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: num_groups must divide num_channels. Got {num_groups} groups for {num_channels} channels."
            )
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = Parameter(ones((num_channels,), dtype=dtype)) if affine else None
        self.bias = Parameter(zeros((num_channels,), dtype=dtype)) if affine else None

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_dtype(self, x, self.weight, short=True)
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Layer):
    """Local response normalisation over neighbouring channels.

    Shapes: x (N, C, …) → the same.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
