"""Tensor: creation from everything, conversion, operators, NumPy on either side, copies and pickles."""

from __future__ import annotations

import array
import copy
import decimal
import enum
import math
import operator
import pickle

import numpy as np
import pytest

import weft as wf
from weft import dtypes

# Creation ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "dtype", "shape"), [
    (1, "int64", ()), (1.5, "float32", ()), (True, "bool", ()), (1j, "complex64", ()), ([1, 2.5, True], "float32", (3,)),
    ([True, 2], "int64", (2,)), ([], "float32", (0,)), ([[], []], "float32", (2, 0)),
    (range(3), "int64", (3,)), ((1, (2,)[0]), "int64", (2,)),
    ([[1, 2], [3, 4]], "int64", (2, 2)), (np.ones(2), "float64", (2,)),
    (np.float32(1), "float32", ()), (np.int8([1]), "int8", (1,)),
    (array.array("f", [1, 2]), "float32", (2,)), (memoryview(b"ab"), "uint8", (2,)),
    ([np.ones(2), np.ones(2)], "float64", (2, 2)), (np.arange(3, dtype=">i4"), "int32", (3,)), (2**63, "uint64", ()),
])  # fmt: skip
def test_creation_from_everything(data, dtype, shape):
    for make in (wf.tensor, wf.asarray, wf.Tensor):
        t = make(data)
        assert t.dtype.name == dtype and t.shape == shape
        np.testing.assert_array_equal(t.numpy(), np.asarray(data))


def test_creation_from_tensors():
    x = wf.tensor([1.0, 2.0])
    assert wf.tensor([x, x * 2]).tolist() == [[1, 2], [2, 4]]
    assert wf.tensor([x[0], 3]).tolist() == [1, 3] and wf.tensor([wf.tensor(1), 2.5]).dtype is wf.float32
    assert (
        wf.tensor([wf.tensor(1.5, dtype=wf.float64), 2]).dtype is wf.float64
        and wf.tensor([[x.half(), x.half()], [x.half(), x.half()]]).dtype is wf.float16
    )
    copied = wf.tensor(x)
    copied += 1
    assert x.tolist() == [1, 2]
    assert wf.asarray(x) is x and wf.asarray(x, copy=True) is not x
    assert wf.asarray(x, dtype=wf.float64).dtype is wf.float64
    with pytest.raises(ValueError, match="needs a copy"):
        wf.asarray(x, dtype=wf.float64, copy=False)


def test_creation_from_objects_with_array():
    class Thing:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3.0)

    assert wf.asarray(Thing()).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("data", "options", "error", "match"), [
    (None, {}, TypeError, "expected numbers.*Got NoneType"),
    ("abc", {}, TypeError, "Got str"), (["a"], {}, TypeError, "Got list"),
    ({}, {}, TypeError, "Got dict"), ({1, 2}, {}, TypeError, "Got set"), ((i for i in range(2)), {}, TypeError, "Got generator"),
    ([object()], {}, TypeError, "Got list of object"), ([None, 1], {}, TypeError, "Got list of NoneType, int"),
    ([[1, 2], [3]], {}, ValueError, "no single shape"),
    ([wf.ones(2), wf.ones(3)], {}, ValueError, "cannot stack shapes"),
    (2**64, {}, OverflowError, "too large for every integer dtype"),
    ([300], {"dtype": "uint8"}, OverflowError, "300 do not fit uint8, which holds 0 to 255"),
    ([-1], {"dtype": "uint64"}, OverflowError, "do not fit"),
    ([math.nan], {"dtype": "int32"}, OverflowError, "nan"),
    ([1j], {"dtype": "float32"}, TypeError, "complex numbers cannot become float32"),
    ([1], {"dtype": "floaty"}, TypeError, "'floaty' is not a Weft dtype"),
    (np.array(["a"]), {}, TypeError, "is not a Weft dtype"),
    (np.array([1, "a"], object), {}, TypeError, "is not a Weft dtype"),
    ([1], {"requires_grad": True}, TypeError, "only floating and complex"),
    ([1.0], {"device": "gpu"}, ValueError, "device"),
])  # fmt: skip
def test_creation_errors_have_words(data, options, error, match):
    with pytest.raises(error, match=match):
        wf.tensor(data, **options)


