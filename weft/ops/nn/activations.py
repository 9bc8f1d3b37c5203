"""Activation functions, under PyTorch's names.

Each is one scalar expression, so a large tensor takes one pass forward and, where the derivative is an op
(`silu_backward`), one pass backward. Settings such as `negative_slope` are weak operands, not attributes: one
compiled kernel serves every value, and they may be tensors that need gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import exp, expm1, sigmoid, tanh, where
from ..core import scalar as s
from ..core.define import composite, elementwise
from ..core.samples import Bad, Maker, Sample
from ..core.samples import unary as values
from ..core.scalar import Term
from ..core.spec import normalize_axis, number

SQRT_HALF = math.sqrt(0.5)
INVERSE_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _gradients(m: Maker) -> list[Sample]:
    return [Sample(m.normal(*shape), m.uniform(*shape, low=-3.0, high=3.0)) for shape in ((), (7,), (2, 3), (0, 2))]


def _backward(
    name: str, slope: Callable[[Any], Any], second: Callable[[Tensor], Any] | None, reference: Callable[..., Any]
) -> Any:
    """The op `grad * slope(x)` as one expression; `second` is the derivative of `slope`, None where it is zero."""

    def body(grad: Term, x: Term) -> Term:
        return s.mul(grad, slope(x))

    body.__name__ = name
    body.__doc__ = f"The gradient of `{name.removesuffix('_backward')}` in one pass: grad times its derivative at x."
    by_x = None if second is None else lambda h, grad, x: h * grad * second(x)
    op: Any = elementwise(
        namespace="internal",
        kind="real float",
        vjp=(lambda h, x: op(h, x), by_x),
        reference=lambda grad, x: grad * reference(x),
        samples=_gradients,
    )(body)
    return op


# Piecewise linear -----------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _check_bounds(min_val: Any, max_val: Any) -> None:
    if _is_number(min_val) and _is_number(max_val) and not min_val <= max_val:
        raise ValueError(f"hardtanh: min_val must not be above max_val. Got {min_val} and {max_val}.")


def _check_threshold(lambd: Any) -> None:
    if _is_number(lambd) and number("softshrink", "lambd", lambd, least=0) == math.inf:
        raise ValueError("softshrink: lambd must be finite. Got inf.")


def _check_alpha(alpha: Any) -> None:
    if _is_number(alpha) and number("celu", "alpha", alpha) == 0:
        raise ValueError("celu: alpha must not be 0. Got 0.")


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(lambda h, result: relu_backward(h, result), None),
    reference=lambda grad, result: np.where(result > 0, grad, 0),
    samples=_gradients,
)
def relu_backward(grad: Term, result: Term) -> Term:
    """The gradient of `relu` from its result: grad where the result is positive, else 0."""
    return s.where(s.gt(result, 0), grad, 0)


def _relu_array(a: np.ndarray, out: np.ndarray | None = None) -> Any:
    if a.dtype.kind == "c":
        raise TypeError("no order")  # the general path raises the full message
    return np.maximum(a, 0, out=out)


@elementwise(
    namespace="nn",
    numpy=_relu_array,
    kind="real",
    vjp=lambda g, out: relu_backward(g, out),
    reference=lambda x: np.maximum(x, 0),
    samples=lambda m: [*values()(m), Sample(m.ints(5))],
    errors=lambda m: [Bad(TypeError, "relu: expected a real tensor", np.ones(2, np.complex64))],
)
def relu(x: Term) -> Term:
    """Rectified linear unit: max(x, 0). The gradient at 0 is 0.

    >>> F.relu(wf.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return s.maximum(x, 0)


def _middle(g: Any, x: Any, low: Any, high: Any) -> Any:
    return where((x > low) & (x < high), g, 0.0)


@elementwise(
    namespace="nn",
    kind="real",
    vjp=(
        lambda g, x, min_val, max_val: _middle(g, x, min_val, max_val),
        lambda g, x, min_val: where(x <= min_val, g, 0.0),
        lambda g, x, max_val: where(x >= max_val, g, 0.0),
    ),
    reference=lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
    samples=lambda m: [
        Sample(m.normal(2, 3)),
        Sample(m.normal(7), -0.5, 0.25),
        Sample(m.normal(4), m.uniform(4, low=-1, high=0), 0.5),
    ],
    check_call=lambda x, min_val, max_val: _check_bounds(min_val, max_val),
    errors=lambda m: [
        Bad(ValueError, "hardtanh: min_val must not be above max_val. Got 2.0 and 1.0", m.normal(3), 2.0, 1.0)
    ],
)
def hardtanh(x: Term, min_val: Term = -1.0, max_val: Term = 1.0) -> Term:
    """`x` clamped to [min_val, max_val].

    >>> F.hardtanh(wf.tensor([-3.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    return s.minimum(s.maximum(x, min_val), max_val)


@elementwise(
    namespace="nn",
    kind="real",
    vjp=lambda g, x: _middle(g, x, 0, 6),
    reference=lambda x: np.clip(x, 0, 6),
    samples=values(-3, 9),
)
def relu6(x: Term) -> Term:
    """Rectified linear unit capped at 6: min(max(x, 0), 6).

    >>> F.relu6(wf.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return s.minimum(s.maximum(x, 0), 6)


def _slope_samples(m: Maker) -> list[Sample]:
    return [
        Sample(m.normal(2, 3)),
        Sample(m.normal(7), 0.25),
        Sample(m.normal(), 0.5),
        Sample(m.normal(2, 3), m.positive(3)),
    ]


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(lambda h, x, slope: leaky_relu_backward(h, x, slope), None, lambda h, grad, x: where(x > 0, 0.0, h * grad)),
    reference=lambda grad, x, slope: np.where(x > 0, grad, grad * slope),
    samples=lambda m: [Sample(m.normal(7), m.normal(7), 0.1), Sample(m.normal(2, 3), m.normal(2, 3), m.positive(3))],
)
def leaky_relu_backward(grad: Term, x: Term, slope: Term) -> Term:
    """The gradient of `leaky_relu`: grad where x is positive, else grad * slope."""
    return s.where(s.gt(x, 0), grad, s.mul(grad, slope))


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(lambda g, x, negative_slope: leaky_relu_backward(g, x, negative_slope), lambda g, x: where(x > 0, 0.0, g * x)),
    reference=lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
    samples=_slope_samples,
)
def leaky_relu(x: Term, negative_slope: Term = 0.01) -> Term:
    """Leaky rectified linear unit: `x` where positive, else `x * negative_slope`.

    >>> F.leaky_relu(wf.tensor([-2.0, 2.0]), 0.5).tolist()
    [-1.0, 2.0]
    """
    return s.where(s.gt(x, 0), x, s.mul(x, negative_slope))


