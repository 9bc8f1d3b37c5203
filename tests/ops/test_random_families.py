"""Draws from the gamma, Poisson, binomial and von Mises distributions: their distributions, invalid parameters, independence
of the size of a draw."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st

import weft as wf
from tests.each import each
from weft.ops.array.random_families import random_binomial, random_gamma, random_poisson, random_von_mises

N = 20_000


def _state(offset):
    return wf.tensor(np.array([123, offset]))


def _full(value):
    return wf.full((N,), value, dtype=wf.float64)


def test_continuous_draws_follow_their_distributions():
    def check(x, reference):
        assert st.kstest(x.numpy(), reference.cdf).pvalue > 1e-4

    cases = {f"gamma {a}": (random_gamma(_full(a), _state(1), False), st.gamma(a)) for a in (0.01, 0.4, 1.0, 3.0, 1e4)}
    for k in (1e-7, 0.1, 3.0, 1e4):
        cases[f"von Mises {k}"] = (random_von_mises(_full(k), _state(2)), st.vonmises(k))
    each(check, cases)


def test_counts_follow_their_distributions():
    def check(x, reference):
        x = x.numpy()
        low, high = reference.ppf(1e-3), reference.ppf(1 - 1e-3)
        edges = np.unique(np.floor(np.linspace(low, max(high - 1, low), 12)))
        found = np.histogram(x, [-np.inf, *(edges + 0.5), np.inf])[0]
        expected = np.diff([0, *reference.cdf(edges), 1]) * N
        kept = expected > 1
        assert st.chisquare(found[kept], expected[kept] * found[kept].sum() / expected[kept].sum()).pvalue > 1e-4
        assert found[~kept].sum() < 30

    cases = {
        f"Poisson {r}": (random_poisson(_full(r), _state(3)), st.poisson(r)) for r in (0.3, 4.0, 9.9, 10.0, 37.0, 1e6)
    }
    for n, p in ((1.0, 0.3), (25.0, 0.1), (25.0, 0.9), (60.0, 0.5), (1e3, 0.3), (1e6, 0.77), (1e6, 1e-6)):
        cases[f"binomial {n} {p}"] = (random_binomial(_full(n), _full(p), _state(4)), st.binom(n, p))
    each(check, cases)


def test_logarithms_of_gamma_draws_do_not_underflow():
    a = _full(1e-4)
    logs = random_gamma(a, _state(1), True).numpy()
    assert np.isfinite(logs).all() and logs.min() < -1000
    np.testing.assert_allclose(np.exp(logs), random_gamma(a, _state(1), False).numpy())


def test_the_first_numbers_do_not_depend_on_the_size_of_the_draw():
    a = wf.tensor(np.linspace(0.2, 30, 5000))
    for draw in (lambda x: random_gamma(x, _state(5), False), lambda x: random_poisson(x, _state(5))):
        np.testing.assert_array_equal(draw(a)[:7].numpy(), draw(a[:7]).numpy())


def test_invalid_parameters_give_nan():
    t = lambda *v: wf.tensor(np.array(v))
    cases = {
        "gamma": (random_gamma(t(-1.0, 0.0, np.nan, 1.0), _state(1), False), [1, 1, 1, 0]),
        "Poisson": (random_poisson(t(-1.0, np.nan, 0.0), _state(1)), [1, 1, 0]),
        "binomial": (
            random_binomial(t(3.0, 3.0, -1.0, 2.5, 3.0), t(1.5, -0.1, 0.5, 0.5, 0.5), _state(1)),
            [1, 1, 1, 1, 0],
        ),
        "von Mises": (random_von_mises(t(-1.0, 0.0, np.nan, 1.0), _state(1)), [1, 1, 1, 0]),
    }
    each(lambda x, expected: np.testing.assert_array_equal(np.isnan(x.numpy()), expected), cases)


def test_public_draws_work_in_captured_functions_and_refuse_invalid_parameters():
    rates = wf.full((2000,), 3.0)
    for draw in (wf.poisson, wf.function(lambda r: wf.poisson(r))):
        wf.manual_seed(0)
        assert abs(draw(rates).mean().item() - 3) < 0.3
    wf.manual_seed(0)
    assert abs(wf.binomial(wf.full((2000,), 10.0), wf.tensor(0.3)).mean().item() - 3) < 0.3
    x = wf.zeros(4000, dtype=wf.int64).geometric_(0.25)
    assert x.min().item() == 1 and abs(x.float().mean().item() - 4) < 0.4
    with pytest.raises(ValueError, match="poisson: rates must not be negative"):
        wf.poisson(wf.tensor(-1.0))
    with pytest.raises(ValueError, match="binomial: prob must be between 0 and 1"):
        wf.binomial(wf.tensor(2.0), wf.tensor(1.5))
    with pytest.raises(ValueError, match="binomial: count must be integers"):
        wf.binomial(wf.tensor(2.5), wf.tensor(0.5))
