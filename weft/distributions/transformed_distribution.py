"""Distributions of transformed variables."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..autograd.tape import no_grad
from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import Shape, sum_rightmost


class TransformedDistribution(Distribution):
    """The distribution of y = t(x), with x of a base distribution and t one or several transforms.

    Args:
        base_distribution: the distribution of x.
        transforms: a transform, or a list of them, applied one after the other.
        validate_args: check values.

    >>> from weft.distributions import Normal, TransformedDistribution
    >>> from weft.distributions.transforms import ExpTransform
    >>> d = TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()])
    >>> d.log_prob(wf.tensor(1.0)), d.cdf(wf.tensor(1.0))
    (tensor(-0.9189...), tensor(0.5))
    """

    base_dist: Any

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        name = type(self).__name__
        self.transforms: list[Any] = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise TypeError(f"{name}: transforms must be a Transform or a list of them. Got {transforms!r}.")
        whole = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_axes = len(base_distribution.event_shape)
        domain_axes, codomain_axes = whole.domain.event_dim, whole.codomain.event_dim
        if len(base_shape) < domain_axes:
            raise ValueError(
                f"{name}: the transforms need a base distribution of at least {domain_axes} axes. "
                f"Got shape {format_shape(base_shape)}."
            )
        shape = whole.forward_shape(base_shape)
        needed = whole.inverse_shape(shape)
        if needed != base_shape:
            base_distribution = base_distribution.expand(needed[: len(needed) - base_axes])
        if domain_axes > base_axes:
            base_distribution = Independent(base_distribution, domain_axes - base_axes)
        self.base_dist = base_distribution
        axes = max(codomain_axes, base_axes + codomain_axes - domain_axes)
        cut = len(shape) - axes
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        super()._expand_parameters(batch_shape)
        shape = batch_shape + self.event_shape
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        self.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self.event_shape) - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples of the base distribution have gradients."""
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Any) -> Tensor:
        y = self.checked(value)
        axes = len(self.event_shape)
        total: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), axes - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

    def _increasing(self, probability: Any) -> Any:
        """`probability`, or one minus it where the transforms together decrease."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Any) -> Tensor:
        value = self.checked(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._increasing(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._increasing(wf.asarray(value))))

    def __repr__(self) -> str:
        if self.arg_constraints:
            return super().__repr__()
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"
