"""Layers whose arguments have NumPy's words say so to those who type PyTorch's."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from ..module import Module

M = TypeVar("M", bound=type[Module])
WORDS = {"dim": "axis", "start_dim": "start_axis", "end_dim": "end_axis", "keepdim": "keepdims"}


def numpys_words(cls: M) -> M:
    """Make `cls(dim=1)` an error that names the argument to use."""
    make: Any = cls.__init__

    @functools.wraps(make)
    def __init__(self: Module, *args: Any, **kwargs: Any) -> None:
        for word in kwargs:
            if word in WORDS:
                name = cls.__name__
                raise TypeError(
                    f"{name}: unexpected argument {word!r}. Weft has NumPy's words: `nn.{name}({WORDS[word]}={kwargs[word]!r})`."
                )
        make(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls
