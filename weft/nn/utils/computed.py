"""Attributes of a module that are computed from its parameters when they are read.

Note [Computed attributes]. Such an attribute is a property of a class of its own that the module gets, derived from its class:
`layer.weight` then calls a function instead of reading a stored tensor, wherever the layer's code reads it, eagerly and in a
captured function alike. Nothing is stored, so a captured function leaves no symbolic tensor behind. The module remembers its
functions in `_computed`; copies and pickles restore the class from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime import epoch
from ..module import Module

Getter = Callable[[Any], Any]
Setter = Callable[[Any, Any], None]


def _property(name: str) -> property:
    def get(self: Module) -> Any:
        return self.__dict__["_computed"][name][0](self)

    def set(self: Module, value: Any) -> None:
        setter = self.__dict__["_computed"][name][1]
        if setter is None:
            raise AttributeError(
                f"{base_class(self).__name__}.{name}: it is computed and cannot be assigned. Write into the parameters it "
                "is computed from."
            )
        setter(self, value)

    return property(get, set)


def base_class(module: Module) -> type:
    """The class of a module without its computed attributes."""
    cls = type(module)
    return cls.__mro__[1] if "_computes" in cls.__dict__ else cls


def _restore(base: Any, names: tuple[str, ...]) -> Any:
    module = base.__new__(base)
    object.__setattr__(module, "__class__", _class_with(base, names))
    return module


def _class_with(base: type, names: tuple[str, ...]) -> type:
    def reduce(self: Module, protocol: Any) -> Any:
        return _restore, (base, tuple(self.__dict__["_computed"])), self.__getstate__()

    members: dict[str, Any] = {name: _property(name) for name in names}
    members.update(_computes=True, __module__=base.__module__, __doc__=base.__doc__, __reduce_ex__=reduce)
    return type(f"Parametrized{base.__name__}", (base,), members)


def attach(module: Module, name: str, getter: Getter, setter: Setter | None = None) -> None:
    """Compute the attribute `name` of `module` by `getter(module)`; assignments call `setter(module, value)`.

    Both are stored in the module, so they should be functions or objects that can be pickled.
    """
    base = base_class(module)
    module.__dict__.pop(name, None)
    module._buffers.pop(name, None)
    functions = module.__dict__.setdefault("_computed", {})
    functions[name] = (getter, setter)
    object.__setattr__(module, "__class__", _class_with(base, tuple(functions)))
    epoch.bump()


def detach(module: Module, name: str) -> None:
    """Make `name` an ordinary attribute again, without a value."""
    base = base_class(module)
    functions = module.__dict__["_computed"]
    del functions[name]
    if not functions:
        del module.__dict__["_computed"]
    object.__setattr__(module, "__class__", _class_with(base, tuple(functions)) if functions else base)
    epoch.bump()


def is_computed(module: Module, name: str) -> bool:
    """Whether the attribute is computed."""
    return name in module.__dict__.get("_computed", ())
