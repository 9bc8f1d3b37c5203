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
from ...ops.internal import depthwise as ops
from ..flow import Flow, rebuild
from ..lowering.rules import depthwise as rules
from .duplicate import light

MOST_STEPS, MOST_COLUMNS = 16, 8


def depthwise_blocks(flow: Flow) -> Flow:
    """Fuse depthwise convolutions with their neighbours where the native kernels apply."""
    found = [n for n in flow.nodes if n.op.name == "convolution" and _suits(n)]
    if not found:
        return flow
    plans: dict[Node, _Plan] = {}  # by each node that is replaced
    finder = _Finder(flow)
    for node in found:
        for plan in finder.plans(node):
            if not any(n in plans for n in plan.replaces):  # convolutions that share a weight may share a gradient
                plans.update(dict.fromkeys(plan.replaces, plan))
    place: dict[Value, Value] = {}  # old -> new

    def placed(new: Flow, value: Value) -> Value:
        if value not in place and value.node.op is CONSTANT:
            return new.constant(value.node.attrs[0])
        return place[value]

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if not place:
            place.update(zip(flow.inputs, new.inputs, strict=True))
        plan = plans.get(node)
        if plan is None:
            made: Any = new.again(node, args)
        else:
            if plan.made is None:
                inputs = [placed(new, v) for v in plan.inputs]
                plan.made = new.add(plan.op, inputs, plan.attrs, plan.specs).outputs
            made = [plan.made[i] for i in plan.replaces[node]]
        place.update(zip(node.outputs, made, strict=True))
        return made

    return rebuild(rebuild(flow, rule))  # the second rebuild removes dead code


def _suits(node: Node) -> bool:
    x, w, bias = node.inputs
    y = node.outputs[0]
    return (
        bias is None
        and len(x.shape) == 4
        and x.dtype == w.dtype == np.float32
        and 0 not in (*x.shape, *y.shape)
        and rules.suits_blocks(x.shape, y.shape, w.shape[2:], node.attrs)
    )


@dataclass
class _Plan:
    """A fused op for several nodes: `replaces` maps the results of nodes to its results."""

    op: Any
    inputs: list[Value]
    attrs: tuple[Any, ...]
    specs: list[Value]
    replaces: dict[Node, list[int]]
    made: tuple[Value, ...] | None = None


@dataclass
class _Builder:
    """Expresses values as steps on `images` of the same shape and on per-channel operands, which it collects."""

    images: list[Value]
    columns: list[Value]
    steps: list[tuple[str, tuple[int | float, ...]]] = field(default_factory=list)
    known: dict[Value, int] = field(default_factory=dict)

    def operand(self, value: Value) -> int | float | None:
        """The value as an operand of a step, or None (without side effects) if it cannot be one."""
        before = len(self.steps), len(self.columns), dict(self.known)
        found = self._operand(value, MOST_STEPS)
        if found is None:
            del self.steps[before[0] :], self.columns[before[1] :]
            self.known = before[2]
        return found

    def _operand(self, value: Value, depth: int) -> int | float | None:
        if value in self.images:
            return self.images.index(value)
        if value.node.op is CONSTANT and value.size == 1:
            return float(value.node.attrs[0].item())
        shape = tuple(self.images[0].shape)
        if tuple(value.shape) == (1, shape[1], 1, 1) and value.dtype == np.float32:
            if value not in self.columns:
                self.columns.append(value)
            return len(self.images) + self.columns.index(value)
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
        self.steps.append((value.node.op.name, tuple(operands)))
        self.known[value] = ~(len(self.steps) - 1)
        return self.known[value]

    @property
    def small(self) -> bool:
        return len(self.steps) <= MOST_STEPS and len(self.columns) <= MOST_COLUMNS


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

    def plans(self, node: Node) -> list[_Plan]:
        h = node.inputs[0]
        weight, image = self._gradients(node)
        others = [n for n in self.readers[h] if n is not node and n is not weight]
        stored = bool(others) or h in self.outputs  # stored for other readers anyway, so it can be read
        for x in dict.fromkeys((h if stored else _source(h), h)):
            before = _Builder([x], [])
            if before.operand(h) is None or not before.small:
                continue
            backward = None if weight is None or image is None else self._backward(weight, image, x, before)
            if weight is None or backward is not None or x is h:
                return [plan for plan in (self._forward(node, x, before), backward) if plan is not None]
        return []

    def _gradients(self, node: Node) -> tuple[Node | None, Node | None]:
        """The gradients of the convolution's weight and image, from one gradient of its result."""
        h, w = node.inputs[:2]
        weights = [n for n in self.readers[h] if n.op.name == "convolution_backward_weight" and n.inputs[0] is h]
        weights = [n for n in weights if n.attrs[1:] == node.attrs and n.attrs[0] == tuple(w.shape[2:])]
        if len(weights) != 1:
            return None, None
        g = weights[0].inputs[1]
        images = [n for n in self.readers[g] if n.op.name == "convolution_backward_input" and n.inputs[:2] == (g, w)]
        images = [n for n in images if n.attrs[1:] == node.attrs and n.outputs[0].shape == h.shape]
        return weights[0], images[0] if len(images) == 1 else None

    def _forward(self, node: Node, x: Value, before: _Builder) -> _Plan | None:
        y = node.outputs[0]
        moments = next((n for n in self.readers.get(y, ()) if n.op.name == "channel_moments"), None)
        if not before.steps and moments is None:
            return None
        attrs = (tuple(before.steps), *node.attrs[:3], moments is not None)
        specs = [y] if moments is None else [y, *moments.outputs]
        replaces = {node: [0]} if moments is None else {node: [0], moments: [1, 2]}
        return _Plan(ops.depthwise_forward.op, [x, node.inputs[1], *before.columns], attrs, specs, replaces)  # type: ignore[attr-defined]

    def _backward(self, weight: Node, image: Node, x: Value, before: _Builder) -> _Plan | None:
        first = min(weight.order, image.order)
        after = _Builder([image.outputs[0], x], list(before.columns))
        kept = self._followed(image.outputs[0], after)
        sums: dict[Node, int] = {}
        for reader in self.readers.get(kept, ()):
            for total in [reader, *self.readers.get(reader.outputs[0], ())]:
                if total.op.name == "reduce_sum" and _over_images(total) and len(sums) < rules.MAX_SUMS:
                    which = after.operand(total.inputs[0])
                    if isinstance(which, int):
                        sums[total] = which
        inputs = [weight.inputs[1], x, image.inputs[1], *after.columns]
        if not after.small or any(v.node.order >= first for v in inputs):
            return None
        results = (after.operand(kept), *sums.values())
        attrs = (tuple(before.steps), tuple(after.steps), results, *weight.attrs[1:4])
        replaces: dict[Node, list[int]] = {image: [0], kept.node: [0], weight: [1]}
        replaces |= {n: [2 + k] for k, n in enumerate(sums)}
        specs = [kept, weight.outputs[0], *[n.outputs[0] for n in sums]]
        return _Plan(ops.depthwise_backward.op, inputs, attrs, specs, replaces)  # type: ignore[attr-defined]

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
