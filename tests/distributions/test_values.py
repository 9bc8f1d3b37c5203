"""Densities, distribution functions, quantiles, moments and entropies against SciPy, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats as st

import weft as wf
import weft.distributions as D
from tests.distributions.families import FAMILIES, Parameters
from tests.each import each


def t(*values):
    return wf.tensor(np.array(values, np.float64))


POSITIVE = np.array([0.05, 0.4, 1.0, 2.7, 9.0])
REAL = np.array([-4.0, -0.6, 0.0, 0.9, 5.0])
UNIT = np.array([0.02, 0.3, 0.5, 0.77, 0.99])
COUNTS = np.array([0.0, 1.0, 4.0, 9.0, 17.0])

CONTINUOUS = {
    "Beta": (D.Beta(t(2.0), t(0.7)), st.beta(2.0, 0.7), UNIT),
    "Cauchy": (D.Cauchy(t(0.5), t(2.0)), st.cauchy(0.5, 2.0), REAL),
    "Chi2": (D.Chi2(t(3.5)), st.chi2(3.5), POSITIVE),
    "Exponential": (D.Exponential(t(2.5)), st.expon(scale=0.4), POSITIVE),
    "FisherSnedecor": (D.FisherSnedecor(t(5.0), t(9.0)), st.f(5, 9), POSITIVE),
    "Gamma": (D.Gamma(t(1.7), t(0.5)), st.gamma(1.7, scale=2.0), POSITIVE),
    "GeneralizedPareto": (D.GeneralizedPareto(t(-5.0), t(2.0), t(0.2)), st.genpareto(0.2, -5.0, 2.0), REAL),
    "GeneralizedPareto, bounded": (D.GeneralizedPareto(t(0.0), t(2.0), t(-0.2)), st.genpareto(-0.2, 0.0, 2.0), POSITIVE),
    "GeneralizedPareto, exponential": (D.GeneralizedPareto(t(0.0), t(2.0), t(0.0)), st.genpareto(0.0, 0.0, 2.0), POSITIVE),
    "Gumbel": (D.Gumbel(t(0.5), t(2.0)), st.gumbel_r(0.5, 2.0), REAL),
    "HalfCauchy": (D.HalfCauchy(t(2.0)), st.halfcauchy(scale=2.0), POSITIVE),
    "HalfNormal": (D.HalfNormal(t(2.0)), st.halfnorm(scale=2.0), POSITIVE),
    "InverseGamma": (D.InverseGamma(t(3.3), t(2.0)), st.invgamma(3.3, scale=2.0), POSITIVE),
    "Laplace": (D.Laplace(t(0.5), t(2.0)), st.laplace(0.5, 2.0), REAL),
    "LogNormal": (D.LogNormal(t(0.3), t(0.8)), st.lognorm(0.8, scale=np.exp(0.3)), POSITIVE),
    "Normal": (D.Normal(t(0.5), t(2.0)), st.norm(0.5, 2.0), REAL),
    "Pareto": (D.Pareto(t(0.04), t(3.0)), st.pareto(3.0, scale=0.04), POSITIVE),
    "StudentT": (D.StudentT(t(4.5), t(0.5), t(2.0)), st.t(4.5, 0.5, 2.0), REAL),
    "Uniform": (D.Uniform(t(-4.5), t(5.5)), st.uniform(-4.5, 10.0), REAL),
    "VonMises": (D.VonMises(t(0.5), t(3.0)), st.vonmises(3.0, loc=0.5), np.array([-2.0, 0.0, 1.0, 3.0])),
    "Weibull": (D.Weibull(t(2.0), t(1.5)), st.weibull_min(1.5, scale=2.0), POSITIVE),
}  # fmt: skip

DISCRETE = {
    "Bernoulli": (D.Bernoulli(t(0.3)), st.bernoulli(0.3), np.array([0.0, 1.0])),
    "Binomial": (D.Binomial(20, t(0.3)), st.binom(20, 0.3), COUNTS),
    "Geometric": (D.Geometric(t(0.3)), st.geom(0.3, loc=-1), COUNTS),
    "NegativeBinomial": (D.NegativeBinomial(t(3.5), t(0.3)), st.nbinom(3.5, 0.7), COUNTS),
    "Poisson": (D.Poisson(t(3.5)), st.poisson(3.5), COUNTS),
}


def test_families_agree_with_scipy():
    def check(d, reference, x):
        value = wf.tensor(x).reshape(-1, 1)
        density = reference.logpdf(x) if hasattr(reference.dist, "logpdf") else reference.logpmf(x)
        np.testing.assert_allclose(d.log_prob(value).numpy()[:, 0], density, rtol=1e-9, atol=1e-12)
        named = {"mean": reference.mean(), "variance": reference.var(), "entropy": reference.entropy()}
        if isinstance(d, D.VonMises):
            del named["mean"], named["variance"]  # those of angles are others
        if isinstance(d, D.Cauchy):
            del named["variance"]  # infinite here as in PyTorch, NaN in SciPy
        for name, expected in named.items():
            try:
                got = getattr(d, name)
                got = got() if callable(got) else got
            except NotImplementedError:
                assert name == "entropy" and isinstance(d, (D.Poisson, D.NegativeBinomial))
                continue
            np.testing.assert_allclose(got.numpy()[0], expected, rtol=1e-7, atol=1e-9, err_msg=name)
        probabilities = wf.tensor(UNIT).reshape(-1, 1)
        for name, expected, given in (("cdf", reference.cdf(x), value), ("icdf", reference.ppf(UNIT), probabilities)):
            if (
                type(d).__dict__.get(name)
                or isinstance(d, D.TransformedDistribution)
                and name in FUNCTIONS.get(type(d), ())
            ):
                np.testing.assert_allclose(getattr(d, name)(given).numpy()[:, 0], expected, rtol=1e-9, atol=1e-12)

    each(check, {**CONTINUOUS, **DISCRETE})


FUNCTIONS = {
    D.LogNormal: ("cdf", "icdf"),
    D.Pareto: ("cdf", "icdf"),
    D.Weibull: ("cdf", "icdf"),
    D.InverseGamma: ("cdf",),
}


def test_distributions_of_vectors_agree_with_scipy():
    rng = np.random.default_rng(0)
    a, weights = np.array([0.7, 2.0, 3.5]), np.array([0.2, 0.5, 0.3])
    covariance = np.cov(rng.normal(size=(3, 20)))
    mean, x = rng.normal(size=3), rng.normal(size=(4, 3))
    factor, diagonal = rng.normal(size=(3, 2)), rng.uniform(0.5, 2, 3)
    low_rank = factor @ factor.T + np.diag(diagonal)
    simplex = rng.dirichlet(np.ones(3), size=4)
    scatter = np.stack([covariance * 4, covariance * 9 + np.eye(3)])

    def check(d, reference, x, density):
        np.testing.assert_allclose(d.log_prob(wf.tensor(x)).numpy(), density, rtol=1e-9)
        np.testing.assert_allclose(d.entropy().numpy(), reference.entropy(), rtol=1e-9)
        np.testing.assert_allclose(
            d.mean.numpy(), np.asarray(reference.mean() if callable(reference.mean) else reference.mean)
        )

    normal, low = st.multivariate_normal(mean, covariance), st.multivariate_normal(mean, low_rank)
    dirichlet, multinomial, wishart = st.dirichlet(a), st.multinomial(6, weights), st.wishart(7.0, covariance)
    counts = np.array([[1.0, 2.0, 3.0], [6.0, 0.0, 0.0]])
    loc, tensor = wf.tensor(mean), wf.tensor(covariance)
    root = wf.tensor(np.linalg.cholesky(covariance))
    inverse = wf.tensor(np.linalg.inv(covariance))
    given = (x, normal.logpdf(x))
    each(
        check,
        {
            "covariance": (D.MultivariateNormal(loc, tensor), normal, *given),
            "precision": (D.MultivariateNormal(loc, precision_matrix=inverse), normal, *given),
            "scale_tril": (D.MultivariateNormal(loc, scale_tril=root), normal, *given),
            "low rank": (
                D.LowRankMultivariateNormal(loc, wf.tensor(factor), wf.tensor(diagonal)),
                low,
                x,
                low.logpdf(x),
            ),
            "Dirichlet": (D.Dirichlet(wf.tensor(a)), dirichlet, simplex, [dirichlet.logpdf(v) for v in simplex]),
            "Multinomial": (D.Multinomial(6, wf.tensor(weights)), multinomial, counts, multinomial.logpmf(counts)),
            "Wishart": (D.Wishart(7.0, tensor), wishart, scatter, [wishart.logpdf(v) for v in scatter]),
        },
    )
    d = D.LowRankMultivariateNormal(loc, wf.tensor(factor), wf.tensor(diagonal))
    np.testing.assert_allclose(d.covariance_matrix.numpy(), low_rank)
    np.testing.assert_allclose(d.precision_matrix.numpy(), np.linalg.inv(low_rank), rtol=1e-8)
    np.testing.assert_allclose((d.scale_tril @ d.scale_tril.mT).numpy(), low_rank)
    np.testing.assert_allclose(d.variance.numpy(), np.diag(low_rank))
    np.testing.assert_allclose(D.MultivariateNormal(loc, tensor).precision_matrix.numpy(), inverse.numpy(), rtol=1e-8)


def test_densities_integrate_to_one_and_give_the_moments_and_the_entropy():
    """For families that SciPy lacks."""

    def check(d, low, high):
        def integral(f):
            point = lambda x: float(f(wf.tensor(x, dtype=wf.float64)))
            return scipy.integrate.quad(point, low, high, limit=200)[0]

        density = lambda x: wf.exp(d.log_prob(x))
        assert integral(density) == pytest.approx(1, abs=1e-7)
        for name, f in (
            ("mean", lambda x: x * density(x)),
            ("variance", lambda x: (x - d.mean) ** 2 * density(x)),
            ("entropy", lambda x: -d.log_prob(x) * density(x)),
        ):
            try:
                expected = getattr(d, name)
                expected = float(expected() if callable(expected) else expected)
            except NotImplementedError:
                continue
            assert integral(f) == pytest.approx(expected, abs=1e-6), name

    normal = lambda: D.Normal(t(0.3)[0], t(0.8)[0])
    each(
        check,
        {
            "ContinuousBernoulli": (D.ContinuousBernoulli(wf.tensor(0.2, dtype=wf.float64)), 0, 1),
            "ContinuousBernoulli, half": (D.ContinuousBernoulli(wf.tensor(0.4999, dtype=wf.float64)), 0, 1),
            "Kumaraswamy": (D.Kumaraswamy(t(2.0)[0], t(1.5)[0]), 1e-12, 1 - 1e-12),
            "RelaxedBernoulli": (D.RelaxedBernoulli(t(0.7)[0], t(0.4)[0]), 1e-9, 1 - 1e-9),
            "Mixture": (D.MixtureSameFamily(D.Categorical(t(1.0, 3.0)), D.Normal(t(-1.0, 2.0), t(0.5, 1.0))), -9, 12),
            "Transformed": (D.TransformedDistribution(normal(), [D.TanhTransform(), D.AffineTransform(1.0, -2.0)]), -1, 3),
            "Sigmoid": (D.TransformedDistribution(normal(), D.SigmoidTransform()), 1e-12, 1 - 1e-12),
            "Softplus": (D.TransformedDistribution(normal(), D.SoftplusTransform()), 1e-12, 20),
        },
    )  # fmt: skip


def test_quantiles_invert_distribution_functions():
    def check(name):
        d = FAMILIES[name](Parameters(3))
        p = wf.tensor(np.random.default_rng(0).uniform(0.05, 0.95, (4, *d.batch_shape)))
        np.testing.assert_allclose(d.cdf(d.icdf(p)).numpy(), p.numpy(), rtol=1e-8)

    names = [
        "Cauchy", "ContinuousBernoulli", "Exponential", "GeneralizedPareto", "Gumbel", "HalfCauchy", "HalfNormal",
        "Kumaraswamy", "Laplace", "LogNormal", "Normal", "Pareto", "TransformedDistribution", "Uniform", "Weibull",
    ]  # fmt: skip
    each(check, {name: (name,) for name in names})


def test_modes_maximise_the_density():
    def check(name):
        d = FAMILIES[name](Parameters(5))
        mode = d.mode
        if d.support.is_discrete and name.startswith(("Categorical", "OneHot")):
            others = [d.log_prob(v) for v in d.enumerate_support()]
            assert all(bool((d.log_prob(mode) >= v - 1e-12).all()) for v in others)
            return
        best = d.log_prob(mode)
        steps = (-1.0, 1.0) if d.support.is_discrete else (-1e-3, 1e-3)
        d._validate_args = False
        for step in steps:
            near = mode + step
            inside = bool(d.support.check(near).all()) if d.event_shape == () else True
            if inside and not name.startswith("Dirichlet"):
                assert bool((best >= d.log_prob(near) - 1e-9).all()), f"{mode} {near}"

    names = [
        "Bernoulli", "Binomial", "Categorical", "Cauchy", "Gumbel", "Independent", "Laplace", "LogNormal", "MultivariateNormal",
        "LowRankMultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "Poisson", "StudentT", "VonMises",
        "InverseGamma",
    ]  # fmt: skip
    each(check, {name: (name,) for name in names})
    assert D.Dirichlet(t(3.0, 2.0, 1.0)).mode.tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert D.Beta(t(3.0), t(2.0)).mode.tolist() == pytest.approx([2 / 3])
    assert D.Gamma(t(3.0), t(2.0)).mode.tolist() == [1.0]
    assert D.Weibull(t(2.0), t(1.0)).mode.tolist() == [0.0]


def test_support_is_enumerated():
    def check(d, count):
        values = d.enumerate_support()
        assert values.shape == (count, *d.batch_shape, *d.event_shape)
        total = wf.sum(wf.exp(d.log_prob(values)), axis=0)
        np.testing.assert_allclose(total.numpy(), np.ones(d.batch_shape), rtol=1e-6)
        assert d.enumerate_support(expand=False).shape == (count, *(1,) * len(d.batch_shape), *d.event_shape)

    each(
        check,
        {
            "Bernoulli": (D.Bernoulli(wf.tensor([0.3, 0.5])), 2),
            "Binomial": (D.Binomial(5, wf.tensor([0.3, 0.5])), 6),
            "Categorical": (D.Categorical(wf.ones(2, 3)), 3),
            "OneHotCategorical": (D.OneHotCategorical(wf.ones(2, 3)), 3),
            "Independent": (D.Independent(D.Bernoulli(wf.tensor([0.3, 0.5])), 0), 2),
        },
    )
    with pytest.raises(NotImplementedError, match="different total_count"):
        D.Binomial(wf.tensor([2.0, 3.0]), 0.5).enumerate_support()


def test_exponential_families_agree_with_their_natural_parameters():
    """The entropy and divergence that follow from the log normaliser are the closed forms."""

    def check(p, q, closed_entropy=True):
        expected = p.entropy() if closed_entropy else None
        if expected is not None:
            np.testing.assert_allclose(D.ExponentialFamily.entropy(p).numpy(), expected.numpy(), rtol=1e-8)
        from weft.distributions.kl_within import _kl_exponential_family

        np.testing.assert_allclose(_kl_exponential_family(p, q).numpy(), D.kl_divergence(p, q).numpy(), rtol=1e-7)

    each(
        check,
        {
            "Bernoulli": (D.Bernoulli(t(0.3, 0.6)), D.Bernoulli(t(0.5, 0.9))),
            "Beta": (D.Beta(t(2.0), t(3.0)), D.Beta(t(1.0), t(0.5)), False),
            "Dirichlet": (D.Dirichlet(t(2.0, 3.0)), D.Dirichlet(t(1.0, 0.5)), False),
            "Exponential": (D.Exponential(t(2.0)), D.Exponential(t(0.7))),
            "Gamma": (D.Gamma(t(2.0), t(3.0)), D.Gamma(t(1.0), t(0.5))),
            "Normal": (D.Normal(t(2.0), t(3.0)), D.Normal(t(1.0), t(0.5)), False),
            "Poisson": (D.Poisson(t(2.0)), D.Poisson(t(0.7)), False),
            "ContinuousBernoulli": (D.ContinuousBernoulli(t(0.3)), D.ContinuousBernoulli(t(0.6))),
        },
    )
