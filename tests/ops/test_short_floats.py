"""float16 and bfloat16 are added up in float32, in every op of the table: values and gradients, eagerly and captured.

Two audits, both against the same op in float64 on the same rounded numbers. The first takes every sample of every record,
as it is and 150 times as large (numbers up to about 300, whose squares float16 cannot hold). The second takes long operands:
4096 terms and more, where a sum in 16 bits stands still or overflows.
"""

from __future__ import annotations

import inspect
import zlib

import numpy as np
import pytest

import weft as wf
from tests.ops.table_cases import for_every_sample, map_arrays, ops, outputs_of, samples_of
from weft import linalg
from weft.nn import functional as F
from weft.ops.core.registry import ACCUMULATE, table

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST = {"float16": 65504.0, "bfloat16": 3e38}
SMALLEST = {"float16": 2.0**-23, "bfloat16": 1e-7}  # float32 sums of numbers around 1 that cancel leave this much


def _assert_close(name, got, expected, dtype, units, share):
    """Within `units` of the last place, and `share` of one of the largest number there is; beyond the dtype's range, inf."""
    assert got.shape == expected.shape, name
    if not expected.size or expected.dtype.kind not in "fc":
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    short = got.dtype.name in EPS
    got, eps = got.astype(wide), EPS[dtype]
    with np.errstate(all="ignore"):
        held = np.isfinite(expected) & (np.abs(expected) < LARGEST[dtype] * (1 - eps) if short else True)
        scale = np.max(np.abs(expected), where=held, initial=0)
        room = units * eps * np.abs(expected) + share * eps * scale + SMALLEST[dtype]
        wrong = held & ~(np.abs(got - expected) <= room)
    assert not wrong.any(), (
        f"{name}: {got[wrong][:4]} for {expected[wrong][:4]} at {np.argwhere(wrong)[:4].tolist()}, "
        f"{wrong.sum()} of {wrong.size} wrong"
    )


def _results(function, arrays, dtype, short, wanted, captured=False):
    """Values of `function` and, with random gradients of these (numbers of the dtype `short`), gradients of the operands
    numbered `wanted`."""
    cast = [a.astype(getattr(wf, dtype)) if a.dtype.kind in "fV" else a for a in arrays]
    tensors = [wf.asarray(a.copy()) for a in cast]
    for i in wanted:
        tensors[i].requires_grad_()

    def run(*operands):
        outputs = [o for o in outputs_of(function(*operands)) if isinstance(o, wf.Tensor)]
        reached = [o for o in outputs if o.requires_grad]
        if not wanted or not reached:
            return outputs, []
        rng = np.random.default_rng(5)
        seeds = []
        for o in reached:
            seed = rng.standard_normal(o.shape)
            seed = seed + 1j * rng.standard_normal(o.shape) if o.is_complex() else seed.astype(getattr(wf, short))
            seeds.append(wf.asarray(np.asarray(seed).astype(o.dtype)))
        return outputs, list(wf.grad(reached, [operands[i] for i in wanted], seeds, allow_unused=True))

    outputs, gradients = (wf.function(run) if captured else run)(*tensors)
    return [o.detach().numpy() for o in outputs], [None if g is None else g.numpy() for g in gradients]


