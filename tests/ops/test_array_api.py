"""The Python array API standard, revision 2025.12: every name, every signature, dtype rules and special cases."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest

import weft as wf
from weft.dtypes import bfloat16, float16

INF, NAN = math.inf, math.nan

# One line per function, as the standard writes it.
MAIN = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing="xy")
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
abs(x, /)
acos(x, /)
acosh(x, /)
add(x1, x2, /)
asin(x, /)
asinh(x, /)
atan(x, /)
atan2(x1, x2, /)
atanh(x, /)
bitwise_and(x1, x2, /)
bitwise_left_shift(x1, x2, /)
bitwise_invert(x, /)
bitwise_or(x1, x2, /)
bitwise_right_shift(x1, x2, /)
bitwise_xor(x1, x2, /)
ceil(x, /)
clip(x, /, min=None, max=None)
conj(x, /)
copysign(x1, x2, /)
cos(x, /)
cosh(x, /)
divide(x1, x2, /)
equal(x1, x2, /)
exp(x, /)
expm1(x, /)
floor(x, /)
floor_divide(x1, x2, /)
greater(x1, x2, /)
greater_equal(x1, x2, /)
hypot(x1, x2, /)
imag(x, /)
isfinite(x, /)
isinf(x, /)
isnan(x, /)
less(x1, x2, /)
less_equal(x1, x2, /)
log(x, /)
log1p(x, /)
log2(x, /)
log10(x, /)
logaddexp(x1, x2, /)
logical_and(x1, x2, /)
logical_not(x, /)
logical_or(x1, x2, /)
logical_xor(x1, x2, /)
maximum(x1, x2, /)
minimum(x1, x2, /)
multiply(x1, x2, /)
negative(x, /)
nextafter(x1, x2, /)
not_equal(x1, x2, /)
positive(x, /)
pow(x1, x2, /)
real(x, /)
reciprocal(x, /)
remainder(x1, x2, /)
round(x, /)
sign(x, /)
signbit(x, /)
sin(x, /)
sinh(x, /)
square(x, /)
sqrt(x, /)
subtract(x1, x2, /)
tan(x, /)
tanh(x, /)
trunc(x, /)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
__array_namespace_info__()
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_shapes(*shapes)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side="left", sorter=None)
where(condition, x1, x2, /)
isin(x1, x2, /, *, invert=False)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
"""
LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eig(x, /)
eigh(x, /)
eigvals(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord="fro")
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode="reduced")
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""
FFT = """
fft(x, /, *, n=None, axis=-1, norm="backward")
ifft(x, /, *, n=None, axis=-1, norm="backward")
fftn(x, /, *, s=None, axes=None, norm="backward")
ifftn(x, /, *, s=None, axes=None, norm="backward")
rfft(x, /, *, n=None, axis=-1, norm="backward")
irfft(x, /, *, n=None, axis=-1, norm="backward")
rfftn(x, /, *, s=None, axes=None, norm="backward")
irfftn(x, /, *, s=None, axes=None, norm="backward")
hfft(x, /, *, n=None, axis=-1, norm="backward")
ihfft(x, /, *, n=None, axis=-1, norm="backward")
fftfreq(n, /, *, d=1.0, dtype=None, device=None)
rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fftshift(x, /, *, axes=None)
ifftshift(x, /, *, axes=None)
"""
INFO = """
capabilities()
default_device()
default_dtypes(*, device=None)
devices()
dtypes(*, device=None, kind=None)
"""
METHODS = """
__abs__(self, /)
__add__(self, other, /)
__and__(self, other, /)
__array_namespace__(self, /, *, api_version=None)
__bool__(self, /)
__complex__(self, /)
__dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None)
__dlpack_device__(self, /)
__eq__(self, other, /)
__float__(self, /)
__floordiv__(self, other, /)
__ge__(self, other, /)
__getitem__(self, key, /)
__gt__(self, other, /)
__index__(self, /)
__int__(self, /)
__invert__(self, /)
__le__(self, other, /)
__lshift__(self, other, /)
__lt__(self, other, /)
__matmul__(self, other, /)
__mod__(self, other, /)
__mul__(self, other, /)
__ne__(self, other, /)
__neg__(self, /)
__or__(self, other, /)
__pos__(self, /)
__pow__(self, other, /)
__rshift__(self, other, /)
__setitem__(self, key, value, /)
__sub__(self, other, /)
__truediv__(self, other, /)
__xor__(self, other, /)
to_device(self, device, /, *, stream=None)
"""
IN_PLACE_AND_REFLECTED = "add sub mul truediv floordiv pow mod matmul and or xor lshift rshift".split()


