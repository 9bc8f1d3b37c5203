"""Depthwise convolutions in captured training steps: what is put together with them, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.compiler.lowering.rules import depthwise
from weft.runtime import threads

FORWARD, BACKWARD = "depthwise convolution+moments", "depthwise convolution grad input+grad weight"
Block = Callable[..., Any]


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass leaves short vectors to trials; its result is right there, too."""
    monkeypatch.setattr(depthwise, "long_vectors", lambda target: True)


def arrays(images: int, channels: int, size: tuple[int, int], offset: float = 0.5) -> list[np.ndarray]:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((images, *size, channels), np.float32).transpose(0, 3, 1, 2) + np.float32(offset)
    w = rng.standard_normal((channels, 1, 3, 3), np.float32)
    scales = [rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(2)]
    shifts = [rng.standard_normal(channels).astype(np.float32) for _ in range(2)]
    return [x, w, scales[0], shifts[0], scales[1], shifts[1]]


def block(activation: Any = F.relu6, stride: int = 1, padding: int = 1, training: bool = True) -> Block:
    """Batch norm, activation, depthwise convolution, batch norm: what MobileNet is made of."""

    def forward(x: wf.Tensor, w: wf.Tensor, *norms: wf.Tensor) -> wf.Tensor:
        def norm(x: wf.Tensor, scale: wf.Tensor, shift: wf.Tensor) -> wf.Tensor:
            if training:
                return F.batch_norm(x, None, None, scale, shift, training=True)
            return F.batch_norm(x, shift * 0.1, scale * scale, scale, shift, training=False)

        h = activation(norm(x, norms[0], norms[1]))
        y = F.conv2d(h, w, None, stride, padding, groups=x.shape[1])
        return norm(y, norms[2], norms[3])

    return forward


def results(forward: Block, inputs: list[np.ndarray], dtype: Any, capture: bool) -> tuple[list[np.ndarray], list[str]]:
    """The block's result, the gradients of all it is given, and what the program's steps are called."""
    given = [wf.asarray(a.astype(dtype)) for a in inputs]

    def run(*tensors: wf.Tensor) -> Any:
        leaves = [t.detach().requires_grad_() for t in tensors]
        made = forward(leaves[0] * 1.0, *leaves[1:])  # a gradient that something reads
        weights = wf.asarray(np.cos(np.arange(made.size)).reshape(made.shape).astype(dtype))
        return (made, *wf.grad((made * weights).sum(), leaves))

    f = wf.function(run) if capture else run
    made = [r.detach().numpy() for r in f(*given)]
    labels = [st.label for st in f._latest().compiled.program.steps] if capture else []  # type: ignore[attr-defined]
    return made, labels


def check(forward: Block, inputs: list[np.ndarray], rtol: float = 2e-5) -> list[str]:
    """Compare a captured block with an eager one in float64; returns the labels of its steps."""
    exact, _ = results(forward, inputs, np.float64, False)
    made, labels = results(forward, inputs, np.float32, True)
    for got, wanted in zip(made, exact, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * max(np.abs(wanted).max(), 1))
    return labels


def whole(labels: list[str]) -> bool:
    return any(FORWARD in t for t in labels) and any(t.startswith(BACKWARD) for t in labels)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "activation", [F.relu6, F.relu, F.hardtanh, lambda x: x], ids=["relu6", "relu", "hardtanh", "none"]
)
def test_a_block_is_two_ops(activation: Any, stride: int) -> None:
    labels = check(block(activation, stride), arrays(3, 32, (14, 13)))
    assert whole(labels)


@pytest.mark.parametrize(
    ("images", "channels", "size"),
    [(2, 16, (9, 9)), (1, 37, (17, 5)), (40, 16, (3, 3)), (2, 100, (30, 31)), (5, 24, (1, 8)), (1, 16, (64, 2))],
    ids=str,
)
@pytest.mark.parametrize("stride", [1, 2])
def test_sizes(images: int, channels: int, size: tuple[int, int], stride: int) -> None:
    assert whole(check(block(F.relu6, stride), arrays(images, channels, size), 1e-4))


def test_what_is_read_is_normalised_before_it_is_padded() -> None:
    """Zeros beyond the border are zeros of the activation's result, not of what is normalised."""
    inputs = arrays(2, 16, (6, 6), offset=3.0)
    inputs[3] += 5  # an activation of zero would be far from zero
    check(block(F.relu), inputs)


@pytest.mark.parametrize("offset", [10.0, 1000.0])
def test_moments_keep_their_digits(offset: float) -> None:
    def forward(x: wf.Tensor, w: wf.Tensor, *_: wf.Tensor) -> wf.Tensor:
        y = F.conv2d(x, w, None, 1, 0, groups=x.shape[1])
        return F.batch_norm(y, None, None, training=True)

    x, w = arrays(2, 16, (40, 40), offset)[:2]
    w = np.abs(w)
    exact = results(forward, [x, w], np.float64, False)[0][0]
    made, labels = results(forward, [x, w], np.float32, True)
    np.testing.assert_allclose(made[0], exact, atol=2e-6 * (1 + offset))
    assert any("moments" in t for t in labels)


def test_no_statistics_no_moments() -> None:
    labels = check(block(F.relu6, training=False), arrays(2, 16, (12, 12)))
    assert not any("moments" in t for t in labels)
    assert any(t.startswith(BACKWARD) for t in labels)
    assert any("relu6+depthwise convolution" in t for t in labels)


