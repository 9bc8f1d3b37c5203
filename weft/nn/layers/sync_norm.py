"""SyncBatchNorm: batch normalisation with the statistics of the global batch of a distributed step."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ...autograd import shards
from ...autograd.function import Function
from ...autograd.tape import is_grad_enabled
from ...graph.capture.tracing import CaptureError
from ...ops.array.elementwise import astype
from ...ops.array.reduction import reduce_sum
from ...ops.core.short_floats import widened
from ...ops.nn.norm.batch_norm import channel_moments, scale_shift
from ...tensor import Tensor, wrap
from ..module import Module
from .norm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with the mean and variance of the global batch, also if its shards are computed apart.

    In a distributed step (`weft.distributed`) `BatchNorm2d` normalises each shard with its own statistics; this layer uses
    those of all shards, forward and backward, so the result is that of one process with the whole batch. The shards exchange
    statistics in every layer, so such a step runs eagerly, and on one host. Everywhere else it is batch normalisation.

    Args:
        num_features: the number of channels C.
        eps: added to the variance.
        momentum: weight of a batch in the running statistics; None averages over all batches.
        affine: whether to learn scale and shift.
        track_running_stats: keep running statistics, used instead of the batch's in evaluation mode.
        process_group: only None, for PyTorch's signature: all shards of the batch.

    Shapes: x (N, C, …) → the same.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    >>> type(nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]).__name__
    'SyncBatchNorm'
    """

    _ndims = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        *,
        dtype: Any = None,
    ) -> None:
        if process_group is not None:
            raise ValueError(
                f"SyncBatchNorm: statistics are those of the whole batch; there are no process groups. Got {process_group!r}; "
                "expected None."
            )
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Any:
        """`module` with all its batch norms replaced by this layer, which take over their parameters and statistics.

        >>> norm = nn.BatchNorm1d(4); nn.SyncBatchNorm.convert_sync_batchnorm(norm).weight is norm.weight
        True
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            return cls._from(module, process_group)
        for name, child in list(module.named_children()):
            converted = cls.convert_sync_batchnorm(child, process_group)
            if converted is not child:
                module.register_module(name, converted)
        return module

    @classmethod
    def _from(cls, norm: _BatchNorm, process_group: None) -> Self:
        made = cls(
            norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats, process_group
        )  # fmt: skip
        made.weight, made.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(made, name, getattr(norm, name))
        made.training = norm.training
        return made

    def forward(self, x: Tensor) -> Tensor:
        shard = shards.current.shard
        if shard is None or not (self.training or self.running_mean is None):
            return super().forward(x)
        self._check(x)
        if type(x._data) is not np.ndarray:
            raise CaptureError(
                "SyncBatchNorm: the shards of a distributed step exchange statistics in every layer, which a captured program "
                "cannot wait for. Run the step eagerly: `distributed.step(optimizer, capture=False)` or `Trainer(capture=False)`."
            )
        y, mean, var, count = _Normalise.apply(widened(x), widened(self.weight), widened(self.bias), self.eps, shard)
        if self.running_mean is not None:
            self._track(mean, var, float(count))
        return astype(y, x.dtype)

    def _track(self, mean: Tensor, var: Tensor, count: float) -> None:
        self.num_batches_tracked += 1
        momentum: Any = self.momentum
        if momentum is None:  # the plain average over all batches so far
            momentum = 1.0 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, var * (count / (count - 1.0)))):
            running += astype((new.detach() - widened(running)) * momentum, running.dtype)


class _Normalise(Function):
    """(y, mean, variance, values per channel) of a shard's `x`, with the statistics of all shards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, eps: float, shard: Any) -> Any:
        channels, own = x.shape[1], x.size // max(x.shape[1], 1)
        mean, var = (np.asarray(v.numpy(), np.float64).reshape(-1) for v in channel_moments(x))
        table = shard.gather(np.concatenate([[float(own)], mean, var]))  # a row per shard
        counts, means, variances = table[:, :1], table[:, 1 : 1 + channels], table[:, 1 + channels :]
        count = float(counts.sum())
        if count < 2:
            raise ValueError(f"SyncBatchNorm: more than one value per channel is needed for training. Got {x.shape}.")
        mean = (counts * means).sum(0) / count
        var = (counts * (variances + (means - mean) ** 2)).sum(0) / count
        rstd = 1.0 / np.sqrt(var + eps)
        scale, shift = _columns(x, rstd, -mean * rstd)
        normal = scale_shift(x, scale, shift)
        ctx.save_for_backward(normal, weight)
        ctx.shard, ctx.count, ctx.rstd = shard, count, rstd
        y = normal
        if weight is not None:
            y = scale_shift(normal, *(_column(v, x.ndim) for v in (weight, bias)))
        found = tuple(wrap(v.astype(x.dtype)) for v in (mean, var))
        ctx.mark_non_differentiable(*found, last := wrap(np.array(count)))
        return y, *found, last

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        if is_grad_enabled():
            raise RuntimeError("SyncBatchNorm: there are no second derivatives in a distributed step. Use BatchNorm.")
        normal, weight = ctx.saved_tensors
        axes = (0, *range(2, g.ndim))
        bias_gradient, weight_gradient = reduce_sum(g, axes, False), reduce_sum(g * normal, axes, False)
        sums = np.concatenate([np.asarray(v.numpy(), np.float64) for v in (bias_gradient, weight_gradient)])
        total = ctx.shard.gather(sums).sum(0) / ctx.count
        mean, product = _columns(g, *np.split(total, 2))
        factor = ctx.rstd if weight is None else ctx.rstd * np.asarray(weight.numpy(), np.float64)
        (factor,) = _columns(g, factor)
        gx = (g - mean - normal * product) * factor
        if weight is None:
            return gx, None, None, None, None
        return gx, weight_gradient, bias_gradient, None, None


def _columns(x: Tensor, *values: np.ndarray) -> list[Tensor]:
    """Values per channel, as tensors that broadcast against `x`."""
    return [_column(wrap(v.astype(x.dtype)), x.ndim) for v in values]


def _column(v: Tensor, ndim: int) -> Tensor:
    return v.reshape(1, -1, *(1,) * (ndim - 2))