def test_memory_is_shared_where_it_can_be():
    for a in (np.zeros(3, np.float32), np.zeros((2, 3))[:, ::2], np.zeros(3)[::-1], np.zeros((2, 3)).T):
        t = wf.asarray(a)
        assert np.shares_memory(t.numpy(), a)
        t += 1
        assert (a == 1).all()
    a = np.zeros(2, ">f4")
    t = wf.asarray(a)
    t += 1
    assert not a.any() and t.dtype.isnative
    with pytest.raises(ValueError, match="needs a copy"):
        wf.asarray(a, copy=False)
    with pytest.raises(ValueError, match="a list needs a copy"):
        wf.asarray([1, 2], copy=False)
    b = np.zeros(2)
    assert not np.shares_memory(wf.tensor(b).numpy(), b) and not np.shares_memory(wf.asarray(b, copy=True).numpy(), b)


def test_fillers():
    assert wf.zeros(2, 3).shape == wf.zeros((2, 3)).shape == wf.zeros([2, 3]).shape == (2, 3)
    assert wf.zeros().shape == () and wf.zeros(wf.tensor(2)).shape == (2,) and wf.ones(np.int64(2)).shape == (2,)
    assert (
        wf.full((2,), 7).dtype is wf.int64 and wf.full((2,), True).dtype is wf.bool and wf.full((), 1.5).item() == 1.5
    )
    assert wf.ones_like(wf.zeros(2, dtype=wf.int8)).dtype is wf.int8 and wf.empty(3).shape == (3,)
    assert (
        wf.arange(2, 8, 3).tolist() == [2, 5]
        and wf.arange(3.0).dtype is wf.float32
        and wf.arange(5, 0, -2).tolist() == [5, 3, 1]
    )
    assert wf.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and wf.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(("call", "error"), [
    (lambda: wf.zeros(-1), ValueError), (lambda: wf.zeros(1.5), TypeError),
    (lambda: wf.zeros("a"), TypeError), (lambda: wf.zeros(2**62, 2**62), MemoryError),
    (lambda: wf.zeros(10**13), MemoryError), (lambda: wf.arange(0, 1, 0), ValueError), (lambda: wf.arange(math.nan), TypeError),
    (lambda: wf.arange(10**15), MemoryError), (lambda: wf.arange("a"), TypeError),
    (lambda: wf.linspace(0, 1, -1), ValueError), (lambda: wf.eye(-1), ValueError),
    (lambda: wf.full((2,), None), TypeError),
    (lambda: wf.full((2,), 300, dtype=wf.uint8), OverflowError), (lambda: wf.zeros(None), TypeError),
])  # fmt: skip
def test_fillers_refuse_nonsense(call, error):
    with pytest.raises(error):
        call()


# Conversion ------------------------------------------------------------------------------------------------------------


def test_truth():
    assert bool(wf.tensor(2.5)) and not wf.tensor(0) and bool(wf.tensor([[True]]))
    with pytest.raises(ValueError, match=r"truth of a tensor with 2 elements is ambiguous. Use `x.any\(\)`"):
        bool(wf.ones(2))
    with pytest.raises(ValueError, match="0 elements"):
        bool(wf.ones(0))


def test_numbers():
    assert float(wf.tensor(2.5)) == 2.5 and int(wf.tensor([[2.7]])) == 2 and complex(wf.tensor(1j)) == 1j
    assert math.sqrt(wf.tensor(4.0)) == 2 and math.floor(wf.tensor(2.5)) == 2 and math.trunc(wf.tensor(-2.5)) == -2
    for convert in (float, int, complex):
        with pytest.raises(TypeError, match=f"{convert.__name__}: only a tensor with one element"):
            convert(wf.ones(2))
    with pytest.raises(TypeError):
        float(wf.tensor(1j))
    assert wf.tensor(1.5, dtype=wf.bfloat16).item() == 1.5 and isinstance(wf.tensor(1).item(), int)
    with pytest.raises(
        ValueError, match=r"item: expected a tensor with one element. Got shape \(2,\); use `tolist\(\)`"
    ):
        wf.ones(2).item()
    assert wf.tensor([1.5], dtype=wf.bfloat16).tolist() == [1.5] and wf.tensor(3).tolist() == 3


