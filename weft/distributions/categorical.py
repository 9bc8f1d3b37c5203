"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import (
    Shape,
    broadcast_all,
    common_shape,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
    spread,
    standard_uniform,
)


class Categorical(Distribution):
    """An index from 0 to K - 1.

    Args:
        probs: weights of shape (…, K), not negative; they are normalised.
        logits: unnormalised logarithms of the probabilities, instead of `probs`.
        validate_args: check arguments and values.

    >>> from weft.distributions import Categorical
    >>> d = Categorical(logits=wf.zeros(2, 4))
    >>> d.sample().shape, d.entropy().exp().round().tolist()
    ((2,), [4.0, 4.0])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name = one_of(type(self).__name__, probs=probs, logits=logits)
        (value,) = broadcast_all(probs if name == "probs" else logits)
        if value.ndim < 1:
            raise ValueError(
                f"Categorical: {name} must have an axis of categories. Got shape {format_shape(value.shape)}."
            )
        if name == "probs":
            self.probs = value / wf.sum(value, axis=-1, keepdims=True)
        else:
            self.logits = value - wf.logsumexp(value, axis=-1, keepdims=True)
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @property
    def param_shape(self) -> Shape:
        """The shape of the parameter."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        """NaN: categories are not numbers."""
        return wf.full(self._extended_shape(), math.nan, dtype=self._param.dtype)

    @property
    def mode(self) -> Tensor:
        """The most probable category."""
        return wf.argmax(self._param, axis=-1)

    @property
    def variance(self) -> Tensor:
        """NaN: categories are not numbers."""
        return wf.full(self._extended_shape(), math.nan, dtype=self._param.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw_categories(self.probs, self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        index = wf.astype(self.checked(value), wf.int64)
        shape = common_shape(index.shape, self.batch_shape)
        index = spread(index, shape)
        logits = spread(self.logits, (*shape, self._num_events))
        return wf.take_along_axis(logits, index[..., None], axis=-1)[..., 0]

    def entropy(self) -> Tensor:
        smallest = float(wf.finfo(self.logits.dtype).min)
        logits = wf.clip(self.logits, smallest, None)  # 0 · -inf would be NaN
        return -wf.sum(logits * self.probs, axis=-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = wf.arange(self._num_events, dtype=wf.int64).reshape((-1, *(1,) * len(self.batch_shape)))
        return spread(values, (self._num_events, *self.batch_shape)) if expand else values


def draw_categories(probs: Tensor, shape: Shape) -> Tensor:
    """Category indices of the given shape, by inversion of the cumulated probabilities, in float64."""
    sums = wf.cumsum(wf.astype(probs.detach(), wf.float64), axis=-1)
    total = sums[..., -1]
    point = standard_uniform(shape, total) * total
    # a point that rounds up to the total is moved to 0, which is below the first category of positive probability
    point = wf.where(point < total, point, wf.zeros((), dtype=wf.float64))
    return wf.sum(wf.astype(sums <= point[..., None], wf.int64), axis=-1)
