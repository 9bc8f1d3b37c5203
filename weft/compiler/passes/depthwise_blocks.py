"""Fuses the neighbouring normalisation and activation into a depthwise convolution, which is bound by memory bandwidth.

%h = relu6(add(multiply(subtract(%x, %m), %s), %b)); %y = convolution(%h, %w); %mean, %var = channel_moments(%y)   before
%y, %mean, %var = depthwise_forward(%x, %w, %m, %s, %b, before=...)                                                after

%dw = convolution_backward_weight(%h, %g); %dh = convolution_backward_input(%g, %w); %a = where(%mask, %dh, 0)
%t = reduce_sum(%a); %p = reduce_sum(multiply(%a, subtract(%x, %m)))
%a, %dw, %t, %p = depthwise_backward(%g, %x, %w, %m, %s, %b, before=..., after=...)

Forward, the normalised and activated input is computed from each element as it is read and never stored; the moments of
the result are accumulated while it is written. The backward op computes both gradients in one read, with the activation's
gradient and the sums that the normalisation's gradient needs. Image reads and writes per block drop from eight to five
(forward) and from thirteen to nine (backward).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...graph.graph import CONSTANT, Node, Value
from ...ops.core.reductions import SUM
from ...ops.core.registry import get
from ...ops.internal import depthwise as ops
from ...ops.internal.epilogue import Apply, Constant, Epilogue, Input, Operand, Result
from ..flow import Flow, rebuild
from ..lowering.rules import depthwise as rules
from ..target import Target
from .duplicate import light

MAX_STEPS, MAX_COLUMNS = 16, 8
_CONVOLUTION, _MOMENTS = get("convolution"), get("channel_moments")
_WEIGHT_GRADIENT, _IMAGE_GRADIENT = get("convolution_backward_weight"), get("convolution_backward_input")


def depthwise_blocks(flow: Flow, target: Target) -> Flow:
    """Fuse depthwise convolutions with their neighbours where the native kernels apply."""
    found = [n for n in flow.nodes if n.op is _CONVOLUTION and _suits(n, target)]
    if not found:
        return flow
    replacements: dict[Node, _Replacement] = {}  # by each node that is replaced
    finder = _Finder(flow)
    for node in found:
        for fused in finder.replacements(node):
            if not any(
                n in replacements for n in fused.replaces
            ):  # convolutions that share a weight may share a gradient
                replacements.update(dict.fromkeys(fused.replaces, fused))
    place: dict[Value, Value] = {}  # old -> new

    def placed(new: Flow, value: Value) -> Value:
        if value not in place and value.node.op is CONSTANT:
            return new.constant(value.node.attrs[0])
        return place[value]

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if not place:
            place.update(zip(flow.inputs, new.inputs, strict=True))
        fused = replacements.get(node)
        if fused is None:
            made: Any = new.again(node, args)
        else:
            if fused.made is None:
                inputs = [placed(new, v) for v in fused.inputs]
                fused.made = new.add(fused.op, inputs, fused.attrs, fused.specs).outputs
            made = [fused.made[i] for i in fused.replaces[node]]
        place.update(zip(node.outputs, made, strict=True))
        return made

    return rebuild(rebuild(flow, rule))  # the second rebuild removes dead code


def _suits(node: Node, target: Target) -> bool:
    x, w, bias = node.inputs
    y = node.outputs[0]
    window, groups = node.attrs
    return (
        bias is None
        and len(x.shape) == 4
        and x.dtype == w.dtype == np.float32
        and 0 not in (*x.shape, *y.shape)
        and rules.suits_blocks(x.shape, y.shape, window, groups, target)
    )


@dataclass
class _Replacement:
    """A fused op for several nodes: `replaces` maps the results of nodes to its results."""

    op: Any
    inputs: list[Value]
    attrs: tuple[Any, ...]
    specs: list[Value]
    replaces: dict[Node, list[int]]
    made: tuple[Value, ...] | None = None


@dataclass
class _Builder:
    """Expresses values as steps of an epilogue on `images` of the same shape and per-channel operands, which it collects."""

    images: list[Value]
    columns: list[Value]
    steps: list[Apply] = field(default_factory=list)
    known: dict[Value, Result] = field(default_factory=dict)

    def operand(self, value: Value) -> Operand | None:
        """The value as an operand of a step, or None (without side effects) if it cannot be one."""
        before = len(self.steps), len(self.columns), dict(self.known)
        found = self._operand(value, MAX_STEPS)
        if found is None:
            del self.steps[before[0] :], self.columns[before[1] :]
            self.known = before[2]
        return found

    def _operand(self, value: Value, depth: int) -> Operand | None:
        if value in self.images:
            return Input(self.images.index(value))
        if value.node.op is CONSTANT and value.size == 1:
            return Constant(float(value.node.attrs[0].item()))
        shape = tuple(self.images[0].shape)
        if tuple(value.shape) == (1, shape[1], 1, 1) and value.dtype == np.float32:
            if value not in self.columns:
                self.columns.append(value)
            return Input(len(self.images) + self.columns.index(value), per_channel=True)
        if value in self.known:
            return self.known[value]
        if not depth or not _is_step(value, shape):
            return None
        operands = []
        for v in value.node.inputs:
            found = self._operand(v, depth - 1)
            if found is None:
                return None
            operands.append(found)
        self.known[value] = Result(len(self.steps))
        self.steps.append(Apply(value.node.op.name, tuple(operands)))
        return self.known[value]

    def epilogue(self, *results: Operand) -> Epilogue:
        return Epilogue(tuple(self.steps), results)

    @property
    def small(self) -> bool:
        return len(self.steps) <= MAX_STEPS and len(self.columns) <= MAX_COLUMNS


def _is_step(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether a value is computed by a cheap elementwise op."""
    node = value.node
    return (
        tuple(value.shape) == shape
        and node.op.expression is not None
        and not node.attrs
        and len(node.outputs) == 1
        and value.dtype in (np.float32, np.bool_)
        and all(isinstance(v, Value) and v.dtype in (np.float32, np.bool_) for v in node.inputs)
        and light(node)
    )


