"""Random keys, in JAX's way: the functions of `weft.random` whose first argument is a key.

A key is a value: a function of a key is pure, the same key gives the same numbers, eagerly, captured and under `vmap`. Numbers
for several purposes come from keys that `split` or `fold_in` derive. A key is the state of a generator (Note [Random numbers] in
`weft.ops.array.philox`), which no draw advances: `normal(key(0), shape)` are the first numbers of `wf.Generator(0)`.

Derived keys are random words of their parent, drawn at an offset of their own (`_SPLIT`, `_FOLD`), apart from those of draws.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from . import dtypes
from .autograd.tree import Kind, register
from .autograd.vmap import keyed
from .errors import format_shape
from .ops.array import random_ops
from .ops.array.elementwise import astype, log, where
from .ops.array.shaping import reshape, stack
from .ops.core import define
from .ops.core.error_names import guarded
from .ops.core.spec import as_integer, broadcast_shapes, check_shape, check_size
from .tensor import Tensor, wrap
from .typing import DTypeLike, ShapeLike

F = TypeVar("F", bound=Callable[..., Any])


_SPLIT = 0x53504C4954  # offsets that draws do not reach
_FOLD = 0x464F4C44494E << 8
_SIGN = 1 << 63


class Key:
    """A random key, or several: what the functions of `weft.random` draw from without changing it.

    A tree with one leaf (`weft.tree`), so it passes through `wf.function`, `vmap`, `scan` and the other transforms.

    >>> first, second = wf.random.split(wf.random.key(0))
    >>> bool((wf.random.normal(first, (3,)) == wf.random.normal(second, (3,))).any())
    False
    """

    __slots__ = ("data",)
    data: Tensor
    """an int64 tensor [seed, offset], with further axes in front for several keys"""

    def __init__(self, data: Tensor) -> None:
        self.data = data

    @property
    def shape(self) -> tuple[int, ...]:
        """() for one key, (n,) for n."""
        return tuple(self.data.shape[:-1])

    @property
    def ndim(self) -> int:
        """The number of axes of `shape`."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: this is one key. `wf.random.split(key, n)` makes several.")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Key:
        if not self.shape:
            raise IndexError("key: this is one key. `wf.random.split(key, n)` makes several.")
        return Key(self.data[index])

    def __iter__(self) -> Iterator[Key]:
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        if self.data.is_symbolic:
            return f"Key(symbolic, shape={format_shape(self.shape)})"
        return f"Key({self.data.tolist()})"


register(Key, Kind(lambda k: (None, (k.data,)), lambda cls, aux, items: Key(items[0]), lambda cls, aux, n: [".data"]))


def _public(function: F) -> F:
    """A function of `weft.random` alone, not of `weft`; its errors have its name."""
    made: Any = guarded(function)
    made.namespace = "random"
    return made


