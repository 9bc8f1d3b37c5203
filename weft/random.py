"""Random number generators, seeding, and functions that draw random tensors, from generators or in JAX's way from keys.

`wf.random.normal(wf.random.key(0), (2, 3))` is a pure function of the key: `normal`, `uniform`, `randint` and `bernoulli` take a
key and then JAX's arguments (`shape, dtype`; `minval, maxval`; `p, shape`), and the functions that are here only take nothing
else. `split` and `fold_in` derive keys.

A `Generator` is a seed and an offset that counts draws (Note [Random numbers] in `weft.ops.array.philox`). Both live in one
int64 tensor, `state`, and each draw advances the offset in place. A captured function therefore treats the state as one
of its variables, and eager and captured code draw the same numbers. A generator is thread-safe: every draw gets a
distinct offset, in an order that depends on scheduling; use one generator per thread for reproducible results.

Results depend only on seed and offset, not on the number of threads. Exception: normal numbers involve a logarithm and
a cosine, so small draws (NumPy) and large or captured ones (native code) may differ in the last bits.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from typing import Any

import numpy as np

from . import dtypes, random_keys
from .ops.array import random_ops
from .ops.array.check_values import require
from .ops.core import define
from .ops.core.error_names import guarded
from .ops.core.spec import as_integer, check_shape, check_size, is_known
from .random_keys import (
    Key,
    PRNGKey,
    bits,
    categorical,
    choice,
    exponential,
    fold_in,
    gumbel,
    key,
    key_data,
    laplace,
    permutation,
    rademacher,
    split,
    takes_key,
    truncated_normal,
    wrap_key_data,
)
from .runtime import forks
from .tensor import Tensor, wrap
from .typing import DTypeLike, ShapeLike

__all__ = [
    "ALGORITHM", "Generator", "bernoulli", "default_generator", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "seed",
    "set_rng_state", "uniform",
    "Key", "PRNGKey", "bits", "categorical", "choice", "exponential", "fold_in", "gumbel", "key", "key_data", "laplace",
    "permutation", "rademacher", "split", "truncated_normal", "wrap_key_data",
]  # fmt: skip

ALGORITHM = "philox4x32-10"
_SIGN = 1 << 63


def _signed(value: int) -> int:
    """A 64-bit pattern as the int64 that holds it."""
    return ((value + _SIGN) & 0xFFFFFFFFFFFFFFFF) - _SIGN


def _seed_value(seed: Any) -> int:
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed: expected an integer. Got {seed!r}.") from None
    if not -_SIGN <= value < 2 * _SIGN:
        raise ValueError(f"seed: expected an integer of 64 bits. Got {value}.")
    return _signed(value)


_ONE = np.array([0, 1], np.int64)
live: weakref.WeakSet[Generator] = weakref.WeakSet()
"""every generator of this process; a distributed step gives each of them a state per shard"""


class Generator:
    """A source of random numbers: a seed and a counter of draws.

    Args:
        seed: any 64-bit integer; chosen by the operating system by default.

    >>> g = wf.Generator(0)
    >>> a = wf.rand(3, generator=g)
    >>> bool((wf.rand(3, generator=wf.Generator(0)) == a).all())
    True
    """

    __slots__ = ("state", "_lock", "__weakref__")

    def __init__(self, seed: int | None = None) -> None:
        value = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.state: Tensor = wrap(np.array([_seed_value(value), 0], np.int64))
        self._lock = threading.Lock()
        forks.renewed_in_child(self)
        live.add(self)

    def next_state(self) -> Tensor:
        """The state of the next draw, as a new tensor; advances the generator by one."""
        modes = define.current_modes()
        for mode in reversed(modes):
            given = mode.random_state(self)  # a declared graph draws at run time
            if given is not None:
                return given
        state = self.state
        with self._lock:
            data = state._data
            if type(data) is np.ndarray and not any(m.takes_writes for m in modes):
                snapshot = wrap(data.copy())
                snapshot._view = define.Origin(None, (self,))
                data[1] += 1
                return snapshot
            from .ops.array.shaping import clone

            snapshot = clone(state)
            state += define.constant(_ONE)
            return snapshot

    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed`."""
        self._write(_seed_value(seed), 0)
        return self

    def seed(self) -> int:
        """Restart from a seed chosen by the operating system and return it."""
        value = int.from_bytes(os.urandom(8), "little")
        self._write(_seed_value(value), 0)
        return value

    def initial_seed(self) -> int:
        """The seed, an integer in [0, 2**64)."""
        return int(self.state._array("initial_seed")[0]) & 0xFFFFFFFFFFFFFFFF

    def random_seed(self) -> int:
        """Draw a 62-bit seed for another generator (loaders, workers)."""
        bits = random_ops.random_bits(self.next_state(), (), dtypes.uint64)
        return int(bits._array("random_seed")) >> 2

    def spawn(self, n: int) -> list[Generator]:
        """`n` new generators, seeded from this one.

        >>> len(wf.Generator(0).spawn(3))
        3
        """
        return [Generator(self.random_seed()) for _ in range(check_size("spawn", n, "n"))]

    def get_state(self) -> Tensor:
        """A copy of the state, an int64 tensor [seed, offset]."""
        with self._lock:
            return wrap(self.state._array("get_state").copy())

    def set_state(self, state: Any) -> Generator:
        """Restore a state returned by `get_state`."""
        array = np.asarray(state)
        if array.shape != (2,) or array.dtype != np.int64:
            raise TypeError(f"set_state: expected an int64 tensor [seed, offset]. Got {array.dtype} {array.shape}.")
        self._write(int(array[0]), int(array[1]))
        return self

    def state_dict(self) -> dict[str, Any]:
        """The state as plain numbers, ready for JSON."""
        seed, offset = (int(v) for v in self.get_state().tolist())
        return {"algorithm": ALGORITHM, "seed": seed, "offset": offset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        if not isinstance(state, dict) or state.get("algorithm") != ALGORITHM:
            raise ValueError(f"load_state_dict: expected the state of a {ALGORITHM} generator. Got {state!r}.")
        self._write(_seed_value(state["seed"]), _seed_value(state["offset"]))

    def clone(self) -> Generator:
        """A new generator in the same state."""
        return Generator().set_state(self.get_state())

    def _write(self, seed: int, offset: int) -> None:
        with self._lock:
            array = self.state._array("seeding (a captured function cannot reseed; do it outside)")
            if define.current_modes():
                self.state.copy_(np.array([seed, offset], np.int64))
            else:
                array[...] = (seed, offset)

    def __reduce__(self) -> Any:
        return (_restore, (self.state_dict(),))

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator:
        return self.clone()

    def __repr__(self) -> str:
        if self.state.is_symbolic:
            return "Generator(symbolic)"
        return f"Generator(seed={self.initial_seed()}, offset={int(self.state._data[1])})"


def _restore(state: dict[str, Any]) -> Generator:
    generator = Generator(0)
    generator.load_state_dict(state)
    return generator


default_generator = Generator()


def _next(op: str, generator: Any) -> Tensor:
    if generator is None:
        return default_generator.next_state()
    if not isinstance(generator, Generator):
        raise TypeError(f"{op}: generator must be a wf.Generator. Got {type(generator).__name__}.")
    return generator.next_state()


# The default generator ------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, used by every draw without an explicit `generator`.

    >>> _ = wf.manual_seed(0)
    >>> a = wf.rand(2)
    >>> _ = wf.manual_seed(0)
    >>> bool((wf.rand(2) == a).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system and return the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """A copy of the default generator's state.

    >>> state = wf.get_rng_state()
    >>> a = wf.rand(2)
    >>> wf.set_rng_state(state)
    >>> bool((wf.rand(2) == a).all())
    True
    """
    return default_generator.get_state()


def set_rng_state(state: Any) -> None:
    """Restore the default generator to a state returned by `get_rng_state`."""
    default_generator.set_state(state)


# Draws ----------------------------------------------------------------------------------------------------------------


def _sizes(op: str, shape: tuple[Any, ...]) -> tuple[int, ...]:
    return check_shape(op, shape[0] if len(shape) == 1 else shape)


def _float(dtype: Any) -> np.dtype:
    return dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def _finish(result: Tensor, requires_grad: bool) -> Tensor:
    return result.requires_grad_() if requires_grad else result


def rand(
    *shape: ShapeLike, dtype: DTypeLike | None = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Uniform random numbers in [0, 1).

    Args:
        shape: integers or one tuple.
        dtype: a floating dtype; the default one by default.
        generator: the source of random numbers; the default generator by default.
        requires_grad: record operations on the result.

    >>> x = wf.rand(2, 3)
    >>> bool(((x >= 0) & (x < 1)).all())
    True
    """
    sizes = _sizes("rand", shape)
    return _finish(random_ops.random_uniform(_next("rand", generator), sizes, _float(dtype)), requires_grad)


def randn(
    *shape: ShapeLike, dtype: DTypeLike | None = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Standard normal random numbers. Takes the arguments of `rand`.

    >>> wf.randn(2, 3).shape
    (2, 3)
    """
    sizes = _sizes("randn", shape)
    return _finish(random_ops.random_normal(_next("randn", generator), sizes, _float(dtype)), requires_grad)


def _tensor(op: str, name: str, x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray):
        return Tensor(x)
    hint = " Convert it with `wf.asarray(...)`." if isinstance(x, (list, tuple, int, float, complex)) else ""
    raise TypeError(f"{op}: {name} must be a tensor. Got {type(x).__name__}.{hint}")


def _like(op: str, x: Tensor, dtype: Any, generator: Any, plain: Any, like: Any) -> Tensor:
    x = _tensor(op, "x", x)
    resolved = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if is_known(x.shape):
        return plain(_next(op, generator), tuple(x.shape), resolved)
    return like(x.detach(), _next(op, generator), resolved)


def rand_like(x: Tensor, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Uniform random numbers in [0, 1) with the shape and (unless given) the dtype of `x`.

    >>> wf.rand_like(wf.zeros(2, 3)).shape
    (2, 3)
    """
    return _like("rand_like", x, dtype, generator, random_ops.random_uniform, random_ops.random_uniform_like)


def randn_like(x: Tensor, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Standard normal random numbers with the shape and (unless given) the dtype of `x`.

    >>> wf.randn_like(wf.zeros(2, 3)).shape
    (2, 3)
    """
    return _like("randn_like", x, dtype, generator, random_ops.random_normal, random_ops.random_normal_like)


def _parameter_shape(op: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of a draw: the given one, else that to which the tensor parameters broadcast."""
    for p in parameters:
        if isinstance(p, (tuple, list, str)) or p is None:
            raise TypeError(
                f"{op}: its parameters must be numbers or tensors. Got {p!r}; the shape comes third, or as `shape=`."
            )
    if shape is not None:
        return check_shape(op, shape)
    from .ops.core.spec import broadcast_shapes

    return broadcast_shapes(op, *[getattr(p, "shape", ()) for p in parameters])


def _parameter_dtype(dtype: Any, *parameters: Any) -> np.dtype:
    tensors = [p for p in parameters if isinstance(p, Tensor)]
    return _float(dtype) if dtype is not None or not tensors else dtypes.float_for(dtypes.result_type(*tensors))


@takes_key(random_keys.uniform)
def uniform(
    low: float | Tensor = 0.0,
    high: float | Tensor = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random numbers in [low, high).

    Args:
        low: the lower bound, a number or a tensor; gradients flow to it.
        high: the upper bound, likewise.
        shape: the shape of the result; by default that to which the bounds broadcast.
        dtype: a floating dtype.
        generator: the source of random numbers; the default generator by default.

    >>> x = wf.uniform(-1, 1, (1000,))
    >>> bool((x.abs() <= 1).all())
    True
    """
    sizes = _parameter_shape("uniform", shape, low, high)
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and not low <= high:
        raise ValueError(f"uniform: low must not be above high. Got low={low}, high={high}.")
    u = random_ops.random_uniform(_next("uniform", generator), sizes, _parameter_dtype(dtype, low, high))
    return u * (high - low) + low


@takes_key(random_keys.normal)
def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers with the given mean and standard deviation.

    Args:
        mean: the mean, a number or a tensor; gradients flow to it.
        std: the standard deviation, likewise.
        shape: the shape of the result; by default that to which `mean` and `std` broadcast.
        dtype: a floating dtype.
        generator: the source of random numbers; the default generator by default.

    >>> wf.normal(10.0, 0.1, (2, 2)).shape
    (2, 2)
    """
    sizes = _parameter_shape("normal", shape, mean, std)
    if isinstance(std, Tensor):
        std = require(std, lambda s: s >= 0, "normal: std must not be negative.", lambda s: s.min())
    elif not std >= 0:
        raise ValueError(f"normal: std must not be negative. Got {std}.")
    z = random_ops.random_normal(_next("normal", generator), sizes, _parameter_dtype(dtype, mean, std))
    return z * std + mean


@takes_key(random_keys.randint)
def randint(
    low: int,
    high: int | ShapeLike | None = None,
    shape: ShapeLike = (),
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random integers in [low, high).

    Args:
        low: the smallest value; `randint(10, (2, 3))` with one bound draws from [0, 10).
        high: the upper bound, not included.
        shape: the shape of the result.
        dtype: an integer dtype; int64 by default.
        generator: the source of random numbers; the default generator by default.

    >>> x = wf.randint(0, 10, (2, 3))
    >>> x.shape, x.dtype.name
    ((2, 3), 'int64')
    """
    limit: Any = high
    if isinstance(limit, (tuple, list)):
        limit, shape = None, limit
    if limit is None:
        low, limit = 0, low
    try:
        low, limit = as_integer(low), as_integer(limit)
    except TypeError:
        raise TypeError(f"randint: low and high must be integers. Got {low!r} and {limit!r}.") from None
    resolved = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    return random_ops.random_integers(_next("randint", generator), low, limit, check_shape("randint", shape), resolved)


def randperm(n: int, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Random permutation of the integers 0 to n - 1.

    >>> wf.sort(wf.randperm(4))
    tensor([0, 1, 2, 3])
    """
    from .ops.array.elementwise import astype

    order = random_ops.random_permutation(_next("randperm", generator), check_size("randperm", n, "n"))
    return order if dtype is None else astype(order, dtype)


@takes_key(random_keys.bernoulli)
def bernoulli(
    p: float | Tensor,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw 1 with probability `p` and 0 otherwise.

    Args:
        p: a tensor of probabilities, or a number.
        shape: the shape of the result; that of `p` by default.
        dtype: the dtype of the result.
        generator: the source of random numbers; the default generator by default.

    >>> wf.bernoulli(wf.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    from .ops.array.elementwise import astype

    if isinstance(p, Tensor):
        if not dtypes.is_floating(p.dtype):
            raise TypeError(f"bernoulli: p must be floating. Got {p.dtype.name}.")
        p = require(
            p.detach(),
            lambda p: (p >= 0) & (p <= 1),
            "bernoulli: p must be between 0 and 1.",
            lambda p: f"{p.min()} to {p.max()}",
        )
        if shape is None:
            u = rand_like(p, generator=generator)
        else:
            u = rand(shape, dtype=p.dtype, generator=generator)
        return astype(u < p, p.dtype if dtype is None else dtype)
    if not isinstance(p, (int, float)):
        raise TypeError(f"bernoulli: p must be a tensor or a number. Got {type(p).__name__}.")
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli: p must be between 0 and 1. Got {p}.")
    return astype(rand(() if shape is None else shape, generator=generator) < p, _float(dtype))


def multinomial(
    probabilities: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Draw category indices with the given probabilities.

    Args:
        probabilities: shape (n,) or (rows, n), non-negative; need not sum to one.
        num_samples: the number of draws per row.
        replacement: whether a category may be drawn more than once.
        generator: the source of random numbers; the default generator by default.

    Returns:
        int64 indices of shape (num_samples,) or (rows, num_samples).

    >>> wf.multinomial(wf.tensor([0.0, 1.0]), 3, replacement=True)
    tensor([1, 1, 1])
    """
    size = check_size("multinomial", num_samples, "num_samples")
    return random_ops.random_multinomial(
        probabilities.detach(), _next("multinomial", generator), size, bool(replacement)
    )


# In place -------------------------------------------------------------------------------------------------------------


def _in_place(op: str, x: Tensor) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the random numbers that overwrite `x`."""
    if not dtypes.is_floating(x.dtype) and not dtypes.is_complex(x.dtype):
        raise TypeError(f"{op}: expected a floating tensor. Got {x.dtype.name}; use `random_` for integers.")
    return tuple(x.shape), x.dtype


def _uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers uniform in [low, high), in place."""
    shape, dtype = _in_place("uniform_", x)
    return x.copy_(uniform(low, high, shape, dtype=dtype, generator=generator))


def _normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers, in place."""
    shape, dtype = _in_place("normal_", x)
    return x.copy_(normal(mean, std, shape, dtype=dtype, generator=generator))


def _bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 (probability `p`) and 0, in place."""
    return x.copy_(bernoulli(p, tuple(x.shape), dtype=x.dtype, generator=generator))


def _random_(x: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill an integer tensor with integers uniform in [low, high), in place; `high` defaults to the limit of the dtype."""
    if not dtypes.is_integral(x.dtype):
        raise TypeError(f"random_: expected an integer tensor. Got {x.dtype.name}; use `uniform_`.")
    bound = int(np.iinfo(x.dtype).max) + 1 if high is None else high
    return x.copy_(randint(low, bound, tuple(x.shape), dtype=x.dtype, generator=generator))


for _method in (_uniform_, _normal_, _bernoulli_, _random_):
    _method.__name__ = _method.__qualname__ = _method.__name__[1:]
    setattr(Tensor, _method.__name__, guarded(_method, _method.__name__))
