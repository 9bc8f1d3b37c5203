"""Arguments of distributions: what is accepted, what is refused and with which words, eagerly and in captured functions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft as wf
import weft.distributions as D
from tests.distributions.families import FAMILIES, Parameters
from tests.each import each


def test_numbers_arrays_and_tensors_are_broadcast():
    d = D.Normal(np.zeros((2, 1)), wf.ones(3))
    assert d.batch_shape == (2, 3) and d.loc.dtype == wf.float64
    d = D.Normal(0, 1)
    assert d.loc.dtype == wf.float32 and d.batch_shape == ()
    assert D.Normal(wf.tensor([1, 2]), 1).loc.dtype == wf.float32
    assert D.Gamma(wf.ones(2, dtype=wf.float64), 2).rate.dtype == wf.float64
    assert D.Normal(0.0, 1.0).log_prob(0.5).shape == () and D.Normal(0.0, 1.0).log_prob(np.zeros(3)).shape == (3,)


def test_wrong_arguments_are_refused_with_the_reason():
    ones = wf.ones(2)
    cases = {
        "negative": (
            lambda: D.Normal(0.0, wf.tensor([1.0, -1.0])),
            ValueError,
            r"Normal: scale must be greater than 0.0. Got values from -1 to 1 of shape \(2,\), 1 of 2 invalid. .*validate_args",
        ),
        "one number": (lambda: D.Gamma(-2.0, 1.0), ValueError, "Gamma: concentration must be greater than 0.0. Got -2"),
        "NaN": (lambda: D.Normal(wf.tensor([1.0, np.nan]), 1.0), ValueError, "loc must be real, not NaN.*with NaN"),
        "probability": (lambda: D.Bernoulli(1.5), ValueError, "Bernoulli: probs must be from 0.0 to 1.0. Got 1.5"),
        "weights": (
            lambda: D.Categorical(wf.tensor([1.0, -1.0, 2.0])),
            ValueError,
            "Categorical: probs must be vectors of numbers, 0 or more",
        ),
        "bounds": (lambda: D.Uniform(1.0, 0.0), ValueError, "Uniform: low must be less than high"),
        "matrix": (
            lambda: D.MultivariateNormal(wf.zeros(2), -wf.eye(2)),
            ValueError,
            "covariance_matrix must be symmetric matrices with positive eigenvalues",
        ),
        "triangle": (
            lambda: D.MultivariateNormal(wf.zeros(2), scale_tril=wf.ones(2, 2)),
            ValueError,
            "scale_tril must be lower triangular",
        ),
        "value": (
            lambda: D.Exponential(1.0).log_prob(wf.tensor([-1.0, 2.0])),
            ValueError,
            "Exponential: value must be 0.0 or more. Got values from -1 to 2",
        ),
        "count": (
            lambda: D.Poisson(1.0).log_prob(wf.tensor(0.5)),
            ValueError,
            "Poisson: value must be integers, 0 or more. Got 0.5",
        ),
        "category": (
            lambda: D.Categorical(ones).log_prob(wf.tensor(2)),
            ValueError,
            "Categorical: value must be integers from 0 to 1. Got 2",
        ),
        "df": (lambda: D.Wishart(1.0, wf.eye(3)), ValueError, "Wishart: df must be greater than 2"),
        "both": (
            lambda: D.Bernoulli(0.5, 0.1),
            ValueError,
            "Bernoulli: pass either `probs` or `logits`. Got probs and logits",
        ),
        "neither": (lambda: D.Categorical(), ValueError, "pass either `probs` or `logits`. Got neither"),
        "matrices": (
            lambda: D.MultivariateNormal(wf.zeros(2), wf.eye(2), wf.eye(2)),
            ValueError,
            "`covariance_matrix` or `precision_matrix` or `scale_tril`",
        ),
        "no axis": (lambda: D.Categorical(0.5), ValueError, "must have an axis of categories"),
        "no vector": (lambda: D.Dirichlet(0.5), ValueError, "must have an axis of categories"),
        "list": (
            lambda: D.Normal([0.0], 1.0),
            TypeError,
            "parameters must be numbers or tensors. Got \\[0.0\\].*wf.tensor",
        ),
        "broadcast": (lambda: D.Normal(wf.zeros(2), wf.ones(3)), ValueError, "broadcast"),
        "event": (
            lambda: D.Dirichlet(wf.ones(3)).log_prob(wf.ones(2) / 2),
            ValueError,
            r"event shape \(3,\). Got shape \(2,\)",
        ),
        "batch": (
            lambda: D.Normal(wf.zeros(3), 1.0).log_prob(wf.zeros(2)),
            ValueError,
            r"does not broadcast.*Got \(2,\); expected one that broadcasts with \(3,\)",
        ),
        "type": (lambda: D.Normal(0.0, 1.0).log_prob("x"), TypeError, "value must be a tensor"),
        "sample_shape": (
            lambda: D.Normal(0.0, 1.0).sample(3),
            TypeError,
            r"sample_shape must be a tuple of integers. Got 3; write `\(3,\)`",
        ),
        "Independent": (
            lambda: D.Independent(D.Normal(0.0, 1.0), 1),
            ValueError,
            "reinterpreted_batch_ndims must be from 0 to 0",
        ),
        "mixture": (
            lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(ones, 1.0)),
            TypeError,
            "must be a Categorical",
        ),
        "components": (
            lambda: D.MixtureSameFamily(D.Categorical(wf.ones(3)), D.Normal(ones, 1.0)),
            ValueError,
            "3 components and the component distribution 2",
        ),
        "low rank": (
            lambda: D.LowRankMultivariateNormal(ones, wf.ones(3, 1), ones),
            ValueError,
            r"cov_factor \(…, n, m\)",
        ),
        "loc": (lambda: D.MultivariateNormal(wf.zeros(3), wf.eye(2)), ValueError, "loc must be vectors of 2 elements"),
        "dim": (lambda: D.LKJCholesky(1), ValueError, "dim must be 2 or more"),
        "total_count": (lambda: D.Multinomial(1.5, ones), NotImplementedError, "total_count must be one integer"),
        "geometric": (lambda: D.Geometric(0.0), ValueError, "probs must be greater than 0"),
        "default": (lambda: D.Distribution.set_default_validate_args(3), ValueError, "expected True or False"),
    }

    def check(call, error, text):
        with pytest.raises(error, match=text):
            call()

    each(check, cases)


def test_checks_can_be_switched_off():
    d = D.Normal(0.0, wf.tensor(-1.0), validate_args=False)
    assert np.isnan(d.entropy().item())
    assert D.Uniform(0.0, 1.0, validate_args=False).log_prob(wf.tensor(3.0)).item() == -np.inf
    try:
        D.Distribution.set_default_validate_args(False)
        D.Gamma(-1.0, 1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="concentration"):
        D.Gamma(-1.0, 1.0)


def test_captured_functions_check_when_they_run():
    @wf.function
    def density(scale, value):
        return D.HalfNormal(scale).log_prob(value)

    assert density(wf.tensor(1.0), wf.tensor(2.0)).item() == pytest.approx(-2.2258, abs=1e-3)
    with pytest.raises(ValueError, match="Normal: scale must be greater than 0"):
        density(wf.tensor(-1.0), wf.tensor(2.0))
    with pytest.raises(ValueError, match="HalfNormal: value must be 0.0 or more"):
        density(wf.tensor(1.0), wf.tensor(-2.0))


def test_a_distribution_may_outlive_the_capture_that_used_it():
    d = D.Bernoulli(wf.tensor([0.2, 0.9]))  # its logits are computed when they are first needed
    captured = wf.function(lambda x: d.log_prob(x) + d.entropy())
    x = wf.tensor([1.0, 0.0])
    expected = d.log_prob(x) + d.entropy()
    d = D.Bernoulli(wf.tensor([0.2, 0.9]))
    for _ in range(2):
        np.testing.assert_allclose(captured(x).numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose((d.log_prob(x) + d.entropy()).numpy(), expected.numpy())


def test_lazy_parameters_are_computed_with_gradients():
    probs = wf.tensor([0.3, 0.6], requires_grad=True)
    d = D.Bernoulli(probs)
    with wf.no_grad():
        d.logits
    d.logits.sum().backward()
    assert probs.grad is not None


def test_every_family_is_printed_copied_and_pickled():
    def check(name):
        d = FAMILIES[name](Parameters(0))
        assert repr(d).startswith(type(d).__name__)
        wf.manual_seed(0)
        x = d.sample()
        for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
            np.testing.assert_allclose(other.log_prob(x).numpy(), d.log_prob(x).numpy())

    each(check, {name: (name,) for name in FAMILIES})
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Normal(wf.zeros(2), 1.0)) == "Normal(loc: (2,), scale: (2,))"


def test_subclasses_written_for_pytorch_work():
    class Half(D.Distribution):
        arg_constraints = {"rate": D.constraints.positive}
        support = D.constraints.positive
        has_rsample = True

        def __init__(self, rate, validate_args=None):
            (self.rate,) = D.utils.broadcast_all(rate)
            super().__init__(self.rate.shape, validate_args=validate_args)

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Half, _instance)
            new.rate = self.rate.expand(batch_shape)
            super(Half, new).__init__(batch_shape, validate_args=False)
            new._validate_args = self._validate_args
            return new

        def rsample(self, sample_shape=()):
            return wf.rand(self._extended_shape(sample_shape)) * self.rate

        def log_prob(self, value):
            if self._validate_args:
                self._validate_sample(value)
            return -wf.log(self.rate)

    d = Half(wf.tensor([1.0, 2.0]))
    assert d.expand((3, 2)).sample((4,)).shape == (4, 3, 2)
    with pytest.raises(ValueError, match="Half: value must be greater than 0"):
        d.log_prob(wf.tensor(-1.0))
    for method in ("cdf", "icdf"):
        with pytest.raises(NotImplementedError, match=f"Half: its {method} is not implemented"):
            getattr(d, method)(wf.tensor(0.5))
    for name in ("mean", "mode", "variance"):
        with pytest.raises(NotImplementedError, match=f"Half: its {name} is not implemented"):
            getattr(d, name)
    with pytest.raises(NotImplementedError, match="its entropy is not implemented"):
        d.perplexity()


def test_score_function_estimator_learns_a_bandit():
    """REINFORCE as in the tutorials: the better arm is chosen more and more often."""
    wf.manual_seed(0)
    logits = wf.zeros(3, requires_grad=True)
    optimizer = wf.optim.SGD([logits], lr=0.5)
    reward = wf.tensor([0.0, 1.0, 0.2])
    for _ in range(60):
        d = D.Categorical(logits=logits)
        action = d.sample((16,))
        advantage = reward[action] - reward[action].mean()
        loss = -(d.log_prob(action) * advantage).mean() - 0.01 * d.entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert D.Categorical(logits=logits).probs[1].item() > 0.7


def test_sessions_run_distributions_of_sizes_known_when_they_run():
    graph = wf.Graph()
    with graph.as_default():
        x, scale = wf.placeholder(wf.float32, (None, 3)), wf.placeholder(wf.float32, ())
        d = D.Normal(x, scale)
        fetches = [
            d.log_prob(x + 1.0),
            d.rsample(),
            D.Categorical(logits=x).sample(),
            D.kl_divergence(d, D.Normal(0.0, 1.0)),
            D.Gamma(wf.exp(x), 1.0).rsample(),
        ]
    values = np.ones((2, 3), np.float32)
    with wf.Session(graph) as session:
        results = session.run(fetches, {x: values, scale: np.float32(2)})
        assert [np.shape(r) for r in results] == [(2, 3), (2, 3), (2,), (2, 3), (2, 3)]
        expected = D.Normal(wf.tensor(values), 2.0).log_prob(wf.tensor(values + 1))
        np.testing.assert_allclose(np.asarray(results[0]), expected.numpy(), rtol=1e-6)
        with pytest.raises(ValueError, match="Normal: scale must be greater than 0"):
            session.run(fetches[0], {x: values, scale: np.float32(-1)})
