"""Convolutions against plain loops in float64."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.backends.onednn import reference
from weft.backends.onednn import eager
from weft.backends.onednn.capi import Unsupported
from weft.backends.onednn.eager.staging import is_channels_last
from weft.ops.nn.window import Window
from weft.runtime import memory, threads


class Case(NamedTuple):
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def settings(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...], int]:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def window(self) -> tuple[Window, int]:
        return Window(self.w_shape[2:], self.stride, self.padding, self.dilation), self.groups

    @property
    def y_shape(self) -> tuple[int, ...]:
        sizes = reference.output_sizes(self.x_shape[2:], self.w_shape[2:], self.stride, self.padding, self.dilation)
        return (self.x_shape[0], self.w_shape[0], *sizes)


CASES = {
    "resnet 3x3": Case((2, 16, 9, 9), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "stem": Case((2, 3, 21, 21), (8, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    "pointwise": Case((2, 16, 7, 5), (24, 16, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "pointwise, padded": Case((2, 16, 7, 5), (24, 16, 1, 1), (1, 1), ((1, 0), (0, 2)), (1, 1), 1),
    "strided pointwise": Case((2, 16, 7, 5), (24, 16, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    "depthwise": Case((2, 24, 9, 9), (24, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 24),
    "depthwise, 2 per channel": Case((2, 6, 9, 9), (12, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 6),
    "grouped": Case((2, 12, 8, 8), (8, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "same, even kernel": Case((1, 4, 10, 10), (4, 4, 4, 2), (1, 1), ((1, 2), (0, 1)), (1, 1), 1),
    "dilated": Case((1, 5, 12, 12), (7, 5, 3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2), 1),
    "dilated and strided": Case((1, 5, 12, 12), (7, 5, 3, 3), (2, 3), ((2, 0), (1, 3)), (3, 2), 1),
    "1-d": Case((3, 7, 20), (5, 7, 5), (2,), ((4, 0),), (1,), 1),
    "1-d causal dilated": Case((3, 8, 20), (8, 8, 3), (1,), ((8, 0),), (4,), 1),
    "3-d": Case((1, 4, 5, 6, 7), (6, 4, 3, 3, 3), (1, 2, 1), ((1, 1), (1, 1), (1, 1)), (1, 1, 1), 1),
    "3-d, much padding": Case((2, 3, 2, 1, 4), (4, 3, 4, 4, 2), (2, 1, 2), ((3, 2), (2, 1), (1, 1)), (1, 1, 1), 1),
    "one pixel": Case((2, 5, 1, 1), (3, 5, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "one channel": Case((2, 1, 6, 6), (1, 1, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}


def random(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def channels_last(array: np.ndarray) -> np.ndarray:
    result = memory.empty(array.shape, array.dtype, memory.channels_last_order(array.ndim))
    np.copyto(result, array)
    return result


def check(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max()))
    )


def check_all(case: Case, x: np.ndarray, w: np.ndarray, g: np.ndarray, bias: np.ndarray | None) -> None:
    """Forward and both gradients of one case, for these arrays."""
    y = eager.conv_forward(x, w, bias, *case.window)
    check(y, reference.conv(x, w, bias, *case.settings))
    assert is_channels_last(y)
    dx = eager.conv_backward_data(g, w, case.x_shape, *case.window)
    check(dx, reference.conv_backward_data(g, w, case.x_shape, *case.settings))
    assert is_channels_last(dx)
    expected = reference.conv_backward_weights(x, g, case.w_shape, *case.settings)
    dw, db = eager.conv_backward_weights(x, g, case.w_shape, *case.window, with_bias=bias is not None)
    check(dw, expected)
    assert dw.flags.c_contiguous
    if bias is None:
        assert db is None
    else:
        assert db is not None
        check(db, g.astype(np.float64).sum((0, *range(2, g.ndim))))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_cases(rng: np.random.Generator, name: str, last: bool, biased: bool) -> None:
    case = CASES[name]
    x, w, g = random(rng, case.x_shape), random(rng, case.w_shape), random(rng, case.y_shape)
    if last:
        x, g = channels_last(x), channels_last(g)
    check_all(case, x, w, g, random(rng, case.w_shape[:1]) if biased else None)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    spatial = draw(st.integers(1, 3))
    numbers = st.integers
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = draw(numbers(1, 9)), draw(numbers(1, 9))
    kernel = tuple(draw(numbers(1, 4)) for _ in range(spatial))
    stride = tuple(draw(numbers(1, 3)) for _ in range(spatial))
    dilation = tuple(draw(numbers(1, 3)) for _ in range(spatial))
    padding = tuple((draw(numbers(0, 3)), draw(numbers(0, 3))) for _ in range(spatial))
    sizes = tuple(draw(numbers(1, 9)) for _ in range(spatial))
    case = Case((draw(numbers(1, 3)), groups * inputs, *sizes), (groups * outputs, inputs, *kernel), stride, padding,
                dilation, groups)  # fmt: skip
    assume(all(size > 0 for size in case.y_shape))
    return case


@settings(max_examples=40, deadline=None)
@given(cases(), st.booleans(), st.integers(0, 2**32 - 1))
def test_any_case(case: Case, last: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w, g = random(rng, case.x_shape), random(rng, case.w_shape), random(rng, case.y_shape)
    if last:
        x, g = channels_last(x), channels_last(g)
    check_all(case, x, w, g, random(rng, case.w_shape[:1]))


def test_strided_and_reversed_arguments(rng: np.random.Generator) -> None:
    case = CASES["grouped"]
    x = random(rng, (2, 24, 8, 16))[:, ::2, ::-1, ::2]
    w = random(rng, (3, 8, 3, 3)).transpose(1, 0, 3, 2)
    g = np.broadcast_to(random(rng, (1, 8, 1, 1)), case.y_shape)
    bias = random(rng, (16,))[::2]
    check_all(case, x, w, g, bias)
    check_all(case, x, w[..., ::-1], g, bias)


@pytest.mark.parametrize("last", [True, False])
def test_out(rng: np.random.Generator, last: bool) -> None:
    case = CASES["resnet 3x3"]
    x, w = random(rng, case.x_shape), random(rng, case.w_shape)
    out = channels_last(np.zeros(case.y_shape, np.float32)) if last else np.zeros(case.y_shape, np.float32)
    assert eager.conv_forward(x, w, None, *case.window, out=out) is out
    check(out, reference.conv(x, w, None, *case.settings))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        eager.conv_forward(x, w, None, *case.window, out=out)


def test_inputs_are_left_alone(rng: np.random.Generator) -> None:
    case = CASES["depthwise"]
    arrays = [random(rng, shape) for shape in (case.x_shape, case.w_shape, case.y_shape)]
    copies = [array.copy() for array in arrays]
    check_all(case, *arrays, None)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_bfloat16(rng: np.random.Generator) -> None:
    case = CASES["resnet 3x3"]
    x, w = (random(rng, shape).astype(ml_dtypes.bfloat16) for shape in (case.x_shape, case.w_shape))
    result = eager.conv_forward(x, w, None, *case.window)
    assert result.dtype == x.dtype
    check(result.astype(np.float64), reference.conv(x, w, None, *case.settings), 2**-7)


def test_transposed(rng: np.random.Generator) -> None:
    for groups, output_padding in ((1, (0, 0)), (2, (1, 0))):
        x, w, bias = random(rng, (2, 6, 5, 4)), random(rng, (6, 3, 3, 2)), random(rng, (3 * groups,))
        stride, padding, dilation = (2, 2), ((1, 0), (0, 1)), (1, 2)
        window = Window((3, 2), stride, padding, dilation)
        y = eager.conv_transpose_forward(x, w, bias, window, groups, output_padding)
        rest = (stride, padding, dilation, groups)
        check(y, reference.conv_backward_data(x, w, y.shape, *rest) + bias[:, None, None])
        assert is_channels_last(y)
        g = random(rng, y.shape)
        check(eager.conv_transpose_backward_data(g, w, window, groups), reference.conv(g, w, None, *rest))
        dw, db = eager.conv_transpose_backward_weights(x, g, w.shape, window, groups, with_bias=True)
        check(dw, reference.conv_backward_weights(g, x, w.shape, *rest))
        assert db is not None
        check(db, g.astype(np.float64).sum((0, 2, 3)))


def test_transposed_sizes() -> None:
    window = Window((3,), (2,), ((1, 1),), (1,))
    assert eager.conv_transpose_shape((2, 6, 5), (6, 3, 3), window, 2, (1,)) == (2, 6, 10)
    with pytest.raises(Unsupported, match="output_padding"):
        eager.conv_transpose_shape((2, 6, 5), (6, 3, 3), window, 2, (2,))
    with pytest.raises(ValueError, match="would be empty"):
        eager.conv_transpose_shape((2, 6, 1), (6, 3, 1), Window((1,), (1,), ((1, 1),), (1,)), 1, (0,))
    with pytest.raises(ValueError, match="shapes do not fit"):
        eager.conv_transpose_shape((2, 6, 5), (5, 3, 3), window, 2, (1,))


def test_bad_arguments() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((2, 4, 3, 3), np.float32)
    none = ((0, 0), (0, 0))
    window = Window((3, 3), (1, 1), none, (1, 1))
    cases: list[tuple[tuple[object, ...], type[Exception], str]] = [
        ((x[0], w, None, window, 1), ValueError, "bad ranks"),
        ((x, w[:, :3], None, window, 1), ValueError, r"channels do not fit.*\(1, 4, 5, 5\).*\(2, 3, 3, 3\)"),
        ((x, w, None, window, 0), ValueError, "channels do not fit"),
        (
            (x, w, np.ones(3, np.float32), window, 1),
            ValueError,
            r"bias has the wrong shape. Got \(3,\); expected \(2,\)",
        ),
        ((x, w, None, Window((3,), (1,), ((0, 0),), (1,)), 1), ValueError, "bad kernel"),
        ((x, w, None, Window((3, 2), (1, 1), none, (1, 1)), 1), ValueError, "bad kernel"),
        ((x, w, None, Window((3, 3), (1, 1), none, (3, 1)), 1), ValueError, "larger than the padded input"),
        ((x, w.astype(np.float64), None, window, 1), TypeError, "dtypes differ"),
        ((x, w, None, window, 1, np.ones((1, 2, 4, 4), np.float32)), ValueError, "out has the wrong shape"),
        ((x[:0], w, None, window, 1), Unsupported, "empty"),
        ((x.astype(np.int32), w.astype(np.int32), None, window, 1), Unsupported, "integers"),
        ((x.astype(np.float64), w.astype(np.float64), None, window, 1), Unsupported, "unimplemented|reference"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            eager.conv_forward(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="g has the wrong shape"):
        eager.conv_backward_data(np.ones((1, 2, 9, 9), np.float32), w, x.shape, window, 1)
    with pytest.raises(ValueError, match="g has the wrong shape"):
        eager.conv_backward_weights(x, np.ones((1, 2, 9, 9), np.float32), w.shape, window, 1)


def test_the_same_bits_each_time_and_forward_at_any_width(rng: np.random.Generator) -> None:
    case = CASES["resnet 3x3"]
    x, w, g = random(rng, (16, 16, 9, 9)), random(rng, case.w_shape), random(rng, (16, 32, 9, 9))

    def results() -> tuple[np.ndarray, ...]:
        return (
            eager.conv_forward(x, w, None, *case.window),
            eager.conv_backward_data(g, w, x.shape, *case.window),
            eager.conv_backward_weights(x, g, w.shape, *case.window)[0],
        )

    first = results()
    for _ in range(5):
        for again, once in zip(results(), first, strict=True):
            np.testing.assert_array_equal(again, once)
    threads.set_num_threads(1)
    for one, two in zip(results()[:2], first[:2], strict=True):
        np.testing.assert_array_equal(one, two)
