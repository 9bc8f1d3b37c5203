"""vmap: every op's batching rule against a loop over examples, and how vmap composes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft as wf
from tests.each import each
from tests.ops.table_cases import ops, samples_of
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker

BATCH = 3
# Ops whose result sizes depend on the data, or on indices that must be the same for all examples.
NO_RULE_INSIDE = {"histogram", "embedding_bag", "dynamic_partition", "stitch_rows"}


def _batched(op):
    """Whether the op has a batching rule and tensors to batch."""
    known = op.name not in NO_RULE_INSIDE and op.batch is not None and op.samples is not None
    return known and op.tensor_slots and "state" not in op.tensor_names


def _bound(op, number, seed):
    sample = op.samples(Maker(seed))[number]
    values = op.bind(sample.args, sample.kwargs)
    return op.tensors(values), op.attrs(values)


def _same_shapes(rows):
    return all(
        all(
            np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
            for a, b in zip(rows[0], row, strict=True)
        )
        for row in rows
    )


@pytest.mark.parametrize("op", ops(_batched))
def test_batching_rule_equals_a_loop(op):
    own = callable(op.batch)
    numbers = range(min(len(samples_of(op)), 4 if own else 2))
    ways = ("all", "first", "last") if own else ("all",)
    each(_equals_a_loop, {f"{op.name} {i}, batched: {way}": (op, i, way) for i in numbers for way in ways})


def _equals_a_loop(op, number, which):
    first, attrs = _bound(op, number, len(op.name))
    rows = [first] + [_bound(op, number, len(op.name) + 100 + k)[0] for k in range(BATCH - 1)]
    if not _same_shapes(rows):
        rows = [first] * BATCH  # samples whose shapes are drawn at random
    places = [i for i, v in enumerate(first) if isinstance(v, np.ndarray)]
    if not places:
        return
    mapped = places if which == "all" else places[:1] if which == "first" else places[-1:]
    if which != "all" and len(places) == 1:
        return

    def run(*tensors):
        full = list(first)
        for place, t in zip(places, tensors, strict=True):
            full[place] = t
        values = op.merge(full, attrs)
        n = op.num_positional
        return op.call(*values[:n], **dict(zip(op.parameters[n:], values[n:], strict=True)))

    def argument(place):
        if place in mapped:
            return wf.asarray(np.stack([row[place] for row in rows]))
        return wf.asarray(np.array(first[place]))

    def loop(k):
        out = run(*[wf.asarray(np.array(rows[k][p] if p in mapped else first[p])) for p in places])
        return out if isinstance(out, (tuple, list)) else [out]

    expected = [loop(k) for k in range(BATCH)]
    got = wf.vmap(run, in_axes=tuple([0 if p in mapped else None for p in places]))(*[argument(p) for p in places])
    for i, g in enumerate(got if isinstance(got, (tuple, list)) else [got]):
        want = np.stack([e[i].numpy() for e in expected])
        assert g.shape == want.shape and g.dtype == want.dtype
        np.testing.assert_allclose(
            np.asarray(g.numpy(), np.complex128), np.asarray(want, np.complex128), rtol=1e-9, atol=1e-9, err_msg=op.name
        )


@pytest.mark.parametrize("name", [
    "reshape", "permute_dims", "matmul", "reduce_sum", "getitem", "advanced_index", "take_axis", "take_along_axis", "concat_axis",
    "broadcast_to", "add", "exp", "where", "setitem", "scatter_add", "index_add", "cast", "max",
])  # fmt: skip
def test_ops_that_everything_needs_have_rules(name):
    assert table[name].batch is not None


def _x(*shape):
    return wf.asarray(np.random.default_rng(0).standard_normal(shape))


def test_axes_in_and_out():
    x = _x(2, 3, 4)
    f = lambda v: v * wf.arange(v.shape[0], dtype=wf.float64)
    for axis in (0, 1, 2, -1):
        out = wf.vmap(lambda v: v.sum(axis=0), in_axes=axis)(x)
        moved = np.moveaxis(x.numpy(), axis, 0)
        np.testing.assert_allclose(out.numpy(), moved.sum(axis=1))
    out = wf.vmap(f, in_axes=1, out_axes=-1)(x[0])
    np.testing.assert_allclose(out.numpy(), x[0].numpy() * np.arange(3)[:, None])
    np.testing.assert_allclose(
        wf.vmap(lambda v: v * 2, in_axes=2, out_axes=1)(x).numpy(), np.moveaxis(x.numpy(), 2, 1) * 2
    )


def test_trees_of_inputs_and_outputs():
    def f(params, x):
        return {"y": x @ params["w"] + params["b"], "n": (x, x.sum())}

    params = {"w": _x(5, 4, 2), "b": _x(2)}
    x = _x(5, 4)
    out = wf.vmap(f, in_axes=({"w": 0, "b": None}, 0))(params, x)
    np.testing.assert_allclose(
        out["y"].numpy(), np.einsum("bi,bij->bj", x.numpy(), params["w"].numpy()) + params["b"].numpy()
    )
    assert out["n"][0].shape == (5, 4) and out["n"][1].shape == (5,)
    out = wf.vmap(f, in_axes=({"w": 0, "b": None}, 0), out_axes={"y": 1, "n": (0, 0)})(params, x)
    assert out["y"].shape == (2, 5)


def test_results_that_do_not_depend_on_the_batch_are_repeated():
    out = wf.vmap(lambda v: wf.ones(2))(_x(3))
    assert out.shape == (3, 2)
    kept = wf.vmap(lambda v: (wf.ones(2), v), out_axes=(None, 0))(_x(3))
    assert kept[0].shape == (2,)


def test_nested():
    x, y = _x(3, 2), _x(4, 2)
    outer = wf.vmap(lambda a: wf.vmap(lambda b: (a * b).sum())(y))(x)
    np.testing.assert_allclose(outer.numpy(), x.numpy() @ y.numpy().T)
    thrice = wf.vmap(wf.vmap(wf.vmap(lambda v: v.sin().sum())))(_x(2, 3, 4, 5))
    np.testing.assert_allclose(thrice.numpy(), np.sin(_x(2, 3, 4, 5).numpy()).sum(-1))


def test_vmap_of_gradient_is_per_example_gradient():
    w = _x(4, 3)
    x, t = _x(6, 4), _x(6, 3)

    def loss(w, x, t):
        return ((wf.tanh(x @ w) - t) ** 2).sum()

    per_example = wf.vmap(wf.grad_fn(loss), in_axes=(None, 0, 0))(w, x, t)
    for k in range(6):
        np.testing.assert_allclose(per_example[k].numpy(), wf.grad_fn(loss)(w, x[k], t[k]).numpy(), rtol=1e-9)
    both = wf.vmap(wf.value_and_grad(loss), in_axes=(None, 0, 0))(w, x, t)
    assert both[0].shape == (6,)


def test_gradient_of_vmap():
    x = _x(5, 3).requires_grad_()
    w = _x(3, 3).requires_grad_()
    f = lambda v: (v @ w).sin() * v
    wf.vmap(f)(x).sum().backward()
    got = x.grad.numpy().copy(), w.grad.numpy().copy()
    x.grad = w.grad = None
    f(x).sum().backward()
    np.testing.assert_allclose(got[0], x.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(got[1], w.grad.numpy(), rtol=1e-9)


def test_gradient_through_vmap_of_gradient():
    x = _x(4, 3).requires_grad_()
    out = wf.vmap(wf.grad_fn(lambda v: (v**3).sum()))(x)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * x.detach().numpy(), rtol=1e-9)


def test_hessian_and_jacobian_compose():
    x = _x(4, 3)
    h = wf.vmap(wf.grad_fn(lambda v: (wf.grad_fn(lambda u: (u**3).sum())(v) ** 2).sum()))(x)
    np.testing.assert_allclose(h.numpy(), 36 * x.numpy() ** 3, rtol=1e-9)
    j = wf.jacobian(lambda v: wf.vmap(lambda u: u * u)(v), x[0])
    np.testing.assert_allclose(j.numpy(), np.diag(2 * x[0].numpy()))
    inside = wf.vmap(lambda v: wf.jacobian(lambda u: u * u, v))(x)
    np.testing.assert_allclose(inside.numpy(), np.stack([np.diag(2 * r) for r in x.numpy()]))


def test_backward_inside():
    def f(v):
        leaf = v.detach().requires_grad_()
        (leaf * leaf).sum().backward()
        return leaf.grad

    x = _x(3, 2)
    np.testing.assert_allclose(wf.vmap(f)(x).numpy(), 2 * x.numpy())


def test_indexing_with_batched_indices():
    x, i = _x(3, 5, 2), wf.tensor([[4, 0], [1, 1], [2, 3]])
    np.testing.assert_array_equal(
        wf.vmap(lambda a, k: a[k])(x, i).numpy(), np.stack([a[k] for a, k in zip(x.numpy(), i.numpy(), strict=True)])
    )
    np.testing.assert_array_equal(wf.vmap(lambda k: x[0][k], in_axes=0)(i).numpy(), x.numpy()[0][i.numpy()])
    np.testing.assert_array_equal(
        wf.vmap(lambda a, k: a[:, None, k % 2])(x, i).numpy(),
        np.stack([a[:, None, k % 2] for a, k in zip(x.numpy(), i.numpy(), strict=True)]),
    )
    np.testing.assert_array_equal(wf.vmap(lambda k: x[0, k[0], 1])(i).numpy(), x.numpy()[0, i.numpy()[:, 0], 1])


def test_gradient_of_batched_indexing():
    table_ = _x(5, 2)
    i = wf.tensor([[4, 0], [1, 1], [2, 3]])
    g = wf.vmap(wf.grad_fn(lambda t, k: (t[k] ** 2).sum()), in_axes=(None, 0))(table_, i)
    for k in range(3):
        want = np.zeros((5, 2))
        np.add.at(want, i.numpy()[k], 2 * table_.numpy()[i.numpy()[k]])
        np.testing.assert_allclose(g.numpy()[k], want)


def test_writes_in_place_inside():
    def f(v):
        y = wf.zeros_like(v)
        y[0] = v[1] * 2
        y[1:] += v[0]
        w = v.clone()
        w[wf.tensor([0, 2])] = y[:2]
        w *= 2
        return y + w

    x = _x(4, 3)
    np.testing.assert_allclose(wf.vmap(f)(x).numpy(), np.stack([f(r).numpy() for r in x]))


def test_writing_a_batched_value_outside_is_refused():
    y = wf.zeros(3, dtype=wf.float64)
    with pytest.raises(RuntimeError, match="vmap: .*a tensor that is the same for all examples.*zeros_like"):
        wf.vmap(lambda v: y.__setitem__(0, v))(_x(2))
    with pytest.raises(RuntimeError, match="vmap: "):
        wf.vmap(lambda v: y.add_(v))(_x(2, 3))
    assert y.tolist() == [0, 0, 0]


def test_random_ops():
    x = _x(4, 3)
    noisy = lambda v: v * 0 + wf.rand(3, dtype=wf.float64)
    with pytest.raises(RuntimeError, match="draws random numbers.*randomness='different'"):
        wf.vmap(noisy)(x)
    same = wf.vmap(noisy, randomness="same")(x).numpy()
    assert (same == same[0]).all()
    different = wf.vmap(noisy, randomness="different")(x).numpy()
    assert len({tuple(r) for r in different}) == 4
    with pytest.raises(ValueError, match="randomness must be"):
        wf.vmap(noisy, randomness="maybe")


def test_control_flow_and_conversion_have_words():
    with pytest.raises(RuntimeError, match="if/while: inside vmap.*wf.where"):
        wf.vmap(lambda v: v if v > 0 else -v)(_x(3))
    with pytest.raises(RuntimeError, match=r"item\(\): inside vmap"):
        wf.vmap(lambda v: v.item())(_x(3))
    with pytest.raises(RuntimeError, match="conversion to a NumPy array: inside vmap"):
        wf.vmap(lambda v: np.asarray(v))(_x(3))


def test_bad_axes_have_words():
    with pytest.raises(ValueError, match="batch axes differ in size: 3, 4"):
        wf.vmap(lambda a, b: a)(_x(3), _x(4))
    with pytest.raises(ValueError, match="in_axes names axis 1 of a, a tensor of shape"):
        wf.vmap(lambda a: a, in_axes=1)(_x(3))
    with pytest.raises(ValueError, match="in_axes has 1 entries for 2 arguments"):
        wf.vmap(lambda a, b: a, in_axes=(0,))(_x(3), _x(3))
    with pytest.raises(ValueError, match="no argument has a batch axis"):
        wf.vmap(lambda a: a, in_axes=None)(_x(3))
    with pytest.raises(ValueError, match="without positional arguments"):
        wf.vmap(lambda: 1)()
    with pytest.raises(ValueError, match="out_axes 5 is out of range"):
        wf.vmap(lambda a: a, out_axes=5)(_x(3))
    with pytest.raises(ValueError, match="out_axes is None for a result that differs"):
        wf.vmap(lambda a: a, out_axes=None)(_x(3))
    with pytest.raises(TypeError, match="must return tensors. Got str"):
        wf.vmap(lambda a: "x")(_x(3))


def test_an_op_without_a_rule_is_named():
    from weft.ops.core.define import primitive
    from weft.ops.core.spec import Spec

    @primitive(name="rule_free_op_for_test", infer=lambda x: Spec(x.shape, x.dtype), vjp=lambda g: g)
    def op(x: wf.Tensor) -> object:
        return x.copy()

    try:
        with pytest.raises(NotImplementedError, match="vmap: rule_free_op_for_test has no batching rule"):
            wf.vmap(op)(_x(3))
    finally:
        del table["rule_free_op_for_test"]


def test_printing_and_facts_inside():
    seen = {}

    def f(v):
        seen.update(text=repr(v), shape=v.shape, ndim=v.ndim, size=v.size, length=len(v), dtype=v.dtype)
        return v

    wf.vmap(f)(_x(3, 2))
    assert seen["shape"] == (2,) and seen["ndim"] == 1 and seen["size"] == 2 and seen["length"] == 2
    assert "batch of 3" in seen["text"]


def test_levels_are_left_after_an_error():
    from weft.autograd.vmap import _depth

    with pytest.raises(ZeroDivisionError):
        wf.vmap(lambda v: 1 / 0)(_x(3))
    assert _depth.level == 0


X = wf.tensor([1.0, 2.0, 3.0])
LOOPS = {
    "carry": lambda x: wf.vmap(lambda r: wf.scan(lambda c, _: (c * r, None), r, None, length=2)[0])(x),
    "closed over": lambda x: wf.vmap(lambda r: wf.scan(lambda c, _: (c * r, None), wf.ones(()), None, length=2)[0])(x),
    "while": lambda x: wf.vmap(
        lambda r: wf.while_loop(lambda i, c: i < 2, lambda i, c: (i + 1, c * r), (wf.asarray(0), r))[1]
    )(x),
    "branch": lambda x: wf.vmap(lambda r: wf.cond(x.sum() > 0, lambda: r * 2, lambda: r))(x),
    "map": lambda x: wf.vmap(lambda r: wf.map(lambda e: e * r, wf.arange(3.0)))(x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_mapped_branches_and_loops_in_captured_functions(name):
    """They run eagerly, after a warning; inside of a body vmap is captured."""
    fn = LOOPS[name]
    with pytest.warns(UserWarning, match="runs eagerly.*because it maps a branch or loop with `vmap`"):
        found = wf.function(fn)(X)
    assert found.tolist() == fn(X).tolist()
    inner = wf.function(lambda x: wf.scan(lambda c, e: (c + wf.vmap(lambda r: r * e)(x), None), x, wf.arange(3.0))[0])
    assert inner(X).tolist() == [4.0, 8.0, 12.0] and inner.traces[0].reason is None


def test_a_mapped_condition_is_refused_alike():
    fn = lambda x: wf.vmap(lambda r: wf.cond(r > 1, lambda: r, lambda: -r))(x)
    for way in (fn, wf.function(fn)):
        with (
            warnings.catch_warnings(),
            pytest.raises(RuntimeError, match="inside vmap a tensor stands for a whole batch"),
        ):
            warnings.simplefilter("ignore")
            way(X)
    with wf.Graph("g").as_default():
        with pytest.raises(RuntimeError, match="inside vmap a tensor stands for a whole batch"):
            fn(wf.placeholder(wf.float32, (3,)))
        with pytest.raises(wf.CaptureError, match="cannot be mapped with vmap"):
            LOOPS["branch"](wf.placeholder(wf.float32, (3,)))
