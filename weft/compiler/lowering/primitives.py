"""Registry of lowering rules for ops that are not loop nests: matmul, convolution, pooling, normalisation.

A rule `rule(lowering, node) -> bool` adds the steps for a node, or returns False where it does not apply (dtype, size or
layout); the node then runs as a host call. Rules are keyed by op name with `@lowers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.graph import Node
from ..layout import Layout, row_major
from .lower import Step

if TYPE_CHECKING:
    from .lower import Lowering

_rules: dict[str, Callable[[Any, Node], bool]] = {}


def lowers(*names: str) -> Callable[[Callable[[Any, Node], bool]], Callable[[Any, Node], bool]]:
    """Register a rule for ops."""

    def add(rule: Callable[[Any, Node], bool]) -> Callable[[Any, Node], bool]:
        for name in names:
            _rules[name] = rule
        return rule

    return add


def lower_node(lowering: Lowering, node: Node) -> bool:
    """Lower a node natively; False if no rule applies."""
    from . import rules as rules  # registers them

    rule = _rules.get(node.op.name)
    return rule is not None and rule(lowering, node)


def has_rule(node: Node) -> bool:
    """Whether the op has a native lowering. Other ops run as a host call, or are control flow."""
    from . import rules as rules  # registers them

    return node.op.name in _rules


def desc(layout: Layout, shape: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None) -> Any:
    """oneDNN's description of a layout (or of the same memory with another shape)."""
    from ...backends.onednn.descriptors import MemoryDesc

    return MemoryDesc.strided(shape or layout.shape, layout.dtype, strides or layout.strides)


def add_primitive(lowering: Lowering, node: Node, primitive: Any, arguments: dict[int, Layout], label: str) -> None:
    """A step that executes a primitive or shares of one; scratch memory is planned like any other temporary."""
    from ...backends.onednn.capi import Arg
    from ...backends.onednn.shares import Shares, whole

    if not isinstance(primitive, Shares):
        primitive = whole(primitive)
    arguments = dict(arguments)
    if primitive.takes(Arg.SCRATCHPAD) and primitive.scratchpad_nbytes:
        arguments[int(Arg.SCRATCHPAD)] = lowering.temporary((primitive.scratchpad_nbytes,), np.dtype(np.uint8))
    written = {a.index for a in primitive.arguments if a.output}
    lowering.steps.append(
        Step(
            "primitive", label, [node],
            [x.storage for i, x in arguments.items() if i not in written or i == int(Arg.SCRATCHPAD)],
            [x.storage for i, x in arguments.items() if i in written],
            primitive=primitive, arguments=arguments,
        )
    )  # fmt: skip


def usable(*layouts: Layout) -> bool:
    """Whether oneDNN can read these layouts without a copy: float32, no overlap, no empty axis."""
    return all(
        x.dtype == np.float32
        and 0 not in x.shape
        and all(st > 0 or d == 1 for st, d in zip(x.strides, x.shape, strict=True))
        for x in layouts
    )


def dense(lowering: Lowering, layout: Layout, node: Node) -> Layout:
    """The layout itself if oneDNN can read it, else a copy."""
    return layout if usable(layout) else lowering.copy(layout, node)


def available() -> bool:
    from ...backends.onednn import library

    return library.available()


__all__ = ["add_primitive", "available", "dense", "desc", "has_rule", "lower_node", "lowers", "row_major", "usable"]
