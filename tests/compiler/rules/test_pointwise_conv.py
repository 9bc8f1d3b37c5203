"""Generated pointwise (1 x 1) convolutions in captured functions: results against float64, and which nodes qualify."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.llvm.target import host
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.compiler.lowering.rules import pointwise_conv
from weft.compiler.target import describe
from weft.runtime import threads

AVX512 = describe("x86_64-unknown-linux-gnu", "skylake-avx512", {"avx512f": True, "fma": True})
pytestmark = pytest.mark.skipif(not library.available(), reason="the other way is oneDNN's")


class Case(NamedTuple):
    images: int
    inputs: int
    outputs: int
    size: tuple[int, int]


CASES = {
    "half vectors": Case(2, 96, 24, (14, 13)),
    "one half vector": Case(1, 40, 8, (9, 9)),
    "channels that fill no vector": Case(2, 21, 37, (9, 7)),
    "one panel": Case(3, 16, 64, (11, 5)),
    "panels of 96": Case(1, 24, 192, (10, 10)),
    "panels of 64": Case(2, 33, 128, (7, 9)),
    "panels of 48": Case(1, 24, 144, (8, 8)),
    "fewer pixels than a tile has rows": Case(1, 16, 16, (1, 2)),
    "rows that fill no tile": Case(1, 16, 32, (17, 1)),
    "many tasks": Case(40, 8, 16, (28, 28)),
}


def arrays(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(case.inputs)

    def image(channels: int) -> np.ndarray:
        return rng.standard_normal((case.images, *case.size, channels), np.float32).transpose(0, 3, 1, 2)

    w = rng.standard_normal((case.outputs, case.inputs, 1, 1), np.float32)
    return [image(case.inputs), w, rng.standard_normal(case.outputs, np.float32), image(case.outputs)]


def captured(way: str, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], str]:
    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor, b: wf.Tensor, g: wf.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = F.conv2d(x, w, b)
        return (y, *wf.grad((y * g).sum(), [x]))

    with tuning.forced(way):
        results = f(*map(wf.asarray, inputs))
        return [r.numpy() for r in results], f.explain()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_result_and_gradient(case: Case) -> None:
    inputs = arrays(case)
    x, w, b, g = (a.astype(np.float64) for a in inputs)
    made, explained = captured("pointwise", inputs)
    expected = [
        np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0]) + b[:, None, None],
        np.einsum("nkhw,kc->nchw", g, w[:, :, 0, 0]),
    ]
    for got, wanted in zip(made, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())
    ways = 1 + pointwise_conv.suits(case.outputs, case.inputs, host())  # 33 input channels are no panel of a gradient
    assert explained.count("pointwise (forced)") == ways


def test_plain_layouts_and_turned_weights() -> None:
    """Images that are not channels-last are copied; weights may have any strides."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 20, 8, 8), np.float32), rng.standard_normal((20, 24, 1, 1), np.float32)

    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor) -> wf.Tensor:
        return F.conv2d(x, w.transpose(0, 1))

    with tuning.forced("pointwise"):
        made = f(*map(wf.asarray, (x, w))).numpy()
    np.testing.assert_allclose(made, np.einsum("nchw,ck->nkhw", x, w[:, :, 0, 0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("residual", [False, True])
def test_frozen_functions_take_what_follows(residual: bool) -> None:
    x, w, b, other = arrays(Case(2, 96, 24, (10, 10)))
    weight, bias = wf.asarray(w), wf.asarray(b)

    def plain(x: wf.Tensor, other: wf.Tensor) -> wf.Tensor:
        y = F.conv2d(x, weight, bias)
        return F.relu6(y + other if residual else y)

    f = wf.function(plain, freeze=True)
    with tuning.forced("pointwise"), wf.no_grad():
        made = f(wf.asarray(x), wf.asarray(other)).numpy()
        assert "pointwise (forced)" in f.explain()
    wanted = np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0]) + b[:, None, None]
    np.testing.assert_allclose(made, np.clip(wanted + other if residual else wanted, 0, 6), rtol=1e-4, atol=1e-4)


def test_bits_depend_neither_on_threads_nor_on_the_number_of_images() -> None:
    inputs = arrays(Case(6, 48, 24, (30, 31)))
    before = threads.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            threads.set_num_threads(count)
            results.append(captured("pointwise", inputs)[0])
    finally:
        threads.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    x, w, bias, g = inputs
    one = captured("pointwise", [x[:1], w, bias, g[:1]])[0]
    for a, b in zip(results[0], one, strict=True):
        np.testing.assert_array_equal(a[:1], b)


def test_nan_and_infinity_stay_in_their_pixel() -> None:
    x, w, b, g = arrays(Case(1, 16, 24, (12, 12)))
    x = x.copy()
    x[0, 3, 5, 7], x[0, 2, 6, 1] = np.nan, np.inf
    y = captured("pointwise", [x, w, b, g])[0][0]
    assert np.isnan(y[0, :, 5, 7]).all() and not np.isfinite(y[0, :, 6, 1]).any()
    assert np.isfinite(y).sum() == y.size - 2 * 24


def test_which_convolutions_qualify() -> None:
    assert (
        pointwise_conv.suits(96, 24, AVX512)
        and pointwise_conv.suits(16, 96, AVX512)
        and pointwise_conv.suits(256, 128, AVX512)
    )
    assert not pointwise_conv.suits(512, 128, AVX512)  # a matrix that is too large for the cache
    assert not pointwise_conv.suits(16, 100, AVX512)  # no panels without a rest
    assert not pointwise_conv.suits(3, 16, AVX512)
    x, w, b, _ = arrays(Case(2, 16, 16, (8, 8)))

    @wf.function
    def strided(x: wf.Tensor, w: wf.Tensor, b: wf.Tensor) -> Any:
        return F.conv2d(x, w, b, 2), F.conv2d(x, w, b, padding=1)

    with tuning.forced("pointwise"):
        strided(*map(wf.asarray, (x, w, b)))
        assert "pointwise (" not in strided.explain()
