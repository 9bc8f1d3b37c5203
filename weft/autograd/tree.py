"""Nested lists, tuples and dicts of tensors as flat lists, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of `tree` (everything that is not a list, tuple or dict) and a hashable description of its structure."""
    leaves: list[Any] = []

    def visit(t: Any) -> Any:
        cls = t.__class__
        if cls is Tensor or not isinstance(t, (list, tuple, dict)):
            leaves.append(t)
            return None
        if isinstance(t, dict):
            return (cls, tuple(t), tuple([visit(v) for v in t.values()]))
        return (cls, None, tuple([visit(v) for v in t]))

    return leaves, visit(tree)


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """The inverse of `flatten`."""
    rest = iter(leaves)

    def build(s: Any) -> Any:
        if s is None:
            return next(rest)
        cls, keys, children = s
        items = [build(c) for c in children]
        if keys is not None:
            return cls(zip(keys, items, strict=True)) if cls is dict else _mapping(cls, keys, items)
        return cls(*items) if hasattr(cls, "_fields") else cls(items)

    return build(structure)


def _mapping(cls: Any, keys: Any, items: list[Any]) -> Any:
    made = cls()
    for k, v in zip(keys, items, strict=True):
        made[k] = v
    return made


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`fn` applied to every leaf."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [fn(v) for v in leaves])
