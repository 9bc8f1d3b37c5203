"""Transforms: inverses and Jacobians, composition, caches, and the registries from constraints to transforms."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

import weft as wf
import weft.distributions as D
from tests.each import each
from weft.distributions import constraints, transforms


def t(*values):
    return wf.tensor(np.array(values, np.float64))


def _transforms():
    rng = np.random.default_rng(0)
    number = lambda *shape: wf.tensor(rng.normal(size=shape))
    return {
        "Affine": (transforms.AffineTransform(1.0, -2.0), number(4)),
        "Affine, tensors": (transforms.AffineTransform(number(4), number(4)), number(2, 4)),
        "Affine, vectors": (transforms.AffineTransform(number(4), number(4), event_dim=1), number(2, 4)),
        "Exp": (transforms.ExpTransform(), number(4)),
        "Power": (transforms.PowerTransform(t(0.5, 2.0, -1.0)), wf.exp(number(2, 3))),
        "Sigmoid": (transforms.SigmoidTransform(), number(4)),
        "Softplus": (transforms.SoftplusTransform(), number(4)),
        "Tanh": (transforms.TanhTransform(), number(4)),
        "StickBreaking": (transforms.StickBreakingTransform(), number(2, 3)),
        "CorrCholesky": (transforms.CorrCholeskyTransform(), number(2, 6)),
        "Reshape": (transforms.ReshapeTransform((4,), (2, 2)), number(3, 4)),
        "Independent": (transforms.IndependentTransform(transforms.ExpTransform(), 1), number(2, 3)),
        "Compose": (
            transforms.ComposeTransform([transforms.AffineTransform(0.5, 2.0), transforms.StickBreakingTransform()]),
            number(2, 3),
        ),
        "Inverse": (transforms.ExpTransform().inv, wf.exp(number(4))),
        "Cumulative": (transforms.CumulativeDistributionTransform(D.Normal(t(0.5)[0], t(2.0)[0])), number(4)),
        "Cat": (transforms.CatTransform([transforms.ExpTransform(), transforms.identity_transform], -1, [2, 2]), number(3, 4)),
        "Cat of vectors": (
            transforms.CatTransform([transforms.AffineTransform(0.0, 2.0, 1)] * 2, 0, [1, 2]),
            number(3, 4),
        ),
        "Stack": (transforms.StackTransform([transforms.ExpTransform(), transforms.TanhTransform()], 1), number(3, 2)),
    }  # fmt: skip


def test_inverses_jacobians_and_shapes():
    def check(transform, x):
        y = transform(x)
        assert transform.bijective
        assert bool(transform.domain.check(x).all()) and bool(transform.codomain.check(y).all())
        np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-8, atol=1e-10)
        assert transform.inv.inv is transform
        assert transform.forward_shape(x.shape) == y.shape and transform.inverse_shape(y.shape) == x.shape
        log_det = transform.log_abs_det_jacobian(x, y)
        np.testing.assert_allclose(transform.inv.log_abs_det_jacobian(y, x).numpy(), -log_det.numpy())
        axes = transform.domain.event_dim
        batch = x.shape[: x.ndim - axes] if axes else x.shape
        assert log_det.shape == (batch if not isinstance(transform, transforms.CatTransform) else log_det.shape)
        whole = wf.jacobian(lambda v: _free(transform(v)).reshape(-1), x).reshape(-1, x.size).numpy()
        np.testing.assert_allclose(float(log_det.sum()), np.linalg.slogdet(whole)[1], rtol=1e-8)

    each(check, _transforms())


def _free(y):
    """The coordinates of `y` that are free: probabilities without the last, triangles below the diagonal."""
    if y.ndim == 3 and y.shape[-1] == 4:
        return D.utils.tril_matrix_to_vec(y, diag=-1)
    return y[..., :-1] if y.shape[-1] == 4 and y.shape[0] == 2 and bool((y.sum(axis=-1) - 1).abs().max() < 1e-9) else y


def test_transforms_that_are_not_bijective():
    x = wf.tensor(np.random.default_rng(0).normal(size=(3, 3)))
    assert transforms.AbsTransform()(t(-2.0)).tolist() == [2.0] and not transforms.AbsTransform().bijective
    np.testing.assert_allclose(wf.sum(transforms.SoftmaxTransform()(x), axis=-1).numpy(), 1)
    lower = transforms.LowerCholeskyTransform()
    assert bool(constraints.lower_cholesky.check(lower(x)))
    np.testing.assert_allclose(lower(lower.inv(lower(x))).numpy(), lower(x).numpy())
    positive = transforms.PositiveDefiniteTransform()
    assert bool(constraints.positive_definite.check(positive(x)))
    np.testing.assert_allclose(positive(positive.inv(positive(x))).numpy(), positive(x).numpy())
    with pytest.raises(NotImplementedError, match="AbsTransform: its Jacobian is not defined"):
        transforms.AbsTransform().log_abs_det_jacobian(x, x)
    with pytest.raises(NotImplementedError, match="SoftmaxTransform: it has no sign"):
        transforms.SoftmaxTransform().sign


def test_equal_transforms_compare_equal():
    pairs = [
        (transforms.ExpTransform(), transforms.ExpTransform(), True),
        (transforms.ExpTransform().inv, transforms.ExpTransform().inv, True),
        (transforms.ExpTransform(), transforms.TanhTransform(), False),
        (transforms.AffineTransform(1.0, 2.0), transforms.AffineTransform(1.0, 2.0), True),
        (transforms.AffineTransform(t(1.0), t(2.0)), transforms.AffineTransform(t(1.0), t(2.0)), True),
        (transforms.AffineTransform(1.0, 2.0), transforms.AffineTransform(1.0, 3.0), False),
        (transforms.PowerTransform(2.0), transforms.PowerTransform(2.0), True),
        (transforms.ComposeTransform([transforms.ExpTransform()]), transforms.ComposeTransform([]), False),
        (transforms.ReshapeTransform((4,), (2, 2)), transforms.ReshapeTransform((4,), (2, 2)), True),
    ]
    for a, b, equal in pairs:
        assert (a == b) is equal, (a, b)


def test_caches_keep_the_latest_pair_while_the_result_lives():
    transform = transforms.TanhTransform(cache_size=1)
    x = wf.tensor([30.0])
    y = transform(x)
    assert transform.inv(y) is x and transform(x) is y
    assert transforms.TanhTransform().inv(y).item() == np.inf
    del y
    gc.collect()
    assert transform._cached is None
    z = wf.tensor([0.5])
    w = transform.inv(z)
    assert transform(w) is z
    assert transform.with_cache(0)._cache_size == 0 and transform.with_cache(1) is transform
    assert pickle.loads(pickle.dumps(transform))._cached is None
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        transforms.ExpTransform(cache_size=2)


def test_squashed_samples_have_finite_densities_in_captured_functions():
    squash = transforms.TanhTransform(cache_size=1)

    def policy(loc):
        d = D.TransformedDistribution(D.Normal(loc, 5.0), squash)
        action = d.rsample()
        return action, d.log_prob(action)

    loc = wf.full((100,), 20.0)
    for function in (policy, wf.function(policy)):
        wf.manual_seed(0)
        action, density = function(loc)
        assert bool((action == 1).any()) and bool(wf.isfinite(density).all())


def test_transformed_distributions_take_their_shapes_from_the_transforms():
    base = D.Normal(wf.zeros(4, 3), 1.0)
    d = D.TransformedDistribution(base, [transforms.ExpTransform(), transforms.StickBreakingTransform()])
    assert d.batch_shape == (4,) and d.event_shape == (4,) and d.sample((2,)).shape == (2, 4, 4)
    assert isinstance(d.base_dist, D.Independent)
    d = D.TransformedDistribution(base, transforms.ReshapeTransform((3,), (3, 1)))
    assert d.event_shape == (3, 1)
    wide = D.TransformedDistribution(D.Normal(0.0, 1.0), transforms.AffineTransform(wf.zeros(5), 1.0))
    assert wide.batch_shape == (5,) and wide.sample().shape == (5,)
    with pytest.raises(ValueError, match="need a base distribution of at least 1 axes"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), transforms.SoftmaxTransform())
    with pytest.raises(TypeError, match="transforms must be a Transform"):
        D.TransformedDistribution(base, [wf.exp])
    down = D.TransformedDistribution(D.Normal(0.0, 1.0), transforms.AffineTransform(0.0, -1.0))
    assert down.cdf(wf.tensor(-1.0)).item() == pytest.approx(0.1586, abs=1e-4)
    assert down.icdf(wf.tensor(0.1586)).item() == pytest.approx(-1, abs=1e-3)


def test_registries_give_transforms_to_constraints():
    rng = np.random.default_rng(0)

    def check(constraint, shape, registry, bijective):
        transform = registry(constraint)
        x = wf.tensor(rng.normal(size=shape))
        y = transform(x)
        assert bool(constraint.check(y).all()) and transform.bijective is bijective
        if bijective:
            np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-7, atol=1e-9)

    c, both = constraints, [(D.biject_to, True), (D.transform_to, True)]
    simple = {
        "real": (c.real, (3,)),
        "real_vector": (c.real_vector, (3,)),
        "positive": (c.positive, (3,)),
        "nonnegative": (c.nonnegative, (3,)),
        "greater_than": (c.greater_than(2.0), (3,)),
        "greater_than_eq": (c.greater_than_eq(t(1.0, 2.0, 3.0)), (3,)),
        "less_than": (c.less_than(-1.0), (3,)),
        "unit_interval": (c.unit_interval, (3,)),
        "interval": (c.interval(-1.0, 4.0), (3,)),
        "half_open_interval": (c.half_open_interval(-1.0, 4.0), (3,)),
        "corr_cholesky": (c.corr_cholesky, (2, 3)),
        "independent": (c.independent(c.positive, 1), (2, 3)),
        "cat": (c.cat([c.positive, c.real], -1, [1, 2]), (2, 3)),
        "stack": (c.stack([c.positive, c.real, c.unit_interval], -1), (2, 3)),
    }
    cases = {f"{k} {i}": (*v, *b) for k, v in simple.items() for i, b in enumerate(both)}
    cases["simplex"] = (c.simplex, (2, 3), D.biject_to, True)
    cases["simplex, softmax"] = (c.simplex, (2, 3), D.transform_to, False)
    cases["lower_cholesky"] = (c.lower_cholesky, (2, 3, 3), D.transform_to, False)
    cases["positive_definite"] = (c.positive_definite, (2, 3, 3), D.transform_to, False)
    cases["positive_semidefinite"] = (c.positive_semidefinite, (2, 3, 3), D.transform_to, False)
    each(check, cases)
    with pytest.raises(NotImplementedError, match="no transform to the constraint"):
        D.biject_to(c.boolean)
    with pytest.raises(TypeError, match="expected a constraint"):
        D.biject_to.register(int, lambda c: None)


def test_constrained_parameters_are_optimised_through_transforms():
    wf.manual_seed(0)
    data = D.Gamma(3.0, 2.0).sample((500,))
    free = {name: wf.zeros(()).requires_grad_() for name in ("concentration", "rate")}
    optimizer = wf.optim.Adam(list(free.values()), lr=0.1)
    for _ in range(150):
        given = {k: D.transform_to(D.Gamma.arg_constraints[k])(v) for k, v in free.items()}
        loss = -D.Gamma(**given).log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (given["concentration"] / given["rate"]).item() == pytest.approx(data.mean().item(), rel=0.02)


def test_constraints_check_values():
    c, nan = constraints, np.nan
    matrices = np.stack(
        [np.eye(2), np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, -1.0]]), np.full((2, 2), nan)]
    )
    vectors = np.array([[0.5, 0.5], [0.0, 1.0], [0.5, 0.6], [-0.5, 1.5]])
    cases = {
        "boolean": (c.boolean, [0.0, 1.0, 0.5, nan], [1, 1, 0, 0]),
        "one_hot": (c.one_hot, vectors, [0, 1, 0, 0]),
        "nonnegative_integer": (c.nonnegative_integer, [0.0, 3.0, -1.0, 0.5], [1, 1, 0, 0]),
        "positive_integer": (c.positive_integer, [0.0, 3.0], [0, 1]),
        "integer_interval": (c.integer_interval(1, 3), [0.0, 1.0, 2.5, 3.0, 4.0], [0, 1, 0, 1, 0]),
        "real": (c.real, [1.0, nan, np.inf], [1, 0, 1]),
        "greater_than": (c.greater_than(1.0), [1.0, 2.0], [0, 1]),
        "greater_than_eq": (c.greater_than_eq(1.0), [1.0, 0.0], [1, 0]),
        "less_than": (c.less_than(1.0), [1.0, 0.0], [0, 1]),
        "interval": (c.interval(0.0, 1.0), [0.0, 1.0, 1.1, nan], [1, 1, 0, 0]),
        "half_open": (c.half_open_interval(0.0, 1.0), [0.0, 1.0], [1, 0]),
        "simplex": (c.simplex, vectors, [1, 1, 0, 0]),
        "multinomial": (c.multinomial(1), vectors, [1, 1, 0, 0]),
        "lower_triangular": (c.lower_triangular, matrices, [1, 0, 1, 0]),
        "lower_cholesky": (c.lower_cholesky, matrices, [1, 0, 0, 0]),
        "corr_cholesky": (c.corr_cholesky, matrices, [1, 0, 0, 0]),
        "symmetric": (c.symmetric, matrices, [1, 0, 0, 0]),
        "positive_definite": (c.positive_definite, np.stack([np.eye(2), -np.eye(2), np.zeros((2, 2))]), [1, 0, 0]),
        "positive_semidefinite": (c.positive_semidefinite, np.stack([np.eye(2), -np.eye(2), np.zeros((2, 2))]), [1, 0, 1]),
        "independent": (c.independent(c.positive, 1), [[1.0, 2.0], [1.0, -2.0]], [1, 0]),
        "cat": (c.cat([c.positive, c.boolean], 0, [1, 2]), [2.0, 1.0, 2.0], [1, 1, 0]),
        "stack": (c.stack([c.positive, c.boolean], 0), [[2.0, -1.0], [1.0, 2.0]], [[1, 0], [1, 0]]),
    }  # fmt: skip

    def check(constraint, value, expected):
        assert constraint.check(wf.tensor(np.array(value))).numpy().astype(int).tolist() == expected
        assert repr(constraint) and str(constraint)

    each(check, cases)
    assert constraints.is_dependent(constraints.dependent) and not constraints.is_dependent(constraints.real)
    with pytest.raises(NotImplementedError, match="is_discrete is not known"):
        constraints.dependent.is_discrete
    with pytest.raises(ValueError, match="cannot be checked by itself"):
        constraints.dependent.check(wf.ones(1))
    with pytest.raises(ValueError, match="expected 2 lengths"):
        constraints.cat([constraints.real, constraints.real], 0, [1])
    assert constraints.square.check(wf.zeros(2, 3, 3)).tolist() == [True, True]
    assert copy.deepcopy(constraints.positive).lower_bound == 0


def test_wrong_shapes_are_refused_by_transforms():
    cases = {
        "Reshape": (lambda: transforms.ReshapeTransform((3,), (2,)), "equally many elements"),
        "Reshape input": (lambda: transforms.ReshapeTransform((4,), (2, 2))(wf.zeros(3)), "ends with"),
        "Cat": (lambda: transforms.CatTransform([transforms.ExpTransform()], 0, [2])(wf.zeros(3)), "expected 2 elements"),
        "Stack": (lambda: transforms.StackTransform([transforms.ExpTransform()])(wf.zeros(3)), "expected 1 slices"),
        "CorrCholesky": (lambda: transforms.CorrCholeskyTransform().forward_shape((4,)), "not those below the diagonal"),
        "CorrCholesky inverse": (lambda: transforms.CorrCholeskyTransform().inverse_shape((2, 3)), "square matrices"),
        "Softmax": (lambda: transforms.SoftmaxTransform().forward_shape(()), "expected vectors"),
        "Independent": (lambda: transforms.IndependentTransform(transforms.ExpTransform(), 1)(wf.tensor(0.0)), "at least 1 axes"),
        "triangle": (lambda: D.utils.vec_to_tril_matrix(wf.zeros(4)), "do not fill a lower triangle"),
        "vector": (lambda: D.utils.tril_matrix_to_vec(wf.zeros(2, 2), 2), "diag must be from -2 to 1"),
    }  # fmt: skip

    def check(call, text):
        with pytest.raises(ValueError, match=text):
            call()

    each(check, cases)
