"""Trees of tensors under PyTorch's names (`torch.utils._pytree`); see `weft.tree`.

Unlike in PyTorch, None is a container without leaves, so `tree_map` does not call the function with it; pass
`is_leaf=lambda x: x is None` where it should.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tree as _tree
from ..tree import TreeDef as TreeDef
from ..tree import all as tree_all
from ..tree import flatten as tree_flatten
from ..tree import flatten_with_path as tree_flatten_with_path
from ..tree import leaves as tree_leaves
from ..tree import map as tree_map
from ..tree import map_with_path as tree_map_with_path
from ..tree import reduce as tree_reduce
from ..tree import register_dataclass as register_dataclass
from ..tree import structure as tree_structure
from ..tree import transpose as tree_transpose
from ..tree import unflatten as tree_unflatten

TreeSpec = TreeDef

__all__ = [
    "TreeDef", "TreeSpec", "register_dataclass", "register_pytree_node", "tree_all", "tree_flatten", "tree_flatten_with_path",
    "tree_leaves", "tree_map", "tree_map_only", "tree_map_with_path", "tree_reduce", "tree_structure", "tree_transpose",
    "tree_unflatten",
]  # fmt: skip


class _Context:
    """What PyTorch's flatten functions return beside the children, often a list: compared, and hashed by its type."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and self.value == other.value

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], tuple[Any, Any]], unflatten_fn: Callable[[Any, Any], Any], **options: Any
) -> None:
    """Let instances of a class be containers, in PyTorch's way: `unflatten_fn(children, context)`.

    `wf.register_pytree_node` has JAX's order of arguments.

    Args:
        cls: the class.
        flatten_fn: an instance → (children, context).
        unflatten_fn: (children, context) → an instance.
        options: PyTorch's names for serialisation; accepted and ignored.

    >>> class Box:
    ...     def __init__(self, items):
    ...         self.items = items
    >>> wf.utils.pytree.register_pytree_node(Box, lambda b: (b.items, None), lambda items, _: Box(list(items)))
    >>> wf.utils.pytree.tree_leaves(Box([1, 2]))
    [1, 2]
    """

    def flatten(value: Any) -> tuple[Any, Any]:
        children, context = flatten_fn(value)
        return children, _Context(context)

    _tree.register_pytree_node(cls, flatten, lambda context, children: unflatten_fn(list(children), context.value))


def tree_map_only(
    types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], Any] | None = None
) -> Any:
    """`tree_map` of the leaves of the given types; the others stay.

    >>> wf.utils.pytree.tree_map_only(int, lambda v: v + 1, {"a": 1, "b": "text"})
    {'a': 2, 'b': 'text'}
    """
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, types) else leaf, tree, is_leaf=is_leaf)
