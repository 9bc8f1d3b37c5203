"""Weight initialisers: functions that fill a tensor in place and return it.

Random ones take a `generator`; without one the default generator is used, so `wf.manual_seed` makes initialisation
reproducible.

>>> from weft.nn import init
>>> init.constant_(wf.empty(2), 3.0).tolist()
[3.0, 3.0]

Without the underscore (`init.normal(0.02)`) they return an `Initializer`: a rule for a tensor that is made elsewhere, see
`wf.Variable.remote`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import random
from ..autograd.tape import no_grad
from ..errors import format_shape
from ..ops.array.elementwise import erf, sqrt
from ..ops.core.error_names import guard_functions
from ..tensor import Tensor, wrap

Generator = random.Generator


def _fans(op: str, tensor: Tensor) -> tuple[int, int]:
    """fan_in and fan_out of a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise ValueError(f"{op}: needs a tensor with at least two axes. Got shape {format_shape(tensor.shape)}.")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Gain that preserves the variance of activations for a nonlinearity.

    Args:
        nonlinearity: "linear", "conv…", "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        param: the negative slope of "leaky_relu", 0.01 by default.

    >>> round(nn.init.calculate_gain("relu"), 4)
    1.4142
    """
    if nonlinearity in ("linear", "sigmoid") or nonlinearity.startswith("conv"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 0.75
    raise ValueError(
        f"calculate_gain: unknown nonlinearity {nonlinearity!r}. "
        "Expected linear, conv*, sigmoid, tanh, relu, leaky_relu or selu."
    )


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill `tensor` with samples uniform in [a, b).

    >>> w = nn.init.uniform_(wf.empty(100), -1.0, 1.0)
    >>> bool((w >= -1).all()), bool((w < 1).all())
    (True, True)
    """
    with no_grad():
        return tensor.copy_(random.uniform(a, b, tensor.shape, dtype=tensor.dtype, generator=generator))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill `tensor` with samples of a normal distribution.

    >>> nn.init.normal_(wf.empty(2, 3), std=0.02).shape
    (2, 3)
    """
    with no_grad():
        return tensor.copy_(random.normal(mean, std, tensor.shape, dtype=tensor.dtype, generator=generator))


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill `tensor` with samples of a normal distribution truncated to [a, b].

    >>> bool((nn.init.trunc_normal_(wf.empty(100)).abs() <= 2).all())
    True
    """
    if not (std > 0 and a < b):
        raise ValueError(f"trunc_normal_: needs std > 0 and a < b. Got std={std}, a={a}, b={b}.")

    def cdf(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    if high - low < 1e-12:
        raise ValueError(f"trunc_normal_: [{a}, {b}] is too far from the mean {mean} for std {std}.")
    with no_grad():
        u = random.uniform(low, high, tensor.shape, dtype="float64", generator=generator)
        values = _inverse_cdf(u) * std + mean
        return tensor.copy_(values.clip(a, b).to(tensor.dtype))


def _inverse_cdf(p: Tensor) -> Tensor:
    """The normal quantile: a rational start value (Winitzki's erf inverse) and Newton steps on erf."""
    y = 2 * p - 1
    t = (1 - y * y).clip(1e-300, None).log()
    k = 0.147
    half = 2 / (math.pi * k) + t / 2
    x = sqrt((sqrt(half * half - t / k) - half).clip(0, None)) * y.sign()
    for _ in range(3):
        x = x - (erf(x) - y) * (math.sqrt(math.pi) / 2) * (x * x).clip(None, 600).exp()
    return x * math.sqrt(2)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill `tensor` with the value `val`.

    >>> nn.init.constant_(wf.empty(2), 3.0).tolist()
    [3.0, 3.0]
    """
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill `tensor` with zeros.

    >>> nn.init.zeros_(wf.empty(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill `tensor` with ones.

    >>> nn.init.ones_(wf.empty(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    >>> nn.init.eye_(wf.empty(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ValueError(f"eye_: needs a matrix. Got shape {format_shape(tensor.shape)}.")
    with no_grad():
        return tensor.copy_(wrap(np.eye(*tensor.shape, dtype=tensor.dtype)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution weight with the Dirac delta: input channels pass through unchanged."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: needs a convolution weight of 3 to 5 axes. Got shape {format_shape(tensor.shape)}.")
    if tensor.shape[0] % groups:
        raise ValueError(f"dirac_: groups must divide the {tensor.shape[0]} output channels. Got {groups}.")
    per_group = tensor.shape[0] // groups
    array = np.zeros(tensor.shape, tensor.dtype)
    centre = tuple(d // 2 for d in tensor.shape[2:])
    for g in range(groups):
        for i in range(min(per_group, tensor.shape[1])):
            array[(g * per_group + i, i, *centre)] = 1
    with no_grad():
        return tensor.copy_(wrap(array))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot uniform initialisation: variance gain² · 2 / (fan_in + fan_out).

    Args:
        tensor: (out, in, *kernel), filled in place and returned.
        gain: see `calculate_gain`.

    >>> w = nn.init.xavier_uniform_(wf.empty(3, 3))
    >>> bool((w.abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot normal initialisation: variance gain² · 2 / (fan_in + fan_out).

    Args:
        tensor: (out, in, *kernel), filled in place and returned.
        gain: see `calculate_gain`.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans("xavier_normal_", tensor))), generator)


def _kaiming_std(op: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{op}: mode must be 'fan_in' or 'fan_out'. Got {mode!r}.")
    fan = _fans(op, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He uniform initialisation: variance gain² / fan.

    Args:
        tensor: (out, in, *kernel), filled in place and returned.
        a: negative slope of the "leaky_relu" that follows.
        mode: "fan_in" preserves the variance forwards, "fan_out" backwards.
        nonlinearity: the activation after the layer; see `calculate_gain`.
    """
    bound = math.sqrt(3.0) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He normal initialisation: variance gain² / fan. Arguments as for `kaiming_uniform_`.

    >>> w = nn.init.kaiming_normal_(wf.empty(64, 32), nonlinearity="relu")
    >>> round(w.std().item(), 1)
    0.3
    """
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix scaled by `gain`; axes after the first are flattened.

    >>> w = nn.init.orthogonal_(wf.empty(3, 5))
    >>> bool(wf.allclose(w @ w.T, wf.eye(3), atol=1e-5))
    True
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: needs at least two axes. Got shape {format_shape(tensor.shape)}.")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    if rows == 0 or columns == 0:
        return tensor
    draws = random.randn(max(rows, columns), min(rows, columns), dtype="float64", generator=generator)
    q, r = np.linalg.qr(draws._array("orthogonal_"))
    q = q * np.sign(np.diag(r))  # makes the factorisation unique, so the result is uniform over orthogonal matrices
    with no_grad():
        return tensor.copy_(wrap((gain * (q.T if rows < columns else q)).reshape(tensor.shape).astype(tensor.dtype)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal samples, a fraction `sparsity` of each column set to zero."""
    if tensor.ndim != 2 or not 0 <= sparsity <= 1:
        raise ValueError(
            f"sparse_: needs a matrix and 0 <= sparsity <= 1. Got {format_shape(tensor.shape)} and {sparsity}."
        )
    rows, columns = tensor.shape
    values = random.normal(0.0, std, tensor.shape, dtype="float64", generator=generator)._array("sparse_")
    order = random.rand(rows, columns, generator=generator)._array("sparse_").argsort(axis=0).argsort(axis=0)
    with no_grad():
        return tensor.copy_(wrap(np.where(order < math.ceil(sparsity * rows), 0, values).astype(tensor.dtype)))


def fan_in_uniform_(tensor: Tensor, fan_in: int, generator: Any = None) -> Tensor:
    """Uniform in ±1/√fan_in: the default of linear, convolution and recurrent layers."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(tensor, -bound, bound, generator)


guard_functions(globals())

from .initializers import Initializer as Initializer  # noqa: E402  # they use the functions above
from .initializers import constant as constant  # noqa: E402
from .initializers import kaiming_normal as kaiming_normal  # noqa: E402
from .initializers import kaiming_uniform as kaiming_uniform  # noqa: E402
from .initializers import normal as normal  # noqa: E402
from .initializers import ones as ones  # noqa: E402
from .initializers import uniform as uniform  # noqa: E402
from .initializers import xavier_normal as xavier_normal  # noqa: E402
from .initializers import xavier_uniform as xavier_uniform  # noqa: E402
from .initializers import zeros as zeros  # noqa: E402
