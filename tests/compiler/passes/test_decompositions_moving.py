"""Moving ops are views, gathers and comparisons: the eager elements, and no host call."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


X = wf.tensor(RNG.normal(size=(3, 4, 5)).astype("float32"))
MOVES = {
    "flip": lambda x: wf.flip(x, axis=(0, -1)),
    "flip all": wf.flip,
    "roll": lambda x: wf.roll(x, (1, -7), axis=(0, 2)),
    "roll flat": lambda x: wf.roll(x, 13),
    "roll by nothing": lambda x: wf.roll(x, 4, axis=1),
    "tile": lambda x: wf.tile(x, (2, 1, 1, 3)),
    "repeat": lambda x: wf.repeat(x, 3, axis=1),
    "repeat each": lambda x: wf.repeat(x, [0, 2, 1, 3], axis=1),
    "repeat flat": lambda x: wf.repeat(x, 2),
    "tril": lambda x: wf.tril(x, k=1),
    "triu": lambda x: wf.triu(x, k=-2),
    "diagonal": lambda x: wf.diagonal(x, offset=-1),
    "diag_embed": lambda x: wf.diag_embed(x, offset=2),
    "pad": lambda x: wf.pad(x, ((1, 0), (0, 2), (-1, 3)), value=1.5),
    "pad zeros": lambda x: wf.pad(x, 1),
    "reflect": lambda x: wf.pad(x, ((2, 1), (0, 0), (3, 4)), mode="reflect"),
    "replicate": lambda x: wf.pad(x, 2, mode="replicate"),
    "circular": lambda x: wf.pad(x, 3, mode="circular"),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x[None], size=(7, 3), mode="nearest"),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x[None], (2, 3)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_their_gradients(name):
    move = MOVES[name]
    f = wf.function(move)
    np.testing.assert_allclose(f(X).numpy(), move(X).numpy(), rtol=1e-6)
    assert host_calls(f) == []

    def gradient(x):
        return wf.grad(move(x).square().sum(), [x])[0]

    x = X.detach().clone().requires_grad_(True)
    g = wf.function(gradient)
    np.testing.assert_allclose(g(x).numpy(), gradient(x).numpy(), rtol=1e-5)
    assert host_calls(g) == []


def test_one_hot_is_a_comparison_that_is_checked():
    f = wf.function(lambda i: wf.nn.functional.one_hot(i, 4))
    assert f(wf.tensor([[0, 3]])).tolist() == [[[1, 0, 0, 0], [0, 0, 0, 1]]]
    assert host_calls(f) == []
    for bad in (-1, 4):
        with pytest.raises(IndexError, match="one_hot: class out of range: expected 0 to 3"):
            f(wf.tensor([[0, bad]]))


@pytest.mark.parametrize("count", [3, 200])
def test_isin(count):
    x = wf.tensor(RNG.integers(0, 300, (4, 50)))
    among = wf.tensor(RNG.integers(0, 300, count))
    f = wf.function(lambda a, b: (wf.isin(a, b), wf.isin(a, b, invert=True)))
    inside, outside = f(x, among)
    np.testing.assert_array_equal(inside.numpy(), np.isin(x.numpy(), among.numpy()))
    np.testing.assert_array_equal(outside.numpy(), ~inside.numpy())
    assert host_calls(f) == []


INDICES = [
    lambda a, b, c: (a,),
    lambda a, b, c: (slice(None), b),
    lambda a, b, c: (Ellipsis, c),
    lambda a, b, c: (a, b),
    lambda a, b, c: (a, b, c),
    lambda a, b, c: (a, slice(None), c),
    lambda a, b, c: (a, slice(1, 4), c),
    lambda a, b, c: (2, slice(None), c),
    lambda a, b, c: (a, None, b),
    lambda a, b, c: (None, a, b),
    lambda a, b, c: (a, Ellipsis, c),
    lambda a, b, c: (slice(None, None, 2), b, c),
    lambda a, b, c: (slice(None, None, -1), b),
]


@pytest.mark.parametrize("make", INDICES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_advanced_indices_read_write_and_add(make, shape):
    x = RNG.normal(size=(4, 5, 6)).astype("float32")
    places = [wf.tensor(RNG.integers(-n, n, shape)) for n in x.shape]
    where = tuple([v.numpy() if isinstance(v, wf.Tensor) else v for v in make(*places)])
    value = RNG.normal(size=x[where].shape).astype("float32")

    read = wf.function(lambda x, a, b, c: x[make(a, b, c)])
    np.testing.assert_array_equal(read(wf.tensor(x), *places).numpy(), x[where])

    def put(x, value, a, b, c):
        y = x * 1.0
        y[make(a, b, c)] = value
        return y

    write = wf.function(put)
    expected = x.copy()
    expected[where] = value
    np.testing.assert_array_equal(write(wf.tensor(x), wf.tensor(value), *places).numpy(), expected)

    add = wf.function(lambda x, v, a, b, c: wf.grad((x[make(a, b, c)] * v).sum(), [x])[0])
    expected = np.zeros_like(x)
    np.add.at(expected, where, value)
    got = add(wf.tensor(x, requires_grad=True), wf.tensor(value), *places)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    assert host_calls(read) == host_calls(add) == []