class _Finder:
    """Finds the nodes that can be fused with a convolution."""

    def __init__(self, flow: Flow) -> None:
        self.readers = flow.readers()
        self.outputs = set(flow.outputs)

    def replacements(self, node: Node) -> list[_Replacement]:
        h = node.inputs[0]
        weight, image = self._gradients(node)
        others = [n for n in self.readers[h] if n is not node and n is not weight]
        stored = bool(others) or h in self.outputs  # stored for other readers anyway, so it can be read
        for x in dict.fromkeys((h if stored else _source(h), h)):
            builder = _Builder([x], [])
            result = builder.operand(h)
            if result is None or not builder.small:
                continue
            before, columns = builder.epilogue(result), builder.columns
            backward = None
            if weight is not None and image is not None:
                backward = self._backward(weight, image, x, before, columns)
            if weight is None or backward is not None or x is h:
                return [p for p in (self._forward(node, x, before, columns), backward) if p is not None]
        return []

    def _gradients(self, node: Node) -> tuple[Node | None, Node | None]:
        """The gradients of the convolution's weight and image, from one gradient of its result."""
        h, w = node.inputs[:2]
        weights = [n for n in self.readers[h] if n.op is _WEIGHT_GRADIENT and n.inputs[0] is h]
        weights = [n for n in weights if n.attrs == node.attrs]
        if len(weights) != 1:
            return None, None
        g = weights[0].inputs[1]
        images = [n for n in self.readers[g] if n.op is _IMAGE_GRADIENT and n.inputs[:2] == (g, w)]
        images = [n for n in images if n.attrs[1:] == node.attrs and n.outputs[0].shape == h.shape]
        return weights[0], images[0] if len(images) == 1 else None

    def _forward(self, node: Node, x: Value, before: Epilogue, columns: list[Value]) -> _Replacement | None:
        y = node.outputs[0]
        moments = next((n for n in self.readers.get(y, ()) if n.op is _MOMENTS), None)
        if not before.steps and moments is None:
            return None
        attrs = (before, node.attrs[0], moments is not None)
        specs = [y] if moments is None else [y, *moments.outputs]
        replaces = {node: [0]} if moments is None else {node: [0], moments: [1, 2]}
        return _Replacement(ops.depthwise_forward.op, [x, node.inputs[1], *columns], attrs, specs, replaces)  # type: ignore[attr-defined]

    def _backward(
        self, weight: Node, image: Node, x: Value, before: Epilogue, columns: list[Value]
    ) -> _Replacement | None:
        first = min(weight.order, image.order)
        after = _Builder([image.outputs[0], x], list(columns))
        kept = self._followed(image.outputs[0], after)
        sums: dict[Node, Operand] = {}
        for reader in self.readers.get(kept, ()):
            for total in [reader, *self.readers.get(reader.outputs[0], ())]:
                if total.op.reduction is SUM and _over_images(total) and len(sums) < rules.MAX_SUMS:
                    which = after.operand(total.inputs[0])
                    if which is not None and not isinstance(which, Constant):
                        sums[total] = which
        inputs = [weight.inputs[1], x, image.inputs[1], *after.columns]
        if not after.small or any(v.node.order >= first for v in inputs):
            return None
        first_result = after.operand(kept)
        assert first_result is not None
        attrs = (before, after.epilogue(first_result, *sums.values()), weight.attrs[0])
        replaces: dict[Node, list[int]] = {image: [0], kept.node: [0], weight: [1]}
        replaces |= {n: [2 + k] for k, n in enumerate(sums)}
        specs = [kept, weight.outputs[0], *[n.outputs[0] for n in sums]]
        return _Replacement(ops.depthwise_backward.op, inputs, attrs, specs, replaces)  # type: ignore[attr-defined]

    def _followed(self, value: Value, after: _Builder) -> Value:
        """The end of the chain of single-reader elementwise steps that starts at this value."""
        while value not in self.outputs and len(readers := self.readers.get(value, [])) == 1:
            following = readers[0].outputs[0]
            if following.dtype != np.float32 or after.operand(following) is None:
                break
            value = following
        return value


def _source(value: Value) -> Value:
    """The image that a value is computed from by elementwise steps, or the value itself."""
    shape = tuple(value.shape)
    found: dict[Value, None] = {}
    stack = [value]
    seen = set(stack)
    while stack:
        v = stack.pop()
        if not _is_step(v, shape):
            found[v] = None
            continue
        for operand in v.node.inputs:
            if tuple(operand.shape) == shape and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return next(iter(found)) if len(found) == 1 else value


def _over_images(node: Node) -> bool:
    axis, keepdims = node.attrs
    return keepdims and len(node.inputs[0].shape) == 4 and tuple(axis or ()) == ops.NON_CHANNEL_AXES
