"""The Kullback–Leibler divergence: a registry of closed forms by the classes of the two distributions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .distribution import Distribution

_registry: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_found: dict[tuple[type, type], Callable[[Any, Any], Tensor] | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Register a function of two distributions as their `kl_divergence`; a decorator.

    The function registered for the most specific pair of classes is used.

    Args:
        type_p, type_q: the classes of the two distributions.

    >>> from weft.distributions import Normal, kl_divergence, register_kl
    >>> class Peak(Normal):
    ...     pass
    >>> @register_kl(Peak, Normal)
    ... def kl_peak_normal(p, q):
    ...     return wf.tensor(7.0)
    >>> kl_divergence(Peak(0.0, 1.0), Normal(0.0, 1.0))
    tensor(7.)
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise TypeError(f"register_kl: {name} must be a subclass of Distribution. Got {kind!r}.")

    def register(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        _registry[type_p, type_q] = function
        _found.clear()
        return function

    return register


def _most_specific(pairs: list[tuple[type, type]]) -> tuple[type, type]:
    """The pair whose first class is the most specific and, among those, whose second is."""
    first = min(pairs, key=lambda pair: sum(issubclass(pair[0], other[0]) for other in pairs) * -1)[0]
    same = [pair for pair in pairs if pair[0] is first]
    return max(same, key=lambda pair: sum(issubclass(pair[1], other[1]) for other in same))


def _lookup(type_p: type, type_q: type) -> Callable[[Any, Any], Tensor] | None:
    pairs = [pair for pair in _registry if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not pairs:
        return None
    left = _most_specific(pairs)
    right = _most_specific([(q, p) for p, q in pairs])[::-1]
    if _registry[left] is not _registry[right]:
        warnings.warn(
            f"kl_divergence({type_p.__name__}, {type_q.__name__}): two registered functions fit equally well. Register one "
            f"for ({left[0].__name__}, {right[1].__name__}).",
            RuntimeWarning,
            stacklevel=3,
        )
    return _registry[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback–Leibler divergence of `q` from `p`: the expected value of log p(x) - log q(x) under p.

    Args:
        p, q: distributions; their batch shapes broadcast.

    Returns:
        One number, in nats, per distribution of the batch.

    Raises:
        NotImplementedError: no closed form is registered for the two classes, see `register_kl`.

    >>> from weft.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.5)
    """
    pair = type(p), type(q)
    if pair not in _found:
        _found[pair] = _lookup(*pair)
    function = _found[pair]
    if function is None:
        raise NotImplementedError(
            f"kl_divergence: no closed form is registered for {pair[0].__name__} and {pair[1].__name__}. Register one with "
            f"`@register_kl({pair[0].__name__}, {pair[1].__name__})`, or estimate it: "
            "`x = p.rsample((n,)); (p.log_prob(x) - q.log_prob(x)).mean(axis=0)`."
        )
    return function(p, q)


from . import kl_between as _kl_between  # noqa: E402,F401  # registers the closed forms
from . import kl_within as _kl_within  # noqa: E402,F401
