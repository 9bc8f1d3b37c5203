"""Nested values as flat lists of leaves, and back: the one mechanism behind `weft.tree` and every transform.

A *container* is a list, tuple, named tuple, dict, dataclass, None (which has no leaves) or an instance of a registered class;
everything else is a leaf. `flatten` gives the leaves and the *structure*, a hashable description: None for a leaf, else
(class, what rebuilds it beside its children, structures of the children). Two values can take each other's place in a
captured program or a loop exactly if their structures are equal.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..tensor import Tensor

C = TypeVar("C", bound=type)


class Kind(NamedTuple):
    """How the instances of a class are taken apart and put together."""

    split: Callable[[Any], tuple[Any, Sequence[Any]]]
    """an instance → (what rebuilds it beside its children: hashable, children)"""
    join: Callable[[Any, Any, list[Any]], Any]
    """(class, the same, children) → an instance"""
    steps: Callable[[Any, Any, int], list[str]]
    """(class, the same, number of children) → how each child is reached, as Python text: `["w"]`, `[0]`, `.w`"""


# The kinds of containers ------------------------------------------------------------------------------------------------


def _numbered(cls: Any, aux: Any, count: int) -> list[str]:
    return [f"[{i}]" for i in range(count)]


def _keyed(cls: Any, aux: Any, count: int) -> list[str]:
    return [_index(k) for k in aux]


def _index(key: Any) -> str:
    return f'["{key}"]' if isinstance(key, str) and '"' not in key else f"[{key!r}]"


def _make_mapping(cls: Any, keys: Any, items: list[Any]) -> Any:
    made = cls()
    for k, v in zip(keys, items, strict=True):
        made[k] = v
    return made


def _make_defaultdict(cls: Any, aux: Any, items: list[Any]) -> Any:
    return cls(aux.factory, zip(aux, items, strict=True))


class _DefaultKeys(tuple):
    """The keys of a defaultdict, with its factory."""

    factory: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DefaultKeys) and self.factory is other.factory and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((tuple(self), self.factory))


def _split_defaultdict(tree: Any) -> tuple[Any, Sequence[Any]]:
    keys = _DefaultKeys(tree)
    keys.factory = tree.default_factory
    return keys, tuple(tree.values())


_LIST = Kind(lambda t: (None, t), lambda cls, aux, items: cls(items), _numbered)
_TUPLE = Kind(lambda t: (None, t), lambda cls, aux, items: cls(items), _numbered)
_NAMED = Kind(
    lambda t: (None, t), lambda cls, aux, items: cls(*items), lambda cls, aux, count: [f".{n}" for n in cls._fields]
)
_DICT = Kind(
    lambda t: (tuple(t), tuple(t.values())), lambda cls, keys, items: dict(zip(keys, items, strict=True)), _keyed
)
_MAPPING = Kind(lambda t: (tuple(t), tuple(t.values())), _make_mapping, _keyed)
_DEFAULT = Kind(_split_defaultdict, _make_defaultdict, _keyed)
_NONE = Kind(lambda t: (None, ()), lambda cls, aux, items: None, _numbered)


def dataclass_kind(cls: Any, data: Sequence[str] | None = None, static: Sequence[str] | None = None) -> Kind:
    """The fields `data` of a dataclass are children; the fields `static` must be hashable and belong to the structure.

    By default the fields marked `field(metadata={"static": True})` are static. The constructor runs only where there is a
    `__post_init__`, which may derive attributes from the fields; without one, the fields are set.
    """
    fields = dataclasses.fields(cls)
    names = {f.name for f in fields}
    if static is None:
        static = [f.name for f in fields if f.metadata.get("static") and (data is None or f.name not in data)]
    if data is None:
        data = [f.name for f in fields if f.name not in static]
    for name in (*data, *static):
        if name not in names:
            raise ValueError(
                f"register_dataclass: {cls.__name__} has no field {name!r}. Its fields are {sorted(names)}."
            )
    children, kept = tuple(data), tuple(static)
    given = {f.name for f in fields if f.init}
    constructed = hasattr(cls, "__post_init__") and cls.__dataclass_params__.init and not _has_initvars(cls)

    def split(tree: Any) -> tuple[Any, Sequence[Any]]:
        return tuple([getattr(tree, n) for n in kept]), [getattr(tree, n) for n in children]

    def join(made_class: Any, aux: Any, items: list[Any]) -> Any:
        values = dict(zip((*kept, *children), (*aux, *items), strict=True))
        if constructed:
            made = made_class(**{n: v for n, v in values.items() if n in given})
            values = {n: v for n, v in values.items() if n not in given}
        else:
            made = object.__new__(made_class)
        for name, value in values.items():
            object.__setattr__(made, name, value)  # a frozen dataclass refuses `setattr`
        return made

    return Kind(split, join, lambda made_class, aux, count: [f".{n}" for n in children])


def _has_initvars(cls: Any) -> bool:
    every = cls.__dataclass_fields__.values()
    return any(getattr(f, "_field_type", None) is dataclasses._FIELD_INITVAR for f in every)  # type: ignore[attr-defined]


_known: dict[Any, Kind | None] = dict.fromkeys(
    (Tensor, np.ndarray, int, float, bool, complex, str, bytes)
)  # never forgotten; other classes are found once and then remembered as long as they live
_known.update({list: _LIST, tuple: _TUPLE, dict: _DICT, type(None): _NONE, defaultdict: _DEFAULT})
_found: weakref.WeakKeyDictionary[Any, Kind | None] = weakref.WeakKeyDictionary()
_registered: weakref.WeakKeyDictionary[Any, Kind] = weakref.WeakKeyDictionary()
_whole: weakref.WeakSet[Any] = weakref.WeakSet()
_MISSING: Any = object()


def kind_of(cls: Any) -> Kind | None:
    """How instances of `cls` are taken apart; None if they are leaves."""
    kind = _known.get(cls, _MISSING)
    if kind is not _MISSING:
        return kind
    kind = _found.get(cls, _MISSING)
    if kind is _MISSING:
        kind = _found[cls] = _resolve(cls)
    return kind


def _resolve(cls: Any) -> Kind | None:
    registered = _registered.get(cls)
    if registered is not None:
        return registered
    if issubclass(cls, tuple(_whole)) or issubclass(cls, Tensor):
        return None
    if issubclass(cls, tuple):
        return _NAMED if hasattr(cls, "_fields") else _TUPLE
    if issubclass(cls, list):
        return _LIST
    if issubclass(cls, defaultdict):
        return _DEFAULT
    if issubclass(cls, dict):
        return _MAPPING
    return dataclass_kind(cls) if dataclasses.is_dataclass(cls) else None


def check_new(cls: Any) -> None:
    """Refuse what cannot be registered."""
    if not isinstance(cls, type):
        raise TypeError(f"register_pytree_node: expected a class. Got {cls!r}.")
    if cls in _known:
        raise ValueError(f"register_pytree_node: {cls.__name__} is built in and cannot be registered.")
    if cls in _registered:
        raise ValueError(f"register_pytree_node: {cls.__module__}.{cls.__qualname__} is registered already.")


def register(cls: Any, kind: Kind) -> None:
    """Let instances of exactly `cls` be containers."""
    check_new(cls)
    _registered[cls] = kind
    _found[cls] = kind


def keep_whole(cls: C) -> C:
    """Let instances of `cls` and its subclasses be leaves, even if they are dataclasses; returns `cls`."""
    _known[cls] = None
    _whole.add(cls)
    _found.clear()
    return cls


def is_container(value: Any) -> bool:
    """Whether `flatten` takes `value` apart."""
    return kind_of(value.__class__) is not None


# Flattening -------------------------------------------------------------------------------------------------------------


def flatten(tree: Any, is_leaf: Callable[[Any], Any] | None = None) -> tuple[list[Any], Any]:
    """The leaves of `tree` and a hashable description of its structure; values for which `is_leaf` is true are leaves."""
    leaves: list[Any] = []
    return leaves, _visit(tree, leaves) if is_leaf is None else _visit_until(tree, leaves, is_leaf)


# `_visit` and `_build` are no closures: a recursive closure refers to itself, and that cycle would keep every tensor of
# the tree alive until the garbage collector comes.


def _visit(tree: Any, leaves: list[Any]) -> Any:
    cls = tree.__class__
    kind = _known.get(cls, _MISSING)
    if kind is _MISSING:
        kind = kind_of(cls)
    if kind is None:
        leaves.append(tree)
        return None
    aux, children = kind.split(tree)
    return (cls, aux, tuple([_visit(v, leaves) for v in children]))


def _visit_until(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], Any]) -> Any:
    kind = None if is_leaf(tree) else kind_of(tree.__class__)
    if kind is None:
        leaves.append(tree)
        return None
    aux, children = kind.split(tree)
    return (tree.__class__, aux, tuple([_visit_until(v, leaves, is_leaf) for v in children]))


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """The inverse of `flatten`."""
    return _build(structure, iter(leaves))


def _build(structure: Any, rest: Iterator[Any]) -> Any:
    if structure is None:
        return next(rest)
    cls, aux, children = structure
    kind = kind_of(cls)
    assert kind is not None
    return kind.join(cls, aux, [_build(c, rest) for c in children])


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`fn` applied to every leaf."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [fn(v) for v in leaves])


def map_tensors(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`fn` applied to every tensor; other leaves stay."""
    return map_tree(lambda v: fn(v) if isinstance(v, Tensor) else v, tree)


