"""Kernels for machines other than this one: described, compiled to assembly, never run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.backends.llvm import target as machines
from weft.backends.llvm.emit import emit_kernel
from weft.compiler.loop_ir.ir import Kernel
from weft.compiler.loop_ir.kernels import attention, depthwise, recurrent
from weft.compiler.loop_ir.kernels.blocked_matmul import product_kernel
from weft.compiler.loop_ir.kernels.copy import copy_kernel
from weft.compiler.loop_ir.kernels.deep_matmul import deep_kernel
from weft.compiler.loop_ir.kernels.panels import pack_panels
from weft.compiler.loop_ir.kernels.pointwise_conv import pointwise_conv, tile_of
from weft.compiler.loop_ir.kernels.skinny_matmul import skinny_matmul
from weft.compiler.loop_ir.kernels.small_matmul import small_matmul
from weft.compiler.loop_ir.kernels.tiles import ROWS, accumulators, rows_beside, tile_columns
from weft.compiler.loop_ir.validate import validate
from weft.compiler.program.layout import Layout, Storage, row_major
from weft.compiler.target import Target, describe
from weft.ops.internal.epilogue import BIAS, IDENTITY
from weft.ops.nn.attention_call import Attention, Backward, Forward

F32 = np.dtype(np.float32)
TANH = IDENTITY.extended("tanh")
BYTES = {"float": 4, "double": 8, "i32": 4}
TARGETS = {
    "avx512": describe("x86_64-unknown-linux-gnu", "skylake-avx512", {"avx512f": True, "avx2": True, "fma": True}),
    "avx2": describe("x86_64-unknown-linux-gnu", "haswell", {"avx2": True, "avx": True, "fma": True, "avx512f": False}),
    "neon": describe("aarch64-unknown-linux-gnu", "cortex-a72", {"neon": True}),
}


def matrix(rows: int, columns: int, transposed: bool = False) -> Layout:
    shape = (rows, columns)
    return Layout(Storage("argument", 4), F32, shape, (1, rows) if transposed else row_major(shape))


def heads(*shape: int) -> Layout:
    return Layout(Storage("argument", 4), F32, shape, row_major(shape))


def product(t: Target) -> Kernel:
    a, b, c = matrix(300, 700), matrix(700, 80), matrix(300, 80)
    return product_kernel(a, b, c, t, BIAS.extended("relu"), [matrix(1, 80)])[0]


def transposed_product(t: Target) -> Kernel:
    return product_kernel(matrix(96, 64, True), matrix(64, 80, True), matrix(96, 80), t)[0]


def copied(t: Target) -> Kernel:
    shape = (64, 48)
    return copy_kernel(shape, (F32, F32), ((1, 64), 0), (row_major(shape), 0), t)


PARAMETERS = Attention(0.0, True, 0.5)


def attended(t: Target) -> Kernel:
    q, lse = heads(2, 64, 32), heads(2, 64)
    return attention.attention_forward(Forward(q, q, q, None, None, PARAMETERS), q, lse, t)


def attended_backward(t: Target) -> Kernel:
    q, lse = heads(2, 64, 32), heads(2, 64)
    call = Backward(q, None, q, q, q, None, None, q, lse, PARAMETERS, False)
    return attention.attention_backward(call, q, q, q, t)


def lstm(t: Target) -> Kernel:
    state = matrix(20, 64)
    return recurrent.lstm_step(matrix(20, 256), state, state, matrix(1, 256 * 64), state, state, matrix(20, 256), t)


def depthwise_conv(t: Target) -> Kernel:
    axis = depthwise.Axis(14, 14, 3, 1, 1, 1)
    return depthwise.convolution(depthwise.Shape(32, axis, axis), False, BIAS.extended("relu"), True)


KERNELS: dict[str, Callable[[Target], Kernel]] = {
    "product": product,
    "product of a transposed matrix": transposed_product,
    "deep product": lambda t: deep_kernel(matrix(48, 5000, True), matrix(5000, 72), matrix(48, 72), t)[0],
    "small product": lambda t: small_matmul(matrix(9, 33), matrix(33, 80), matrix(9, 80), t),
    "skinny product": lambda t: skinny_matmul(matrix(2, 100), matrix(100, 99, True), matrix(2, 99), t, TANH),
    "pointwise convolution": lambda t: pointwise_conv(24, 48, t, BIAS),
    "narrow pointwise convolution": lambda t: pointwise_conv(40, 3 * t.lanes // 2, t),
    "packing": lambda t: pack_panels(matrix(40, 200, True), heads(40 * 200), tile_columns(t), t),
    "transposing copy": copied,
    "attention": attended,
    "attention backward": attended_backward,
    "lstm": lstm,
    "depthwise convolution": depthwise_conv,
}  # fmt: skip


@pytest.fixture(scope="module")
def llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def wider_than(t: Target, ir: str) -> set[str]:
    """The vectors of numbers in LLVM IR that are longer than a register; indices and masks are split by LLVM."""
    found = {(int(n), kind) for n, kind in re.findall(r"<(\d+) x (float|double|i32)>", ir)}
    return {f"<{n} x {kind}>" for n, kind in found if n * BYTES[kind] > t.vector_bytes}


@pytest.mark.parametrize("name", ["avx2", "neon"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_vector_is_wider_than_the_targets(llvm: Any, kernel: str, name: str) -> None:
    t = TARGETS[name]
    made = KERNELS[kernel](t)
    validate(made)
    ir = emit_kernel(made, t, "kernel")
    llvm.parse_assembly(ir).verify()
    assert wider_than(t, ir) == set()
    assert f"<{t.lanes} x float>" in ir or f"<{t.lanes // 2} x float>" in ir, "the target's vectors are used"


@pytest.mark.parametrize(("name", "uses", "avoids"), [("avx2", "ymm", "zmm"), ("neon", "fmla", "mm0")])
@pytest.mark.parametrize("kernel", ["small product", "transposing copy"])
def test_assembly(llvm: Any, kernel: str, name: str, uses: str, avoids: str) -> None:
    t = TARGETS[name]
    text = machines.machine(t).emit_assembly(llvm.parse_assembly(emit_kernel(KERNELS[kernel](t), t, "kernel")))
    assert avoids not in text
    assert kernel == "transposing copy" or uses in text


@pytest.mark.parametrize("name", TARGETS)
def test_tiles_leave_registers_for_operands(name: str) -> None:
    t = TARGETS[name]
    vectors = tile_columns(t) // t.lanes
    assert ROWS * vectors + vectors + 1 <= t.registers
    assert rows_beside(t.lanes, t) == accumulators(t) and rows_beside(3 * t.lanes // 2, t) == accumulators(t) // 3
    for columns in range(8, 200, 8):
        rows, _, lanes = tile_of(columns, t)
        assert rows * -(-min(columns, 6 * t.lanes) // lanes) <= accumulators(t) or columns > 6 * t.lanes


def test_facts_of_described_targets() -> None:
    assert [t.lanes for t in TARGETS.values()] == [16, 8, 4]
    assert [t.registers for t in TARGETS.values()] == [32, 16, 32]
    assert [tile_columns(t) for t in TARGETS.values()] == [64, 16, 16]
    assert TARGETS["avx2"].l2_bytes < TARGETS["avx512"].l2_bytes
