"""Distribution: the base class of all families.

Note [Shapes of distributions]. Parameters of shape `batch_shape` describe as many independent distributions; a draw from one of
them has the shape `event_shape`: () for numbers, (n,) for vectors. `sample(s)` has the shape `s + batch_shape + event_shape`;
`log_prob` takes a value that broadcasts to such a shape and gives one number per event, in the shape `s + batch_shape`.

Note [Writing a distribution]. Subclass; set `arg_constraints` (parameter name -> constraint), `support` and, if samples have
gradients, `has_rsample`; store the parameters under their names and call `super().__init__(batch_shape, event_shape)`. Define
`rsample` (or `sample`), `log_prob` and what else exists. Parameters are checked in the constructor and values in `log_prob` and
`cdf`, by calling `self.checked(value)`; `expand` broadcasts the parameters by itself.
"""

from __future__ import annotations

import copy
from typing import Any

import weft as wf

from ..autograd.tape import no_grad
from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .utils import Shape, as_shape, describe_values, ensure, lazy_property, spread


class Distribution:
    """Base class of distributions. See Note [Writing a distribution].

    Args:
        batch_shape: the shape of the parameters of independent distributions.
        event_shape: the shape of one draw.
        validate_args: check parameters and values; by default as `set_default_validate_args` says.

    >>> from weft.distributions import Normal
    >>> d = Normal(wf.zeros(3), 1.0)
    >>> d.batch_shape, d.event_shape, d.sample((2,)).shape
    ((3,), (), (2, 3))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__
    arg_constraints: Any = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their parameters and values, unless their `validate_args` says.

        >>> from weft.distributions import Distribution
        >>> Distribution.set_default_validate_args(True)
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False. Got {value!r}.")
        Distribution._validate_args = bool(value)

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape: Shape = tuple(batch_shape)
        self._event_shape: Shape = tuple(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)  # what is computed from others has been checked where it is stored
            if value is None or constraints.is_dependent(constraint):
                continue
            checked = self._ensure(name, value, constraint)
            if checked is not value:
                setattr(self, name, checked)

    def _ensure(self, what: str, value: Tensor, constraint: Any) -> Tensor:
        valid = constraint.check(value)
        return ensure(value, valid, lambda: self._complaint(what, value, valid, constraint))

    def _complaint(self, what: str, value: Tensor, valid: Tensor | None, constraint: Any) -> str:
        return (
            f"{type(self).__name__}: {what} must be {constraint}. Got {describe_values(value, valid)}. "
            "To skip this check, pass `validate_args=False`."
        )

    # Shapes ---------------------------------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Shape:
        """The shape of independent distributions, see Note [Shapes of distributions]."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one draw from one of them."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Shape:
        """The shape of `sample(sample_shape)`."""
        return as_shape(f"{type(self).__name__}: sample_shape", sample_shape) + self._batch_shape + self._event_shape

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with parameters broadcast to `batch_shape`.

        >>> from weft.distributions import Normal
        >>> Normal(0.0, 1.0).expand((2, 3)).sample().shape
        (2, 3)
        """
        shape = as_shape(f"{type(self).__name__}.expand: batch_shape", batch_shape)
        new = copy.copy(self) if _instance is None else _instance
        new.__dict__.update(self.__dict__)
        for name in list(new.__dict__):
            if name not in self.arg_constraints and isinstance(getattr(type(self), name, None), lazy_property):
                del new.__dict__[name]  # computed from the parameters as they were
        new._batch_shape = shape
        new._expand_parameters(shape)
        return new

    def _expand_parameters(self, batch_shape: Shape) -> None:
        """Broadcast the stored parameters; families with other tensors or distributions inside add to this."""
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None:
                axes = 0 if constraints.is_dependent(constraint) else constraint.event_dim
                self.__dict__[name] = spread(value, (*batch_shape, *value.shape[value.ndim - axes :]))

    # Defined by families --------------------------------------------------------------------------------------------

    @property
    def support(self) -> Any:
        """The constraint that draws satisfy."""
        raise NotImplementedError(f"{type(self).__name__} does not define its support.")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__}: its mean is not implemented.")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self).__name__}: its mode is not implemented.")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__}: its variance is not implemented.")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return wf.sqrt(self.variance)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw values, without gradients, in the shape `sample_shape + batch_shape + event_shape`.

        >>> from weft.distributions import Uniform
        >>> Uniform(0.0, wf.ones(3)).sample((2,)).shape
        (2, 3)
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draw values as differentiable functions of the parameters (reparameterised), where `has_rsample`.

        >>> from weft.distributions import Normal
        >>> loc = wf.zeros(3, requires_grad=True)
        >>> Normal(loc, 1.0).rsample().sum().backward()
        >>> loc.grad
        tensor([1., 1., 1.])
        """
        raise NotImplementedError(
            f"{type(self).__name__}: samples are not differentiable functions of the parameters. Use `sample`, and for "
            "gradients of an expectation `log_prob(sample) * value` (the score function)."
        )

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`."""
        return self.sample((n,))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability of discrete values, at `value`.

        >>> from weft.distributions import Bernoulli
        >>> Bernoulli(0.25).log_prob(wf.tensor(1.0)).exp()
        tensor(0.25)
        """
        raise NotImplementedError(f"{type(self).__name__}: its log_prob is not implemented.")

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to `value`.

        >>> from weft.distributions import Exponential
        >>> Exponential(1.0).cdf(wf.tensor(0.0))
        tensor(0.)
        """
        raise NotImplementedError(f"{type(self).__name__}: its cdf is not implemented.")

    def icdf(self, value: Any) -> Tensor:
        """The quantile of the probability `value`: the inverse of `cdf`.

        >>> from weft.distributions import Normal
        >>> Normal(1.0, 2.0).icdf(wf.tensor(0.5))
        tensor(1.)
        """
        raise NotImplementedError(f"{type(self).__name__}: its icdf is not implemented.")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first axis.

        Args:
            expand: broadcast them to the batch shape; otherwise the batch axes have size 1.

        >>> from weft.distributions import Categorical
        >>> Categorical(wf.ones(2, 3)).enumerate_support(expand=False).tolist()
        [[0], [1], [2]]
        """
        raise NotImplementedError(f"{type(self).__name__}: its values cannot be enumerated.")

    def entropy(self) -> Tensor:
        """The entropy, in nats, of each distribution of the batch.

        >>> from weft.distributions import Uniform
        >>> Uniform(0.0, 1.0).entropy().item()
        0.0
        """
        raise NotImplementedError(f"{type(self).__name__}: its entropy is not implemented.")

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return wf.exp(self.entropy())

    # Checks ---------------------------------------------------------------------------------------------------------

    def checked(self, value: Any) -> Tensor:
        """`value` as a tensor; raises unless it broadcasts to the distribution's shape and is in its support."""
        name = type(self).__name__
        if not isinstance(value, Tensor):
            if not isinstance(value, (bool, int, float)) and not hasattr(value, "__array__"):
                raise TypeError(f"{name}: value must be a tensor. Got {type(value).__name__}; use `wf.tensor(...)`.")
            value = wf.asarray(value)
        if not self._validate_args:
            return value
        shape, expected = value.shape, self._batch_shape + self._event_shape
        axes = len(self._event_shape)
        if axes and shape[max(len(shape) - axes, 0) :] != self._event_shape:
            raise ValueError(
                f"{name}: the last axes of value must have the event shape {format_shape(self._event_shape)}. "
                f"Got shape {format_shape(shape)}."
            )
        for i, j in zip(reversed(shape), reversed(expected)):
            if i != 1 and j != 1 and i != j and isinstance(i, int) and isinstance(j, int):
                raise ValueError(
                    f"{name}: value does not broadcast with the shape of the distribution. Got {format_shape(shape)}; "
                    f"expected one that broadcasts with {format_shape(expected)}."
                )
        return self._ensure("value", value, self.support)

    def _validate_sample(self, value: Any) -> None:
        """`checked` under the name that classes written for PyTorch call."""
        self.checked(value)

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new instance for an `expand` written for PyTorch to fill in."""
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if value is not None:
                small = value.size == 1 and not value.is_symbolic
                shown.append(f"{name}: {value.item() if small else tuple(value.shape)}")
        return f"{type(self).__name__}({', '.join(shown)})"