def _reference_prelu(x: Any, weight: Any) -> Any:
    if np.ndim(weight) == 1 and np.ndim(x) > 1:
        weight = np.reshape(weight, (1, -1) + (1,) * (np.ndim(x) - 2))
    return np.where(x > 0, x, x * weight)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_prelu,
    samples=lambda m: [
        Sample(m.normal(2, 3, 4), m.positive(3)),
        Sample(m.normal(5), m.positive(1)),
        Sample(m.normal(2, 3), m.positive(1)),
    ],
    errors=lambda m: [Bad(ValueError, "prelu: weight must have 1 or 3 elements", m.normal(2, 3), m.positive(2))],
)
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """`x` where positive, else `x * weight`, with one learned weight or one per channel (axis 1)."""
    from ..array.shaping import reshape

    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise ValueError(
            f"prelu: weight must have 1 or {channels} elements, one per channel (axis 1 of x). "
            f"Got weight of shape {format_shape(weight.shape)} for x of shape {format_shape(x.shape)}."
        )
    if weight.ndim == 1 and x.ndim > 1 and weight.size != 1:
        weight = reshape(weight, (1, -1) + (1,) * (x.ndim - 2))
    elif weight.ndim == 1 and x.ndim == 0:
        weight = reshape(weight, ())
    return leaky_relu(x, weight)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(
        lambda g, x, threshold: where(x > threshold, g, 0.0),
        None,
        lambda g, x, threshold: where(x > threshold, 0.0, g),
    ),
    reference=lambda x, threshold, value: np.where(x > threshold, x, value),
    samples=lambda m: [Sample(m.normal(7), 0.1, -2.0), Sample(m.normal(2, 3), -0.5, 0.0)],
)
def threshold(x: Term, threshold: Term, value: Term) -> Term:
    """`x` where it is above `threshold`, else `value`."""
    return s.where(s.gt(x, threshold), x, value)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(lambda g, x, lambd: where((x > lambd) | (x < -lambd), g, 0.0), None),
    reference=lambda x, lambd=0.5: np.where(np.abs(x) > lambd, x, 0),
    samples=lambda m: [Sample(m.normal(7)), Sample(m.normal(2, 3), 1.0)],
)
def hardshrink(x: Term, lambd: Term = 0.5) -> Term:
    """`x` where |x| is above `lambd`, else 0."""
    return s.where(s.gt(s.abs(x), lambd), x, 0)


