"""Validated access to parsed JSON: type checks on use, and errors that name the place in the file.

A reader asks a `Checked` for the type it expects (`entry["nodes"].items()`, `entry["version"].integer(1)`); any other
value raises the reader's error with file, place and reason. So every value is validated by the code that uses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from ..errors import FileError

MAX_DEPTH = 256  # levels of nested JSON: readers are recursive, and Python's recursion limit is 1000
MAX_INTEGER = 2**63 - 1

Refuse = Callable[[str, str], Exception]
"""Makes the error for (reason, place)."""


class Checked:
    """A value of a file. Methods return it as the requested type or raise the reader's error."""

    __slots__ = ("value", "_refuse", "_parent", "_key")

    def __init__(self, value: Any, refuse: Refuse, parent: Checked | None = None, key: str | int = "") -> None:
        self.value, self._refuse, self._parent, self._key = value, refuse, parent, key

    @property
    def place(self) -> str:
        """Where the value is in the file: `graph.nodes[3].op`."""
        parts: list[str] = []
        at: Checked | None = self
        while at is not None and at._parent is not None:
            key = at._key
            parts.append(f"[{key}]" if isinstance(key, int) else f".{_shown(key)}")
            at = at._parent
        return "".join(reversed(parts)).removeprefix(".")

    def error(self, reason: str) -> Exception:
        return self._refuse(reason, self.place)

    def fail(self, reason: str) -> NoReturn:
        raise self.error(reason) from None

    def expected(self, what: str) -> NoReturn:
        self.fail(f"expected {what}. Got {_describe(self.value)}.")

    # Dictionaries and lists -----------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Checked:
        found = self.get(key)
        if found is None:
            self.fail(f"there is no {key!r}.")
        return found

    def get(self, key: str) -> Checked | None:
        """The value of `key`; None if there is none."""
        if not isinstance(self.value, dict):
            self.expected("an object")
        return Checked(self.value[key], self._refuse, self, key) if key in self.value else None

    def mapping(self) -> dict[str, Checked]:
        if not isinstance(self.value, dict):
            self.expected("an object")
        return {k: Checked(v, self._refuse, self, k) for k, v in self.value.items()}

    def items(self, count: int | None = None) -> list[Checked]:
        """The elements of a list; if `count` is given, exactly that many."""
        if not isinstance(self.value, list):
            self.expected("a list")
        if count is not None and len(self.value) != count:
            self.fail(f"expected {count} elements. Got {len(self.value)}.")
        return [Checked(v, self._refuse, self, i) for i, v in enumerate(self.value)]

    # Plain values ---------------------------------------------------------------------------------------------------

    def text(self, among: Collection[str] | None = None) -> str:
        if type(self.value) is not str:
            self.expected("a string")
        if among is not None and self.value not in among:
            self.expected(f"one of {', '.join(among)}")
        return self.value

    def integer(self, low: int = -MAX_INTEGER, high: int = MAX_INTEGER) -> int:
        """An integer from `low` to `high`, both included."""
        if type(self.value) is not int or not low <= self.value <= high:
            self.expected(f"an integer from {low} to {high}")
        return self.value

    def index(self, items: Sequence[Any]) -> Any:
        """The element of `items` at this index."""
        if not items:
            self.fail(f"there is nothing with number {_describe(self.value)}.")
        return items[self.integer(0, len(items) - 1)]

    def boolean(self) -> bool:
        if type(self.value) is not bool:
            self.expected("true or false")
        return self.value

    def number(self) -> float:
        if type(self.value) not in (int, float):
            self.expected("a number")
        try:
            return float(self.value)
        except OverflowError:
            self.expected("a number")


def _shown(key: str) -> str:
    return key if len(key) <= 60 and key.isprintable() else repr(key[:60])


def _describe(value: Any) -> str:
    if isinstance(value, (dict, list)):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value)} entries"
    text = json.dumps(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a huge integer"
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(data: bytes, refuse: Refuse, max_bytes: int, depth: int = MAX_DEPTH) -> Checked:
    """Parse JSON. Rejects invalid text, more than `max_bytes`, and nesting deeper than `depth`."""
    if len(data) > max_bytes:
        raise refuse(f"it has {len(data):,} bytes. At most {max_bytes:,} are read.", "")
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text: {error.reason}.", f"byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise refuse(f"is not JSON: {error.msg}.", f"line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise refuse(f"is nested deeper than {depth} levels.", "") from None
    except ValueError as error:  # an integer of thousands of digits
        raise refuse(f"is not JSON: {error}.", "") from None
    if _deeper(value, depth):
        raise refuse(f"is nested deeper than {depth} levels.", "")
    return Checked(value, refuse)


def _deeper(value: Any, limit: int) -> bool:
    """Whether `value` has more than `limit` levels; level by level, without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    while level and limit:
        nested = [outer.values() if isinstance(outer, dict) else outer for outer in level]
        level = [inner for values in nested for inner in values if isinstance(inner, (dict, list))]
        limit -= 1
    return bool(level)


def require_plain(reader: str, path: Any) -> None:
    """Reject pipes, devices and the like: opening a pipe blocks until it has a writer, and a device may never end."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise FileError(reader, path, "is not a plain file.")


def file_error(reader: str, path: Any) -> Refuse:
    """A factory of `FileError`s of a reader for a file."""
    return lambda reason, place: FileError(reader, path, reason, place)
