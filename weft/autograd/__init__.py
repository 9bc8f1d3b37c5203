"""Define-by-run differentiation: the tape, the backward engine, and the functions built on them."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Function": ".function", "backward": ".functional", "detect_anomaly": ".anomaly", "enable_grad": ".tape",
    "grad": ".functional", "gradcheck": ".gradcheck", "gradgradcheck": ".gradcheck", "no_grad": ".tape",
    "set_detect_anomaly": ".anomaly", "set_grad_enabled": ".tape",
}  # fmt: skip
"""what programs import from here; modules of this package are imported by those below them, so these come on demand"""


def __getattr__(name: str) -> Any:
    if name == "Variable":  # a tensor that records, as in old PyTorch programs
        from ..ops.array.creation import asarray

        return asarray
    if name not in _NAMES:
        raise AttributeError(f"module 'weft.autograd' has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
