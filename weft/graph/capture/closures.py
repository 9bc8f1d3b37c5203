"""Freeze the closure of a function, for calling it later.

A Python function reads the names it closes over when it runs. The gradient of a branch or loop body runs the function again,
at the end of the trace, when a loop variable may have been rebound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any


def frozen(fn: Callable[..., Any], seen: dict[int, Any] | None = None) -> Callable[..., Any]:
    """`fn` with its free names, and those of the functions it closes over, bound to their current values."""
    seen = {} if seen is None else seen
    if id(fn) in seen:
        return seen[id(fn)]
    if type(fn) is MethodType:
        return MethodType(frozen(fn.__func__, seen), fn.__self__)
    if type(fn) is functools.partial:
        return functools.partial(frozen(fn.func, seen), *fn.args, **fn.keywords)
    if type(fn) is not FunctionType or not fn.__closure__:
        return fn
    cells = tuple([CellType() for _ in fn.__closure__])
    made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    made.__kwdefaults__, made.__qualname__, made.__dict__ = fn.__kwdefaults__, fn.__qualname__, dict(fn.__dict__)
    seen[id(fn)] = made  # first: functions may refer to themselves and to each other
    for cell, old in zip(cells, fn.__closure__, strict=True):
        try:
            content = old.cell_contents
        except ValueError:  # a name without a value
            continue
        cell.cell_contents = frozen(content, seen) if type(content) in (FunctionType, MethodType) else content
    return made
