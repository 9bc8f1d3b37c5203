"""What a captured function reads from Python, and what it does there once.

A trace runs the Python function once; later calls run the program. The user's code is read (its bytecode, and that of the
functions and modules it refers to by name) for values that the program must not freeze. Numbers, strings and small
containers in globals, closures and attributes become *guards*: if one of them has changed, the function is traced again. What
cannot be guarded is reported once, with its line: clocks and environment variables, random generators of Python and NumPy
whose state a trace advances, and values that the function itself changes.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import dis
import functools
import inspect
import linecache
import os
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

MAX_ITEMS = 16  # of containers that are compared at every call
MAX_GUARDS = 64
MAX_FUNCTIONS = 256  # that are read
_PLAIN = (int, float, bool, str, bytes, complex, type(None))
_CONTAINERS = (list, dict, set, tuple)
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES = tuple({_OURS + os.sep, *(os.path.realpath(p) + os.sep for p in sysconfig.get_paths().values())} - {os.sep})
_CLOCKS = {
    f for n, f in vars(time).items() if n.startswith(("time", "perf_counter", "monotonic", "process_time")) and callable(f)
}  # fmt: skip


class Name(NamedTuple):
    """A name, with the attributes that follow it (`self.scale`, `np.random.rand`), and the line it is in."""

    path: tuple[str, ...]
    line: int


@functools.lru_cache(4096)
def _is_users(code: CodeType) -> bool:
    """Whether code was written by the user: not a part of Weft, of Python or of an installed package."""
    path = code.co_filename
    return not (path.startswith("<frozen") or os.path.realpath(path).startswith(_LIBRARIES))


@functools.lru_cache(4096)
def _names_in(code: CodeType) -> tuple[Name, ...]:
    """The names that code reads from globals, closures and its first argument."""
    found: list[Name] = []
    path: list[str] = []
    line = code.co_firstlineno
    first = code.co_varnames[: min(code.co_argcount, 1)]
    for instruction in dis.get_instructions(code):
        if instruction.starts_line is not None:
            line = int(instruction.starts_line)
        op, value = instruction.opname, instruction.argval
        if op in ("LOAD_ATTR", "LOAD_METHOD") and path:
            path = [*path, value]
            found.append(Name(tuple(path), line))
            continue
        path = []
        if op in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME") or (op == "LOAD_FAST" and value in first):
            path = [value]
            found.append(Name((value,), line))
    return tuple(found)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (
        type(value) in _CONTAINERS
        and len(value) <= MAX_ITEMS
        and all(isinstance(v, _PLAIN) for v in (value.values() if isinstance(value, dict) else value))
    )


class Guard:
    """A value that the trace depends on: what it is called, how it is read, what it was, and the line that reads it."""

    __slots__ = ("name", "read", "kept", "line")

    def __init__(self, name: str, read: Callable[[], Any], line: str) -> None:
        self.name, self.read, self.line = name, read, line
        value = read()
        self.kept = copy.copy(value) if type(value) in (list, dict, set) else value

    @property
    def changed(self) -> bool:
        """Whether the value is another one now."""
        try:
            now = self.read()
        except (KeyError, ValueError, AttributeError):  # it is gone
            return True
        return now is not self.kept and (type(now) is not type(self.kept) or bool(now != self.kept))


class Watch:
    """What one trace reads. Use it as a context around the call of the function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.once: dict[str, str] = {}  # what happens only while tracing -> where
        self.guards: dict[tuple[int, str], Guard] = {}
        self._generators: dict[int, tuple[Any, Any, str]] = {}  # generator, its state, where it is used

    def __enter__(self) -> Watch:
        self._states = random.getstate(), np.random.get_state()
        self._lines: dict[str, str] = {}
        for code, scope in _reachable(self.fn):
            for name in _names_in(code):
                self._look_at(code, scope, name)
        return self

    def __exit__(self, *_: Any) -> None:
        if random.getstate() != self._states[0]:
            self.once["a random number of Python"] = self._lines.get("random", _where(self.fn))
        if not _same_state(np.random.get_state(), self._states[1]):
            self.once["a random number of NumPy"] = self._lines.get("numpy", _where(self.fn))
        for generator, state, where in self._generators.values():
            if generator.bit_generator.state != state:
                self.once["a random number of NumPy"] = where
        for key, guard in list(self.guards.items()):
            if guard.changed:  # the function itself changed it: it would do so at every call
                del self.guards[key]
                self.once[f"the change of {guard.name}"] = guard.line

    def _look_at(self, code: CodeType, scope: Scope, name: Name) -> None:
        owner, attribute, found = scope.resolve(name.path)
        if found is _NOTHING:
            return
        if _is_plain(found):
            if owner is not None and attribute != "training" and not isinstance(owner, (ModuleType, type)):
                read: Callable[[], Any] = functools.partial(getattr, owner, attribute)
                self._guard(id(owner), ".".join(name.path), read, code, name.line)
            elif len(name.path) == 1:
                self._guard(*scope.guarded(attribute), code, name.line)
            return
        where = _line(code, name.line)
        if isinstance(found, BuiltinFunctionType):
            if found in _CLOCKS or found.__self__ is datetime.datetime or found.__self__ is datetime.date:
                self.once["the time"] = where
            elif isinstance(found.__self__, random.Random):
                self._lines["random"] = where
        if getattr(found, "__module__", None) == "random" or found is random:
            self._lines.setdefault("random", where)
        if found is os.environ or found is os.getenv:
            self.once["the value of an environment variable"] = where
        elif isinstance(owner, ModuleType) and owner is np.random or found is np.random:
            self._lines.setdefault("numpy", where)
        elif isinstance(found, np.random.Generator):
            self._generators.setdefault(id(found), (found, found.bit_generator.state, where))

    def _guard(self, owner: int, name: str, read: Callable[[], Any], code: CodeType, line: int) -> None:
        if len(self.guards) < MAX_GUARDS and (owner, name) not in self.guards:
            self.guards[owner, name] = Guard(f"`{name}`", read, _line(code, line))

    def check(self) -> Callable[[], bool] | None:
        """A function that tells whether all guards hold; None if there are none."""
        if not self.guards:
            return None
        scope: dict[str, Any] = {}
        terms = []
        for i, guard in enumerate(self.guards.values()):
            scope[f"r{i}"], scope[f"v{i}"], scope[f"t{i}"] = guard.read, guard.kept, type(guard.kept)
            terms.append(f"(r{i}() is v{i} or type(r{i}()) is t{i} and r{i}() == v{i})")  # 1 and 1.0 give other dtypes
        made: Callable[[], bool] = eval(f"lambda: {' and '.join(terms)}", scope)

        def holds() -> bool:
            try:
                return made()
            except (KeyError, ValueError, AttributeError):  # a value is gone
                return False

        return holds

    def changed_names(self) -> list[str]:
        """The guards that do not hold now."""
        return [guard.name for guard in self.guards.values() if guard.changed]