def takes_key(keyed_function: Callable[..., Any]) -> Callable[[F], F]:
    """Let a function of `weft.random` be called with a key first, which is `keyed_function`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            if args and args[0].__class__ is Key or "key" in kwargs:
                return keyed_function(*args, **kwargs)
            return function(*args, **kwargs)

        return either  # type: ignore[return-value]

    return decorate


def _signed(value: int) -> int:
    return ((value + _SIGN) & 0xFFFFFFFFFFFFFFFF) - _SIGN


def _state(op: str, key: Any, several: bool = False) -> Tensor:
    if not isinstance(key, Key):
        raise TypeError(f"{op}: expected a key first. Got {type(key).__name__}; make one with `wf.random.key(seed)`.")
    if key.shape and not several:
        raise ValueError(
            f"{op}: expected one key. Got keys of shape {format_shape(key.shape)}; use `keys[i]` or `wf.vmap`."
        )
    return key.data


def _draw(function: Callable[..., Any], *args: Any) -> Any:
    with keyed():
        return function(*args)


def _float(dtype: Any) -> np.dtype:
    return dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def _sizes(op: str, shape: Any) -> tuple[int, ...]:
    return check_shape(op, () if shape is None else shape)


# Keys --------------------------------------------------------------------------------------------------------------------


@_public
def key(seed: int | Tensor) -> Key:
    """A key made from a seed: an integer of 64 bits, or an integer tensor without axes.

    >>> wf.random.key(0)
    Key([0, 0])
    """
    if isinstance(seed, Tensor):
        if not dtypes.is_integral(seed.dtype) or seed.ndim != 0:
            raise TypeError(f"key: expected one integer. Got {seed.dtype.name} {format_shape(seed.shape)}.")
        word = astype(seed, dtypes.int64)
        return Key(stack([word, word ^ word]))
    try:
        value = as_integer(seed)
    except TypeError:
        raise TypeError(f"key: expected an integer. Got {seed!r}.") from None
    if not -_SIGN <= value < 2 * _SIGN:
        raise ValueError(f"key: expected an integer of 64 bits. Got {value}.")
    return Key(wrap(np.array([_signed(value), 0], np.int64)))


@_public
def PRNGKey(seed: int | Tensor) -> Key:
    """JAX's older name of `key`.

    >>> wf.random.PRNGKey(7)
    Key([7, 0])
    """
    return key(seed)


def _derived(state: Tensor, change: Any, count: tuple[int, ...]) -> Tensor:
    """New states: random words of the state whose offset is changed by the bits of `change`."""
    bits = _draw(random_ops.random_bits, state ^ change, (*count, 2), dtypes.uint64)
    return astype(bits, dtypes.int64)


@_public
def split(key: Key, num: int | tuple[int, ...] = 2) -> Key:
    """Keys derived from a key, which should not be used again: `num` of them, or an array of that shape.

    >>> keys = wf.random.split(wf.random.key(0), 3)
    >>> len(keys), keys[0].shape
    (3, ())
    """
    state = _state("split", key)
    count = check_shape("split", num)
    return Key(_derived(state, define.constant(np.array([0, _SPLIT], np.int64)), count))


@_public
def fold_in(key: Key, data: int | Tensor) -> Key:
    """The key for a number: another one for every `data`, such as the number of a step or a worker.

    >>> base = wf.random.key(0)
    >>> wf.random.fold_in(base, 1).data.tolist() == wf.random.fold_in(base, 2).data.tolist()
    False
    """
    state = _state("fold_in", key)
    if isinstance(data, Tensor):
        if not dtypes.is_integral(data.dtype) or data.ndim != 0:
            raise TypeError(f"fold_in: data must be one integer. Got {data.dtype.name} {format_shape(data.shape)}.")
        word = astype(data, dtypes.int64)
        change = stack([word ^ word, word]) ^ define.constant(np.array([0, _FOLD], np.int64))
    else:
        change = define.constant(np.array([0, _signed(as_integer(data) & 0xFFFFFFFFFFFFFFFF) ^ _FOLD], np.int64))
    return Key(_derived(state, change, ()))


@_public
def key_data(keys: Key) -> Tensor:
    """The int64 words of a key, to store it.

    >>> wf.random.key_data(wf.random.key(5))
    tensor([5, 0])
    """
    return _state("key_data", keys, several=True)


@_public
def wrap_key_data(key_bits_array: Tensor) -> Key:
    """The key with the words that `key_data` returned.

    >>> wf.random.wrap_key_data(wf.tensor([5, 0]))
    Key([5, 0])
    """
    data = key_bits_array if isinstance(key_bits_array, Tensor) else Tensor(key_bits_array)
    if data.dtype != dtypes.int64 or not data.ndim or data.shape[-1] != 2:
        raise TypeError(
            f"wrap_key_data: expected int64 words [seed, offset]. Got {data.dtype.name} {format_shape(data.shape)}."
        )
    return Key(data)


# Draws -------------------------------------------------------------------------------------------------------------------


@_public
def bits(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Random words of uint32 (the default) or uint64.

    >>> wf.random.bits(wf.random.key(0), (2,)).dtype.name
    'uint32'
    """
    resolved = dtypes.uint32 if dtype is None else dtypes.as_dtype(dtype)
    return _draw(random_ops.random_bits, _state("bits", key), _sizes("bits", shape), resolved)


