"""A restricted unpickler for plain data, which cannot run code.

Python's unpickler imports and calls what a pickle names, and lets a pickle set attributes of what it has. This one knows the
opcodes for numbers, bytes, text, lists, tuples and dictionaries, and for the few stand-ins that its caller lists; on
anything else it stops. It uses memory in proportion to the pickle.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import Any


class Refused(Exception):
    """The pickle contains something other than plain data."""


class StandIn:
    """A type that may be made by a pickle: called with the arguments of `REDUCE`, then given the state of `BUILD`."""

    def set_state(self, state: Any) -> None:
        """Take the state that the original object was pickled with."""


_MARK = object()
_VALUES = {
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PYTHON_2_TEXT = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def loads(data: bytes, known: Mapping[tuple[str, str], Callable[..., Any]]) -> Any:
    """What `data` holds. `known` are the functions and types that it may name, each made to be called with anything.

    Raises:
        Refused: the pickle asks for something else.
        ValueError, IndexError, TypeError: it is damaged.
    """
    return _Machine(known).run(data)


class _Machine:
    def __init__(self, known: Mapping[tuple[str, str], Callable[..., Any]]) -> None:
        self.known = known
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.pop()
            self.step(opcode.name, argument)
        raise ValueError("it does not end")

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("PROTO", "FRAME"):
            return
        if name in _VALUES:
            stack.append(_CONSTANTS.get(name, argument))
        elif name in _PYTHON_2_TEXT:
            stack.append(argument.encode("latin-1"))
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            if argument not in self.memo:
                raise ValueError("it refers to something that is not there")
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            stack.append(tuple([self.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.marked()
            stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else _pairs(items))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS"):
            self.extend(name)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ", 1) if name == "GLOBAL" else self.pop_two()
            stack.append(self.named(module, attribute))
        elif name == "REDUCE":
            function, arguments = self.pop_two()
            if not any(function is allowed for allowed in self.known.values()) or type(arguments) is not tuple:
                raise Refused("it calls something that is not a function")
            stack.append(function(*arguments))
        elif name == "BUILD":
            state = self.pop()
            if not isinstance(self.top(), StandIn):
                raise Refused(f"it sets the state of a {type(self.top()).__name__}")
            self.top().set_state(state)
        else:
            raise Refused(f"it uses {name}, which data has no use for")

    def named(self, module: Any, attribute: Any) -> Any:
        found = self.known.get((module, attribute)) if isinstance(module, str) and isinstance(attribute, str) else None
        if found is None:
            raise Refused(f"it asks for {module}.{attribute}, which data does not need; it was not run")
        return found

    def extend(self, name: str) -> None:
        items = self.marked() if name.endswith("S") else [self.pop()] if name == "APPEND" else list(self.pop_two())
        target = self.top()
        if name.startswith("APPEND") and type(target) is list:
            target.extend(items)
        elif name.startswith("SETITEM") and type(target) is dict:
            target.update(_pairs(items))
        else:
            raise ValueError("it adds to something that is no collection")

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("it takes what is not there")
        return self.stack[-1]

    def pop(self) -> Any:
        value = self.top()
        self.stack.pop()
        return value

    def pop_two(self) -> tuple[Any, Any]:
        last = self.pop()
        return self.pop(), last

    def marked(self) -> list[Any]:
        """Pop the items above the last mark, and the mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise ValueError("it takes what is not there")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2 or not all(type(k) in (str, bytes, int) for k in items[::2]):
        raise ValueError("a dictionary has a key that is not plain")
    return dict(zip(items[::2], items[1::2], strict=True))
