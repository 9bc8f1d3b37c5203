"""The public namespace, assembled from the op table and the modules that hold what is not an op.

Names from the op table are not written down a second time: an op's `namespace` says where it appears. Functions that
are not ops (constructors, `sum` with its dtype handling …) are what their modules define without an underscore.
"""

from __future__ import annotations

import importlib
import math
from types import FunctionType, ModuleType
from typing import Any

from . import dtypes, random, tensor
from .autograd import functional, tape
from .ops import creation, elementwise, indexing, methods, model_functions, products, reduction, registry, row_sparse, shaping

# Modules whose public functions belong to `weft` itself, in the order in which they are read.
MODULES = [creation, elementwise, shaping, indexing, reduction, products, random]

# Names found on first use: they need more of the package than every program does.
LAZY: dict[str, str] = {}

_PRIVATE_HELPERS = {"check_device", "check_indices", "check_sequence", "primitive", "elementwise", "composite", "joint"}


def public_functions(module: ModuleType) -> dict[str, Any]:
    """The functions that `module` itself defines for users."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in _PRIVATE_HELPERS or name.endswith("_like_spec"):
            continue
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            found[name.rstrip("_")] = value
    return found


def namespace() -> dict[str, Any]:
    """Everything that `import weft` puts at the user's fingertips."""
    methods.attach()
    names: dict[str, Any] = {}
    for module in MODULES:
        names.update(public_functions(module))
    for op in registry.table.values():
        if op.namespace == "weft":
            names.setdefault(op.name, op.call)
    names.update({d.name: d for d in dtypes.ALL})
    for name in ("finfo", "iinfo", "isdtype", "can_cast", "result_type", "get_default_dtype", "set_default_dtype"):
        names[name] = getattr(dtypes, name)
    for name in ("no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"):
        names[name] = getattr(tape, name)
    for name in ("grad", "backward", "value_and_grad", "grad_fn", "vjp", "jvp", "jacobian", "hessian"):
        names[name] = getattr(functional, name)
    names.update(e=math.e, pi=math.pi, inf=math.inf, nan=math.nan, newaxis=None)
    names.update(Generator=random.Generator, default_generator=random.default_generator)
    names.update(Tensor=tensor.Tensor, RowSparse=row_sparse.RowSparse, register_kernel=registry.register_kernel)
    return names


def lazy(name: str) -> Any:
    """Resolve a name of `weft` that is imported on first use."""
    target = LAZY.get(name)
    if target is None:
        import difflib

        import weft

        close = difflib.get_close_matches(name, [*vars(weft), *LAZY], 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module 'weft' has no attribute {name!r}.{hint}")
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name, "weft")
    value = getattr(module, attribute) if attribute else module
    import weft

    setattr(weft, name, value)
    return value
