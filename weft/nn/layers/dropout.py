"""Dropout layers: active in training, the identity after `eval()`."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from ..module import Layer


class _Dropout(Layer):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not isinstance(p, (int, float)) or isinstance(p, bool):
            raise TypeError(f"{type(self).__name__}: p must be a number between 0 and 1. Got {p!r}.")
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p must be between 0 and 1. Got {p}.")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """Set elements to zero with probability `p` and scale the rest by 1/(1-p).

    >>> nn.Dropout(0.5).eval()(wf.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


class Dropout1d(_Dropout):
    """Set whole channels of (N, C, L) to zero with probability `p`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """Zero whole channels of (N, C, H, W) with probability `p` and scale the others by 1/(1-p).

    >>> nn.Dropout2d(0.5)(wf.ones(1, 4, 8, 8)).shape
    (1, 4, 8, 8)
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(x, self.p, self.training)


class Dropout3d(_Dropout):
    """Set whole channels of (N, C, D, H, W) to zero with probability `p`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout3d(x, self.p, self.training)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance, for networks of `SELU`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.alpha_dropout(x, self.p, self.training)
