"""Matrix products and convolutions with a fused elementwise epilogue, created by the `epilogues` pass.

`steps` is the epilogue, in order: "add" and "multiply" take the next of the remaining operands, which
broadcasts to the result; any other step is an elementwise op of one operand, such as "relu".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..array import products as products
from ..core import define
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE, table
from ..core.samples import Sample
from ..core.spec import Spec
from ..nn.conv import convolution as convolution

ndarray = np.ndarray


def _apply_steps(out: Any, steps: Sequence[str], operands: Sequence[Any]) -> Any:
    """Apply the epilogue to an array."""
    rest = iter(operands)
    for step in steps:
        given = [out, next(rest)] if step in ("add", "multiply") else [out]
        out = define.compute(table[step], given, ())
    return out


def _count(steps: Sequence[str]) -> int:
    return sum(step in ("add", "multiply") for step in steps)


def _reference_steps(out: ndarray, steps: Sequence[str], operands: Sequence[ndarray]) -> ndarray:
    rest = iter(operands)
    for step in steps:
        out = {
            "add": lambda y: y + next(rest),
            "multiply": lambda y: y * next(rest),
            "relu": lambda y: np.maximum(y, 0),
        }[step](out)
    return out


def _infer_matmul(arrays: Any, steps: Any) -> Spec:
    a, b = arrays[:2]
    assert len(arrays) == 2 + _count(steps)
    return Spec((*a.shape[:-1], b.shape[-1]), a.dtype)


@primitive(
    accumulate="kernels",
    namespace="internal",
    title="matmul",
    infer=_infer_matmul,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, steps: 2 * prod(arrays[0].shape) * arrays[1].shape[-1],
    reference=lambda arrays, steps: _reference_steps(arrays[0] @ arrays[1], steps, arrays[2:]),
    samples=lambda m: [
        Sample((m.normal(3, 4), m.normal(4, 2), m.normal(2)), ("add", "relu")),
        Sample((m.normal(3, 4), m.normal(4, 2), m.normal(2), m.normal(3, 2)), ("add", "add")),
    ],
)
def matmul_then(arrays: Sequence[Tensor], steps: tuple[str, ...]) -> Any:
    """`a @ b` with the epilogue `steps`; `arrays` is (a, b, *operands of the steps)."""
    out = define.compute(table["matmul"], list(arrays[:2]), ())
    return _apply_steps(out, steps, arrays[2:])


def _reference_convolution(*values: Any) -> ndarray:
    reference: Any = table["convolution"].reference
    return reference(*values)


def _infer_convolution(arrays: Any, steps: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Spec:
    infer: Any = table["convolution"].infer
    found = infer(arrays[0], arrays[1], None, stride, padding, dilation, groups)
    assert isinstance(found, Spec) and len(arrays) == 2 + _count(steps)
    return found


@primitive(
    accumulate="kernels",
    namespace="internal",
    title="convolution",
    infer=_infer_convolution,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, steps, stride, padding, dilation, groups: (
        2
        * prod(_infer_convolution(arrays, steps, stride, padding, dilation, groups).shape or ())
        * prod(arrays[1].shape[1:])
    ),
    reference=lambda arrays, steps, *window: _reference_steps(
        _reference_convolution(arrays[0], arrays[1], None, *window), steps, arrays[2:]
    ),
    samples=lambda m: [
        Sample(
            (m.normal(2, 3, 4, 4), m.normal(5, 3, 1, 1), m.normal(1, 5, 1, 1), m.normal(1, 5, 1, 1)),
            ("multiply", "add", "relu"), (1, 1), ((0, 0), (0, 0)), (1, 1), 1,
        ),
        Sample(
            (m.normal(1, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 5, 5)),
            ("add",), (1, 1), ((1, 1), (1, 1)), (1, 1), 4,
        ),
    ],
)  # fmt: skip
def convolution_then(
    arrays: Sequence[Tensor], steps: tuple[str, ...], stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """A convolution without bias with the epilogue `steps`; `arrays` is (x, weights, *operands of the steps)."""
    out = define.compute(table["convolution"], [*arrays[:2], None], (stride, padding, dilation, groups))
    return _apply_steps(out, steps, arrays[2:])
