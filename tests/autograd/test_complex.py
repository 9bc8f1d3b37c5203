"""Complex gradients: for a real loss L of z = a + ib, the gradient is dL/da + i dL/db."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def _z():
    return wf.tensor([1 + 2j, -0.5 + 0.25j, 0.75 - 1.5j], dtype=wf.complex128, requires_grad=True)


REAL_LOSSES = {
    "abs squared": (lambda z: (wf.abs(z) ** 2).sum(), lambda z: 2 * z),
    "real": (lambda z: wf.real(z).sum(), lambda z: np.ones_like(z)),
    "imag": (lambda z: wf.imag(z).sum(), lambda z: 1j * np.ones_like(z)),
    "real of square": (lambda z: wf.real(z * z).sum(), lambda z: 2 * np.conj(z)),
    "times conj": (lambda z: wf.real(z * wf.conj(z)).sum(), lambda z: 2 * z),
    "abs": (lambda z: wf.abs(z).sum(), lambda z: z / np.abs(z)),
    "real of conj": (lambda z: wf.real(wf.conj(z) * (2 + 1j)).sum(), lambda z: np.full_like(z, 2 + 1j)),
}


@pytest.mark.parametrize("name", REAL_LOSSES)
def test_gradient_of_a_real_loss(name):
    loss, expected = REAL_LOSSES[name]
    z = _z()
    loss(z).backward()
    np.testing.assert_allclose(z.grad.numpy(), expected(z.detach().numpy()), rtol=1e-12)


@pytest.mark.parametrize("fn", [
    lambda z: z * z, lambda z: z / (z + 2), lambda z: wf.exp(z), lambda z: wf.sin(z), lambda z: wf.log(z), lambda z: wf.sqrt(z),
    lambda z: z**3, lambda z: wf.conj(z) * z, lambda z: wf.abs(z), lambda z: wf.real(z) * wf.imag(z), lambda z: z.sum() * z,
    lambda z: wf.tanh(z), lambda z: -z + 1j, lambda z: z.reshape(3, 1) @ z.reshape(1, 3),
    lambda z: wf.make_complex(wf.imag(z), wf.real(z)),
    lambda z: wf.where(wf.real(z) > 0, z, wf.conj(z)), lambda z: wf.concat([z, z * 1j]),
    lambda z: z[1:] * z[0], lambda z: wf.cumulative_sum(z),
    lambda z: wf.angle(z), lambda z: wf.vecdot(z, z * 2),
    lambda z: wf.stack([z, z]).mean(axis=0), lambda z: wf.reciprocal(z), lambda z: wf.prod(z),
    lambda z: wf.square(z), lambda z: wf.cosh(z), lambda z: (z * wf.tensor(2.0, dtype=wf.float64)).H if z.ndim > 1 else z,
])  # fmt: skip
def test_against_differences(fn):
    assert wf.gradcheck(fn, _z())


@pytest.mark.parametrize(
    "fn",
    [lambda z: z * z, lambda z: wf.conj(z) * z * z, lambda z: wf.abs(z), lambda z: wf.exp(z), lambda z: wf.real(z) * z],
)
def test_second_order_against_differences(fn):
    assert wf.gradgradcheck(fn, _z())


def test_real_leaves_have_real_gradients():
    x = wf.tensor([1.0, 2.0], dtype=wf.float64, requires_grad=True)
    z = _z()
    loss = wf.abs(x.reshape(2, 1) * z * (1 + 1j)).sum()
    loss.backward()
    assert x.grad.dtype == wf.float64 and z.grad.dtype == wf.complex128
    assert wf.gradcheck(
        lambda x, z: x.reshape(2, 1) * z,
        (wf.tensor([1.0, 2.0], dtype=wf.float64, requires_grad=True), z.detach().requires_grad_()),
    )
    assert wf.gradcheck(
        lambda x: x.astype(wf.complex128) * (1 - 2j), wf.tensor([1.0, 2.0], dtype=wf.float64, requires_grad=True)
    )


def test_hooks_see_the_users_convention():
    z = _z()
    seen = []
    y = z * 1j
    y.register_hook(lambda g: seen.append(g.numpy().copy()))
    wf.real(y * (3 - 1j)).sum().backward()
    np.testing.assert_allclose(seen[0], np.full(3, 3 + 1j))
    np.testing.assert_allclose(z.grad.numpy(), np.conj(1j) * (3 + 1j) * np.ones(3))


def test_explicit_gradient_of_a_complex_output():
    z = _z()
    (z * 2j).backward(wf.tensor([1 + 0j, 1j, 0], dtype=wf.complex128))
    np.testing.assert_allclose(z.grad.numpy(), np.array([1, 1j, 0]) * np.conj(2j))


def test_steepest_descent_goes_down():
    z = _z()
    target = np.array([0.5, -1j, 1 + 1j])
    losses = []
    for _ in range(30):
        z.grad = None
        loss = (wf.abs(z - wf.asarray(target)) ** 2).sum()
        loss.backward()
        losses.append(loss.item())
        with wf.no_grad():
            z -= 0.2 * z.grad
    assert losses[-1] < 1e-6 < losses[0]


def test_complex64():
    z = wf.tensor([1 + 1j], requires_grad=True)
    assert z.dtype == wf.complex64
    wf.abs(z).sum().backward()
    assert z.grad.dtype == wf.complex64


W = wf.tensor([1 + 0.5j, 0.3 - 0.2j, -0.4 + 0.1j], dtype=wf.complex128)


def _core(z):
    return wf.exp(z) * z * W


class _Core(wf.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return wf.exp(z) * z * W

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g * wf.conj(wf.exp(z) * W * (1 + z))


WAYS = {
    "captured": wf.function(_core),
    "captured in captured": wf.function(lambda z: wf.function(_core)(z)),
    "cond": wf.function(lambda z: wf.cond(wf.real(z).sum() > -99, _core, lambda z: z, z)),
    "scan": wf.function(lambda z: wf.scan(lambda c, _: (_core(c), None), z, None, length=1)[0]),
    "while": wf.function(lambda z: wf.while_loop(lambda i, c: i < 1, lambda i, c: (i + 1, _core(c)), (wf.asarray(0), z))[1]),
    "map": wf.function(lambda z: wf.map(_core, z[None])[0]),
    "vmap": wf.function(lambda z: wf.vmap(_core)(z[None])[0]),
    "Function": _Core.apply,
    "Function in captured": wf.function(lambda z: _Core.apply(z)),
}  # fmt: skip


def _loss(y):
    return (wf.real(y) * 2 + wf.imag(y) * wf.real(y)).sum()


@pytest.mark.parametrize("name", WAYS)
def test_every_way_to_run_a_function_has_its_complex_gradient(name):
    """Called from eager code, inside of a captured function, and in a declared graph; first and second order."""
    fn = WAYS[name]
    whole = lambda f: lambda z: _loss(f(z * W))
    expected = wf.grad_fn(whole(_core))(_z().detach()).numpy()
    outside = _z()
    whole(fn)(outside).backward()
    np.testing.assert_allclose(outside.grad.numpy(), expected, rtol=1e-12)
    inside = wf.function(wf.grad_fn(whole(fn)))(_z().detach())
    np.testing.assert_allclose(inside.numpy(), expected, rtol=1e-12)
    with wf.Graph("complex").as_default() as graph:
        given = wf.placeholder(wf.complex128, (3,))
        declared = wf.grad_fn(whole(fn))(given)
    with wf.Session(graph) as session:
        np.testing.assert_allclose(session.run(declared, {given: _z().detach()}).numpy(), expected, rtol=1e-12)

    def second(f, z):
        (g,) = wf.grad(whole(f)(z), [z], create_graph=True)
        return wf.grad((wf.abs(g) ** 2).sum(), [z])[0].numpy()

    if name != "Function in captured":  # refused: its gradient cannot be differentiated from outside
        np.testing.assert_allclose(second(fn, _z()), second(_core, _z()), rtol=1e-12)
