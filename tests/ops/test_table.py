"""The op table tests itself: every record × sample × dtype, value, shape rule, gradient, second order, errors."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.ops.table_cases import (
    differentiable_leaves,
    direction_like,
    for_every_sample,
    has_gradient,
    leaves_of,
    ops,
    outputs_of,
    random_weights,
    samples_of,
    tensors_of,
    weighted_sum,
)
from weft.ops.core import costs, define
from weft.ops.core.registry import FROM_DOUBLE_REVERSE, NOT_DIFFERENTIABLE, table
from weft.ops.core.spec import Spec, spec_of

TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}


def _compare(op, got, expected, dtype):
    for g, e in zip(outputs_of(got), outputs_of(expected), strict=True):
        e = np.asarray(e)
        assert tuple(g.shape) == e.shape, f"{op.name}: shape {g.shape}, reference {e.shape}"
        tol = TOLERANCE[dtype] * op.tolerance
        wide = np.complex128 if e.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            g.detach().numpy().astype(wide), e.astype(wide), rtol=tol, atol=tol, equal_nan=True, err_msg=op.name
        )


@for_every_sample(dtype=("float64", "float32"))
def test_value_equals_reference(op, sample, dtype):
    if dtype not in op.test.get("dtypes", ("float64", "float32")):
        return
    args, kwargs = tensors_of(sample, dtype)
    before = [t.numpy().copy() for t in leaves_of(args, kwargs)]
    got = op.call(*args, **kwargs)
    arrays = [_map_tensor(a) for a in args], {k: _map_tensor(v) for k, v in kwargs.items()}
    wide = [_widen(a) for a in arrays[0]], {k: _widen(v) for k, v in arrays[1].items()}
    with np.errstate(all="ignore"):
        _compare(op, got, op.reference(*wide[0], **wide[1]), dtype)
    for t, b in zip(leaves_of(args, kwargs), before, strict=True):
        np.testing.assert_array_equal(t.numpy(), b, err_msg=f"{op.name} changed an input")


def _map_tensor(value):
    if isinstance(value, wf.Tensor):
        return value.numpy()
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensor(v) for v in value) if type(value) is tuple else value
    return value


def _widen(value):
    if isinstance(value, np.ndarray):
        return (
            value.astype(np.float64)
            if value.dtype == np.float32
            else value.astype(np.complex128)
            if value.dtype == np.complex64
            else value
        )
    if type(value) is tuple and any(isinstance(v, np.ndarray) for v in value):
        return tuple(_widen(v) for v in value)
    return value


@for_every_sample()
def test_strided_views_give_the_same_values(op, sample):
    def spread_out(a):
        if a.ndim == 0:
            return a
        wide = np.zeros((*a.shape[:-1], a.shape[-1] * 2), a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]

    plain = op.call(*(p := tensors_of(sample))[0], **p[1])
    views = op.call(*(p := tensors_of(sample, order=spread_out))[0], **p[1])
    for a, b in zip(outputs_of(plain), outputs_of(views), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


@for_every_sample(lambda op: op.infer is not None)
def test_shape_rule_equals_reality(op, sample):
    args, kwargs = tensors_of(sample, "float32")
    values = op.bind(tuple(args), kwargs)
    out = op.call(*args, **kwargs)
    datas = [t._data if isinstance(t, wf.Tensor) else t for t in op.tensors(values)]
    if op.promote is not None:
        datas = define.promoted(op, datas)
    specs = [Spec(d.shape, d.dtype) if isinstance(d, np.ndarray) else d for d in datas]
    inferred = outputs_of(op.run(op.infer, op.merge(specs, op.attrs(values))))
    for o, spec in zip(outputs_of(out), inferred, strict=True):
        assert spec.dtype == o.dtype, f"{op.name}: rule says {spec.dtype}, result is {o.dtype}"
        if spec.shape is not None and None not in spec.shape:
            assert tuple(spec.shape) == tuple(o.shape), op.name


@for_every_sample(dtype=("float64", "float32"))
def test_later_calls_equal_the_first(op, sample, dtype):
    """Signatures are checked once and later calls take shorter paths: they leave the same results, tape and gradients as
    the first call and as the general path."""
    leaves = len(leaves_of(*tensors_of(sample)))
    for grad in (False, True, *range(leaves if leaves > 1 else 0)):  # of nothing, of everything, of one input alone
        for known in table.values():
            known.checked.clear()
        args, kwargs = tensors_of(sample, dtype, grad is not False)
        for i, leaf in enumerate(leaves_of(args, kwargs)):
            if not isinstance(grad, bool) and i != grad:
                leaf.requires_grad_(False)
        calls = [outputs_of(op.call(*args, **kwargs)) for _ in range(3)]
        if not op.composite:
            calls.append(outputs_of(define.call(op, op.bind(tuple(args), kwargs))))
        first, *later = calls
        gradients = _gradients_of(op, first, args, kwargs)
        for outputs in later:
            for a, b in zip(first, outputs, strict=True):
                assert b.requires_grad == a.requires_grad, f"{op.name}{sample}: the tape depends on earlier calls"
                assert b.is_leaf == a.is_leaf and b.dtype is a.dtype and b.shape == a.shape
                np.testing.assert_array_equal(b.detach().numpy(), a.detach().numpy(), err_msg=op.name)
            for a, b in zip(gradients, _gradients_of(op, outputs, args, kwargs), strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_array_equal(b.numpy(), a.numpy(), err_msg=op.name)


def _gradients_of(op, outputs, args, kwargs):
    recorded = [] if op.test.get("no_gradient") else [o for o in outputs if o.requires_grad]
    leaves = [t for t in leaves_of(args, kwargs) if t.requires_grad]
    return wf.grad(recorded, leaves, [wf.ones_like(o) for o in recorded], allow_unused=True) if recorded else []


@for_every_sample(has_gradient)
def test_gradient_equals_numeric_derivative(op, sample):
    rng = np.random.default_rng(7)
    args, kwargs = tensors_of(sample, grad=True)
    leaves = differentiable_leaves(op, args, kwargs)
    outputs = outputs_of(op.call(*args, **kwargs))
    weights = random_weights(rng, outputs)
    if not leaves or not any(o.requires_grad for o in outputs):
        return
    gradients = wf.grad(weighted_sum(outputs_of(op.call(*args, **kwargs)), weights), leaves, allow_unused=True)
    eps = op.test.get("eps", 1e-6)
    for leaf, g in zip(leaves, gradients, strict=True):
        direction = direction_like(rng, leaf)
        data, old = leaf._data, leaf._data.copy()
        values = []
        with wf.no_grad():
            for sign in (1, -1):
                data[...] = old + sign * eps * direction
                values.append(weighted_sum(outputs_of(op.call(*args, **kwargs)), weights).item())
            data[...] = old
        numeric = (values[0] - values[1]) / (2 * eps)
        analytic = 0.0 if g is None else float(np.sum((np.conj(g.numpy()) * direction).real))
        tol = op.test.get("gradient_tolerance", 1e-5)
        assert abs(numeric - analytic) <= tol * max(1.0, abs(numeric)), f"{op.name}: {analytic} vs numeric {numeric}"


@for_every_sample(lambda op: has_gradient(op) and not op.test.get("first_order_only"))
def test_second_order_equals_numeric_derivative(op, sample):
    rng = np.random.default_rng(8)
    args, kwargs = tensors_of(sample, grad=True)
    leaves = differentiable_leaves(op, args, kwargs)
    if any(t.is_complex() for t in leaves) or not leaves:
        return
    outputs = outputs_of(op.call(*args, **kwargs))
    weights = random_weights(rng, outputs)
    if not any(o.requires_grad for o in outputs):
        return
    directions = [wf.asarray(np.asarray(rng.standard_normal(t.shape))) for t in leaves]

    def slope():
        gradients = wf.grad(
            weighted_sum(outputs_of(op.call(*args, **kwargs)), weights), leaves, create_graph=True, allow_unused=True
        )
        return sum(
            ((g * d).sum() for g, d in zip(gradients, directions, strict=True) if g is not None),
            wf.zeros((), dtype=wf.float64),
        )

    first = slope()
    if not first.requires_grad:
        return
    seconds = wf.grad(first, leaves, allow_unused=True)
    eps = op.test.get("eps", 1e-6)
    for leaf, g in zip(leaves, seconds, strict=True):
        direction = rng.standard_normal(leaf.shape)
        data, old = leaf._data, leaf._data.copy()
        values = []
        for sign in (1, -1):
            data[...] = old + sign * eps * direction
            values.append(slope().item())
        data[...] = old
        numeric = (values[0] - values[1]) / (2 * eps)
        analytic = 0.0 if g is None else float(np.sum(g.numpy() * direction))
        tol = op.test.get("gradient_tolerance", 1e-5) * 10
        assert abs(numeric - analytic) <= tol * max(1.0, abs(numeric)), f"{op.name}: {analytic} vs numeric {numeric}"


@for_every_sample(kind="errors")
def test_bad_input_is_refused_with_the_stated_words(op, sample):
    args, kwargs = tensors_of(sample)
    with pytest.raises(sample.error, match=sample.match):
        op.call(*args, **kwargs)


@pytest.mark.parametrize("op", ops())
def test_record_is_complete(op):
    assert op.doc, f"{op.name} has no docstring"
    assert op.samples is not None, f"{op.name} has no samples"
    assert op.reference is not None, f"{op.name} has no NumPy reference"
    assert op.differentiable or op.declared_nondifferentiable, (
        f"{op.name} has neither a gradient nor its declared absence"
    )
    assert op.version >= 1 and op.effects <= {"reads", "writes", "blocks", "random", "host", "check", "print"}
    assert op.jvp == (NOT_DIFFERENTIABLE if op.declared_nondifferentiable else FROM_DOUBLE_REVERSE) or callable(op.jvp)
    assert op.batch in ("elementwise", "composite", "source", None) or callable(op.batch)
    assert op.alias is None or op.alias in op.tensor_names
    if not op.composite:
        assert op.infer is not None, f"{op.name} has no shape rule"


@pytest.mark.parametrize("op", ops())
def test_record_says_what_a_call_costs(op):
    assert op.composite or op.expression is not None or callable(op.cost) or op.cost in costs.FAMILIES, (
        f"{op.name} has neither a cost nor a family of costs"
    )
    for sample in () if op.composite else samples_of(op):
        args, kwargs = tensors_of(sample)
        values = op.bind(tuple(args), kwargs)
        specs = [spec_of(t._data) if isinstance(t, wf.Tensor) else t for t in op.tensors(values)]
        flops, moved = costs.cost(op, op.merge(specs, op.attrs(values)))
        assert flops >= 0 and moved >= 0
        if op.expression is not None and all(isinstance(x, Spec) and x.shape and 0 not in x.shape for x in specs):
            assert flops > 0 and moved > 0
