"""`weft.func`: transforms over nested arguments, with PyTorch's signatures."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import func


def t(*values):
    return wf.tensor(np.array(values, np.float64))


def test_gradients_are_nested_like_the_arguments():
    loss = lambda p, x: ((p["w"] * x).sum() + p["b"][0]) ** 2
    p = {"w": t(1.0, 2.0), "b": [wf.tensor(0.5, dtype=wf.float64)]}
    x = t(3.0, 4.0)
    g = func.grad(loss)(p, x)
    assert g["w"].tolist() == [2 * 11.5 * 3, 2 * 11.5 * 4] and g["b"][0].item() == 23
    both = func.grad(loss, argnums=(0, 1))(p, x)
    assert both[1].tolist() == [23, 46] and both[0]["w"].tolist() == g["w"].tolist()
    assert func.grad(loss, argnums=-1)(p, x).tolist() == [23, 46]
    gradient, value = func.grad_and_value(loss)(p, x)
    assert value.item() == 11.5**2 and gradient["b"][0].item() == 23
    with_aux = lambda x: ((x * x).sum(), {"twice": 2 * x})
    gradient, aux = func.grad(with_aux, has_aux=True)(x)
    assert gradient.tolist() == [6, 8] and aux["twice"].tolist() == [6, 8]
    gradient, (value, aux) = func.grad_and_value(with_aux, has_aux=True)(x)
    assert value.item() == 25 and aux["twice"].tolist() == [6, 8]


def test_transforms_nest():
    f = lambda x: x**4
    x = wf.tensor(2.0, dtype=wf.float64)
    assert func.grad(func.grad(func.grad(f)))(x).item() == 48
    assert func.vmap(func.grad(f))(t(1.0, 2.0)).tolist() == [4, 32]
    assert func.grad(lambda x: func.vmap(f)(x).sum())(t(1.0, 2.0)).tolist() == [4, 32]
    assert wf.function(func.grad(f))(x).item() == 32
    leaf = t(1.0, 2.0).requires_grad_()
    func.grad(lambda x: (x**3).sum())(leaf).sum().backward()
    assert leaf.grad.tolist() == [6, 12]


def test_jacobians_of_nested_functions():
    f = lambda x, y: {"a": wf.stack([x[0] * y, x[1] ** 2]), "b": (x.sum() * y,)}
    x, y = t(2.0, 3.0), wf.tensor(5.0, dtype=wf.float64)
    for jac in (func.jacrev, func.jacfwd):
        j = jac(f)(x, y)
        assert j["a"].tolist() == [[5, 0], [0, 6]] and j["b"][0].tolist() == [5, 5]
        j = jac(f, argnums=(0, 1))(x, y)
        assert j["a"][1].tolist() == [2, 0] and j["b"][0][1].item() == 5
        j, aux = jac(lambda x: (x * x, "aux"), has_aux=True)(x)
        assert j.tolist() == [[4, 0], [0, 6]] and aux == "aux"
    assert func.jacrev(lambda x: x * x, chunk_size=1)(x).tolist() == [[4, 0], [0, 6]]
    assert func.jacrev(lambda x: x[:0])(x).shape == (0, 2)
    matrix = wf.tensor(np.arange(6.0).reshape(2, 3))
    assert func.jacrev(lambda m: m @ m.T)(matrix).shape == (2, 2, 2, 3)
    h = func.hessian(lambda p: (p["a"] ** 2).sum() * p["b"])({"a": x, "b": y})
    assert h["a"]["a"].tolist() == [[10, 0], [0, 10]] and h["a"]["b"].tolist() == [4, 6]
    np.testing.assert_allclose(
        func.hessian(lambda x: wf.sin(x).sum())(x).numpy(), wf.hessian(lambda x: wf.sin(x).sum(), x).numpy()
    )


def test_products_with_jacobians():
    f = lambda p: {"y": p["x"] ** 2, "z": p["x"].sum()}
    p = {"x": t(1.0, 2.0)}
    out, pullback = func.vjp(f, p)
    assert out["y"].tolist() == [1, 4]
    (g,) = pullback({"y": t(1.0, 10.0), "z": wf.tensor(1.0, dtype=wf.float64)})
    assert g["x"].tolist() == [3, 41]
    out, tangent = func.jvp(f, (p,), ({"x": t(1.0, 0.5)},))
    assert tangent["y"].tolist() == [2, 2] and tangent["z"].item() == 1.5
    out, pullback, aux = func.vjp(lambda x: (x * 2, x + 1), p["x"], has_aux=True)
    assert aux.tolist() == [2, 3] and pullback(t(1.0, 1.0))[0].tolist() == [2, 2]
    out, tangent, aux = func.jvp(lambda x: (x * 2, x + 1), (p["x"],), (t(1.0, 1.0),), has_aux=True)
    assert tangent.tolist() == [2, 2] and aux.tolist() == [2, 3]
    y, derivative = func.linearize(lambda x: x**2, p["x"])
    assert y.tolist() == [1, 4] and derivative(t(1.0, 1.0)).tolist() == [2, 4]
    two, pull = func.vjp(lambda x, y: (x * y, x + y), t(2.0), t(3.0))
    assert [g.tolist() for g in pull((t(1.0), t(0.0)))] == [[3], [2]]


def test_vmap_in_chunks():
    x = wf.tensor(np.arange(12.0).reshape(3, 4))
    f = lambda p, y: {"out": p["x"] * y, "sum": p["x"].sum()}
    whole = func.vmap(f, in_dims=({"x": 1}, None), out_dims={"out": 1, "sum": 0})({"x": x}, 2.0)
    parts = func.vmap(f, in_dims=({"x": 1}, None), out_dims={"out": 1, "sum": 0}, chunk_size=3)({"x": x}, 2.0)
    assert whole["out"].shape == (3, 4)
    for name in whole:
        np.testing.assert_array_equal(whole[name].numpy(), parts[name].numpy())
    draw = func.vmap(lambda x: x + wf.rand(()), randomness="different")(wf.zeros(4))
    assert len(set(draw.tolist())) == 4


def test_mistakes_are_named():
    cases = {
        "argnums": (lambda: func.grad(lambda x: x, argnums=1)(t(1.0)), ValueError, "argnums 1 is out of range for 1"),
        "number": (
            lambda: func.grad(lambda x: x)({"a": "text"}),
            TypeError,
            r'grad: x\["a"\] must be a tensor, to be differentiated. Got str',
        ),
        "vector": (lambda: func.grad(lambda x: x)(t(1.0, 2.0)), ValueError, "one element"),
        "output": (lambda: func.jacrev(lambda x: 1.0)(t(1.0)), TypeError, "must return tensors. Got float"),
        "aux": (lambda: func.vjp(lambda x: x, t(1.0), has_aux=True), TypeError, "must return a pair"),
        "chunk": (lambda: func.vmap(lambda x: x, chunk_size=0)(t(1.0)), ValueError, "chunk_size must be at least 1"),
    }

    def check(call, error, text):
        with pytest.raises(error, match=text):
            call()

    each(check, cases)
