"""Dtypes: promotion tables, weak scalars, names, limits."""

from __future__ import annotations

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

import weft as wf
from weft import dtypes

INTEGERS = [wf.int8, wf.int16, wf.int32, wf.int64, wf.uint8, wf.uint16, wf.uint32, wf.uint64]
# The array API's promotion table of integers, row by column.
MIXED = {
    ("int8", "uint8"): "int16", ("int8", "uint16"): "int32", ("int8", "uint32"): "int64",
    ("int16", "uint8"): "int16", ("int16", "uint16"): "int32", ("int16", "uint32"): "int64",
    ("int32", "uint8"): "int32", ("int32", "uint16"): "int32", ("int32", "uint32"): "int64",
    ("int64", "uint8"): "int64", ("int64", "uint16"): "int64", ("int64", "uint32"): "int64",
}  # fmt: skip
FLOATS = {
    ("float16", "float32"): "float32", ("float16", "float64"): "float64", ("float32", "float64"): "float64",
    ("bfloat16", "float32"): "float32", ("bfloat16", "float64"): "float64", ("bfloat16", "float16"): "float32",
    ("complex64", "complex128"): "complex128", ("float32", "complex64"): "complex64", ("float64", "complex64"): "complex128",
    ("float32", "complex128"): "complex128", ("float64", "complex128"): "complex128", ("float16", "complex64"): "complex64",
    ("bfloat16", "complex64"): "complex64",
}  # fmt: skip


@pytest.mark.parametrize(("pair", "result"), [*MIXED.items(), *FLOATS.items()])
def test_promotion_table(pair, result):
    a, b = (getattr(wf, n) for n in pair)
    for x, y in ((a, b), (b, a)):
        assert wf.result_type(x, y) == getattr(wf, result)
        assert (wf.ones(1, dtype=x) + wf.ones(1, dtype=y)).dtype == getattr(wf, result)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_dtype_with_itself_with_bool_and_with_wider(dtype):
    assert wf.result_type(dtype, dtype) is dtype
    assert wf.result_type(dtype, wf.bool) is dtype
    if dtype in dtypes.SIGNED:
        for other in dtypes.SIGNED:
            assert wf.result_type(dtype, other).itemsize == max(dtype.itemsize, other.itemsize)


def test_integers_never_widen_floats():
    for i, f in itertools.product(INTEGERS, dtypes.FLOATING):
        assert wf.result_type(i, f) is f is wf.result_type(f, i)


def test_uint64_and_signed_have_no_common_dtype():
    with pytest.raises(TypeError, match="uint64 and int8 have no common integer dtype. Cast one"):
        wf.result_type(wf.uint64, wf.int8)
    with pytest.raises(TypeError, match="no common integer dtype"):
        wf.ones(1, dtype=wf.uint64) + wf.ones(1, dtype=wf.int64)


def test_promotion_is_commutative_and_associative_where_defined():
    for a, b in itertools.product(dtypes.ALL, repeat=2):
        try:
            assert wf.result_type(a, b) is wf.result_type(b, a)
        except TypeError:
            with pytest.raises(TypeError):
                wf.result_type(b, a)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_python_scalars_are_weak(dtype):
    x = wf.ones(2, dtype=dtype)
    kind = dtypes._KIND[dtype]
    for scalar, rank in ((True, 0), (2, 1), (2.5, 2), (1j, 3)):
        for result in (x * scalar, scalar * x):
            if rank <= kind:
                assert result.dtype is dtype
            elif rank == 1:
                assert result.dtype is wf.int64
            elif rank == 2:
                assert result.dtype is wf.float32
            else:
                assert result.dtype is (wf.complex128 if dtype is wf.float64 else wf.complex64)


def test_numpy_scalars_are_strong():
    assert (wf.ones(1) * np.float64(2)).dtype is wf.float64
    assert (wf.ones(1, dtype=wf.int8) + np.int16(2)).dtype is wf.int16
    assert (np.float32(2) * wf.ones(1, dtype=wf.float16)).dtype is wf.float32


def test_scalars_that_do_not_fit():
    with pytest.raises(OverflowError, match="add: .*300 out of bounds for uint8"):
        wf.ones(1, dtype=wf.uint8) + 300
    with pytest.raises(OverflowError):
        wf.ones(1, dtype=wf.int64) * 2**70
    assert (wf.ones(1, dtype=wf.int8) * 127 + 1).item() == -128  # arrays wrap, as in NumPy
    assert np.isinf((wf.ones(1, dtype=wf.float16) * 1e6).item())


def test_true_division_and_functions_of_integers_are_float32():
    i = wf.tensor([1, 2, 4])
    assert (i / 2).dtype is wf.float32 and (i / i).dtype is wf.float32 and wf.exp(i).dtype is wf.float32
    assert wf.sqrt(wf.ones(1, dtype=wf.bool)).dtype is wf.float32 and i.mean().dtype is wf.float32


