"""Column sums of many rows, in blocks of rows with partial sums, against NumPy in float64; and look-ups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm.target import host
from weft.compiler.lowering.nests import BLOCK_ROWS, MIN_BLOCK_ELEMENTS, block_rows, cached_elements
from weft.runtime import threads

# whole blocks, a shorter last block, few columns, odd columns, many rows, wide rows
SHAPES = [(128, 512), (1003, 64), (40_000, 3), (517, 129), (70_000, 16), (64, 4096), (33, 5000)]


def _gradients(g: Any, y: Any) -> Any:
    d = wf.where(y > 0, g, 0.0)
    return d, d.sum(axis=0)


def _pair(shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]


def _kernels(step: Any) -> list[str]:
    return [str(s.kernel) for s in step.traces[0].compiled.program.steps if s.kernel is not None]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_that_are_stored_and_summed_over_rows(shape: tuple[int, int]) -> None:
    g, y = _pair(shape)
    step = wf.function(_gradients)
    stored, total = (t.numpy() for t in step(wf.tensor(g), wf.tensor(y)))
    (kernel,) = _kernels(step)
    assert ("for block <" in kernel) == (block_rows(*shape, host()) > 0)
    expected = np.where(y > 0, g, 0)
    np.testing.assert_array_equal(stored, expected)
    bound = 2e-6 * np.abs(expected).sum(axis=0).max()
    np.testing.assert_allclose(total, expected.astype(np.float64).sum(axis=0), atol=bound)


def test_sums_have_the_same_bits_for_any_number_of_threads() -> None:
    g, y = (wf.tensor(x) for x in _pair((3001, 200)))
    step = wf.function(_gradients)
    before = threads.get_num_threads()
    found = []
    for width in (1, 2):
        wf.set_num_threads(width)
        found.append([t.numpy() for t in step(g, y)])
    wf.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_several_reductions_and_what_follows_from_them() -> None:
    x, weight = _pair((2000, 96))
    weight = weight[0]

    def step(x: Any, w: Any) -> Any:
        y = x * 2.0
        total, top, some = y.sum(axis=0), y.max(axis=0), (y > 6.0).any(axis=0)
        return y, w - 0.5 * total, top, some

    y, moved, top, some = (t.numpy() for t in wf.function(step)(wf.tensor(x), wf.tensor(weight)))
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_allclose(moved, weight - x.astype(np.float64).sum(axis=0), atol=1e-3)
    np.testing.assert_array_equal(top, 2 * x.max(axis=0))
    np.testing.assert_array_equal(some, (2 * x > 6).any(axis=0))


def test_equal_clusters_have_blocks_of_their_own() -> None:
    (a, b), (c, d) = _pair((1024, 64)), _pair((1024, 64))
    c, d = c + 1, d - 0.5

    def step(*args: Any) -> Any:
        first = _gradients(*args[:2])
        return *first, *_gradients(args[2] * first[1], args[3])

    found = [t.numpy() for t in wf.function(step)(*[wf.tensor(x) for x in (a, b, c, d)])]
    one = np.where(b > 0, a, 0).astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(found[1], one, atol=1e-3)
    np.testing.assert_allclose(found[3], np.where(d > 0, c * one, 0).sum(axis=0), rtol=1e-4, atol=2e-2)


def test_values_that_need_a_sum_walk_a_second_time() -> None:
    x, _ = _pair((3000, 80))

    def centre(x: Any) -> Any:
        y = x - x.mean(axis=0)
        return y, (y * y).sum(axis=0)

    y, spread = (t.numpy() for t in wf.function(centre)(wf.tensor(x)))
    expected = x - x.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    np.testing.assert_allclose(spread, (expected**2).sum(axis=0), rtol=1e-5)


def test_half_precision_is_summed_in_float32() -> None:
    g, y = (x.astype(np.float16) for x in _pair((4096, 32)))
    _, total = (t.numpy() for t in wf.function(_gradients)(wf.tensor(g), wf.tensor(y)))
    np.testing.assert_allclose(total, np.where(y > 0, g, 0).astype(np.float64).sum(axis=0), rtol=2e-3, atol=2e-2)


def test_the_size_of_a_block_depends_on_the_shape() -> None:
    assert block_rows(8, 512, host()) == 0, "too few elements"
    assert block_rows(1 << 20, cached_elements(host()) + 1, host()) == 0, "too wide"
    assert block_rows(128, 512, host()) == MIN_BLOCK_ELEMENTS // 512
    assert block_rows(16384, 256, host()) == 256
    assert block_rows(1 << 22, 64, host()) == BLOCK_ROWS[1]


def test_looked_up_rows_are_asked_for_ahead_and_right_to_the_last():
    table = np.random.default_rng(0).standard_normal((50, 48), np.float32)
    index = np.array([3, -1, 49, 0, 3, -50, 7, 49])
    function = wf.function(lambda t, i: t[i] * 2.0)
    np.testing.assert_array_equal(function(wf.tensor(table), wf.tensor(index)).numpy(), table[index] * 2)
    (trace,) = function._traces.values()
    (kernel,) = [str(st.kernel) for st in trace.compiled.program.steps if st.label.startswith("take_axis")]
    assert kernel.count("prefetch") == 1
