"""Affine maps: `linear` and `bilinear`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import format_shape
from ...tensor import Tensor
from ..array.elementwise import astype
from ..array.products import matmul
from ..array.shaping import expand_dims, matrix_transpose, permute_dims, reshape, squeeze
from ..core.define import composite
from ..core.samples import Bad, Sample
from ..core.short_floats import in_autocast, is_short
from ..core.spec import is_known, same_size


def add_bias(product: Tensor, bias: Tensor | None) -> Tensor:
    """`product + bias`, or `product` if there is no bias.

    Within `autocast` the sum has the dtype of the product: layers that add their bias in a separate op return what a
    convolution does, whose bias is an operand of the product.
    """
    if bias is None:
        return product
    if bias.dtype != product.dtype and in_autocast() and is_short(product.dtype):
        bias = astype(bias, product.dtype)
    return product + bias


def _check_bias(op: str, bias: Tensor | None, outputs: Any) -> None:
    if bias is not None and (bias.ndim != 1 or not same_size(bias.shape[0], outputs)):
        raise ValueError(
            f"{op}: bias has shape {format_shape(bias.shape)}; expected ({outputs},), one per output feature."
        )


@composite(
    namespace="nn",
    reference=lambda x, weight, bias=None: x @ weight.T + (0 if bias is None else bias),
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(2, 3), m.normal(2)),
        Sample(m.normal(3), m.normal(2, 3)),
        Sample(m.normal(2, 4, 3), m.normal(5, 3), m.normal(5)),
        Sample(m.normal(0, 3), m.normal(2, 3), m.normal(2)),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            r"linear: x has 4 features; expected 3, .* Got x \(2, 4\) and weight \(5, 3\)",
            m.normal(2, 4),
            m.normal(5, 3),
        ),
        Bad(ValueError, r"linear: bias has shape \(3,\); expected \(5,\)", m.normal(2, 3), m.normal(5, 3), m.normal(3)),
        Bad(ValueError, "linear: weight must have shape", m.normal(2, 3), m.normal(3)),
    ],
)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Affine map of the last axis: x weightᵀ + bias.

    Args:
        x: (..., inputs).
        weight: (outputs, inputs).
        bias: (outputs,) or None.

    Returns:
        (..., outputs).

    >>> F.linear(wf.tensor([[1.0, 2.0]]), wf.tensor([[3.0, 4.0]]), wf.tensor([0.5])).tolist()
    [[11.5]]
    """
    if weight.ndim != 2:
        raise ValueError(f"linear: weight must have shape (outputs, inputs). Got {format_shape(weight.shape)}.")
    outputs, inputs = weight.shape
    if x.ndim == 0 or not same_size(x.shape[-1], inputs):
        raise ValueError(
            f"linear: x has {x.shape[-1] if x.ndim else 'no'} features; expected {inputs}, the inputs of weight. "
            f"Got x {format_shape(x.shape)} and weight {format_shape(weight.shape)}."
        )
    _check_bias("linear", bias, outputs)
    flat = x
    if x.ndim > 2 and is_known(x.shape):  # one large product instead of many small ones
        flat = reshape(x, (int(np.prod(x.shape[:-1])), inputs))
    out = matmul(flat, matrix_transpose(weight))
    out = add_bias(out, bias)
    return out if flat is x else reshape(out, (*x.shape[:-1], outputs))


@composite(
    accumulate="float32",
    namespace="nn",
    reference=lambda x1, x2, weight, bias=None: (
        np.einsum("...i,oij,...j->...o", x1, weight, x2) + (0 if bias is None else bias)
    ),
    samples=lambda m: [
        Sample(m.normal(4, 3), m.normal(4, 2), m.normal(5, 3, 2), m.normal(5)),
        Sample(m.normal(3), m.normal(2), m.normal(1, 3, 2)),
        Sample(m.normal(2, 2, 3), m.normal(2, 2, 2), m.normal(4, 3, 2)),
    ],
    errors=lambda m: [
        Bad(ValueError, "bilinear: expected x1", m.normal(4, 3), m.normal(4, 3), m.normal(5, 3, 2)),
        Bad(ValueError, "bilinear: expected x1", m.normal(4, 3), m.normal(3, 2), m.normal(5, 3, 2)),
        Bad(ValueError, "bilinear: bias has shape", m.normal(4, 3), m.normal(4, 2), m.normal(5, 3, 2), m.normal(2)),
    ],
)
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map: Σᵢⱼ x1ᵢ weightₖᵢⱼ x2ⱼ + biasₖ.

    Args:
        x1, x2: (..., I) and (..., J).
        weight: (outputs, I, J).
        bias: (outputs,) or None.
    """
    fits = weight.ndim == 3 and x1.ndim == x2.ndim and x1.ndim > 0
    fits = fits and same_size(x1.shape[-1], weight.shape[1]) and same_size(x2.shape[-1], weight.shape[2])
    fits = fits and all(same_size(a, b) for a, b in zip(x1.shape[:-1], x2.shape[:-1]))
    if not fits:
        raise ValueError(
            f"bilinear: expected x1 (..., I), x2 (..., J) and weight (outputs, I, J). Got {format_shape(x1.shape)}, "
            f"{format_shape(x2.shape)} and {format_shape(weight.shape)}."
        )
    outputs, first, second = weight.shape
    _check_bias("bilinear", bias, outputs)
    flat = reshape(permute_dims(weight, (1, 0, 2)), (first, outputs * second))
    partial = matmul(x1, flat)
    partial = reshape(partial, (*x1.shape[:-1], outputs, second))
    out = squeeze(matmul(partial, expand_dims(x2, -1)), -1)
    return add_bias(out, bias)
