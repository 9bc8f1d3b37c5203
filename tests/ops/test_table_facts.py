"""What a record claims about its op (`weft.ops.core.registry.Facts`) is true of the op's samples."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.ops.core import define, reductions
from weft.ops.core.define import primitive, reduction
from weft.ops.core.reductions import SUM, Reduction
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker
from weft.ops.core.spec import normalize_axes
from weft.ops.internal import deferred_tables as deferred_tables

COMPILER = Path(wf.__file__).parent / "compiler"
NUMBERS = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-40], np.float32)


def having(fact):
    return sorted(name for name, op in table.items() if getattr(op, fact) not in (None, ()))


def calls(name):
    """The samples of an op as (arrays, attributes, result)."""
    op = table[name]
    for sample in op.samples(Maker(0)):
        values = op.bind(sample.args, sample.kwargs)
        arrays, attrs = op.tensors(values), op.attrs(values)
        yield arrays, attrs, np.asarray(define.compute(op, arrays, attrs))


@pytest.mark.parametrize("name", having("identity"))
def test_identities_return_their_operand(name):
    always = table[name].identity == "always"
    for arrays, _, out in calls(name):
        if always or (out.shape, out.dtype) == (arrays[0].shape, arrays[0].dtype):
            np.testing.assert_array_equal(out, arrays[0], strict=True)


@pytest.mark.parametrize("name", having("neutral"))
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_neutral_operands_leave_the_other_one(name, dtype):
    op = table[name]
    x = NUMBERS if dtype == np.float32 else np.arange(-3, 4)
    for position, number in op.neutral:
        operands = [x, np.full_like(x, number)]
        if position == 0:
            operands.reverse()
        out = np.asarray(op.fn(*operands))
        if out.dtype == x.dtype:  # else the compiler keeps the op: it converts
            assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0])
def test_constants_next_to_neutral_keep_the_sign_of_zero(number):
    x = wf.tensor([0.0, -0.0, 2.0])

    def run(x):
        return x + number, number + x, x - number, x * number, x / (number or 1.0)

    for eager, captured in zip(run(x), wf.function(run)(x), strict=True):
        assert eager.numpy().tobytes() == captured.numpy().tobytes()


@pytest.mark.parametrize("name", having("reduction"))
def test_reductions_combine_elements(name):
    reduces = table[name].reduction
    for (x,), (axis, keepdims), out in calls(name):
        axes = normalize_axes(name, axis, x.ndim)
        rest = [a for a in range(x.ndim) if a not in axes]
        rows = np.transpose(x, (*axes, *rest)).reshape(-1, *[x.shape[a] for a in rest])
        rows = rows != 0 if reduces.boolean else rows
        start = np.full(rows.shape[1:], reduces.identity_of(rows.dtype), rows.dtype)
        made = functools.reduce(reduces.combine, rows, start)
        np.testing.assert_allclose(made.reshape(out.shape), out, rtol=1e-12)
        assert keepdims in (True, False)


@pytest.mark.parametrize("reduces", reductions.table.values(), ids=lambda r: r.name)
def test_the_identity_changes_nothing(reduces):
    for dtype in (np.float32, np.int8, np.uint16, np.bool_):
        if (dtype is np.bool_) != reduces.boolean or reduces.floating and dtype is not np.float32:
            continue
        x = NUMBERS if dtype is np.float32 else np.array([0, 1, 127]).astype(dtype)
        with np.errstate(invalid="ignore"):  # NumPy's logaddexp warns of NaN
            out = reduces.combine(np.full_like(x, reduces.identity_of(np.dtype(dtype))), x)
        np.testing.assert_array_equal(out, x, strict=True)


@pytest.mark.parametrize("name", having("scan"))
def test_scans_combine_elements_from_the_identity(name):
    scan = table[name].scan
    for (x,), (axis,), out in calls(name):
        values = out[0] if table[name].num_outputs == 2 else out
        state, rows = scan.identity_of(x.dtype), np.moveaxis(x, axis, 0)
        for row, running in zip(rows, np.moveaxis(values, axis, 0), strict=True):
            state = scan.combine(np.full_like(row, state), row)
            np.testing.assert_allclose(running, state, rtol=1e-12)


@pytest.mark.parametrize("name", having("view"))
def test_views_have_the_strides_of_numpy(name):
    op = table[name]
    for (x,), attrs, _ in calls(name):
        if x.size == 0:
            continue
        base = np.array(x, order="F")
        out = op.run(op.fn, op.merge([base], attrs))
        strides = tuple(n // x.itemsize for n in base.strides)
        found = op.view.strides(x.shape, strides, out.shape, *attrs)
        if found is None:
            assert not np.shares_memory(out, base)
            continue
        start = (out.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize
        assert found[1] == start or out.size == 0
        for ours, theirs, d in zip(found[0], out.strides, out.shape, strict=True):
            assert d <= 1 or ours * x.itemsize == theirs


@pytest.mark.parametrize("name", having("index_range"))
def test_indices_are_in_their_range(name):
    op = table[name]
    for arrays, attrs, out in calls(name):
        found = op.run(op.index_range, op.merge(arrays, attrs))
        if found is not None and out.size:
            assert found[0] <= out.min() and out.max() < found[1]


@pytest.mark.parametrize("name", having("empty_value"))
def test_empty_operands_give_the_declared_value(name):
    op = table[name]
    out = op.call(wf.zeros(2, 0), wf.zeros(0, 3))
    assert np.all(out.numpy() == op.empty_value) and out.shape == (2, 3)


def test_facts_that_contradict_the_parameters_are_refused():
    def wrong(x: wf.Tensor, axes: int) -> None:
        """Not (x, axis, keepdims)."""

    with pytest.raises(TypeError, match=r"op wrong: a reduction has the parameters \(x, axis, keepdims\)"):
        reduction(SUM)(wrong)
    with pytest.raises(TypeError, match=r"op wrong: a scan has the parameters \(x, axis\)"):
        primitive(scan=SUM)(wrong)
    with pytest.raises(TypeError, match="op wrong: a gather or scatter takes a tensor, its indices and `axis`"):
        primitive(gather="axis")(wrong)
    with pytest.raises(TypeError, match="autocast must be 'low', 'float32' or None. Got 'half'"):
        primitive(autocast="half")(wrong)
    with pytest.raises(TypeError, match=r"op wrong: unknown facts \['views'\]"):
        primitive(views=True)(wrong)
    with pytest.raises(ValueError, match="reduction 'sum' is defined already"):
        Reduction("sum", SUM.combine, 0)
    assert "wrong" not in table


def test_the_compiler_asks_records_and_keeps_no_lists_of_names():
    """`node.op.name in (...)` is a fact in the wrong place. Registries of rules are keyed by name, and named `_rules` etc."""
    found = []
    for path in sorted(COMPILER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
                continue
            if ast.unparse(node.left).endswith("op.name") and isinstance(node.comparators[0], (ast.Tuple, ast.Set)):
                found.append(f"{path.relative_to(COMPILER)}: {ast.unparse(node)}")
    assert found == []
