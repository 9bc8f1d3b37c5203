"""Common subexpressions: equal computations are done once.

%a = exp(%x); %b = exp(%x); %c = add(%a, %b)      before
%a = exp(%x); %c = add(%a, %a)                    after
"""

from __future__ import annotations

from typing import Any

from ...graph.graph import Node, Value
from ..flow import Flow, rebuild


def merge(flow: Flow) -> Flow:
    """Give equal pure nodes one result."""
    seen: dict[Any, tuple[Value, ...]] = {}

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        if node.op.effects:
            return None
        try:
            key = (id(node.op), tuple([id(a) for a in args]), _exact(node.attrs))
            found = seen.get(key)
        except TypeError:  # an attribute that cannot be hashed
            return None
        if found is not None:
            return found
        made = new.again(node, args)
        seen[key] = made
        return made

    return rebuild(flow, rule)


def _exact(attr: Any) -> Any:
    """An attribute as a key: 0.0, -0.0, 0 and False are equal in Python, but not the same attribute."""
    if isinstance(attr, tuple):
        return tuple([_exact(a) for a in attr])
    if isinstance(attr, (bool, int, float, complex)):
        return (attr.__class__, repr(attr))
    return attr
