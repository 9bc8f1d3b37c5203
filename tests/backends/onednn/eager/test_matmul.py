"""`eager.matmul` against NumPy in float64, for every way an operand can lie in memory."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.onednn import eager
from weft.backends.onednn.capi import Unsupported
from weft.backends.onednn.eager.matmul import _prepare
from weft.runtime import memory, threads

BF16 = np.dtype(ml_dtypes.bfloat16)


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(actual: np.ndarray, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> None:
    expected = a.astype(np.float64) @ b.astype(np.float64)
    if bias is not None:
        expected = expected + bias
    assert actual.dtype == a.dtype and actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


# Each layout takes an array's final shape to an array of that shape lying differently in memory.
def _plain(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random(rng, *shape)


def _transposed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random(rng, *shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)


def _sliced(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random(rng, *shape[:-1], shape[-1] + 5)[..., 2:-3]


def _stepped(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random(rng, *shape[:-1], shape[-1] * 2)[..., ::2]


def _reversed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random(rng, *shape)[..., ::-1, :]


def _heads(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Axes -2 and -3 exchanged in memory, as attention heads lie."""
    if len(shape) < 3:
        return random(rng, *shape)
    return random(rng, *shape[:-3], shape[-2], shape[-3], shape[-1]).swapaxes(-2, -3)


def _repeated(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(random(rng, *shape[-2:]), shape)


LAYOUTS = [_plain, _transposed, _sliced, _stepped, _reversed, _heads, _repeated]
Layout = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_layouts(rng: np.random.Generator, batch: tuple[int, ...], left: Layout, right: Layout) -> None:
    a, b = left(rng, (*batch, 9, 6)), right(rng, (*batch, 6, 11))
    result = eager.matmul(a, b)
    check(result, a, b)
    assert result.flags.c_contiguous


@pytest.mark.parametrize("layout", [_plain, _transposed, _sliced, _stepped, _reversed])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("biased", [False, True])
def test_out(rng: np.random.Generator, batch: tuple[int, ...], layout: Layout, biased: bool) -> None:
    a, b, out = random(rng, *batch, 9, 6), random(rng, *batch, 6, 11), layout(rng, (*batch, 9, 11))
    bias = random(rng, 22)[::2] if biased else None
    assert eager.matmul(a, b, out, bias) is out
    check(out, a, b, bias)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 20), st.integers(1, 20),
    st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2,), (2,)), ((1,), (3,)), ((2, 1), (3,)), ((2, 3), (2, 3))]),
    st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_shape(
    m: int, k: int, n: int, batches: tuple[tuple[int, ...], tuple[int, ...]], left: Layout, right: Layout, biased: bool,
    seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    a, b = left(rng, (*batches[0], m, k)), right(rng, (*batches[1], k, n))
    bias = random(rng, n) if biased else None
    check(eager.matmul(a, b, bias=bias), a, b, bias)


def test_large_results_come_from_the_pool(rng: np.random.Generator) -> None:
    result = eager.matmul(random(rng, 200, 10), random(rng, 10, 200))
    assert memory.is_pooled(result)


def test_a_batch_that_shares_its_right_operand_is_one_product(rng: np.random.Generator) -> None:
    a, b = random(rng, 4, 5, 6), random(rng, 6, 7)
    assert [argument.desc.shape for argument in _prepare(a, b, None, None).kernel.work.arguments][:3] == [
        (20, 6),
        (6, 7),
        (20, 7),
    ]


def test_bfloat16_accumulates_in_float32(rng: np.random.Generator) -> None:
    a, b = random(rng, 16, 512).astype(BF16), random(rng, 512, 16).astype(BF16)
    result = eager.matmul(a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=2**-7, atol=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64, np.dtype(">f4")])
def test_unsupported_dtypes(dtype: type) -> None:
    a = np.ones((4, 4), dtype)
    for _ in range(2):  # the refusal is remembered
        with pytest.raises(Unsupported):
            eager.matmul(a, a)


def test_empty_operands_are_the_callers() -> None:
    for shape_a, shape_b in (((0, 3), (3, 2)), ((2, 0), (0, 2)), ((0, 2, 3), (3, 2))):
        with pytest.raises(Unsupported, match="empty operands"):
            eager.matmul(np.ones(shape_a, np.float32), np.ones(shape_b, np.float32))


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((_ones(3), _ones(3, 2)), ValueError, "must be matrices"),
        ((_ones(2, 3), _ones(4, 2)), ValueError, r"inner dimensions differ. Got shapes \(2, 3\) and \(4, 2\)"),
        ((_ones(2, 2, 3), _ones(3, 3, 2)), ValueError, "batch axes do not broadcast"),
        ((_ones(2, 3), _ones(3, 2).astype(np.float64)), TypeError, "dtypes differ"),
        (
            (_ones(2, 3), _ones(3, 2), _ones(2, 3)),
            ValueError,
            r"out has the wrong shape. Got \(2, 3\); expected \(2, 2\)",
        ),
        ((_ones(2, 3), _ones(3, 2), None, _ones(3)), ValueError, "bias has the wrong shape"),
        ((_ones(2, 3), _ones(3, 2), np.broadcast_to(_ones(1, 1), (2, 2))), ValueError, "read-only"),
    ],
)
def test_bad_arguments(arguments: tuple[np.ndarray, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        eager.matmul(*arguments)


def test_width_is_part_of_the_key(rng: np.random.Generator) -> None:
    a, b = random(rng, 31, 37), random(rng, 37, 41)
    eager.matmul(a, b)
    before = len(eager.cache)
    threads.set_num_threads(1)
    check(eager.matmul(a, b), a, b)
    assert len(eager.cache) == before + 1


def test_the_same_bits_each_time(rng: np.random.Generator) -> None:
    a, b = random(rng, 64, 2048).T, random(rng, 64, 96)
    first = eager.matmul(a, b)
    assert all(np.array_equal(eager.matmul(a, b), first) for _ in range(10))


def test_small_products_run_on_one_thread_and_leave_the_width_alone() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((200, 64), np.float32), rng.standard_normal((64, 256), np.float32)
    library = threads.openmp()
    if library is None:
        pytest.skip("needs OpenMP")
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(2)
        two = eager.matmul(a, b)
        assert library.omp_get_max_threads() == 2
        threads.set_num_threads(1)
        one = eager.matmul(a, b)
    finally:
        threads.set_num_threads(before)
    assert np.array_equal(one, two)  # the same bits, because the same thread computed them
    np.testing.assert_allclose(one, a @ b, rtol=1e-4, atol=1e-4)
