"""Helpful errors for PyTorch argument names (`dim`) in layers that use NumPy's (`axis`)."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from ..module import Module

M = TypeVar("M", bound=type[Module])
NUMPY_NAMES = {"dim": "axis", "start_dim": "start_axis", "end_dim": "end_axis", "keepdim": "keepdims"}


def explain_torch_names(cls: M) -> M:
    """Make `cls(dim=1)` an error that names the argument to use."""
    make: Any = cls.__init__

    @functools.wraps(make)
    def __init__(self: Module, *args: Any, **kwargs: Any) -> None:
        for word in kwargs:
            if word in NUMPY_NAMES:
                name, use = cls.__name__, NUMPY_NAMES[word]
                raise TypeError(
                    f"{name}: unexpected argument {word!r}. Weft has NumPy's words: `nn.{name}({use}={kwargs[word]!r})`."
                )
        make(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls
