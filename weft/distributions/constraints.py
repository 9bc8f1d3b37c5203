"""Constraints: regions that values of parameters and samples must be in.

`check(value)` gives one truth value per event: `event_dim` axes at the right belong to an event. `constraints.positive` and
other names in lower case are constraints or, where they take arguments, their classes.

>>> from weft.distributions import constraints
>>> constraints.positive.check(wf.tensor([1.0, -1.0]))
tensor([ True, False])
>>> constraints.interval(0, 2).check(wf.tensor(1.0)).item()
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft as wf

from ..ops.core.spec import as_integer
from ..tensor import Tensor

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A region of values.

    Subclass, define `check`, and set the class attributes: `is_discrete`, whether it consists of isolated values, and
    `event_dim`, the number of axes at the right that belong to one event.

    >>> from weft.distributions import constraints
    >>> class Even(constraints.Constraint):
    ...     is_discrete = True
    ...     def check(self, value):
    ...         return value % 2 == 0
    >>> Even().check(wf.tensor([1.0, 2.0]))
    tensor([False,  True])
    """

    is_discrete: Any = False
    event_dim: Any = 0
    words = ""
    """the constraint in an error message: "scale must be {words}" """

    def check(self, value: Tensor) -> Tensor:
        """Whether each event in `value` is in the region."""
        raise NotImplementedError(f"{type(self).__name__}: define `check(self, value)`.")

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__.lstrip('_')}({shown})"

    def __str__(self) -> str:
        return self.words or repr(self)


_UNKNOWN: Any = NotImplemented


class _Dependent(Constraint):
    """Stands for a constraint that depends on other variables, of an object that does not exist yet."""

    def __init__(self, *, is_discrete: Any = _UNKNOWN, event_dim: Any = _UNKNOWN) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        """Whether the region consists of isolated values."""
        return _known("is_discrete", self._is_discrete)

    @property
    def event_dim(self) -> int:
        """The number of axes of an event."""
        return _known("event_dim", self._event_dim)

    def __call__(self, *, is_discrete: Any = _UNKNOWN, event_dim: Any = _UNKNOWN) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is _UNKNOWN else is_discrete,
            event_dim=self._event_dim if event_dim is _UNKNOWN else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("constraints.dependent: it depends on other variables, so it cannot be checked by itself.")


def _known(name: str, value: Any) -> Any:
    if value is _UNKNOWN:
        raise NotImplementedError(f"constraints.dependent: {name} is not known for the class; ask an instance.")
    return value


def is_dependent(constraint: Any) -> bool:
    """Whether `constraint` depends on other variables, so that only an instance's can be checked.

    >>> from weft.distributions import Uniform, constraints
    >>> constraints.is_dependent(Uniform.support), constraints.is_dependent(Uniform(0, 1).support)
    (True, False)
    """
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that, asked for on the class, is a dependent constraint."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = _UNKNOWN, event_dim: Any = _UNKNOWN) -> None:
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)

    __repr__ = object.__repr__
    __str__ = object.__str__