def _standard(text):
    for line in text.strip().splitlines():
        name, _, arguments = line.partition("(")
        scope = {}
        exec(f"def f({arguments}: pass", scope)
        yield name, inspect.signature(scope["f"])


def _cases():
    for where, owner, text in (
        ("weft", wf, MAIN), ("linalg", wf.linalg, LINALG), ("fft", wf.fft, FFT),
        ("info", wf.__array_namespace_info__(), INFO), ("Tensor", wf.Tensor, METHODS),
    ):  # fmt: skip
        for name, signature in _standard(text):
            yield pytest.param(owner, name, signature, id=f"{where}.{name}")


KINDS = inspect.Parameter


@pytest.mark.parametrize(("owner", "name", "signature"), list(_cases()))
def test_function_exists_and_takes_what_the_standard_says(owner, name, signature):
    function = getattr(owner, name, None)
    assert callable(function), f"{name} is missing"
    assert inspect.getdoc(function) or name.startswith("__"), f"{name} has no documentation"
    ours = inspect.signature(function)
    variadic = any(p.kind is KINDS.VAR_POSITIONAL for p in ours.parameters.values())
    positional = [p for p in ours.parameters.values() if p.kind in (KINDS.POSITIONAL_ONLY, KINDS.POSITIONAL_OR_KEYWORD)]
    place = 0
    for p in signature.parameters.values():
        if p.kind is KINDS.VAR_POSITIONAL:
            assert variadic, f"{name}: expected *{p.name}"
            continue
        if p.kind in (KINDS.POSITIONAL_ONLY, KINDS.POSITIONAL_OR_KEYWORD):
            assert place < len(positional) or variadic, f"{name}: {p.name} must be accepted by position"
            found = positional[place] if place < len(positional) else None
            place += 1
        if p.kind in (KINDS.POSITIONAL_OR_KEYWORD, KINDS.KEYWORD_ONLY):
            assert p.name in ours.parameters, f"{name}: {p.name} must be accepted by name"
            found = ours.parameters[p.name]
            assert found.kind in (KINDS.POSITIONAL_OR_KEYWORD, KINDS.KEYWORD_ONLY), f"{name}: {p.name} by name"
        if found is not None and p.default is not KINDS.empty:
            assert found.default == p.default, f"{name}: {p.name} defaults to {found.default!r}, expected {p.default!r}"
    for p in ours.parameters.values():  # what we take beyond the standard is optional
        if p.name not in signature.parameters and p.kind is KINDS.KEYWORD_ONLY:
            assert p.default is not KINDS.empty, f"{name}: {p.name} is not in the standard and has no default"


@pytest.mark.parametrize("name", IN_PLACE_AND_REFLECTED)
def test_operator_has_reflected_and_in_place_forms(name):
    assert callable(getattr(wf.Tensor, f"__r{name}__")) and callable(getattr(wf.Tensor, f"__i{name}__"))