# Structures -------------------------------------------------------------------------------------------------------------


def count_leaves(structure: Any) -> int:
    """The number of leaves of a structure."""
    return 1 if structure is None else sum([count_leaves(c) for c in structure[2]])


def paths(structure: Any, root: str = "") -> list[str]:
    """The way to each leaf as Python text, after `root`: `params["layer1"].w`."""
    if structure is None:
        return [root]
    cls, aux, children = structure
    kind = kind_of(cls)
    assert kind is not None
    steps = kind.steps(cls, aux, len(children))
    return [p for step, child in zip(steps, children, strict=True) for p in paths(child, root + step)]


def leaves_like(structure: Any, tree: Any, what: str, root: str = "", exact: bool = True) -> list[Any]:
    """The parts of `tree` at the places of the leaves of `structure`, dicts by key, so in any order of insertion.

    Args:
        structure: what `tree` must be nested like. Lists and tuples of the same length may stand for each other.
        tree: the value.
        what: begins the message of the error if it is not nested so.
        root: the name of the value, which begins the path in the message.
        exact: refuse a container in the place of a leaf.
    """
    found: list[Any] = []
    _follow(structure, tree, found, what, root, exact)
    return found


def _follow(structure: Any, tree: Any, found: list[Any], what: str, root: str, exact: bool) -> None:
    kind = kind_of(tree.__class__)
    if structure is None:
        if exact and kind is not None:
            raise ValueError(f"{what}: {root or 'the value'} must be a leaf. Got {_short(tree)}.")
        found.append(tree)
        return
    cls, aux, children = structure
    expected = kind_of(cls)
    assert expected is not None
    name = root or "the value"
    if kind is None:
        raise ValueError(f"{what}: {name} must be nested like {structure_text(structure)}. Got {_short(tree)}.")
    got, parts = kind.split(tree)
    if expected.steps is _keyed and kind.steps is _keyed:
        if set(aux) != set(got):
            missing, extra = [k for k in aux if k not in got], [k for k in got if k not in aux]
            wrong = "; ".join(
                [f"{n} {', '.join(map(repr, keys))}" for n, keys in (("missing", missing), ("unknown", extra)) if keys]
            )
            raise ValueError(f"{what}: {name} has other keys: {wrong}. Expected {', '.join(map(repr, aux))}.")
        parts = [dict(zip(got, parts, strict=True))[k] for k in aux]
    elif len(parts) != len(children) or kind is not expected and (kind.steps, expected.steps) != (_numbered, _numbered):
        raise ValueError(f"{what}: {name} must be nested like {structure_text(structure)}. Got {_short(tree)}.")
    elif kind is expected and got != aux:
        raise ValueError(f"{what}: {name} is a {cls.__name__} with other static data: {got!r}. Expected {aux!r}.")
    steps = expected.steps(cls, aux, len(children))
    for step, child, part in zip(steps, children, parts, strict=True):
        _follow(child, part, found, what, root + step, exact)


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return "a tensor"
    if is_container(value):
        return structure_text(flatten(value)[1])
    return f"{value!r} of type {type(value).__name__}" if isinstance(value, (int, float, str)) else type(value).__name__


