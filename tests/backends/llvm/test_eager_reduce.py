"""Reductions over any axes of any view agree with NumPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.llvm import eager
from weft.ops.core import scalar as s

SHAPES = [(5,), (70000,), (300, 5), (5, 300), (200, 1000), (40, 3, 50), (2, 40000), (3, 4, 5, 6)]


def check(op, x, axes):
    got = eager.reduce(op, x, axes)
    if op in ("argmax", "argmin"):
        want = getattr(np, op)(x, axis=axes[0] if len(axes) == 1 else None)
        np.testing.assert_array_equal(got, want)
    elif op in ("max", "min", "any", "all"):
        want = getattr(np, op)(x, axis=axes)
        np.testing.assert_array_equal(got, want)
    else:
        want = getattr(np, op)(x.astype(np.float64), axis=axes)
        scale = np.sqrt(x.size)
        np.testing.assert_allclose(got, want, rtol=2e-6 * 8, atol=1e-6 * scale if op != "mean" else 1e-6)
    assert got.shape == want.shape
    assert got.dtype == (want.dtype if op in ("argmax", "argmin", "any", "all") else x.dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["sum", "max", "argmax"])
def test_every_set_of_axes(shape, op):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for view in (x, x.T):
        for k in range(1, x.ndim + 1):
            for axes in itertools.combinations(range(x.ndim), k):
                if op != "argmax" or k in (1, x.ndim):
                    check(op, view, axes)


@pytest.mark.parametrize("op", ["mean", "min", "argmin"])
def test_strided_and_reversed_views(op):
    x = np.random.default_rng(0).standard_normal((60, 90)).astype(np.float32)
    for view in (x[::2, ::3], x[:, ::-1], x[::-1], np.broadcast_to(x[0], (30, 90))):
        for axes in ((0,), (1,), (0, 1)):
            check(op, view, axes)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 10))
def test_sums_of_any_size(m, n, axes, seed):
    x = np.random.default_rng(seed).integers(-3, 4, (m, n)).astype(np.float32)
    np.testing.assert_array_equal(eager.reduce("sum", x, axes), x.sum(axes))  # whole numbers: exact


@pytest.mark.parametrize("dtype", s.DTYPES, ids=str)
def test_every_dtype(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if dtype == np.bool_ else 5, (33, 70)).astype(dtype)
    common = dtype in (s.FLOAT32, s.FLOAT16, np.dtype(np.uint8))  # the others differ in nothing but their instructions
    for op in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
        for axis in (0, 1) if common or op in ("sum", "max") else (1,):
            got = eager.reduce(op, x, (axis,))
            with np.errstate(all="ignore"):
                if op in ("max", "min", "argmax", "argmin"):
                    want = getattr(np, op)(x.astype(np.float64), axis=axis)
                elif s.kind(dtype) == "f" and dtype.itemsize == 2:
                    want = getattr(np, op)(x.astype(np.float32), axis=axis).astype(
                        dtype if op in ("sum", "prod") else bool
                    )
                else:
                    want = getattr(np, op)(x, axis=axis)
            np.testing.assert_array_equal(
                got.astype(np.float64), np.asarray(want).astype(np.float64), err_msg=f"{op} {axis}"
            )


def test_result_dtypes():
    assert eager.reduce("sum", np.ones(5, np.int8), (0,)).dtype == np.int64
    assert eager.reduce("sum", np.ones(5, np.uint8), (0,)).dtype == np.uint64
    assert eager.reduce("mean", np.ones(5, np.int8), (0,)).dtype == np.float64
    assert eager.reduce("sum", np.ones(5, np.float16), (0,)).dtype == np.float16
    assert eager.reduce("sum", np.ones(5, np.int32), (0,), np.dtype(np.float32)).dtype == np.float32


def test_half_precision_sums_in_single():
    x = np.full(4096, 0.1, np.float16)
    assert eager.reduce("sum", x, (0,)) == np.float16(x.astype(np.float32).sum())


def test_nan_and_infinity():
    x = np.random.default_rng(0).standard_normal((50, 60)).astype(np.float32)
    x[3, 7] = np.nan
    x[10, 2] = -np.inf
    for op in ("max", "min", "sum", "argmax", "argmin"):
        for axis in (0, 1):
            with np.errstate(invalid="ignore"):
                want = getattr(np, op)(x, axis=axis)
            np.testing.assert_allclose(eager.reduce(op, x, (axis,)), want, rtol=1e-4, atol=1e-4)


def test_sums_are_accurate():
    """Many partial sums: better than adding in order, and than NumPy along the first axis."""
    x = np.full((1 << 20, 2), 0.1, np.float32)
    np.testing.assert_allclose(eager.reduce("sum", x, (0,)), 0.1 * (1 << 20), rtol=1e-5)
    np.testing.assert_allclose(eager.reduce("sum", x, (0, 1)), 0.2 * (1 << 20), rtol=1e-6)


def test_axes_of_one_and_of_none():
    x = np.random.default_rng(0).standard_normal((4, 1, 5)).astype(np.float32)
    np.testing.assert_array_equal(eager.reduce("sum", x, (1,)), x.sum(1))
    assert eager.reduce("max", np.zeros((3, 0), np.float32), (1,)) is None
    assert eager.reduce("sum", np.zeros(3, np.complex64), (0,)) is None
    np.testing.assert_array_equal(eager.reduce("sum", np.float32(3).reshape(1, 1), (0, 1)), 3)


def test_expressions_are_reduced_without_being_stored():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 400)), rng.standard_normal(400)

    def squared(a, b):
        return s.square(a - b)

    got = eager.map_reduce("mean", squared, [x, y], x.shape, (1,))
    np.testing.assert_allclose(got, ((x - y) ** 2).mean(1), rtol=1e-13)
    got = eager.map_reduce("sum", squared, [x, y], x.shape, (0,))
    np.testing.assert_allclose(got, ((x - y) ** 2).sum(0), rtol=1e-13)
