"""Decorators that define ops: from an op's record to the function that users call.

The call paths are in `weft.ops.core.fast_path` (small arrays), `weft.ops.core.slow_path` (the general case),
`weft.ops.core.modes` (interception of calls) and `weft.ops.core.recording` (tape entries, views). The names that other
modules need are re-exported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from . import modes as modes
from . import registry
from .fast_path import (
    make_binary,
    make_checked,
    make_checked_many,
    make_checked_pair,
    make_general,
    make_select,
    make_unary,
)
from .modes import Mode as Mode
from .modes import constant as constant
from .modes import current_modes as current_modes
from .modes import installed as installed
from .modes import suspended as suspended
from .modes import trace_lines as trace_lines
from .recording import UNTRACKED as UNTRACKED
from .recording import Base as Base
from .recording import Origin as Origin
from .recording import View as View
from .recording import finish as finish
from .recording import link as link
from .recording import make_node as make_node
from .recording import needs_of as needs_of
from .reductions import Reduction, infer_reduction
from .registry import Op
from .short_floats import any_short as any_short
from .short_floats import in_float32
from .short_floats import run_in_float32 as run_in_float32
from .slow_path import NATIVE_MIN_ELEMENTS as NATIVE_MIN_ELEMENTS
from .slow_path import as_arrays as as_arrays
from .slow_path import call as call
from .slow_path import cast_data as cast_data
from .slow_path import check_kind as check_kind
from .slow_path import common_dtype as common_dtype
from .slow_path import compute as compute
from .slow_path import elementwise_dtypes as elementwise_dtypes
from .slow_path import infer_elementwise
from .slow_path import keeps_scalars as keeps_scalars
from .slow_path import native_elementwise as native_elementwise
from .slow_path import native_kernels as native_kernels
from .slow_path import operand as operand
from .slow_path import plain_elementwise as plain_elementwise
from .slow_path import promoted as promoted
from .spec import normalize_axes


def _public(op: Op, function: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = op.name
    function.__qualname__ = op.name
    function.__doc__ = fn.__doc__
    function.__module__ = fn.__module__
    function.__wrapped__ = fn  # type: ignore[attr-defined]  # inspect.signature and help() show the definition
    function.op = op  # type: ignore[attr-defined]
    op.call = function
    return function


def _closure(op: Op) -> Callable[[Op], Callable[..., Any]]:
    """Select the fast-path closure for a primitive op."""
    if not op.checks_once or not op.tensor_slots or _refuses_gradients(op):
        return make_general
    if not op.variadic and op.num_outputs == 1:
        if op.tensor_slots == (0,) and op.refuse is None:
            return make_checked
        if op.tensor_slots == (0, 1) and len(op.parameters) == 2 and op.alias is None and op.refuse is None:
            return make_checked_pair
    return make_general if op.alias is not None else make_checked_many


def _refuses_gradients(op: Op) -> bool:
    """Whether the op raises for inputs that require gradients: it has no rule and is not declared non-differentiable.

    The fast paths do not raise that error.
    """
    return not op.differentiable and not op.declared_nondifferentiable


def primitive(*, name: str | None = None, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op whose body is its NumPy kernel. See `weft.ops.core.registry` for the facts."""

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        op = registry.register(Op(name or fn.__name__, fn, **facts))
        return _public(op, _closure(op)(op), fn)

    return define


def reduction(
    reduces: Reduction, *, name: str | None = None, **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define a primitive with the parameters (x, axis, keepdims) that combines the elements along `axis`.

    The shape rule, the batching rule and the cost follow from `reduces`, unless they are given; see
    `weft.ops.core.reductions` for what else does.
    """

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        title = facts.get("title", name or fn.__name__)
        derived = {
            "checks_once": True,
            "infer": infer_reduction(title, reduces),
            "batch": lambda axes, tensors, attrs: _batch_reduction(
                registry.get(name or fn.__name__), tensors[0], attrs
            ),
            "accumulate": "exact" if reduces.boolean else "float32",
        }
        return primitive(name=name, **{**derived, **facts, "reduction": reduces})(fn)

    return define


def _batch_reduction(op: Op, x: Any, attrs: tuple[Any, ...]) -> Any:
    """Batching rule of a reduction: axis 0 is the batch axis, all others shift by one."""
    axis, keepdims = attrs
    shifted: Any = tuple([a + 1 for a in normalize_axes(op.title, axis, x.ndim - 1)])
    if len(shifted) == 1 and not isinstance(axis, tuple):
        shifted = shifted[0]
    return call(op, (x, shifted, keepdims))


def _direct_dtypes(op: Op) -> frozenset[np.dtype]:
    """The dtypes that an elementwise op of this kind accepts without a cast: those that `check_kind` accepts."""
    if op.kind not in ("numeric", "arithmetic", "bitwise", "integer", "real"):
        return frozenset()  # integers must become float32 first
    direct = []
    for dtype in dtypes.ALL:
        try:
            check_kind(op, op.kind, dtype)
        except TypeError:
            continue
        direct.append(dtype)
    return frozenset(direct)


def elementwise(
    *, numpy: Any = None, name: str | None = None, **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an elementwise op whose body is a scalar expression.

    `kind` is the set of dtypes it accepts (see `check_kind`); `numpy` is the NumPy ufunc that computes the same for same-dtype
    operands, for the fast path.
    """

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        facts.setdefault("batch", "elementwise")
        op = Op(name or fn.__name__, fn, all_tensors=True, expression=fn, broadcasts=True, ufunc=numpy, **facts)
        registry.register(op)
        op.infer = lambda *specs: infer_elementwise(op, *specs)
        count = len(op.parameters)
        direct = _direct_dtypes(op)
        ufunc = numpy
        inner = op.namespace == "internal" and op.kind in ("numeric", "arithmetic", "real", "float", "real float")
        if ufunc is None and (count == 1 or count == 2 and inner and op.defaults == (registry.REQUIRED,) * 2):
            ufunc, direct = fn, frozenset()  # NumPy runs the expression itself, for arrays that need no cast
        if _refuses_gradients(op):
            function = make_general(op)
        elif ufunc is not None and count == 1:
            function = make_unary(op, ufunc, direct)
        elif ufunc is not None and count == 2:
            function, op.reflected = make_binary(op, ufunc, direct, numpy is not None)
        elif op.kind == "select":
            function = make_select(op)
        else:
            function = make_general(op)
        return _public(op, function, fn)

    return define


def composite(*, name: str | None = None, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op whose body is written with other ops; it needs no kernel and no gradient rule.

    The name is bound to the body itself, for use inside the package; users get `op.call`, see Note [Named errors].
    """
    from .error_names import guarded

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        op = registry.register(Op(name or fn.__name__, fn, composite=True, batch="composite", **facts))
        body = in_float32(fn) if op.widens else fn
        body.op = fn.op = op  # type: ignore[attr-defined]
        op.call = guarded(fn, op.title, body)
        return body

    return define
