"""What autograd offers works the same inside a captured function."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


class Square(wf.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


W = wf.tensor([0.5, 1.0, 1.5], requires_grad=True)


def with_function(x):
    return wf.grad(Square.apply(x * W).sum(), W)[0]


def with_checkpoint(x):
    return wf.grad(wf.checkpoint(lambda v: (v * W).sin().exp(), x).sum(), W)[0]


def with_vmap(x):
    return wf.vmap(lambda v: v * v + x.sum())(x)


def with_vmap_of_gradient(x):
    return wf.vmap(wf.grad_fn(lambda v: (v**3).sum()))(x.reshape(3, 1))


def with_autocast(x):
    with wf.autocast():
        return (x.reshape(1, 3) @ x.reshape(3, 1)).astype(wf.float32)


def with_higher_order(x):
    leaf = x.detach().requires_grad_()
    (g,) = wf.grad((leaf**3).sum(), leaf, create_graph=True)
    return wf.grad((g * g).sum(), leaf)[0]


def with_writes_through_views(x):
    y = x * W
    y[0] *= y[1].clone()
    v = y[1:]
    v += 1
    return wf.grad((y * y).sum(), W)[0]


def with_hooks(x):
    y = x * W
    y.register_hook(lambda g: g * 10)
    return wf.grad((y * y).sum(), W)[0]


def with_jacobian(x):
    return wf.jacobian(lambda v: v * v.sum(), x)


@pytest.mark.parametrize("program", [
    with_function, with_checkpoint, with_vmap, with_vmap_of_gradient, with_autocast, with_higher_order, with_writes_through_views,
    with_hooks, with_jacobian, wf.grad_fn(lambda v: (v.sin() * v).sum()),
])  # fmt: skip
def test_captured_equals_eager(program):
    captured = wf.function(program)
    for values in ([1.0, 2.0, 3.0], [0.5, -1.0, 2.0]):
        x = wf.tensor(values)
        np.testing.assert_allclose(captured(x).numpy(), program(x).numpy(), rtol=1e-6)
