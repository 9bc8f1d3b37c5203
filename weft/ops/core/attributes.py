"""Values that ops take as attributes beside numbers, strings and tuples: frozen dataclasses with a name in graph files.

A value checks its fields when it is made, so a rule or kernel that gets one need not check it again. It is a leaf for
everything that walks through attributes: graph files store it under its name, field by field, and read it back through its
constructor (`weft.graph.declared.serialize`, `weft.graph.declared.loading`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

T = TypeVar("T")
VALUES: dict[str, type] = {}
"""The classes by the name that graph files give them."""


def attribute_value(name: str) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass whose instances may be attributes of ops; graph files call it `name`."""

    def add(cls: type[T]) -> type[T]:
        VALUES[name] = cls
        return cls

    return add


def name_of(value: object) -> str | None:
    """The name of a value's class in graph files; None for any other attribute."""
    return next((name for name, cls in VALUES.items() if cls is value.__class__), None)


def field_names(cls: type) -> tuple[str, ...]:
    return tuple([f.name for f in fields(cls)])