def test_constants_dtypes_and_attributes():
    assert (wf.e, wf.pi, wf.inf, wf.newaxis) == (math.e, math.pi, math.inf, None) and math.isnan(wf.nan)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
    ).split():  # fmt: skip
        assert wf.zeros(1, dtype=getattr(wf, name)).dtype == getattr(wf, name)
    x = wf.zeros((2, 3))
    assert (x.shape, x.ndim, x.size, x.dtype) == ((2, 3), 2, 6, wf.float32)
    assert x.T.shape == x.mT.shape == (3, 2)
    assert x.device == wf.__array_namespace_info__().default_device()
    assert x.to_device(x.device) is x
    assert x.__dlpack_device__() == (1, 0)
    assert wf.__array_api_version__ == "2025.12"
    assert x.__array_namespace__(api_version="2025.12") is wf
    with pytest.raises(ValueError, match="unknown version"):
        x.__array_namespace__(api_version="1999.12")


def test_inspection():
    info = wf.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert wf.zeros((1,) * 64).ndim == 64
    assert info.default_device() in info.devices() and isinstance(info.devices(), tuple)
    assert info.default_dtypes() == {
        "real floating": wf.float32, "complex floating": wf.complex64, "integral": wf.int64, "indexing": wf.int64,
    }  # fmt: skip
    assert "float16" not in info.dtypes() and len(info.dtypes()) == 13
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    with pytest.raises(ValueError, match="unknown kind"):
        info.dtypes(kind="real")
    for device in info.devices():
        assert wf.ones(2, device=device).device == device


def test_dlpack_keywords():
    x = wf.arange(4)
    assert np.shares_memory(np.from_dlpack(x), x.numpy())
    assert not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())
    capsule = x.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)
    assert "dltensor" in str(capsule)
    assert np.shares_memory(wf.from_dlpack(x.numpy()).numpy(), x.numpy())
    assert not np.shares_memory(wf.from_dlpack(x.numpy(), copy=True).numpy(), x.numpy())


def test_limits_are_python_numbers():
    for dtype in (wf.float32, wf.float64, wf.complex64, bfloat16, float16):
        info = wf.finfo(dtype)
        assert all(type(v) is float for v in (info.eps, info.max, info.min, info.smallest_normal))
        assert type(info.bits) is int
    assert wf.finfo(wf.complex64).dtype == wf.float32
    assert wf.finfo(wf.zeros(1)).eps == np.finfo(np.float32).eps
    assert wf.iinfo(wf.int8).max == 127 and wf.iinfo(wf.zeros(1, dtype=wf.uint16)).max == 65535


# Promotion -------------------------------------------------------------------------------------------------------------

SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
MIXED = {  # signed x unsigned, as the standard's table has it
    ("int8", "uint8"): "int16", ("int8", "uint16"): "int32", ("int8", "uint32"): "int64",
    ("int16", "uint8"): "int16", ("int16", "uint16"): "int32", ("int16", "uint32"): "int64",
    ("int32", "uint8"): "int32", ("int32", "uint16"): "int32", ("int32", "uint32"): "int64",
    ("int64", "uint8"): "int64", ("int64", "uint16"): "int64", ("int64", "uint32"): "int64",
}  # fmt: skip
FLOATS = {
    ("float32", "float32"): "float32", ("float32", "float64"): "float64", ("float64", "float64"): "float64",
    ("float32", "complex64"): "complex64", ("float32", "complex128"): "complex128", ("float64", "complex64"): "complex128",
    ("float64", "complex128"): "complex128", ("complex64", "complex64"): "complex64", ("complex64", "complex128"): "complex128",
    ("complex128", "complex128"): "complex128",
}  # fmt: skip


def _promotions():
    table = {("bool", "bool"): "bool", **MIXED, **FLOATS}
    for group in (SIGNED, UNSIGNED):
        for i, j in itertools.product(range(4), repeat=2):
            table[group[i], group[j]] = group[max(i, j)]
    return {**table, **{(b, a): r for (a, b), r in table.items()}}


