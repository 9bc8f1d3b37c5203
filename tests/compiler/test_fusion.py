"""Which nodes become one loop nest."""

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm.target import host
from weft.compiler.fusion import MAX_MEMBERS, Cluster, Fuser, dump, is_view
from weft.compiler.passes import optimise
from weft.compiler.program.steps import KernelCall
from weft.nn import functional as F


def captured(fn, *args):
    f = wf.function(fn)
    f(*args)
    return f


def units(fn, *args):
    """The units of `fn`, and the numbers of `fn` compared with the eager ones on the way."""
    f = wf.function(fn)
    got, expected = f(*args), fn(*args)
    for a, b in zip(_flat(got), _flat(expected), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6)
    return Fuser(f.traces[0].compiled.flow).run()


def _flat(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def check_order(order):
    """Every unit comes after the units whose results it reads, through views too."""
    position = {n: i for i, u in enumerate(order) for n in (u.members if isinstance(u, Cluster) else [u])}
    for n, i in position.items():
        for v in n.inputs:
            base = v.node
            while is_view(base):
                base = base.inputs[0].node
            assert position.get(base, -1) <= i


def clusters(fn, *args):
    return [u for u in units(fn, *args) if isinstance(u, Cluster)]


def kernels(fn, *args):
    """The loop nests of the program itself: kernels that are neither copies nor checks of indices."""
    f = captured(fn, *args)
    return [
        s for s in f.traces[0].compiled.program.steps if isinstance(s, KernelCall) and s.label not in ("copy", "check")
    ]


def gradient(fn):
    return wf.grad_fn(lambda x, c: (fn(x) * c).sum())


X = wf.tensor(np.random.default_rng(0).standard_normal((24, 16)).astype("f"))
C = wf.tensor(np.random.default_rng(1).standard_normal((24, 16)).astype("f"))
Y = wf.tensor(np.arange(24) % 16)

ROWS = {
    "softmax": lambda x: F.softmax(x),
    "log_softmax": lambda x: F.log_softmax(x),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "rms": lambda x: x * wf.rsqrt((x * x).mean(axis=1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_one_nest(name):
    assert len(kernels(ROWS[name], X)) == 1


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_rows_are_one_nest_with_their_forward_pass(name):
    assert len(kernels(gradient(ROWS[name]), X, C)) == 1
    assert len(clusters(gradient(ROWS[name]), X, C)) == 1


def test_layer_norm_with_weights_and_its_gradients():
    """One nest over rows, and sums over rows for weight and bias."""
    w, b = wf.ones(16, requires_grad=True), wf.zeros(16, requires_grad=True)

    def fn(x, c):
        loss = (F.layer_norm(x, (16,), w, b) * c).sum()
        return wf.grad(loss, [w, b])

    assert len(kernels(fn, X, C)) <= 3


def test_cross_entropy_forward():
    """The classes of a row are one nest; which rows count, and their mean, are over rows only."""
    found = kernels(lambda x, y: F.cross_entropy(x, y), X, Y)
    big = [k for k in found if any(n.outputs[0].shape == (24, 16) for n in k.nodes)]
    assert len(big) == 1 and len(found) <= 3


def test_cross_entropy_backward():
    fn = wf.grad_fn(lambda x, y: F.cross_entropy(x, y))
    found = kernels(fn, X, Y)
    big = [k for k in found if any(n.outputs[0].shape == (24, 16) for n in k.nodes)]
    assert len(big) <= 2 and len(found) <= 6
    np.testing.assert_allclose(wf.function(fn)(X, Y).numpy(), fn(X, Y).numpy(), rtol=1e-5, atol=1e-7)


LOGITS = wf.tensor(np.random.default_rng(3).standard_normal((300, 500)).astype("f"))
LABELS = wf.tensor(np.random.default_rng(4).integers(0, 500, 300))


def walks(fn, *args, shape=(300, 500)):
    """The kernels that walk over arrays of `shape`."""
    return [k for k in kernels(fn, *args) if any(tuple(n.outputs[0].shape) == shape for n in k.nodes)]


def test_losses_over_many_classes_and_their_gradients_are_one_nest():
    """How many labels count is known before the logits are, so nothing stands between the loss and its gradient."""

    def log_probability(x, y):
        return -wf.take_along_axis(F.log_softmax(x, axis=-1), y[:, None], axis=-1).mean()

    for loss in (
        F.cross_entropy,
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        lambda x, y: F.cross_entropy(x, y, ignore_index=3),
        log_probability,
    ):

        def both(x, y, loss=loss):
            value = loss(x, y)
            return value, wf.grad(value, [x])[0]

        x = LOGITS.detach().clone().requires_grad_(True)
        assert len(walks(both, x, LABELS)) == 1
        for got, expected in zip(wf.function(both)(x, LABELS), both(x, LABELS), strict=True):
            np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=2e-4, atol=1e-7)


def test_gradients_of_weight_and_bias_walk_over_the_rows_together():
    w, b = wf.ones(500, requires_grad=True), wf.zeros(500, requires_grad=True)

    def gradients(x, g):
        return wf.grad(F.layer_norm(x, (500,), w, b), [x, w, b], g)

    x = LOGITS.detach().clone().requires_grad_(True)
    assert len(kernels(gradients, x, LOGITS * 0.5)) == 2
    for got, expected in zip(wf.function(gradients)(x, LOGITS * 0.5), gradients(x, LOGITS * 0.5), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)


def test_elementwise_chain_is_one_nest():
    def fn(x, c):
        return wf.tanh(wf.exp(x) * 2.0 + c) - x

    (only,) = clusters(fn, X, C)
    assert [n.op.name for n in only.members] == ["exp", "multiply", "add", "tanh", "subtract"]


def test_broadcasts_belong_to_the_nest():
    (only,) = clusters(lambda x, r, c: (x + r) * c, X, wf.ones(16), wf.ones(24, 1))
    assert only.space == (24, 16)


def test_casts_belong_to_the_nest():
    assert len(clusters(lambda x: (x.astype(wf.float64) * 2).astype(wf.float32) + 1, X)) == 1


def test_two_results_of_one_input_are_joined_when_one_reader_needs_both():
    assert len(clusters(lambda x: wf.exp(x) + wf.tanh(x), X)) == 1


def test_sums_along_different_axes_are_two_nests():
    assert len(clusters(lambda x: (x.sum(axis=0), x.sum(axis=1)), X)) == 2


def test_a_reduction_ends_where_its_result_is_transposed():
    """The transposed result is read in another order, so it must be stored first."""
    square = X[:16]
    found = clusters(lambda x: wf.exp(x).T + 1.0, square)
    assert len(found) == 2


def test_no_fusion_around_a_product():
    """exp → matmul → add with exp again: one nest of exp and add would have to run before and after the matmul."""

    w = wf.ones(16, 16)

    def fn(x):
        e = wf.exp(x)
        return e + e @ w

    found = units(fn, X)
    assert [type(u).__name__ for u in found] == ["Cluster", "Node", "Cluster"]


def test_no_fusion_across_a_longer_cycle():
    def fn(x):
        e = wf.exp(x)
        s = wf.sort(e, axis=1)
        t = wf.tanh(s)
        return (e * t).sum(axis=1) + wf.sort(t.sum(axis=1))

    order = units(fn, X)
    assert sum(isinstance(u, Cluster) for u in order) >= 2
    check_order(order)


@pytest.mark.parametrize("n", [MAX_MEMBERS - 1, MAX_MEMBERS, MAX_MEMBERS + 1, 3 * MAX_MEMBERS])
def test_clusters_are_limited(n):
    def fn(x):
        for i in range(n):
            x = wf.tanh(x) if i % 2 else x + 0.125
        return x

    found = clusters(fn, X)
    assert all(len(c.members) <= MAX_MEMBERS for c in found)
    assert len(found) == -(-n // MAX_MEMBERS)


def test_joined_clusters_are_limited():
    def half(x, k, count):
        for _ in range(count):
            x = wf.tanh(x) + k
        return x

    def fn(x, y):
        return half(x, 0.25, MAX_MEMBERS // 4) + half(y, 0.5, MAX_MEMBERS // 4)

    assert all(len(c.members) <= MAX_MEMBERS for c in clusters(fn, X, C))


def test_random_graphs_keep_their_order_and_their_numbers():
    """Random programs of elementwise ops, reductions, products and transposes, against eager."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        plan = [(rng.integers(6), rng.integers(0, 1 << 30), rng.integers(0, 1 << 30)) for _ in range(14)]

        def fn(x, plan=plan):
            values = [x, wf.tanh(x)]
            for kind, i, j in plan:
                a, b = values[i % len(values)], values[j % len(values)]
                values.append(
                    [
                        lambda a, b: wf.tanh(a + b),
                        lambda a, b: a * b.mean(axis=1, keepdims=True),
                        lambda a, b: a - b.max(axis=0, keepdims=True),
                        lambda a, b: wf.tanh(a @ b),
                        lambda a, b: a.T * 0.5 + b,
                        lambda a, b: F.softmax(a) - b,
                    ][kind](a, b)
                )
            return tuple(values[-3:])

        check_order(units(fn, X[:12, :12]))


def test_dump_names_every_unit():
    flow = optimise(captured(lambda x: wf.exp(x) @ wf.ones(16, 2), X).traces[0].flow, host())
    text = dump(Fuser(flow).run())
    assert "cluster (24, 16) reduce []: exp" in text and "matmul" in text


@pytest.mark.parametrize("index", [np.array(1), np.array([1]), np.array([[1]])], ids=["scalar", "vector", "matrix"])
def test_gather_by_one_constant_index_is_fused(index):
    graph = wf.Graph("gather")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    with graph.as_default():
        x = wf.placeholder(wf.float32, (3, 4))
        taken = wf.take(x, wf.constant(index), axis=0) * 2.0
    with wf.Session(graph) as sess:
        np.testing.assert_array_equal(sess.run(taken, {x: values}, timeout=60).numpy(), np.take(values, index, 0) * 2)