def _audit(name, function, arrays, dtype, wanted, captured, units, share, slack):
    rounded = [a.astype(getattr(wf, dtype)).astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    values, gradients = _results(function, rounded, "float64", dtype, wanted)
    got, found = _results(function, rounded, dtype, dtype, wanted, captured)
    for g, e in zip(got, values, strict=True):
        _assert_close(name, g, e, dtype, units, share)
    for i, g, e in zip(wanted, found, gradients, strict=False):
        assert (g is None) == (e is None)
        if g is not None:
            assert g.dtype.name == dtype or g.dtype.kind == "c", f"{name}: gradient {i} is {g.dtype}"
            _assert_close(f"{name}, gradient {i}", g, e, dtype, units * slack, share * slack)


# Every record -----------------------------------------------------------------------------------------------------------

# Rules that start from the op's own result see it rounded: 1 - tanh² of a number near 1 has few digits left.
FROM_ROUNDED_RESULTS = {
    "tanh": 32, "log_softmax": 4, "accumulate_logsumexp": 40, "cross_entropy_forward": 8, "attention_forward": 8,
    "scaled_dot_product_attention": 16, "cofactor": 8, "pseudo_inverse": 64, "svd_triple": 8, "qr_pair": 8, "solve": 8, "inv": 8,
    "cholesky": 4, "eigh_pair": 4, "rnn_sequence": 16,
}  # fmt: skip
# A recurrent cell is several ops, whose results are rounded one by one.
OF_PARTS = {"lstm": 16, "gru": 16, "rnn": 16, "lstm_cell": 16, "gru_cell": 16, "rnn_cell": 16}
# Numbers that are 150 times as large are out of the op's domain, or saturate what its rules start from.
NOT_ENLARGED = {
    "attention_backward", "attention_forward", "scaled_dot_product_attention", "cofactor", "quantile", "lstm", "gru", "rnn",
    "lstm_cell", "gru_cell", "rnn_cell", "rnn_sequence", "gru_sequence", "gru_sequence_backward", "adam_rows", "caught_up",
    "cross_entropy_backward", "reduce_prod", "binary_cross_entropy",
}  # fmt: skip


def _operands(op, sample):
    """(function, arrays, numbers of those that get a gradient): the sample as a function of its arrays."""
    arrays, leaves = [], []

    def collect(a):
        arrays.append(a)
        return a

    [map_arrays(a, collect) for a in (*sample.args, *sample.kwargs.values())]
    allowed = op.test.get("differentiable_inputs")
    if op.differentiable and not op.declared_nondifferentiable and not op.test.get("no_gradient"):
        leaves = [i for i, a in enumerate(arrays) if a.dtype.kind == "f" and (allowed is None or i in allowed)]

    def function(*tensors):
        rest = iter(tensors)
        args = [map_arrays(a, lambda _: next(rest)) for a in sample.args]
        return op.call(*args, **{k: map_arrays(v, lambda _: next(rest)) for k, v in sample.kwargs.items()})

    return function, arrays, leaves


def _audit_record(op, sample, dtype, captured, factor):
    function, arrays, leaves = _operands(op, sample)
    arrays = [np.asarray(a * factor) if a.dtype.kind == "f" else a for a in arrays]
    slack = FROM_ROUNDED_RESULTS.get(op.name, 2)
    loose = OF_PARTS.get(op.name, 1)
    _audit(f"{op.name}{sample}", function, arrays, dtype, leaves, captured, 1.5 * loose, 0.75 * loose, slack)


def _audited(op):
    return "random" not in op.effects and not op.name.startswith("random") and op.kind != "wide float"


@for_every_sample(_audited, dtype=EPS)
def test_a_record_in_short_floats_is_as_exact_as_they_are(op, sample, dtype):
    for factor in (1.0,) if op.name in NOT_ENLARGED else (1.0, 150.0):
        _audit_record(op, sample, dtype, False, factor)


def _widened(op):
    adds = op.accumulate in ("float32", "kernels") and op.expression is None
    return _audited(op) and adds and not op.composite and not op.test.get("data_dependent")


@pytest.mark.parametrize("op", ops(_widened))
def test_a_captured_record_in_short_floats_is_as_exact_as_they_are(op):
    sample = samples_of(op)[0]
    _audit_record(op, sample, "float16", True, 1.0 if op.name in NOT_ENLARGED else 150.0)


@pytest.mark.parametrize("op", ops())
def test_a_record_says_where_short_floats_are_added_up(op):
    assert op.accumulate in ACCUMULATE
    assert op.composite or op.accumulate != "parts"
    if op.alias is not None:
        assert op.accumulate == "exact", f"{op.name} returns views: they must share memory with what they are made of"


# Long operands ----------------------------------------------------------------------------------------------------------

LONG: dict[str, tuple] = {}


def long(name, function, *arrays, wanted=None, units=1.5, share=0.02, slack=2.0):
    leaves = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"] if wanted is None else wanted
    LONG[name] = (function, arrays, leaves, units, share, slack)


def _rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def _noise(name, *shape, low=-300.0, high=300.0):
    return _rng(name).uniform(low, high, shape)


def _small(name, *shape):
    return _noise(name, *shape, low=-1.0, high=1.0)


def _zeros(*shape):
    return np.zeros(shape, np.int64)


_N = 4096
long("sum", wf.sum, _noise("sum", 5000))
long("sum of rows", lambda x: wf.sum(x, axis=0), _noise("rows", 5000, 3))
long("mean", wf.mean, _noise("mean", 5000, low=200, high=300))
long("mean of an axis", lambda x: wf.mean(x, axis=1), _noise("mean1", 3, 5000, low=200))
long(
    "mean as float16 of float32", lambda x: wf.mean(x.astype(wf.float32), dtype=x.dtype), _noise("mean2", 5000, low=200)
)
long("prod", wf.prod, _noise("prod", _N, low=0.98, high=1.02), slack=4)
long("cumsum", lambda x: wf.cumsum(x, axis=0), _noise("cumsum", _N))
long("cumprod", lambda x: wf.cumprod(x, axis=0), _noise("cumprod", 512, low=0.98, high=1.02), slack=8)
long("logsumexp", wf.logsumexp, _noise("logsumexp", _N))
long("var", wf.var, _noise("var", _N))
long("std", wf.std, _noise("std", _N))
long("softmax", lambda x: F.softmax(x, 0), _noise("softmax", _N, low=-4, high=4))
long("log_softmax", lambda x: F.log_softmax(x, 0), _noise("log_softmax", _N, low=-4, high=4), slack=16)
long("norm", linalg.vector_norm, _noise("norm", _N))
long("norm 1", lambda x: linalg.vector_norm(x, ord=1), _noise("norm1", _N, low=-9, high=9))
long("norm 3", lambda x: linalg.vector_norm(x, ord=3), _noise("norm3", _N))
long("matrix norm", linalg.matrix_norm, _noise("matrix", 64, 80))
long("normalize", lambda x: F.normalize(x, axis=0), _noise("normalize", _N))
long(
    "cosine_similarity",
    lambda x, y: F.cosine_similarity(x, y, 0),
    _noise("cos1", _N, low=-100),
    _noise("cos2", _N, low=-100),
)
long("pairwise_distance", F.pairwise_distance, _noise("pair1", 2, _N), _noise("pair2", 2, _N))
long("vecdot", wf.vecdot, _noise("dot1", _N), _noise("dot2", _N, low=-3, high=3))
long("trace", linalg.trace, _noise("trace", 256, 256))
long("mse_loss", F.mse_loss, _noise("mse1", _N, low=100), _noise("mse2", _N, low=-100, high=50))
long("l1_loss", F.l1_loss, _noise("l1", _N), _noise("l2", _N))
long("huber_loss", F.huber_loss, _noise("h1", _N), _noise("h2", _N))
long("smooth_l1_loss", F.smooth_l1_loss, _noise("s1", _N), _noise("s2", _N))
long(
    "binary_cross_entropy", F.binary_cross_entropy, _noise("b1", _N, low=0.1, high=0.9), _noise("b2", _N, low=0, high=1)
)
long(
    "binary_cross_entropy_with_logits",
    F.binary_cross_entropy_with_logits,
    _noise("bl", _N),
    _noise("bt", _N, low=0, high=1),
)
long("kl_div", F.kl_div, _noise("k1", _N, low=-9, high=0), _noise("k2", _N, low=0.1, high=1))
long("poisson_nll_loss", lambda x, t: F.poisson_nll_loss(x, t, False), _noise("p1", _N, low=9), _noise("p2", _N, low=1))
long("gaussian_nll_loss", F.gaussian_nll_loss, _noise("g1", _N), _noise("g2", _N), _noise("g3", _N, low=1, high=9))
long("soft_margin_loss", F.soft_margin_loss, _noise("sm", _N), np.where(_noise("sg", _N) > 0, 1.0, -1.0))
long(
    "margin_ranking_loss",
    F.margin_ranking_loss,
    _noise("m1", _N),
    _noise("m2", _N),
    np.where(_noise("m3", _N) > 0, 1.0, -1.0),
)
long(
    "hinge_embedding_loss",
    F.hinge_embedding_loss,
    _noise("he", _N),
    np.where(_noise("hs", _N) > 0, 1.0, -1.0),
    wanted=[0],
)
long("triplet_margin_loss", F.triplet_margin_loss, _noise("t1", 64, 64), _noise("t2", 64, 64), _noise("t3", 64, 64))
long("cross_entropy", F.cross_entropy, _noise("ce", _N, 4), _rng("c").integers(0, 4, _N))
long(
    "cross_entropy of many classes", F.cross_entropy, _noise("cm", 4, _N, low=-4, high=4), _rng("d").integers(0, _N, 4)
)
long("nll_loss", F.nll_loss, _noise("nll", _N, 4, low=-300, high=0), _rng("e").integers(0, 4, _N))
long("layer_norm", lambda x, w, b: F.layer_norm(x, _N, w, b), _noise("ln", 2, _N), _small("lw", _N), _small("lb", _N))
long("rms_norm", lambda x, w: F.rms_norm(x, _N, w), _noise("rn", 2, _N), _small("rw", _N))
long("group_norm", lambda x: F.group_norm(x, 2), _noise("gn", 2, 4, 2048))
long("instance_norm", F.instance_norm, _noise("in", 2, 2, _N))
long("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), _noise("bn", _N, 2))
long("local_response_norm", lambda x: F.local_response_norm(x, 5), _noise("lrn", 2, 64, 8))
_many = _noise("many", _N, low=0, high=3)
long("index_add", lambda x, v: wf.index_add(x, wf.asarray(_zeros(_N)), v, axis=0), _noise("ia", 2), _many)
long("scatter_add", lambda x, v: wf.scatter_add(x, wf.asarray(_zeros(_N)), v, axis=0), _noise("sa", 2), _many)
long("take", lambda x: wf.take(x, wf.asarray(_zeros(_N)), axis=0), _noise("take", 3))
long("index", lambda x: x[wf.asarray(_zeros(_N))], _noise("index", 3))
long("gather", lambda x: wf.take_along_axis(x, wf.asarray(_zeros(_N)), axis=0), _noise("gather", 3))
long("repeat", lambda x: wf.repeat(x, _N), _noise("repeat", 3))
long("tile", lambda x: wf.tile(x, (_N,)), _noise("tile", 3))
long("broadcast", lambda x, y: x * y, _noise("bc", 3, low=-1, high=1), _noise("bd", _N, 3, low=-9, high=9))
long("embedding", lambda w: F.embedding(wf.asarray(_zeros(_N)), w), _noise("emb", 3, 2))
long("embedding_bag", lambda w: F.embedding_bag(wf.asarray(_zeros(2, _N)), w, mode="mean"), _noise("bag", 3, 2))
long("matmul", wf.matmul, _noise("a", 3, 8192), _noise("b", 8192, 2, low=-1, high=1))
long("matmul with many rows", wf.matmul, _noise("c", 8192, 3), _noise("d", 3, 2, low=-1, high=1))
long("linear", F.linear, _noise("x", 3, _N), _noise("w", 2, _N, low=-1, high=1), _noise("bias", 2), share=0.5)
long("einsum", lambda x, y: wf.einsum("ij,ij->j", x, y), _noise("e1", _N, 2), _noise("e2", _N, 2, low=-1, high=1))
long("conv1d", F.conv1d, _noise("x1", 2, 3, 2048), _noise("w1", 2, 3, 3, low=-1, high=1))
long("conv2d", F.conv2d, _noise("x2", 2, 16, 32, 32), _noise("w2", 4, 16, 16, 16, low=-1, high=1), _noise("b2", 4))
long("avg_pool", lambda x: F.avg_pool2d(x, 64), _noise("ap", 1, 2, 64, 64, low=200))
long("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, 1), _noise("aap", 1, 2, 64, 64, low=200))
long("adaptive_avg_pool of uneven parts", lambda x: F.adaptive_avg_pool1d(x, 3), _noise("aau", 1, 2, 5000, low=200))
long("lp_pool", lambda x: F.lp_pool1d(x, 2, 2048), _noise("lp", 1, 2, _N))
_peaks = np.where(np.arange(_N) % 7 == 3, 300.0, 0.0).reshape(1, 1, -1)
long("max_pool", lambda x: F.max_pool1d(x, 3, 1), _peaks + _small("mp", 1, 1, _N))
long("interpolate", lambda x: F.interpolate(x, (_N,), mode="linear"), _noise("ip", 1, 1, 2))
long("pad", lambda x: F.pad(x, (_N, _N), mode="replicate"), _noise("pad", 1, 1, 2))
long("unfold", lambda x: wf.sum(F.unfold(x, 16), axis=2), _noise("uf", 1, 1, 32, 32, low=-30, high=30))
_attended = (_small("q", 1, 2, 8), _small("k", 1, _N, 8), _noise("v", 1, _N, 8))
long("attention", F.scaled_dot_product_attention, *_attended, slack=16)
long("max of equal numbers", wf.max, np.full(_N, 300.0))
long("glu", lambda x: F.glu(x, 0), _noise("glu", 8, _N), slack=2)
long("prelu", F.prelu, _noise("prelu", 2, 1, _N), np.array([0.25]))
long("nanmean", wf.nanmean, _noise("nanmean", 5000, low=200))
long("nansum", wf.nansum, _noise("nansum", 5000))
long("nanvar", wf.nanvar, _noise("nanvar", _N))
long("nanstd", wf.nanstd, _noise("nanstd", _N))
long("nanquantile", lambda x: wf.nanquantile(x, 0.3), np.sort(_noise("nanq", 301)), wanted=[])
long("cov", wf.cov, _noise("cov", 2, _N, low=200))
long("corrcoef", wf.corrcoef, _noise("corrcoef", 2, _N, low=200), slack=16)
long("trapezoid", wf.trapezoid, _noise("trapezoid", _N))
long("cdist", wf.cdist, _noise("cd1", 2, _N), _noise("cd2", 2, _N))
long("dist", wf.dist, _noise("d1", _N), _noise("d2", _N))
long(
    "scatter_reduce",
    lambda x, v: wf.scatter_reduce(x, 0, wf.asarray(_zeros(_N)), v, "mean", include_self=False),
    _noise("sr", 2),
    _noise("srv", _N, low=200),
    wanted=[1],
)
long("norm of any order", lambda x: wf.norm(x, 3), _noise("norm4", _N))
long("addmm", wf.addmm, _noise("am1", 2, 2), _noise("am2", 2, _N), _noise("am3", _N, 2, low=-1, high=1))
long("dot", wf.dot, _noise("dd1", _N), _noise("dd2", _N, low=-3, high=3))


def _case(name, dtype, captured):
    function, arrays, leaves, units, share, slack = LONG[name]
    _audit(name, function, list(arrays), dtype, leaves, captured, units, share, slack)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("dtype", EPS)
def test_long_sums_of_short_floats_keep_their_digits(name, dtype):
    _case(name, dtype, False)


@pytest.mark.parametrize("name", LONG)
def test_captured_long_sums_of_short_floats_keep_their_digits(name):
    _case(name, list(EPS)[list(LONG).index(name) % 2], True)


# Composed functions, the tape, autocast ---------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [False, True])
def test_mean_of_float16_does_not_overflow_where_the_sum_does(captured):
    mean = wf.function(lambda x: wf.mean(x)) if captured else wf.mean
    assert mean(wf.full((5000,), 300.0, dtype=wf.float16)).item() == 300.0
    assert wf.mean(wf.full((5000,), 300.0, dtype=wf.float16), dtype=wf.float32).dtype == wf.float32


def test_rms_norm_of_bfloat16_adds_the_epsilon_of_float32():
    x = wf.full((4,), 1e-3, dtype=wf.bfloat16)
    assert abs(F.rms_norm(x, 4).astype(wf.float32).numpy()[0] - 1) < 0.1


def test_a_short_operand_beside_a_longer_one_is_not_squared_in_16_bits():
    x = wf.tensor([300.0], dtype=wf.float16).requires_grad_()
    (g,) = wf.grad(wf.atan2(x, wf.tensor([150.0])).sum(), [x])
    assert g.dtype == wf.float16
    np.testing.assert_allclose(g.astype(wf.float32).numpy(), [150 / (300**2 + 150**2)], rtol=1e-3)


def test_gradients_of_short_floats_are_short_also_through_composed_functions():
    for function in (
        F.normalize,
        wf.var,
        lambda x: F.mse_loss(x, x * 2),
        lambda x: wf.exp(x).sum(),
        lambda x: x.mean(),
    ):
        x = wf.ones(2, 3, dtype=wf.bfloat16).requires_grad_()
        y = function(x)
        assert y.dtype == wf.bfloat16
        assert wf.grad(y.sum(), [x])[0].dtype == wf.bfloat16


def test_second_derivatives_of_short_floats_exist():
    x = wf.tensor([0.5, -1.5], dtype=wf.float16).requires_grad_()
    (g,) = wf.grad(wf.sum(x**3), [x], create_graph=True)
    (h,) = wf.grad(g.sum(), [x])
    assert h.dtype == wf.float16
    np.testing.assert_allclose(h.numpy(), [3.0, -9.0])


def test_losses_under_autocast_stay_float32():
    x = wf.ones(4, 4).requires_grad_()
    with wf.autocast(wf.bfloat16):
        loss = F.mse_loss(x @ x, wf.zeros(4, 4))
        assert (x @ x).dtype == wf.bfloat16 and loss.dtype == wf.float32
    with wf.autocast(wf.bfloat16), wf.autocast(enabled=False):
        assert F.mse_loss(wf.ones(2, dtype=wf.bfloat16), wf.zeros(2, dtype=wf.bfloat16)).dtype == wf.bfloat16


def test_running_statistics_in_float16_move_as_in_float32():
    x = _noise("running", 64, 2, low=200, high=300)
    found = []
    for dtype in (wf.float64, wf.float16):
        mean, var = wf.zeros(2, dtype=dtype), wf.ones(2, dtype=dtype)
        data = wf.asarray(x.astype(np.float16).astype(dtype))
        for _ in range(3):
            F.batch_norm(data, mean, var, training=True)
        found.append((mean.numpy(), var.numpy(), F.batch_norm(data, mean, var).numpy()))
    for wide, short in zip(*found, strict=True):
        np.testing.assert_allclose(short.astype(np.float64), wide, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("mode", [lambda f: f, wf.function], ids=["eager", "captured"])
def test_a_python_number_beside_short_floats_is_not_rounded_before_it_is_used(mode):
    x = wf.tensor([0.125, 8.0], dtype=wf.float16)
    for function in (lambda x: x * 1e5, lambda x: x / 1e5, lambda x: 1e5 / x, lambda x: x * 1e-7, lambda x: x - 0.1):
        out = mode(function)(x)
        expected = np.asarray(function(x.numpy().astype(np.float64)))
        assert out.dtype == wf.float16
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(out.numpy(), expected.astype(np.float16))
    for y in (wf.tensor([0.1], dtype=wf.float16), wf.tensor([0.1], dtype=wf.bfloat16)):
        assert mode(lambda y: y == 0.1)(y).item() and mode(lambda y: y >= 0.1)(y).item()
        assert mode(lambda y: wf.where(y > 0, 0.1, y))(y).item() == y.item()


def test_a_python_number_beside_short_floats_in_place_and_in_gradients():
    x = wf.tensor([0.125], dtype=wf.float16)
    x *= 1e5
    assert x.item() == float(np.float16(12500))
    x = wf.tensor([0.125], dtype=wf.float16).requires_grad_()
    (g,) = wf.grad((x * 1e5 * 1e-5).sum(), [x])
    assert g.dtype == wf.float16 and abs(g.item() - 1) < 0.01  # 1e-5 itself, the gradient in between, has few digits


def test_composed_functions_show_the_signature_of_their_definition():
    for function in (wf.var, wf.Tensor.var, F.mse_loss, linalg.vector_norm, table["logsumexp"].call):
        assert "kwargs" not in inspect.signature(function).parameters, function