@pytest.mark.parametrize(
    ("pair", "result"), list(_promotions().items()), ids=lambda v: "-".join(v) if isinstance(v, tuple) else v
)
def test_promotion(pair, result):
    a, b = (getattr(wf, n) for n in pair)
    expected = getattr(wf, result)
    assert wf.result_type(a, b) == expected
    x, y = wf.ones(2, dtype=a), wf.ones(2, dtype=b)
    assert wf.result_type(x, b) == wf.result_type(a, y) == expected
    operators = [wf.add, wf.multiply, wf.where] if result != "bool" else [wf.logical_and, wf.bitwise_or, wf.where]
    for f in operators:
        out = f(wf.asarray([True, False]), x, y) if f is wf.where else f(x, y)
        assert out.dtype == expected, f.__name__
    assert wf.concat([x, y]).dtype == wf.stack([x, y]).dtype == expected
    assert wf.equal(x, y).dtype == wf.bool
    assert wf.can_cast(a, expected) and wf.can_cast(b, expected)
    if a == expected:
        x += y
        assert x.dtype == a
    if result != "bool":
        assert wf.matmul(wf.ones(2, dtype=a), y).dtype == wf.tensordot(wf.ones(2, dtype=a), y, axes=1).dtype == expected


def test_each_input_gets_its_gradient_in_its_own_dtype():
    for f in (
        wf.matmul,
        wf.multiply,
        wf.linalg.solve,
        wf.tensordot,
        lambda a, b: wf.concat([a, b]),
        lambda a, b: wf.einsum("ij,jk", a, b),
    ):
        a = wf.eye(2).requires_grad_()
        b = wf.eye(2, dtype=wf.float64).requires_grad_()
        wf.sum(f(a, b)).backward()
        assert (a.grad.dtype, b.grad.dtype) == (wf.float32, wf.float64)


@pytest.mark.parametrize("signed", SIGNED)
def test_uint64_and_signed_integers_have_no_common_dtype(signed):
    with pytest.raises(TypeError, match="no common integer dtype"):
        wf.ones(1, dtype=wf.uint64) + wf.ones(1, dtype=getattr(wf, signed))


@pytest.mark.parametrize(
    ("dtype", "scalar", "result"),
    [
        *[(d, 1, d) for d in SIGNED + UNSIGNED + ["float32", "float64", "complex64", "complex128"]],
        *[(d, 1.5, d) for d in ("float32", "float64", "complex64", "complex128")],
        ("float32", 1j, "complex64"), ("float64", 1j, "complex128"), ("complex64", 1j, "complex64"),
        ("bool", True, "bool"),
    ],
)  # fmt: skip
def test_python_scalars_are_weak(dtype, scalar, result):
    x = wf.ones(2, dtype=getattr(wf, dtype))
    combine = [lambda a, b: a | b, wf.logical_or] if dtype == "bool" else [lambda a, b: a + b, wf.add, wf.multiply]
    for f in combine:
        assert f(x, scalar).dtype == f(scalar, x).dtype == getattr(wf, result)
    assert wf.result_type(x, scalar) == getattr(wf, result)


@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
)
def test_bitwise_functions_take_scalars(name):
    x = wf.asarray([1, 2, 5], dtype=wf.int8)
    f, ref = (getattr(wf, name), getattr(np, name.replace("bitwise_left", "left").replace("bitwise_right", "right")))
    for a, b in ((x, 2), (2, x)):
        out = f(a, b)
        assert out.dtype == wf.int8
        np.testing.assert_array_equal(
            out.numpy(), ref(*[v.numpy() if isinstance(v, wf.Tensor) else np.int8(v) for v in (a, b)])
        )


def test_a_scalar_that_does_not_fit_is_refused():
    with pytest.raises(OverflowError, match="add: .*300"):
        wf.ones(2, dtype=wf.uint8) + 300


def test_sums_of_small_integers_are_wide():
    for name, wide in (
        ("int8", "int64"),
        ("uint8", "uint64"),
        ("int64", "int64"),
        ("float32", "float32"),
        ("bool", "int64"),
    ):
        x = wf.ones(3, dtype=getattr(wf, name))
        for f in (wf.sum, wf.prod, wf.cumulative_sum, wf.cumulative_prod):
            assert f(x).dtype == getattr(wf, wide), (f, name)
    assert wf.linalg.trace(wf.ones((2, 2), dtype=wf.int8)).dtype == wf.int64
    assert wf.sum(wf.ones(3), dtype=wf.float64).dtype == wf.float64