def _softshrink_bound(g: Any, x: Any, lambd: Any) -> Any:
    return where(x > lambd, -g, where(x < -lambd, g, 0.0))


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(lambda g, x, lambd: where((x > lambd) | (x < -lambd), g, 0.0), _softshrink_bound),
    reference=lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    samples=lambda m: [Sample(m.normal(7)), Sample(m.normal(2, 3), 1.0), Sample(m.normal(3), m.positive(3))],
    check_call=lambda x, lambd: _check_threshold(lambd),
    errors=lambda m: [
        Bad(ValueError, "softshrink: lambd must be at least 0. Got -0.5", m.normal(3), -0.5),
        Bad(ValueError, "softshrink: lambd must be finite", m.normal(3), math.inf),
    ],
)
def softshrink(x: Term, lambd: Term = 0.5) -> Term:
    """Soft thresholding: `x` shrunk towards 0 by `lambd`, and 0 within [-lambd, lambd]."""
    return s.sub(x, s.minimum(s.maximum(x, s.neg(lambd)), lambd))


hardswish_backward = _backward(
    "hardswish_backward",
    lambda x: s.where(s.le(x, -3), 0.0, s.where(s.lt(x, 3), s.add(s.mul(x, 1 / 3), 0.5), 1.0)),
    lambda x: where((x > -3) & (x < 3), 1 / 3, 0.0).astype(x.dtype),
    lambda x: np.where(x <= -3, 0, np.where(x < 3, x / 3 + 0.5, 1)),
)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: hardswish_backward(g, x),
    reference=lambda x: x * np.clip(x + 3, 0, 6) / 6,
    samples=values(-5, 5),
)
def hardswish(x: Term) -> Term:
    """x · relu6(x + 3) / 6: a piecewise polynomial approximation of `silu`."""
    return s.mul(x, s.mul(s.minimum(s.maximum(s.add(x, 3), 0), 6), 1 / 6))


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: _middle(g * (1 / 6), x, -3, 3),
    reference=lambda x: np.clip(x + 3, 0, 6) / 6,
    samples=values(-5, 5),
)
def hardsigmoid(x: Term) -> Term:
    """relu6(x + 3) / 6: a piecewise linear approximation of `sigmoid`."""
    return s.mul(s.minimum(s.maximum(s.add(x, 3), 0), 6), 1 / 6)


# Exponential units ----------------------------------------------------------------------------------------------------


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=(
        lambda h, x, alpha: elu_backward(h, x, alpha),
        lambda h, grad, x, alpha: where(x > 0, 0.0, h * grad * alpha * exp(where(x > 0, 0.0, x))),
        lambda h, grad, x: where(x > 0, 0.0, h * grad * exp(where(x > 0, 0.0, x))),
    ),
    reference=lambda grad, x, alpha: np.where(x > 0, grad, grad * alpha * np.exp(x)),
    samples=lambda m: [Sample(m.normal(7), m.normal(7), 1.5), Sample(m.normal(2, 3), m.normal(2, 3), m.positive(3))],
)
def elu_backward(grad: Term, x: Term, alpha: Term) -> Term:
    """The gradient of `elu`: grad where x is positive, else grad * alpha * exp(x)."""
    return s.where(s.gt(x, 0), grad, s.mul(s.mul(grad, alpha), s.exp(s.minimum(x, 0))))


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(
        lambda g, x, alpha: elu_backward(g, x, alpha),
        lambda g, x: where(x > 0, 0.0, g * expm1(where(x > 0, 0.0, x))),
    ),
    reference=lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
    samples=_slope_samples,
)
def elu(x: Term, alpha: Term = 1.0) -> Term:
    """Exponential linear unit: `x` where positive, else alpha · (exp(x) - 1).

    >>> F.elu(wf.tensor([-100.0, 2.0])).tolist()
    [-1.0, 2.0]
    """
    return s.where(s.gt(x, 0), x, s.mul(s.expm1(s.minimum(x, 0)), alpha))


