"""Every environment variable that Weft reads, with its type, its default and what it does.

`weft info` prints the ones that are set, and the table in the documentation is made from this list. A setting is read
when it is needed, `settings.TUNE()`; one that cannot be understood raises a ValueError that says what it may be.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

UNLIMITED = sys.maxsize
_OFF, _ON = ("0", "off", "no", "false"), ("1", "on", "yes", "true")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One environment variable. Calling it gives its value now."""

    name: str
    doc: str
    default: T
    shown: str  # the default, for people
    expected: str  # what may be given, for people
    parse: Callable[[str], T | None]  # None: not understood

    def text(self) -> str:
        """What the variable holds, without blanks around it; "" if it is not set."""
        return os.environ.get(self.name, "").strip()

    def __call__(self) -> T:
        text = self.text()
        if not text:
            return self.default
        value = self.parse(text)
        if value is None:
            raise ValueError(f"{self.name}: expected {self.expected}. Got {text!r}. Unset it for {self.shown}.")
        return value


def _switch(text: str) -> bool | None:
    return False if text.lower() in _OFF else True if text.lower() in _ON else None


def _count(least: int) -> Callable[[str], int | None]:
    return lambda text: int(text) if text.isdecimal() and len(text) < 10 and int(text) >= least else None


def _threads(text: str) -> int | None:
    """A width, also in OpenMP's form "4,2" (one figure per nesting level)."""
    return _count(1)(text.split(",")[0].strip())


def _limit(least: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        if text.lower() == "none":
            return UNLIMITED
        match = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
        value = int(match[1]) * _UNITS[match[2].upper()] if match else -1
        return value if value >= least else None

    return parse


def _flag(name: str, doc: str, default: bool) -> Setting[bool]:
    return Setting(name, doc, default, "on" if default else "off", "0 or 1", _switch)


def _path(name: str, doc: str, shown: str) -> Setting[str]:
    return Setting(name, doc, "", shown, "a path", lambda text: text)


NUM_THREADS: Setting[int | None] = Setting(
    "WEFT_NUM_THREADS", "threads that native code is planned for", None, "the processors this process may use",
    "a whole number of at least 1", _threads,
)  # fmt: skip
OPENMP: Setting[str] = Setting(
    "WEFT_OPENMP", "`0` switches OpenMP off; a path names another libgomp", "libgomp.so.1", "the system's `libgomp.so.1`",
    "0 or a path", lambda text: {True: "libgomp.so.1", False: "", None: text}[_switch(text)],
)  # fmt: skip
ONEDNN = _flag("WEFT_ONEDNN", "`0` switches oneDNN off", True)
ONEDNN_LIBRARY = _path(
    "WEFT_ONEDNN_LIBRARY", "path of a libdnnl, version 3.2 or newer", "the installed `onednn-cpu-gomp`"
)
LLVM = _flag("WEFT_LLVM", "`0` switches generated kernels off for eager ops", True)
EAGER = _flag("WEFT_EAGER", "`1` turns every captured function back into plain Python", False)
DEBUG: Setting[int] = Setting(
    "WEFT_DEBUG", "`1` shows tracebacks of failed commands; `2` also prints a captured function's graph after every pass",
    0, "0", "0, 1 or 2", _count(0),
)  # fmt: skip
VALIDATE = _flag("WEFT_VALIDATE", "`1` checks that graph after every pass", False)
TUNE = _flag("WEFT_TUNE", "`0`: choose kernels by rule, not by short trials whose results are remembered on disk", True)
OPEN_SIZES = _flag(
    "WEFT_OPEN_SIZES", "`0` compiles a captured function for every size anew, instead of kernels that serve many", True
)
CPU_DEVICES: Setting[int] = Setting(
    "WEFT_CPU_DEVICES", "virtual CPU devices that declared graphs may be placed on", 1, "1",
    "a whole number of at least 1", _count(1),
)  # fmt: skip
CACHE_DIR = _path(
    "WEFT_CACHE_DIR",
    "where compiled kernels are kept",
    "`~/.cache/weft`, or a private temporary directory without a home",
)
CACHE = _flag("WEFT_CACHE", "`0` switches that cache off", True)
CACHE_SIZE: Setting[int] = Setting(
    "WEFT_CACHE_SIZE", "bytes it may take up, such as `2G`, or `none`; the least recently used kernels go first",
    512 << 20, "`512M`", "a number of bytes such as 512M, or 'none' for no limit", _limit(0),
)  # fmt: skip
MAX_PROGRAMS: Setting[int] = Setting(
    "WEFT_MAX_PROGRAMS", "compiled programs that one captured function keeps, or `none`; the least recently used goes first",
    256, "256", "a number of at least 1, or 'none' for no limit", _limit(1),
)  # fmt: skip
PROGRAM_MEMORY: Setting[int | None] = Setting(
    "WEFT_PROGRAM_MEMORY", "bytes that compiled programs may keep for temporaries between calls, such as `4G`, or `none`",
    None, "half of the memory", "a number of bytes such as 4G, or 'none' for no limit", _limit(0),
)  # fmt: skip

ALL: tuple[Setting[Any], ...] = tuple(value for value in globals().values() if isinstance(value, Setting))


def inherited() -> dict[str, str]:
    """The variables of Weft that are set, for processes of the same run on other machines."""
    return {name: value for name, value in os.environ.items() if name.startswith("WEFT_")}


def table() -> str:
    """The settings as a Markdown table."""
    rows = [f"| `{s.name}` | {s.doc} | {s.shown} |" for s in ALL]
    return "\n".join(["| variable | meaning | default |", "|---|---|---|", *rows])