def test_creation_defaults():
    assert wf.zeros(shape=(2, 3)).shape == wf.ones((2, 3)).shape == wf.empty(shape=[2, 3]).shape == (2, 3)
    assert wf.arange(3).dtype == wf.int64 and wf.arange(3.0).dtype == wf.float32
    assert (
        wf.full(2, 1).dtype == wf.int64 and wf.full(2, 1j).dtype == wf.complex64 and wf.full(2, True).dtype == wf.bool
    )
    assert wf.linspace(0, 1, num=5, endpoint=False).tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert wf.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert [g.shape for g in wf.meshgrid(wf.arange(2), wf.arange(3))] == [(3, 2), (3, 2)]
    assert isinstance(wf.meshgrid(wf.arange(2)), tuple) and isinstance(wf.broadcast_arrays(wf.arange(2)), tuple)


def test_astype_copies_unless_told_not_to():
    x = wf.ones(2)
    assert wf.astype(x, wf.float32) is not x and not np.shares_memory(wf.astype(x, wf.float32).numpy(), x.numpy())
    assert wf.astype(x, wf.float32, copy=False) is x
    with pytest.raises(TypeError, match="astype: a complex tensor"):
        wf.astype(wf.ones(2, dtype=wf.complex64), wf.float32)


def test_broadcast_shapes():
    assert wf.broadcast_shapes() == ()
    assert wf.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert wf.broadcast_shapes((None, 3), (1, 3)) == (None, 3)
    with pytest.raises(ValueError, match="broadcast_shapes: shapes do not broadcast"):
        wf.broadcast_shapes((2,), (3,))


def test_results_with_names():
    x = wf.asarray([[2.0, 0.0], [0.0, 1.0]])
    assert wf.unique_all(x)._fields == ("values", "indices", "inverse_indices", "counts")
    assert wf.unique_counts(x)._fields == ("values", "counts")
    assert wf.unique_inverse(x)._fields == ("values", "inverse_indices")
    assert wf.linalg.eigh(x)._fields == wf.linalg.eig(x)._fields == ("eigenvalues", "eigenvectors")
    assert wf.linalg.qr(x)._fields == ("Q", "R")
    assert wf.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert wf.linalg.svd(x)._fields == ("U", "S", "Vh")
    assert wf.linalg.eig(x).eigenvalues.dtype == wf.complex64
    assert wf.unique_inverse(x).inverse_indices.shape == x.shape


# Special cases ---------------------------------------------------------------------------------------------------------

