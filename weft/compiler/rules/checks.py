"""Checks that run natively: a flag is computed by a kernel and looked at before anything is written."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Node
from ..primitives import lowers


@lowers("checked_indices")
def lower_checked_indices(lowering: Any, node: Node) -> bool:
    """The indices themselves; a step before their use fails if one is out of range."""
    layout = lowering.layout_of(node.inputs[0])
    low, high, ignored, name = node.attrs
    lowering.check_indices(layout, low, high, node, ignored, f"{name} out of range: expected {low} to {high - 1}")
    lowering.layouts[node.outputs[0]] = layout
    return True
