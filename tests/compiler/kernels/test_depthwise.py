"""Tiles of depthwise convolutions: every place is in one of them and reads what it should; kernels write nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.llvm.jit import compile_kernel
from weft.compiler.loop_ir.kernels import depthwise as d
from weft.compiler.loop_ir.kernels.depthwise_gradients import gradients
from weft.compiler.loop_ir.validate import validate
from weft.ops.internal.epilogue import IDENTITY, PRODUCT, Apply, Epilogue, Input, Result

AXES = [
    d.Axis(14, 14, 3, 1, 1),
    d.Axis(14, 7, 3, 2, 1),
    d.Axis(13, 7, 3, 2, 1),
    d.Axis(9, 13, 5, 1, 4),
    d.Axis(17, 6, 2, 3, 0),
    d.Axis(20, 20, 3, 1, 2, 2),
    d.Axis(1, 1, 3, 1, 1),
]


def reads(axis: d.Axis, transposed: bool) -> list[list[tuple[int, int]]]:
    """By the definition: place p of the result reads place p * stride - before + k * dilation of the image."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(axis.size if transposed else axis.result)]
    for p in range(axis.result):
        for k in range(axis.taps):
            i = p * axis.stride - axis.before + k * axis.dilation
            if 0 <= i < axis.size:
                (found[i] if transposed else found[p]).append((k, p if transposed else i))
    return found


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("tile", [1, 2, 4, 7])
def test_runs_cover_an_axis(axis: d.Axis, transposed: bool, clip: bool, tile: int) -> None:
    made: list[list[tuple[int, int]]] = []
    for run in d.runs(axis, transposed, tile, clip):
        for t in range(run.tiles):
            assert len(made) == run.start + t * run.size
            base = run.base + t * run.step
            for table in run.reads:
                inside = [(k, base + i) for k, i in table if 0 <= base + i < run.limit]
                assert clip or len(inside) == len(table)
                assert all(i in run.clipped for _, i in table if not 0 <= base + i < run.limit)
                made.append(inside)
    assert [sorted(r) for r in made] == [sorted(r) for r in reads(axis, transposed)]


def test_inside_and_borders_of_an_image_share_their_rows() -> None:
    """The code of a usual layer: one piece each for the first column, those between and the last."""
    axis = d.Axis(56, 56, 3, 1, 1)
    assert d.Grid(d.Shape(144, axis, axis), False).pieces == 3


@pytest.mark.parametrize("transposed", [False, True])
def test_nothing_else_is_written(transposed: bool) -> None:
    rows, columns = d.Axis(9, 5, 3, 2, 1), d.Axis(11, 11, 3, 1, 1)
    shape = d.Shape(21, rows, columns)
    kernel = validate(d.convolution(shape, transposed))
    sizes = [(2, 9, 11, 21), (2, 5, 11, 21)]
    x = np.ones(sizes[transposed], np.float32)
    w = np.ones((3, 3, 21), np.float32)
    size = int(np.prod(sizes[not transposed]))
    y = np.full(size + 64, np.nan, np.float32)
    params = [*d.Grid(shape, transposed).split(2), 0, 0, 32]
    compile_kernel(kernel).call(x.ctypes.data, w.ctypes.data, y.ctypes.data, *params)
    assert np.isnan(y[:32]).all() and np.isnan(y[32 + size :]).all()
    assert not np.isnan(y[32 : 32 + size]).any()


def test_tasks_follow_from_the_shape() -> None:
    axis = d.Axis(56, 56, 3, 1, 1)
    grid = d.Grid(d.Shape(16, axis, axis), False)
    assert grid.tiles == 7
    assert grid.split(64) == [1, 64]
    assert grid.split(16) == [2, 32]
    assert grid.split(1) == [7, 7]


def test_gradients_write_nothing_else() -> None:
    shape = d.Shape(21, d.Axis(9, 5, 3, 2, 1), d.Axis(11, 11, 3, 1, 1))
    doubled = (Apply("add", (PRODUCT, PRODUCT)), Apply("multiply", (Result(0), Input(2, per_channel=True))))
    after = Epilogue(doubled, (Result(1), PRODUCT, Input(1)))
    kernel = validate(gradients(shape, IDENTITY, after))
    g, x, w = (np.ones(size, np.float32) for size in ((2, 5, 11, 21), (2, 9, 11, 21), (3, 3, 21)))
    column = np.full(21, 0.5, np.float32)
    strips, tasks = d.Grid(shape, True).split(2)
    y, parts = np.full(x.size + 64, np.nan, np.float32), np.full(tasks * 11 * 21 + 64, np.nan, np.float32)
    buffers = [a.ctypes.data for a in (g, x, w, column, y, parts)]
    compile_kernel(kernel).call(*buffers, strips, tasks, 0, 0, 0, 32, 0)
    assert np.isnan(y[:32]).all() and np.isnan(y[32 + x.size :]).all() and np.isnan(parts[-64:]).all()
    made, sums = y[32 : 32 + x.size].reshape(x.shape), parts[:-64].reshape(tasks, 11, 21).sum(0)
    windows = [min(3, 11 - c + 1, c + 2) * (2 if r % 2 else 1) for r in range(9) for c in range(11)]
    np.testing.assert_array_equal(made, np.tile(np.array(windows, np.float32).reshape(1, 9, 11, 1), (2, 1, 1, 21)))
    np.testing.assert_array_equal(sums[4], 2 * 5 * 11)  # the tap in the middle meets every number of g
    np.testing.assert_array_equal(sums[9], made.sum((0, 1, 2)))
    np.testing.assert_array_equal(sums[10], 2 * 9 * 11)


@pytest.mark.parametrize("rows", [7, 8, 19])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_moments_of_all_from_those_of_blocks(rows: int, offset: float) -> None:
    shape = d.Shape(20, d.Axis(rows, rows, 1, 1, 0), d.Axis(6, 6, 1, 1, 0))
    x = (np.random.default_rng(rows).standard_normal((3, rows, 6, 20)) + offset).astype(np.float32)
    w, y = np.ones((1, 1, 20), np.float32), np.zeros(x.shape, np.float32)
    grid = d.Grid(shape, False)
    parts, mean, var = np.zeros((3 * grid.tiles, 2, 20), np.float32), *np.zeros((2, 20), np.float32)
    buffers = [a.ctypes.data for a in (x, w, y, parts)]
    compile_kernel(validate(d.convolution(shape, False, moments=True))).call(*buffers, *grid.split(3), 0, 0, 0)
    whole = compile_kernel(validate(d.join_moments(shape)))
    whole.call(parts.ctypes.data, mean.ctypes.data, var.ctypes.data, 3, 0, 0)
    exact = x.astype(np.float64)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(mean, exact.mean((0, 1, 2)), atol=1e-6 * (1 + offset))
    np.testing.assert_allclose(var, exact.var((0, 1, 2)), rtol=1e-6 * (1 + offset))
