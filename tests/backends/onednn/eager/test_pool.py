"""Pooling against plain loops in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.backends.onednn import reference
from weft.backends.onednn import eager
from weft.backends.onednn.capi import Unsupported
from weft.backends.onednn.eager.staging import is_channels_last
from weft.ops.nn.window import Window

Ints = tuple[int, ...]
Settings = tuple[Ints, Ints, Ints, tuple[tuple[int, int], ...]]

CASES: dict[str, Settings] = {
    "resnet": ((2, 16, 11, 11), (3, 3), (2, 2), ((1, 1), (1, 1))),
    "vgg": ((2, 7, 8, 8), (2, 2), (2, 2), ((0, 0), (0, 0))),
    "ceil mode": ((1, 3, 8, 8), (3, 3), (2, 2), ((0, 1), (0, 1))),
    "global": ((2, 33, 7, 5), (7, 5), (1, 1), ((0, 0), (0, 0))),
    "overlapping 1-d": ((2, 5, 17), (5,), (2,), ((2, 2),)),
    "3-d": ((1, 4, 5, 6, 7), (2, 3, 2), (2, 1, 2), ((0, 1), (1, 1), (1, 0))),
}


def random(rng: np.random.Generator, shape: Ints) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    assert is_channels_last(actual)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def check_all(rng: np.random.Generator, case: Settings) -> None:
    shape, kernel, stride, padding = case
    ones = (1,) * len(kernel)
    window = Window(kernel, stride, padding, ones)
    x = random(rng, shape)
    y, workspace = eager.max_pool_forward(x, window)
    check(y, reference.max_pool(x, kernel, stride, padding, ones))
    g = random(rng, y.shape)
    expected = reference.max_pool_backward(x, g, kernel, stride, padding, ones)
    check(eager.max_pool_backward(g, workspace, shape, window), expected)
    for include in (False, True):
        check(eager.avg_pool_forward(x, window, include),
              reference.avg_pool(x, kernel, stride, padding, include))  # fmt: skip
        check(eager.avg_pool_backward(g, shape, window, include),
              reference.avg_pool_backward(g, shape, kernel, stride, padding, include))  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cases(rng: np.random.Generator, name: str) -> None:
    check_all(rng, CASES[name])


@st.composite
def cases(draw: st.DrawFn) -> Settings:
    spatial = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(spatial))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(spatial))
    padding = tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in kernel)
    sizes = tuple(draw(st.integers(1, 9)) for _ in range(spatial))
    out = reference.output_sizes(sizes, kernel, stride, padding, (1,) * spatial)
    assume(all(n > 0 for n in out))
    # The last window must meet the image.
    assume(all((o - 1) * s - p[0] < n for o, s, p, n in zip(out, stride, padding, sizes, strict=True)))
    return (draw(st.integers(1, 3)), draw(st.integers(1, 40)), *sizes), kernel, stride, padding


@settings(max_examples=30, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_any_case(case: Settings, seed: int) -> None:
    check_all(np.random.default_rng(seed), case)


def test_of_equal_elements_the_first_gets_the_gradient() -> None:
    x, g = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float32)
    window = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    _, workspace = eager.max_pool_forward(x, window)
    dx = eager.max_pool_backward(g, workspace, x.shape, window)
    np.testing.assert_array_equal(dx[0, 0], [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])


def test_a_foreign_workspace_is_refused() -> None:
    window = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    g = np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(ValueError, match="not a workspace of this pooling"):
        eager.max_pool_backward(g, np.zeros(1, np.uint8), (1, 1, 4, 4), window)


def test_bad_arguments() -> None:
    x = np.ones((1, 2, 5, 5), np.float32)
    none = ((0, 0), (0, 0))
    with pytest.raises(ValueError, match="bad kernel"):
        eager.max_pool_forward(x, Window((2,), (1,), ((0, 0),), (1,)))
    with pytest.raises(ValueError, match="larger than the padded input"):
        eager.max_pool_forward(x, Window((6, 6), (1, 1), none, (1, 1)))
    with pytest.raises(Unsupported, match="wholly in the padding"):
        eager.max_pool_forward(x, Window((2, 2), (1, 1), ((2, 0), (0, 0)), (1, 1)))
    with pytest.raises(Unsupported, match="wholly in the padding"):
        eager.avg_pool_forward(x, Window((2, 2), (3, 3), ((0, 5), (0, 0)), (1, 1)), False)
    with pytest.raises(Unsupported, match="dilation"):
        eager.max_pool_forward(x, Window((2, 2), (1, 1), none, (2, 1)))
    with pytest.raises(Unsupported, match="empty"):
        eager.max_pool_forward(x[:0], Window((2, 2), (1, 1), none, (1, 1)))
    with pytest.raises(Unsupported, match="integers"):
        eager.avg_pool_forward(x.astype(np.int64), Window((2, 2), (1, 1), none, (1, 1)), True)
    with pytest.raises(ValueError, match="g has the wrong shape"):
        eager.avg_pool_backward(x, x.shape, Window((2, 2), (1, 1), none, (1, 1)), True)