_NOTHING: Any = object()


class Scope:
    """Where the names of a function are found: its object, its closure, its globals."""

    def __init__(self, values: dict[str, Any], cells: dict[str, CellType], local: dict[str, Any]) -> None:
        self.values, self.cells, self.local = values, cells, local

    def resolve(self, path: tuple[str, ...]) -> tuple[Any, str, Any]:
        """(owner of the last attribute or None, its name, what it is now); `_NOTHING` if that cannot be told.

        Attributes are looked up without running code: properties and `__getattr__` are not called.
        """
        owner: Any = None
        found = self._value(path[0])
        for attribute in path[1:]:
            if found is _NOTHING or isinstance(found, (*_PLAIN, *_CONTAINERS)) or hasattr(type(found), "_data"):
                return None, attribute, _NOTHING
            owner = found
            found = _attribute(owner, attribute)
        return owner, path[-1], found

    def _value(self, name: str) -> Any:
        if name in self.local:
            return self.local[name]
        if name in self.cells:
            try:
                return self.cells[name].cell_contents
            except ValueError:  # a cell without a value
                return _NOTHING
        return self.values.get(name, _NOTHING)

    def guarded(self, name: str) -> tuple[int, str, Callable[[], Any]]:
        """(identity of its place, name, how it is read) of a name in the closure or the globals."""
        cell = self.cells.get(name)
        if cell is not None:
            return id(cell), name, functools.partial(getattr, cell, "cell_contents")
        if name in self.local:  # an argument that is plain is part of the signature
            return id(self.local), name, functools.partial(self.local.__getitem__, name)
        return id(self.values), name, functools.partial(self.values.__getitem__, name)


def _attribute(owner: Any, name: str) -> Any:
    values = getattr(owner, "__dict__", None)
    if isinstance(values, dict) and name in values:
        return values[name]
    found = inspect.getattr_static(owner, name, _NOTHING)
    if isinstance(found, (staticmethod, classmethod)):
        return found.__func__
    if isinstance(found, FunctionType) and not isinstance(owner, ModuleType):
        return MethodType(found, owner)
    if isinstance(owner, ModuleType) or _is_plain(found):
        return found
    if isinstance(found, (property,)) or found is _NOTHING:
        modules = values.get("_modules") if isinstance(values, dict) else None  # of an nn.Module
        return modules.get(name, _NOTHING) if isinstance(modules, dict) else _NOTHING
    return getattr(owner, name, _NOTHING) if isinstance(owner, type) or hasattr(found, "__objclass__") else found


def _reachable(fn: Any) -> Iterator[tuple[CodeType, Scope]]:
    """The user's code that `fn` may run: its own, that of functions and modules that it refers to by name, and theirs."""
    seen: set[Any] = set()
    waiting: list[tuple[Any, Any]] = [(fn, None)]
    while waiting and len(seen) < MAX_FUNCTIONS:
        found, owner = waiting.pop()
        while isinstance(found, (functools.partial, MethodType)):
            owner = found.__self__ if isinstance(found, MethodType) else owner
            found = found.__func__ if isinstance(found, MethodType) else found.func
        if not isinstance(found, FunctionType):
            if hasattr(found, "_modules") and hasattr(type(found), "forward"):  # a module that is called
                waiting.append((MethodType(type(found).forward, found), None))
                waiting += [(child, None) for child in list(found._modules.values()) if child is not None]
            continue
        if not _is_users(found.__code__) or (found.__code__, id(owner)) in seen:
            continue
        seen.add((found.__code__, id(owner)))
        cells = dict(zip(found.__code__.co_freevars, found.__closure__ or (), strict=True))
        first = found.__code__.co_varnames[: min(found.__code__.co_argcount, 1)]
        scope = Scope(found.__globals__, cells, {first[0]: owner} if first and owner is not None else {})
        codes = [found.__code__]
        while codes:
            code = codes.pop()
            yield code, scope
            codes += [c for c in code.co_consts if isinstance(c, CodeType)]
            for name in _names_in(code):
                value = scope.resolve(name.path)[2]
                if isinstance(value, (FunctionType, MethodType, functools.partial)) or hasattr(value, "_modules"):
                    waiting.append((value, None))


def _line(code: CodeType, line: int) -> str:
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line}" + (f" `{text}`" if text else "")


def _where(fn: Any) -> str:
    with contextlib.suppress(AttributeError):
        return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
    return repr(fn)


def _same_state(one: Any, other: Any) -> bool:
    return bool(one[0] == other[0] and one[2:] == other[2:] and np.array_equal(one[1], other[1]))