def structure_text(structure: Any) -> str:
    """A structure as Python text with `*` for the leaves: `{'w': *, 'b': *}`."""
    if structure is None:
        return "*"
    cls, aux, children = structure
    kind = kind_of(cls)
    assert kind is not None
    inner = [structure_text(c) for c in children]
    if kind is _NONE:
        return "None"
    if kind is _LIST:
        return f"[{', '.join(inner)}]"
    if kind is _TUPLE:
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind.steps is _keyed:
        text = "{" + ", ".join([f"{k!r}: {v}" for k, v in zip(aux, inner, strict=True)]) + "}"
        return text if cls is dict else f"{cls.__name__}({text})"
    names = kind.steps(cls, aux, len(children))
    return f"{cls.__name__}({', '.join([f'{n[1:]}={v}' if n[0] == '.' else v for n, v in zip(names, inner, strict=True)])})"


def difference(expected: Any, got: Any, root: str = "") -> str:
    """Where two structures first differ, as text for a message."""
    if expected is None or got is None or expected[0] is not got[0] or len(expected[2]) != len(got[2]):
        return f"{root or 'it'} is {structure_text(got)}; expected {structure_text(expected)}"
    if expected[1] != got[1]:
        return f"{root or 'it'} is {structure_text(got)} ({got[1]!r}); expected {structure_text(expected)} ({expected[1]!r})"
    kind = kind_of(expected[0])
    assert kind is not None
    for step, a, b in zip(kind.steps(expected[0], expected[1], len(expected[2])), expected[2], got[2], strict=True):
        if a != b:
            return difference(a, b, root + step)
    return f"{root or 'it'} is the same"
