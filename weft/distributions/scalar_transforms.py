"""Transforms of numbers, element by element."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from . import constraints
from .transform import Transform
from .utils import Shape, broadcast_all, common_shape, spread


class ExpTransform(Transform):
    """y = exp(x).

    >>> from weft.distributions.transforms import ExpTransform
    >>> ExpTransform()(wf.tensor(0.0))
    tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return wf.exp(x)

    def _inverse(self, y: Any) -> Any:
        return wf.log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive numbers.

    Args:
        exponent: a number or a tensor.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import PowerTransform
    >>> PowerTransform(2.0)(wf.tensor(3.0))
    tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size)

    @property
    def sign(self) -> Any:
        return wf.sign(self.exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _equal(self.exponent, other.exponent)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return wf.log(wf.abs(self.exponent * y / x))

    def forward_shape(self, shape: Any) -> Shape:
        return common_shape(tuple(shape), self.exponent.shape)

    def inverse_shape(self, shape: Any) -> Shape:
        return self.forward_shape(shape)


def _equal(a: Any, b: Any) -> bool:
    """Whether two numbers or tensors are the same or have the same values."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.is_symbolic or b.is_symbolic or a.shape != b.shape:
            return False
        return bool(wf.all(a == b))
    return bool(wf.all(wf.asarray(a == b)))


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, moved into the open interval (0, 1)."""
    info = wf.finfo(x.dtype)
    return wf.clip(wf.sigmoid(x), float(info.smallest_normal), 1.0 - float(info.eps))


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)).

    >>> from weft.distributions.transforms import SigmoidTransform
    >>> SigmoidTransform()(wf.tensor(0.0))
    tensor(0.5)
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigmoidTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        info = wf.finfo(y.dtype)
        y = wf.clip(y, float(info.smallest_normal), 1.0 - float(info.eps))
        return wf.log(y) - wf.log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.logsigmoid(x) + F.logsigmoid(-x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x)).

    >>> from weft.distributions.transforms import SoftplusTransform
    >>> SoftplusTransform()(wf.tensor(0.0))
    tensor(0.6931...)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftplusTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return -F.logsigmoid(-x)

    def _inverse(self, y: Any) -> Any:
        return wf.log(-wf.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.logsigmoid(x)


class TanhTransform(Transform):
    """y = tanh(x).

    The inverse is inaccurate near -1 and 1; with `cache_size=1` that of a sample is exact.

    >>> from weft.distributions.transforms import TanhTransform
    >>> TanhTransform()(wf.tensor(0.0))
    tensor(0.)
    """

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TanhTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return wf.tanh(x)

    def _inverse(self, y: Any) -> Any:
        return wf.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # log(1 - tanh²) without cancellation
        return 2.0 * (math.log(2.0) - x + F.logsigmoid(2.0 * x))


class AbsTransform(Transform):
    """y = |x|; not bijective.

    >>> from weft.distributions.transforms import AbsTransform
    >>> AbsTransform()(wf.tensor(-2.0))
    tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.nonnegative

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return wf.abs(x)

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """y = loc + scale · x.

    Args:
        loc, scale: numbers or tensors; `scale` is not 0.
        event_dim: the number of axes at the right that belong to an event.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import AffineTransform
    >>> AffineTransform(1.0, 2.0)(wf.tensor(3.0))
    tensor(7.)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _equal(self.loc, other.loc) and _equal(self.scale, other.scale)

    __hash__ = Transform.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return wf.sign(self.scale)
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, Tensor):
            result = spread(wf.log(wf.abs(self.scale)), self.forward_shape(x.shape))
        else:
            result = wf.full_like(x, math.log(abs(self.scale)))
        return wf.sum(result, axis=tuple(range(-self._event_dim, 0))) if self._event_dim else result

    def forward_shape(self, shape: Any) -> Shape:
        return common_shape(tuple(shape), getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    def inverse_shape(self, shape: Any) -> Shape:
        return self.forward_shape(shape)


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution of numbers.

    Args:
        distribution: a distribution with `cdf` and `icdf`.
        cache_size: as for `Transform`.

    >>> from weft.distributions import Normal
    >>> from weft.distributions.transforms import CumulativeDistributionTransform
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(wf.tensor(0.0))
    tensor(0.5)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size)