def test_what_others_read_is_stored() -> None:
    plain = block()

    def forward(x: wf.Tensor, w: wf.Tensor, *norms: wf.Tensor) -> wf.Tensor:
        h = F.relu6(F.batch_norm(x, None, None, norms[0], norms[1], training=True))
        return plain(h, w, *norms) + F.conv2d(h, w, None, 1, 1, groups=x.shape[1]) + h

    check(forward, arrays(2, 16, (10, 10)))


def test_two_readers_of_one_result() -> None:
    """The gradient of the result is a sum; the convolution's gradients are still one op."""

    def forward(x: wf.Tensor, w: wf.Tensor, *norms: wf.Tensor) -> wf.Tensor:
        y = block()(x, w, *norms)
        return y * F.sigmoid(y)

    assert whole(check(forward, arrays(2, 16, (10, 10))))


def test_dear_functions_are_computed_once() -> None:
    """A tile reads a number several times: what is dearer than memory is stored as before."""
    labels = check(block(F.silu), arrays(2, 16, (10, 10)))
    assert not any("silu" in t and "depthwise" in t or "exp" in t and "depthwise" in t for t in labels)


def test_a_weight_gradient_alone_is_not_fused() -> None:
    """Without a gradient of the image that of the weight is computed alone, from the stored activation."""

    def run(x: wf.Tensor, w: wf.Tensor) -> wf.Tensor:
        w = w.detach().requires_grad_()
        y = F.conv2d(F.relu6(x * 2.0), w, None, 1, 1, groups=16)
        return wf.grad((y * y).sum(), [w])[0]

    x, w, *_ = arrays(2, 16, (10, 10))
    wanted = run(wf.asarray(x.astype(np.float64)), wf.asarray(w.astype(np.float64))).numpy()
    f = wf.function(run)
    np.testing.assert_allclose(f(wf.asarray(x), wf.asarray(w)).numpy(), wanted, rtol=1e-5, atol=1e-4)
    assert not any(st.label.startswith(BACKWARD) for st in f._latest().compiled.program.steps)


def test_nan_is_shown() -> None:
    inputs = arrays(2, 16, (10, 10))
    inputs[0] = inputs[0].copy()
    inputs[0][1, 3, 4, 5] = np.nan
    made, labels = results(block(), inputs, np.float32, True)
    assert whole(labels)
    assert np.isnan(made[0][:, 3]).all() and not np.isnan(made[0][:, :3]).any()
    for got, wanted in zip(made, results(block(), inputs, np.float32, False)[0], strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    inputs = arrays(3, 48, (28, 28))
    before = threads.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            threads.set_num_threads(count)
            found.append(results(block(), inputs, np.float32, True)[0])
    finally:
        threads.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_that_trains() -> None:
    """Weights, moments and running statistics of a few steps agree with eager ones."""

    class Net(wf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand = wf.nn.Conv2d(3, 24, 1, bias=False)
            self.norms = wf.nn.ModuleList([wf.nn.BatchNorm2d(24), wf.nn.BatchNorm2d(24)])
            self.deep = wf.nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False)
            self.last = wf.nn.Linear(24, 5)

        def forward(self, x: wf.Tensor) -> wf.Tensor:
            h = F.relu6(self.norms[0](self.expand(x)))
            return self.last(F.relu6(self.norms[1](self.deep(h))).mean((2, 3)))

    rng = np.random.default_rng(0)
    x, target = wf.asarray(rng.standard_normal((6, 3, 12, 12), np.float32)), wf.asarray(rng.integers(0, 5, 6))

    def train(capture: bool) -> tuple[list[float], dict[str, np.ndarray]]:
        wf.manual_seed(0)
        net = Net()
        optimiser = wf.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: wf.Tensor, target: wf.Tensor) -> wf.Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(net(x), target)
            loss.backward()
            optimiser.step()
            return loss

        run = wf.function(step) if capture else step
        losses = [float(run(x, target)) for _ in range(4)]
        if capture:
            assert whole([st.label for st in run._latest().compiled.program.steps])
        return losses, {k: v.numpy() for k, v in net.state_dict().items()}

    states = [train(capture) for capture in (False, True)]
    np.testing.assert_allclose(states[0][0], states[1][0], rtol=1e-5)
    for name, value in states[0][1].items():
        np.testing.assert_allclose(states[1][1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("activation", [F.hardswish, F.leaky_relu, F.elu], ids=["hardswish", "leaky_relu", "elu"])
def test_other_activations(activation: Any) -> None:
    check(block(activation), arrays(2, 24, (11, 10)))


def test_gradients_of_gradients() -> None:
    """A penalty on the image's gradient: its ops are convolutions of one another again."""

    def forward(x: wf.Tensor, w: wf.Tensor, *norms: wf.Tensor) -> wf.Tensor:
        y = block(F.relu6)(x, w, *norms)
        (g,) = wf.grad((y * y * y).sum(), [x], create_graph=True)
        return g * g

    check(forward, arrays(2, 16, (8, 8)), 5e-3)  # eagerly, the shift's gradient is off by 1.4e-3


def test_a_weight_that_two_convolutions_share() -> None:
    def forward(x: wf.Tensor, w: wf.Tensor, *norms: wf.Tensor) -> wf.Tensor:
        h = F.relu6(F.batch_norm(x, None, None, norms[0], norms[1], training=True))
        other = F.relu6(x * 2.0 - 1.0)
        return sum(F.conv2d(v, w, None, 1, 1, groups=16) for v in (h, other))

    check(forward, arrays(2, 16, (10, 10))[:4])
