"""Draws from the gamma, Poisson, binomial and von Mises distributions, as pure ops of parameters and generator state.

Note [Rejection sampling]. Element i of a draw may need several attempts. Each attempt reads random words of its own: stream k
of element i is `philox(counter=(i + k · 2⁴⁸, offset), key=seed)`, so a number depends on the state and its index alone, as for
the other draws (Note [Random numbers] in `weft.ops.array.philox`). Kernels compute in float64 and repeat for the elements that
were rejected; about one in twenty is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from ...tensor import Tensor
from ..core import numpy_special
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec, num_elements
from . import philox
from .elementwise import log as _log
from .incomplete_gamma import gamma_quantile_slope
from .random_ops import check_state, reference_words

_STATE = np.array([7, 3], np.int64)
_STREAM_BITS = 48

Words = tuple[Any, Any, Any, Any]


class Streams:
    """Random numbers of float64 for given elements and streams of one draw, see Note [Rejection sampling]."""

    def __init__(self, state: np.ndarray) -> None:
        self.seed, self.offset = (philox.halves(int(v)) for v in state)

    def words(self, stream: int, elements: np.ndarray) -> Words:
        index = elements.astype(np.uint64) + np.uint64(stream << _STREAM_BITS)
        low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
        return philox.philox((low, high, *self.offset), self.seed)

    def uniforms(self, stream: int, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two numbers in (0, 1] for each element."""
        w = self.words(stream, elements)
        return _open(w[0], w[1]), _open(w[2], w[3])

    def normal(self, stream: int, elements: np.ndarray) -> np.ndarray:
        return philox.normal(self.words(stream, elements), dtypes.float64)


def _open(high: Any, low: Any) -> Any:
    """A number in (0, 1] from two words."""
    return ((philox.join(low, high) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53


def _until_accepted(count: int, attempt: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """`attempt(number, elements)` returns values and which are accepted; it is repeated for the others."""
    out = np.empty(count)
    left = np.arange(count)
    number = 0
    while left.size:
        values, accepted = attempt(number, left)
        out[left[accepted]] = values[accepted]
        left = left[~accepted]
        number += 1
    return out


class _ReferenceStreams:
    """The same numbers for one element, on Python integers."""

    def __init__(self, state: Any, element: int) -> None:
        self.state, self.element = state, element

    def uniforms(self, stream: int) -> tuple[float, float]:
        a, b, c, d = reference_words(self.state, self.element + (stream << _STREAM_BITS))
        return ((a << 32 | b) >> 11) * 2.0**-53 + 2.0**-53, ((c << 32 | d) >> 11) * 2.0**-53 + 2.0**-53

    def normal(self, stream: int) -> float:
        u, v = self.uniforms(stream)
        return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * (v - 2.0**-53))


def _reference(sampler: Callable[..., float]) -> Any:
    """The reference of an op (*parameters, state, *attributes) from a sampler of one element."""

    def reference(*args: Any) -> np.ndarray:
        place = next(i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "i" and a.ndim == 1)
        parameters = [np.asarray(a).reshape(-1).tolist() for a in args[:place]]
        values = [
            sampler(_ReferenceStreams(args[place], i), *numbers, *args[place + 1 :])
            for i, numbers in enumerate(zip(*parameters, strict=True))
        ]
        return np.array(values, np.float64).reshape(np.shape(args[0]))

    return reference


def _infer(op: str, *names: str) -> Any:
    """The shape rule of an op whose parameters `names` have one shape, followed by the state."""

    def infer(*args: Any) -> Spec:
        parameters, state = args[: len(names)], args[len(names)]
        check_state(op, state)
        for name, x in zip(names, parameters, strict=True):
            if not dtypes.is_floating(x.dtype):
                raise TypeError(f"{op}: {name} must be floating. Got {x.dtype.name}; use `{name}.float()`.")
            if x.shape != parameters[0].shape:
                shapes = " and ".join(format_shape(p.shape) for p in parameters)
                raise ValueError(f"{op}: parameters must have one shape. Got {shapes}; use `wf.broadcast_tensors`.")
        return Spec(parameters[0].shape, parameters[0].dtype)

    return infer


def _cost(x: Any, *_: Any) -> int:
    return 300 * (num_elements(x.shape) or 0)


def _flat(*arrays: Any) -> list[np.ndarray]:
    return [np.asarray(a, np.float64).reshape(-1) for a in arrays]


# Gamma ----------------------------------------------------------------------------------------------------------------


def _gamma(a: np.ndarray, streams: Streams) -> np.ndarray:
    """Logarithms of gamma variables (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).

    A concentration below 1 is raised by 1 and the result multiplied by u^(1/a); in logarithms that cannot underflow.
    """
    valid = (a > 0) & (a < np.inf)
    raised = np.where(valid, np.where(a < 1, a + 1, a), 1.0)
    d = raised - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def attempt(number: int, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = streams.normal(2 * number + 1, left)
        u, _ = streams.uniforms(2 * number + 2, left)
        log_v = 3 * np.log1p(c[left] * z)
        dl = d[left]
        accepted = np.log(u) < 0.5 * z * z + dl * (1 - np.exp(log_v) + log_v)
        return np.log(dl) + log_v, accepted

    out = _until_accepted(a.size, attempt)
    low = np.flatnonzero(valid & (a < 1))
    u, _ = streams.uniforms(0, low)
    out[low] += np.log(u) / a[low]
    return np.where(valid, out, np.where(a == np.inf, np.inf, np.nan))


def _reference_gamma(streams: _ReferenceStreams, a: float, log: bool) -> float:
    raised = a + 1 if a < 1 else a
    d = raised - 1 / 3
    number = 0
    while True:
        z, u = streams.normal(2 * number + 1), streams.uniforms(2 * number + 2)[0]
        v = (1 + z / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(u) < 0.5 * z * z + d - d * v + d * math.log(v):
            break
        number += 1
    found = math.log(d * v)
    if a < 1:
        found += math.log(streams.uniforms(0)[0]) / a
    return found if log else math.exp(found)


def _gamma_rule(g: Any, concentration: Any, out: Any, log: bool) -> Any:
    """The implicit gradient (Figurnov, Mohamed and Mnih, 2018): along the quantile of the sample."""
    slope = gamma_quantile_slope(concentration, out if log else _log(out))
    return g * slope if log else g * slope * out


@primitive(
    namespace="random",
    infer=_infer("standard_gamma", "concentration"),
    vjp=(_gamma_rule, None),
    cost=_cost,
    reference=_reference(_reference_gamma),
    samples=lambda m: [
        Sample(m.uniform(2, 3, low=0.2, high=4), _STATE, False),
        Sample(m.uniform(4, low=0.02, high=1), _STATE, True),
        Sample(np.array(50.0), _STATE, False),
        Sample(m.positive(0), _STATE, False),
    ],
    errors=lambda m: [
        Bad(TypeError, "standard_gamma: concentration must be floating", m.ints(2), _STATE, False),
        Bad(TypeError, "standard_gamma: state must be an int64 tensor", m.positive(2), m.positive(2), False),
    ],
    tolerance=20,
    test={"no_gradient": True},  # it is implicit, not that of the sampling algorithm: tests/ops/test_random_families.py
)
def random_gamma(concentration: Tensor, state: Tensor, log: bool) -> Any:
    """Gamma variables of rate 1, or with `log` their logarithms, which do not underflow for tiny concentrations.

    Gradients flow to the concentration (implicit reparameterisation).
    """
    with np.errstate(all="ignore"):
        found = _gamma(_flat(concentration)[0], Streams(np.asarray(state)))
        found = found if log else np.exp(found)
        return found.reshape(concentration.shape).astype(concentration.dtype)


# Poisson --------------------------------------------------------------------------------------------------------------

_INVERSION_MAX = 10.0  # means below it are drawn by inversion, those above by transformed rejection


def _inverted(u: np.ndarray, probability: np.ndarray, following: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
    """The smallest k whose cumulated probability reaches u; `following(k, p)` is the probability of k, given that of k - 1."""
    out, total = np.zeros_like(u), probability.copy()
    k = 0
    while True:
        above = u > total
        if not above.any():
            return out
        k += 1
        out[above] = k
        probability = following(k, probability)
        total = total + probability
        if not (probability > 0).any():  # the cumulated probabilities round below u
            return out


def _poisson(rate: np.ndarray, streams: Streams) -> np.ndarray:
    """Inversion, or for large rates transformed rejection (Hörmann, "The transformed rejection method for generating
    Poisson random variables", 1993, algorithm PTRS)."""
    out = np.full(rate.size, np.nan)
    low, high = np.flatnonzero((rate >= 0) & (rate < _INVERSION_MAX)), np.flatnonzero(rate >= _INVERSION_MAX)
    mean = rate[low]
    out[low] = _inverted(streams.uniforms(0, low)[0], np.exp(-mean), lambda k, p: p * mean / k)
    mean = rate[high]
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)

    def attempt(number: int, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = streams.uniforms(number + 1, high[left])
        u = u - 0.5
        us = 0.5 - np.abs(u)
        m, al, bl = mean[left], a[left], b[left]
        k = np.floor((2 * al / us + bl) * u + m + 0.43)
        quick = (us >= 0.07) & (v <= limit[left])
        possible = (k >= 0) & ~((us < 0.013) & (v > us))
        bound = -m + k * np.log(m) - numpy_special.lgamma(np.maximum(k, 0) + 1)
        slow = np.log(v * inverse_alpha[left] / (al / (us * us) + bl)) <= bound
        return k, quick | (possible & slow)

    out[high] = _until_accepted(high.size, attempt)
    return out


def _reference_poisson(streams: _ReferenceStreams, rate: float) -> float:
    if rate < _INVERSION_MAX:
        u, k, p = streams.uniforms(0)[0], 0, math.exp(-rate)
        total = p
        while u > total:
            k += 1
            p *= rate / k
            total += p
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    number = 1
    while True:
        u, v = streams.uniforms(number)
        u -= 0.5
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k >= 0 and not (us < 0.013 and v > us):
            alpha = 1.1239 + 1.1328 / (b - 3.4)
            if math.log(v * alpha / (a / us**2 + b)) <= -rate + k * math.log(rate) - math.lgamma(k + 1):
                return k
        number += 1


@primitive(
    namespace="random",
    infer=_infer("poisson", "rate"),
    vjp=NOT_DIFFERENTIABLE,
    cost=_cost,
    reference=_reference(_reference_poisson),
    samples=lambda m: [
        Sample(m.uniform(2, 4, low=0, high=9), _STATE),
        Sample(m.uniform(6, low=10, high=500), _STATE),
        Sample(np.array(0.0), _STATE),
    ],
    errors=lambda m: [Bad(TypeError, "poisson: rate must be floating", m.ints(2), _STATE)],
)
def random_poisson(rate: Tensor, state: Tensor) -> Any:
    """Numbers of events with the expected numbers `rate`; NaN for negative rates."""
    with np.errstate(all="ignore"):
        return _poisson(_flat(rate)[0], Streams(np.asarray(state))).reshape(rate.shape).astype(rate.dtype)


# Binomial -------------------------------------------------------------------------------------------------------------


def _binomial(n: np.ndarray, p: np.ndarray, streams: Streams) -> np.ndarray:
    """Inversion, or for large means transformed rejection (Hörmann, "The generation of binomial random variates", 1993,
    algorithm BTRS); of the less likely outcome."""
    valid = (n >= 0) & (p >= 0) & (p <= 1) & (n == np.floor(n))
    rare = np.minimum(p, 1 - p)
    out = np.full(n.size, np.nan)
    low = np.flatnonzero(valid & (n * rare < _INVERSION_MAX))
    high = np.flatnonzero(valid & ~(n * rare < _INVERSION_MAX))
    nl, odds = n[low], rare[low] / (1 - rare[low])
    start = np.exp(nl * np.log1p(-rare[low]))
    u = streams.uniforms(0, low)[0]
    out[low] = _inverted(u, start, lambda k, prob: prob * np.maximum(nl - k + 1, 0) / k * odds)
    nh, ph = n[high], rare[high]
    spread = np.sqrt(nh * ph * (1 - ph))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * ph
    limit, alpha = 0.92 - 4.2 / b, (2.83 + 5.1 / b) * spread
    mode, log_odds = np.floor((nh + 1) * ph), np.log(ph / (1 - ph))
    lgamma = numpy_special.lgamma
    top = lgamma(mode + 1) + lgamma(nh - mode + 1)

    def attempt(number: int, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = streams.uniforms(number + 1, high[left])
        u = u - 0.5
        us = 0.5 - np.abs(u)
        nk, al, bl = nh[left], a[left], b[left]
        k = np.floor((2 * al / us + bl) * u + nk * ph[left] + 0.5)
        possible = (k >= 0) & (k <= nk)
        quick = (us >= 0.07) & (v <= limit[left])
        kc = np.clip(k, 0, nk)
        bound = top[left] - lgamma(kc + 1) - lgamma(nk - kc + 1) + (kc - mode[left]) * log_odds[left]
        slow = np.log(v * alpha[left] / (al / (us * us) + bl)) <= bound
        return k, possible & (quick | slow)

    out[high] = _until_accepted(high.size, attempt)
    return np.where(p > 0.5, n - out, out)


def _reference_binomial(streams: _ReferenceStreams, n: float, p: float) -> float:
    if p > 0.5:
        return n - _reference_binomial(streams, n, 1 - p)
    if n * p < _INVERSION_MAX:
        u, k = streams.uniforms(0)[0], 0
        prob = math.exp(n * math.log1p(-p))
        total = prob
        while u > total and k < n:
            k += 1
            prob *= (n - k + 1) / k * p / (1 - p)
            total += prob
        return k
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    mode = math.floor((n + 1) * p)
    number = 1
    while True:
        u, v = streams.uniforms(number)
        u -= 0.5
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + n * p + 0.5)
        if 0 <= k <= n:
            if us >= 0.07 and v <= 0.92 - 4.2 / b:
                return k
            bound = math.lgamma(mode + 1) + math.lgamma(n - mode + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            bound += (k - mode) * math.log(p / (1 - p))
            if math.log(v * (2.83 + 5.1 / b) * spread / (a / us**2 + b)) <= bound:
                return k
        number += 1


@primitive(
    namespace="random",
    infer=_infer("binomial", "count", "probability"),
    vjp=NOT_DIFFERENTIABLE,
    cost=_cost,
    reference=_reference(_reference_binomial),
    samples=lambda m: [
        Sample(np.floor(m.uniform(2, 4, low=0, high=20)), m.uniform(2, 4, low=0, high=1), _STATE),
        Sample(np.floor(m.uniform(6, low=100, high=900)), m.uniform(6, low=0.2, high=0.9), _STATE),
        Sample(np.array([3.0, 4.0, 0.0]), np.array([0.0, 1.0, 0.5]), _STATE),
    ],
    errors=lambda m: [
        Bad(ValueError, "binomial: parameters must have one shape", m.positive(2), m.positive(3), _STATE),
        Bad(TypeError, "binomial: count must be floating", m.ints(2), m.positive(2), _STATE),
    ],
    test={"dtypes": ("float64",)},  # in float32 the probabilities are others
)
def random_binomial(count: Tensor, probability: Tensor, state: Tensor) -> Any:
    """Numbers of successes in `count` trials; NaN where a parameter is invalid."""
    with np.errstate(all="ignore"):
        n, p = _flat(count, probability)
        found = _binomial(n, p, Streams(np.asarray(state)))
        return found.reshape(count.shape).astype(count.dtype)


# Von Mises ------------------------------------------------------------------------------------------------------------


def _von_mises(kappa: np.ndarray, streams: Streams) -> np.ndarray:
    """Angles around 0 (Best and Fisher, "Efficient simulation of the von Mises distribution", 1979)."""
    tau = 1 + np.sqrt(1 + 4 * kappa * kappa)
    rho = (tau - np.sqrt(2 * tau)) / (2 * kappa)
    r = np.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho * rho) / (2 * rho))

    def attempt(number: int, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = streams.uniforms(2 * number, left)
        side, _ = streams.uniforms(2 * number + 1, left)
        z, rl, kl = np.cos(math.pi * u), r[left], kappa[left]
        f = (1 + rl * z) / (rl + z)
        c = kl * (rl - f)
        accepted = (c * (2 - c) - v > 0) | (np.log(c / v) + 1 - c >= 0)
        angle = np.where(side > 0.5, 1.0, -1.0) * np.arccos(np.clip(f, -1, 1))
        return angle, accepted | ~(kl > 0)

    return np.where(kappa > 0, _until_accepted(kappa.size, attempt), np.nan)


def _reference_von_mises(streams: _ReferenceStreams, kappa: float) -> float:
    tau = 1 + math.sqrt(1 + 4 * kappa * kappa)
    rho = (tau - math.sqrt(2 * tau)) / (2 * kappa)
    r = (1 + rho * rho) / (2 * rho)
    number = 0
    while True:
        (u, v), side = streams.uniforms(2 * number), streams.uniforms(2 * number + 1)[0]
        z = math.cos(math.pi * u)
        f = (1 + r * z) / (r + z)
        c = kappa * (r - f)
        if c * (2 - c) - v > 0 or math.log(c / v) + 1 - c >= 0:
            return math.copysign(math.acos(f), side - 0.5)
        number += 1


@primitive(
    namespace="random",
    infer=_infer("von_mises", "concentration"),
    vjp=NOT_DIFFERENTIABLE,
    cost=_cost,
    reference=_reference(_reference_von_mises),
    samples=lambda m: [Sample(m.uniform(2, 4, low=0.2, high=9), _STATE), Sample(np.array(40.0), _STATE)],
    errors=lambda m: [Bad(TypeError, "von_mises: concentration must be floating", m.ints(2), _STATE)],
    tolerance=20,
)
def random_von_mises(concentration: Tensor, state: Tensor) -> Any:
    """Angles in [-π, π] around 0."""
    with np.errstate(all="ignore"):
        found = _von_mises(_flat(concentration)[0], Streams(np.asarray(state)))
        return found.reshape(concentration.shape).astype(concentration.dtype)
