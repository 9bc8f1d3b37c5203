"""backward and grad: accumulation, retain and create graph, hooks, what is skipped, and what errors say."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def _leaf(*values, dtype=wf.float64):
    return wf.tensor(values, dtype=dtype, requires_grad=True)


# Accumulation --------------------------------------------------------------------------------------------------------


def test_backward_accumulates():
    x = _leaf(1.0, 2.0)
    for k in range(1, 4):
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0 * k, 4.0 * k]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_values_used_several_times_add_up():
    x = _leaf(2.0)
    y = x * x
    (y * y + y + x).backward()
    assert x.grad.item() == 4 * 8 + 4 + 1


def test_each_leaf_owns_its_gradient():
    x, y = _leaf(1.0, 1.0), _leaf(1.0, 1.0)
    g = wf.ones(2, dtype=wf.float64)
    (x + y).backward(g)
    assert not np.shares_memory(x.grad.numpy(), y.grad.numpy()) and not np.shares_memory(x.grad.numpy(), g.numpy())
    x.grad.zero_()
    assert y.grad.tolist() == [1, 1] and g.tolist() == [1, 1]
    z = _leaf(*range(6)).detach().requires_grad_()
    z.reshape(2, 3).sum().backward()
    z.grad += 1
    assert z.grad.tolist() == [2] * 6


def test_gradients_of_interior_tensors_are_not_kept_unless_asked():
    x = _leaf(1.0, 2.0)
    y = x * 2
    z = y * y
    y.retain_grad()
    z.sum().backward()
    assert z.grad is None and y.grad.tolist() == [4, 8] and x.grad.tolist() == [8, 16]
    y.grad.zero_()
    assert x.grad.tolist() == [8, 16]
    x.retain_grad()  # a leaf keeps its gradient anyway
    with pytest.raises(RuntimeError, match="retain_grad: this tensor does not require gradients"):
        wf.ones(2).retain_grad()


def test_retained_gradient_is_independent_of_the_leafs():
    x = _leaf(1.0, 2.0)
    y = x + 1
    y.retain_grad()
    y.sum().backward()
    x.grad.zero_()
    assert y.grad.tolist() == [1, 1]


def test_retained_gradient_is_what_the_hooks_left_and_adds_up():
    x = _leaf(1.0, 2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert y.grad.tolist() == [10, 10] and x.grad.tolist() == [30, 30]
    y.sum().backward()
    assert y.grad.tolist() == [20, 20]


def test_backward_of_several_outputs():
    x = _leaf(1.0, 2.0)
    wf.backward([(x * x).sum(), x * 3], [None, wf.ones(2, dtype=wf.float64)])
    assert x.grad.tolist() == [5, 7]


def test_float32_gradient_dtype_follows_the_leaf():
    x = wf.ones(2, requires_grad=True)
    y = wf.ones(2, dtype=wf.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.dtype == wf.float32 and y.grad.dtype == wf.float64
    h = wf.ones(2, dtype=wf.bfloat16, requires_grad=True)
    (h * x.detach()).sum().backward()
    assert h.grad.dtype == wf.bfloat16


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (2, 3)), ((2, 1), (1, 4)), ((), (2, 2)), ((1, 1), (3,)), ((0, 3), (3,)), ((2, 1, 3), (4, 1))]
)
def test_broadcast_gradients_are_summed_back(a, b):
    rng = np.random.default_rng(0)
    x, y = (wf.asarray(rng.uniform(0.5, 1.5, s)).requires_grad_() for s in (a, b))
    assert wf.gradcheck(lambda x, y: x * y + x / y - y, (x, y))


# grad ------------------------------------------------------------------------------------------------------------------


def test_grad_leaves_dot_grad_alone():
    x, y = _leaf(2.0), _leaf(3.0)
    gx, gy = wf.grad(x * y, [x, y])
    assert (gx.item(), gy.item()) == (3, 2) and x.grad is None and y.grad is None


def test_grad_of_interior_tensors():
    x = _leaf(2.0)
    y = x * x
    z = y * y * x
    gy, gx = wf.grad(z, [y, x])
    assert gy.item() == 2 * 4 * 2 and gx.item() == 5 * 16


def test_grad_skips_what_is_not_asked_for():
    ran = []

    class Watch(wf.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x * 2

        @staticmethod
        def backward(ctx, g):
            ran.append((ctx.name, ctx.needs_input_grad))
            return g * 2, None

    x, y = _leaf(1.0), _leaf(1.0)
    out = Watch.apply(x, "x") * Watch.apply(y, "y")
    wf.grad(out, x)
    assert [n for n, _ in ran] == ["x"]


def test_grad_stops_at_its_inputs():
    ran = []
    x = _leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: ran.append("y"))
    x.register_hook(lambda g: ran.append("x"))
    z = y * y
    assert wf.grad(z, y)[0].item() == 4 and ran == ["y"]


def test_grad_outputs_and_unused():
    x, y = _leaf(1.0, 2.0), _leaf(3.0)
    (g,) = wf.grad(x * x, x, wf.tensor([1.0, 10.0], dtype=wf.float64))
    assert g.tolist() == [2, 40]
    with pytest.raises(RuntimeError, match="grad: output does not depend on input 1. Pass `allow_unused=True`"):
        wf.grad((x * x).sum(), [x, y])
    assert wf.grad((x * x).sum(), [x, y], allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="grad: input 0 does not require gradients"):
        wf.grad(x.sum(), wf.ones(2))
    with pytest.raises(ValueError, match="expected 1 grad_outputs, one per output. Got 2"):
        wf.grad(x * x, x, [x.detach(), x.detach()])


def test_the_same_input_twice():
    x = _leaf(3.0)
    a, b = wf.grad(x * x, [x, x])
    assert a.item() == b.item() == 6
    assert wf.grad(x, x)[0].item() == 1


def test_higher_order():
    x = _leaf(2.0)
    y = x**4
    for expected in (32, 48, 48, 24):
        (y,) = wf.grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(expected)


def test_create_graph_in_backward():
    x = _leaf(3.0)
    (x * x * x).backward(create_graph=True)
    g = x.grad
    assert g.requires_grad and g.item() == 27
    x.grad = None
    g.backward()
    assert x.grad.item() == 18


def test_gradient_penalty():
    w = _leaf(0.5, -1.0)
    x = _leaf(1.0, 2.0)
    out = wf.tanh(w * x).sum()
    (g,) = wf.grad(out, x, create_graph=True)
    (g * g).sum().backward()
    assert wf.gradcheck(
        lambda w: (
            (wf.grad(wf.tanh(w * x).sum(), x, create_graph=True)[0] ** 2).sum() if w.requires_grad else _penalty(w, x)
        ),
        w,
    )


def _penalty(w, x):
    with wf.enable_grad():
        leaf = x.detach().requires_grad_()
        return (wf.grad(wf.tanh(w * leaf).sum(), leaf)[0] ** 2).sum()


# The graph's life --------------------------------------------------------------------------------------------------------


def test_second_backward_raises_with_the_remedy():
    x = _leaf(1.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(
        RuntimeError, match="backward of multiply: the graph was freed by an earlier backward. Pass `retain_graph=True`"
    ):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()


def test_ops_that_save_nothing_can_run_again():
    x = _leaf(1.0)
    y = x + 1
    y.backward()
    y.backward()
    assert x.grad.item() == 2


def test_deep_graphs_neither_recurse_nor_overflow():
    x = _leaf(1.0)
    y = x
    for _ in range(50_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y


def test_deep_graph_is_dropped_without_backward():
    y = _leaf(1.0)
    for _ in range(50_000):
        y = y * 1.0
    del y


@pytest.mark.parametrize(("make", "error", "match"), [
    (lambda: wf.ones(1).backward(), RuntimeError, "backward: the tensor does not require gradients.*requires_grad_"),
    (lambda: (_leaf(1.0, 2.0) * 2).backward(), RuntimeError,
     r"backward: only a tensor with one element.*Got shape \(2,\); call `.sum\(\)`"),
    (lambda: (_leaf(1.0, 2.0) * 2).backward(wf.ones(3)), ValueError,
     r"gradient must have the output's shape. Got float32 \(3,\); expected float64 \(2,\)"),
    (lambda: wf.grad(3.0, _leaf(1.0)), TypeError, "backward: expected a tensor. Got float"),
    (lambda: wf.tensor([1, 2], requires_grad=True), TypeError, "only floating and complex tensors have gradients. Got int64"),
    (lambda: (_leaf(1.0) * 2).requires_grad_(False), RuntimeError, "only a leaf can stop requiring gradients.*detach"),
    (lambda: _leaf(1.0).numpy(), RuntimeError, r"numpy: the tensor requires gradients. Write `x.detach\(\).numpy\(\)`"),
    (lambda: wf.tensor([1j], requires_grad=True).backward(), RuntimeError, "a complex output needs an explicit `gradient`"),
])  # fmt: skip
def test_errors_have_words(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_grad_property_is_checked():
    x = wf.ones(2, requires_grad=True)
    x.grad = wf.zeros(2)
    with pytest.raises(ValueError, match=r"grad: expected float32 \(2,\), like the tensor itself. Got float32 \(3,\)"):
        x.grad = wf.zeros(3)
    with pytest.raises(ValueError, match="Got float64"):
        x.grad = wf.zeros(2, dtype=wf.float64)
    with pytest.raises(TypeError, match="grad: expected a tensor or None. Got list"):
        x.grad = [0, 0]
    del x.grad
    assert x.grad is None


# Grad mode -----------------------------------------------------------------------------------------------------------------


def test_no_grad_forms():
    x = _leaf(1.0)
    with wf.no_grad():
        assert not (x * 2).requires_grad and not wf.is_grad_enabled()
        with wf.enable_grad():
            assert (x * 2).requires_grad
    assert wf.is_grad_enabled()

    @wf.no_grad()
    def f():
        return x * 2

    assert not f().requires_grad
    wf.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    wf.set_grad_enabled(True)
    with wf.set_grad_enabled(False):
        assert not wf.is_grad_enabled()
    assert wf.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), wf.no_grad():
        1 / 0
    assert wf.is_grad_enabled()


def test_no_grad_is_reentrant_and_decorates_generators_safely():
    mode = wf.no_grad()
    with mode, mode:
        pass
    assert wf.is_grad_enabled()

    @wf.no_grad()
    def numbers():
        for _ in range(2):
            yield wf.is_grad_enabled()

    seen = []
    for inside in numbers():
        seen.append((inside, wf.is_grad_enabled()))
    assert seen == [(False, True), (False, True)]


def test_detach_and_requires_grad():
    x = _leaf(1.0)
    y = x * 2
    assert not y.detach().requires_grad and y.requires_grad and not y.is_leaf and x.is_leaf
    assert y.grad_fn.op.name == "multiply" and x.grad_fn is None
    y.detach_()
    assert y.is_leaf and not y.requires_grad
    x.requires_grad = False
    assert not x.requires_grad
    assert x.requires_grad_() is x


def test_integer_results_do_not_require_gradients():
    x = _leaf(1.0, 2.0)
    assert not (x > 1).requires_grad and not x.argmax().requires_grad and not x.astype(wf.int64).requires_grad


# Hooks ----------------------------------------------------------------------------------------------------------------------


def test_hooks_on_leaves_and_interior():
    x = _leaf(1.0, 2.0)
    seen = []
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [("x", [20, 20])] and x.grad.tolist() == [20, 20]
    handle.remove()
    handle.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_hooks_run_in_order_and_see_the_whole_gradient():
    x = _leaf(1.0)
    order = []
    y = x * 1
    y.register_hook(lambda g: order.append(("first", g.item())))
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: order.append(("third", g.item())))
    (y * 2 + y * 3).backward()
    assert order == [("first", 5), ("third", 6)] and x.grad.item() == 6


def test_hook_as_context_and_wrong_result():
    x = _leaf(1.0, 2.0)
    with x.register_hook(lambda g: g * 0):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [0, 0]
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ValueError, match=r"hook: expected None or a gradient of shape \(2,\)"):
        (x * 2).sum().backward()
    with pytest.raises(RuntimeError, match="register_hook: this tensor does not require gradients"):
        wf.ones(1).register_hook(print)


def test_hook_on_one_of_several_outputs():
    x = wf.asarray(np.array([3.0, 1.0, 2.0])).requires_grad_()
    values, _ = wf.topk(x, 2) if hasattr(wf, "topk") else (x[:2], None)
    seen = []
    values.register_hook(lambda g: seen.append(g.tolist()))
    (values * 2).sum().backward()
    assert seen == [[2, 2]]


def test_post_accumulate_hook():
    x = _leaf(1.0)
    seen = []

    def step(t):
        seen.append(t.grad.item())
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 2).backward()
    (x * 3).backward()
    assert seen == [2, 3] and x.grad is None
    handle.remove()
    (x * 4).backward()
    assert x.grad.item() == 4
    with pytest.raises(RuntimeError, match="only a leaf that requires gradients accumulates"):
        (x * 2).register_post_accumulate_grad_hook(step)


def test_hooks_are_seen_by_grad():
    x = _leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: g * 5)
    assert wf.grad(y * 1, x)[0].item() == 10


# Row-sparse gradients -------------------------------------------------------------------------------------------------------


def test_row_sparse_and_dense_gradients_add_up():
    table = _leaf(*range(8)).detach().reshape(4, 2).clone().requires_grad_()
    i = wf.tensor([1, 1, -1])
    assert wf.gradcheck(lambda t: (t[i] ** 2).sum() + (t * t).sum(), table)
    assert wf.gradcheck(lambda t: (t * t).sum() + (t[i] ** 2).sum() + wf.take(t, i, axis=0).sum(), table)
    assert wf.gradgradcheck(lambda t: (t[i] ** 3).sum() + (t * t).sum(), table)
    (table[i].sum() + table[wf.tensor([0])].sum()).backward()
    assert table.grad.tolist() == [[1, 1], [2, 2], [0, 0], [1, 1]]


# Small gradients travel as arrays, large ones as tensors --------------------------------------------------------------------


def _long_way(x, y):
    a = wf.tanh(x * y + 1.5) / (y + 2)
    b = wf.sigmoid(a - y) * wf.exp(-x) + wf.sqrt(x * x + 1)
    return (b * a).sum() + (wf.log(x + 3) ** 2).mean()


@pytest.mark.parametrize("dtype", [wf.float32, wf.float64], ids=str)
def test_small_and_large_arrays_have_the_same_gradients(dtype):
    from weft.ops.core.define import NATIVE_MIN_ELEMENTS

    n = NATIVE_MIN_ELEMENTS + 160
    rng = np.random.default_rng(0)
    xs, ys = (wf.asarray(rng.uniform(0.1, 1.0, n).astype(dtype)).requires_grad_() for _ in range(2))
    large = wf.grad(_long_way(xs, ys), [xs, ys])
    for part in (slice(0, 16), slice(n - 16, n)):
        x, y = (t.detach()[part].clone().requires_grad_() for t in (xs, ys))
        a = wf.tanh(x * y + 1.5) / (y + 2)
        b = wf.sigmoid(a - y) * wf.exp(-x) + wf.sqrt(x * x + 1)
        small = wf.grad((b * a).sum() + (wf.log(x + 3) ** 2).sum() / n, [x, y])
        for s, big in zip(small, large, strict=True):
            np.testing.assert_allclose(
                s.numpy(),
                big.numpy()[part],
                rtol=2e-5 if dtype is wf.float32 else 1e-12,
                atol=1e-6 if dtype is wf.float32 else 0,
            )


def test_arrays_and_tensors_mix_on_the_way():
    x = wf.tensor([0.5, 1.0, 2.0], dtype=wf.float32, requires_grad=True)
    d = wf.tensor([1.0, 2.0, 3.0], dtype=wf.float64, requires_grad=True)
    s = wf.tensor(2.0, requires_grad=True)
    n = wf.tensor([1, 2, 3])
    seen = []
    y = x * n * s
    y.register_hook(lambda g: seen.append(type(g)))
    z = (y * d * 0.1).exp() * 0.01 + y[0] + s * s
    z.sum().backward()
    assert seen == [wf.Tensor] and x.grad.dtype is wf.float32 and d.grad.dtype is wf.float64 and s.grad.shape == ()
    assert all(isinstance(t.grad, wf.Tensor) for t in (x, d, s))
    assert wf.gradcheck(
        lambda x, d, s: ((x * n * s) * d * 0.1).exp() * 0.01 + (x * n * s)[0] + s * s,
        [t.detach().astype(wf.float64).requires_grad_() for t in (x, d, s)],
    )


def test_gradients_without_axes():
    x = wf.tensor(3.0, requires_grad=True)
    y = wf.tensor(2.0, requires_grad=True)
    (x * y * x / y + x - (-y)).backward()
    assert x.grad.item() == 7 and y.grad.item() == 1 and x.grad.shape == ()


def test_stale_saved_values_are_found_on_the_short_way_too():
    x = wf.ones(3, requires_grad=True)
    w = wf.ones(3)
    y = x * w
    w += 1
    with pytest.raises(RuntimeError, match="backward of multiply: its saved tensor 'x2'.*overwritten in place by add"):
        y.sum().backward()


def test_overflow_in_a_rule_is_inf_and_no_warning():
    x = wf.tensor([0.0, 1e-30], requires_grad=True)
    (1 / x).sum().backward()
    assert x.grad.tolist() == [-np.inf, -np.inf]


def test_returned_gradients_may_be_written_to():
    x, y = wf.ones(3, requires_grad=True), wf.ones(3, requires_grad=True)
    a, b = wf.grad((x + y).sum(), [x, y])
    a *= 5
    assert b.tolist() == [1, 1, 1]
    (g,) = wf.grad(x.sum(), x)
    g += 1
    assert g.tolist() == [2, 2, 2]


@pytest.mark.parametrize("cast", [
    lambda x: x.long(), lambda x: x.int(), lambda x: x.bool(), lambda x: x.to(wf.int8), lambda x: x.astype(wf.uint8),
    lambda x: wf.astype(x, wf.int64), lambda x: x.type(wf.bool),
])  # fmt: skip
def test_a_cast_to_integers_or_bool_never_requires_gradients(cast):
    x = wf.tensor([0.0, 1.5, 3.0], requires_grad=True)
    for _ in range(3):
        y = cast(x)
        assert not y.requires_grad and y.is_leaf
        assert y.numpy().dtype.kind in "bui"
        with pytest.raises(RuntimeError, match="backward: the tensor does not require gradients"):
            y.sum().backward()
