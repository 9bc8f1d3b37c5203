"""Transforms inside transforms: every nesting to third order against closed forms, eager and captured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft as wf


class Polynomial:
    """A polynomial in x, y and z: the closed forms. `terms` maps exponents to coefficients."""

    def __init__(self, terms):
        self.terms = {e: c for e, c in terms.items() if c}

    def __add__(self, other):
        other = _polynomial(other)
        return Polynomial({e: self.terms.get(e, 0) + other.terms.get(e, 0) for e in self.terms | other.terms})

    def __mul__(self, other):
        product = {}
        for (a, c), (b, d) in itertools.product(self.terms.items(), _polynomial(other).terms.items()):
            e = tuple(i + j for i, j in zip(a, b, strict=True))
            product[e] = product.get(e, 0) + c * d
        return Polynomial(product)

    __rmul__ = __mul__

    def diff(self, k):
        return Polynomial(
            {tuple(n - (i == k) for i, n in enumerate(e)): c * e[k] for e, c in self.terms.items() if e[k]}
        )

    def at(self, k, value):
        """With variable `k` replaced by `value`."""
        total = Polynomial({})
        for e, c in self.terms.items():
            term = Polynomial({tuple(0 if i == k else n for i, n in enumerate(e)): c})
            for _ in range(e[k]):
                term = term * value
            total = total + term
        return total

    @property
    def number(self):
        return self.terms.get((0, 0, 0), 0.0)


def _polynomial(value):
    return value if isinstance(value, Polynomial) else Polynomial({(0, 0, 0): value})


X, Y, Z = (Polynomial({tuple(int(i == k) for i in range(3)): 1.0}) for k in range(3))


def mixed(x, y, z):
    """A polynomial whose derivatives of every order in every variable differ."""
    return x * y * (z + x * (z * z * z))


# A transform of a scalar function f at the point `a`, with a constant or variable direction `c`; and its closed form.
TRANSFORMS = {
    "grad": (lambda f, a, c: wf.grad_fn(f)(a), lambda p, k, a, c: p.diff(k).at(k, a)),
    "value_and_grad": (
        lambda f, a, c: (lambda v, g: v + 2.0 * g)(*wf.value_and_grad(f)(a)),
        lambda p, k, a, c: (p + 2.0 * p.diff(k)).at(k, a),
    ),
    "vjp": (
        lambda f, a, c: (lambda out, pull: out + pull(c)[0])(*wf.vjp(f, a)),
        lambda p, k, a, c: p.at(k, a) + c * p.diff(k).at(k, a),
    ),
    "jvp": (
        lambda f, a, c: (lambda out, tangent: out + tangent)(*wf.jvp(f, [a], [c])),
        lambda p, k, a, c: p.at(k, a) + c * p.diff(k).at(k, a),
    ),
    "jacobian": (lambda f, a, c: wf.jacobian(f, a), lambda p, k, a, c: p.diff(k).at(k, a)),
    "hessian": (lambda f, a, c: wf.hessian(f, a), lambda p, k, a, c: p.diff(k).diff(k).at(k, a)),
    "vmap": (
        lambda f, a, c: wf.vmap(f)(wf.stack([a, 2.0 * a])).sum(),
        lambda p, k, a, c: p.at(k, a) + p.at(k, 2.0 * a),
    ),
}


def nested(names, x, closed_over, number):
    """Three transforms inside each other. `closed_over`: the inner points and directions are constants, so that inner
    functions depend on outer variables only by closing over them; otherwise they are computed from those as well."""
    first, second, third = [TRANSFORMS[n][0] for n in names]

    def inner(x, y):
        a, c = (number(0.75), number(1.5)) if closed_over else (x * y + 0.5, y + 1.0)
        return third(lambda z: mixed(x, y, z), a, c)

    def middle(x):
        a, c = (number(1.25), number(0.5)) if closed_over else (x + 0.5, x * 2.0)
        return second(lambda y: y * inner(x, y), a, c)

    return first(lambda x: x * middle(x), x, number(1.0))


def closed_form(names, x, closed_over):
    first, second, third = [TRANSFORMS[n][1] for n in names]
    a, c = (_polynomial(0.75), _polynomial(1.5)) if closed_over else (X * Y + 0.5, Y + 1.0)
    p = third(mixed(X, Y, Z), 2, a, c)
    a, c = (_polynomial(1.25), _polynomial(0.5)) if closed_over else (X + 0.5, X * 2.0)
    p = second(Y * p, 1, a, c)
    return first(X * p, 0, _polynomial(x), _polynomial(1.0)).number


def _number(value):
    return wf.asarray(value, dtype=wf.float64)


@pytest.mark.parametrize("closed_over", [True, False], ids=["closed_over", "computed"])
@pytest.mark.parametrize("first", TRANSFORMS)
def test_every_nesting_to_third_order_equals_its_closed_form(first, closed_over):
    for second, third in itertools.product(TRANSFORMS, repeat=2):
        names = (first, second, third)
        got = nested(names, _number(1.5), closed_over, _number)
        assert not got.requires_grad, names
        np.testing.assert_allclose(got.numpy(), closed_form(names, 1.5, closed_over), rtol=1e-9, err_msg=str(names))


@pytest.mark.parametrize("closed_over", [True, False], ids=["closed_over", "computed"])
def test_captured_nestings_equal_their_closed_forms(closed_over):
    """A Latin square: every pair of transforms in every pair of places (all 343 take half a minute to compile)."""
    count = len(TRANSFORMS)
    square = [(i, j, (i + j + closed_over) % count) for i, j in itertools.product(range(count), repeat=2)]
    nestings = [tuple(list(TRANSFORMS)[i] for i in places) for places in square]
    for part in range(count):
        names = nestings[part::count]
        captured = wf.function(lambda x, names=names: wf.stack([nested(n, x, closed_over, _number) for n in names]))
        got = captured(_number(1.5))
        assert not got.requires_grad
        np.testing.assert_allclose(
            got.numpy(), [closed_form(n, 1.5, closed_over) for n in names], rtol=1e-9, err_msg=str(names)
        )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_results_stay_on_the_tape_of_the_caller(name):
    """The same without an enclosing transform: `grad` and `backward` differentiate through what a transform returns."""
    transform, derived = TRANSFORMS[name]
    for closed_over in (True, False):
        x = _number(1.5).requires_grad_()
        point, direction = (_number(0.75), _number(1.5)) if closed_over else (x * 2.0, x + 1.0)
        got = transform(lambda y, x=x: x * y * y * y, point, direction)
        symbolic = (_polynomial(0.75), _polynomial(1.5)) if closed_over else (X * 2.0, X + 1.0)
        expected = derived(X * Y * Y * Y, 1, *symbolic).diff(0).at(0, _polynomial(1.5)).number
        (slope,) = wf.grad(got, x, retain_graph=True)
        got.backward()
        np.testing.assert_allclose([slope.item(), x.grad.item()], [expected] * 2, rtol=1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_results_are_detached_where_the_caller_records_nothing(name):
    transform, derived = TRANSFORMS[name]
    x = _number(1.5).requires_grad_()
    with wf.no_grad():
        got = transform(lambda y: x * y * y, x * 2.0, x + 1.0)
        assert not got.requires_grad and not wf.is_grad_enabled()
    expected = derived(X * Y * Y, 1, X * 2.0, X + 1.0).at(0, _polynomial(1.5)).number
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)
    assert not transform(lambda y: y * y * 3.0, _number(2.0), _number(1.0)).requires_grad


def test_all_parts_of_a_result_are_detached_or_linked_by_themselves():
    w, x = _number(3.0).requires_grad_(), _number(2.0)
    (value, aux), (gx, gy) = wf.value_and_grad(
        lambda x, y: (x * x + w * y, {"linked": w * x, "own": x * y}), argnums=(0, 1), has_aux=True
    )(x, _number(5.0))
    assert value.requires_grad and gy.requires_grad and aux["linked"].requires_grad
    assert not gx.requires_grad and not aux["own"].requires_grad
    (value + gy + aux["linked"]).backward()
    assert w.grad.item() == 5 + 1 + 2
    out, pull = wf.vjp(lambda x, y: (x * y, w * y), x, _number(5.0))
    assert [o.requires_grad for o in out] == [False, True]
    assert [g.requires_grad for g in pull(_number(1.0), _number(1.0))] == [False, True]
    assert [g.requires_grad for g in pull(_number(1.0).requires_grad_(), _number(1.0))] == [True, True]
    outs, tangents = wf.jvp(lambda x: (x * x, w * x), [x], [_number(1.0)])
    assert [o.requires_grad for o in (*outs, *tangents)] == [False, True, False, True]


def test_a_gradient_penalty_reaches_the_weights_of_a_model():
    model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.Tanh(), wf.nn.Linear(3, 1))
    points = wf.tensor([[0.5, -1.0], [2.0, 0.25]])
    per_example = wf.vmap(wf.grad_fn(lambda p: model(p).sum()))(points)
    (per_example**2).sum().backward()
    got = [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]
    for p in model.parameters():
        p.grad = None
    leaf = points.detach().requires_grad_()
    (g,) = wf.grad(model(leaf).sum(), leaf, create_graph=True)
    (g**2).sum().backward()
    expected = [p.grad.numpy() for p in model.parameters() if p.grad is not None]
    assert len(got) == len(expected) == 3
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


class Product(wf.Function):
    @staticmethod
    def forward(ctx, v, w):
        ctx.save_for_backward(v, w)
        return v * v * w

    @staticmethod
    def backward(ctx, g):
        v, w = ctx.saved_tensors
        return 2 * g * v * w, g * v * v


def with_condition(x, y):
    return wf.cond(y > 0, lambda: x * y * y, lambda: x * y)


def with_branch(x, y):
    if y > 0:
        return x * y * y
    return x * y


def with_scan(x, y):
    return wf.scan(lambda c, _: (c * y, None), x, length=2)[0]


def with_map(x, y):
    return wf.map(lambda a: a * y * y * x, wf.tensor([0.25, 0.75], dtype=wf.float64)).sum()


def with_checkpoint(x, y):
    return wf.checkpoint(lambda v: v * v * x, y)


def with_function(x, y):
    return Product.apply(y, x)


def with_captured_function(x, y):
    return wf.function(lambda v: v * v * x)(y)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("inner", [
    with_condition, with_branch, with_scan, with_map, with_checkpoint, with_function, with_captured_function,
])  # fmt: skip
def test_closed_over_variables_reach_through_everything_that_records(inner, captured):
    """d/dx of x d/dy (x y²) at y = 2 is 8 x."""
    program = lambda x: x * wf.grad_fn(lambda y: inner(x, y))(_number(2.0))
    for slope in (wf.grad_fn(program), lambda x: wf.jvp(program, [x], [_number(1.0)])[1]):
        got = (wf.function(slope) if captured else slope)(_number(1.5))
        assert got.item() == 12 and not got.requires_grad


def test_a_captured_function_has_gradients_for_what_it_closes_over():
    x = _number(1.5).requires_grad_()
    h = x * 2
    for program, expected in (
        (lambda y: h * y, 6), (lambda y: h * x * y, 18), (lambda y: x.detach() * y + x * y, 3), (lambda y: h.detach() + h * y, 6),
    ):  # fmt: skip
        x.grad = None
        wf.function(program)(_number(3.0)).backward(retain_graph=True)
        assert x.grad.item() == expected
    (slope,) = wf.grad(wf.function(lambda y: h * h * x * y)(_number(3.0)), x, create_graph=True)
    assert slope.item() == 36 * 1.5**2 and wf.grad(slope, x)[0].item() == 72 * 1.5


def test_tangents_and_cotangents_must_fit():
    with pytest.raises(
        ValueError, match=r"jvp: tangent 0 must have the shape of its primal. Got \(2,\); expected \(\)"
    ):
        wf.jvp(lambda x: x, [_number(1.0)], [wf.ones(2)])
    _, pull = wf.vjp(lambda x: x * 2, _number(1.0))
    with pytest.raises(ValueError, match="vjp: expected 1 cotangents, one per output. Got 2"):
        pull(_number(1.0), _number(1.0))
    with pytest.raises(
        ValueError, match=r"vjp: cotangent 0 must have the shape of its output. Got \(2,\); expected \(\)"
    ):
        pull(wf.ones(2))


def test_vectors_and_batches_nest():
    """g(x, y) = Σ A_ij x_i² y_j³, differentiated in y inside and in x outside."""
    a, x, y, v = np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([0.5, 2.0]), np.array([1.5, -1.0]), np.array([2.0, 0.25])
    g = lambda x, y: (x * x) @ wf.asarray(a) @ (y * y * y)
    at_x, at_y, along = wf.asarray(x), wf.asarray(y), wf.asarray(v)
    mixed = np.einsum("ij,i,j->ji", a, 2 * x, 3 * y**2)  # d/dx_i d/dy_j
    curved = np.einsum("ij,i,j,jk->jki", a, 2 * x, 6 * y, np.eye(2))  # d/dx_i d²/dy_j dy_k
    np.testing.assert_allclose(wf.jacobian(lambda x: wf.jacobian(lambda y: g(x, y), at_y), at_x).numpy(), mixed)
    np.testing.assert_allclose(wf.jacobian(lambda x: wf.grad_fn(lambda y: g(x, y))(at_y), at_x).numpy(), mixed)
    np.testing.assert_allclose(wf.jacobian(lambda x: wf.hessian(lambda y: g(x, y), at_y), at_x).numpy(), curved)
    slope = lambda x: wf.jvp(lambda y: g(x, y), [at_y], [along])[1]
    np.testing.assert_allclose(wf.grad_fn(slope)(at_x).numpy(), v @ mixed)
    np.testing.assert_allclose(wf.hessian(slope, at_x).numpy(), np.diag(2 * a @ (3 * y**2 * v)))
    rows = wf.vmap(lambda y: wf.grad_fn(lambda x: wf.jvp(lambda z: g(x, z), [y], [along])[1])(at_x))(
        wf.stack([at_y, 2 * at_y])
    )
    np.testing.assert_allclose(rows.numpy(), np.stack([v @ mixed, 4 * v @ mixed]))
    total = wf.grad_fn(lambda x: wf.vmap(lambda y: wf.vjp(lambda z: g(x, z), y)[1](wf.asarray(1.0, dtype=wf.float64))[0].sum())(
        wf.stack([at_y, 2 * at_y])).sum())(at_x)  # fmt: skip
    np.testing.assert_allclose(total.numpy(), 5 * mixed.sum(0))
