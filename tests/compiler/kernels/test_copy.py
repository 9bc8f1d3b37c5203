"""Copies between any two layouts of one shape: every element once, nothing else is written."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.backends.llvm.jit import compile_kernel
from weft.backends.llvm.target import host
from weft.compiler.loop_ir.ir import Kernel, Loop, Statement, Transpose
from weft.compiler.loop_ir.kernels.copy import copy_kernel


def strides_in_order(shape: tuple[int, ...], order: tuple[int, ...], gap: int = 0) -> tuple[int, ...]:
    """Strides of an array whose axes lie in memory in this order, outermost first; `gap` numbers after every row."""
    strides, step = [0] * len(shape), 1
    for n, axis in enumerate(reversed(order)):
        strides[axis] = step
        step = step * shape[axis] + (gap if n == 0 else 0)
    return tuple(strides)


def run(kernel: Kernel, source: np.ndarray, extent: int) -> np.ndarray:
    target = np.full(extent + 32, 77, source.dtype)
    compile_kernel(kernel).call(source.ctypes.data, target.ctypes.data)
    return target


def check(shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], dtype: np.dtype) -> Kernel:
    reach = lambda strides: sum((d - 1) * st for d, st in zip(shape, strides, strict=True)) + 1
    numbers = np.arange(reach(source) + 16).astype(dtype)
    kernel = copy_kernel(shape, (dtype, dtype), (source, 3), (target, 16), host())
    out = run(kernel, numbers, 16 + reach(target))
    view = lambda x, strides, at: np.lib.stride_tricks.as_strided(
        x[at:], shape, [st * dtype.itemsize for st in strides]
    )
    np.testing.assert_array_equal(view(out, target, 16), view(numbers, source, 3))
    view(out, target, 16)[...] = 77
    assert (out == 77).all()
    return kernel


def turns(kernel: Kernel) -> bool:
    def holds(statements: tuple[Statement, ...]) -> bool:
        return any(isinstance(x, Transpose) or (isinstance(x, Loop) and holds(x.body)) for x in statements)

    return holds(kernel.body)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.int8])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_three_axes_in_any_order(order: tuple[int, ...], dtype: type) -> None:
    shape = (21, 35, 19)
    kernel = check(shape, strides_in_order(shape, (0, 1, 2)), strides_in_order(shape, order), np.dtype(dtype))
    assert turns(kernel) == (order[-1] != 2 and np.dtype(dtype).itemsize == 4)


@pytest.mark.parametrize("shape", [(16, 16), (64, 64), (200, 1000), (1000, 17), (15, 400), (1, 40), (40, 1)])
def test_a_matrix_is_turned_whatever_its_size(shape: tuple[int, int]) -> None:
    check(shape, strides_in_order(shape, (0, 1), gap=5), strides_in_order(shape, (1, 0), gap=3), np.dtype(np.float32))


def test_blocks_of_weights() -> None:
    """(out, in, 3, 3) to blocks of 48 outputs: out/48, 3, 3, in, 48."""
    shape = (4, 48, 40, 9)
    kernel = check(
        shape, strides_in_order(shape, (0, 1, 2, 3)), strides_in_order(shape, (0, 3, 2, 1)), np.dtype(np.float32)
    )
    assert not turns(kernel)  # nine numbers are dense in the source, too few for a square
    shape = (4, 48, 40)
    assert turns(
        check(shape, strides_in_order(shape, (0, 1, 2)), strides_in_order(shape, (0, 2, 1)), np.dtype(np.float32))
    )


def test_layouts_that_run_backwards_or_repeat() -> None:
    shape = (20, 24)
    x = np.arange(24 * 20, dtype=np.float32)
    kernel = copy_kernel(shape, (x.dtype, x.dtype), ((1, -20), 23 * 20), ((24, 1), 0), host())
    expected = x.reshape(24, 20)[::-1].T
    np.testing.assert_array_equal(run(kernel, x, 480)[:480].reshape(shape), expected)
    kernel = copy_kernel(shape, (x.dtype, x.dtype), ((1, 0), 0), ((24, 1), 0), host())
    np.testing.assert_array_equal(run(kernel, x, 480)[:480].reshape(shape), np.repeat(x[:20, None], 24, 1))