UNARY = [
    ("sqrt", -0.0, -0.0), ("sqrt", -1.0, NAN), ("exp", -INF, 0.0), ("expm1", -0.0, -0.0), ("expm1", -INF, -1.0),
    ("log", 0.0, -INF), ("log", -1.0, NAN), ("log1p", -1.0, -INF), ("log1p", -0.0, -0.0), ("log2", INF, INF),
    ("log10", 1.0, 0.0), ("sin", -0.0, -0.0), ("sin", INF, NAN), ("cos", 0.0, 1.0), ("tan", -0.0, -0.0),
    ("asin", 2.0, NAN), ("acos", 1.0, 0.0), ("atan", INF, math.pi / 2), ("sinh", -INF, -INF), ("cosh", -INF, INF),
    ("tanh", INF, 1.0), ("tanh", -0.0, -0.0), ("asinh", -0.0, -0.0), ("acosh", 0.5, NAN), ("atanh", 1.0, INF),
    ("atanh", -1.0, -INF), ("floor", -0.0, -0.0), ("ceil", -0.5, -0.0), ("trunc", -0.5, -0.0), ("round", 2.5, 2.0),
    ("round", -0.5, -0.0), ("sign", -0.0, 0.0), ("sign", NAN, NAN), ("abs", -0.0, 0.0), ("abs", -INF, INF),
    ("reciprocal", -0.0, -INF), ("square", -INF, INF), ("negative", 0.0, -0.0),
]  # fmt: skip
BINARY = [
    ("pow", NAN, 0.0, 1.0), ("pow", 1.0, NAN, 1.0), ("pow", 0.0, -1.0, INF), ("pow", -0.0, -1.0, -INF),
    ("pow", -8.0, 1 / 3, NAN), ("pow", -1.0, INF, 1.0), ("atan2", 0.0, -0.0, math.pi), ("atan2", -0.0, 0.0, -0.0),
    ("atan2", INF, -INF, 3 * math.pi / 4), ("divide", 1.0, -0.0, -INF), ("divide", 0.0, 0.0, NAN),
    ("floor_divide", 7.0, -2.0, -4.0), ("floor_divide", -1.0, INF, -1.0), ("remainder", 7.0, -2.0, -1.0),
    ("remainder", -1.0, 3.0, 2.0), ("remainder", 1.0, 0.0, NAN), ("hypot", INF, NAN, INF), ("hypot", 3.0, 4.0, 5.0),
    ("logaddexp", -INF, -INF, -INF), ("logaddexp", INF, 0.0, INF), ("maximum", NAN, 1.0, NAN), ("minimum", 1.0, NAN, NAN),
    ("copysign", 1.0, -0.0, -1.0), ("copysign", NAN, 1.0, NAN), ("nextafter", 1.0, 1.0, 1.0), ("nextafter", 1.0, NAN, NAN),
    ("subtract", INF, INF, NAN), ("multiply", 0.0, INF, NAN),
]  # fmt: skip


def _same(got, expected):
    assert got.shape == ()
    value = got.item()
    if math.isnan(expected):
        assert math.isnan(value)
    else:
        assert value == pytest.approx(expected, rel=1e-6) and math.copysign(1, value) == math.copysign(1, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "x", "expected"), UNARY, ids=lambda v: str(v))
def test_unary_special_case(name, x, expected, dtype):
    _same(getattr(wf, name)(wf.asarray(x, dtype=getattr(wf, dtype))), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "x1", "x2", "expected"), BINARY, ids=lambda v: str(v))
def test_binary_special_case(name, x1, x2, expected, dtype):
    dtype = getattr(wf, dtype)
    _same(getattr(wf, name)(wf.asarray(x1, dtype=dtype), wf.asarray(x2, dtype=dtype)), expected)


def test_rounding_keeps_integers():
    for f in (wf.floor, wf.ceil, wf.trunc, wf.round):
        assert f(wf.arange(3, dtype=wf.int16)).dtype == wf.int16
    assert wf.conj(wf.ones(2)).dtype == wf.real(wf.ones(2)).dtype == wf.float32


def test_predicates():
    x = wf.asarray([0.0, -0.0, NAN, INF, -INF])
    assert wf.isnan(x).tolist() == [False, False, True, False, False]
    assert wf.isinf(x).tolist() == [False, False, False, True, True]
    assert wf.isfinite(x).tolist() == [True, True, False, False, False]
    assert wf.signbit(x)[:2].tolist() == [False, True]
    for f in (wf.isnan, wf.isinf, wf.isfinite):
        assert f(wf.arange(2)).dtype == wf.bool and f(wf.ones(1, dtype=wf.complex64)).dtype == wf.bool


def test_reductions_of_nothing():
    empty = wf.zeros(0)
    assert (wf.sum(empty).item(), wf.prod(empty).item()) == (0.0, 1.0)
    assert wf.all(empty).item() is True and wf.any(empty).item() is False
    assert math.isnan(wf.mean(empty).item()) and math.isnan(wf.var(empty).item()) and math.isnan(wf.std(empty).item())
    for f in (wf.max, wf.min, wf.argmax, wf.argmin):
        with pytest.raises(ValueError, match=f"{f.__name__}: "):
            f(empty)
    assert wf.cumulative_sum(empty).shape == (0,) and wf.cumulative_sum(empty, include_initial=True).tolist() == [0.0]
    assert math.isnan(wf.max(wf.asarray([1.0, NAN])).item()) and math.isnan(wf.min(wf.asarray([1.0, NAN])).item())
    assert wf.any(wf.asarray([NAN])).item() is True
    assert math.isnan(wf.quantile(wf.asarray([1.0, NAN, 2.0]), 0.5).item())


