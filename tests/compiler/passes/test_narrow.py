"""Parts of outer products, by comparing the graphs before and after the pass."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft as wf
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.narrow import narrow

RNG = np.random.default_rng(0)
COLUMN, ROW = (RNG.standard_normal(shape).astype(np.float32) for shape in ((50, 1), (1, 40)))


def sizes(fn: Any, *arrays: Any) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The shapes of products before and after the pass; captured and eager agree."""
    step = wf.function(fn)
    found = step(*[wf.tensor(a) for a in arrays])
    expected = fn(*[wf.tensor(a.astype(np.float64)) for a in arrays])
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)
    flow = step.traces[0].flow
    flows = (flow, check_flow(narrow(flow)))
    before, after = ([tuple(n.outputs[0].shape) for n in f.nodes if n.op.name == "multiply"] for f in flows)
    return before, after


def test_an_outer_product_read_in_parts_is_made_in_parts() -> None:
    def fn(x: wf.Tensor, y: wf.Tensor) -> Any:
        whole = x * y
        return wf.exp(whole[:, :16]), wf.tanh(whole[10:30, 16:]), whole[-3:, 20:16:-1] + 1

    assert sizes(fn, COLUMN, ROW) == ([(50, 40)], [(50, 16), (20, 24), (3, 4)])


def test_operands_of_fewer_axes_are_cut_where_they_reach() -> None:
    def fn(x: wf.Tensor, y: wf.Tensor) -> Any:
        whole = x * y
        return wf.exp(whole[:, :16]), wf.tanh(whole[..., 16:])

    assert sizes(fn, COLUMN, ROW[0])[1] in ([(50, 16), (50, 24)], [(50, 40)])
    assert sizes(lambda x, y: (wf.exp((x * y)[:16]),), COLUMN, ROW[0]) == ([(50, 40)], [(16, 40)])


def test_wholes_that_are_read_or_made_from_large_operands_stay() -> None:
    def read(x: wf.Tensor, y: wf.Tensor) -> Any:
        whole = x * y
        return wf.exp(whole[:, :16]), whole.sum(axis=0)

    assert sizes(read, COLUMN, ROW)[1] == [(50, 40)]
    assert sizes(lambda x, y: ((x * y)[:, :16] + 1,), RNG.standard_normal((50, 40)), ROW)[1] == [(50, 40)]


def test_overlapping_parts_are_read_from_the_whole() -> None:
    def fn(x: wf.Tensor, y: wf.Tensor) -> Any:
        whole = x * y
        return wf.exp(whole[:, :30]), wf.tanh(whole[:, 10:])

    assert sizes(fn, COLUMN, ROW) == ([(50, 40)], [(50, 40)])
