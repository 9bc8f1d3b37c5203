"""The transforms of Winograd convolution: exact matrices, and kernels against the matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from weft.backends.llvm.jit import compile_kernel
from weft.compiler.loop_ir.kernels import winograd as w
from weft.compiler.loop_ir.validate import validate
from weft.ops.internal.epilogue import BIAS

SIZES = [2, 4]


def floats(matrix: w.Matrix) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in matrix])


@pytest.mark.parametrize("m", SIZES)
def test_matrices_compute_a_correlation_exactly(m: int) -> None:
    at, g, bt = w.matrices(m)
    taps = [Fraction(2), Fraction(-3), Fraction(5)]
    values = [Fraction(i * i - 4) for i in range(m + 2)]

    def times(matrix: w.Matrix, x: list[Fraction]) -> list[Fraction]:
        return [sum((a * b for a, b in zip(row, x, strict=True)), Fraction(0)) for row in matrix]

    made = times(at, [a * b for a, b in zip(times(g, taps), times(bt, values), strict=True)])
    assert made == [sum(taps[k] * values[i + k] for k in range(3)) for i in range(m)]


@pytest.mark.parametrize("m", SIZES)
def test_kernels_are_valid(m: int) -> None:
    for kernel in (
        w.input_transform(m), w.gradient_transform(m), w.weight_transform(m), w.weight_gradient_transform(m),
        w.output_transform(m), w.output_transform(m, BIAS),
    ):  # fmt: skip
        validate(kernel)


def run(kernel: object, *arguments: object) -> None:
    compiled = compile_kernel(kernel)  # type: ignore[arg-type]
    compiled.call(*[a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments])


def image_facts(x: np.ndarray) -> list[int]:
    """Of an array (n, height, width, channels)."""
    n, height, width, c = x.shape
    return [0, height * width * c, width * c, c, height, width]


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize(("height", "width", "channels"), [(7, 9, 16), (4, 4, 3), (5, 8, 37)])
def test_input_transform_reads_zeros_outside(m: int, height: int, width: int, channels: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, height, width, channels)).astype(np.float32)
    down, across = -(-height // m), -(-width // m)
    tiles, n = 2 * down * across, m + 2
    v = np.full((n * n, tiles, channels), np.nan, np.float32)
    pad = (1, 1)
    grid = [0, across, down, *pad]
    run(w.input_transform(m), x, v, tiles, channels, tiles * channels, *grid, *image_facts(x))
    padded = np.zeros((2, down * m + 2, across * m + 2, channels))
    padded[:, 1 : height + 1, 1 : width + 1] = x
    bt = floats(w.matrices(m)[2])
    for t in range(tiles):
        image, row, column = t // (down * across), t // across % down, t % across
        tile = padded[image, row * m : row * m + n, column * m : column * m + n]
        wanted = np.einsum("ai,bj,ijc->abc", bt, bt, tile)
        np.testing.assert_allclose(v[:, t].reshape(n, n, channels), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", SIZES)
def test_output_transform_writes_every_pixel_once_and_nothing_else(m: int) -> None:
    rng = np.random.default_rng(1)
    height, width, channels = 7, 6, 21
    down, across, n = -(-height // m), -(-width // m), m + 2
    tiles = down * across
    v = rng.standard_normal((n * n, tiles, channels)).astype(np.float32)
    bias = rng.standard_normal(channels).astype(np.float32)
    guard = 64
    memory = np.full(guard + height * width * channels + guard, 7.0, np.float32)
    facts = image_facts(np.empty((1, height, width, channels), np.float32))
    facts[0] = guard
    grid = [0, across, down, 0, 0]
    kernel = w.output_transform(m, BIAS)
    run(kernel, v, bias, memory, tiles, channels, tiles * channels, *grid, *facts, 0)
    at = floats(w.matrices(m)[0])
    whole = np.einsum("ai,bj,ijyxc->yaxbc", at, at, v.reshape(n, n, down, across, channels))
    wanted = whole.reshape(down * m, across * m, channels)[:height, :width] + bias
    made = memory[guard:-guard].reshape(height, width, channels)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    assert (memory[:guard] == 7).all() and (memory[-guard:] == 7).all()


@pytest.mark.parametrize("m", SIZES)
def test_weight_transform_follows_strides(m: int) -> None:
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((5, 18, 3, 3)).astype(np.float32)
    n = m + 2
    u = np.empty((n * n, 5, 18), np.float32)
    sk, sc, sh, sw = (s // 4 for s in weight.strides)
    run(w.weight_transform(m), weight, u, 5, 18, 90, 2 * sh + 2 * sw, sk, sc, -sh, -sw)
    g = floats(w.matrices(m)[1])
    wanted = np.einsum("ai,bj,kcij->abkc", g, g, weight[:, :, ::-1, ::-1])
    np.testing.assert_allclose(u.reshape(n, n, 5, 18), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", SIZES)
def test_weight_gradient_transform_is_its_transpose(m: int) -> None:
    rng = np.random.default_rng(3)
    n = m + 2
    u = rng.standard_normal((n * n, 3, 20)).astype(np.float32)
    made = np.empty((3, 20, 3, 3), np.float32)
    run(w.weight_gradient_transform(m), u, made, 3, 20, 60, 0, 180, 9, 3, 1)
    g = floats(w.matrices(m)[1])
    wanted = np.einsum("ai,bj,abkc->kcij", g, g, u.reshape(n, n, 3, 20))
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
