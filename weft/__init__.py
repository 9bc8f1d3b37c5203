"""Weft: a deep-learning framework in Python that is fast on the CPUs people already own.

`import weft as wf` gives the array API and general mathematics, differentiation, graphs and capture; models live in
`weft.nn` (`from weft.nn import functional as F`), `weft.optim`, `weft.data` and `weft.models`.
"""

from __future__ import annotations

from typing import Any as _Any

from . import api as _api

__version__ = "0.1.0"
ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
__array_api_version__ = "2025.12"

globals().update(_api.namespace())
__all__ = [name for name in globals() if not name.startswith("_") and name != "annotations"]


def __getattr__(name: str) -> _Any:
    return _api.lazy(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_api.LAZY})
