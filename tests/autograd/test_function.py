"""wf.Function: the user's own differentiable step."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import weft as wf


class Scale(wf.Function):
    @staticmethod
    def forward(ctx, x, factor, shift=None):
        ctx.factor = factor
        ctx.had_shift = shift is not None
        return x * factor + (0 if shift is None else shift)

    @staticmethod
    def backward(ctx, g):
        return (g * ctx.factor, None, g) if ctx.had_shift else (g * ctx.factor, None)


class Product(wf.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None


class Exp(wf.Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out


class Polar(wf.Function):
    """Two outputs, of which one may go unused, and one that is not differentiable."""

    @staticmethod
    def forward(ctx, x, y):
        r = wf.hypot(x, y)
        big = r > 1
        ctx.mark_non_differentiable(big)
        ctx.save_for_backward(x, y, r)
        return r, wf.atan2(y, x), big

    @staticmethod
    def backward(ctx, gr, ga, gbig):
        assert gbig is None
        x, y, r = ctx.saved_tensors
        r2 = r * r
        return gr * x / r - ga * y / r2, gr * y / r + ga * x / r2


def _leaf(*values):
    return wf.tensor(values, dtype=wf.float64, requires_grad=True)


@pytest.mark.parametrize("fn", [
    lambda x: Scale.apply(x, 3.0), lambda x: Scale.apply(x, 2.0, x), lambda x: Product.apply(x, x * 2), Exp.apply,
    lambda x: Polar.apply(x, x * x)[:2], lambda x: Product.apply(Exp.apply(x), Scale.apply(x, 0.5)),
    lambda x: Polar.apply(x, 2 * x)[1],
])  # fmt: skip
def test_first_and_second_order(fn):
    x = _leaf(0.7, 1.4)
    assert wf.gradcheck(fn, x)
    assert wf.gradgradcheck(fn, x)


def test_third_order_through_create_graph():
    x = _leaf(1.5)
    g1 = wf.grad(Product.apply(x, x * x), x, create_graph=True)[0]
    g2 = wf.grad(g1, x, create_graph=True)[0]
    assert wf.grad(g2, x)[0].item() == pytest.approx(6.0)


def test_inputs_that_need_nothing_are_not_asked_for():
    x, y = _leaf(2.0), wf.tensor([3.0], dtype=wf.float64)
    Product.apply(x, y).backward()
    assert x.grad.item() == 3
    out = Product.apply(y, y)
    assert not out.requires_grad


def test_grad_mode_and_name():
    x = _leaf(2.0)
    with wf.no_grad():
        assert not Exp.apply(x).requires_grad
    out = Exp.apply(x)
    assert "grad_fn=Exp" in repr(out)
    assert repr(out.grad_fn).startswith("<output 0 of Exp")


def test_outputs_keep_their_container():
    x = _leaf(1.0)

    class Listed(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return [x * 1, "text", 7]

        @staticmethod
        def backward(ctx, g, *rest):
            assert rest == (None, None)
            return g

    out = Listed.apply(x)
    assert isinstance(out, list) and out[1:] == ["text", 7]
    out[0].backward()
    assert x.grad.item() == 1


def test_returning_an_input_gives_a_new_tensor():
    class Identity(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 10

    x = _leaf(1.0)
    y = Identity.apply(x)
    assert y is not x and x.is_leaf and np.shares_memory(y.detach().numpy(), x.detach().numpy())
    y.backward()
    assert x.grad.item() == 10
    plain = wf.ones(2)
    assert Identity.apply(plain) is not plain


def test_mark_dirty_moves_the_tensor_on_the_tape():
    class Double(wf.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = _leaf(1.0, 2.0)
    y = x * 1
    view = y[0]
    out = Double.apply(y)
    assert out is y and y.tolist() == [2, 4]
    (y * y).sum().backward()
    assert x.grad.tolist() == [8, 16]
    assert view.item() == 2
    with pytest.raises(RuntimeError, match="Double: a leaf tensor"):
        Double.apply(x)


def test_dirty_must_be_returned():
    class Forgets(wf.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 1

    with pytest.raises(RuntimeError, match="Forgets.forward: an input was marked dirty but is not among"):
        Forgets.apply(wf.ones(1))


def test_unused_outputs_have_zeros_or_none():
    seen = []

    class Two(wf.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append(b)
            return a * 2, None

    x = _leaf(1.0, 1.0)
    Two.apply(x, True)[0].sum().backward()
    Two.apply(x, False)[0].sum().backward()
    assert seen[0].tolist() == [0, 0] and seen[1] is None


@pytest.mark.parametrize(("returned", "error", "match"), [
    (lambda g: (g, g, g), RuntimeError,
     r"Bad.backward: returned 3 gradients; expected 2, one per argument of forward \(x, factor\)"),
    (lambda g: g, RuntimeError, "returned 1 gradients; expected 2"),
    (lambda g: (g.sum(), None), ValueError, r"Bad.backward: the gradient of 'x' must have its shape \(2,\). Got float64 \(\)"),
    (lambda g: ("no", None), TypeError, "Bad.backward: expected a tensor or None for 'x'. Got str"),
])  # fmt: skip
def test_wrong_gradients_say_so(returned, error, match):
    class Bad(wf.Function):
        @staticmethod
        def forward(ctx, x, factor):
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return returned(g)

    with pytest.raises(error, match=match):
        Bad.apply(_leaf(1.0, 2.0), 3.0).sum().backward()


def test_extra_nones_and_arrays_are_accepted():
    class Loose(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return np.full((2,), 2, np.float32), None, None

    x = _leaf(1.0, 2.0)
    Loose.apply(x).sum().backward()
    assert x.grad.dtype == wf.float64 and x.grad.tolist() == [2, 2]


def test_misuse_has_words():
    with pytest.raises(TypeError, match="Exp: a Function is not instantiated. Call `Exp.apply"):
        Exp()
    with pytest.raises(NotImplementedError, match="forward"):
        wf.Function.apply(wf.ones(1))

    class Saves(wf.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 3)
            return x

    with pytest.raises(
        TypeError, match="save_for_backward: expected tensors or None. Got int; set other values as attributes"
    ):
        Saves.apply(_leaf(1.0))


def test_overwritten_saved_tensor_is_noticed():
    x = _leaf(1.0)
    y = x * 1
    out = Product.apply(y, y)
    y += 1
    with pytest.raises(RuntimeError, match="backward of Product: .*overwritten in place by add"):
        out.backward()


def test_second_backward_needs_retain_graph():
    x = _leaf(1.0)
    out = Exp.apply(x)
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="backward of Exp: the graph was freed"):
        out.backward()


def test_no_reference_cycles():
    gc.disable()
    try:
        x = _leaf(1.0, 2.0)
        out = Exp.apply(x)
        node = weakref.ref(out._node.parent)
        data = weakref.ref(out._data)
        del out
        assert node() is None and data() is None
    finally:
        gc.enable()


def test_complex_gradients_follow_the_users_convention():
    class Square(wf.Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return g * wf.conj(2 * z)

    z = wf.tensor([1 + 2j, -0.5 + 1j], dtype=wf.complex128, requires_grad=True)
    assert wf.gradcheck(Square.apply, z)


def test_threads_keep_their_own_context():
    import threading

    results = {}

    def work(k):
        x = wf.tensor([float(k)], requires_grad=True)
        for _ in range(50):
            x.grad = None
            Scale.apply(Exp.apply(x) * 0 + x, float(k)).backward()
        results[k] = x.grad.item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert results == {k: float(k) for k in range(1, 5)}


def test_under_vmap():
    x = wf.asarray(np.linspace(0.1, 1, 6).reshape(3, 2))
    np.testing.assert_allclose(wf.vmap(Exp.apply)(x).numpy(), np.exp(x.numpy()))
    g = wf.vmap(wf.grad_fn(lambda v: Product.apply(v, Exp.apply(v)).sum()))(x)
    np.testing.assert_allclose(g.numpy(), np.exp(x.numpy()) * (1 + x.numpy()))


def test_a_row_sparse_gradient_reaches_functions_captures_and_branches_dense():
    class Double(wf.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def branch(x):
        return wf.cond(wf.sum(x) > 0, lambda: x * 2, lambda: x)

    for fn in (Double.apply, wf.function(lambda x: x * 2), branch):

        def gradient(x, fn=fn):
            return wf.grad(wf.take(fn(x), wf.asarray([1, 1]), axis=0).sum(), x)[0]

        for f in (gradient, wf.function(gradient)):
            x = wf.ones((3, 2)).requires_grad_()
            assert f(x).tolist() == [[0, 0], [4, 4], [0, 0]]
