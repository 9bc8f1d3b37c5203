"""Assembles the public namespace of `weft` from the op table and the modules of other functions.

Ops are not listed here: an op's `namespace` says where it is exported. Functions that are not ops (constructors, `sum` with
its dtype handling …) are listed in the `__all__` of their module.
"""

from __future__ import annotations

import importlib
import math
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from . import dtypes, random, spectra
from .array_api_info import __array_namespace_info__
from .autocast import autocast, is_autocast_enabled
from .autograd import anomaly, checkpoint, function, functional, tape, vmap
from .ops import aliases, tensor_methods
from .ops.array import (
    casting,
    comparison,
    creation,
    cumulative,
    dialects,
    einsum,
    gathering,
    indexing,
    linalg_structure,
    orthogonal_polynomials,
    partitioning,
    products,
    random_families,
    reduction,
    repeating,
    row_sparse,
    searching,
    sets,
    shaping,
    sorting,
    special_functions,
    statistics,
)
from .ops.array.elementwise import arithmetic, bessel, conversion, logic, special, transcendental
from .ops.core import error_names, registry
from .ops.nn import namespace as _functions_of_models  # noqa: F401 - completes the op table
from .ops.nn import softmax
from .tensor import Tensor

# Modules whose public functions belong to `weft` itself, in the order in which they are read.
MODULES = [
    creation, conversion, arithmetic, transcendental, special, bessel, special_functions, orthogonal_polynomials, logic, shaping,
    random_families, repeating, indexing, gathering, reduction, products,
    linalg_structure, sorting, searching, sets, partitioning, cumulative, statistics, comparison, einsum, casting, random,
    dialects, spectra,
]  # fmt: skip

# Names imported on first use, to keep `import weft` fast.
LAZY: dict[str, str] = {
    "function": ".graph.capture.function:function",
    "compile": ".graph.capture.function:function",
    "cuda": ".cuda",
    "profile": ".profiler:profile",
    "debug": ".debug",
    "cond": ".graph.capture.control_flow:cond",
    "case": ".graph.capture.control_flow:case",
    "while_loop": ".graph.capture.control_flow:while_loop",
    "scan": ".graph.capture.control_flow:scan",
    "map": ".graph.capture.control_flow:map",
    "CaptureError": ".graph.capture.tracing:CaptureError",
    "FileError": ".errors:FileError",
    "Graph": ".graph.declared.building:DeclaredGraph",
    "Session": ".graph.execute.session:Session",
    "placeholder": ".graph.declared.building:placeholder",
    "constant": ".graph.declared.building:constant",
    "Variable": ".graph.declared.variables:Variable",
    "gradients": ".graph.declared.gradients:gradients",
    "minimize": ".graph.declared.python_calls:minimize",
    "control_dependencies": ".graph.declared.building:control_dependencies",
    "name_scope": ".graph.declared.building:name_scope",
    "device": ".graph.declared.building:device",
    "colocate_with": ".graph.declared.building:colocate_with",
    "group": ".graph.declared.building:group",
    "no_op": ".graph.declared.building:no_op",
    "get_default_graph": ".graph.declared.building:get_default_graph",
    "reset_default_graph": ".graph.declared.building:reset_default_graph",
    "CancelledError": ".graph.execute.run:CancelledError",
    "save_variables": ".graph.declared.serialize:save_variables",
    "restore_variables": ".graph.declared.serialize:restore_variables",
    "devices": ".graph.execute.placement:devices",
    "configure_devices": ".graph.execute.placement:configure_devices",
    "switch": ".graph.declared.routing:switch",
    "merge": ".graph.declared.routing:merge",
    "enter": ".graph.declared.routing:enter",
    "exit": ".graph.declared.routing:exit",
    "next_iteration": ".graph.declared.routing:next_iteration",
    "FIFOQueue": ".graph.declared.queues:FIFOQueue",
    "RandomShuffleQueue": ".graph.declared.queues:RandomShuffleQueue",
    "PriorityQueue": ".graph.declared.queues:PriorityQueue",
    "StagingArea": ".graph.declared.queues:StagingArea",
    "Barrier": ".graph.declared.queues:Barrier",
    "Coordinator": ".graph.declared.runners:Coordinator",
    "QueueRunner": ".graph.declared.runners:QueueRunner",
    "TensorArray": ".tensor_array:TensorArray",
    "QueueClosedError": ".graph.declared.queues:QueueClosedError",
    "outside_capture": ".graph.capture.tracing:outside",
    "nn": ".nn",
    "optim": ".optim",
    "data": ".data",
    "transforms": ".transforms",
    "sparse": ".sparse",
    "special": ".special",
    "distributions": ".distributions",
    "func": ".func",
    "testing": ".testing",
    "utils": ".utils",
    "models": ".models",
    "io": ".io",
    "train": ".train",
    "save": ".io:save",
    "load": ".io:load",
    "Trainer": ".train:Trainer",
    "random": ".random",
    "memory": ".runtime.memory",
    "multiprocessing": ".multiprocessing",
    "distributed": ".distributed",
    "set_num_threads": ".runtime.threads:set_num_threads",
    "get_num_threads": ".runtime.threads:get_num_threads",
    "info": ".runtime.info:info",
    "gradcheck": ".autograd.gradcheck:gradcheck",
    "gradgradcheck": ".autograd.gradcheck:gradgradcheck",
    "tree": ".tree",
    "jit": ".jit",
    "backends": ".backends",
    "sparse_coo_tensor": ".sparse.torch_style:sparse_coo_tensor",
    "sparse_csr_tensor": ".sparse.torch_style:sparse_csr_tensor",
    **{
        f"tree_{n}": f".tree:{n}" for n in ("map", "flatten", "unflatten", "leaves", "structure", "reduce", "transpose")
    },
    "register_pytree_node": ".tree:register_pytree_node",
    "register_pytree_node_class": ".tree:register_pytree_node_class",
    "register_dataclass": ".tree:register_dataclass",
}


