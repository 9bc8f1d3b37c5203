"""Large products by the generated kernel: with epilogues, beside the library's, and when their operands are written."""

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.compiler import tuning
from weft.compiler.lowering.rules.product import suits
from weft.compiler.program.layout import Layout, Storage
from weft.nn import functional as F

ROWS = 4096


def data(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def labels(function):
    (trace,) = function._traces.values()
    return [f"{st.kind}: {st.label}" for st in trace.compiled.program.steps]


def captured(way, fn, *tensors):
    function = wf.function(fn)
    with tuning.forced(way):
        result = function(*tensors)
    return result.numpy(), labels(function)


def layout(rows, columns, transposed=False):
    strides = (1, rows) if transposed else (columns, 1)
    return Layout(Storage("argument", 4 * rows * columns), np.dtype(np.float32), (rows, columns), strides)


@pytest.mark.parametrize(
    ("fn", "x", "w"),
    [
        (lambda x, w: x @ w.T, (ROWS, 64), (100, 64)),
        (lambda x, w: x @ w, (200, 700), (700, 130)),  # sums wait for the second piece of the depth
        (lambda x, w: x.T @ w, (150, 300), (150, 90)),  # a left operand that is copied
    ],
)
def test_products_with_many_rows(fn, x, w):
    x, w = wf.tensor(data(*x)), wf.tensor(data(*w))
    own, steps = captured("blocks", fn, x, w)
    assert steps == ["kernel: matmul"]
    library, steps = captured("library", fn, x, w)
    assert steps == ["primitive: matmul"]
    exact = fn(x.numpy().astype(np.float64), w.numpy())
    for result in (own, library):
        np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-4)


def test_a_bias_before_something_that_is_no_loop_is_part_of_the_product():
    x, w, b, v = data(300, 80), data(70, 80), data(70), data(64, 70)
    fn = lambda x, w, b, v: F.gelu(x @ w.T + b) @ v.T
    result, steps = captured("blocks", fn, *map(wf.tensor, (x, w, b, v)))
    assert steps == ["kernel: matmul + add + gelu_exact", "kernel: matmul"]
    expected = fn(*[wf.tensor(z.astype(np.float64)) for z in (x, w, b, v)])
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-3, atol=1e-3)


def test_bias_and_relu_are_part_of_the_product_and_show_nan():
    x, w, b = data(512, 100), data(70, 100), data(70)
    x[7, 3], x[9, 0] = np.nan, np.inf
    fn = lambda x, w, b: F.relu(F.linear(x, w, b))
    result, steps = captured("blocks", fn, *map(wf.tensor, (x, w, b)))
    assert steps == ["kernel: matmul+add+relu"]
    with np.errstate(invalid="ignore"):
        expected = np.maximum(x.astype(np.float64) @ w.T + b, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert np.isnan(result[7]).all()


def test_a_product_that_is_read_twice_or_through_a_view_stays_whole():
    x, w = wf.tensor(data(512, 64)), wf.tensor(data(64, 64))

    def fn(x, w):
        a = x @ w
        return wf.tanh(a) @ w + a * a[::1]

    result, _ = captured("blocks", fn, x, w)
    np.testing.assert_allclose(result, fn(x, w).numpy(), rtol=1e-4, atol=1e-4)


def test_a_weight_is_not_written_before_a_product_that_waits_has_read_it():
    x, w = data(600, 64), data(64, 64)
    weight = wf.tensor(w)

    def fn(x):
        y = x @ weight
        weight.add_(1.0)
        return wf.tanh(y) * 0.5

    with tuning.forced("blocks"):
        function = wf.function(fn)
        first, second = function(wf.tensor(x)).numpy(), function(wf.tensor(x)).numpy()
    for result, old in ((first, w), (second, w + 1)):
        np.testing.assert_allclose(result, 0.5 * np.tanh(x.astype(np.float64) @ old), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["blocks", "library"])
def test_training_is_the_same_as_eager(way):
    def build():
        wf.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
        opt = optim.Adam(model.parameters(), lr=1e-2)

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        return step

    x, y = wf.tensor(data(ROWS, 64)), wf.tensor(np.arange(ROWS) % 10)
    eager = build()
    expected = [float(eager(x, y)) for _ in range(6)]
    with tuning.forced(way):
        step = wf.function(build())
        got = [float(step(x, y)) for _ in range(6)]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_repeated_layers_share_the_kernel_with_what_follows():
    x, w = wf.tensor(data(512, 64)), wf.tensor(data(64, 64))

    def fn(x, w):
        for _ in range(3):
            x = wf.tanh(x @ w) * 2.0
        return x

    with tuning.forced("blocks"):
        function = wf.function(fn)
        function(x, w)
    (trace,) = function._traces.values()
    made = [st.kernel for st in trace.compiled.program.steps if st.label.startswith("matmul")]
    assert len(made) == 3 and len({id(k) for k in made[:2]}) == 1


def test_which_products_are_ours():
    many = layout(ROWS, 64)
    assert suits(many, layout(64, 64)) and suits(many, layout(64, 64, transposed=True))
    assert suits(layout(ROWS, 64, transposed=True), layout(64, 64))
    assert not suits(layout(32, 64), layout(64, 64))  # packing would be most of the work
    assert not suits(many, layout(64, 8))


def test_weight_gradients_over_many_samples_or_pixels():
    g, x = data(5000, 64), data(5000, 80)
    fn = lambda g, x: g.T @ x
    result, steps = captured("blocks", fn, wf.tensor(g), wf.tensor(x))
    assert steps == ["kernel: matmul"]
    np.testing.assert_allclose(result, g.T.astype(np.float64) @ x, rtol=1e-3, atol=1e-3)

    images, weight = wf.tensor(data(8, 32, 24, 24)), wf.tensor(data(96, 32, 1, 1)).requires_grad_()

    def gradient(images):
        (made,) = wf.grad((F.conv2d(images, weight) ** 2).sum(), [weight])
        return made

    with tuning.forced("matmul"):
        result = wf.function(gradient)(images)
    np.testing.assert_allclose(result.numpy(), gradient(images).numpy(), rtol=2e-4, atol=2e-2)
