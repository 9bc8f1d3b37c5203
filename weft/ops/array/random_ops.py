"""Random draws as pure ops that take the generator state as an input.

See Note [Random numbers] in `weft.ops.array.philox`. The same state gives the same numbers, so these ops have no side
effects: they may be merged, moved and recomputed (dropout recomputes its mask in the backward pass instead of
saving it). The public functions are in `weft.random`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor
from ..core import scalar as s
from ..core.define import native_kernels, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, check_shape, num_elements, same_size
from . import philox

_STATE = np.array([7, 3], np.int64)


def check_state(op: str, state: Any) -> None:
    """Raise unless the state is an int64 tensor [seed, offset]."""
    shape = state.shape
    if state.dtype != dtypes.int64 or shape is not None and (len(shape) != 1 or not same_size(shape[0], 2)):
        raise TypeError(
            f"{op}: state must be an int64 tensor [seed, offset]. Got {state.dtype.name} {format_shape(state.shape)}; "
            "expected `generator.state`."
        )


def _check_float(op: str, dtype: np.dtype, complex_too: bool = False) -> None:
    if not (dtypes.is_floating(dtype) or complex_too and dtypes.is_complex(dtype)):
        raise TypeError(f"{op}: dtype must be floating. Got {dtype.name}; use `wf.randint` for integers.")


# Draws of at least this size run natively, from the same code: bits, integers and uniform numbers are the same to the
# last bit; normal numbers go through logarithm and cosine, whose last bits may differ between NumPy and native code.
NATIVE_MIN_ELEMENTS = 4096


def draw(state: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, make: Any, start: int = 0) -> np.ndarray:
    """An array of `make(words)` for the elements of a draw.

    `make` must be the same object on every call (native code is compiled once per function), see `_maker`.
    """
    count = num_elements(shape)
    assert count is not None
    if count >= NATIVE_MIN_ELEMENTS:
        native = native_kernels()
        out = native.draw(make, state, shape, dtype, start) if native else None
        if out is not None:
            return out
    out = memory.empty(shape, dtype)
    flat = out.reshape(-1)
    for first, last in philox.blocks(count):  # in cache-sized blocks
        flat[first:last] = make(philox.words(state, start + first, last - first))
    return out


@functools.cache
def _maker(function: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    return lambda w: function(w, dtype)


def _first_word(w: Any) -> Any:
    return w[0]


def _two_words(w: Any) -> Any:
    return philox.join(w[1], w[0])


# A second implementation in plain Python integers, element by element: the reference of the table's tests ----------------


def reference_words(state: Any, index: int) -> tuple[int, int, int, int]:
    """Philox on Python integers."""
    seed, offset = (int(v) & 0xFFFFFFFFFFFFFFFF for v in state)
    c = [index & philox.MASK32, index >> 32, offset & philox.MASK32, offset >> 32]
    k = [seed & philox.MASK32, seed >> 32]
    for _ in range(philox.ROUNDS):
        p0, p1 = c[0] * philox.M0, c[2] * philox.M1
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & philox.MASK32, (p0 >> 32) ^ c[3] ^ k[1], p0 & philox.MASK32]
        k = [(k[0] + philox.W0) & philox.MASK32, (k[1] + philox.W1) & philox.MASK32]
    return c[0], c[1], c[2], c[3]


def reference_draw(state: Any, shape: Any, make: Any) -> np.ndarray:
    shape = check_shape("draw", shape)
    values = [make(*reference_words(state, i)) for i in range(int(np.prod(shape)))]
    return np.array(values).reshape(shape)


def _reference_uniform(dtype: np.dtype) -> Any:
    if dtype == dtypes.float64:
        return lambda a, b, c, d: ((a << 32 | b) >> 11) * 2.0**-53
    return lambda a, b, c, d: (a >> 8) * 2.0**-24


def _reference_normal(dtype: np.dtype) -> Any:
    def make(a: int, b: int, c: int, d: int) -> Any:
        if dtype in (dtypes.float64, dtypes.complex128):
            u, v = (((a << 32 | b) >> 11) + 1) * 2.0**-53, ((c << 32 | d) >> 11) * 2.0**-53
        else:
            u, v = (a + 1) * 2.0**-32, (b >> 8) * 2.0**-24
        point = math.sqrt(-2 * math.log(u)) * complex(math.cos(2 * math.pi * v), math.sin(2 * math.pi * v))
        return point * math.sqrt(0.5) if dtypes.is_complex(dtype) else point.real

    return make


# Draws of a given shape -----------------------------------------------------------------------------------------------


def _infer_draw(op: str, complex_too: bool = False) -> Any:
    def infer(state: Any, shape: Any, dtype: np.dtype) -> Spec:
        check_state(op, state)
        _check_float(op, dtype, complex_too)
        return Spec(check_shape(op, shape), dtype)

    return infer


def _bad_draw(op: str) -> Any:
    return lambda m: [
        Bad(TypeError, f"{op}: state must be an int64 tensor", np.zeros(2), (2,), dtypes.float32),
        Bad(TypeError, f"{op}: state must be an int64 tensor", np.zeros(3, np.int64), (2,), dtypes.float32),
        Bad(TypeError, f"{op}: dtype must be floating", _STATE, (2,), dtypes.int32),
        Bad(ValueError, f"{op}: shape must not have negative", _STATE, (-2,), dtypes.float32),
    ]


def _draw_cost(per_element: int) -> Any:
    return lambda state, shape, dtype: per_element * (num_elements(shape) or 0)


@primitive(
    accumulate="exact",
    namespace="random",
    infer=_infer_draw("random_uniform"),
    vjp=NOT_DIFFERENTIABLE,
    cost=_draw_cost(70),
    reference=lambda state, shape, dtype: reference_draw(state, shape, _reference_uniform(dtype)),
    samples=lambda m: [
        Sample(_STATE, (2, 3), dtypes.float32),
        Sample(_STATE, (5,), dtypes.float64),
        Sample(_STATE, (), dtypes.float32),
        Sample(np.array([-5, 2**40]), (3,), dtypes.float32),
        Sample(_STATE, (0, 2), dtypes.float32),
    ],
    errors=_bad_draw("random_uniform"),
)
def random_uniform(state: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Numbers uniform in [0, 1)."""
    return draw(state, check_shape("random_uniform", shape), dtype, _maker(philox.uniform, dtype))  # type: ignore[arg-type]


