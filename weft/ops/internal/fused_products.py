"""Matrix products and convolutions with a fused elementwise epilogue, created by the `epilogues` pass.

The inputs of the epilogue are the product and then the remaining operands, which broadcast to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...tensor import Tensor
from ..array import products as products
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE, table
from ..core.samples import Sample
from ..core.spec import Spec
from ..nn.conv import convolution as convolution
from ..nn.window import Window
from .epilogue import BIAS, IDENTITY, Epilogue, Input, check_epilogue, compute, reference


def _infer_matmul(arrays: Any, epilogue: Any) -> Spec:
    check_epilogue(epilogue, len(arrays) - 2)
    a, b = arrays[:2]
    return Spec((*a.shape[:-1], b.shape[-1]), a.dtype)


@primitive(
    accumulate="kernels",
    namespace="internal",
    title="matmul",
    infer=_infer_matmul,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, epilogue: 2 * prod(arrays[0].shape) * arrays[1].shape[-1],
    reference=lambda arrays, epilogue: epilogue.apply(reference, [reference("matmul", [*arrays[:2]]), *arrays[2:]]),
    samples=lambda m: [
        Sample((m.normal(3, 4), m.normal(4, 2), m.normal(2)), BIAS.extended("relu")),
        Sample((m.normal(3, 4), m.normal(4, 2), m.normal(2), m.normal(3, 2)), BIAS.extended("add", Input(2))),
    ],
)
def matmul_epilogue(arrays: Sequence[Tensor], epilogue: Epilogue) -> Any:
    """`epilogue` of `a @ b`; `arrays` is (a, b, *operands of the epilogue)."""
    return epilogue.apply(compute, [compute("matmul", [*arrays[:2]]), *arrays[2:]])


def _infer_convolution(arrays: Any, epilogue: Any, window: Any, groups: int) -> Spec:
    check_epilogue(epilogue, len(arrays) - 2)
    infer: Any = table["convolution"].infer
    found = infer(arrays[0], arrays[1], None, window, groups)
    assert isinstance(found, Spec)
    return found


@primitive(
    accumulate="kernels",
    namespace="internal",
    title="convolution",
    infer=_infer_convolution,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, *attrs: 2 * prod(_infer_convolution(arrays, *attrs).shape or ()) * prod(arrays[1].shape[1:]),
    reference=lambda arrays, epilogue, window, groups: epilogue.apply(
        reference, [reference("convolution", [*arrays[:2], None], (window, groups)), *arrays[2:]]
    ),
    samples=lambda m: [
        Sample(
            (m.normal(2, 3, 4, 4), m.normal(5, 3, 1, 1), m.normal(1, 5, 1, 1), m.normal(1, 5, 1, 1)),
            IDENTITY.extended("multiply", Input(1, True)).extended("add", Input(2, True)).extended("relu"),
            Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)), 1,
        ),
        Sample(
            (m.normal(1, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 5, 5)),
            IDENTITY.extended("add", Input(1)), Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), 4,
        ),
    ],
)  # fmt: skip
def convolution_epilogue(arrays: Sequence[Tensor], epilogue: Epilogue, window: Window, groups: int) -> Any:
    """`epilogue` of a convolution without bias; `arrays` is (x, weights, *operands of the epilogue)."""
    out = compute("convolution", [*arrays[:2], None], (window, groups))
    return epilogue.apply(compute, [out, *arrays[2:]])
