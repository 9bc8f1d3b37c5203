"""Trees of tensors, as in JAX: nested containers whose leaves are tensors, numbers or anything else.

Lists, tuples, named tuples, dicts, `OrderedDict`, `defaultdict` and dataclasses are containers, and so are instances of classes
that `register_pytree_node`, `register_pytree_node_class` or `register_dataclass` were called with. None is a container without
leaves. Everything else is a leaf. `grad`, `vjp`, `vmap`, `scan`, `wf.function` and the other transforms take and return such
trees. The functions also exist as `wf.tree_map`, `wf.tree_flatten` …, and under `weft.utils.pytree`, PyTorch's place.

Dicts keep their order of insertion. A dataclass is put together again from its fields; its constructor runs only if it has a
`__post_init__`. A field that is no child, such as a name, is marked `field(metadata={"static": True})`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .autograd import tree as _tree
from .errors import describe

__all__ = [
    "TreeDef", "all", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path", "reduce",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys", "structure",
    "transpose", "unflatten",
]  # fmt: skip


class TreeDef:
    """The structure of a tree, without its leaves; equal and hashable like a value.

    >>> wf.tree_structure({"w": 1, "b": (2, None)})
    TreeDef({'w': *, 'b': (*, None)})
    """

    __slots__ = ("_structure",)

    def __init__(self, structure: Any) -> None:
        self._structure = structure

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return _tree.count_leaves(self._structure)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """A tree of this structure with the given leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(f"tree_unflatten: expected {self.num_leaves} leaves for {self}. Got {len(given)}.")
        return _tree.unflatten(self._structure, given)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` at the places of the leaves of this structure."""
        return _tree.leaves_like(self._structure, tree, "flatten_up_to", "tree", exact=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDef) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    def __repr__(self) -> str:
        return f"TreeDef({_tree.structure_text(self._structure)})"


IsLeaf = Callable[[Any], Any] | None


def _check_callable(name: str, what: str, f: Any) -> None:
    if not callable(f):
        raise TypeError(f"{name}: {what} must be a function. Got {describe(f)}.")


def _flatten(name: str, tree: Any, is_leaf: IsLeaf) -> tuple[list[Any], Any]:
    if is_leaf is not None:
        _check_callable(name, "is_leaf", is_leaf)
    return _tree.flatten(tree, is_leaf)


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """The leaves of `tree` in order, and its structure.

    Args:
        tree: any value.
        is_leaf: says for a container whether it is taken as a leaf.

    >>> leaves, treedef = wf.tree_flatten({"w": 1, "b": (2, 3)})
    >>> leaves, treedef
    ([1, 2, 3], TreeDef({'w': *, 'b': (*, *)}))
    """
    found, structure = _flatten("tree_flatten", tree, is_leaf)
    return found, TreeDef(structure)


def unflatten(treedef: Any, leaves: Any) -> Any:
    """The inverse of `flatten`. The two arguments may come in either order, as in JAX or as in PyTorch.

    >>> leaves, treedef = wf.tree_flatten({"w": 1, "b": (2, 3)})
    >>> wf.tree_unflatten(treedef, [v * 10 for v in leaves])
    {'w': 10, 'b': (20, 30)}
    """
    if isinstance(leaves, TreeDef) and not isinstance(treedef, TreeDef):
        treedef, leaves = leaves, treedef
    if not isinstance(treedef, TreeDef):
        raise TypeError(f"tree_unflatten: expected a TreeDef of `tree_flatten`. Got {type(treedef).__name__}.")
    return treedef.unflatten(leaves)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `tree` in order.

    >>> wf.tree_leaves({"w": 1, "b": (2, None)})
    [1, 2]
    """
    return _flatten("tree_leaves", tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure of `tree`.

    >>> wf.tree_structure([1, 2]) == wf.tree_structure([3, 4])
    True
    """
    return TreeDef(_flatten("tree_structure", tree, is_leaf)[1])


def map(f: Any, tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree like `tree` whose leaves are `f` of its leaves.

    Args:
        f: a function of one leaf, or of one leaf per tree.
        tree: the tree that decides on the structure.
        rest: more trees of the same structure; they may hold containers where `tree` has leaves, which `f` gets whole.
        is_leaf: as for `tree_flatten`.

    Raises:
        ValueError: another tree has another structure; the message names the path.

    >>> params, grads = {"w": 1.0, "b": [2.0]}, {"w": 10.0, "b": [20.0]}
    >>> wf.tree_map(lambda p, g: p - 0.1 * g, params, grads)
    {'w': 0.0, 'b': [0.0]}
    """
    if not callable(f) and callable(tree):
        raise TypeError("tree_map: the function comes first. Write `wf.tree_map(f, tree)`.")
    _check_callable("tree_map", "f", f)
    found, shape = _flatten("tree_map", tree, is_leaf)
    others = [_tree.leaves_like(shape, t, "tree_map", f"tree {i}", exact=False) for i, t in enumerate(rest, 2)]
    return _tree.unflatten(shape, [f(*row) for row in zip(found, *others, strict=True)])


def flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[str, Any]], TreeDef]:
    """The leaves of `tree`, each after its path as Python text, and the structure.

    >>> wf.tree.flatten_with_path({"layer1": [1, 2]})[0]
    [('["layer1"][0]', 1), ('["layer1"][1]', 2)]
    """
    found, shape = _flatten("tree.flatten_with_path", tree, is_leaf)
    return list(zip(_tree.paths(shape), found, strict=True)), TreeDef(shape)


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[str, Any]]:
    """The leaves of `tree`, each after its path as Python text.

    >>> wf.tree.leaves_with_path((1, {"b": 2}))
    [('[0]', 1), ('[1]["b"]', 2)]
    """
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """`map` for a function whose first argument is the path of the leaf, as Python text.

    >>> wf.tree.map_with_path(lambda path, v: f"{path}={v}", {"a": 1})
    {'a': '["a"]=1'}
    """
    _check_callable("tree.map_with_path", "f", f)
    names = iter(_tree.paths(_flatten("tree.map_with_path", tree, is_leaf)[1]))
    return map(lambda *row: f(next(names), *row), tree, *rest, is_leaf=is_leaf)


_NOTHING: Any = object()


def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING, is_leaf: IsLeaf = None) -> Any:
    """`function(… function(function(initializer, first leaf), second leaf) …)`.

    >>> wf.tree_reduce(lambda a, b: a + b, {"w": 1, "b": (2, 3)})
    6
    """
    _check_callable("tree_reduce", "function", function)
    found = _flatten("tree_reduce", tree, is_leaf)[0]
    if initializer is _NOTHING and not found:
        raise TypeError("tree_reduce: the tree has no leaves, and no initializer was given.")
    return (
        functools.reduce(function, found) if initializer is _NOTHING else functools.reduce(function, found, initializer)
    )


def all(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true.

    >>> wf.tree.all({"a": True, "b": [1, 0]})
    False
    """
    return functools.reduce(operator.and_, [bool(v) for v in leaves(tree, is_leaf)], True)


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef, tree: Any) -> Any:
    """A tree of the structure `outer` whose leaves have the structure `inner`, turned inside out.

    >>> outer, inner = wf.tree_structure([0, 0]), wf.tree_structure({"a": 0, "b": 0})
    >>> wf.tree.transpose(outer, inner, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    for name, given in (("outer_treedef", outer_treedef), ("inner_treedef", inner_treedef)):
        if not isinstance(given, TreeDef):
            raise TypeError(f"tree_transpose: {name} must be a TreeDef of `tree_structure`. Got {describe(given)}.")
    rows = [inner_treedef.flatten_up_to(part) for part in outer_treedef.flatten_up_to(tree)]
    return inner_treedef.unflatten([outer_treedef.unflatten(list(column)) for column in zip(*rows, strict=True)])


# Classes of the user ----------------------------------------------------------------------------------------------------


def register_pytree_node(
    nodetype: type, flatten_func: Callable[[Any], tuple[Any, Any]], unflatten_func: Callable[[Any, Any], Any]
) -> None:
    """Let instances of a class be containers, in JAX's way.

    Args:
        nodetype: the class; not its subclasses.
        flatten_func: an instance → (children, the rest: hashable, compared with `==`).
        unflatten_func: (the rest, children) → an instance. Children may be any values, so it should check nothing.

    >>> class Point:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> wf.register_pytree_node(Point, lambda p: ((p.x, p.y), None), lambda _, children: Point(*children))
    >>> wf.tree_leaves([Point(1, 2), 3])
    [1, 2, 3]
    """
    _tree.check_new(nodetype)
    _check_callable("register_pytree_node", "flatten_func", flatten_func)
    _check_callable("register_pytree_node", "unflatten_func", unflatten_func)
    _tree.register(nodetype, _kind(flatten_func, unflatten_func))


def _kind(flatten_func: Callable[[Any], Any], unflatten_func: Callable[[Any, Any], Any]) -> _tree.Kind:
    def split(tree: Any) -> tuple[Any, list[Any]]:
        children, rest = flatten_func(tree)
        try:
            hash(rest)
        except TypeError:
            raise TypeError(
                f"tree_flatten: what {type(tree).__name__} returns beside its children must be hashable, because it is compared. "
                f"Got {type(rest).__name__}; return a tuple."
            ) from None
        return rest, list(children)

    return _tree.Kind(split, lambda cls, rest, items: unflatten_func(rest, tuple(items)), _tree._numbered)


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Any, Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Any, Any]] | None = None,
) -> None:
    """`register_pytree_node` for a class that names its children, so that messages name them too.

    Args:
        nodetype: the class.
        flatten_with_keys: an instance → (pairs of a key and a child, the rest). A string key is an attribute, as `.x`.
        unflatten_func: (the rest, children) → an instance.
        flatten_func: not needed, because the keys are taken from `flatten_with_keys`.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> wf.tree.register_pytree_with_keys(
    ...     Pair, lambda p: ((("a", p.a), ("b", p.b)), None), lambda _, children: Pair(*children)
    ... )
    >>> wf.tree.leaves_with_path(Pair(1, 2))
    [('.a', 1), ('.b', 2)]
    """

    def split(tree: Any) -> tuple[Any, list[Any]]:
        pairs, rest = flatten_with_keys(tree)
        pairs = list(pairs)
        return (tuple([_key_text(k) for k, _ in pairs]), rest), [child for _, child in pairs]

    _tree.register(
        nodetype,
        _tree.Kind(
            split, lambda cls, aux, items: unflatten_func(aux[1], tuple(items)), lambda cls, aux, count: list(aux[0])
        ),
    )


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f'["{key}"]'
    return f"[{key!r}]" if isinstance(key, int) else str(key)


def register_pytree_node_class(cls: Any) -> Any:
    """Decorator: let instances of a class be containers by its methods `tree_flatten` and `tree_unflatten`.

    >>> @wf.register_pytree_node_class
    ... class Line:
    ...     def __init__(self, start, end):
    ...         self.start, self.end = start, end
    ...     def tree_flatten(self):
    ...         return (self.start, self.end), None
    ...     @classmethod
    ...     def tree_unflatten(cls, rest, children):
    ...         return cls(*children)
    >>> wf.tree_map(lambda v: -v, Line(1, 2)).end
    -2
    """
    if not isinstance(cls, type) or not hasattr(cls, "tree_flatten") or not hasattr(cls, "tree_unflatten"):
        raise TypeError(
            "register_pytree_node_class: expected a class with the methods tree_flatten(self) and tree_unflatten(cls, rest, "
            f"children). Got {describe(cls)}."
        )
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_dataclass(
    nodetype: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None
) -> Any:
    """Say which fields of a dataclass are children and which belong to the structure; returns the class.

    Without this every field is a child, except those marked `field(metadata={"static": True})`.

    Args:
        nodetype: the dataclass.
        data_fields: the names of the children.
        meta_fields: the names of the fields that are compared, such as numbers that decide on shapes; hashable.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Layer:
    ...     w: object
    ...     name: str
    >>> _ = wf.tree.register_dataclass(Layer, ["w"], ["name"])
    >>> wf.tree_leaves(Layer(1.0, "first"))
    [1.0]
    """
    _tree.register(nodetype, _tree.dataclass_kind(nodetype, data_fields, meta_fields))
    return nodetype