def normal(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Standard normal numbers."""
    return _draw(random_ops.random_normal, _state("normal", key), _sizes("normal", shape), _float(dtype))


def uniform(
    key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None, minval: Any = 0.0, maxval: Any = 1.0
) -> Tensor:
    """Numbers uniform in [minval, maxval)."""
    u = _draw(random_ops.random_uniform, _state("uniform", key), _sizes("uniform", shape), _float(dtype))
    return u if minval == 0.0 and maxval == 1.0 else u * (maxval - minval) + minval


def randint(key: Key, shape: ShapeLike, minval: int, maxval: int, dtype: DTypeLike | None = None) -> Tensor:
    """Integers uniform in [minval, maxval)."""
    resolved = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    low, high = as_integer(minval), as_integer(maxval)
    return _draw(random_ops.random_integers, _state("randint", key), low, high, _sizes("randint", shape), resolved)


def bernoulli(key: Key, p: Any = 0.5, shape: ShapeLike | None = None) -> Tensor:
    """True with probability `p`, a number or a tensor; booleans."""
    sizes = tuple(p.shape) if shape is None and isinstance(p, Tensor) else _sizes("bernoulli", shape)
    dtype = p.dtype if isinstance(p, Tensor) else None
    return _draw(random_ops.random_uniform, _state("bernoulli", key), sizes, _float(dtype)) < p


@_public
def permutation(key: Key, x: int | Tensor, axis: int = 0) -> Tensor:
    """The integers below `x` in random order, or the slices of a tensor along `axis` in random order.

    >>> wf.sort(wf.random.permutation(wf.random.key(0), 4))
    tensor([0, 1, 2, 3])
    """
    state = _state("permutation", key)
    if not isinstance(x, Tensor):
        return _draw(random_ops.random_permutation, state, check_size("permutation", x, "x"))
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"permutation: axis {axis} is out of range for shape {format_shape(x.shape)}.")
    order = _draw(random_ops.random_permutation, state, x.shape[axis])
    return x[(slice(None),) * (axis % x.ndim) + (order,)]


def _open_uniform(op: str, key: Key, sizes: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """Uniform numbers in (0, 1]: their logarithm is finite."""
    return 1.0 - _draw(random_ops.random_uniform, _state(op, key), sizes, dtype)


@_public
def gumbel(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Numbers of the standard Gumbel distribution.

    >>> wf.random.gumbel(wf.random.key(0), (2, 3)).shape
    (2, 3)
    """
    resolved = _float(dtype)
    tiny = float(dtypes.finfo(resolved).smallest_normal)
    e = -log(_open_uniform("gumbel", key, _sizes("gumbel", shape), resolved))
    return -log(where(e < tiny, tiny, e))


@_public
def exponential(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Numbers of the exponential distribution with rate 1.

    >>> bool((wf.random.exponential(wf.random.key(0), (100,)) >= 0).all())
    True
    """
    return -log(_open_uniform("exponential", key, _sizes("exponential", shape), _float(dtype)))


@_public
def laplace(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """Numbers of the standard Laplace distribution.

    >>> wf.random.laplace(wf.random.key(0), (3,)).shape
    (3,)
    """
    sizes, resolved = _sizes("laplace", shape), _float(dtype)
    first, second = (_open_uniform("laplace", k, sizes, resolved) for k in split(key))
    return log(first) - log(second)  # the difference of two exponential numbers


@_public
def truncated_normal(
    key: Key, lower: Any, upper: Any, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Standard normal numbers between `lower` and `upper`, numbers or tensors.

    >>> x = wf.random.truncated_normal(wf.random.key(0), -1.0, 1.0, (100,))
    >>> bool(((x >= -1) & (x <= 1)).all())
    True
    """
    from .ops.array.elementwise import clip
    from .ops.array.elementwise.special import erfinv
    from .ops.array.elementwise.transcendental import erf

    sizes = (
        broadcast_shapes("truncated_normal", *[getattr(v, "shape", ()) for v in (lower, upper)])
        if shape is None
        else _sizes("truncated_normal", shape)
    )
    resolved = _float(dtype)
    low, high = (v if isinstance(v, Tensor) else Tensor(np.asarray(v, resolved)) for v in (lower, upper))
    a, b = erf(low / 2**0.5), erf(high / 2**0.5)
    u = _draw(random_ops.random_uniform, _state("truncated_normal", key), sizes, resolved)
    return clip(2**0.5 * erfinv(u * (b - a) + a), low, high)


@_public
def rademacher(key: Key, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Tensor:
    """-1 or 1, each with probability one half.

    >>> sorted({*wf.random.rademacher(wf.random.key(0), (50,)).tolist()})
    [-1, 1]
    """
    resolved = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    drawn = _draw(
        random_ops.random_integers, _state("rademacher", key), 0, 2, _sizes("rademacher", shape), dtypes.int64
    )
    return astype(drawn * 2 - 1, resolved)


@_public
def categorical(key: Key, logits: Any, axis: int = -1, shape: ShapeLike | None = None) -> Tensor:
    """Indices along `axis`, drawn with probabilities proportional to `exp(logits)`.

    Args:
        key: the key.
        logits: unnormalised logarithms of probabilities.
        axis: the axis of the categories.
        shape: the shape of the result, to which that of the other axes broadcasts; by default that of the other axes.

    >>> wf.random.categorical(wf.random.key(0), wf.tensor([-100.0, 0.0]), shape=(3,))
    tensor([1, 1, 1])
    """
    from .ops.array.searching import argmax
    from .ops.array.shaping import moveaxis

    if not isinstance(logits, Tensor):
        logits = Tensor(logits)
    if not dtypes.is_floating(logits.dtype) or not logits.ndim:
        raise TypeError(
            f"categorical: logits must be floating, with an axis. Got {logits.dtype.name} {format_shape(logits.shape)}."
        )
    scores = moveaxis(logits.detach(), axis, -1)
    rows = tuple(scores.shape[:-1])
    sizes = rows if shape is None else _sizes("categorical", shape)
    if broadcast_shapes("categorical", rows, sizes) != sizes:
        raise ValueError(
            f"categorical: rows of shape {format_shape(rows)} do not broadcast to shape {format_shape(sizes)}."
        )
    return argmax(scores + gumbel(key, (*sizes, scores.shape[-1]), scores.dtype), axis=-1)


@_public
def choice(
    key: Key, a: int | Tensor, shape: ShapeLike = (), replace: bool = True, p: Tensor | None = None, axis: int = 0
) -> Tensor:
    """Elements of `a` (or of the integers below `a`), drawn with or without replacement.

    Args:
        key: the key.
        a: a tensor, whose slices along `axis` are drawn, or an integer.
        shape: how many, as a shape.
        replace: whether one may be drawn twice.
        p: the probabilities of the slices; equal by default.
        axis: the axis of the slices.

    >>> wf.sort(wf.random.choice(wf.random.key(0), 3, (3,), replace=False))
    tensor([0, 1, 2])
    """
    from .ops.array.sorting import argsort

    state, sizes = _state("choice", key), _sizes("choice", shape)
    n = a.shape[axis] if isinstance(a, Tensor) else check_size("choice", a, "a")
    count = int(np.prod(sizes, dtype=np.int64))
    if not replace and count > n:
        raise ValueError(f"choice: {count} of {n} cannot be drawn without replacement.")
    if not n and count:
        raise ValueError("choice: there is nothing to draw from.")
    if p is not None:
        weights = p if isinstance(p, Tensor) else Tensor(p)
        if tuple(weights.shape) != (n,):
            raise ValueError(f"choice: p must have shape ({n},). Got {format_shape(weights.shape)}.")
        logits = log(weights.detach())
        if replace:
            index = categorical(key, logits, shape=(count,))
        else:
            index = argsort(logits + gumbel(key, (n,), logits.dtype), descending=True)[:count]
    elif replace:
        index = _draw(random_ops.random_integers, state, 0, n, (count,), dtypes.int64)
    else:
        index = _draw(random_ops.random_permutation, state, n)[:count]
    if not isinstance(a, Tensor):
        return reshape(index, sizes)
    place = axis % a.ndim
    taken = a[(slice(None),) * place + (index,)]
    return reshape(taken, (*a.shape[:place], *sizes, *a.shape[place + 1 :]))