def public_functions(module: ModuleType) -> dict[str, Any]:
    """What `module` defines for users: ops whose record says so, and the functions of its `__all__`."""
    own: list[Any] = [
        v for v in vars(module).values() if isinstance(v, FunctionType) and v.__module__ == module.__name__
    ]
    ops = {v.__name__: v for v in own if getattr(v, "op", None) is not None and v.op.namespace == "weft"}
    plain = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    functions = {
        n: v
        for n, v in {**ops, **plain}.items()
        if isinstance(v, FunctionType) and getattr(v, "namespace", "weft") == "weft"
    }
    return {name.rstrip("_"): error_names.public(value) for name, value in functions.items()}


def _alias(name: str, function: Any) -> Any:
    """`function` under a second name, which its errors use; an elementwise op is the same function."""
    plain = getattr(function, "__wrapped__", None)
    op = getattr(function, "op", None)
    if not isinstance(plain, FunctionType) or (op is not None and not op.composite):
        return function
    return error_names.guarded(plain, name, body=function)


def namespace() -> dict[str, Any]:
    """The public names of `weft` that are imported eagerly."""
    tensor_methods.attach()
    names: dict[str, Any] = {}
    for module in MODULES:
        names.update(public_functions(module))
    for op in registry.table.values():
        if op.namespace == "weft":
            names.setdefault(op.name, op.call)
    names.update({name: error_names.guarded(f, name) for name, f in aliases.functions().items()})
    names.update({alias: _alias(alias, names[name]) for alias, name in aliases.ALIASES.items() if name in names})
    for name in aliases.ACTIVATIONS:
        if name in registry.table:
            names.setdefault(name, registry.table[name].call)
    names.update(linalg=importlib.import_module(".linalg", "weft"), fft=importlib.import_module(".fft", "weft"))
    names.update(one_hot=error_names.public(softmax.one_hot), __array_namespace_info__=__array_namespace_info__)
    names.update({d.name: d for d in dtypes.ALL})
    names.update(aliases.DTYPES, Size=tuple, dtype=np.dtype)
    for name in ("finfo", "iinfo", "isdtype", "can_cast", "result_type", "get_default_dtype", "set_default_dtype"):
        names[name] = error_names.guarded(getattr(dtypes, name))
    for name in ("no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"):
        names[name] = getattr(tape, name)
    names.update(Function=function.Function, checkpoint=checkpoint.checkpoint, vmap=vmap.vmap, autocast=autocast)
    names.update(detect_anomaly=anomaly.detect_anomaly, set_detect_anomaly=anomaly.set_detect_anomaly)
    names.update(is_autocast_enabled=is_autocast_enabled)
    for name in ("grad", "backward", "value_and_grad", "grad_fn", "vjp", "jvp", "jacobian", "hessian"):
        names[name] = getattr(functional, name)
    names.update(e=math.e, pi=math.pi, inf=math.inf, nan=math.nan, newaxis=None)
    names.update(Generator=random.Generator, default_generator=random.default_generator)
    names.update(Tensor=Tensor, RowSparse=row_sparse.RowSparse, register_kernel=registry.register_kernel)
    return names


def lazy(name: str) -> Any:
    """Resolve a name of `weft` that is imported on first use."""
    target = LAZY.get(name)
    if target is None:
        import difflib

        import weft

        if hasattr(importlib.import_module(".nn.functional", "weft"), name):
            raise AttributeError(
                f"module 'weft' has no attribute {name!r}. Neural-network functions live in `weft.nn.functional`: "
                f"write `from weft.nn import functional as F` and `F.{name}`."
            )
        close = difflib.get_close_matches(name, [*vars(weft), *LAZY], 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        # without `obj` Python adds no suggestion of its own
        raise AttributeError(f"module 'weft' has no attribute {name!r}.{hint}", name=name, obj=None)
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name, "weft")
    value = getattr(module, attribute) if attribute else module
    import weft

    setattr(weft, name, value)
    return value
