"""Spellings: PyTorch's words for the parameters of a function, translated before dispatch.

Functions are defined with the names of the array API (`axis`, `keepdims`); `dim=`, `keepdim=`, `input=` and `other=` mean
the same, and an axis may be given by position. Graphs, files and the tape only hold the definition's own names. Calls in the
definition's own words do not come here.

Functions whose *result* depends on the word (`max(dim=1)` gives values and indices) are in `weft.ops.array.dialects`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

SYNONYMS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "keepdim": ("keepdims",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "dim0": ("axis1",),
    "axis0": ("axis1",),
    "dim1": ("axis2",),
    "size": ("shape",),
    "tensors": ("arrays",),
    "shifts": ("shift",),
    "steps": ("num",),
    "end": ("stop",),
    "ddof": ("correction",),
    "diagonal": ("k", "offset"),
    "offset": ("k",),
    "exponent": ("x2",),
}
"""word -> the parameters it may stand for, the likeliest first"""
FIRST, SECOND = ("input", "self", "x"), ("other",)  # words for the first and second tensor
SIZES = ("size", "sizes", "shape", "dims", "axes", "repeats")  # words for what may also be given as `f(2, 3)`
IGNORED = ("memory_format", "non_blocking", "pin_memory", "layout")  # of PyTorch, without a meaning on the CPU
POSITIONAL = ("axis", "keepdims", "descending")
"""keyword-only parameters that may also be given by position, in this order: `sum(x, 1, True)`, `sort(x, 0, True)`"""


def words(parameters: Sequence[str], tensors: Sequence[str]) -> dict[str, str]:
    """Every word for a parameter: its name and its synonyms.

    >>> words(("x", "axis", "keepdims"), ("x",))["keepdim"]
    'keepdims'
    """
    found = {name: name for name in parameters}
    for choices, tensor in zip((FIRST, SECOND), tensors):
        for word in choices:
            found.setdefault(word, tensor)
    for word, names in SYNONYMS.items():
        for name in names:
            if name in parameters:
                found.setdefault(word, name)
                break
    return found


def by_keyword(parameters: Sequence[str], count: int, extra: Sequence[Any]) -> dict[str, Any] | None:
    """Arguments beyond the `count` positional parameters, as keywords; None if there are too many.

    >>> by_keyword(("x", "axis", "dtype", "keepdims"), 1, (0, True))
    {'axis': 0, 'keepdims': True}
    """
    names = [name for name in POSITIONAL if name in parameters[count:]]
    return dict(zip(names, extra)) if len(extra) <= len(names) else None


def leading(names: Sequence[str]) -> int:
    """How many of the keyword-only parameters `names`, from the first on, may be given by position in this order."""
    order = [name for name in POSITIONAL if name in names]
    count = 0
    while count < len(order) and names[count] == order[count]:
        count += 1
    return count


class Translator:
    """Translates the calls of a plain Python function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.count = code.co_argcount
        self.parameters = code.co_varnames[: self.count + code.co_kwonlyargcount]
        annotations = function.__annotations__
        tensors = [n for n in self.parameters[: self.count] if "Tensor" in str(annotations.get(n, ""))]
        self.positional_only = code.co_posonlyargcount
        self.open = bool(code.co_flags & inspect.CO_VARARGS)
        self.most = sys.maxsize if self.open else self.count
        self.words = words(self.parameters, tensors)
        self.known = frozenset(self.parameters[self.positional_only :])

    def translate(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """The call in the function's own words; what has no translation is left for Python to refuse.

        Raises:
            TypeError: two words for one parameter.
        """
        named: dict[str, Any] = {}
        if len(args) > self.most:
            extra = by_keyword(self.parameters, self.count, args[self.count :])
            if extra is not None:
                args, named = args[: self.count], extra
        first: dict[int, Any] = {}
        given = {**dict.fromkeys(self.parameters[: min(len(args), self.count)], ""), **dict.fromkeys(named, "")}
        for word, value in kwargs.items():
            parameter = self.words.get(word, word)
            if parameter not in self.parameters and self._is_extra(name, word, value):
                if word in SIZES:
                    args = (*args, value)
                continue
            if parameter in given:
                refuse_twice(name, parameter, given[parameter] or parameter, word)
            given[parameter] = word
            if parameter in self.parameters[: self.positional_only]:
                first[self.parameters.index(parameter)] = value
            else:
                named[parameter] = value
        if first:
            slots = range(len(args), len(args) + len(first))
            if sorted(first) == list(slots):
                args = (*args, *[first[i] for i in slots])
            else:
                named.update({self.parameters[i]: value for i, value in first.items()})
        return args, named

    def _is_extra(self, name: str, word: str, value: Any) -> bool:
        """Whether a word that is no parameter has a meaning all the same: sizes, or an argument that changes nothing."""
        if word == "device":
            from ..array.creation import check_device

            check_device(name, value)
            return True
        if word == "out":
            refuse_out(name, value)
            return True
        return word in IGNORED or (self.open and word in SIZES)


def refuse_out(name: str, value: Any) -> None:
    """Raise for a tensor to write to; None, which NumPy passes, is no such tensor."""
    if value is not None:
        raise TypeError(f"{name}: `out` is not supported. Write `out.copy_(wf.{name}(...))`.")


def refuse_twice(name: str, parameter: str, one: str, other: str) -> None:
    """Raise for a parameter that was given twice."""
    how = f"as {one!r} and as {other!r}" if one != other else "by position and by name"
    raise TypeError(f"{name}: two values for argument {parameter!r}, {how}. Give one of them.")
