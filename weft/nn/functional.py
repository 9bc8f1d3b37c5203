"""Neural-network functions under PyTorch's names: `from weft.nn import functional as F`.

The namespace is derived: every op record with `namespace="nn"`, and the functions in the `__all__` of the files listed in
`weft.ops.nn.namespace`. Arguments have NumPy's names (`axis`, `keepdims`).
"""

from __future__ import annotations

from typing import Any

from ..ops.array import elementwise, padding
from ..ops.core import error_names, registry
from ..ops.nn.namespace import MODULES


def _namespace() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for module in MODULES:
        for name in getattr(module, "__all__", ()):
            names[name] = error_names.public(getattr(module, name))
    for op in registry.table.values():
        if op.namespace == "nn":
            names[op.name] = op.call
    names.update(
        sigmoid=elementwise.sigmoid, tanh=elementwise.tanh, pad=error_names.guarded(padding.functional_pad, "pad")
    )
    return names


_NAMES = _namespace()
globals().update(_NAMES)
__all__ = list(_NAMES)
__all__.sort()


def __getattr__(name: str) -> Any:
    import difflib

    close = difflib.get_close_matches(name, __all__, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    # without `obj` Python adds no suggestion of its own
    raise AttributeError(f"module 'weft.nn.functional' has no attribute {name!r}.{hint}", name=name, obj=None)
