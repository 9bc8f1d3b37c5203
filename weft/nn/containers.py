"""Containers: modules that hold modules (or parameters) in order or by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from .module import Module
from .parameter import Parameter


class _Numbered(Module):
    """Items stored as attributes "0", "1", …; subclasses define the item type."""

    _kind: type = Module

    def _items(self) -> list[Any]:
        return [self.__dict__[str(i)] for i in range(len(self))]

    def __len__(self) -> int:
        return self._length

    def __init__(self) -> None:
        super().__init__()
        self._length = 0

    def _check(self, item: Any) -> Any:
        if not isinstance(item, self._kind):
            raise TypeError(f"{type(self).__name__}: expected a {self._kind.__name__}. Got {type(item).__name__}.")
        return item

    def _place(self, index: Any) -> int:
        n = len(self)
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(f"{type(self).__name__}: the index must be an integer or a slice. Got {index!r}.") from None
        if not -n <= i < n:
            raise IndexError(f"{type(self).__name__}: index {i} is out of range for {n} items.")
        return i % n

    def _rebuild(self, items: list[Any]) -> None:
        for i in range(len(self)):
            delattr(self, str(i))
        self._length = 0
        for item in items:
            self.append(item)

    def append(self, item: Any) -> Self:
        """Add `item` at the end."""
        checked = self._check(item)
        setattr(self, str(self._length), checked)
        self._length += 1
        return self

    def extend(self, items: Iterable[Any]) -> Self:
        """Add all of `items` at the end."""
        for item in items:
            self.append(item)
        return self

    def insert(self, index: int, item: Any) -> None:
        """Insert `item` before the one at `index`."""
        items = self._items()
        items.insert(index, self._check(item))
        self._rebuild(items)

    def pop(self, index: int = -1) -> Any:
        """Remove and return the item at `index`."""
        items = self._items()
        item = items.pop(self._place(index))
        self._rebuild(items)
        return item

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self._items()[index])  # type: ignore[call-arg]
        return self.__dict__[str(self._place(index))]

    def __setitem__(self, index: int, item: Any) -> None:
        setattr(self, str(self._place(index)), self._check(item))

    def __delitem__(self, index: Any) -> None:
        items = self._items()
        del items[index if isinstance(index, slice) else self._place(index)]
        self._rebuild(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __iadd__(self, items: Iterable[Any]) -> Self:
        return self.extend(items)


class Sequential(Module):
    """Apply modules in sequence: `Sequential(a, b)(x)` is `b(a(x))`. Also takes a dict of named modules.

    >>> nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))(wf.ones(1, 4)).shape
    (1, 2)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named = list(modules[0].items())
        else:
            named = [(str(i), m) for i, m in enumerate(modules)]
        for name, module in named:
            if not isinstance(module, Module):
                raise TypeError(f"Sequential: item {name} must be a Module. Got {type(module).__name__}.")
            self.register_module(name, module)
        self._refresh()

    def _refresh(self) -> None:
        # cached for forward: collecting the children at every call would cost more than a small layer
        self.__dict__["_chain"] = tuple([m for m in self.__dict__.values() if isinstance(m, Module)])

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._refresh()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._refresh()

    def forward(self, x: Any) -> Any:
        for module in self._chain:
            x = module(x)
        return x

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_chain"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._refresh()

    def __len__(self) -> int:
        return len(self._chain)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._chain)

    def _names(self) -> list[str]:
        return [n for n, m in self.__dict__.items() if isinstance(m, Module)]

    def _name(self, index: Any) -> str:
        names = self._names()
        try:
            return names[operator.index(index)]
        except TypeError:
            raise TypeError(f"Sequential: the index must be an integer or a slice. Got {index!r}.") from None
        except IndexError:
            raise IndexError(f"Sequential: index {index} is out of range for {len(names)} modules.") from None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Sequential({n: self.__dict__[n] for n in self._names()[index]})
        return self.__dict__[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.register_module(self._name(index), module)

    def __delitem__(self, index: Any) -> None:
        for name in self._names()[index] if isinstance(index, slice) else [self._name(index)]:
            delattr(self, name)
        self._renumber([(name, self.__dict__[name]) for name in self._names()])

    def _renumber(self, named: list[tuple[str, Module]]) -> None:
        """Hold exactly `named`, in this order; numbers among the names count from 0, as in PyTorch, other names stay."""
        for name in self._names():
            delattr(self, name)
        for i, (name, module) in enumerate(named):
            self.register_module(str(i) if name.isdecimal() else name, module)

    def insert(self, index: int, module: Module) -> Sequential:
        """Insert `module` before the one at `index`."""
        if not isinstance(module, Module):
            raise TypeError(f"Sequential: expected a Module. Got {type(module).__name__}.")
        named = [(name, self.__dict__[name]) for name in self._names()]
        named.insert(index, (str(len(named)), module))
        self._renumber(named)
        return self

    def pop(self, index: int = -1) -> Module:
        """Remove and return the module at `index`."""
        module = self[index]
        del self[index]
        return module

    def append(self, module: Module) -> Sequential:
        """Add `module` at the end."""
        if not isinstance(module, Module):
            raise TypeError(f"Sequential: expected a Module. Got {type(module).__name__}.")
        number = len(self)
        while str(number) in self.__dict__:
            number += 1
        self.register_module(str(number), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Sequential:
        """Add all of `modules` at the end."""
        for module in modules:
            self.append(module)
        return self


class ModuleList(_Numbered):
    """A list of modules, registered as children. It has no `forward`: iterate over it.

    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    _kind = Module

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or [])


class ParameterList(_Numbered):
    """A list of registered parameters; plain tensors are wrapped in `Parameter`.

    >>> len(nn.ParameterList([wf.zeros(2), wf.zeros(3)]))
    2
    """

    _kind = Parameter

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(parameters or [])

    def _check(self, item: Any) -> Any:
        return item if isinstance(item, Parameter) else Parameter(item)

    def extra_repr(self) -> str:
        return "\n  ".join(f"({i}): {type(p).__name__} of shape {p.shape}" for i, p in enumerate(self))


class _Named(Module):
    """Items by name."""

    _kind: type = Module

    def __init__(self) -> None:
        super().__init__()
        self._keys: tuple[str, ...] = ()

    def _check(self, name: Any, item: Any) -> Any:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{type(self).__name__}: a key must be a non-empty string without '.'. Got {name!r}.")
        if name not in self._keys and (name in self.__dict__ or hasattr(type(self), name)):
            raise KeyError(f"{type(self).__name__}: {name!r} is taken by an attribute of the class.")
        if not isinstance(item, self._kind):
            raise TypeError(f"{type(self).__name__}: expected a {self._kind.__name__}. Got {type(item).__name__}.")
        return item

    def __getitem__(self, name: str) -> Any:
        if name not in self._keys:
            raise KeyError(f"{type(self).__name__}: there is no {name!r}. There are {', '.join(self._keys) or 'none'}.")
        return self.__dict__[name]

    def __setitem__(self, name: str, item: Any) -> None:
        setattr(self, name, self._check(name, item))
        if name not in self._keys:
            self._keys = (*self._keys, name)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)
        self._keys = tuple([k for k in self._keys if k != name])

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def keys(self) -> tuple[str, ...]:
        return self._keys

    def values(self) -> list[Any]:
        return [self.__dict__[k] for k in self._keys]

    def items(self) -> list[tuple[str, Any]]:
        return [(k, self.__dict__[k]) for k in self._keys]

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add (or replace) all of `items`."""
        for name, item in items.items() if isinstance(items, Mapping) else items:
            self[name] = item

    def pop(self, name: str) -> Any:
        """Remove and return the item `name`."""
        item = self[name]
        del self[name]
        return item

    def clear(self) -> None:
        for name in self._keys:
            del self[name]


class ModuleDict(_Named):
    """A dict of modules, registered as children.

    >>> heads = nn.ModuleDict({"mean": nn.Linear(4, 1), "var": nn.Linear(4, 1)})
    >>> heads["mean"](wf.ones(2, 4)).shape
    (2, 1)
    """

    _kind = Module

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})


class ParameterDict(_Named):
    """A dict of registered parameters; plain tensors are wrapped in `Parameter`.

    >>> nn.ParameterDict({"scale": wf.ones(2)})["scale"].requires_grad
    True
    """

    _kind = Parameter

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def _check(self, name: Any, item: Any) -> Any:
        return super()._check(name, item if isinstance(item, Parameter) else Parameter(item))

    def extra_repr(self) -> str:
        return "\n  ".join(f"({k}): {type(p).__name__} of shape {p.shape}" for k, p in self.items())
