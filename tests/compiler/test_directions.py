"""Operands whose memory order differs from the rest of their cluster are transposed first; others are read in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf


def matrix(*shape: int, dtype: str = "float32") -> wf.Tensor:
    return wf.tensor((np.random.default_rng(sum(shape)).standard_normal(shape) * 9).astype(dtype))


def copies(f: Any) -> int:
    return sum(step.label == "copy" for step in f.traces[0].compiled.program.steps)


CASES: dict[str, tuple[Callable[..., wf.Tensor], tuple[tuple[int, ...], ...], int]] = {
    "a matrix beside a transposed one": (lambda x, y: x.T + y, ((200, 144), (144, 200)), 1),
    "one of three": (lambda x, y, z: x * y + z.T, ((150, 170), (150, 170), (170, 150)), 1),
    "images beside channels-last ones": (
        lambda x, y: wf.permute_dims(x, (0, 2, 3, 1)) * y, ((2, 24, 20, 20), (2, 20, 20, 24)), 1,
    ),
    "sums of rows": (lambda x, y: wf.maximum(x.T + y, 0.0).sum(1), ((160, 130), (130, 160)), 1),
    "sums of columns": (lambda x, y: wf.maximum(x.T + y, 0.0).sum(0), ((160, 130), (130, 160)), 1),
    "all transposed": (lambda x, y: x.T + y.T * 2.0, ((200, 144), (200, 144)), 0),
    "alone": (lambda x: x.T * 2.0, ((200, 144),), 0),
    "small": (lambda x, y: x.T + y, ((20, 30), (30, 20)), 0),
    "narrow": (lambda x, y: x.T + y, ((5000, 4), (4, 5000)), 0),
    "a row for all": (lambda x, y: x + y, ((200, 144), (144,)), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_turned_only_where_directions_differ(name: str) -> None:
    run, shapes, expected = CASES[name]
    operands = [matrix(*shape) for shape in shapes]
    f = wf.function(run)
    np.testing.assert_allclose(f(*operands).numpy(), run(*operands).numpy(), rtol=1e-5, atol=1e-3)
    assert copies(f) == expected


@pytest.mark.parametrize("dtype", ["int32", "float64", "int8"])
def test_other_dtypes(dtype: str) -> None:
    x, y = matrix(200, 144, dtype=dtype), matrix(144, 200, dtype=dtype)
    f = wf.function(lambda x, y: x.T + y)
    np.testing.assert_array_equal(f(x, y).numpy(), x.numpy().T + y.numpy())


def test_a_variable_that_is_turned_may_be_written_over() -> None:
    v = matrix(180, 180)
    expected = v.numpy() + v.numpy().T
    f = wf.function(lambda: v.copy_(v + v.T))
    f()
    np.testing.assert_array_equal(v.numpy(), expected)


def test_a_turned_operand_is_not_taken_for_its_source() -> None:
    """The result of the first sum may lie where the copy lies; the second reads the operand again."""
    x, y = matrix(200, 144), matrix(144, 200)
    run = lambda x, y: ((x.T + y).sum(), (x.T * y).sum(1), x.T - y)
    for a, b in zip(wf.function(run)(x, y), run(x, y), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-2)


def test_inside_a_loop_over_time() -> None:
    xs, y = matrix(5, 160, 130), matrix(130, 160)

    def run(xs: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        total, _ = wf.scan(lambda total, x: (total * 0.5 + x.T, total.sum()), y, xs)
        return total

    np.testing.assert_allclose(wf.function(run)(xs, y).numpy(), run(xs, y).numpy(), rtol=1e-5, atol=1e-4)
