"""Batch axes as event axes."""

from __future__ import annotations

from typing import Any

from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import Shape, spread, sum_rightmost


class Independent(Distribution):
    """A distribution whose last batch axes are part of an event: log probabilities are summed over them.

    Args:
        base_distribution: the distribution.
        reinterpreted_batch_ndims: how many of its batch axes become event axes.
        validate_args: check values.

    >>> from weft.distributions import Independent, Normal
    >>> d = Independent(Normal(wf.zeros(2, 3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(wf.zeros(2, 3)).shape
    ((2,), (3,), (2,))
    """

    base_dist: Any

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = base_distribution.batch_shape
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ValueError(
                f"Independent: reinterpreted_batch_ndims must be from 0 to {len(batch)}, the number of batch axes of the "
                f"distribution ({format_shape(batch)}). Got {reinterpreted_batch_ndims}."
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], batch[cut:] + base_distribution.event_shape, validate_args)

    def _expand_parameters(self, batch_shape: Shape) -> None:
        self.base_dist = self.base_dist.expand(batch_shape + self.event_shape[: self.reinterpreted_batch_ndims])

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples of the base distribution have gradients."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the values can be enumerated: not those of vectors of independent variables."""
        return self.base_dist.has_enumerate_support if not self.reinterpreted_batch_ndims else False

    @constraints.dependent_property
    def support(self) -> Any:
        support = self.base_dist.support
        n = self.reinterpreted_batch_ndims
        return constraints.independent(support, n) if n else support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        entropy = spread(self.base_dist.entropy(), self.base_dist.batch_shape)
        return sum_rightmost(entropy, self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError(
                "Independent: the combinations of values of several variables are not enumerated."
            )
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
