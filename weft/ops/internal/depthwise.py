"""Depthwise convolutions fused with the neighbouring norm and activation, created by the `depthwise_blocks` pass.

`before` is the prologue applied to the image: `Steps` whose inputs are the image and then the columns, per-channel
vectors of shape (1, C, 1, 1). `after` is the epilogue applied to the image's gradient; its inputs are the gradient, the
image and the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...tensor import Tensor
from ..core import define
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE, table
from ..core.samples import Sample
from ..core.spec import Spec
from ..nn.conv import convolution as convolution
from ..nn.norm import batch_norm as batch_norm
from .steps import Steps, last_of, run_steps

NON_CHANNEL_AXES = (0, 2, 3)
"""all axes but the channel axis"""
RELU6_OF_NORM: Steps = (("subtract", (0, 1)), ("multiply", (~0, 2)), ("relu6", (~1,)))
RELU6_OF_NORM_GRADIENT: Steps = (
    ("subtract", (1, 2)), ("multiply", (~0, 3)), ("greater", (~1, 0.0)), ("where", (~2, 0, 0.0)), ("multiply", (~3, ~0)),
)  # fmt: skip


def _computed(what: str) -> Any:
    """The op's kernel as a function of arrays."""
    return lambda inputs, attrs: define.compute(table[what], inputs, attrs)


def _reference(what: str) -> Any:
    reference: Any = table[what].reference
    return lambda inputs, attrs: reference(*inputs, *attrs)


def _forward(run: Any, arrays: Any, before: Any, stride: Any, padding: Any, dilation: Any, moments: bool) -> Any:
    x, w, *columns = arrays
    h = last_of(before, [x, *columns])
    y = run("convolution")([h, w, None], (stride, padding, dilation, x.shape[1]))
    return (y, *run("channel_moments")([y], ())) if moments else (y,)


def _infer_forward(
    arrays: Any, before: Any, stride: Any, padding: Any, dilation: Any, moments: bool
) -> tuple[Spec, ...]:
    infer: Any = table["convolution"].infer
    x, w = arrays[:2]
    known = [size for size in (x.shape[1], w.shape[0]) if isinstance(size, int)]
    y = infer(x, w, None, stride, padding, dilation, *(known[:1] or (1,)))
    return (y, *[Spec((1, x.shape[1], 1, 1), x.dtype)] * (2 * moments))


@primitive(
    namespace="internal",
    outputs=None,
    infer=_infer_forward,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, *attrs: 2 * prod(_infer_forward(arrays, *attrs)[0].shape or ()) * prod(arrays[1].shape[1:]),
    reference=lambda *given: _forward(_reference, *given),
    samples=lambda m: [
        Sample((m.normal(2, 3, 6, 5), m.normal(3, 1, 3, 3)), (), (2, 1), ((1, 1), (1, 0)), (1, 1), True),
        Sample(
            (m.normal(2, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 1, 1), m.normal(1, 4, 1, 1)),
            RELU6_OF_NORM, (1, 1), ((1, 1), (1, 1)), (1, 1), True,
        ),
        Sample(
            (m.normal(1, 17, 9, 4), m.normal(17, 1, 2, 3), m.normal(1, 17, 1, 1), m.normal(1, 17, 1, 1)),
            RELU6_OF_NORM, (1, 1), ((0, 0), (1, 1)), (1, 1), False,
        ),
    ],
)  # fmt: skip
def depthwise_forward(
    arrays: Sequence[Tensor], before: Steps, stride: Any, padding: Any, dilation: Any, moments: bool
) -> Any:
    """`before` of x, convolved with a filter per channel; with `moments` also the mean and variance of each channel of the
    result, (1, C, 1, 1). `arrays` is (x, weights, columns)."""
    return _forward(_computed, arrays, before, stride, padding, dilation, moments)


def _backward(
    run: Any, arrays: Any, before: Any, after: Any, results: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    g, x, w, *columns = arrays
    window = (stride, padding, dilation, x.shape[1])
    h = last_of(before, [x, *columns])
    down = run("convolution_backward_input")([g, w, None], (tuple(x.shape[2:]), *window))
    weight = run("convolution_backward_weight")([h, g], (tuple(w.shape[2:]), *window))
    kept, *summed = run_steps(after, [down, x, *columns], results)
    return kept, weight, *[v.sum(NON_CHANNEL_AXES, keepdims=True, dtype=x.dtype) for v in summed]


def _infer_backward(
    arrays: Any, before: Any, after: Any, results: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Spec, ...]:
    _, x, w = arrays[:3]
    column = Spec((1, x.shape[1], 1, 1), x.dtype)
    return Spec(x.shape, x.dtype), Spec(w.shape, w.dtype), *[column] * (len(results) - 1)


@primitive(
    namespace="internal",
    outputs=None,
    infer=_infer_backward,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, *attrs: 4 * prod(arrays[0].shape) * prod(arrays[2].shape[1:]),
    reference=lambda *given: _backward(_reference, *given),
    tolerance=4.0,
    samples=lambda m: [
        Sample(
            (m.normal(2, 3, 3, 5), m.normal(2, 3, 6, 5), m.normal(3, 1, 3, 3)),
            (), (), (0, 0), (2, 1), ((1, 1), (1, 1)), (1, 1),
        ),
        Sample(
            (m.normal(2, 4, 5, 5), m.normal(2, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 1, 1), m.normal(1, 4, 1, 1)),
            RELU6_OF_NORM, RELU6_OF_NORM_GRADIENT, (~3, ~3, ~4), (1, 1), ((1, 1), (1, 1)), (1, 1),
        ),
        Sample(
            (m.normal(1, 17, 2, 2), m.normal(1, 17, 7, 4), m.normal(17, 1, 1, 1), m.normal(1, 17, 1, 1), m.normal(1, 17, 1, 1)),
            RELU6_OF_NORM, RELU6_OF_NORM_GRADIENT, (~3, ~4), (4, 3), ((0, 0), (0, 0)), (1, 1),
        ),
    ],
)  # fmt: skip
def depthwise_backward(
    arrays: Sequence[Tensor],
    before: Steps,
    after: Steps,
    results: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
) -> Any:
    """The gradients of `depthwise_forward` in one op. `arrays` is (gradient of the result, x, weights, columns).

    Returns the first of `results` of `after` (named as operands of steps are), the gradient of the weights, and the other
    results summed up per channel, (1, C, 1, 1) each.
    """
    return _backward(_computed, arrays, before, after, results, stride, padding, dilation)
