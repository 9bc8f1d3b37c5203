"""gradcheck and gradgradcheck find wrong gradients and pass right ones."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


class WrongSlope(wf.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 2


class WrongCurvature(wf.Function):
    """Right gradient, but a second derivative that is missing."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x.detach()


def _leaf(*values):
    return wf.tensor(values, dtype=wf.float64, requires_grad=True)


def test_right_gradients_pass():
    assert wf.gradcheck(lambda x, y: (x * y.sin(), x + 1), (_leaf(1.0, 2.0), _leaf(0.5, 0.1)))
    assert wf.gradcheck(lambda x, n: x**n, (_leaf(1.0, 2.0), 3))
    assert wf.gradgradcheck(lambda x: wf.sin(x) * x, _leaf(1.0, 2.0))
    assert wf.gradcheck(lambda x: x.sum(), wf.zeros(2, 0, dtype=wf.float64, requires_grad=True))


def test_wrong_gradient_is_reported_by_element():
    with pytest.raises(RuntimeError, match=r"output 0\[1\] with respect to input 0\[1\] is 2, but differences give 3"):
        wf.gradcheck(_only_second, _leaf(1.0, 2.0))
    assert wf.gradcheck(WrongSlope.apply, _leaf(1.0), raise_exception=False) is False


def _only_second(x):
    return wf.stack([x[0] * 5, WrongSlope.apply(x[1])])


def test_wrong_second_derivative_is_found():
    assert wf.gradcheck(WrongCurvature.apply, _leaf(1.0, 2.0))
    with pytest.raises(RuntimeError, match="gradcheck: the gradient of"):
        wf.gradgradcheck(WrongCurvature.apply, _leaf(1.0, 2.0))


def test_missing_gradient_counts_as_zero():
    with pytest.raises(RuntimeError, match="is 0, but differences give 2"):
        wf.gradcheck(lambda x: x.detach() * 2 + x * 0, _leaf(1.0))


def test_complex():
    z = wf.tensor([1 + 2j, 0.3 - 1j], dtype=wf.complex128, requires_grad=True)
    assert wf.gradcheck(lambda z: z * z, z)
    assert wf.gradcheck(lambda z: wf.abs(z), z)
    assert wf.gradgradcheck(lambda z: z * z * z, z)
    with pytest.raises(RuntimeError, match="imaginary part"):
        wf.gradcheck(lambda z: WrongConjugate.apply(z), z)


class WrongConjugate(wf.Function):
    @staticmethod
    def forward(ctx, z):
        return z * (1 + 2j)

    @staticmethod
    def backward(ctx, g):
        return g * (1 + 2j)


def test_inputs_are_checked():
    with pytest.raises(ValueError, match="no input requires gradients"):
        wf.gradcheck(lambda x: x, wf.ones(2, dtype=wf.float64))
    with pytest.raises(TypeError, match="input 0 must be float64 or complex128. Got float32"):
        wf.gradcheck(lambda x: x, wf.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="the function must return tensors. Got float"):
        wf.gradcheck(lambda x: 1.0, _leaf(1.0))
    with pytest.raises(ValueError, match="no output of the function depends"):
        wf.gradgradcheck(lambda x: x.detach(), _leaf(1.0))


def test_inputs_are_left_as_they_were():
    x = _leaf(1.0, 2.0)
    wf.gradcheck(lambda v: v * v, x)
    assert x.tolist() == [1, 2] and x.grad is None


def test_random_function_of_many_ops():
    rng = np.random.default_rng(0)
    w = wf.asarray(rng.standard_normal((3, 3)))
    assert wf.gradcheck(
        lambda x: wf.tanh(x @ w).sum(axis=0) / (1 + x[1] ** 2), wf.asarray(rng.standard_normal((2, 3))).requires_grad_()
    )
