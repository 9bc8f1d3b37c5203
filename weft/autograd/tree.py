"""Nested lists, tuples and dicts of tensors as flat lists, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..tensor import Tensor


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of `tree` (everything that is not a list, tuple or dict) and a hashable description of its structure."""
    leaves: list[Any] = []
    return leaves, _visit(tree, leaves)


# `_visit` and `_build` are no closures: a recursive closure refers to itself, and that cycle would keep every tensor of
# the tree alive until the garbage collector comes.


def _visit(tree: Any, leaves: list[Any]) -> Any:
    cls = tree.__class__
    if cls is Tensor or not isinstance(tree, (list, tuple, dict)):
        leaves.append(tree)
        return None
    if isinstance(tree, dict):
        return (cls, tuple(tree), tuple([_visit(v, leaves) for v in tree.values()]))
    return (cls, None, tuple([_visit(v, leaves) for v in tree]))


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """The inverse of `flatten`."""
    return _build(structure, iter(leaves))


def _build(structure: Any, rest: Iterator[Any]) -> Any:
    if structure is None:
        return next(rest)
    cls, keys, children = structure
    items = [_build(c, rest) for c in children]
    if keys is not None:
        return cls(zip(keys, items, strict=True)) if cls is dict else _mapping(cls, keys, items)
    return cls(*items) if hasattr(cls, "_fields") else cls(items)


def _mapping(cls: Any, keys: Any, items: list[Any]) -> Any:
    made = cls()
    for k, v in zip(keys, items, strict=True):
        made[k] = v
    return made


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`fn` applied to every leaf."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [fn(v) for v in leaves])