@primitive(
    accumulate="exact",
    namespace="random",
    infer=_infer_draw("random_normal", True),
    vjp=NOT_DIFFERENTIABLE,
    cost=_draw_cost(110),
    reference=lambda state, shape, dtype: reference_draw(state, shape, _reference_normal(dtype)),
    samples=lambda m: [
        Sample(_STATE, (2, 3), dtypes.float32),
        Sample(_STATE, (5,), dtypes.float64),
        Sample(_STATE, (4,), dtypes.complex64),
        Sample(_STATE, (), dtypes.float32),
        Sample(_STATE, (0,), dtypes.float32),
    ],
    errors=_bad_draw("random_normal"),
    test={"dtypes": ("float32",)},  # the tolerance of float32, which most samples draw
)
def random_normal(state: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Standard normal numbers (mean 0, variance 1); complex ones have half the variance in each part."""
    make = philox.complex_normal if dtypes.is_complex(dtype) else philox.normal
    return draw(state, check_shape("random_normal", shape), dtype, _maker(make, dtype))  # type: ignore[arg-type]


def _infer_bits(state: Any, shape: Any, dtype: np.dtype) -> Spec:
    check_state("random_bits", state)
    if dtype not in (dtypes.uint32, dtypes.uint64):
        raise TypeError(f"random_bits: dtype must be uint32 or uint64. Got {dtype.name}.")
    return Spec(check_shape("random_bits", shape), dtype)


@primitive(
    accumulate="exact",
    namespace="random",
    infer=_infer_bits,
    vjp=NOT_DIFFERENTIABLE,
    cost=_draw_cost(60),
    reference=lambda state, shape, dtype: reference_draw(
        state, shape, lambda a, b, c, d: a if dtype == dtypes.uint32 else a << 32 | b
    ).astype(dtype),
    samples=lambda m: [Sample(_STATE, (2, 3), dtypes.uint32), Sample(_STATE, (4,), dtypes.uint64)],
    errors=lambda m: [Bad(TypeError, "random_bits: dtype must be uint32", _STATE, (2,), dtypes.float32)],
)
def random_bits(state: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Random words: all bits of uint32 or uint64."""
    make = _first_word if dtype == dtypes.uint32 else _two_words
    return draw(state, check_shape("random_bits", shape), dtype, make)  # type: ignore[arg-type]


def _infer_integers(state: Any, low: int, high: int, shape: Any, dtype: np.dtype) -> Spec:
    check_state("randint", state)
    if not dtypes.is_integral(dtype):
        raise TypeError(f"randint: dtype must be an integer dtype. Got {dtype.name}.")
    info = np.iinfo(dtype)
    if low >= high:
        raise ValueError(f"randint: low must be below high. Got low={low}, high={high}.")
    if low < info.min or high - 1 > info.max:
        raise ValueError(f"randint: {dtype.name} holds {info.min} to {info.max}. Got low={low}, high={high}.")
    return Spec(check_shape("randint", shape), dtype)


@primitive(
    accumulate="exact",
    namespace="random",
    infer=_infer_integers,
    vjp=NOT_DIFFERENTIABLE,
    cost=lambda state, low, high, shape, dtype: 75 * (num_elements(shape) or 0),
    reference=lambda state, low, high, shape, dtype: reference_draw(
        state, shape, lambda a, b, c, d: low + ((a << 32 | b) * (high - low) >> 64)
    ),
    samples=lambda m: [
        Sample(_STATE, -3, 5, (4, 3), dtypes.int64),
        Sample(_STATE, 0, 256, (9,), dtypes.uint8),
        Sample(_STATE, -(2**62), 2**62 + 5, (9,), dtypes.int64),
        Sample(_STATE, -(2**63), 2**63, (3,), dtypes.int64),
        Sample(_STATE, 0, 2**40 + 3, (9,), dtypes.int64),
        Sample(_STATE, 0, 1, (), dtypes.int32),
    ],
    errors=lambda m: [
        Bad(ValueError, "randint: low must be below high", _STATE, 3, 3, (2,), dtypes.int64),
        Bad(ValueError, "randint: uint8 holds 0 to 255", _STATE, 0, 257, (2,), dtypes.uint8),
        Bad(TypeError, "randint: dtype must be an integer", _STATE, 0, 2, (2,), dtypes.float32),
    ],
)
def random_integers(state: Tensor, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Integers uniform in [low, high)."""

    words = draw(state, check_shape("randint", shape), dtypes.uint64, _two_words)  # type: ignore[arg-type]
    out = memory.empty(words.shape, dtype)
    source, target = words.reshape(-1), out.reshape(-1)
    with np.errstate(over="ignore"):
        for first, last in philox.blocks(words.size):
            # two's complement: adding modulo 2**64 and then reading the low bits is right for every dtype
            part = philox.below(source[first:last], high - low) + np.uint64(low & 0xFFFFFFFFFFFFFFFF)
            target[first:last] = part.astype(dtype)
    return out


def _infer_permutation(state: Any, n: int) -> Spec:
    check_state("randperm", state)
    if n < 0:
        raise ValueError(f"randperm: n must not be negative. Got {n}.")
    return Spec((n,), dtypes.int64)


@primitive(
    accumulate="exact",
    namespace="random",
    infer=_infer_permutation,
    vjp=NOT_DIFFERENTIABLE,
    cost=lambda state, n: 100 * n,
    reference=lambda state, n: np.argsort(reference_draw(state, (n,), lambda a, b, c, d: a << 32 | b), kind="stable"),
    samples=lambda m: [Sample(_STATE, 7), Sample(_STATE, 1), Sample(_STATE, 0)],
    errors=lambda m: [Bad(ValueError, "randperm: n must not be negative", _STATE, -1)],
)
def random_permutation(state: Tensor, n: int) -> Any:
    """Random permutation of 0 to n - 1: the sort order of n random words."""
    bits = draw(state, (n,), dtypes.uint64, _two_words)  # type: ignore[arg-type]
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)


# Draws shaped like a tensor, whose sizes may be known only at run time ------------------------------------------------


def _infer_like(op: str) -> Any:
    def infer(like: Any, state: Any, dtype: np.dtype) -> Spec:
        check_state(op, state)
        _check_float(op, dtype)
        return Spec(like.shape, dtype)

    return infer


@primitive(
    accumulate="exact",
    namespace="random",
    cost=lambda like, state, dtype: 70 * (num_elements(like.shape) or 0),
    infer=_infer_like("random_uniform_like"),
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda like, state, dtype: reference_draw(state, like.shape, _reference_uniform(dtype)),
    samples=lambda m: [Sample(m.normal(2, 3), _STATE, dtypes.float32)],
)
def random_uniform_like(like: Tensor, state: Tensor, dtype: np.dtype) -> Any:
    """Numbers uniform in [0, 1) in the shape of `like`."""
    return draw(state, like.shape, dtype, _maker(philox.uniform, dtype))  # type: ignore[arg-type]


@primitive(
    accumulate="exact",
    namespace="random",
    cost=lambda like, state, dtype: 110 * (num_elements(like.shape) or 0),
    infer=_infer_like("random_normal_like"),
    vjp=NOT_DIFFERENTIABLE,
    reference=lambda like, state, dtype: reference_draw(state, like.shape, _reference_normal(dtype)),
    samples=lambda m: [Sample(m.normal(2, 3), _STATE, dtypes.float64)],
)
def random_normal_like(like: Tensor, state: Tensor, dtype: np.dtype) -> Any:
    """Standard normal numbers in the shape of `like`."""
    return draw(state, like.shape, dtype, _maker(philox.normal, dtype))  # type: ignore[arg-type]


# Draws from given probabilities ---------------------------------------------------------------------------------------


def _infer_multinomial(probabilities: Any, state: Any, num_samples: int, replacement: bool) -> Spec:
    check_state("multinomial", state)
    if not dtypes.is_floating(probabilities.dtype):
        raise TypeError(f"multinomial: probabilities must be floating. Got {probabilities.dtype.name}.")
    shape = probabilities.shape
    if shape is None:
        return Spec(None, dtypes.int64)
    if len(shape) not in (1, 2) or shape[-1] == 0:
        raise ValueError(
            f"multinomial: expected probabilities of shape (categories,) or (rows, categories). Got {format_shape(shape)}."
        )
    if num_samples < 1:
        raise ValueError(f"multinomial: num_samples must be at least 1. Got {num_samples}.")
    if not replacement and isinstance(shape[-1], int) and num_samples > shape[-1]:
        raise ValueError(
            f"multinomial: cannot draw {num_samples} of {shape[-1]} categories without replacement. "
            "Pass `replacement=True`."
        )
    return Spec((*shape[:-1], num_samples), dtypes.int64)


def _multinomial(weights: np.ndarray, uniform: np.ndarray, num_samples: int, replacement: bool) -> np.ndarray:
    """Sample categories by weight: inverse CDF, or without replacement the largest log(u) / w."""
    if replacement:
        sums = np.cumsum(weights, -1)
        rows = [np.searchsorted(c, u * c[-1], side="right") for c, u in zip(sums, uniform, strict=True)]
        # rounding must not select a trailing category of weight 0
        last = weights.shape[-1] - 1 - np.argmax(weights[:, ::-1] > 0, -1)
        return np.minimum(np.array(rows).reshape(uniform.shape), last[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        keys = np.where(weights > 0, np.log1p(-uniform) / weights, -np.inf)  # minus an exponential variable of rate w
    return np.argsort(-keys, -1, kind="stable")[:, :num_samples]


def _reference_multinomial(probabilities: Any, state: Any, num_samples: int, replacement: bool = False) -> np.ndarray:
    weights = np.atleast_2d(probabilities)
    size = (len(weights), num_samples if replacement else weights.shape[1])
    uniform = reference_draw(state, size, _reference_uniform(dtypes.float64))
    out = []
    for w, u in zip(weights, uniform, strict=True):
        if replacement:
            out.append([int(np.sum(np.cumsum(w) <= v * np.sum(w))) for v in u])
        else:
            keys = [-math.log1p(-v) / p if p > 0 else math.inf for v, p in zip(u, w, strict=True)]
            out.append(sorted(range(len(w)), key=lambda i: keys[i])[:num_samples])
    return np.array(out).reshape((*np.shape(probabilities)[:-1], num_samples))


@primitive(
    accumulate="exact",
    namespace="random",
    cost=lambda probabilities, *_: 100 * (num_elements(probabilities.shape) or 0),
    infer=_infer_multinomial,
    vjp=NOT_DIFFERENTIABLE,
    reference=_reference_multinomial,
    samples=lambda m: [
        Sample(m.positive(4), _STATE, 3, False),
        Sample(m.positive(2, 4), _STATE, 9, True),
        Sample(np.array([0.0, 1.0, 0.0, 2.0]), _STATE, 2, False),
    ],
    errors=lambda m: [
        Bad(ValueError, "multinomial: cannot draw 5 of 4", m.positive(4), _STATE, 5, False),
        Bad(
            ValueError,
            "multinomial: row 0 has 1 categories of positive probability",
            np.array([0.0, 1.0]),
            _STATE,
            2,
            False,
        ),
        Bad(
            ValueError,
            "multinomial: probabilities must be finite and not negative",
            np.array([-1.0, 1.0]),
            _STATE,
            1,
            True,
        ),
        Bad(ValueError, "multinomial: expected probabilities of shape", m.positive(2, 2, 2), _STATE, 1, True),
        Bad(TypeError, "multinomial: probabilities must be floating", np.array([1, 2]), _STATE, 1, True),
    ],
)
def random_multinomial(probabilities: Tensor, state: Tensor, num_samples: int, replacement: bool = False) -> Any:
    """Category indices drawn with the given (unnormalised) probabilities."""
    weights = np.atleast_2d(np.asarray(probabilities, np.float64))
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"multinomial: probabilities must be finite and not negative. Got {weights.min():g} to {weights.max():g}."
        )
    possible = (weights > 0).sum(-1)
    needed = 1 if replacement else num_samples
    if possible.size and possible.min() < needed:
        row = int(possible.argmin())
        raise ValueError(
            f"multinomial: row {row} has {possible[row]} categories of positive probability. Expected at least {needed}."
        )
    size = (len(weights), num_samples if replacement else weights.shape[1])
    uniform = draw(state, size, dtypes.float64, _maker(philox.uniform, dtypes.float64))  # type: ignore[arg-type]
    out = _multinomial(weights, uniform, num_samples, replacement)
    return out.reshape((*probabilities.shape[:-1], num_samples)).astype(np.int64, copy=False)


# Dropout --------------------------------------------------------------------------------------------------------------


def _threshold(p: float) -> int:
    """A float32 draw u, which has 24 bits, is below p exactly if its 32-bit word is below this."""
    return int(math.ceil(p * 2.0**24)) << 8


def keep_mask(state: np.ndarray, shape: tuple[int, ...], p: float, start: int = 0) -> np.ndarray:
    """True with probability 1 - p, for elements `start`… of a draw."""
    threshold = _threshold(p)
    if threshold > philox.MASK32:
        return np.zeros(shape, np.bool_)
    return draw(state, shape, dtypes.uint32, _first_word, start) >= np.uint32(threshold)


def _kept(bits: Any, x: Any, threshold: Any, scale: Any) -> Any:
    return s.where(s.ge(bits, threshold), s.mul(x, scale), 0)


def _infer_dropout(x: Any, state: Any, p: float) -> Spec:
    check_state("dropout", state)
    if not dtypes.is_inexact(x.dtype):
        raise TypeError(f"dropout: expected a floating tensor. Got {x.dtype.name}.")
    return Spec(x.shape, x.dtype)


def _reference_dropout(x: Any, state: Any, p: float) -> np.ndarray:
    keep = reference_draw(state, x.shape, _reference_uniform(dtypes.float32)) >= p
    return np.where(keep, x / (1 - p), 0) if p < 1 else np.zeros_like(x)


@primitive(
    namespace="random",
    infer=_infer_dropout,
    vjp=(lambda g, state, p: random_dropout(g, state, p), None),
    cost=lambda x, state, p: 60 * (num_elements(x.shape) or 0),
    reference=_reference_dropout,
    samples=lambda m: [
        Sample(m.normal(3, 4), _STATE, 0.5),
        Sample(m.normal(), _STATE, 0.25),
        Sample(m.normal(5), _STATE, 1.0),
        Sample(m.normal(0, 2), _STATE, 0.1),
    ],
    errors=lambda m: [Bad(TypeError, "dropout: expected a floating tensor", m.ints(3), _STATE, 0.5)],
)
def random_dropout(x: Tensor, state: Tensor, p: float) -> Any:
    """`x` with elements zeroed with probability `p` and the others divided by 1 - p.

    Its gradient is the same op on the gradient: the mask is recomputed from the state, not saved.
    """
    threshold = _threshold(p)
    if threshold > philox.MASK32:
        return np.zeros_like(x)
    bits = draw(state, x.shape, dtypes.uint32, _first_word)  # type: ignore[arg-type]
    limit, scale = np.asarray(threshold, np.uint32), np.asarray(1 / (1 - p), x.dtype)
    if x.size >= NATIVE_MIN_ELEMENTS and not dtypes.is_complex(x.dtype):
        native = native_kernels()
        out = native.elementwise("dropout", _kept, [bits, x, limit, scale], x.shape) if native else None
        if out is not None:
            return out
    return np.where(bits >= limit, x * scale, np.zeros((), x.dtype))
