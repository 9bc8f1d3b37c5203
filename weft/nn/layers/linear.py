"""Linear, bilinear and identity layers."""

from __future__ import annotations

import math
from typing import Any

from ...ops.array.creation import empty
from ...ops.core.spec import check_size
from ...tensor import Tensor
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..module import Layer, Module
from ..parameter import Parameter
from .dtypes import check_dtype


class Identity(Module):
    """Return the input unchanged; any constructor arguments are ignored, so it can replace any layer.

    >>> nn.Identity()(wf.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Layer):
    """Affine map of the last axis: `x @ weight.T + bias`.

    Args:
        in_features, out_features: sizes of the last axis before and after.
        bias: whether to add a learned bias.

    Shapes: x (…, in_features) → (…, out_features); `weight` is (out_features, in_features). Both parameters start
    uniform in ±1/√in_features.

    >>> nn.Linear(3, 5)(wf.ones(2, 3)).shape
    (2, 5)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: DTypeLike | None = None
    ) -> None:
        super().__init__()
        in_features = check_size("Linear", in_features, "in_features")
        out_features = check_size("Linear", out_features, "out_features")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty((out_features, in_features), dtype=dtype))
        self.bias = Parameter(empty((out_features,), dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        init.fan_in_uniform_(self.weight, self.in_features)
        if self.bias is not None:
            init.fan_in_uniform_(self.bias, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if x.dtype is not weight.dtype:
            check_dtype(self, x, weight)
        return F.linear(x, weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Layer):
    """Bilinear map of two inputs: `x1 @ weight[k] @ x2 + bias[k]` for each output k.

    Args:
        in1_features, in2_features: sizes of the last axis of `x1` and `x2`.
        out_features: size of the last axis of the result.
        bias: whether to add a learned bias.

    Shapes: x1 (…, in1_features), x2 (…, in2_features) → (…, out_features); `weight` is (out, in1, in2).

    >>> nn.Bilinear(3, 4, 5)(wf.ones(2, 3), wf.ones(2, 4)).shape
    (2, 5)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        in1_features = check_size("Bilinear", in1_features, "in1_features")
        in2_features = check_size("Bilinear", in2_features, "in2_features")
        out_features = check_size("Bilinear", out_features, "out_features")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), dtype=dtype))
        self.bias = Parameter(empty((out_features,), dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.bilinear(x1, x2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