def _celu_alpha(g: Any, x: Any, alpha: Any) -> Any:
    ratio = where(x > 0, 0.0, x) / alpha
    return where(x > 0, 0.0, g * (expm1(ratio) - ratio * exp(ratio)))


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=(lambda g, x, alpha: where(x > 0, g, g * exp(where(x > 0, 0.0, x) / alpha)), _celu_alpha),
    reference=lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    samples=_slope_samples,
    check_call=lambda x, alpha: _check_alpha(alpha),
    errors=lambda m: [Bad(ValueError, "celu: alpha must not be 0", m.normal(3), 0.0)],
)
def celu(x: Term, alpha: Term = 1.0) -> Term:
    """`x` where positive, else alpha · (exp(x / alpha) - 1): an `elu` that is smooth for every alpha."""
    return s.where(s.gt(x, 0), x, s.mul(s.expm1(s.div(s.minimum(x, 0), alpha)), alpha))


def _selu_slope(x: Any) -> Any:
    curve = s.mul(s.exp(s.minimum(x, 0)), SELU_SCALE * SELU_ALPHA)
    return s.where(s.gt(x, 0), SELU_SCALE, curve)


selu_backward = _backward(
    "selu_backward",
    _selu_slope,
    lambda x: where(x > 0, 0.0, exp(where(x > 0, 0.0, x)) * (SELU_SCALE * SELU_ALPHA)),
    lambda x: SELU_SCALE * np.where(x > 0, 1, SELU_ALPHA * np.exp(x)),
)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: selu_backward(g, x),
    reference=lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)),
    samples=values(),
)
def selu(x: Term) -> Term:
    """The scaled `elu` whose constants keep mean 0 and variance 1 from layer to layer."""
    return s.where(s.gt(x, 0), s.mul(x, SELU_SCALE), s.mul(s.expm1(s.minimum(x, 0)), SELU_SCALE * SELU_ALPHA))


# Smooth gates ---------------------------------------------------------------------------------------------------------


def _np_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _silu_slope(x: Any) -> Any:
    gate = s.sigmoid(x)
    return s.mul(gate, s.add(s.mul(x, s.sub(1, gate)), 1))


def _silu_second(x: Tensor) -> Tensor:
    gate = sigmoid(x)
    return gate * (1 - gate) * (2 + x * (1 - 2 * gate))


silu_backward = _backward(
    "silu_backward", _silu_slope, _silu_second, lambda x: _np_sigmoid(x) * (1 + x * (1 - _np_sigmoid(x)))
)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: silu_backward(g, x),
    reference=lambda x: x * _np_sigmoid(x),
    samples=values(),
)
def silu(x: Term) -> Term:
    """Sigmoid linear unit (swish): x · sigmoid(x).

    >>> F.silu(wf.tensor([0.0, 20.0])).tolist()
    [0.0, 20.0]
    """
    return s.mul(x, s.sigmoid(x))


def _erf64(x: Any) -> Any:
    return s.erf(np.asarray(x, np.float64))


def _gelu_slope(x: Any) -> Any:
    cdf = s.mul(s.add(s.erf(s.mul(x, SQRT_HALF)), 1), 0.5)
    density = s.mul(s.exp(s.mul(s.mul(x, x), -0.5)), INVERSE_SQRT_2PI)
    return s.add(cdf, s.mul(x, density))


