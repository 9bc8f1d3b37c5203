"""autocast: which ops compute in what, gradients, nesting."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft as wf
from weft.ops.core.registry import table


def test_products_are_short_and_sums_are_not():
    a = wf.ones(4, 4)
    with wf.autocast(wf.bfloat16):
        product = a @ a
        assert product.dtype == wf.bfloat16
        assert product.sum().dtype == wf.float32 and wf.exp(product).dtype == wf.float32
        assert (product * 2).dtype == wf.bfloat16 and (product + a).dtype == wf.float32
        assert (a * 2).dtype == wf.float32
    assert (a @ a).dtype == wf.float32


def test_float16_and_other_dtypes():
    a = wf.ones(2, 2)
    with wf.autocast(wf.float16):
        assert (a @ a).dtype == wf.float16
        d = wf.ones(2, 2, dtype=wf.float64)
        assert (d @ d).dtype == wf.float64  # double precision was asked for
        i = wf.ones(2, 2, dtype=wf.int64)
        assert (i @ i).dtype == wf.int64
        z = wf.ones(2, 2, dtype=wf.complex64)
        assert (z @ z).dtype == wf.complex64
    with pytest.raises(TypeError, match="autocast: expected bfloat16 or float16. Got float32"):
        wf.autocast(wf.float32)


def test_nesting_the_innermost_decides():
    a = wf.ones(2, 2)
    with wf.autocast(wf.bfloat16):
        with wf.autocast(enabled=False):
            assert (a @ a).dtype == wf.float32 and not wf.is_autocast_enabled()
            with wf.autocast(wf.float16):
                assert (a @ a).dtype == wf.float16
        assert (a @ a).dtype == wf.bfloat16 and wf.is_autocast_enabled()
    assert not wf.is_autocast_enabled()


def test_as_decorator():
    @wf.autocast(wf.bfloat16)
    def f(a):
        return a @ a

    assert f(wf.ones(2, 2)).dtype == wf.bfloat16 and f.__name__ == "f"


def test_gradients_arrive_in_the_parameters_dtype():
    rng = np.random.default_rng(0)
    w = wf.asarray(rng.standard_normal((8, 8)).astype(np.float32)).requires_grad_()
    x = wf.asarray(rng.standard_normal((4, 8)).astype(np.float32))

    def loss():
        return ((wf.tanh(x @ w) @ w) ** 2).mean()

    loss().backward()
    exact = w.grad.numpy().copy()
    w.grad = None
    with wf.autocast():
        value = loss()
    assert value.dtype == wf.float32
    value.backward()
    assert w.grad.dtype == wf.float32
    np.testing.assert_allclose(w.grad.numpy(), exact, rtol=0.1, atol=0.02)
    w.grad = None
    with wf.autocast():
        loss().backward()
    np.testing.assert_allclose(w.grad.numpy(), exact, rtol=0.1, atol=0.02)


def test_training_converges():
    rng = np.random.default_rng(1)
    x = wf.asarray(rng.standard_normal((32, 4)).astype(np.float32))
    y = x @ wf.asarray(rng.standard_normal((4, 1)).astype(np.float32))
    w = wf.zeros(4, 1, requires_grad=True)
    losses = []
    for _ in range(60):
        w.grad = None
        with wf.autocast(wf.bfloat16):
            loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        with wf.no_grad():
            w -= 0.1 * w.grad
    assert losses[-1] < 1e-2 * losses[0]


def test_other_threads_are_not_concerned():
    seen = []
    with wf.autocast():
        t = threading.Thread(target=lambda: seen.append((wf.ones(2, 2) @ wf.ones(2, 2)).dtype))
        t.start()
        t.join(10)
    assert seen == [wf.float32]


def test_records_declare_the_precision_of_their_op():
    def precisions(*names):
        return {table[name].autocast for name in names}

    assert precisions("matmul", "convolution_backward_weight", "attention_forward", "lstm_sequence") == {"low"}
    assert precisions("layer_norm_forward", "reduce_sum", "log_softmax", "exp", "linear_recurrence") == {"float32"}
    kept = ("add", "relu", "reshape", "expand_dims", "logical_and", "concat_axis", "max_pool", "random_normal")
    assert precisions(*kept) == {None}


def test_model_functions():
    from weft.nn import functional as F

    x = wf.ones(2, 3, 8, 8)
    w = wf.ones(4, 3, 3, 3)
    with wf.autocast():
        assert F.conv2d(x, w).dtype == wf.bfloat16
        assert F.relu(F.conv2d(x, w)).dtype == wf.bfloat16
        assert F.softmax(wf.ones(2, 3) @ wf.ones(3, 3), axis=-1).dtype == wf.float32
        loss = F.cross_entropy(wf.ones(2, 3) @ wf.ones(3, 3), wf.tensor([0, 1]))
        assert loss.dtype == wf.float32


def test_with_checkpoint_and_anomaly():
    w = wf.ones(3, 3, requires_grad=True)
    with wf.detect_anomaly(), wf.autocast():
        out = wf.checkpoint(lambda v: (v @ w).sin(), wf.ones(2, 3))
    out.astype(wf.float32).sum().backward()
    assert w.grad.dtype == wf.float32


def _layers(bias):
    nn, s = wf.nn, wf.ones
    attention = nn.MultiheadAttention(4, 2, bias=bias, batch_first=True)
    return {
        "linear": (nn.Linear(4, 3, bias=bias), (s(2, 4),)),
        "linear of a sequence": (nn.Linear(4, 3, bias=bias), (s(2, 5, 4),)),
        "bilinear": (nn.Bilinear(4, 4, 3, bias=bias), (s(2, 4), s(2, 4))),
        "conv": (nn.Conv2d(4, 3, 3, bias=bias), (s(2, 4, 5, 5),)),
        "transposed conv": (nn.ConvTranspose2d(4, 3, 3, bias=bias), (s(2, 4, 5, 5),)),
        "attention": (attention, (s(2, 5, 4),) * 3),
        "cross-attention": (attention, (s(2, 5, 4), s(2, 6, 4), s(2, 6, 4))),
        "lstm": (nn.LSTM(4, 3, bias=bias), (s(5, 2, 4),)),
        "gru": (nn.GRU(4, 3, bias=bias), (s(5, 2, 4),)),
        "rnn": (nn.RNN(4, 3, bias=bias), (s(5, 2, 4),)),
        "rnn cell": (nn.RNNCell(4, 3, bias=bias), (s(2, 4),)),
    }


@pytest.mark.parametrize("name", _layers(True))
def test_a_bias_does_not_decide_the_dtype_of_a_layer(name):
    """In PyTorch, too, `Linear` with and without bias returns the short dtype."""
    for bias in (True, False):
        layer, inputs = _layers(bias)[name]

        def run(*xs, layer=layer):
            with wf.autocast(wf.bfloat16):
                out = layer(*xs)
            return out[0] if isinstance(out, tuple) else out

        exact = layer(*inputs)
        exact = exact[0] if isinstance(exact, tuple) else exact
        for fn in (run, wf.function(run)):
            out = fn(*inputs)
            assert out.dtype == wf.bfloat16
            np.testing.assert_allclose(out.detach().float().numpy(), exact.detach().numpy(), rtol=0.05, atol=0.03)
    out.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {wf.float32}


def test_a_bias_in_another_dtype_promotes_outside_autocast():
    x, w, b = wf.ones(2, 4, dtype=wf.bfloat16), wf.ones(3, 4, dtype=wf.bfloat16), wf.ones(3)
    assert wf.nn.functional.linear(x, w, b).dtype == wf.float32
    with wf.autocast(enabled=False):
        assert wf.nn.functional.linear(x, w, b).dtype == wf.float32
