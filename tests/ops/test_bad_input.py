"""Whatever a program passes, the answer is a result or a Python exception that names the function; never a crash or hang.

Every op of the table is called with its own samples, spoilt at random: another shape, dtype or rank, a wrong Python
type, an axis or index that does not exist, a huge or negative size, NaN. Public functions that are no ops are called
with random arguments by their signatures.
"""

from __future__ import annotations

import inspect
import operator
import os
import random
import re
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import weft as wf
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker

ALLOWED = (TypeError, ValueError, IndexError, OverflowError, MemoryError, RuntimeError)
HUGE = 2**40
EXAMPLES = int(os.environ.get("WEFT_FUZZ_EXAMPLES", "4"))  # per op and function; a thorough search takes 200
pytestmark = pytest.mark.timeout(60 + EXAMPLES)

# Built by the given random source: it is the only thing hypothesis draws, which keeps examples cheap and repeatable.


def _array(r):
    shape = r.choice(
        [(), (0,), (1,), (3,), (2, 3), (3, 2), (2, 2), (0, 3), (2, 0), (1, 1, 1), (2, 3, 4), (2, 1, 2, 2), (5,) * 6]
    )
    kind = r.choice(
        [
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "int64",
            "int8",
            "uint8",
            "uint64",
            "bool",
            "complex64",
            "complex128",
        ]
    )
    values = np.random.default_rng(r.randrange(1000)).standard_normal(shape) * r.choice([1, 1, 100])
    if values.size and r.random() < 0.2:
        values.flat[0] = r.choice([np.nan, np.inf, -np.inf])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.asarray(values).astype(getattr(wf, kind))
    if array.ndim and r.random() < 0.2:
        array = array[..., ::-1]
    if r.random() < 0.1:
        array = np.broadcast_to(array, (2, *array.shape))
    return wf.asarray(array)


def _scalar(r):
    return r.choice([
        0, 1, -1, 2, 3, 7, -3, 100, True, False, 0.0, 0.5, -1.5, 1e30, float("nan"), float("inf"), 1j, None,
        HUGE, -HUGE, 2**63, 10**30, "a", "", "ij->i", "left", b"x", (), (0,), (1, 1), (-1,), (0, 0), (99,), (HUGE, HUGE),
        (2, 3), [], [0], [1.5], [[1, 2], [3]], ["a"], {}, {"a": 1}, {1}, object(), len, int, wf.float32, "float32", np.float32,
        slice(None), Ellipsis, range(3), np.int64(1), np.float64(0.5), np.array([1, 2]), np.array("a"),
        np.array([object()]), (None,), (1.5, 2),
    ])  # fmt: skip


def _anything(r):
    return _array(r) if r.random() < 0.5 else _scalar(r)


def _tensors(value):
    if isinstance(value, np.ndarray):
        return wf.asarray(value.copy())
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray) for v in value):
        return tuple(_tensors(v) for v in value)
    return value


def _spoil(r, args, kwargs):
    """Change one or two things about a call."""
    args, kwargs = list(args), dict(kwargs)
    for _ in range(r.choice([1, 1, 2])):
        what = r.random()
        if what < 0.6 and args:
            i = r.randrange(len(args))
            if isinstance(args[i], tuple) and args[i] and r.random() < 0.5:
                items = list(args[i])
                items[r.randrange(len(items))] = _anything(r)
                args[i] = tuple(items)
            else:
                args[i] = _anything(r)
        elif what < 0.75 and kwargs:
            kwargs[r.choice(sorted(kwargs))] = _anything(r)
        elif what < 0.85 and args:
            args.pop(r.randrange(len(args)))
        elif what < 0.93:
            args.append(_anything(r))
        else:
            kwargs[r.choice(["axis", "keepdims", "dtype", "nonsense", "out"])] = _anything(r)
    return args, kwargs


