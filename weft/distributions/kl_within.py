"""Closed forms of the divergence between two distributions of one family."""

from __future__ import annotations

from typing import Any

import weft as wf

from ..nn import functional as F
from ..tensor import Tensor
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import EULER, common_shape, half_log_det, infinite_where, inverse_tril, spread, sum_rightmost
from .wishart import Wishart, multidigamma


def _term(weight: Tensor, log_ratio: Tensor, impossible: Tensor) -> Tensor:
    """weight · log_ratio: 0 where the weight is 0, infinite where q gives it no probability."""
    product = infinite_where(impossible, weight * log_ratio)
    return wf.where(weight == 0, wf.zeros((), dtype=product.dtype), product)


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli(p: Any, q: Any) -> Tensor:
    one = _term(p.probs, F.logsigmoid(p.logits) - F.logsigmoid(q.logits), q.probs == 0)
    zero = _term(1 - p.probs, F.logsigmoid(-p.logits) - F.logsigmoid(-q.logits), q.probs == 1)
    return one + zero


@register_kl(Beta, Beta)
def _kl_beta(p: Any, q: Any) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    slopes = (a - c) * wf.digamma(a) + (b - d) * wf.digamma(b) + (c + d - a - b) * wf.digamma(a + b)
    return p._log_normalizer(c, d) - p._log_normalizer(a, b) + slopes


@register_kl(Binomial, Binomial)
def _kl_binomial(p: Any, q: Any) -> Tensor:
    """Infinite where p has more trials; not defined in closed form where q has."""
    fewer = p.total_count < q.total_count
    if not fewer.is_symbolic and bool(wf.any(fewer)):
        raise NotImplementedError(
            "kl_divergence: of two binomial distributions, the second must not have more trials (total_count)."
        )
    one = _term(p.probs, F.logsigmoid(p.logits) - F.logsigmoid(q.logits), q.probs == 0)
    zero = _term(1 - p.probs, F.logsigmoid(-p.logits) - F.logsigmoid(-q.logits), q.probs == 1)
    return infinite_where(p.total_count > q.total_count, p.total_count * (one + zero))


@register_kl(Categorical, Categorical)
def _kl_categorical(p: Any, q: Any) -> Tensor:
    return wf.sum(_term(p.probs, p.logits - q.logits, q.probs == 0), axis=-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_one_hot(p: Any, q: Any) -> Tensor:
    return _kl_categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    at_p = p._cont_bern_log_norm() + wf.log1p(-p.probs)
    at_q = q._cont_bern_log_norm() + wf.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + at_p - at_q


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    slopes = wf.digamma(a) - wf.digamma(wf.sum(a, axis=-1, keepdims=True))
    return p._log_normalizer(b) - p._log_normalizer(a) + wf.sum((a - b) * slopes, axis=-1)


@register_kl(Exponential, Exponential)
def _kl_exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - wf.log(ratio) - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_exponential_family(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normaliser, for two members of one family."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"kl_divergence: no closed form is registered for {type(p).__name__} and {type(q).__name__}. "
            f"Register one with `@register_kl({type(p).__name__}, {type(q).__name__})`."
        )
    result = q._log_normalizer(*q._natural_params) - p._log_normalizer(*p._natural_params)
    for eta_p, eta_q, slope in zip(p._natural_params, q._natural_params, p._log_normalizer_gradients(), strict=True):
        result = result - sum_rightmost((eta_q - eta_p) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _kl_gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = wf.lgamma(b) - wf.lgamma(a) + (a - b) * wf.digamma(a)
    return shapes + b * wf.log(p.rate / q.rate) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _kl_gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return shift - wf.log(ratio) + ratio * EULER + wf.exp(wf.lgamma(1 + ratio) - shift) - (1 + EULER)


@register_kl(Geometric, Geometric)
def _kl_geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - wf.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_half_normal(p: Any, q: Any) -> Tensor:
    return _kl_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, wf.abs(p.loc - q.loc)
    return distance / q.scale - wf.log(ratio) + ratio * wf.exp(-distance / p.scale) - 1


@register_kl(Normal, Normal)
def _kl_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - wf.log(ratio))


def _normal_terms(d: Any) -> tuple[Tensor, Tensor]:
    """Half the log determinant of a covariance, and a square root R of it: covariance = R Rᵀ."""
    if isinstance(d, LowRankMultivariateNormal):
        root = wf.sqrt(d._diag)
        batch = common_shape(d._factor.shape[:-2], root.shape[:-1])
        n = d.event_shape[0]
        parts = [spread(d._factor, (*batch, *d._factor.shape[-2:])), spread(wf.diag_embed(root), (*batch, n, n))]
        return 0.5 * d.log_det(), wf.concat(parts, axis=-1)
    return half_log_det(d._factor), d._factor


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _kl_multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"kl_divergence: the distributions are of vectors of {p.event_shape[0]} and {q.event_shape[0]} elements."
        )
    half_p, root = _normal_terms(p)
    half_q, _ = _normal_terms(q)
    trace = _trace(q, root)
    distance = q.squared_distance(q.loc - p.loc)
    return half_q - half_p + 0.5 * (trace + distance - p.event_shape[0])


def _trace(q: Any, root: Tensor) -> Tensor:
    """tr(Q⁻¹ R Rᵀ): the squared distances of the columns of R, added up."""
    if isinstance(q, LowRankMultivariateNormal):
        weighted = wf.sum(root**2 / q._diag[..., None], axis=(-2, -1))
        return weighted - wf.sum((q._reduction @ root) ** 2, axis=(-2, -1))
    return wf.sum((q._inverse_factor @ root) ** 2, axis=(-2, -1))


@register_kl(Pareto, Pareto)
def _kl_pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    value = q.alpha * wf.log(p.scale / q.scale) - wf.log(ratio) + ratio - 1
    return infinite_where(p.scale < q.scale, value)


@register_kl(Poisson, Poisson)
def _kl_poisson(p: Any, q: Any) -> Tensor:
    return wf.xlogy(p.rate, p.rate) - wf.xlogy(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed(p: Any, q: Any) -> Tensor:
    """Bijective transforms do not change it, if they are the same."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            f"kl_divergence: {p!r} and {q!r} have different transforms, for which there is no closed form."
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _kl_uniform(p: Any, q: Any) -> Tensor:
    value = wf.log((q.high - q.low) / (p.high - p.low))
    return infinite_where((q.low > p.low) | (q.high < p.high), value)


@register_kl(Independent, Independent)
def _kl_independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "kl_divergence: the two Independent distributions have different numbers of event axes: "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}."
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy(p: Any, q: Any) -> Tensor:
    return wf.log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale))


@register_kl(Wishart, Wishart)
def _kl_wishart(p: Any, q: Any) -> Tensor:
    n = p.event_shape[-1]
    log_dets = q.df * (half_log_det(q._factor) - half_log_det(p._factor))
    ratio = inverse_tril(q._factor) @ p._factor
    trace = wf.sum(ratio**2, axis=(-2, -1))
    gammas = wf.special.multigammaln(q.df / 2, n) - wf.special.multigammaln(p.df / 2, n)
    slopes = (p.df - q.df) / 2 * multidigamma(p.df / 2, n)
    return log_dets + 0.5 * p.df * (trace - n) + gammas + slopes
