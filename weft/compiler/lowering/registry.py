"""Registry of lowering rules for ops that are not loop nests: matmul, convolution, pooling, sorting.

A rule `rule(lowering, node) -> bool` adds the steps for a node, or returns False where it does not apply (dtype, size or
layout); the node then runs as a host call. Rules are keyed by op name with `@lowers`, or by a fact of the op's record; backends
add theirs (see `weft.backends.register_lowerings`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...graph.graph import Node
from ..fusion import is_loop

if TYPE_CHECKING:
    from .lower import Lowering

_rules: dict[str, Callable[[Any, Node], bool]] = {}
_by_fact: dict[str, Callable[[Any, Node], bool]] = {}
_any_strides: set[str] = set()


def lowers(
    *names: str, fact: str | None = None, any_strides: bool = False
) -> Callable[[Callable[[Any, Node], bool]], Callable[[Any, Node], bool]]:
    """Register a rule for ops.

    Args:
        names: the ops.
        fact: all other ops whose record has this fact.
        any_strides: the rule's steps read strided rows at full speed.
    """

    def add(rule: Callable[[Any, Node], bool]) -> Callable[[Any, Node], bool]:
        _rules.update(dict.fromkeys(names, rule))
        if fact is not None:
            _by_fact[fact] = rule
        if any_strides:
            _any_strides.update(names)
        return rule

    return add


def lower_node(lowering: Lowering, node: Node) -> bool:
    """Lower a node natively; False if no rule applies."""
    rule = _rule_of(node)
    return rule is not None and rule(lowering, node)


def has_rule(node: Node) -> bool:
    """Whether the op has a native lowering. Other ops run as a host call, or are control flow."""
    return _rule_of(node) is not None


def _rule_of(node: Node) -> Callable[[Any, Node], bool] | None:
    from . import rules as rules  # registers them

    found = _rules.get(node.op.name)
    if found is not None:
        return found
    return next((rule for fact, rule in _by_fact.items() if getattr(node.op, fact) is not None), None)


def reads_any_strides(node: Node) -> bool:
    """Whether the node reads strided rows at full speed: loop nests do, and rules that say so."""
    return is_loop(node) or node.op.name in _any_strides
