"""Tiles of depthwise convolutions: every place is in one of them and reads what it should; kernels write nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.llvm.jit import compile_kernel
from weft.compiler.kernels import depthwise as d
from weft.compiler.validate import validate

AXES = [
    d.Axis(14, 14, 3, 1, 1),
    d.Axis(14, 7, 3, 2, 1),
    d.Axis(13, 7, 3, 2, 1),
    d.Axis(9, 13, 5, 1, 4),
    d.Axis(17, 6, 2, 3, 0),
    d.Axis(20, 20, 3, 1, 2, 2),
    d.Axis(1, 1, 3, 1, 1),
]


def reads(axis: d.Axis, turned: bool) -> list[list[tuple[int, int]]]:
    """By the definition: place p of the result reads place p * stride - before + k * dilation of the image."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(axis.size if turned else axis.result)]
    for p in range(axis.result):
        for k in range(axis.taps):
            i = p * axis.stride - axis.before + k * axis.dilation
            if 0 <= i < axis.size:
                (found[i] if turned else found[p]).append((k, p if turned else i))
    return found


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("tile", [1, 2, 4, 7])
def test_runs_cover_an_axis(axis: d.Axis, turned: bool, clip: bool, tile: int) -> None:
    made: list[list[tuple[int, int]]] = []
    for run in d.runs(axis, turned, tile, clip):
        for t in range(run.tiles):
            assert len(made) == run.start + t * run.size
            base = run.base + t * run.step
            for table in run.reads:
                inside = [(k, base + i) for k, i in table if 0 <= base + i < run.limit]
                assert clip or len(inside) == len(table)
                assert all(i in run.clipped for _, i in table if not 0 <= base + i < run.limit)
                made.append(inside)
    assert [sorted(r) for r in made] == [sorted(r) for r in reads(axis, turned)]


def test_inside_and_borders_of_an_image_share_their_rows() -> None:
    """The code of a usual layer: one piece each for the first column, those between and the last."""
    axis = d.Axis(56, 56, 3, 1, 1)
    assert d.Grid(d.Shape(144, axis, axis), False).pieces == 3


@pytest.mark.parametrize("turned", [False, True])
def test_nothing_else_is_written(turned: bool) -> None:
    rows, columns = d.Axis(9, 5, 3, 2, 1), d.Axis(11, 11, 3, 1, 1)
    shape = d.Shape(21, rows, columns)
    kernel = validate(d.convolution(shape, turned))
    sizes = [(2, 9, 11, 21), (2, 5, 11, 21)]
    x = np.ones(sizes[turned], np.float32)
    w = np.ones((3, 3, 21), np.float32)
    size = int(np.prod(sizes[not turned]))
    y = np.full(size + 64, np.nan, np.float32)
    params = [*d.Grid(shape, turned).split(2), 0, 0, 32]
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