def test_half_precision_results():
    for dtype in (wf.float16, wf.bfloat16):
        x = wf.tensor([0.5, 1.5, -2.0], dtype=dtype)
        for fn in (
            wf.exp,
            wf.sin,
            wf.abs,
            wf.sqrt,
            lambda v: v * v,
            lambda v: v @ v,
            lambda v: v.sum(),
            lambda v: v / 3,
            wf.tanh,
            lambda v: -v,
        ):
            assert fn(x).dtype is dtype
        assert (x > 1).dtype is wf.bool and x.argmax().dtype is wf.int64
        np.testing.assert_array_equal(wf.exp(x).numpy(), np.exp(x.numpy().astype(np.float32)).astype(dtype))


def test_as_dtype_accepts_what_people_write():
    as_dtype = dtypes.as_dtype
    for value, expected in (
        ("float32", wf.float32), (np.float32, wf.float32), (np.dtype("f4"), wf.float32),
        (np.dtype(">f4"), wf.float32), (float, wf.float32),
        (int, wf.int64), (bool, wf.bool), (complex, wf.complex64), ("bool", wf.bool), ("bfloat16", wf.bfloat16),
        (ml_dtypes.bfloat16, wf.bfloat16), (np.dtype(ml_dtypes.bfloat16), wf.bfloat16),
        (wf.int8, wf.int8), (np.uint16, wf.uint16),
    ):  # fmt: skip
        assert as_dtype(value) is expected
    for bad in (
        None,
        "float",
        "str",
        "S3",
        np.str_,
        object,
        "datetime64",
        3,
        np.dtype("f4,i4"),
        np.longdouble,
        "nonsense",
        [],
        wf.ones(1),
    ):
        if bad == "float" or isinstance(bad, wf.Tensor):
            continue
        with pytest.raises(TypeError, match="is not a Weft dtype. Expected one of bool, int8"):
            as_dtype(bad)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_one_object_per_dtype(dtype):
    for array in (
        np.ones(2, dtype),
        pickle.loads(pickle.dumps(np.ones(2, dtype))),
        np.ones(2, dtype.newbyteorder("S") if dtype.kind in "iufc" else dtype),
    ):
        assert wf.asarray(array).dtype is dtype
    assert wf.tensor([1, 0], dtype=dtype).dtype is dtype and wf.zeros(2, dtype=str(dtype.name)).dtype is dtype
    assert pickle.loads(pickle.dumps(wf.ones(2, dtype=dtype))).dtype is dtype


def test_default_dtype():
    assert wf.get_default_dtype() is wf.float32
    wf.set_default_dtype(wf.float64)
    try:
        assert wf.tensor(1.0).dtype is wf.float64 and wf.zeros(1).dtype is wf.float64
        assert wf.tensor(1j).dtype is wf.complex128 and (wf.tensor([1]) / 2).dtype is wf.float64
    finally:
        wf.set_default_dtype("float32")
    with pytest.raises(TypeError, match="set_default_dtype: dtype must be float32 or float64. Got int32"):
        wf.set_default_dtype(wf.int32)


def test_isdtype_can_cast_and_limits():
    assert wf.isdtype(wf.float32, "real floating") and wf.isdtype(wf.bfloat16, "real floating")
    assert wf.isdtype(wf.int8, ("bool", "signed integer")) and not wf.isdtype(wf.int8, "unsigned integer")
    assert wf.isdtype(wf.complex64, "numeric") and not wf.isdtype(wf.bool, "numeric")
    with pytest.raises(ValueError, match="isdtype: unknown kind 'floaty'"):
        wf.isdtype(wf.float32, "floaty")
    assert (
        wf.can_cast(wf.int8, wf.int16)
        and not wf.can_cast(wf.float64, wf.float32)
        and not wf.can_cast(wf.uint64, wf.int8)
    )
    assert wf.can_cast(wf.ones(1, dtype=wf.int8), wf.float32)
    assert wf.finfo(wf.float32).bits == 32 and wf.finfo(wf.bfloat16).bits == 16 and wf.iinfo(wf.int8).max == 127
    assert wf.finfo(wf.ones(1, dtype=wf.float64)).eps == np.finfo(np.float64).eps
    with pytest.raises(TypeError, match="finfo: expected a floating dtype. Got int8; use iinfo"):
        wf.finfo(wf.int8)
    with pytest.raises(TypeError, match="iinfo: expected an integer dtype"):
        wf.iinfo(wf.float32)


def test_result_type_needs_something():
    with pytest.raises(ValueError, match="at least one"):
        wf.result_type()
    assert wf.result_type(1, 2.5) is wf.float32 and wf.result_type(True) is wf.bool
    assert wf.result_type(wf.ones(1, dtype=wf.int8), 3) is wf.int8


def test_casts():
    x = wf.tensor([1.7, -1.7])
    assert x.astype(wf.int32).tolist() == [1, -1] and x.astype(wf.bool).tolist() == [True, True]
    assert x.astype(wf.float32) is x and x.astype(wf.float32, copy=True) is not x
    with pytest.raises(TypeError, match="a complex tensor cannot become float32"):
        wf.tensor([1j]).astype(wf.float32)
    for name, dtype in (
        ("float", "float32"),
        ("double", "float64"),
        ("half", "float16"),
        ("int", "int32"),
        ("long", "int64"),
        ("bool", "bool"),
        ("bfloat16", "bfloat16"),
    ):
        assert getattr(x, name)().dtype.name == dtype
