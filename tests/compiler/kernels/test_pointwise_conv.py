"""Many rows times a small matrix: every row once, nothing else is written, tasks follow from sizes."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.llvm.jit import compile_kernel
from weft.backends.llvm.target import host
from weft.compiler.loop_ir.kernels import pointwise_conv as p
from weft.compiler.loop_ir.validate import validate
from weft.ops.internal.epilogue import BIAS, Input


@pytest.mark.parametrize("rows", [1, 7, 12, 100])
@pytest.mark.parametrize("columns", [8, 24, 32, 20, 64, 96])
def test_nothing_else_is_written(rows: int, columns: int) -> None:
    depth = 11
    rng = np.random.default_rng(columns)
    x, w = rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, columns), np.float32)
    y = np.full(rows * columns + 64, np.nan, np.float32)
    kernel = compile_kernel(validate(p.pointwise_conv(depth, columns, host())))
    kernel.call(x.ctypes.data, w.ctypes.data, y.ctypes.data, rows, *p.split(rows, columns, host()), 0, 0, 32)
    assert np.isnan(y[:32]).all() and np.isnan(y[-32:]).all()
    np.testing.assert_allclose(y[32:-32].reshape(rows, columns), x @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [24, 20, 96])
def test_the_epilogue(columns: int) -> None:
    rows, depth = 19, 11
    rng = np.random.default_rng(columns)
    x, w = rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, columns), np.float32)
    bias, other = rng.standard_normal(columns, np.float32), rng.standard_normal((rows, columns), np.float32)
    y = np.empty((rows, columns), np.float32)
    epilogue = BIAS.extended("add", Input(2)).extended("relu")
    kernel = compile_kernel(validate(p.pointwise_conv(depth, columns, host(), epilogue)))
    buffers = [a.ctypes.data for a in (x, w, bias, other, y)]
    kernel.call(*buffers, rows, *p.split(rows, columns, host()), 0, 0, 0, 0, 0)
    np.testing.assert_allclose(y, np.maximum(x @ w + bias + other, 0), rtol=1e-4, atol=1e-5)


def test_a_tile_fits_the_registers() -> None:
    for columns in range(8, 513):
        rows, wide, lanes = p.tile_of(columns, host())
        assert rows * -(-wide // lanes) <= 24
        assert not rows or columns % wide == 0


def test_tasks_cover_all_tiles() -> None:
    for rows in (1, 5, 48, 1000, 12544, 401408):
        for columns in (16, 24, 64, 96):
            each, tasks = p.split(rows, columns, host())
            tiles = -(-rows // p.tile_of(columns, host())[0])
            assert each * tasks >= tiles > each * (tasks - 1)
            assert each * p.tile_of(columns, host())[0] <= p.MAX_TASK_ROWS
