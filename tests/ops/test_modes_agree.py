"""Calls that once gave one thing eagerly and another (or an error) captured: small, large and captured now agree."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker

LARGE = 20_000  # elements from which eager calls are native, too


def _ways(fn, *arrays):
    """The result of `fn` on small arrays eagerly, captured, and eagerly on the arrays repeated until they are large."""
    tensors = [wf.asarray(a) for a in arrays]
    n = len(arrays[0])
    many = [wf.asarray(np.tile(a, LARGE // n + 1)) for a in arrays]
    return fn(*tensors).numpy(), wf.function(fn)(*tensors).numpy(), fn(*many).numpy()[:n]


def _agree(fn, *arrays):
    small, captured, large = _ways(fn, *arrays)
    assert small.dtype == captured.dtype == large.dtype
    np.testing.assert_array_equal(captured, small)
    np.testing.assert_array_equal(large, small)
    return small


def _refused_alike(fn, error, match, *arrays):
    tensors = [wf.asarray(a) for a in arrays]
    for way in (fn, wf.function(fn)):
        with pytest.raises(error, match=match):
            way(*tensors)


BOOLS = np.array([True, False, True])


def test_extremes_sums_and_products_of_bools():
    for fn, expected in ((wf.max, True), (wf.min, False)):
        for way in (fn, wf.function(fn)):
            out = way(wf.asarray(BOOLS))
            assert out.dtype == wf.bool and out.item() is expected
    x = wf.asarray(np.array([[True, False], [True, True]]))
    for way in (lambda x: wf.min(x, axis=0, keepdims=True), wf.function(lambda x: wf.min(x, axis=0, keepdims=True))):
        assert way(x).tolist() == [[True, False]]
    for way in (wf.vecdot, wf.function(wf.vecdot)):
        assert way(wf.asarray(BOOLS), wf.asarray(BOOLS)).item() is True


def test_arithmetic_of_bools_is_that_of_int8_or_refused():
    for fn in (wf.square, lambda x: x // x, lambda x: x % x):
        assert _agree(fn, BOOLS).dtype == np.int8
    assert _agree(wf.conj, BOOLS).dtype == np.bool_
    for fn, name in ((lambda x: x**x, "pow"), (wf.sign, "sign"), (wf.negative, "negative")):
        _refused_alike(fn, TypeError, f"{name}: expected numbers. Got bool", BOOLS)


def test_logic_takes_complex_numbers_and_order_refuses_them():
    z = np.array([1j, 0, 2], np.complex64)
    assert _agree(wf.logical_not, z).tolist() == [False, True, False]
    assert _agree(lambda x: wf.logical_and(x, x), z).tolist() == [True, False, True]
    assert _agree(lambda x: x.astype(wf.bool), z).tolist() == [True, False, True]
    for fn in (wf.maximum, wf.minimum, wf.less, wf.greater_equal):
        _refused_alike(fn, TypeError, "expected a real tensor", z, z)


def test_tile_takes_one_number():
    x = wf.asarray(np.arange(3))
    for way in (lambda x: wf.tile(x, 2), wf.function(lambda x: wf.tile(x, 2))):
        assert way(x).tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("fn", [lambda x, y: x**y, lambda x, y: 2**y, lambda x, y: x**-1])
def test_integers_to_negative_powers_are_refused_alike(fn):
    _refused_alike(fn, ValueError, "pow: integers to negative powers", np.array([2, 3]), np.array([1, -1]))


def test_a_negative_power_is_noticed_before_a_variable_is_written():
    total = wf.zeros(1, dtype=wf.int64)

    @wf.function
    def step(y):
        total.add_(1)
        return 2**y

    assert step(wf.asarray(np.array([3]))).tolist() == [8]
    with pytest.raises(ValueError, match="negative powers"):
        step(wf.asarray(np.array([-3])))
    assert total.tolist() == [1]


def test_a_negative_power_in_a_branch_that_does_not_run_is_no_error():
    @wf.function
    def pick(x, flag):
        return wf.cond(flag, lambda: x * 2, lambda: x**-1)

    assert pick(wf.asarray(np.array([3])), wf.asarray(True)).tolist() == [6]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", wf.dtypes.INTEGRAL, ids=lambda d: d.name)
def test_floats_become_integers_by_one_rule(source, target):
    given = [
        np.nan,
        np.inf,
        -np.inf,
        1e30,
        -1e30,
        300.0,
        -1.7,
        2.5,
        -129.0,
        -32769.0,
        2.0**15,
        2.0**31,
        2.0**63,
        2.0**64,
    ]
    with np.errstate(all="ignore"):
        x = np.array(given).astype(getattr(wf, source))
    limits = np.iinfo(target)

    def rule(v):
        if v != v:
            return 0
        return int(min(max(float(v), -1e40), 1e40)) if np.isfinite(v) else 10**40 if v > 0 else -(10**40)

    expected = [min(max(rule(v), limits.min), limits.max) for v in x.astype(np.float64)]
    assert _agree(lambda t: t.astype(target), x).tolist() == expected
    assert wf.asarray(x, dtype=target).tolist() == expected


def test_scatter_and_index_add_convert_values_by_the_same_rule():
    x, places, src = np.zeros(3, np.int64), np.array([0, 1, 2]), np.array([np.nan, 1e30, -3.7], np.float32)
    for fn in (wf.scatter, wf.scatter_add):
        ways = [way(wf.asarray(x), wf.asarray(places), wf.asarray(src)).tolist() for way in (fn, wf.function(fn))]
        assert ways[0] == ways[1] == [0, 2**63 - 1, -3]


@pytest.mark.parametrize("dtype", wf.dtypes.INTEGRAL, ids=lambda d: d.name)
def test_integer_division_by_zero_is_zero(dtype):
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 7, limits.max, limits.min], dtype)
    zeros = np.zeros_like(x)
    assert _agree(lambda x, y: x // y, x, zeros).tolist() == [0] * 5
    assert _agree(lambda x, y: x % y, x, zeros).tolist() == [0] * 5
    assert _agree(lambda x: x // 0, x).tolist() == [0] * 5
    assert _agree(lambda x: x % 0, x).tolist() == [0] * 5
    if dtype.kind == "i":  # the other quotient that traps on some processors: it wraps around
        assert _agree(lambda x: x // -1, x).tolist() == [0, -1, -7, -limits.max, limits.min]
        assert _agree(lambda x: x % -1, x).tolist() == [0] * 5


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("nans", [0.0, 0.01])
def test_topk_takes_the_first_of_equals(largest, axis, nans):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (300, 301)).astype(np.float32)
    x[rng.random(x.shape) < nans] = np.nan

    def best(x):
        return wf.topk(x, 5, axis, largest=largest).indices

    places = best(wf.asarray(x)).numpy()
    np.testing.assert_array_equal(wf.function(best)(wf.asarray(x)).numpy(), places)
    order = wf.argsort(wf.asarray(x), axis=axis, descending=largest, stable=True).numpy()
    np.testing.assert_array_equal(np.take(order, range(5), axis), places)


def test_histogram_edges_of_whole_numbers_are_exact():
    x = wf.asarray(np.array([-1, 0, 0, 0, 1, 1, 2]))
    for way in (wf.histogram, wf.function(wf.histogram)):
        counts, edges = way(x, 3)
        assert counts.tolist() == [1, 3, 3] and edges.tolist() == [-1.0, 0.0, 1.0, 2.0]


def test_losses_of_classes_take_integers_and_refuse_complex_numbers():
    target = np.array([1, 0])
    scores = np.array([[0, -2], [-3, -1]])
    for fn in (wf.nn.functional.nll_loss, wf.nn.functional.cross_entropy):
        ways = [way(wf.asarray(scores), wf.asarray(target)) for way in (fn, wf.function(fn))]
        assert ways[0].dtype == ways[1].dtype == wf.float32
        np.testing.assert_allclose(ways[1].numpy(), ways[0].numpy(), rtol=1e-6)
        _refused_alike(fn, TypeError, "input must be real", scores.astype(np.complex64), target)
        _refused_alike(lambda x, t, fn=fn: fn(x, t, ignore_index=None), TypeError, "ignore_index", scores, target)


def test_numpy_numbers_serve_as_attributes():
    x = wf.asarray(np.ones((2, 3), np.float32))
    for fn in (lambda x: wf.max(x, axis=np.int64(1), keepdims=np.True_), lambda x: wf.roll(x, np.int32(1))):
        np.testing.assert_array_equal(wf.function(fn)(x).numpy(), fn(x).numpy())


def test_nextafter_refuses_half_precision():
    x = np.ones(2, np.float16)
    _refused_alike(wf.nextafter, TypeError, "nextafter: expected float32 or float64. Got float16", x, x)


def _with_tensors(value):
    if isinstance(value, np.ndarray):
        return wf.asarray(value.copy())
    if isinstance(value, (tuple, list)) and any(isinstance(v, np.ndarray) for v in value):
        return type(value)(_with_tensors(v) for v in value)
    return value


def _refusal(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def _run_declared(call, tensors):
    graph = wf.Graph()
    with graph.as_default():
        places = [wf.placeholder(t.dtype, tuple(t.shape)) for t in tensors]
        fetched = call(*places)
        with wf.Session(graph) as session:
            session.run(fetched, dict(zip(places, [t.numpy() for t in tensors], strict=True)))


def _refused_with_one_type(op, sample):
    """A call that the op table lists as wrong, with its tensors as inputs of a program."""
    args, kwargs = [_with_tensors(a) for a in sample.args], {k: _with_tensors(v) for k, v in sample.kwargs.items()}
    numbers = [i for i, a in enumerate(args) if isinstance(a, wf.Tensor)]

    def call(*tensors):
        given = list(args)
        for i, t in zip(numbers, tensors, strict=True):
            given[i] = t
        return op.call(*given, **kwargs)

    tensors = [args[i] for i in numbers]
    eagerly = _refusal(lambda: call(*tensors))
    captured = _refusal(lambda: wf.function(call, fullgraph=True)(*tensors))
    if not isinstance(captured, wf.CaptureError):  # a result whose size depends on the data
        assert type(captured) is type(eagerly), f"{eagerly!r} eagerly, {captured!r} captured"
        assert op.name == "checked_indices" or not str(captured).startswith("checked_indices")
    declared = _refusal(lambda: _run_declared(call, tensors))
    assert type(declared) is type(eagerly), f"{eagerly!r} eagerly, {declared!r} in a graph"


def test_wrong_calls_raise_the_same_type_in_every_mode():
    wrong = [(op, bad) for op in table.values() if op.errors is not None for bad in op.errors(Maker(0))]
    assert len(wrong) > 500
    each(_refused_with_one_type, {f"{op.name} {i}": (op, bad) for i, (op, bad) in enumerate(wrong)})


def test_a_sorter_may_count_from_the_end():
    x, order = np.array([30, 10, 20]), np.array([1, -1, 0])
    for way in (wf.searchsorted, wf.function(wf.searchsorted)):
        found = way(wf.asarray(x), wf.asarray(x), sorter=wf.asarray(order))
        assert found.tolist() == [2, 0, 1]


def test_a_diagonal_may_be_beyond_every_matrix():
    x = np.ones((2, 3), np.float32)
    for k in (2**40, 2**63 - 1, -(2**63)):
        _agree(lambda x, k=k: wf.tril(wf.broadcast_to(x, (2, len(x))), k=k)[0], x[0])
        _agree(lambda x, k=k: wf.triu(wf.broadcast_to(x, (2, len(x))), k=k)[0], x[0])
