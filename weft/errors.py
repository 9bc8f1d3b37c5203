"""Helpers for error messages: descriptions of shapes and values, the user's source line, and `FileError`.

Every message answers: what happened and where, what was given, what was expected, what to type instead.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Location:
    """A source location in the user's program. Cheap to create; the line is read only when printed."""

    __slots__ = ("code", "line")

    def __init__(self, code: CodeType, line: int) -> None:
        self.code, self.line = code, line

    @property
    def filename(self) -> str:
        return self.code.co_filename

    def __str__(self) -> str:
        import linecache

        text = linecache.getline(self.filename, self.line).strip()
        where = f"{self.filename}:{self.line} in {self.code.co_name}"
        return f"{where}: `{text}`" if text else where

    @property
    def short(self) -> str:
        """The file's name, without its folder, and the line: `model.py:12`."""
        return f"{os.path.basename(self.filename)}:{self.line}"

    @property
    def place(self) -> str:
        """`model.py:12 in forward`: what a graph file stores."""
        return f"{self.short} in {self.code.co_name}"

    def __repr__(self) -> str:
        return f"Location({self.short})"


def user_location(depth: int = 1) -> Location | None:
    """The innermost frame outside this package: the line the user wrote."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return Location(frame.f_code, frame.f_lineno or 0)
        frame = frame.f_back
    return None


def shorten(error: BaseException) -> None:
    """Let notebooks show the user's frames of `error` and its message; plain Python shows all frames as ever."""
    error._render_traceback_ = _render  # type: ignore[attr-defined]  # IPython calls it in place of its own


_MAX_FRAMES = 3  # of the user's that a notebook shows: the first one and those next to the error


def _render() -> list[str]:
    """The lines that a notebook shows for the exception that it reports."""
    import traceback

    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if error is None:
        return []
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(_PACKAGE) and f"{os.sep}IPython{os.sep}" not in f.filename
    ]
    lines = ["Traceback (most recent call last):"]
    for i, frame in enumerate(frames):
        if 0 < i <= len(frames) - _MAX_FRAMES:
            if i == 1:
                lines.append(f"  … {len(frames) - _MAX_FRAMES} more")
            continue
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"    {frame.line}")
    return lines + "".join(traceback.format_exception_only(type(error), error)).splitlines()


def type_name(value: Any) -> str:
    """The name of the type of `value` as its users know it: `list`, `Tensor`, `torch.Tensor`, `pandas.DataFrame`."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package in ("builtins", "weft", "__main__") else f"{package}.{kind.__qualname__}"


def describe(value: Any) -> str:
    """A short description of a tensor, array or scalar: `float32 (4, 3)`."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and (shape is not None or hasattr(value, "ndim")):
        return f"{dtype.name} {format_shape(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def format_shape(shape: Any) -> str:
    """A shape as a user would write it; unknown sizes are `?`, unknown rank `(...)`."""
    if shape is None:
        return "(...)"
    parts = ["?" if d is None else str(d) for d in shape]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


class FileError(ValueError):
    """A file is damaged, truncated, of another format, or exceeds a limit.

    Every reader of Weft raises it, with `path`, the `place` inside the file (a line, a key, an offset; may be empty) and
    the `reason`. A file that is missing or cannot be opened raises OSError.
    """

    def __init__(self, reader: str, path: Any, reason: str, place: str = "") -> None:
        self.reader, self.path, self.reason, self.place = reader, os.fspath(path), reason, place
        super().__init__(f"{reader}: {self.path}{', ' + place if place else ''}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:  # from the workers of a loader
        return type(self), (self.reader, self.path, self.reason, self.place)