gelu_exact_backward = _backward(
    "gelu_exact_backward",
    _gelu_slope,
    lambda x: exp(x * x * -0.5) * (2 - x * x) * INVERSE_SQRT_2PI,
    lambda x: 0.5 * (1 + _erf64(x * SQRT_HALF)) + x * np.exp(-0.5 * x * x) * INVERSE_SQRT_2PI,
)


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=lambda g, x: gelu_exact_backward(g, x),
    reference=lambda x: 0.5 * x * (1 + _erf64(x * SQRT_HALF)),
    samples=values(),
)
def gelu_exact(x: Term) -> Term:
    """x · Φ(x), with Φ the normal distribution function: `gelu(x)`."""
    return s.mul(s.mul(x, 0.5), s.add(s.erf(s.mul(x, SQRT_HALF)), 1))


def _tanh_inner(x: Any) -> Any:
    return s.mul(s.mul(x, s.add(s.mul(s.mul(x, x), TANH_CUBE), 1)), TANH_SCALE)


def _gelu_tanh_slope(x: Any) -> Any:
    t = s.tanh(_tanh_inner(x))
    inner = s.add(s.mul(s.mul(x, x), 3 * TANH_CUBE * TANH_SCALE), TANH_SCALE)
    return s.mul(s.add(s.add(t, 1), s.mul(s.mul(x, inner), s.sub(1, s.mul(t, t)))), 0.5)


def _gelu_tanh_second(x: Tensor) -> Tensor:
    # u = c (x + a x³), t = tanh u: f'' = (1 - t²) (u' + x/2 (u'' - 2 t u'²))
    t = tanh((x + TANH_CUBE * x * x * x) * TANH_SCALE)
    first = (1 + 3 * TANH_CUBE * x * x) * TANH_SCALE
    return (1 - t * t) * (first + 0.5 * x * (6 * TANH_CUBE * TANH_SCALE * x - 2 * t * first * first))


def _np_gelu_tanh_slope(x: Any) -> Any:
    t = np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBE * x * x)


gelu_tanh_backward = _backward("gelu_tanh_backward", _gelu_tanh_slope, _gelu_tanh_second, _np_gelu_tanh_slope)


@elementwise(
    namespace="internal",
    kind="real float",
    vjp=lambda g, x: gelu_tanh_backward(g, x),
    reference=lambda x: 0.5 * x * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3))),
    samples=values(),
)
def gelu_tanh(x: Term) -> Term:
    """The tanh form of gelu: `gelu(x, approximate="tanh")`."""
    return s.mul(s.mul(x, 0.5), s.add(s.tanh(_tanh_inner(x)), 1))


def _reference_gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3)))
    return 0.5 * x * (1 + _erf64(x * SQRT_HALF))


