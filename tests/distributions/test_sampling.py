"""Samples of every family: shapes, moments, seeds, captured functions, and gradients of reparameterised samples."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import weft as wf
import weft.distributions as D
from tests.distributions.families import FAMILIES, REJECTION, Parameters
from tests.each import each


def _cases(keep=lambda name: True):
    return {name: (name,) for name in FAMILIES if keep(name)}


def test_samples_have_shape_support_and_finite_density():
    def check(name):
        wf.manual_seed(1)
        d = FAMILIES[name](Parameters(2))
        shape = (5, 2, *d.batch_shape, *d.event_shape)
        x = d.sample((5, 2))
        assert x.shape == shape and not x.requires_grad
        assert bool(d.support.check(x).all()), x
        density = d.log_prob(x)
        assert density.shape == shape[: len(shape) - len(d.event_shape)] and bool(wf.isfinite(density).all())
        assert d.sample().shape == d.batch_shape + d.event_shape
        assert d.sample((0,)).shape == (0, *d.batch_shape, *d.event_shape)
        expanded = d.expand((4, *d.batch_shape))
        assert expanded.batch_shape == (4, *d.batch_shape) and expanded.event_shape == d.event_shape
        y = expanded.sample((2,))
        assert y.shape == (2, 4, *d.batch_shape, *d.event_shape)
        np.testing.assert_allclose(expanded.log_prob(y).numpy(), d.log_prob(y).numpy(), rtol=1e-10)

    each(check, _cases())


def test_moments_of_samples_are_those_stated():
    def check(name):
        wf.manual_seed(3)
        d, n = FAMILIES[name](Parameters(4)), 10_000
        x = d.sample((n,)).numpy().astype(np.float64)
        mean, variance = d.mean.numpy(), d.variance.numpy()
        np.testing.assert_allclose(d.stddev.numpy(), np.sqrt(variance))
        known = np.isfinite(mean) & np.isfinite(variance) & (variance > 0)
        error = np.abs(x.mean(0) - mean)[known] / np.sqrt(variance / n)[known]
        assert (error < 5).all(), f"mean {x.mean(0)}, stated {mean}"
        spread = x.std(0)[known] / np.sqrt(variance)[known]
        assert (np.abs(spread - 1) < 0.1).all(), f"variance {x.var(0)}, stated {variance}"

    without = {
        "LKJCholesky",
        "LogisticNormal",
        "RelaxedBernoulli",
        "RelaxedOneHotCategorical",
        "TransformedDistribution",
    }
    each(check, _cases(lambda name: name not in without and name != "VonMises"))


def test_samples_follow_the_distribution_functions():
    def check(d, reference):
        wf.manual_seed(5)
        x = d.sample((4000,)).numpy()
        assert scipy.stats.kstest(x, reference.cdf).pvalue > 1e-4

    s = scipy.stats
    each(
        check,
        {
            "Beta": (D.Beta(0.4, 2.0), s.beta(0.4, 2.0)),
            "Cauchy": (D.Cauchy(1.0, 2.0), s.cauchy(1.0, 2.0)),
            "FisherSnedecor": (D.FisherSnedecor(3.0, 7.0), s.f(3, 7)),
            "Gamma": (D.Gamma(0.3, 2.0), s.gamma(0.3, scale=0.5)),
            "HalfCauchy": (D.HalfCauchy(2.0), s.halfcauchy(scale=2)),
            "Kumaraswamy": (D.Kumaraswamy(1.0, 3.0), s.beta(1.0, 3.0)),
            "StudentT": (D.StudentT(1.5, 1.0, 2.0), s.t(1.5, 1.0, 2.0)),
            "VonMises": (D.VonMises(1.0, 3.0), s.vonmises(3.0, loc=1.0)),
        },
    )
    wf.manual_seed(6)  # an element of a correlation matrix of size n is 2 B - 1, with B of Beta(c + n/2 - 1)
    factor = D.LKJCholesky(3, 0.7).sample((4000,)).numpy()
    matrix = factor @ factor.swapaxes(-1, -2)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        assert scipy.stats.kstest(matrix[:, i, j], scipy.stats.beta(1.2, 1.2, -1, 2).cdf).pvalue > 1e-4


def test_categories_of_probability_zero_are_never_drawn():
    wf.manual_seed(0)
    x = D.Categorical(wf.tensor([0.0, 1e-9, 0.0, 1.0, 0.0])).sample((20_000,))
    assert set(x.tolist()) <= {1, 3} and x.dtype == wf.int64


def test_seeds_decide_samples_eagerly_and_in_captured_functions():
    def check(name):
        d = FAMILIES[name](Parameters(7))
        draw = lambda: d.sample((2,))
        captured = wf.function(draw)
        wf.manual_seed(11)
        first, second = draw(), draw()
        wf.manual_seed(11)
        for expected in (first, second):
            np.testing.assert_allclose(captured().numpy(), expected.numpy(), rtol=1e-6, atol=1e-9)
        assert d.sample().dtype == first.dtype

    each(check, _cases())


def test_captured_densities_and_gradients_equal_eager_ones():
    def check(name):
        p = Parameters(8, grad=True)
        FAMILIES[name](p)  # to know the leaves
        wf.manual_seed(1)
        with wf.no_grad():
            x = FAMILIES[name](Parameters(8)).sample((3,))

        def density(value, *leaves):
            source = Parameters(8)
            rest = iter(leaves)
            source._tensor = lambda array: next(rest)
            return FAMILIES[name](source).log_prob(value)

        leaves = [t.detach() for t in p.leaves]

        def total(*leaves):
            values = density(x, *leaves)
            return wf.sum(values), values

        both = wf.value_and_grad(total, argnums=tuple(range(len(leaves))), has_aux=True)
        ((_, expected), expected_slopes), ((_, got), slopes) = both(*leaves), wf.function(both)(*leaves)
        for a, b in zip((got, *slopes), (expected, *expected_slopes), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-8)

    each(check, _cases())


def test_gradients_of_samples_equal_finite_differences():
    def check(name):
        p = Parameters(9, grad=True)
        d = FAMILIES[name](p)
        assert d.has_rsample
        wf.manual_seed(21)
        x = d.rsample((4,))
        weights = np.random.default_rng(0).normal(size=x.shape)
        gradients = wf.grad(wf.sum(x * wf.tensor(weights)), p.leaves, allow_unused=True)

        def moved(index, step):
            source = Parameters(9)
            count = iter(range(len(p.leaves)))
            make = source._tensor

            def shifted(array):
                i = next(count)
                return make(array + step * directions[i] if i == index else array)

            source._tensor = shifted
            wf.manual_seed(21)
            return float((FAMILIES[name](source).rsample((4,)).numpy() * weights).sum())

        rng = np.random.default_rng(1)
        directions = [np.tril(rng.normal(size=t.shape)) if t.ndim == 2 else rng.normal(size=t.shape) for t in p.leaves]
        for i, g in enumerate(gradients):
            numeric = (moved(i, 1e-6) - moved(i, -1e-6)) / 2e-6
            analytic = 0.0 if g is None else float((g.numpy() * directions[i]).sum())
            assert abs(numeric - analytic) < 2e-5 * max(1.0, abs(numeric)), (
                f"parameter {i}: {analytic}, numeric {numeric}"
            )

    smooth = lambda name: FAMILIES[name](Parameters(9)).has_rsample and name not in REJECTION
    each(check, _cases(lambda name: smooth(name) and name != "OneHotCategoricalStraightThrough"))


def test_implicit_gradients_of_gamma_samples_follow_the_quantile():
    for a in (0.02, 0.4, 1.0, 7.0, 90.0, 5000.0):
        wf.manual_seed(2)
        concentration = wf.full((200,), a, dtype=wf.float64).requires_grad_()
        x = D.Gamma(concentration, 2.0).rsample()
        (gradient,) = wf.grad(x.sum(), concentration)
        values, eps = x.detach().numpy() * 2.0, a * 1e-4
        kept = (values > 1e-200) & (scipy.stats.gamma.sf(values, a) > 1e-12)
        u = scipy.stats.gamma.cdf(values, a)
        logs = [np.log(scipy.stats.gamma.ppf(u[kept], a + step)) for step in (eps, -eps)]
        slopes = gradient.numpy()[kept] * 2.0 / values[kept]
        np.testing.assert_allclose(slopes, (logs[0] - logs[1]) / (2 * eps), rtol=1e-6, err_msg=str(a))


def test_implicit_gradients_have_the_mean_of_the_derivative_of_the_mean():
    def check(make, *values):
        wf.manual_seed(3)
        n = 8_000
        leaves = [wf.full((n,), v, dtype=wf.float64).requires_grad_() for v in values]
        for power in (1, 2):
            gradients = wf.grad(wf.sum(make(*leaves).rsample() ** power), leaves)
            for i, g in enumerate(gradients):
                slopes = []
                for sign in (1, -1):
                    moved = [v + sign * 1e-5 * (i == j) for j, v in enumerate(values)]
                    d = make(*[wf.tensor(v, dtype=wf.float64) for v in moved])
                    slopes.append(d.mean.item() if power == 1 else (d.variance + d.mean**2).item())
                expected = (slopes[0] - slopes[1]) / 2e-5
                error = abs(g.numpy().mean() - expected) / (g.numpy().std() / np.sqrt(n) + 1e-9)
                assert error < 5, f"E[x^{power}] by parameter {i}: {g.numpy().mean()}, expected {expected}"

    each(
        check,
        {
            "Gamma": (D.Gamma, 0.6, 2.0),
            "Beta": (D.Beta, 0.7, 2.5),
            "Beta, small": (D.Beta, 0.05, 0.1),
            "Chi2": (D.Chi2, 3.0),
            "StudentT": (D.StudentT, 9.0, 0.5, 2.0),
            "FisherSnedecor": (D.FisherSnedecor, 4.0, 20.0),
            "InverseGamma": (D.InverseGamma, 9.0, 2.0),
        },
    )
    wf.manual_seed(4)
    a = np.array([0.3, 1.0, 4.0])
    concentration = wf.tensor(np.broadcast_to(a, (8_000, 3)).copy(), requires_grad=True)
    (gradient,) = wf.grad(D.Dirichlet(concentration).rsample()[:, 0].sum(), concentration)
    total = a.sum()
    expected = np.array([total - a[0], -a[0], -a[0]]) / total**2
    spread = gradient.numpy().std(0) / np.sqrt(8_000)
    assert (np.abs(gradient.numpy().mean(0) - expected) < 5 * spread).all()


def test_tiny_concentrations_give_valid_samples():
    wf.manual_seed(0)
    x = D.Dirichlet(wf.full((1000, 3), 1e-4).requires_grad_())
    y = x.rsample()
    y[:, 0].sum().backward()
    assert bool(wf.isfinite(y.detach()).all()) and bool(wf.isfinite(x.concentration.grad).all())
    assert bool(D.constraints.simplex.check(y.detach()).all())
    assert bool((D.Gamma(wf.full((1000,), 1e-4), 1.0).sample() > 0).all())


def test_straight_through_samples_have_the_gradients_of_probabilities():
    logits = wf.tensor([0.2, -0.5, 1.0], dtype=wf.float64, requires_grad=True)
    weights = wf.tensor([1.0, 2.0, 4.0], dtype=wf.float64)
    d = D.OneHotCategoricalStraightThrough(logits=logits)
    x = d.rsample()
    assert sorted(np.round(x.detach().numpy(), 12)) == [0, 0, 1]
    (got,) = wf.grad((x * weights).sum(), logits)
    (expected,) = wf.grad((wf.nn.functional.softmax(logits, -1) * weights).sum(), logits)
    np.testing.assert_allclose(got.numpy(), expected.numpy())


def test_families_without_differentiable_samples_say_so():
    for name, make in FAMILIES.items():
        d = make(Parameters(0))
        if not d.has_rsample:
            with pytest.raises(NotImplementedError, match="Use `sample`"):
                d.rsample()
            assert name


def test_samples_inside_vmap_and_in_single_precision():
    scale = wf.tensor([1.0, 2.0, 3.0])
    x = wf.vmap(lambda s: D.Gamma(s, s).rsample((2,)), randomness="different")(scale)
    assert x.shape == (3, 2) and x.dtype == wf.float32
    assert wf.vmap(lambda s: D.Normal(0.0, s).log_prob(wf.tensor(0.0)))(scale).shape == (3,)
    for make in (lambda: D.Normal(0, 1), lambda: D.Gamma(1, 2), lambda: D.Categorical(wf.ones(3))):
        assert make().log_prob(wf.tensor(1.0)).dtype == wf.float32
