"""Tiled loops over operands with different fastest axes."""

import numpy as np

from weft.backends.llvm.target import host
from weft.compiler.loop_ir.kernels.tiled import tiled_elementwise
from weft.compiler.loop_ir.validate import validate
from weft.ops.core import scalar as s

F32 = np.dtype(np.float32)


def test_a_turned_operand_goes_through_a_tile():
    kernel = validate(
        tiled_elementwise([s.arg(0, F32) + s.arg(1, F32)], [F32, F32], [F32], 3, (True, False), (2, 1, 1), host())
    )
    lines = [line.strip() for line in str(kernel).splitlines()]
    assert "local tile0: float32[64, 64]" in lines
    assert "tile0[p0, q0] = x0[row, start_i + p0, start_j + q0]" in lines
    assert "let v0 = tile0[i, j] + x1[row, start_i + i, start_j + j]" in lines
