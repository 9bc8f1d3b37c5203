"""Depthwise convolutions fused with the neighbouring norm and activation, created by the `depthwise_blocks` pass.

`before` is the prologue applied to the image: an `Epilogue` whose inputs are the image and then the columns, per-channel
vectors of shape (1, C, 1, 1). `after` is the epilogue applied to the image's gradient; its inputs are the gradient, the
image and the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...tensor import Tensor
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE, table
from ..core.samples import Sample
from ..core.spec import Spec
from ..nn.conv import convolution as convolution
from ..nn.norm import batch_norm as batch_norm
from ..nn.window import Window, check_window
from .epilogue import IDENTITY, PRODUCT, Apply, Constant, Epilogue, Input, Result, check_epilogue, compute, reference

NON_CHANNEL_AXES = (0, 2, 3)
"""all axes but the channel axis"""
RELU6_OF_NORM = IDENTITY.extended("subtract", Input(1, True)).extended("multiply", Input(2, True)).extended("relu6")
RELU6_OF_NORM_GRADIENT = (
    Apply("subtract", (Input(1), Input(2, True))),
    Apply("multiply", (Result(0), Input(3, True))),
    Apply("greater", (Result(1), Constant(0.0))),
    Apply("where", (Result(2), PRODUCT, Constant(0.0))),
    Apply("multiply", (Result(3), Result(0))),
)


def _forward(run: Any, arrays: Any, before: Any, window: Window, moments: bool) -> Any:
    x, w, *columns = arrays
    h = before.apply(run, [x, *columns])
    y = run("convolution", [h, w, None], (window, x.shape[1]))
    return (y, *run("channel_moments", [y])) if moments else (y,)


def _infer_forward(arrays: Any, before: Any, window: Any, moments: bool) -> tuple[Spec, ...]:
    check_epilogue(before, len(arrays) - 2)
    infer: Any = table["convolution"].infer
    x, w = arrays[:2]
    known = [size for size in (x.shape[1], w.shape[0]) if isinstance(size, int)]
    y = infer(x, w, None, window, *(known[:1] or (1,)))
    return (y, *[Spec((1, x.shape[1], 1, 1), x.dtype)] * (2 * moments))


@primitive(
    namespace="internal",
    outputs=None,
    infer=_infer_forward,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, *attrs: 2 * prod(_infer_forward(arrays, *attrs)[0].shape or ()) * prod(arrays[1].shape[1:]),
    reference=lambda *given: _forward(reference, *given),
    samples=lambda m: [
        Sample((m.normal(2, 3, 6, 5), m.normal(3, 1, 3, 3)), IDENTITY, Window((3, 3), (2, 1), ((1, 1), (1, 0)), (1, 1)), True),
        Sample(
            (m.normal(2, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 1, 1), m.normal(1, 4, 1, 1)),
            RELU6_OF_NORM, Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), True,
        ),
        Sample(
            (m.normal(1, 17, 9, 4), m.normal(17, 1, 2, 3), m.normal(1, 17, 1, 1), m.normal(1, 17, 1, 1)),
            RELU6_OF_NORM, Window((2, 3), (1, 1), ((0, 0), (1, 1)), (1, 1)), False,
        ),
    ],
)  # fmt: skip
def depthwise_forward(arrays: Sequence[Tensor], before: Epilogue, window: Window, moments: bool) -> Any:
    """`before` of x, convolved with a filter per channel; with `moments` also the mean and variance of each channel of the
    result, (1, C, 1, 1). `arrays` is (x, weights, columns)."""
    return _forward(compute, arrays, before, window, moments)


def _backward(run: Any, arrays: Any, before: Any, after: Any, window: Any) -> Any:
    g, x, w, *columns = arrays
    groups = x.shape[1]
    h = before.apply(run, [x, *columns])
    down = run("convolution_backward_input", [g, w, None], (tuple(x.shape[2:]), window, groups))
    weight = run("convolution_backward_weight", [h, g], (window, groups))
    kept, *summed = after.apply_all(run, [down, x, *columns])
    return kept, weight, *[v.sum(NON_CHANNEL_AXES, keepdims=True, dtype=x.dtype) for v in summed]


def _infer_backward(arrays: Any, before: Any, after: Any, window: Any) -> tuple[Spec, ...]:
    check_window("depthwise_backward", window, 2)
    check_epilogue(before, None)
    check_epilogue(after, None)
    _, x, w, *columns = arrays
    if len(columns) != max(before.num_inputs - 1, after.num_inputs - 2):
        raise ValueError(
            f"depthwise_backward: {before} and {after} read another number of columns. Got {len(columns)}."
        )
    column = Spec((1, x.shape[1], 1, 1), x.dtype)
    return Spec(x.shape, x.dtype), Spec(w.shape, w.dtype), *[column] * (len(after.results) - 1)


@primitive(
    namespace="internal",
    outputs=None,
    infer=_infer_backward,
    vjp=NOT_DIFFERENTIABLE,  # made after differentiation
    cost=lambda arrays, *attrs: 4 * prod(arrays[0].shape) * prod(arrays[2].shape[1:]),
    reference=lambda *given: _backward(reference, *given),
    tolerance=4.0,
    samples=lambda m: [
        Sample(
            (m.normal(2, 3, 3, 5), m.normal(2, 3, 6, 5), m.normal(3, 1, 3, 3)),
            IDENTITY, Epilogue((), (PRODUCT, PRODUCT)), Window((3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1)),
        ),
        Sample(
            (m.normal(2, 4, 5, 5), m.normal(2, 4, 5, 5), m.normal(4, 1, 3, 3), m.normal(1, 4, 1, 1), m.normal(1, 4, 1, 1)),
            RELU6_OF_NORM, Epilogue(RELU6_OF_NORM_GRADIENT, (Result(3), Result(3), Result(4))),
            Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
        ),
        Sample(
            (m.normal(1, 17, 2, 2), m.normal(1, 17, 7, 4), m.normal(17, 1, 1, 1), m.normal(1, 17, 1, 1), m.normal(1, 17, 1, 1)),
            RELU6_OF_NORM, Epilogue(RELU6_OF_NORM_GRADIENT, (Result(3), Result(4))),
            Window((1, 1), (4, 3), ((0, 0), (0, 0)), (1, 1)),
        ),
    ],
)  # fmt: skip
def depthwise_backward(arrays: Sequence[Tensor], before: Epilogue, after: Epilogue, window: Window) -> Any:
    """The gradients of `depthwise_forward` in one op. `arrays` is (gradient of the result, x, weights, columns).

    Returns the first result of `after`, the gradient of the weights, and the other results summed up per channel,
    (1, C, 1, 1) each.
    """
    return _backward(compute, arrays, before, after, window)
