"""Activation functions as layers.

`inplace` is accepted where PyTorch has it, but results are always new tensors; a captured function reuses memory where
that is safe.
"""

from __future__ import annotations

from ...ops.array.creation import full
from ...ops.core.spec import check_size
from ...tensor import Tensor
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..module import Layer
from ..parameter import Parameter
from .words import explain_torch_names


class _InPlace(Layer):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """Rectified linear unit: max(x, 0).

    >>> nn.ReLU()(wf.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class ReLU6(_InPlace):
    """Rectified linear unit capped at 6: min(max(x, 0), 6).

    >>> nn.ReLU6()(wf.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class SiLU(_InPlace):
    """Sigmoid linear unit (swish): x · sigmoid(x).

    >>> nn.SiLU()(wf.tensor([0.0, 20.0])).tolist()
    [0.0, 20.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Mish(_InPlace):
    """x · tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)


class SELU(_InPlace):
    """Scaled exponential linear unit of self-normalising networks."""

    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x)


class Hardswish(_InPlace):
    """x · relu6(x + 3) / 6.

    >>> nn.Hardswish()(wf.tensor([0.0, 4.0])).tolist()
    [0.0, 4.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x)


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


class LeakyReLU(Layer):
    """Leaky rectified linear unit: x where x > 0, else negative_slope · x.

    Args:
        negative_slope: slope for negative inputs.
        inplace: accepted for compatibility; the result is a new tensor.

    >>> nn.LeakyReLU(0.5)(wf.tensor([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Layer):
    """Exponential linear unit: x where x > 0, else alpha · (exp(x) - 1).

    Args:
        alpha: magnitude of the limit for large negative inputs.
        inplace: accepted for compatibility; the result is a new tensor.

    >>> nn.ELU()(wf.tensor([-100.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(Layer):
    """max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Layer):
    """Gaussian error linear unit: x · Φ(x), Φ being the standard normal CDF.

    Args:
        approximate: "none" for the exact form, "tanh" for the tanh approximation.

    >>> nn.GELU()(wf.tensor([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class PReLU(Layer):
    """Parametric ReLU: x where x > 0, else weight · x with a learned weight.

    Args:
        num_parameters: 1, or the number of channels (axis 1) for one weight per channel.
        init: initial value of the weight.

    >>> nn.PReLU()(wf.tensor([-4.0, 4.0])).tolist()
    [-1.0, 4.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: DTypeLike | None = None) -> None:
        super().__init__()
        num_parameters = check_size("PReLU", num_parameters, "num_parameters")
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype))

    def reset_parameters(self) -> None:
        """Reinitialise the parameter."""
        init.constant_(self.weight, self.init)

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Sigmoid(Layer):
    """Logistic sigmoid: 1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(wf.tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Tanh(Layer):
    """Hyperbolic tangent.

    >>> nn.Tanh()(wf.tensor([0.0, 50.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class LogSigmoid(Layer):
    """log(sigmoid(x)), numerically stable."""

    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class Softsign(Layer):
    """x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class Tanhshrink(Layer):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanhshrink(x)


class Softplus(Layer):
    """Smooth approximation of ReLU: log(1 + exp(beta · x)) / beta.

    Args:
        beta: sharpness; larger values are closer to ReLU.
        threshold: above `beta · x > threshold` the layer is the identity, which avoids overflow.

    >>> nn.Softplus()(wf.tensor([-50.0, 50.0])).round().tolist()
    [0.0, 50.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Layer):
    """Clamp to [min_val, max_val].

    >>> nn.Hardtanh()(wf.tensor([-3.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val must be below max_val. Got {min_val} and {max_val}.")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Hardshrink(Layer):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return F.hardshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Layer):
    """Soft thresholding: x shrunk towards 0 by `lambd`, and 0 within ±lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return F.softshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Threshold(Layer):
    """x where it is above `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.threshold(x, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


@explain_torch_names
class GLU(Layer):
    """Gated linear unit: the first half along `axis` times the sigmoid of the second half.

    >>> nn.GLU()(wf.tensor([[2.0, 4.0, 0.0, 0.0]])).tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


@explain_torch_names
class Softmax(Layer):
    """Softmax along `axis`: exp(x) / Σ exp(x).

    >>> nn.Softmax()(wf.zeros(1, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


@explain_torch_names
class LogSoftmax(Layer):
    """log(softmax(x)) along `axis`, numerically stable.

    >>> nn.LogSoftmax()(wf.zeros(1, 2)).exp().tolist()
    [[0.5, 0.5]]
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


@explain_torch_names
class Softmin(Layer):
    """softmax(-x) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.softmin(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Softmax2d(Layer):
    """Softmax over the channel axis of (N, C, H, W) or (C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, -3)
