"""The op files whose functions appear in `weft.nn.functional`, imported so that the op table is complete."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = (
    "activations", "linear", "softmax", "normalization", "channel_norms", "losses", "embedding", "dropout", "attention", "sparse_ops",
    "conv", "conv_transpose", "pooling", "recurrent", "interpolate", "padding", "unfold",
)  # fmt: skip

MODULES: list[ModuleType] = []
for _name in NAMES:
    try:
        MODULES.append(importlib.import_module(f"{__package__}.{_name}"))
    except ModuleNotFoundError as _error:
        if _error.name != f"{__package__}.{_name}":
            raise
