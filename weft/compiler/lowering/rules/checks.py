"""Native run-time checks: a kernel computes a flag, which is tested before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....graph.graph import Node
from ....ops.array.elementwise import NEGATIVE_POWER
from ....ops.core import scalar as s
from ...program.layout import Layout
from ..registry import lowers

if TYPE_CHECKING:
    from ..lower import Lowering


@lowers("checked_indices")
def lower_checked_indices(lowering: Lowering, node: Node) -> bool:
    """The indices themselves; a step before their use fails if one is out of range."""
    layout = lowering.layout_of(node.inputs[0])
    low, high, ignored, name = node.attrs
    message = f"{name} out of range: expected {low} to {high - 1}"
    lowering.check_indices(layout, low, high, node, ignored, message, names_op=": " in name)
    lowering.layouts[node.outputs[0]] = layout
    return True


def _passed(lowering: Lowering) -> Layout:
    """The result of a check that did not fail: true."""
    true = np.ones((), np.bool_)
    return Layout(lowering.new_storage("constant", true.nbytes, array=true), true.dtype, (), ())


@lowers("check_true")
def lower_check_true(lowering: Lowering, node: Node) -> bool:
    return _check_condition(lowering, node, names_op=False)


@lowers("check_values")
def lower_check_values(lowering: Lowering, node: Node) -> bool:
    return _check_condition(lowering, node, names_op=True)


def _check_condition(lowering: Lowering, node: Node, names_op: bool) -> bool:
    """A step that fails unless every element of the condition is true."""
    layout = lowering.layout_of(node.inputs[0])
    lowering.layouts[node.outputs[0]] = _passed(lowering)
    lowering.check(layout, lambda value: s.bitwise_not(s.cast(value, np.bool_)), node, node.attrs[0], names_op)
    return True


@lowers("check_exponents")
def lower_check_exponents(lowering: Lowering, node: Node) -> bool:
    """A step that fails if an exponent is negative."""
    layout = lowering.layout_of(node.inputs[0])
    lowering.layouts[node.outputs[0]] = _passed(lowering)
    lowering.check(layout, lambda value: s.lt(value, 0), node, NEGATIVE_POWER)
    return True
