"""Common subexpression elimination.

%a = exp(%x); %b = exp(%x); %c = add(%a, %b)      before
%a = exp(%x); %c = add(%a, %a)                    after
"""

from __future__ import annotations

from typing import Any

from ...graph.graph import CONSTANT, Node, Value
from ..flow import Flow, rebuild

MAX_COMPARED_BYTES = 1 << 14
"""Maximum bytes of a constant that is compared by value."""


def merge(flow: Flow) -> Flow:
    """Give equal nodes one result, if they are pure or only check: a check that has passed need not be repeated."""
    seen: dict[Any, tuple[Value, ...]] = {}

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.effects - {"check"}:
            return None
        try:
            key = (id(node.op), tuple([_operand(a) for a in args]), _exact(node.attrs))
            found = seen.get(key)
        except TypeError:  # an attribute that cannot be hashed
            return None
        if found is not None:
            return found
        made = new.again(node, args)
        seen[key] = made
        return made

    return rebuild(flow, rule)


def _operand(value: Any) -> Any:
    """An operand as a key: itself, or the contents of a small constant."""
    if isinstance(value, Value) and value.node.op is CONSTANT and value.nbytes <= MAX_COMPARED_BYTES:
        return (value.dtype, value.shape, value.node.attrs[0].tobytes())
    return id(value)


def _exact(attr: Any) -> Any:
    """An attribute as a key: 0.0, -0.0, 0 and False are equal in Python, but not the same attribute."""
    if isinstance(attr, tuple):
        return tuple([_exact(a) for a in attr])
    if isinstance(attr, (bool, int, float, complex)):
        return (attr.__class__, repr(attr))
    return attr