@composite(
    namespace="nn",
    reference=_reference_gelu,
    samples=lambda m: [Sample(m.normal(2, 3)), Sample(m.normal(4), "tanh"), Sample(m.normal(4), approximate="none")],
    errors=lambda m: [Bad(ValueError, "gelu: approximate must be 'none' or 'tanh'", m.normal(3), "sigmoid")],
)
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """The Gaussian error linear unit x · Φ(x); `approximate="tanh"` uses a tanh in place of the error function.

    >>> F.gelu(wf.tensor([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    if approximate == "none":
        return gelu_exact(x)
    if approximate == "tanh":
        return gelu_tanh(x)
    raise ValueError(f"gelu: approximate must be 'none' or 'tanh'. Got {approximate!r}.")


def _mish_parts(x: Any) -> tuple[Any, Any]:
    """tanh(softplus(x)) as n / (n + 2) with n = e(e + 2), e = exp(x), and sigmoid(x)."""
    e = s.exp(s.minimum(x, 20))
    n = s.mul(e, s.add(e, 2))
    return s.div(n, s.add(n, 2)), s.sigmoid(x)


def _mish_slope(x: Any) -> Any:
    t, gate = _mish_parts(x)
    return s.add(t, s.mul(s.mul(x, gate), s.sub(1, s.mul(t, t))))


def _mish_second(x: Tensor) -> Tensor:
    t, gate = tanh(softplus(x)), sigmoid(x)
    return (1 - t * t) * gate * (2 + x * (1 - gate - 2 * t * gate))


def _np_mish_slope(x: Any) -> Any:
    t = np.tanh(np.logaddexp(0, x))
    return t + x * _np_sigmoid(x) * (1 - t * t)


mish_backward = _backward("mish_backward", _mish_slope, _mish_second, _np_mish_slope)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: mish_backward(g, x),
    reference=lambda x: x * np.tanh(np.logaddexp(0, x)),
    samples=values(),
)
def mish(x: Term) -> Term:
    """x · tanh(softplus(x))."""
    return s.mul(x, _mish_parts(x)[0])


# Saturating functions -------------------------------------------------------------------------------------------------


def _softplus_slope(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    return where(x * beta > threshold, g, g * sigmoid(x * beta))


def _softplus_beta(g: Any, x: Any, beta: Any, threshold: Any, out: Any) -> Any:
    return where(x * beta > threshold, 0.0, g * (x * sigmoid(x * beta) - out) / beta)


@elementwise(
    autocast="float32",
    namespace="nn",
    kind="real float",
    vjp=(_softplus_slope, _softplus_beta, None),
    reference=lambda x, beta=1.0, threshold=20.0: np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta),
    samples=lambda m: [
        Sample(m.normal(2, 3)),
        Sample(m.normal(7) * 30),
        Sample(m.normal(7), 2.0, 1.0),
        Sample(m.normal(3), m.positive(3)),
    ],
    errors=lambda m: [Bad(TypeError, "softplus: expected a real tensor", np.ones(2, np.complex64))],
)
def softplus(x: Term, beta: Term = 1.0, threshold: Term = 20.0) -> Term:
    """Smooth approximation of `relu`: log(1 + exp(beta · x)) / beta; `x` itself where beta · x is above `threshold`.

    >>> F.softplus(wf.tensor([30.0])).tolist()
    [30.0]
    """
    scaled = s.mul(x, beta)
    curve = s.div(s.log1p(s.exp(s.minimum(scaled, threshold))), beta)
    return s.where(s.gt(scaled, threshold), x, curve)


@elementwise(
    autocast="float32",
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: g * sigmoid(-x),
    reference=lambda x: -np.logaddexp(0, -x),
    samples=values(-40, 40),
)
def logsigmoid(x: Term) -> Term:
    """log(sigmoid(x)), numerically stable."""
    return s.sub(s.minimum(x, 0), s.log1p(s.exp(s.neg(s.abs(x)))))


def _softsign_slope(x: Any) -> Any:
    base = 1 + abs(x)
    return 1 / (base * base)


@elementwise(
    namespace="nn",
    kind="real float",
    vjp=lambda g, x: g * _softsign_slope(x),
    reference=lambda x: x / (1 + np.abs(x)),
    samples=values(),
)
def softsign(x: Term) -> Term:
    """x / (1 + |x|)."""
    return s.div(x, s.add(s.abs(x), 1))


def _tanhshrink_rule(g: Tensor, x: Tensor) -> Tensor:
    t = tanh(x)
    return g * t * t


@elementwise(
    namespace="nn", kind="real float", vjp=_tanhshrink_rule, reference=lambda x: x - np.tanh(x), samples=values()
)
def tanhshrink(x: Term) -> Term:
    """x - tanh(x)."""
    return s.sub(x, s.tanh(x))


def _reference_glu(x: Any, axis: int = -1) -> Any:
    a, b = np.split(x, 2, axis)
    return a * _np_sigmoid(b)


@composite(
    accumulate="float32",
    namespace="nn",
    reference=_reference_glu,
    samples=lambda m: [Sample(m.normal(3, 4)), Sample(m.normal(6, 2), 0), Sample(m.normal(2, 4, 3), axis=1)],
    errors=lambda m: [
        Bad(ValueError, "glu: axis -1 has size 3", m.normal(2, 3)),
        Bad(IndexError, "glu: axis 2", m.normal(2, 4), 2),
    ],
)
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The gated linear unit a · sigmoid(b), where a and b are the halves of `x` along `axis`.

    >>> F.glu(wf.tensor([2.0, 4.0, 0.0, 0.0])).tolist()
    [1.0, 2.0]
    """
    from ..array.indexing import slice_axis

    place = normalize_axis("glu", axis, x.ndim)
    size = x.shape[place]
    if size is None or size % 2:
        raise ValueError(f"glu: axis {axis} has size {size}; expected an even size. Got shape {format_shape(x.shape)}.")
    return slice_axis(x, place, 0, size // 2) * sigmoid(slice_axis(x, place, size // 2, size))