def test_sorting_is_stable_and_nan_is_largest():
    x = wf.asarray([2, 1, 2, 1, 0])
    assert wf.argsort(x).tolist() == [4, 1, 3, 0, 2]
    assert wf.argsort(x, descending=True).tolist() == [0, 2, 1, 3, 4]
    assert wf.argsort(wf.asarray([NAN, 1.0, INF])).tolist() == [1, 2, 0]
    for dtype in (wf.bool, wf.uint8, wf.float16, wf.bfloat16, wf.float64):
        y = wf.asarray([1, 0, 1, 0]).astype(dtype)
        assert wf.sort(y).dtype == dtype and wf.sort(y).astype(wf.int64).tolist() == [0, 0, 1, 1]
        assert wf.sort(y, descending=True).astype(wf.int64).tolist() == [1, 1, 0, 0]
        assert wf.argmax(y).item() == 0 and wf.unique_values(y).astype(wf.int64).tolist() == [0, 1]


def test_unique_keeps_nans_apart():
    values, indices, inverse, counts = wf.unique_all(wf.asarray([NAN, 1.0, NAN, 1.0]))
    assert values.shape == (3,) and counts.tolist() == [2, 1, 1] and indices[0].item() == 1
    assert inverse[1].item() == inverse[3].item() == 0 and inverse[0].item() != inverse[2].item()


def test_searching():
    x = wf.asarray([1, 2, 2, 3])
    assert wf.searchsorted(x, 2).item() == 1 and wf.searchsorted(x, 2, side="right").item() == 3
    assert wf.searchsorted(wf.asarray([3, 1, 2]), wf.asarray([2]), sorter=wf.asarray([1, 2, 0])).tolist() == [1]
    with pytest.raises(ValueError, match="nonzero: expected a tensor with at least one axis"):
        wf.nonzero(wf.asarray(1))
    assert [i.tolist() for i in wf.nonzero(wf.asarray([[0, 1], [2, 0]]))] == [[0, 1], [1, 0]]
    assert wf.isin(wf.asarray([1, 2]), 2).tolist() == [False, True] and wf.isin(2, wf.asarray([1, 2])).item() is True
    assert wf.where(wf.asarray([True, False]), 1.0, wf.ones(2, dtype=wf.float64) * 2).tolist() == [1.0, 2.0]
    assert wf.take(wf.asarray([1, 2, 3]), wf.asarray([-1, 0])).tolist() == [3, 1]


def test_axes():
    x = wf.zeros((2, 3))
    assert wf.expand_dims(x, axis=(0, -1)).shape == (1, 2, 3, 1)
    assert wf.permute_dims(x, (-1, 0)).shape == (3, 2)
    assert wf.cumulative_sum(wf.ones(3), include_initial=True).tolist() == [0, 1, 2, 3]
    assert wf.diff(wf.asarray([1, 4, 9]), prepend=wf.asarray([0]), n=2).tolist() == [2, 2]
    assert wf.linalg.cross(wf.asarray([1, 0, 0]), wf.asarray([[0, 1, 0]])).tolist() == [[0, 0, 1]]
    assert wf.linalg.matrix_rank(wf.ones((2, 3, 3))).tolist() == [1, 1]


def test_scalars_convert():
    assert (int(wf.asarray(3)), float(wf.asarray(1.5)), complex(wf.asarray(1j)), bool(wf.asarray(2))) == (
        3,
        1.5,
        1j,
        True,
    )
    assert [10, 20][wf.asarray(1)] == 20
    with pytest.raises(TypeError, match="index: only a 0-d integer"):
        [10, 20][wf.asarray(1.0)]
