"""Weft: a deep-learning framework in Python that is fast on the CPUs people already own.

`import weft as wf` gives the array API and general mathematics, differentiation, graphs and capture; models live in
`weft.nn` (`from weft.nn import functional as F`), `weft.optim`, `weft.data` and `weft.models`.
"""

from __future__ import annotations

from typing import Any as _Any

from . import api as _api
from .importing import after_import as _after_import

__version__ = "0.2.0"
__array_api_version__ = "2025.12"

_names = _api.namespace()
globals().update(_names)
__all__ = [name for name in sorted({*_names, *_api.LAZY}) if not name.startswith("_")]


def __getattr__(name: str) -> _Any:
    return _api.lazy(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_api.LAZY})


_after_import("einops", "weft.einops", "register")  # so that einops takes tensors

del annotations  # the name that the first import leaves is not a name of Weft