def test_as_index():
    assert (
        [10, 20, 30][wf.tensor(1)] == 20
        and list(range(wf.tensor(2))) == [0, 1]
        and operator.index(wf.tensor(3, dtype=wf.uint8)) == 3
    )
    for bad in (wf.tensor(1.0), wf.tensor([1]), wf.tensor(True)):
        with pytest.raises(TypeError, match="index: only a 0-d integer tensor"):
            operator.index(bad)


def test_length_iteration_membership():
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (
        len(x) == 2
        and [r.tolist() for r in x] == [[1, 2], [3, 4]]
        and [r.tolist() for r in reversed(x)] == [[3, 4], [1, 2]]
    )
    a, b = x
    a += 1
    assert x.tolist() == [[2, 3], [3, 4]]
    assert 3.0 in x and 9 not in x and None not in x and "a" not in x and wf.tensor(4.0) in x
    with pytest.raises(TypeError, match="len: a 0-d tensor has no length"):
        len(wf.tensor(1))
    with pytest.raises(TypeError, match="iter: a 0-d tensor cannot be iterated over; use `x.item"):
        iter(wf.tensor(1))
    assert list(wf.zeros(0, 3)) == []


def test_hash_is_identity():
    x, y = wf.ones(2), wf.ones(2)
    assert {x: 1, y: 2}[x] == 1 and len({x, y, x}) == 2


# Operators ---------------------------------------------------------------------------------------------------------------


class _Color(enum.IntEnum):
    RED = 2


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]


@pytest.mark.parametrize("op", BINARY, ids=lambda o: o.__name__)
def test_arithmetic_with_everything_on_either_side(op):
    a = np.array([1.5, 2.5, 4.0], np.float32)
    t = wf.asarray(a)
    for other in (
        2,
        2.5,
        True,
        _Color.RED,
        np.float32(2),
        np.float64(2.5),
        np.array([1.0, 2.0, 3.0], np.float32),
        np.int64(3),
    ):
        plain = int(other) if isinstance(other, enum.IntEnum) else other
        for got, expected in ((op(t, other), op(a, plain)), (op(other, t), op(plain, a))):
            assert isinstance(got, wf.Tensor)
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
    got = op(t, t)
    np.testing.assert_allclose(got.numpy(), op(a, a), rtol=1e-6)


@pytest.mark.parametrize(
    "op", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne], ids=lambda o: o.__name__
)
def test_comparison_with_everything_on_either_side(op):
    a = np.array([1.0, 2.0, 3.0])
    t = wf.asarray(a)
    for other in (2, 2.0, np.float64(2), np.array([2.0, 2.0, 2.0])):
        for got, expected in ((op(t, other), op(a, other)), (op(other, t), op(other, a))):
            assert isinstance(got, wf.Tensor) and got.dtype is wf.bool
            np.testing.assert_array_equal(got.numpy(), expected)


def test_equality_with_other_objects():
    x = wf.tensor([1.0, 2.0])
    assert (x == None) is False and (x != None) is True and (x == "a") is False and (x == object()) is False  # noqa: E711
    assert (x == [1.0, 3.0]).tolist() == [True, False] and (x != (1.0, 3.0)).tolist() == [False, True]
    assert (x == {}) is False and (x == ["a", "b"]) is False
    for other in (None, "a", object(), {}):
        with pytest.raises(TypeError):
            x < other  # noqa: B015
    with pytest.raises(ValueError, match="shapes do not broadcast"):
        x == wf.ones(3)  # noqa: B015


@pytest.mark.parametrize("op", BINARY, ids=lambda o: o.__name__)
def test_arithmetic_with_nonsense(op):
    x = wf.ones(2)
    for other in (None, "a", [1, 2], (1, 2), {}, object(), decimal.Decimal(1)):
        with pytest.raises(TypeError):
            op(x, other)
        if other == "a" and op is operator.mod:
            continue  # text formatting
        with pytest.raises(TypeError):
            op(other, x)