def _show(value):
    if isinstance(value, wf.Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    return repr(value)[:80]


_PREFIX = re.compile(r"[a-z_]\w*(\(\))?:? ")


def _named(text, names):
    return any(text.startswith((f"{name}: ", f"{name}() ")) for name in names)


def _attempt(names, function, args, kwargs):
    """Call; any refusal must be of an allowed type and start with one of `names` (with some name if none is given)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = function(*args, **kwargs)
    except ALLOWED as error:
        text = str(error)
        if not (_named(text, names) if names else _PREFIX.match(text)):
            call = f"({', '.join([_show(a) for a in args] + [f'{k}={_show(v)}' for k, v in kwargs.items()])})"
            raise AssertionError(
                f"{(names or [function])[0]}{call}: {type(error).__name__}: {text!r} does not name the function"
            ) from error
        return
    for o in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(o, wf.Tensor):
            assert isinstance(o._data, np.ndarray) and o.dtype in wf.dtypes.ALL
            o.numpy() if not o.requires_grad else o.detach().numpy()


_OPS = [op for op in table.values() if op.samples is not None and "random" not in op.effects]


def _names(op):
    """A primitive behind several public functions speaks of the one that called it: any name will do."""
    own = op.namespace in ("weft", "linalg", "fft") and hasattr(wf, op.name)
    return [op.title, op.name] if own else []


@pytest.mark.parametrize("op", _OPS, ids=[op.name for op in _OPS])
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_op_refuses_or_answers(op, seed):
    r = random.Random(seed ^ zlib.crc32(op.name.encode()))
    samples = op.samples(Maker(r.randrange(50)))
    if not samples:
        return
    sample = r.choice(samples)
    args, kwargs = [_tensors(a) for a in sample.args], {k: _tensors(v) for k, v in sample.kwargs.items()}
    args, kwargs = _spoil(r, args, kwargs)
    if op.namespace == "internal" and not _public_kind(op, args, kwargs):
        return
    with np.errstate(all="ignore"):
        _attempt(_names(op), op.call, args, kwargs)


def _public_kind(op, args, kwargs):
    """Primitives behind public functions get attributes that were checked before: only their tensors are spoilt."""
    try:
        values = op.bind(tuple(args), kwargs)
    except TypeError:
        return True
    return all(_plain(v) for v in op.attrs(values))


def _plain(value):
    return not isinstance(
        value, (wf.Tensor, np.ndarray, dict, set, list, slice, range, bytes, str, type(len), type, complex)
    ) and (
        not isinstance(value, (int, tuple))
        or -9 < min(_numbers(value), default=0) <= max(_numbers(value), default=0) < 100
    )


def _numbers(value):
    return [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, (int, float))]


_SKIP = {  # what is not a function of values: switches, differentiation, state
    "set_printoptions",
    "grad", "backward", "value_and_grad", "grad_fn", "vjp", "jvp", "jacobian", "hessian", "register_kernel", "vmap",
    "checkpoint", "set_default_dtype", "get_default_dtype", "manual_seed", "seed", "set_rng_state", "get_rng_state",
    "initial_seed", "set_detect_anomaly", "is_grad_enabled", "is_autocast_enabled", "__array_namespace_info__",
}  # fmt: skip


def _functions():
    found = []
    for where, owner in (("wf", wf), ("wf.linalg", wf.linalg), ("wf.fft", wf.fft), ("F", wf.nn.functional)):
        for name, value in sorted(vars(owner).items()):
            if (
                name.startswith("_")
                or name in _SKIP
                or not inspect.isfunction(value)
                or not value.__module__.startswith("weft")
            ):
                continue
            found.append(pytest.param(name, value, id=f"{where}.{name}"))
    return found


def _random_call(r, function):
    """Arguments by the signature: mostly tensors where tensors belong, anything elsewhere."""
    args, kwargs = [], {}
    for p in inspect.signature(function).parameters.values():
        value = _array(r) if "Tensor" in str(p.annotation) and r.random() < 0.7 else _anything(r)
        if p.kind is p.VAR_POSITIONAL:
            args += [_anything(r) for _ in range(r.randrange(3))]
        elif p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            if p.name in ("arrays", "operands") and r.random() < 0.7:
                value = tuple(_array(r) for _ in range(r.randrange(3)))
            args.append(value)
        elif r.random() < 0.35 and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
            kwargs[p.name] = value
    return args, kwargs


@pytest.mark.parametrize(("name", "function"), _functions())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_public_function_refuses_or_answers(name, function, seed):
    r = random.Random(seed ^ zlib.crc32(name.encode()))
    args, kwargs = _random_call(r, function)
    op = getattr(function, "op", None)
    names = [name] if op is None or op.composite else _names(op)
    with np.errstate(all="ignore"):
        _attempt(names, function, args, kwargs)


def _methods():
    skip = {"backward", "register_hook", "retain_grad", "requires_grad_", "detach_", "share_memory_"}
    found = []
    for name in sorted(dir(wf.Tensor)):
        value = inspect.getattr_static(wf.Tensor, name)
        if not name.startswith("_") and name not in skip and inspect.isfunction(value):
            found.append(pytest.param(name, value, id=name))
    return found


@pytest.mark.parametrize(("name", "method"), _methods())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_method_refuses_or_answers(name, method, seed):
    r = random.Random(seed ^ zlib.crc32(name.encode()))
    x = _array(r)
    if not x.numpy().flags.writeable:
        x = x.clone()
    args, kwargs = _random_call(r, method)
    with np.errstate(all="ignore"):
        _attempt([], getattr(x, name), args[1:], kwargs)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "pow", "matmul", "and", "lshift", "lt", "eq", "getitem"]
)
@settings(
    max_examples=5 * EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_operator_refuses_or_answers(name, seed):
    r = random.Random(seed ^ zlib.crc32(name.encode()))
    x, y = _array(r), _anything(r)
    function = getattr(operator, f"__{name}__")
    if not isinstance(y, (np.ndarray, np.generic)):  # NumPy asks first whether it can take the tensor apart
        try:
            _attempt([], function, (x, y), {})
        except AssertionError as error:
            assert "unsupported operand" in str(error) or "not supported between" in str(error), str(error)


# Found by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: wf.arange(2**34),
        lambda: wf.arange(0.0, 2.0**34),
        lambda: wf.linspace(0, 1, 2**34),
        lambda: wf.eye(2**20),
        lambda: wf.fft.fftfreq(2**34),
        lambda: wf.fft.rfftfreq(2**36),
    ],
)
def test_constructors_refuse_what_does_not_fit_before_they_ask_for_it(make):
    with pytest.raises(MemoryError, match="does not fit into memory. Got a shape"):
        make()


def test_integers_to_negative_powers_are_refused_at_every_size():
    for n in (3, 40000):
        with pytest.raises(ValueError, match="pow: integers to negative powers"):
            wf.full((n,), 2, dtype=wf.int64) ** wf.full((n,), -1, dtype=wf.int64)


def test_einsum_of_many_operands_takes_them_in_order():
    many = [wf.full((2, 2), 2.0)] + [wf.ones((2, 2))] * 200
    assert wf.einsum(",".join(["ab"] * 201) + "->", *many).item() == 8.0


def test_ragged_lists_of_indices_are_index_errors():
    with pytest.raises(IndexError, match="index: a list of indices has no single shape"):
        wf.ones((2, 3))[[[0, 1], [1]]]


def test_true_is_no_axis():
    with pytest.raises(TypeError, match="sum: axis must be an integer. Got True"):
        wf.sum(wf.ones((2, 3)), axis=True)


def test_a_sparse_tensor_with_too_many_places_says_so():
    huge = wf.sparse.coo_tensor(wf.asarray([[0], [0]]), wf.ones(1), (HUGE, HUGE))
    assert huge.size == HUGE**2
    with pytest.raises((ValueError, MemoryError), match="more places than|does not fit"):
        huge.to_dense()


def test_long_chains_of_ops_and_views_run_backward_and_are_freed_without_recursion():
    x = wf.ones((2,), requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]
    y = x * 1
    for _ in range(20_000):
        y = y.reshape((2,))
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
    y = x
    for _ in range(100_000):
        y = y * 1.0
    del y


def test_writing_through_a_long_chain_of_views():
    x = wf.ones((2,), requires_grad=True)
    base = x * 1
    view = base
    for _ in range(3000):
        view = view.reshape((2,))
    view *= 3
    base.sum().backward()
    assert base.tolist() == [3, 3] and x.grad.tolist() == [3, 3]