class _IndependentConstraint(Constraint):
    """`base_constraint` for all elements along `reinterpreted_batch_ndims` more axes at the right."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = as_integer(reinterpreted_batch_ndims)
        if self.reinterpreted_batch_ndims < 0:
            raise ValueError(
                f"constraints.independent: expected a number of axes, 0 or more. Got {reinterpreted_batch_ndims}."
            )

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(
                f"constraints.independent: expected a value of at least {self.event_dim} axes. Got {value.ndim}."
            )
        return _all(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"

    def __str__(self) -> str:
        return str(self.base_constraint)


def _all(value: Tensor, count: int) -> Tensor:
    return wf.all(value, axis=tuple(range(-count, 0))) if count else value


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: values that all components allow."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        inner = self.base_constraint.check(wf.expand_dims(value, -1 - self.event_dim))
        return _all(inner, 1)

    def __str__(self) -> str:
        return str(self.base_constraint)


class _Boolean(Constraint):
    is_discrete = True
    words = "0 or 1"

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1
    words = "one-hot vectors"

    def check(self, value: Tensor) -> Tensor:
        return _all((value == 0) | (value == 1), 1) & (wf.sum(value, axis=-1) == 1)


class _Bounds(Constraint):
    """Elementwise bounds; `_words` is formatted with them."""

    _words = ""

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None) -> None:
        if lower_bound is not None:
            self.lower_bound = lower_bound
        if upper_bound is not None:
            self.upper_bound = upper_bound

    def __str__(self) -> str:
        return self._words.format(**{k: _brief(v) for k, v in vars(self).items()})


def _brief(bound: Any) -> Any:
    if not isinstance(bound, Tensor):
        return bound
    if bound.is_symbolic:
        return f"a bound of shape {tuple(bound.shape)}"
    flat = np.unique(bound.detach().numpy())
    return f"{flat[0]:g}" if flat.size == 1 else f"its bound ({flat.min():g} to {flat.max():g})" if flat.size else "()"


def _integers(value: Tensor) -> Tensor:
    return value % 1 == 0


class _IntegerInterval(_Bounds):
    is_discrete = True
    _words = "integers from {lower_bound} to {upper_bound}"

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return _integers(value) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerLessThan(_Bounds):
    is_discrete = True
    _words = "integers up to {upper_bound}"

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(None, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return _integers(value) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Bounds):
    is_discrete = True
    _words = "integers, {lower_bound} or more"

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return _integers(value) & (value >= self.lower_bound)


class _Real(Constraint):
    words = "real, not NaN"

    def check(self, value: Tensor) -> Tensor:
        return value == value  # false for NaN


class _GreaterThan(_Bounds):
    _words = "greater than {lower_bound}"

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_Bounds):
    _words = "{lower_bound} or more"

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_Bounds):
    _words = "less than {upper_bound}"

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(None, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_Bounds):
    _words = "from {lower_bound} to {upper_bound}"

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Bounds):
    _words = "from {lower_bound} to below {upper_bound}"

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1
    words = "vectors of numbers, 0 or more, that sum to 1"

    def check(self, value: Tensor) -> Tensor:
        return _all(value >= 0, 1) & (wf.abs(wf.sum(value, axis=-1) - 1) < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _all(value >= 0, 1) & (wf.sum(value, axis=-1) <= self.upper_bound)

    def __str__(self) -> str:
        return f"vectors of counts that sum to at most {_brief(self.upper_bound)}"


class _LowerTriangular(Constraint):
    event_dim = 2
    words = "lower triangular matrices"

    def check(self, value: Tensor) -> Tensor:
        return _all(wf.tril(value) == value, 2)


class _LowerCholesky(Constraint):
    event_dim = 2
    words = "lower triangular matrices with a positive diagonal"

    def check(self, value: Tensor) -> Tensor:
        return _all(wf.tril(value) == value, 2) & _all(wf.linalg.diagonal(value) > 0, 1)


class _CorrCholesky(Constraint):
    event_dim = 2
    words = "Cholesky factors of correlation matrices: lower triangular, with a positive diagonal and rows of length 1"

    def check(self, value: Tensor) -> Tensor:
        tolerance = float(wf.finfo(value.dtype).eps) * value.shape[-1] * 10
        lengths = wf.linalg.vector_norm(value.detach(), axis=-1)
        return lower_cholesky.check(value) & _all(wf.abs(lengths - 1) <= tolerance, 1)


class _Square(Constraint):
    event_dim = 2
    words = "square matrices"

    def check(self, value: Tensor) -> Tensor:
        return wf.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=wf.bool)


class _Symmetric(_Square):
    words = "symmetric matrices"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _all(wf.isclose(value, value.mT, atol=1e-6), 2)


class _PositiveSemidefinite(_Symmetric):
    words = "symmetric matrices without negative eigenvalues"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return super().check(value) & _all(wf.linalg.eigvalsh(_symmetrised(value)) >= 0, 1)


class _PositiveDefinite(_Symmetric):
    words = "symmetric matrices with positive eigenvalues"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return super().check(value) & _all(wf.linalg.eigvalsh(_symmetrised(value)) > 0, 1)


def _symmetrised(value: Tensor) -> Tensor:
    value = value.detach()
    half = (value + value.mT) / 2
    return wf.where(wf.isfinite(half), half, -1.0)  # what is not finite is no such matrix


class _Cat(Constraint):
    """Constraints of consecutive parts, of the given lengths, along the axis `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq = list(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.dim = dim
        if len(self.lengths) != len(self.cseq):
            raise ValueError(
                f"constraints.cat: expected {len(self.cseq)} lengths, one per constraint. Got {len(self.lengths)}."
            )

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        ends = np.cumsum(self.lengths).tolist()
        axis = self.dim % value.ndim
        parts = [
            c.check(value[(slice(None),) * axis + (slice(end - n, end),)])
            for c, n, end in zip(self.cseq, self.lengths, ends, strict=True)
        ]
        return wf.concat(parts, axis=axis)


class _Stack(Constraint):
    """Constraints of the slices along the axis `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        largest = max(c.event_dim for c in self.cseq)
        return largest + 1 if self.dim + largest < 0 else largest

    def check(self, value: Tensor) -> Tensor:
        axis = self.dim % value.ndim
        parts = [c.check(value[(slice(None),) * axis + (i,)]) for i, c in enumerate(self.cseq)]
        return wf.stack(parts, axis=self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