def test_bits():
    i, b = wf.tensor([5, 6]), wf.tensor([True, False])
    assert (
        (i & 3).tolist() == [1, 2]
        and (3 | i).tolist() == [7, 7]
        and (i ^ i).tolist() == [0, 0]
        and (~i).tolist() == [-6, -7]
    )
    assert (i << 1).tolist() == [10, 12] and (1 << wf.tensor([3])).item() == 8 and (i >> 1).tolist() == [2, 3]
    assert (
        (b & True).tolist() == [True, False] and (~b).tolist() == [False, True] and (True ^ b).tolist() == [False, True]
    )
    for bad in (lambda: wf.ones(2) & 1, lambda: ~wf.ones(2), lambda: wf.ones(2) << 1, lambda: -b, lambda: b - b):
        with pytest.raises(TypeError):
            bad()


def test_unary_and_others():
    x = wf.tensor([-1.5, 2.5])
    assert (-x).tolist() == [1.5, -2.5] and (+x).tolist() == [-1.5, 2.5] and abs(x).tolist() == [1.5, 2.5]
    q, r = divmod(x, 2)
    assert q.tolist() == [-1, 1] and r.tolist() == [0.5, 0.5]
    q, r = divmod(7, wf.tensor([2, 4]))
    assert q.tolist() == [3, 1] and r.tolist() == [1, 3]
    assert round(x).tolist() == [-2, 2] and round(wf.tensor(2.567), 1).item() == pytest.approx(2.6)
    assert sum([x, x]).tolist() == [-3, 5] and max(wf.tensor(1), wf.tensor(2)).item() == 2
    assert (x @ x).item() == 2.25 + 6.25 and (np.eye(2, dtype=np.float32) @ x).tolist() == [-1.5, 2.5]


# NumPy around tensors ------------------------------------------------------------------------------------------------------


def test_array_protocol():
    x = wf.tensor([1.0, 2.0])
    assert np.asarray(x) is x.numpy() and np.array(x, copy=False) is x.numpy()
    assert not np.shares_memory(np.array(x), x.numpy()) and np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="needs a copy"):
        np.asarray(x, dtype=np.float64, copy=False)
    np.testing.assert_array_equal(x, [1, 2])
    np.testing.assert_allclose(x, x)
    with pytest.raises(
        RuntimeError, match=r"NumPy array: the tensor requires gradients. Write `x.detach\(\).numpy\(\)`"
    ):
        np.asarray(wf.ones(2, requires_grad=True))


def test_numpy_functions_on_tensors():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    y = np.sin(x)
    assert isinstance(y, wf.Tensor) and y.requires_grad
    assert isinstance(np.add(x, x), wf.Tensor) and isinstance(np.ones(2) * x, wf.Tensor)
    z = x.detach()
    for fn in (
        np.sum,
        np.mean,
        np.max,
        np.min,
        np.std,
        np.var,
        np.prod,
        np.argmax,
        np.cumsum,
        np.sort,
        np.median,
        np.cbrt,
        np.linalg.norm,
        np.ravel,
    ):
        np.testing.assert_allclose(np.asarray(fn(z)), fn(z.numpy()), rtol=1e-6)
    assert np.stack([z, z]).shape == (2, 2) and np.concatenate([z, z]).shape == (4,) and np.add.reduce(z) == 3
    a = np.ones(2)
    a += z
    assert a.tolist() == [2, 3]
    with pytest.raises(TypeError, match="NumPy cannot write into a tensor. Give it `t.numpy"):
        np.add(a, a, out=z)
    with pytest.raises(TypeError, match="`out` is not supported"):
        z.sum(out=a)


def test_array_namespace():
    x = wf.ones(1)
    assert x.__array_namespace__() is wf and x.__array_namespace__(api_version="2024.12") is wf
    with pytest.raises(ValueError, match="unknown version '1999'"):
        x.__array_namespace__(api_version="1999")


# Facts ---------------------------------------------------------------------------------------------------------------------


