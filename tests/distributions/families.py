"""One distribution of every family, with random parameters, and values in its support: what several tests go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft as wf
import weft.distributions as D


class Parameters:
    """Random parameters in float64, recorded as leaves that require gradients if asked."""

    def __init__(self, seed: int = 0, grad: bool = False) -> None:
        self.rng, self.grad, self.leaves = np.random.default_rng(seed), grad, []

    def _tensor(self, array: np.ndarray) -> wf.Tensor:
        t = wf.tensor(array)
        if self.grad:
            t.requires_grad_()
            self.leaves.append(t)
        return t

    def positive(self, *shape: int) -> wf.Tensor:
        return self._tensor(self.rng.uniform(0.6, 3, shape))

    def real(self, *shape: int) -> wf.Tensor:
        return self._tensor(self.rng.normal(size=shape))

    def unit(self, *shape: int) -> wf.Tensor:
        return self._tensor(self.rng.uniform(0.1, 0.9, shape))

    def tril(self, *shape: int) -> wf.Tensor:
        return self._tensor(np.tril(self.rng.uniform(0.4, 1.2, shape)))


FAMILIES: dict[str, Callable[[Parameters], Any]] = {
    "Bernoulli": lambda p: D.Bernoulli(p.unit(3)),
    "Bernoulli logits": lambda p: D.Bernoulli(logits=p.real(2, 3)),
    "Beta": lambda p: D.Beta(p.positive(3), p.positive(3)),
    "Binomial": lambda p: D.Binomial(7, p.unit(3)),
    "Categorical": lambda p: D.Categorical(p.positive(3, 4)),
    "Categorical logits": lambda p: D.Categorical(logits=p.real(3, 4)),
    "Cauchy": lambda p: D.Cauchy(p.real(3), p.positive(3)),
    "Chi2": lambda p: D.Chi2(p.positive(3)),
    "ContinuousBernoulli": lambda p: D.ContinuousBernoulli(p.unit(3)),
    "Dirichlet": lambda p: D.Dirichlet(p.positive(2, 3)),
    "Exponential": lambda p: D.Exponential(p.positive(3)),
    "FisherSnedecor": lambda p: D.FisherSnedecor(p.positive(3) * 3, p.positive(3) * 9),
    "Gamma": lambda p: D.Gamma(p.positive(3), p.positive(3)),
    "GeneralizedPareto": lambda p: D.GeneralizedPareto(p.real(3), p.positive(3), p.unit(3) * 0.3),
    "Geometric": lambda p: D.Geometric(p.unit(3)),
    "Gumbel": lambda p: D.Gumbel(p.real(3), p.positive(3)),
    "HalfCauchy": lambda p: D.HalfCauchy(p.positive(3)),
    "HalfNormal": lambda p: D.HalfNormal(p.positive(3)),
    "Independent": lambda p: D.Independent(D.Normal(p.real(2, 3), p.positive(2, 3)), 1),
    "InverseGamma": lambda p: D.InverseGamma(p.positive(3) + 5.0, p.positive(3)),
    "Kumaraswamy": lambda p: D.Kumaraswamy(p.positive(3), p.positive(3)),
    "LKJCholesky": lambda p: D.LKJCholesky(3, p.positive(2)),
    "Laplace": lambda p: D.Laplace(p.real(3), p.positive(3)),
    "LogNormal": lambda p: D.LogNormal(p.real(3), p.unit(3) * 0.6),
    "LogisticNormal": lambda p: D.LogisticNormal(p.real(2, 3), p.positive(2, 3)),
    "LowRankMultivariateNormal": lambda p: D.LowRankMultivariateNormal(p.real(2, 3), p.real(2, 3, 2), p.positive(2, 3)),
    "MixtureSameFamily": lambda p: D.MixtureSameFamily(D.Categorical(p.positive(2, 3)), D.Normal(p.real(2, 3), p.positive(2, 3))),
    "MixtureSameFamily of vectors": lambda p: D.MixtureSameFamily(
        D.Categorical(p.positive(3)), D.Independent(D.Normal(p.real(3, 2), p.positive(3, 2)), 1)
    ),
    "Multinomial few draws": lambda p: D.Multinomial(3, p.positive(2, 4)),
    "Multinomial many draws": lambda p: D.Multinomial(40, p.positive(2, 3)),
    "MultivariateNormal": lambda p: D.MultivariateNormal(p.real(2, 3), scale_tril=p.tril(3, 3)),
    "NegativeBinomial": lambda p: D.NegativeBinomial(p.positive(3) * 3, p.unit(3)),
    "Normal": lambda p: D.Normal(p.real(3), p.positive(3)),
    "OneHotCategorical": lambda p: D.OneHotCategorical(p.positive(2, 3)),
    "OneHotCategoricalStraightThrough": lambda p: D.OneHotCategoricalStraightThrough(logits=p.real(2, 3)),
    "Pareto": lambda p: D.Pareto(p.positive(3), p.positive(3) + 5.0),
    "Poisson": lambda p: D.Poisson(p.positive(3) * 6),
    "RelaxedBernoulli": lambda p: D.RelaxedBernoulli(0.7, p.unit(3)),
    "RelaxedOneHotCategorical": lambda p: D.RelaxedOneHotCategorical(wf.tensor([0.7], dtype=wf.float64), p.positive(2, 4)),
    "StudentT": lambda p: D.StudentT(p.positive(3) + 6.0, p.real(3), p.positive(3)),
    "TransformedDistribution": lambda p: D.TransformedDistribution(
        D.Normal(p.real(3), p.positive(3)), [D.TanhTransform(cache_size=1), D.AffineTransform(1.0, -2.0, cache_size=1)]
    ),
    "Uniform": lambda p: D.Uniform(p.real(3) - 3.0, p.real(3) + 3.0),
    "VonMises": lambda p: D.VonMises(p.real(3), p.positive(3)),
    "Weibull": lambda p: D.Weibull(p.positive(3), p.positive(3)),
    "Wishart": lambda p: D.Wishart(p.positive(2) + 4.0, scale_tril=p.tril(3, 3)),
}  # fmt: skip
"""one of every family; parameters are drawn in the order of the arguments"""

REJECTION = {"Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT", "Wishart"}
"""families whose samples contain gamma variables: their gradients are implicit, not those of the sampling algorithm"""
