"""Generated depthwise convolutions in captured functions: results against float64, and which nodes qualify."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.llvm.target import host
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.compiler.lowering.rules import depthwise
from weft.ops.nn.window import Window
from weft.runtime import threads

pytestmark = pytest.mark.skipif(not library.available(), reason="the other way is oneDNN's")


class Case(NamedTuple):
    images: int
    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: Any = ((1, 1), (1, 1))
    dilation: tuple[int, int] = (1, 1)

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(
            (self.size[i] + sum(self.padding[i]) - (self.kernel[i] - 1) * self.dilation[i] - 1) // self.stride[i] + 1
            for i in range(2)
        )


CASES = {
    "usual": Case(2, 32, (16, 14)),
    "stride 2, even": Case(2, 16, (12, 14), stride=(2, 2)),
    "stride 2, odd": Case(1, 24, (15, 13), stride=(2, 2)),
    "channels that fill no vector": Case(2, 37, (9, 9)),
    "no padding": Case(1, 16, (11, 23), padding=((0, 0), (0, 0))),
    "padding on one side": Case(2, 16, (10, 9), padding=((2, 0), (0, 3))),
    "5 x 5": Case(2, 16, (14, 14), (5, 5), padding=((2, 2), (2, 2))),
    "5 x 5, stride 2": Case(1, 40, (14, 14), (5, 5), (2, 2), ((2, 2), (2, 2))),
    "7 x 7": Case(1, 16, (14, 21), (7, 7), padding=((3, 3), (3, 3))),
    "3 x 1": Case(1, 16, (9, 9), (3, 1), padding=((1, 1), (0, 0))),
    "different strides": Case(1, 16, (13, 12), stride=(1, 2)),
    "stride beyond the window": Case(1, 16, (13, 13), stride=(4, 4)),
    "dilation": Case(1, 16, (24, 24), padding=((2, 2), (2, 2)), dilation=(2, 2)),
    "one row": Case(3, 16, (1, 20)),
    "windows in the padding": Case(1, 16, (4, 40), padding=((4, 4), (1, 1))),
    "many images": Case(40, 16, (3, 3)),
}


def arrays(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(case.channels)

    def image(size: tuple[int, ...]) -> np.ndarray:
        made = rng.standard_normal((case.images, *size, case.channels), np.float32)
        return made.transpose(0, 3, 1, 2)

    w = rng.standard_normal((case.channels, 1, *case.kernel), np.float32)
    return [image(case.size), w, rng.standard_normal(case.channels, np.float32), image(case.out)]


def exact(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """Result, gradient of x and gradient of w, in float64."""
    x, w, b, g = (a.astype(np.float64) for a in (x, w, b, g))
    padded = np.pad(x, ((0, 0), (0, 0), *case.padding))
    y, dx, dw = np.zeros(g.shape), np.zeros(padded.shape), np.zeros(w.shape)

    def along(axis: int, tap: int) -> slice:
        start, step = tap * case.dilation[axis], case.stride[axis]
        return slice(start, start + (case.out[axis] - 1) * step + 1, step)

    for i, j in np.ndindex(*case.kernel):
        window = (slice(None), slice(None), along(0, i), along(1, j))
        y += padded[window] * w[:, 0, i, j, None, None]
        dx[window] += g * w[:, 0, i, j, None, None]
        dw[:, 0, i, j] = (padded[window] * g).sum((0, 2, 3))
    (top, _), (left, _) = case.padding
    height, width = x.shape[2:]
    return [y + b[:, None, None], dx[:, :, top : top + height, left : left + width], dw]


def captured(case: Case, way: str, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], str]:
    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor, b: wf.Tensor, g: wf.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = F.conv2d(x, w, b, case.stride, case.padding, case.dilation, case.channels)
        return (y, *wf.grad((y * g).sum(), [x, w]))

    with tuning.forced(way):
        results = f(*map(wf.asarray, inputs))
        return [r.numpy() for r in results], f.explain()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_result_and_gradients(case: Case) -> None:
    inputs = arrays(case)
    made, explained = captured(case, "depthwise", inputs)
    for got, wanted in zip(made, exact(case, *inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())
    assert explained.count("depthwise (forced)") == 3


def test_plain_layouts_and_no_bias() -> None:
    """Images that are not channels-last are brought there; a result wanted otherwise is copied."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 20, 8, 8), np.float32), rng.standard_normal((20, 1, 3, 3), np.float32)

    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor) -> wf.Tensor:
        return F.conv2d(x, w.transpose(2, 3), padding=1, groups=20)

    with tuning.forced("depthwise"):
        made = f(*map(wf.asarray, (x, w))).numpy()
    case = Case(2, 20, (8, 8))
    wanted = exact(case, x, w.transpose(0, 1, 3, 2), np.zeros(20), np.zeros((2, 20, 8, 8)))[0]
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_large_results_pass_the_caches_by() -> None:
    case = Case(2, 64, (96, 96))
    assert 4 * 2 * 64 * 96 * 96 >= host().l3_bytes // 4
    inputs = arrays(case)
    made, _ = captured(case, "depthwise", inputs)
    wanted, _ = captured(case, "direct", inputs)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * np.abs(b).max())


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    case = Case(3, 48, (28, 28))
    inputs = arrays(case)
    before = threads.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            threads.set_num_threads(count)
            results.append(captured(case, "depthwise", inputs)[0])
    finally:
        threads.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("residual", [False, True])
def test_frozen_functions_take_what_follows(residual: bool) -> None:
    case = Case(2, 24, (10, 10))
    x, w, b, other = arrays(case)
    weight, bias = wf.asarray(w), wf.asarray(b)

    def plain(x: wf.Tensor, other: wf.Tensor) -> wf.Tensor:
        y = F.conv2d(x, weight, bias, padding=1, groups=24)
        return F.relu6(y + other if residual else y)

    f = wf.function(plain, freeze=True)
    with tuning.forced("depthwise"), wf.no_grad():
        made = f(wf.asarray(x), wf.asarray(other)).numpy()
    wanted = exact(case, x, w, b, other)[0]
    wanted = np.clip(wanted + other if residual else wanted, 0, 6)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    assert "depthwise convolution + " in f.explain()


def test_which_convolutions_qualify() -> None:
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    image = (2, 32, 14, 14)
    assert depthwise.suits(image, image, window, 32)
    assert not depthwise.suits(image, (2, 64, 14, 14), window, 32)  # two filters per channel
    assert not depthwise.suits(image, image, window, 1)
    assert not depthwise.suits((2, 32, 14), (2, 32, 14), Window((3,), (1,), ((1, 1),), (1,)), 32)
    wide = Window((1, 25), (1, 1), ((0, 0), (12, 12)), (1, 1))
    assert not depthwise.suits(image, image, wide, 32)  # each column has separate code
    many = (2, 4096, 14, 14)
    assert not depthwise.suits(many, many, window, 4096)
