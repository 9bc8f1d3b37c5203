"""The divergence of every registered pair against an average over samples, its registry, and its gradients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft as wf
import weft.distributions as D
from tests.each import each
from weft.distributions import kl


def _members(seed):
    """A member of each family; those of seed 0 have values inside the support of those of seed 1 where that is bounded."""
    rng = np.random.default_rng(seed)
    positive = lambda *shape: wf.tensor(rng.uniform(0.5, 3, shape))
    real = lambda *shape: wf.tensor(rng.normal(size=shape))
    unit = lambda *shape: wf.tensor(rng.uniform(0.1, 0.9, shape))
    tril = lambda *shape: wf.tensor(np.tril(rng.uniform(0.5, 1.5, shape)))
    number = lambda value: wf.full((2,), value, dtype=wf.float64)
    return {
        D.Bernoulli: D.Bernoulli(unit(2)),
        D.Beta: D.Beta(positive(2), positive(2)),
        D.Binomial: D.Binomial(5, unit(2)),
        D.Categorical: D.Categorical(positive(2, 4)),
        D.Cauchy: D.Cauchy(real(2), positive(2)),
        D.ContinuousBernoulli: D.ContinuousBernoulli(unit(2)),
        D.Dirichlet: D.Dirichlet(positive(2, 4)),
        D.Exponential: D.Exponential(positive(2)),
        D.Gamma: D.Gamma(positive(2), positive(2)),
        D.Geometric: D.Geometric(unit(2)),
        D.Gumbel: D.Gumbel(real(2), positive(2)),
        D.HalfNormal: D.HalfNormal(positive(2)),
        D.Independent: D.Independent(D.Normal(real(2, 3), positive(2, 3)), 1),
        D.Laplace: D.Laplace(real(2), positive(2)),
        D.LowRankMultivariateNormal: D.LowRankMultivariateNormal(real(2, 3), real(2, 3, 1), positive(2, 3)),
        D.MultivariateNormal: D.MultivariateNormal(real(2, 3), scale_tril=tril(3, 3)),
        D.Normal: D.Normal(real(2), positive(2)),
        D.OneHotCategorical: D.OneHotCategorical(positive(2, 4)),
        D.Pareto: D.Pareto(number(0.04 if seed else 0.3), positive(2) + 3),
        D.Poisson: D.Poisson(positive(2)),
        D.TransformedDistribution: D.LogNormal(real(2), positive(2)),
        D.Uniform: D.Uniform(number(-0.2 if seed else 0.1), number(1.3 if seed else 0.8)),
        D.Wishart: D.Wishart(positive(2) + 4, scale_tril=tril(3, 3)),
    }


def test_divergences_are_the_mean_difference_of_log_densities():
    left, right = _members(0), _members(1)

    def check(p, q):
        value = D.kl_divergence(p, q).numpy()
        assert value.shape == np.broadcast_shapes(p.batch_shape, q.batch_shape)
        assert (value >= 0).all()
        if np.isinf(value).all():
            wf.manual_seed(0)
            assert not bool(q.support.check(p.sample((2000,))).all())
            return
        wf.manual_seed(0)
        x = p.sample((6000,))
        difference = (p.log_prob(x) - q.log_prob(x)).numpy()
        error = np.abs(difference.mean(0) - value) / (difference.std(0) / np.sqrt(6000) + 1e-9)
        assert (error < 5).all(), f"{difference.mean(0)}, closed form {value}"

    pairs = {
        f"{a.__name__}, {b.__name__}": (left[a], right[b])
        for a, b in kl._registry
        if a in left and b in right and a is not D.ExponentialFamily
    }
    assert len(pairs) > 65
    each(check, pairs)


def test_divergence_from_itself_is_zero_and_gradients_flow_to_both():
    for p in _members(0).values():
        same = D.kl_divergence(p, p).numpy()
        np.testing.assert_allclose(same, 0, atol=1e-9, err_msg=type(p).__name__)
    a, b = (wf.tensor([1.0, 2.0], dtype=wf.float64, requires_grad=True) for _ in range(2))
    assert wf.gradcheck(lambda a, b: D.kl_divergence(D.Gamma(a, 2.0), D.Gamma(b, 1.0)), [a, b * 1.5])
    assert wf.gradcheck(lambda a, b: D.kl_divergence(D.Normal(a, b), D.Laplace(b, a)), [a, b * 1.5])
    captured = wf.function(lambda a: D.kl_divergence(D.Normal(a, 2.0), D.Normal(0.0, 1.0)))
    np.testing.assert_allclose(
        captured(a.detach()).numpy(), D.kl_divergence(D.Normal(a.detach(), 2.0), D.Normal(0.0, 1.0)).numpy()
    )


def test_impossible_outcomes_make_it_infinite():
    t = lambda *v: wf.tensor(np.array(v))
    inf = np.inf
    cases = {
        "Bernoulli": (D.Bernoulli(t(0.5, 0.0)), D.Bernoulli(t(0.0, 0.0)), [inf, 0]),
        "Categorical": (D.Categorical(t([0.5, 0.5], [1.0, 0.0])), D.Categorical(t([1.0, 0.0], [1.0, 0.0])), [inf, 0]),
        "Binomial": (D.Binomial(t(3.0, 2.0), t(0.5, 0.5)), D.Binomial(t(2.0, 2.0), t(0.5, 0.5)), [inf, 0]),
        "Uniform": (D.Uniform(t(0.0, 0.0), t(2.0, 1.0)), D.Uniform(t(0.0, 0.0), t(1.0, 1.0)), [inf, 0]),
        "Pareto": (D.Pareto(t(1.0, 2.0), t(1.0, 1.0)), D.Pareto(t(2.0, 2.0), t(1.0, 1.0)), [inf, 0]),
        "Beta, Uniform": (D.Beta(t(1.0, 1.0), t(1.0, 1.0)), D.Uniform(t(0.5, 0.0), t(1.0, 1.0)), [inf, 0]),
        "Uniform, Beta": (D.Uniform(t(0.0, -1.0), t(1.0, 1.0)), D.Beta(t(1.0, 1.0), t(1.0, 1.0)), [0, inf]),
        "Normal, Gamma": (D.Normal(t(0.0), t(1.0)), D.Gamma(t(1.0), t(1.0)), [inf]),
    }
    each(lambda p, q, e: np.testing.assert_allclose(D.kl_divergence(p, q).numpy(), e, atol=1e-6), cases)
    with pytest.raises(NotImplementedError, match="must not have more trials"):
        D.kl_divergence(D.Binomial(2, 0.5), D.Binomial(3, 0.5))


def test_registry_finds_the_most_specific_function():
    class A(D.Distribution):
        pass

    class B(A):
        pass

    try:
        D.register_kl(A, A)(lambda p, q: "A A")
        D.register_kl(A, B)(lambda p, q: "A B")
        assert D.kl_divergence(A(), A()) == "A A" and D.kl_divergence(B(), A()) == "A A"
        assert D.kl_divergence(A(), B()) == "A B" and D.kl_divergence(B(), B()) == "A B"
        D.register_kl(B, A)(lambda p, q: "B A")
        with pytest.warns(RuntimeWarning, match="two registered functions fit equally well"):
            D.kl_divergence(B(), B())
        D.register_kl(B, B)(lambda p, q: "B B")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert D.kl_divergence(B(), B()) == "B B"
    finally:
        for pair in ((A, A), (A, B), (B, A), (B, B)):
            kl._registry.pop(pair, None)
        kl._found.clear()


def test_pairs_without_a_closed_form_name_the_way_out():
    with pytest.raises(NotImplementedError, match=r"no closed form is registered for StudentT and Normal.*rsample"):
        D.kl_divergence(D.StudentT(3.0), D.Normal(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="no closed form is registered for Beta and Dirichlet"):
        D.kl_divergence(D.Beta(1.0, 1.0), D.Dirichlet(wf.ones(2)))
    with pytest.raises(NotImplementedError, match="different transforms"):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.Weibull(1.0, 1.0))
    with pytest.raises(TypeError, match="type_p must be a subclass of Distribution"):
        D.register_kl(int, D.Normal)
    with pytest.raises(ValueError, match="vectors of 2 and 3 elements"):
        D.kl_divergence(D.MultivariateNormal(wf.zeros(2), wf.eye(2)), D.MultivariateNormal(wf.zeros(3), wf.eye(3)))
