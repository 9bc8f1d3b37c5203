"""A few rows times a matrix that lies transposed: the numbers of the plain product, for all sizes it takes."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.llvm.target import host
from weft.compiler.loop_ir.kernels import skinny_matmul as f
from weft.compiler.loop_ir.validate import validate
from weft.compiler.program.layout import Layout, Storage, row_major
from weft.compiler.program.steps import KernelCall
from weft.ops.internal.epilogue import BIAS, IDENTITY, Input
from weft.runtime.program import Program

FLOAT = np.dtype(np.float32)


def layout(i: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Layout:
    return Layout(Storage("argument", 4 * int(np.prod(shape)), index=i), FLOAT, shape, strides or row_major(shape))


def run(x: np.ndarray, w: np.ndarray, epilogue=IDENTITY, operands=()) -> np.ndarray:
    """The epilogue of x @ w.T, by the kernel; w is (columns, depth)."""
    y = np.zeros((x.shape[0], w.shape[0]), FLOAT)
    places = [layout(0, x.shape), layout(1, w.T.shape, (1, w.shape[1]))]
    places += [layout(2 + i, z.shape) for i, z in enumerate(operands)]
    places.append(layout(len(places), y.shape))
    assert f.suits(*places[:2])
    kernel = f.skinny_matmul(places[0], places[1], places[-1], host(), epilogue, places[2:-1])
    validate(kernel)
    storages = [p.storage for p in places]
    step = KernelCall("few rows", [], storages[:-1], storages[-1:], kernel, storages)
    Program("p", [step], [], 0, places, [], [])([x, w.T, *operands, y], [])
    return y


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("depth", "columns"), [(64, 256), (384, 1152), (67, 256), (1000, 16), (130, 512), (96, 1000), (80, 333), (9000, 2)]
)
def test_the_product(rows, depth, columns):
    rng = np.random.default_rng(depth + rows)
    if depth * columns < f.MIN_MATRIX_ELEMENTS:
        depth = f.MIN_MATRIX_ELEMENTS // columns + depth % 16
    x, w = rng.standard_normal((rows, depth), FLOAT), rng.standard_normal((columns, depth), FLOAT)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose(run(x, w), exact, rtol=0, atol=1e-6 * depth**0.5 * 10)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_epilogue(rows):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((rows, 128), FLOAT), rng.standard_normal((256, 128), FLOAT)
    bias, other = rng.standard_normal((1, 256), FLOAT), rng.standard_normal((rows, 256), FLOAT)
    epilogue = BIAS.extended("relu").extended("multiply", Input(2)).extended("tanh")
    got = run(x, w, epilogue, (bias, other))
    np.testing.assert_allclose(got, np.tanh(np.maximum(x @ w.T + bias, 0) * other), rtol=1e-4, atol=1e-4)


def test_what_it_does_not_take():
    x = layout(0, (1, 256))
    assert f.suits(x, layout(1, (256, 128), (1, 256)))
    assert not f.suits(layout(0, (5, 256)), layout(1, (256, 128), (1, 256)))  # many rows
    assert not f.suits(x, layout(1, (256, 128)))  # columns far apart
    assert not f.suits(layout(0, (1, 16)), layout(1, (16, 4096), (1, 16)))  # short rows
