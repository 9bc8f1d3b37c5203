"""`assert_close`: what it accepts, what it refuses, and the words it finds."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.testing import assert_allclose, assert_close, default_tolerances, make_tensor


def t(*values, dtype=wf.float32):
    return wf.tensor(list(values), dtype=dtype)


def test_what_is_close():
    nan, inf = float("nan"), float("inf")
    cases = {
        "equal": (t(1.0, 2.0), t(1.0, 2.0), {}),
        "float32": (t(1.0), t(1.0 + 1e-6), {}),
        "float64": (t(1.0, dtype=wf.float64), t(1.0 + 1e-8, dtype=wf.float64), {}),
        "float16": (t(1.0, dtype=wf.float16), t(1.001, dtype=wf.float16), {}),
        "bfloat16": (t(1.0, dtype=wf.bfloat16), t(1.0078, dtype=wf.bfloat16), {}),
        "complex": (wf.tensor([1 + 1j]), wf.tensor([1 + 1j]), {}),
        "integers": (t(1, 2, dtype=wf.int64), t(1, 2, dtype=wf.int64), {}),
        "bools": (wf.tensor([True]), wf.tensor([True]), {}),
        "infinities": (t(inf, -inf), t(inf, -inf), {}),
        "nan": (t(nan, 1.0), t(nan, 1.0), {"equal_nan": True}),
        "tolerances": (t(1.0), t(1.4), {"rtol": 0.0, "atol": 0.5}),
        "dtypes": (t(1.0), t(1.0, dtype=wf.float64), {"check_dtype": False}),
        "arrays": (np.ones(2, np.float32), wf.ones(2), {}),
        "numbers": (1.0, 1.0 + 1e-9, {}),
        "number types": (1, 1.0, {"check_dtype": False}),
        "lists": ([t(1.0), 2], [t(1.0), 2], {}),
        "mappings": ({"a": {"b": (1.0, None)}}, {"a": {"b": (1.0, None)}}, {}),
        "parameters": (wf.nn.Parameter(wf.ones(2)), wf.ones(2), {}),
        "empty": (wf.zeros(0), wf.zeros(0), {}),
    }
    each(lambda a, e, options: assert_close(a, e, **options), cases)
    assert_allclose(t(1.0), t(1.0, dtype=wf.float64))


REPORT = (
    r"Tensor-likes are not close!\n\nMismatched elements: 1 / 3 \(33.3%\)\n"
    r"Greatest absolute difference: 0.5 at index \(1,\) \(up to 1e-05 allowed\)\n"
    r"Greatest relative difference: 0.2 at index \(1,\)"
)


def test_what_is_not_and_why():
    nan = float("nan")
    cases = {
        "values": (t(1.0, 2.0, 3.0), t(1.0, 2.5, 3.0), {}, REPORT),
        "integers": (t(1, 2, dtype=wf.int64), t(1, 3, dtype=wf.int64), {}, "Tensor-likes are not equal!"),
        "large integers": (t(2**63 - 1, dtype=wf.int64), t(-(2**63), dtype=wf.int64), {}, r"difference: 1.8446744073709552e\+19"),
        "bools": (wf.tensor([True, False]), wf.tensor([True, True]), {}, r"Mismatched elements: 1 / 2"),
        "matrix": (wf.zeros(2, 2), wf.tensor([[0.0, 0.0], [1.0, 3.0]]), {}, r"3.0 at index \(1, 1\)"),
        "scalar tensors": (wf.tensor(1.0), wf.tensor(2.0), {}, "Scalars are not close!\n\nExpected 2.0 but got 1.0"),
        "shape": (t(1.0), t(1.0, 2.0), {}, r"attribute 'shape' do not match: \(1,\) != \(2,\)"),
        "dtype": (t(1.0), t(1.0, dtype=wf.float64), {}, "attribute 'dtype' do not match: float32 != float64"),
        "nan": (t(nan), t(nan), {}, "Mismatched elements: 1 / 1"),
        "stride": (wf.ones(2, 3).T, wf.ones(3, 2), {"check_stride": True}, "strides do not match"),
        "numbers": (1.0, 1.1, {}, "Scalars are not close!\n\nExpected 1.1 but got 1.0"),
        "number types": (1, 1.0, {}, "types of the numbers do not match: int != float"),
        "none": (None, t(1.0), {}, "None mismatch"),
        "length": ([1.0], [1.0, 2.0], {}, "lengths of the sequences mismatch: 1 != 2"),
        "keys": ({"a": 1}, {"b": 1}, {}, "Missing keys: \\['b'\\]\nAdditional keys: \\['a'\\]"),
        "path": ({"a": [t(1.0), t(2.0)]}, {"a": [t(1.0), t(3.0)]}, {}, r"The failure occurred for item \['a'\]\[1\]"),
        "message": (1.0, 2.0, {"msg": "mine"}, "^mine$"),
        "message function": (1.0, 2.0, {"msg": lambda m: "see: " + m}, "^see: Scalars"),
        "subclass": (wf.nn.Parameter(wf.ones(2)), wf.ones(2), {"allow_subclasses": False}, "Parameter != Tensor"),
    }  # fmt: skip

    def check(actual, expected, options, text):
        with pytest.raises(AssertionError, match=text):
            assert_close(actual, expected, **options)

    each(check, cases)
    with pytest.raises(TypeError, match="cannot compare str and Tensor"):
        assert_close("a", t(1.0))
    with pytest.raises(ValueError, match="give both rtol and atol"):
        assert_close(1.0, 1.0, rtol=1.0)


def test_tolerances_and_random_tensors():
    assert default_tolerances(wf.ones(1), wf.int64) == (1.3e-6, 1e-5)
    assert default_tolerances(wf.int8) == (0, 0)
    wf.manual_seed(0)
    for dtype in (wf.float16, wf.bfloat16, wf.float64, wf.int8, wf.uint8, wf.bool, wf.complex64):
        x = make_tensor(2, 3, dtype=dtype)
        assert x.shape == (2, 3) and x.dtype == dtype
    x = make_tensor((50,), dtype=wf.int64, low=-1, high=2, exclude_zero=True)
    assert set(x.tolist()) == {-1, 1}
    assert not make_tensor((2, 3), dtype=wf.float32, noncontiguous=True).numpy().flags.c_contiguous
    assert make_tensor((2,), dtype=wf.float32, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="low must be below high"):
        make_tensor(2, dtype=wf.float32, low=1, high=1)
