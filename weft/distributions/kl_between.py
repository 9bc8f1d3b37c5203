"""Closed forms of the divergence between distributions of two different families."""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from ..tensor import Tensor
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .continuous_bernoulli import ContinuousBernoulli
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform
from .utils import EULER, common_shape, infinite_where


def _infinite(p: Any, q: Any) -> Tensor:
    """Some values of p are impossible under q."""
    return wf.full(common_shape(p.batch_shape, q.batch_shape), math.inf, dtype=p.mean.dtype)


# q has no probability where p has: on a half line or an interval for values of the line, or up to a bound for counts
for _p, _qs in {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}.items():
    for _q in _qs:
        register_kl(_p, _q)(_infinite)


def _normal_cross(p_mean: Tensor, p_variance: Tensor, q: Any) -> Tensor:
    """The cross entropy of a normal q: -E[log q(x)] for x with this mean and variance."""
    spread = (p_variance + (p_mean - q.loc) ** 2) / (2 * q.scale**2)
    return 0.5 * math.log(2 * math.pi) + wf.log(q.scale) + spread


def _gamma_cross(p_mean: Tensor, p_mean_log: Tensor, q: Any) -> Tensor:
    """The cross entropy of a gamma q, from the means of x and of log x."""
    a, b = q.concentration, q.rate
    return wf.lgamma(a) - a * wf.log(b) - (a - 1) * p_mean_log + b * p_mean


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * wf.log(q.rate) - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _kl_beta_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.mean * q.logits - wf.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
def _kl_exponential_cross(p: Any, q: Any) -> Tensor:
    return -p.entropy() - wf.log(q.rate) + q.rate * p.mean


@register_kl(Beta, Gamma)
def _kl_beta_gamma(p: Any, q: Any) -> Tensor:
    mean_log = wf.digamma(p.concentration1) - wf.digamma(p.concentration1 + p.concentration0)
    return -p.entropy() + _gamma_cross(p.mean, mean_log, q)


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _kl_normal_cross(p: Any, q: Any) -> Tensor:
    return -p.entropy() + _normal_cross(p.mean, p.variance, q)


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Any, q: Any) -> Tensor:
    return infinite_where(p.alpha <= 2, -p.entropy() + _normal_cross(p.mean, p.variance, q))


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _kl_unit_uniform(p: Any, q: Any) -> Tensor:
    value = -p.entropy() + wf.log(q.high - q.low)
    return infinite_where((q.low > 0) | (q.high < 1), value)


@register_kl(Exponential, Gamma)
def _kl_exponential_gamma(p: Any, q: Any) -> Tensor:
    return -p.entropy() + _gamma_cross(p.mean, -EULER - wf.log(p.rate), q)


@register_kl(Exponential, Gumbel)
def _kl_exponential_gumbel(p: Any, q: Any) -> Tensor:
    scaled, shift = p.rate * q.scale, q.loc / q.scale
    return wf.log(scaled) - 1 - shift + wf.exp(shift) * scaled / (scaled + 1) + 1 / scaled


@register_kl(Gamma, Gumbel)
def _kl_gamma_gumbel(p: Any, q: Any) -> Tensor:
    scaled, shift = p.rate * q.scale, q.loc / q.scale
    tail = wf.exp(shift) * (1 + 1 / scaled) ** -p.concentration
    return -p.entropy() + wf.log(q.scale) + p.concentration / scaled - shift + tail


@register_kl(Normal, Gumbel)
def _kl_normal_gumbel(p: Any, q: Any) -> Tensor:
    distance, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale) ** 2
    return -p.entropy() + wf.log(q.scale) + distance + wf.exp(0.5 * ratio - distance)


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p: Any, q: Any) -> Tensor:
    distance = p.loc - q.loc
    z = distance / p.scale
    mean_distance = math.sqrt(2 / math.pi) * p.scale * wf.exp(-0.5 * z * z) + distance * wf.erf(math.sqrt(0.5) * z)
    return -p.entropy() + wf.log(2 * q.scale) + mean_distance / q.scale


@register_kl(Pareto, Exponential)
def _kl_pareto_exponential(p: Any, q: Any) -> Tensor:
    return infinite_where(p.alpha <= 1, -p.entropy() - wf.log(q.rate) + q.rate * p.mean)


@register_kl(Pareto, Gamma)
def _kl_pareto_gamma(p: Any, q: Any) -> Tensor:
    mean_log = wf.log(p.scale) + 1 / p.alpha
    return infinite_where(p.alpha <= 1, -p.entropy() + _gamma_cross(p.mean, mean_log, q))


def _mean_log(p: Any) -> Tensor:
    """The mean of log x for a uniform x ≥ 0."""
    width = p.high - p.low
    return (wf.xlogy(p.high, p.high) - wf.xlogy(p.low, p.low) - width) / width


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Any, q: Any) -> Tensor:
    a, b, width = q.concentration1, q.concentration0, p.high - p.low
    inside = (p.low >= 0) & (p.high <= 1)
    low, high = wf.where(inside, p.low, 0.0), wf.where(inside, p.high, 1.0)
    of_one_minus = (wf.xlogy(1 - low, 1 - low) - wf.xlogy(1 - high, 1 - high) - width) / width
    log_x = (wf.xlogy(high, high) - wf.xlogy(low, low) - width) / width
    value = q._log_normalizer(a, b) - wf.log(width) - (a - 1) * log_x - (b - 1) * of_one_minus
    return infinite_where(~inside, value)


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    value = -p.entropy() - p.mean * q.logits - wf.log1p(-q.probs) - q._cont_bern_log_norm()
    return infinite_where((p.high > 1) | (p.low < 0), value)


@register_kl(Uniform, Exponential)
def _kl_uniform_exponential(p: Any, q: Any) -> Tensor:
    return infinite_where(p.low < 0, -p.entropy() - wf.log(q.rate) + q.rate * p.mean)


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Any, q: Any) -> Tensor:
    return infinite_where(p.low < 0, -p.entropy() + _gamma_cross(p.mean, _mean_log(p), q))


@register_kl(Uniform, Gumbel)
def _kl_uniform_gumbel(p: Any, q: Any) -> Tensor:
    ratio = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return wf.log(ratio) + 0.5 * (high + low) - ratio * (wf.exp(-high) - wf.exp(-low))


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Any, q: Any) -> Tensor:
    value = (q.alpha + 1) * _mean_log(p) - wf.log(q.alpha) - q.alpha * wf.log(q.scale) - p.entropy()
    return infinite_where(p.low < q.scale, value)
