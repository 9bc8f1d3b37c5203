"""Recurrent layers beyond the op table: with and without oneDNN, lengths, half precision, memory, batching, second order."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.backends.onednn import kernels, library
from weft.ops.nn.recurrent.functions import GATES, gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from weft.ops.nn.recurrent.primitives import gru_sequence, lstm_sequence, lstm_sequence_backward, rnn_sequence

NETWORKS = {"lstm": lstm, "gru": gru, "rnn": rnn}


@pytest.fixture(params=["onednn", "plain"])
def backend(request):
    """Runs a test with oneDNN's kernels and without them."""
    if request.param == "plain":
        with kernels.disabled():
            yield "plain"
        return
    if not library.available():
        pytest.skip("oneDNN is not installed")
    kernels.register()
    yield "onednn"


def make_weights(op, inputs, hidden, layers=1, directions=1, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for layer in range(layers):
        for _ in range(directions):
            n = GATES[op] * hidden
            for shape in ((n, hidden * directions if layer else inputs), (n, hidden), (n,), (n,)):
                found.append(wf.asarray((rng.uniform(-1, 1, shape) / np.sqrt(hidden)).astype(dtype)).requires_grad_())
    return found


@pytest.mark.parametrize("op", NETWORKS)
def test_large_layers_agree_with_float64(backend, op):
    results = []
    for dtype in (np.float32, np.float64):
        x = wf.asarray(np.random.default_rng(1).standard_normal((5, 16, 40)).astype(dtype)).requires_grad_()
        weights = make_weights(op, 40, 64, 2, 2, dtype)
        out = NETWORKS[op](x, None, weights, num_layers=2, bidirectional=True)
        sum((o * o).sum() for o in out).backward()
        results.append([o.detach().numpy() for o in out] + [x.grad.numpy()] + [w.grad.numpy() for w in weights])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("op", NETWORKS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padded_sequences_are_as_good_as_short_ones(op, bidirectional):
    directions = 2 if bidirectional else 1
    weights = make_weights(op, 3, 4, 2, directions, np.float64)
    lengths = [5, 2, 3]
    x = np.random.default_rng(0).standard_normal((5, 3, 3))
    options = {"num_layers": 2, "bidirectional": bidirectional}
    out = NETWORKS[op](wf.asarray(x), None, weights, lengths=wf.tensor(lengths), **options)
    for i, n in enumerate(lengths):
        alone = NETWORKS[op](wf.asarray(x[:n, i]), None, weights, **options)
        np.testing.assert_allclose(out[0].detach().numpy()[:n, i], alone[0].detach().numpy(), atol=1e-12)
        np.testing.assert_array_equal(out[0].detach().numpy()[n:, i], 0)
        for together, single in zip(out[1:], alone[1:], strict=True):
            np.testing.assert_allclose(together.detach().numpy()[:, i], single.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("op", NETWORKS)
def test_padding_gets_no_gradient(op):
    weights = make_weights(op, 3, 4, dtype=np.float64)
    x = wf.asarray(np.random.default_rng(0).standard_normal((4, 2, 3))).requires_grad_()
    out = NETWORKS[op](x, None, weights, lengths=[4, 1])
    sum((o * o).sum() for o in out).backward()
    assert np.abs(x.grad.numpy()[1:, 1]).max() == 0 and np.abs(x.grad.numpy()[0, 1]).max() > 0


@pytest.mark.parametrize("op", NETWORKS)
def test_cells_are_single_steps_of_the_layers(op):
    weights = make_weights(op, 3, 4, dtype=np.float64)
    x = wf.asarray(np.random.default_rng(0).standard_normal((3, 2, 3)))
    out = NETWORKS[op](x, None, weights)[0]
    cell = {"lstm": lstm_cell, "gru": gru_cell, "rnn": rnn_cell}[op]
    state = (wf.zeros(2, 4, dtype=wf.float64),) * 2 if op == "lstm" else wf.zeros(2, 4, dtype=wf.float64)
    for t in range(3):
        state = cell(x[t], state, *weights)
        h = state[0] if op == "lstm" else state
        np.testing.assert_allclose(h.detach().numpy(), out[t].detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("op", NETWORKS)
def test_the_tape_holds_one_node_per_layer_not_one_per_step(op):
    x = wf.zeros(200, 2, 3, requires_grad=True)
    out = NETWORKS[op](x, None, make_weights(op, 3, 4))[0]
    nodes, stack = set(), [out._node]
    while stack:
        node = stack.pop()
        if node is None or id(node) in nodes:
            continue
        nodes.add(id(node))
        stack.extend(getattr(node, "edges", None) or ([node.parent] if hasattr(node, "parent") else []))
    assert len(nodes) < 30


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_runs_in_float32_inside(dtype):
    kind = getattr(wf, dtype)
    weights = [w.detach().astype(kind) for w in make_weights("lstm", 3, 4)]
    x = wf.asarray(np.random.default_rng(0).standard_normal((3, 2, 3)).astype(np.float32)).astype(kind).requires_grad_()
    out = lstm(x, None, weights)
    assert all(o.dtype == kind for o in out)
    out[0].sum().backward()
    assert x.grad.dtype == kind


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_gradients_agree_with_the_composed_recurrence(reverse):
    rng = np.random.default_rng(0)
    gates, h0, c0, w = (
        wf.asarray(rng.standard_normal(s)).requires_grad_() for s in ((3, 2, 8), (2, 2), (2, 2), (8, 2))
    )

    def penalty():
        h, c, _ = lstm_sequence(gates, h0, c0, w, None, reverse)
        g = wf.grad((h * h + c).sum(), [gates, w], create_graph=True)
        return sum((x * x).sum() for x in g)

    analytic = wf.grad(penalty(), w)[0].numpy()
    step = 1e-6 * rng.standard_normal(w.shape)
    values = []
    for sign in (1, -1):
        w._data += sign * step
        values.append(penalty().item())
        w._data -= sign * step
    np.testing.assert_allclose((values[0] - values[1]) / 2, (analytic * step).sum(), rtol=1e-5)


def test_an_input_that_depends_on_another_counts_once_in_second_order():
    """The recurrence's own derivative must not run through what its inputs were computed from."""
    w = wf.asarray(np.random.default_rng(0).standard_normal((2, 2))).requires_grad_()
    x = wf.asarray(np.random.default_rng(1).standard_normal((3, 1, 2)))

    def loss(weight):
        gates = wf.matmul(x.reshape(3, 2), weight).reshape(3, 1, 2)  # the same weight twice
        return rnn_sequence(gates, wf.zeros(1, 2, dtype=wf.float64), weight, None, "tanh", False).sum()

    plain = wf.grad(loss(w), w)[0].numpy()
    linked = wf.grad(loss(w), w, create_graph=True)[0].detach().numpy()
    np.testing.assert_allclose(linked, plain, atol=1e-12)


def test_batching_rules_with_shared_and_with_separate_weights():
    rng = np.random.default_rng(0)
    gates, h0, c0, w = (rng.standard_normal(s) for s in ((3, 4, 2, 8), (3, 2, 2), (3, 2, 2), (3, 8, 2)))
    for axes in ((0, 0, 0, None, None), (0, None, 0, 0, None)):
        full = [t if a == 0 else t[0] for t, a in zip((gates, h0, c0, w), axes, strict=False)]
        got = lstm_sequence.op.batch(axes, [*map(wf.asarray, full), None], (False,))
        for i in range(3):
            one = [wf.asarray(t[i] if a == 0 else t) for t, a in zip(full, axes, strict=False)]
            for together, single in zip(got, lstm_sequence(*one, None, False), strict=True):
                np.testing.assert_allclose(together.numpy()[i], single.numpy(), atol=1e-12)
    hidden = rnn_sequence.op.batch(
        (0, 0, None, None), [wf.asarray(gates[..., :2]), wf.asarray(h0), wf.asarray(w[0, :2]), None], ("tanh", True)
    )
    assert hidden.shape == (3, 4, 2, 2)
    g = gru_sequence.op.batch(
        (0, 0, None, None, None),
        [wf.asarray(gates[..., :6]), wf.asarray(h0), wf.asarray(w[0, :6]), None, None],
        (False,),
    )
    assert g[0].shape == (3, 4, 2, 2)
    outs = lstm_sequence(*[wf.asarray(t[0]) for t in (gates, h0, c0, w)], None, False)
    back = lstm_sequence_backward.op.batch(
        (0, None, None, None, None, None, None),
        [wf.asarray(rng.standard_normal((3, 4, 2, 2))), None, wf.asarray(c0[0]), wf.asarray(w[0]), outs[1], outs[2], None],
        (False,),
    )  # fmt: skip
    assert back[0].shape == (3, 4, 2, 8) and back[1].shape == (3, 2, 2)


def test_dropout_between_layers_only_while_training():
    weights = make_weights("lstm", 3, 8, 2)
    x = wf.ones(4, 2, 3)
    quiet = lstm(x, None, weights, num_layers=2, dropout=0.5)[0]
    noisy = lstm(x, None, weights, num_layers=2, dropout=0.5, training=True)[0]
    np.testing.assert_array_equal(quiet.detach().numpy(), lstm(x, None, weights, num_layers=2)[0].detach().numpy())
    assert np.abs(noisy.detach().numpy() - quiet.detach().numpy()).max() > 0