def test_facts():
    x = wf.zeros(2, 3, dtype=wf.float64)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.strides) == ((2, 3), 2, 6, 8, 48, (24, 8))
    assert x.numel() == 6 and x.dim() == 2 and x.element_size() == 8 and str(x.device) == "cpu:0"
    assert (
        x.is_floating_point()
        and not x.is_complex()
        and x.is_contiguous()
        and not x.T.is_contiguous()
        and not x.is_symbolic
    )
    assert x.T.shape == x.mT.shape == (3, 2) and wf.tensor(1.0).T.shape == ()
    assert wf.tensor([1 + 2j]).real.tolist() == [1] and wf.tensor([1 + 2j]).imag.tolist() == [2]
    with pytest.raises(AttributeError):
        x.foo = 1
    with pytest.raises(AttributeError):
        x.shape = (6,)


def test_methods_in_both_vocabularies():
    x = wf.arange(6, dtype=wf.float32).reshape(2, 3)
    assert x.view(3, 2).shape == x.reshape((3, 2)).shape == x.reshape(-1, 2).shape == (3, 2)
    assert x.permute(1, 0).shape == x.transpose(0, 1).shape == x.transpose().shape == (3, 2)
    assert (
        x.unsqueeze(0).shape == (1, 2, 3)
        and x.unsqueeze(0).squeeze().shape == (2, 3)
        and x.flatten().shape == x.ravel().shape == (6,)
    )
    assert x.sum(0).tolist() == x.sum(axis=0).tolist() == [3, 5, 7] and x.mean(1, keepdims=True).shape == (2, 1)
    assert x.expand(4, -1, 3).shape == (4, 2, 3) and x.contiguous() is x and x.T.contiguous().is_contiguous()
    assert (
        x.to(wf.float64).dtype is wf.float64
        and x.to("cpu") is x
        and x.to("float16").dtype is wf.float16
        and x.cpu() is x
    )
    with pytest.raises(ValueError, match="device: cannot read 'cuda'"):
        x.to("cuda")


# Copies and pickles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_pickle_every_dtype(dtype):
    for t in (
        wf.ones(2, 3, dtype=dtype),
        wf.ones(2, 3, dtype=dtype).T,
        wf.ones((), dtype=dtype),
        wf.ones(0, 2, dtype=dtype),
    ):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            u = pickle.loads(pickle.dumps(t, protocol))
            assert u.dtype is t.dtype and u.shape == t.shape and u.tolist() == t.tolist()
            if u.size:
                u += u
                assert t.tolist() != u.tolist() or dtype is wf.bool


def test_pickle_keeps_requires_grad_and_only_the_view():
    x = wf.ones(2, requires_grad=True)
    assert pickle.loads(pickle.dumps(x)).requires_grad
    assert len(pickle.dumps(wf.zeros(100_000)[:2])) < 2000
    with pytest.raises(RuntimeError, match="pickle: only leaf tensors can be pickled. Use `x.detach"):
        pickle.dumps(x * 2)


def test_copies():
    x = wf.ones(2, requires_grad=True)
    x.grad = wf.zeros(2)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    for c in (shallow, deep):
        assert c.requires_grad and c.is_leaf and not np.shares_memory(c.detach().numpy(), x.detach().numpy())
    deep.grad += 1
    assert x.grad.tolist() == [0, 0]
    y = x * 2
    assert copy.copy(y).requires_grad
    with pytest.raises(
        RuntimeError, match=r"deepcopy: only leaf tensors can be deep-copied. Use `x.detach\(\).clone\(\)`"
    ):
        copy.deepcopy(y)
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]
    assert x.clone().requires_grad and not np.shares_memory(x.clone().detach().numpy(), x.detach().numpy())


def test_subclasses_survive():
    class Named(wf.Tensor):
        pass

    t = Named([1.0, 2.0])
    assert isinstance(t, Named) and isinstance(copy.deepcopy(t), Named) and isinstance(copy.copy(t), Named)
    assert (t * 2).tolist() == [2, 4]


def test_unknown_names_are_suggested():
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'cocat'. Did you mean 'concat'"):
        wf.cocat
