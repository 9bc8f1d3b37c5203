"""Costs by family: what moves, what computes, what does nothing."""

import numpy as np
import pytest

import weft as wf
from weft.ops.core import costs
from weft.ops.core.costs import Cost, cost
from weft.ops.core.define import primitive
from weft.ops.core.registry import get, table
from weft.ops.core.spec import Spec
from weft.ops.internal import deferred_tables as deferred_tables

F32, I64 = wf.float32, wf.int64


def spec(*shape, dtype=F32):
    return Spec(shape, dtype)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("permute_dims", (spec(4, 6), (1, 0)), Cost(0, 0)),
        ("filled", ((3, 5), 1.0, F32), Cost(0, 60)),
        ("clone", (spec(10),), Cost(0, 80)),
        ("concat_axis", ((spec(2, 3), spec(4, 3)), 0), Cost(0, 2 * 4 * 18)),
        ("reduce_sum", (spec(8, 8), 1, False), Cost(64, 4 * (64 + 8))),
        ("take_axis", (spec(1000, 4), spec(3, dtype=I64), 0), Cost(0, 2 * 48 + 24)),  # not the whole table
        ("embedding_lookup", (spec(3, dtype=I64), spec(1000, 4), None, False), Cost(0, 2 * 48 + 24)),
        ("scatter_add", (spec(9), spec(2, dtype=I64), spec(2), 0), Cost(2, 36 + 16 + 8 + 36)),
        ("accumulate_sum", (spec(16), 0), Cost(32, 128)),
        ("add", (spec(4, 1), spec(4, 5)), Cost(20, 4 * (4 + 20 + 20))),
        ("matmul", (spec(2, 3), spec(3, 4)), Cost(2 * 2 * 3 * 4, 4 * (6 + 12 + 8))),
    ],
)
def test_cost_of(name, values, expected):
    assert cost(get(name), values) == expected


def test_a_function_costs_more_than_an_addition():
    flops = {n: cost(get(n), (spec(100),)).flops for n in ("negative", "sqrt", "exp", "gelu_erf") if n in table}
    assert flops["negative"] == 100
    assert flops["negative"] < flops["sqrt"] < flops["exp"]


def test_complex_arithmetic_counts_its_real_operations():
    real = cost(get("multiply"), (spec(7), spec(7)))
    twice = cost(get("multiply"), (spec(7, dtype=wf.complex64), spec(7, dtype=wf.complex64)))
    assert twice == Cost(4 * real.flops, 2 * real.bytes)


def test_sizes_that_are_not_known_count_as_nothing():
    assert cost(get("reduce_sum"), (Spec((None, 4), F32), None, False)).flops == 0


def test_an_op_from_outside_that_says_nothing_counts_one_operation_per_element():
    try:

        @primitive(infer=lambda x: Spec(x.shape, x.dtype), vjp=lambda g: g)
        def cost_test_op(x: wf.Tensor):
            """x, unchanged."""
            return np.array(x)

        assert cost(get("cost_test_op"), (spec(3, 4),)) == Cost(12, 2 * 48)
    finally:
        table.pop("cost_test_op", None)


def test_every_family_is_used():
    assert {op.cost for op in table.values() if isinstance(op.cost, str)} == set(costs.FAMILIES)
