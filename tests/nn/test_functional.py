"""Neural-network functions beyond their records: the namespace, running statistics, dropout, embedding, vmap and capture."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F
from weft.ops.core.registry import table

# The namespace --------------------------------------------------------------------------------------------------------


def test_every_model_function_of_the_table_is_in_the_namespace():
    assert {op.name for op in table.values() if op.namespace == "nn"} <= set(F.__all__)
    internal = {op.name for op in table.values() if op.namespace in ("internal", "random")}
    assert internal & set(F.__all__) == {"convolution"}  # the function over one to three axes, not the op on a Window
    assert "window" not in inspect.signature(F.convolution).parameters


def test_what_is_listed_is_there_documented_and_callable():
    for name in F.__all__:
        function = getattr(F, name)
        assert callable(function) and function.__doc__, name


def test_a_misspelled_function_gets_a_hint():
    with pytest.raises(AttributeError, match="Did you mean 'softmax'"):
        F.softmx


def test_numpy_words_everywhere():
    import inspect

    for name in F.__all__:
        words = set(inspect.signature(getattr(F, name)).parameters)
        assert not words & {"dim", "keepdim"}, name


# Activations ----------------------------------------------------------------------------------------------------------


ACTIVATIONS = [
    F.relu, F.relu6, F.leaky_relu, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh,
    F.softplus, F.softsign, F.tanhshrink, F.logsigmoid, F.sigmoid, F.tanh,
]  # fmt: skip


@pytest.mark.parametrize("function", ACTIVATIONS, ids=lambda f: f.__name__)
def test_activations_are_finite_everywhere_with_finite_gradients(function):
    x = wf.tensor([-1e30, -200.0, -30.0, -1.0, 0.0, 1e-30, 1.0, 30.0, 200.0], requires_grad=True)
    out = function(x)
    (g,) = wf.grad(out.sum(), x)
    assert np.isfinite(out.detach().numpy()).all() and np.isfinite(g.numpy()).all()
    assert abs(g.numpy()).max() < 2


@pytest.mark.parametrize("function", ACTIVATIONS, ids=lambda f: f.__name__)
def test_large_arrays_take_native_code_with_the_same_result(function):
    x = wf.randn(40_000, generator=wf.Generator(0)).requires_grad_()
    out = function(x)
    (g,) = wf.grad(out.sum(), x)
    part = x.detach()[:100].requires_grad_()
    small = function(part)
    (h,) = wf.grad(small.sum(), part)
    np.testing.assert_allclose(out.detach().numpy()[:100], small.detach().numpy(), rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(g.numpy()[:100], h.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [wf.float16, wf.bfloat16])
def test_half_precision_keeps_its_dtype(dtype):
    x = wf.randn(3, 4, generator=wf.Generator(0)).astype(dtype)
    for function in (*ACTIVATIONS, F.softmax, F.log_softmax, lambda t: F.layer_norm(t, 4), lambda t: F.rms_norm(t, 4)):
        out = function(x)
        assert out.dtype == dtype
        wide = function(x.astype(wf.float32)).numpy()
        np.testing.assert_allclose(out.astype(wf.float32).numpy(), wide, rtol=2e-2, atol=2e-2)


def test_settings_may_be_tensors_that_learn():
    x = wf.tensor([-2.0, 3.0])
    for function in (F.leaky_relu, F.elu, F.celu):
        slope = wf.tensor(0.5, requires_grad=True)
        function(x, slope).sum().backward()
        assert slope.grad.item() != 0
    assert F.relu(wf.tensor([-1, 2])).dtype == wf.int64


# Normalisation --------------------------------------------------------------------------------------------------------


def test_batch_norm_moves_its_running_statistics_and_uses_them_later():
    x = wf.randn(16, 3, 4, generator=wf.Generator(0)) * 2 + 5
    mean, var = wf.zeros(3), wf.ones(3)
    out = F.batch_norm(x, mean, var, training=True, momentum=0.25)
    batch = x.numpy().transpose(1, 0, 2).reshape(3, -1)
    np.testing.assert_allclose(mean.numpy(), 0.25 * batch.mean(1), rtol=1e-5)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * batch.var(1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(out.mean((0, 2)).numpy(), 0, atol=1e-5)
    before = mean.tolist(), var.tolist()
    frozen = F.batch_norm(x, mean, var)
    assert (mean.tolist(), var.tolist()) == before
    np.testing.assert_allclose(
        frozen.numpy(), (x.numpy() - mean.numpy()[:, None]) / np.sqrt(var.numpy()[:, None] + 1e-5), rtol=1e-5, atol=1e-5
    )


def test_running_statistics_are_not_part_of_the_tape():
    x = wf.randn(8, 3).requires_grad_()
    mean, var = wf.zeros(3), wf.ones(3)
    F.batch_norm(x, mean, var, training=True).sum().backward()
    assert not mean.requires_grad and not var.requires_grad
    F.batch_norm(x, mean, var, training=True).sum().backward()  # a second step after the in-place update


def test_instance_norm_running_statistics():
    x = wf.randn(4, 3, 50, generator=wf.Generator(0)) + 2
    mean, var = wf.zeros(3), wf.ones(3)
    F.instance_norm(x, mean, var, momentum=1.0)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean((0, 2)), rtol=1e-4)
    np.testing.assert_allclose(var.numpy(), x.numpy().var(2, ddof=1).mean(0), rtol=1e-3)


def test_large_layer_norm_matches_small():
    g = wf.Generator(0)
    x, w, b = wf.randn(300, 257, generator=g), wf.randn(257, generator=g), wf.randn(257, generator=g)
    leaves = [t.requires_grad_() for t in (x, w, b)]
    weights = wf.randn(300, 257, generator=g)
    wide = [t.detach().astype(wf.float64).requires_grad_() for t in leaves]
    for function in (lambda x, w, b: F.layer_norm(x, 257, w, b), lambda x, w, b: F.rms_norm(x, 257, w, 1e-5) + b):
        out, exact = function(*leaves), function(*wide)
        np.testing.assert_allclose(out.detach().numpy(), exact.detach().numpy(), rtol=2e-4, atol=2e-5)
        for a, e in zip(
            wf.grad((out * weights).sum(), leaves),
            wf.grad((exact * weights.astype(wf.float64)).sum(), wide),
            strict=True,
        ):
            np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-3, atol=5e-4)


NORMS = {
    "layer": (lambda x, w, b: F.layer_norm(x, 4, w, b), (5, 4)),
    "rms": (lambda x, w, b: F.rms_norm(x, 4, w, 1e-5) + b, (5, 4)),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), (5, 4, 3)),
    "batch": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (5, 4, 3)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shared", [True, False])
def test_norms_under_vmap_with_gradients_per_example(name, shared):
    function, shape = NORMS[name]
    g = wf.Generator(0)
    x = wf.randn(3, *shape, dtype=wf.float64, generator=g)
    w, b = (wf.randn(*(() if shared else (3,)), 4, dtype=wf.float64, generator=g) for _ in range(2))

    def loss(x, w, b):
        return (function(x, w, b) ** 3).sum()

    axes = (0, None, None) if shared else 0
    grads = wf.vmap(lambda *args: wf.grad_fn(loss, (0, 1, 2))(*args), in_axes=axes)(x, w, b)
    for i in range(3):
        rest = (w, b) if shared else (w[i], b[i])
        for got, expected in zip(grads, wf.grad_fn(loss, (0, 1, 2))(x[i], *rest), strict=True):
            np.testing.assert_allclose(got[i].numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)


# Dropout --------------------------------------------------------------------------------------------------------------


def test_dropout_drops_scales_and_passes_gradients_through_the_same_mask():
    x = wf.ones(100, 100, requires_grad=True)
    out = F.dropout(x, 0.25, generator=wf.Generator(0))
    np.testing.assert_allclose(np.unique(out.detach().numpy()), [0, 4 / 3], rtol=1e-6)
    assert abs((out.detach().numpy() == 0).mean() - 0.25) < 0.02
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())


def test_dropout_does_nothing_in_evaluation_or_with_probability_zero():
    x = wf.ones(3)
    assert F.dropout(x, 0.5, False) is x and F.dropout(x, 0.0) is x
    assert F.dropout(x, 1.0).tolist() == [0.0, 0.0, 0.0]


def test_an_interleaved_draw_does_not_change_the_gradient():
    x = wf.ones(50, requires_grad=True)
    wf.manual_seed(0)
    out = F.dropout(x, 0.5)
    wf.rand(3)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())


@pytest.mark.parametrize(
    ("function", "shape"), [(F.dropout1d, (8, 9, 5)), (F.dropout2d, (8, 9, 2, 3)), (F.dropout3d, (8, 9, 2, 2, 2))]
)
def test_channel_dropout_drops_whole_channels(function, shape):
    out = function(wf.ones(shape), 0.5, generator=wf.Generator(0)).numpy().reshape(8, 9, -1)
    assert ((out == out[:, :, :1]).all()) and 10 < (out[:, :, 0] == 0).sum() < 62
    assert function(wf.ones(shape[1:]), 0.5).shape == shape[1:]


def test_alpha_dropout_keeps_mean_and_variance():
    x = wf.randn(200_000, generator=wf.Generator(0))
    out = F.alpha_dropout(x, 0.3, generator=wf.Generator(1)).numpy()
    assert abs(out.mean()) < 0.01 and abs(out.var() - 1) < 0.02
    assert F.feature_alpha_dropout(x.reshape(100, 20, 100), 0.3).shape == (100, 20, 100)
    assert F.alpha_dropout(x[:4], 1.0).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: F.dropout(wf.ones(2), 1.5), ValueError, "dropout: p must be between 0 and 1"),
        (lambda: F.dropout(wf.ones(2), -0.1), ValueError, "dropout: p must be between 0 and 1"),
        (lambda: F.dropout(wf.tensor([1, 2])), TypeError, "dropout: expected a floating tensor"),
        (lambda: F.dropout2d(wf.ones(2, 3)), ValueError, "dropout2d: expected shape"),
        (lambda: F.gumbel_softmax(wf.ones(2), 0), ValueError, "tau must be positive"),
    ],
)
def test_bad_arguments_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()


# Softmax and vectors --------------------------------------------------------------------------------------------------


def test_softmax_of_masked_rows():
    x = wf.tensor([[0.0, -wf.inf], [-wf.inf, -wf.inf]], requires_grad=True)
    out = F.softmax(x)
    assert out.detach().numpy()[0].tolist() == [1.0, 0.0] and np.isnan(out.detach().numpy()[1]).all()


def test_gumbel_softmax_samples_follow_the_logits():
    logits = wf.tensor([0.7, 0.2, 0.1]).log().expand(20_000, 3)
    g = wf.Generator(0)
    hard = F.gumbel_softmax(logits, hard=True, generator=g)
    assert set(np.unique(hard.numpy()).tolist()) <= {0.0, 1.0} or abs(hard.numpy().sum(-1) - 1).max() < 1e-6
    np.testing.assert_allclose(hard.mean(0).numpy(), [0.7, 0.2, 0.1], atol=0.015)
    x = wf.zeros(2, 3, requires_grad=True)
    (F.gumbel_softmax(x, hard=True, generator=g) * wf.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert np.abs(x.grad.numpy()).sum() > 0


def test_lengths_have_zero_gradients_at_zero():
    x = wf.zeros(2, 3, requires_grad=True)
    (F.normalize(x).sum() + F.cosine_similarity(x, wf.ones(2, 3)).sum()).backward()
    assert np.isfinite(x.grad.numpy()).all()


# Embedding ------------------------------------------------------------------------------------------------------------


def test_embedding_gradients_are_dense_unless_asked_to_stay_sparse():
    indices = wf.tensor([[1, 3], [1, 0]])
    weight = wf.randn(5, 2, requires_grad=True)
    F.embedding(indices, weight).sum().backward()
    assert isinstance(weight.grad, wf.Tensor) and weight.grad.tolist() == [[1, 1], [2, 2], [0, 0], [1, 1], [0, 0]]
    dense, weight.grad = weight.grad, None
    F.embedding(indices, weight, sparse=True).sum().backward()
    F.embedding(indices, weight, sparse=True).sum().backward()
    assert isinstance(weight.grad, wf.RowSparse) and weight.grad.values.shape == (8, 2)
    np.testing.assert_array_equal(weight.grad.to_dense().numpy(), 2 * dense.numpy())
    merged = weight.grad.coalesce()
    assert merged.indices.tolist() == [0, 1, 3] and merged.keep


def test_embedding_padding_row_gets_no_gradient():
    weight = wf.randn(4, 2, requires_grad=True)
    for padding in (1, -3):
        weight.grad = None
        F.embedding(wf.tensor([0, 1, 1, 3]), weight, padding).sum().backward()
        assert weight.grad.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]


def test_embedding_max_norm_shrinks_the_rows_that_are_used():
    weight = wf.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]], requires_grad=True)
    out = F.embedding(wf.tensor([0, 1, 0]), weight, max_norm=1.0)
    np.testing.assert_allclose(out.detach().numpy(), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-5)
    np.testing.assert_allclose(weight.detach().numpy(), [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], rtol=1e-5)
    out.sum().backward()
    assert weight.grad.tolist() == [[2, 2], [1, 1], [0, 0]]


def test_embedding_under_vmap():
    weight = wf.randn(3, 4, 2, generator=wf.Generator(0))
    indices = wf.tensor([[0, 1], [3, 3], [2, 0]])
    mapped = wf.vmap(lambda i, w: F.embedding(i, w))(indices, weight)
    np.testing.assert_array_equal(mapped.numpy(), np.stack([weight.numpy()[k][indices.numpy()[k]] for k in range(3)]))
    shared = wf.vmap(lambda i: F.embedding(i, weight[0]))(indices)
    np.testing.assert_array_equal(shared.numpy(), weight.numpy()[0][indices.numpy()])


# Capture --------------------------------------------------------------------------------------------------------------


def _network(x, target, parameters, running):
    w1, gain, shift, w2, table = parameters
    h = F.linear(x, w1)
    h = F.batch_norm(h, *running, gain, shift, True)
    h = F.dropout(F.gelu(h), 0.3)
    h = F.layer_norm(h + F.embedding(target, table), h.shape[-1])
    a = F.scaled_dot_product_attention(h[None], h[None], h[None], dropout_p=0.2)[0]
    return F.cross_entropy(F.linear(F.silu(a), w2), target, label_smoothing=0.1)


def test_a_captured_training_step_equals_the_eager_one():
    results = []
    for wrap in (lambda f: f, wf.function):
        g = wf.Generator(0)
        shapes = ((8, 6), (8,), (8,), (4, 8), (4, 8))
        parameters = [(wf.randn(s, generator=g) * 0.5).requires_grad_() for s in shapes]
        running = [wf.zeros(8), wf.ones(8)]
        x, target = wf.randn(5, 6, generator=g), wf.randint(0, 4, (5,), generator=g)

        def step(x, target, parameters=parameters, running=running):
            loss = _network(x, target, parameters, running)
            grads = wf.grad(loss, parameters)
            with wf.no_grad():
                for p, d in zip(parameters, grads, strict=True):
                    p -= d * 0.1
            return loss

        wf.manual_seed(7)
        run = wrap(step)
        losses = [run(x, target).item() for _ in range(4)]
        results.append((losses, [t.detach().numpy().copy() for t in (*parameters, *running)]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    assert len(set(results[0][0])) == 4 and all(math.isfinite(v) for v in results[0][0])
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_few_functions_are_methods_too():
    x = wf.tensor([[-1.0, 2.0], [0.0, 3.0]])
    assert x.relu().tolist() == [[0.0, 2.0], [0.0, 3.0]]
    np.testing.assert_array_equal(x.softmax(0).numpy(), F.softmax(x, 0).numpy())
    np.testing.assert_array_equal(x.log_softmax(-1).numpy(), F.log_softmax(x).numpy())
