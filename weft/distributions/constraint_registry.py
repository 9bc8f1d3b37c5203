"""From constraints to transforms: `biject_to` and `transform_to`.

Both map a constraint to a transform from unconstrained numbers to it. That of `biject_to` is bijective with a known Jacobian, as
Hamiltonian Monte Carlo needs; that of `transform_to` may be simpler and is meant for optimising constrained parameters:

>>> from weft.distributions import Normal, transform_to
>>> free = wf.zeros(3, requires_grad=True)
>>> scale = transform_to(Normal.arg_constraints["scale"])(free)
>>> scale.tolist(), scale.requires_grad
([1.0, 1.0, 1.0], True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms


class ConstraintRegistry:
    """Transforms by the class of a constraint.

    >>> from weft.distributions import constraints, transforms
    >>> from weft.distributions.constraint_registry import ConstraintRegistry
    >>> registry = ConstraintRegistry()
    >>> factory = registry.register(constraints.positive, lambda constraint: transforms.SoftplusTransform())
    >>> registry(constraints.positive)
    SoftplusTransform()
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Use `factory(constraint)` for constraints of this class; without `factory`, a decorator.

        Args:
            constraint: a class of constraints, or one of them.
            factory: takes a constraint and returns a transform.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"register: expected a constraint or a class of constraints. Got {constraint!r}.")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform for `constraint`."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"There is no transform to the constraint {constraint!r}. Register one with "
                f"`register({type(constraint).__name__.lstrip('_')}, factory)`."
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a factory for these constraints in both registries."""

    def register(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return register


@_both(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _to_greater_than(constraint: Any) -> Any:
    if _is(constraint.lower_bound, 0):
        return transforms.ExpTransform()
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@_both(constraints.less_than)
def _to_less_than(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is(low, 0) and _is(high, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _is(bound: Any, number: float) -> bool:
    return isinstance(bound, (int, float)) and bound == number


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.simplex)
def _biject_to_simplex(constraint: Any) -> Any:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(constraint: Any) -> Any:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _transform_to_lower_cholesky(constraint: Any) -> Any:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _transform_to_positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()


def _compositions(registry: ConstraintRegistry) -> None:
    """Constraints made of others are mapped to transforms made of theirs."""
    registry.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.cat, lambda c: transforms.CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths)
    )
    registry.register(
        constraints.stack, lambda c: transforms.StackTransform([registry(part) for part in c.cseq], c.dim)
    )


_compositions(biject_to)
_compositions(transform_to)
