"""grad_fn, value_and_grad, vjp, jvp, jacobian, hessian."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

A = np.random.default_rng(0).standard_normal((3, 3))


def _x(*values):
    return wf.tensor(values, dtype=wf.float64)


def test_grad_fn_and_argnums():
    f = lambda x, y: (x * x * y).sum()
    x, y = _x(1.0, 2.0), _x(3.0, 4.0)
    assert wf.grad_fn(f)(x, y).tolist() == [6, 16]
    gx, gy = wf.grad_fn(f, argnums=(0, 1))(x, y)
    assert gx.tolist() == [6, 16] and gy.tolist() == [1, 4]
    assert wf.grad_fn(f, argnums=1)(x, y).tolist() == [1, 4]
    assert wf.grad_fn(lambda x: x.sum())(_x(1.0)).tolist() == [1]
    assert not x.requires_grad and x.grad is None


def test_value_and_grad_with_aux():
    value, g = wf.value_and_grad(lambda x: (x**2).sum())(_x(3.0))
    assert value.item() == 9 and g.tolist() == [6] and not value.requires_grad
    (value, aux), g = wf.value_and_grad(lambda x: ((x**2).sum(), "aux"), has_aux=True)(_x(3.0))
    assert aux == "aux" and value.item() == 9
    g, aux = wf.grad_fn(lambda x: ((x**2).sum(), {"n": 1}), has_aux=True)(_x(3.0))
    assert aux == {"n": 1} and g.item() == 6


def test_nested_grad_fn():
    f = lambda x: (x**4).sum()
    x = _x(2.0)
    first, second, third = wf.grad_fn(f), wf.grad_fn(lambda v: wf.grad_fn(f)(v).sum()), None
    third = wf.grad_fn(lambda v: wf.grad_fn(lambda u: wf.grad_fn(f)(u).sum())(v).sum())
    assert [g(x).item() for g in (first, second, third)] == [32, 48, 48]


def test_closed_over_parameters_keep_their_gradients():
    w = wf.tensor([2.0], dtype=wf.float64, requires_grad=True)
    out = wf.grad_fn(lambda x: (w * x * x).sum())(_x(3.0).requires_grad_())
    out.sum().backward()
    assert w.grad.item() == 6


def test_unused_argument_has_zero_gradient():
    assert wf.grad_fn(lambda x, y: (y * 2).sum())(_x(1.0, 2.0), _x(1.0)).tolist() == [0, 0]


def test_grad_fn_needs_a_scalar():
    with pytest.raises(ValueError, match="value_and_grad: the function must return a tensor with one element"):
        wf.grad_fn(lambda x: x)(_x(1.0, 2.0))


def test_vjp():
    out, pull = wf.vjp(lambda x, y: (x * y, x + y), _x(1.0, 2.0), _x(3.0, 4.0))
    assert out[0].tolist() == [3, 8]
    gx, gy = pull(_x(1.0, 1.0), _x(10.0, 10.0))
    assert gx.tolist() == [13, 14] and gy.tolist() == [11, 12]
    assert pull(_x(1.0, 0.0), _x(0.0, 0.0))[0].tolist() == [3, 0]
    _, pull = wf.vjp(lambda x: wf.ones(2), _x(1.0))
    assert pull(wf.ones(2))[0].tolist() == [0]


def test_jvp_equals_directional_derivative():
    f = lambda x: wf.tanh(wf.asarray(A) @ x) * x
    x, v = np.array([0.3, -0.2, 0.9]), np.array([1.0, -2.0, 0.5])
    out, tangent = wf.jvp(f, [wf.asarray(x)], [wf.asarray(v)])
    eps = 1e-6
    numeric = (f(wf.asarray(x + eps * v)).numpy() - f(wf.asarray(x - eps * v)).numpy()) / (2 * eps)
    np.testing.assert_allclose(tangent.detach().numpy(), numeric, rtol=1e-6)
    np.testing.assert_allclose(out.detach().numpy(), f(wf.asarray(x)).numpy())
    outs, tangents = wf.jvp(lambda a, b: (a * b, a * 0), [_x(2.0), _x(3.0)], [_x(1.0), _x(1.0)])
    assert tangents[0].item() == 5 and tangents[1].item() == 0
    with pytest.raises(ValueError, match="one tangent per primal. Got 1 primals and 2 tangents"):
        wf.jvp(f, [_x(1.0)], [_x(1.0), _x(1.0)])


def test_functions_must_return_tensors():
    for transform in (lambda: wf.jvp(lambda x: 3, [_x(1.0)], [_x(1.0)]), lambda: wf.vjp(lambda x: "a", _x(1.0))):
        with pytest.raises(TypeError, match="the function must return tensors. Got"):
            transform()


def test_jvp_of_linear_function():
    _, t = wf.jvp(lambda x: x * 3 + 1, [_x(1.0, 2.0)], [_x(1.0, 10.0)])
    assert t.tolist() == [3, 30]


def test_jacobian():
    j = wf.jacobian(lambda x: wf.asarray(A) @ x, _x(1.0, 2.0, 3.0))
    np.testing.assert_allclose(j.numpy(), A)
    jx, jy = wf.jacobian(lambda x, y: x * y[0], (_x(1.0, 2.0), _x(3.0)))
    assert jx.tolist() == [[3, 0], [0, 3]] and jy.tolist() == [[1], [2]]
    j = wf.jacobian(lambda m: m.T, wf.asarray(A))
    assert j.shape == (3, 3, 3, 3)
    np.testing.assert_array_equal(j.numpy(), np.einsum("ad,bc->abcd", np.eye(3), np.eye(3)))
    assert wf.jacobian(lambda x: wf.ones(2), _x(1.0)).tolist() == [[0], [0]]
    assert wf.jacobian(lambda x: x[:0], _x(1.0)).shape == (0, 1)
    assert wf.jacobian(lambda x: x.sum(), _x(1.0, 2.0)).tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"jacobian: the function must return tensors. Got str in its result\[1\]"):
        wf.jacobian(lambda x: (x, "x"), _x(1.0))


def test_jacobian_with_graph():
    x = _x(1.0, 2.0).requires_grad_()
    wf.jacobian(lambda v: v**3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6, 12]


def test_hessian():
    f = lambda x: (x @ wf.asarray(A) @ x) + (x**3).sum()
    x = np.array([1.0, 2.0, -1.0])
    np.testing.assert_allclose(wf.hessian(f, wf.asarray(x)).numpy(), A + A.T + np.diag(6 * x), atol=1e-12)
    assert wf.hessian(lambda x: x.sum(), _x(1.0, 2.0)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="hessian: the function must return a tensor with one element"):
        wf.hessian(lambda x: x, _x(1.0, 2.0))


def test_transforms_work_under_no_grad():
    with wf.no_grad():
        assert wf.grad_fn(lambda x: (x * x).sum())(_x(3.0)).item() == 6
        assert wf.jacobian(lambda x: x * x, _x(3.0)).item() == 6
        assert wf.hessian(lambda x: (x**3).sum(), _x(1.0)).item() == 6
        assert not wf.is_grad_enabled()


def test_transforms_take_arrays_and_numbers():
    assert wf.grad_fn(lambda x: x * x)(3.0).item() == 6
    assert wf.grad_fn(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2, 4]


def test_two_threads_use_transforms_at_once():
    import threading

    errors = []

    def work():
        try:
            for _ in range(30):
                assert wf.hessian(lambda x: (x**3).sum(), _x(1.0)).item() == 6
                v, g = wf.value_and_grad(lambda x: (x * x).sum())(_x(3.0))
                assert not v.requires_grad and not g.requires_grad
        except Exception as error:  # handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert errors == []
