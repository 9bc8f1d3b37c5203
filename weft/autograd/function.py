"""`wf.Function`: user-defined differentiable functions with a custom backward.

    class Scale(wf.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    y = Scale.apply(x, 3.0)

Contract. `forward` runs once, unrecorded, and becomes one node of the tape. `backward` gets one
gradient per output of `forward` and returns one per argument (None for those without). It is written with public ops:
under `create_graph` it is recorded, so higher derivatives work. Inside a captured function both run on symbolic tensors.
The node keeps the tensors given to `save_for_backward`, as arrays, and nothing else: there are no reference cycles unless the
user stores an output on `ctx` by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import describe, format_shape, user_location
from ..ops.core import define
from ..ops.core.spec import spec_of
from ..tensor import Tensor, wrap
from .tape import Node, Output, check_saved, grad_mode, no_grad


class FunctionContext:
    """The `ctx` of a Function: saved tensors and user attributes, passed from `forward` to `backward`."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[tuple[str, int, Any]] = []  # (where it comes from, which one, data)
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._node: Any = None  # set while backward runs

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or intermediate tensors (or None) until backward, which finds them in `saved_tensors`.

        A saved tensor that is overwritten before backward raises there, as it does for the ops of the library.
        """
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward: expected tensors or None. Got {type(t).__name__}; set other values as "
                    "attributes, `ctx.name = value`."
                )
        self._to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to `save_for_backward`, in order."""
        if self._node is None:
            return self._to_save
        return tuple([_saved_tensor(self._node, record) for record in self._saved])

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """These outputs of `forward` have no gradient (integer and bool outputs never have)."""
        self._non_differentiable = outputs

    def mark_dirty(self, *inputs: Tensor) -> None:
        """`forward` wrote to these inputs in place; each must also be returned."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether the gradient of an unused output is zeros in `backward` (the default) or None."""
        self._materialize = bool(value)


class Function:
    """Base class of user-defined differentiable functions: subclass it, define `forward` and `backward`, call `apply`.

    >>> class Cube(wf.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = wf.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad.item()
    12.0
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("Function: a subclass must define a static method `forward(ctx, ...)`.")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("Function: a subclass must define a static method `backward(ctx, ...)`.")

    def __init__(self) -> None:
        name = type(self).__name__
        raise TypeError(f"{name}: a Function is not instantiated. Call `{name}.apply(...)`.")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` on the arguments and record it as one node of the tape."""
        recording = grad_mode.enabled
        needs = tuple([recording and isinstance(a, Tensor) and a._node is not None for a in args])
        ctx = FunctionContext(needs)
        with no_grad():
            result = cls.forward(ctx, *args)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        for t in ctx._dirty:
            if not any(t is o for o in outputs):
                raise RuntimeError(f"{cls.__name__}.forward: an input was marked dirty but is not among the outputs.")
        finished = _record(cls, ctx, args, outputs) if any(needs) else _unaliased(ctx, args, outputs)
        if not isinstance(result, (tuple, list)):
            return finished[0]
        return type(result)(*finished) if hasattr(result, "_fields") else type(result)(finished)


class _FunctionOp:
    """A Function as the tape and the printer see it: the interface of an op record."""

    __slots__ = ("name", "title", "cls")
    keeps_arrays = True
    pull_arrays = None

    def __init__(self, cls: type[Function]) -> None:
        self.name = self.title = cls.__name__
        self.cls = cls

    def pullback(self, node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        return _run_backward(self.cls, node, g, edges)


def has_custom_gradient(results: Sequence[Any], since: int) -> bool:
    """Whether what `results` were computed by after the tick `since` has hooks, or Functions of the user's."""
    stack = [t._node for t in results if isinstance(t, Tensor)]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or node.seq <= since or id(node) in seen:
            continue
        seen.add(id(node))
        if node.hooks or isinstance(getattr(node, "op", None), _FunctionOp):
            return True
        stack.extend((node.parent,) if node.__class__ is Output else getattr(node, "edges", ()))
    return False


def _unaliased(ctx: FunctionContext, args: tuple[Any, ...], outputs: list[Any]) -> list[Any]:
    """Replace outputs that are inputs, unless marked dirty, by new tensors on the same memory."""
    kept = []
    for o in outputs:
        if isinstance(o, Tensor) and any(o is a for a in args) and not any(o is d for d in ctx._dirty):
            o = wrap(o._data)
        kept.append(o)
    return kept


def _record(cls: type[Function], ctx: FunctionContext, args: tuple[Any, ...], outputs: list[Any]) -> list[Any]:
    """Put one node on the tape and link the outputs to it."""
    from ..ops.core.inplace import rebase, refuse_leaf

    for t in ctx._dirty:
        refuse_leaf(cls.__name__, t)
    node = Node(
        _FunctionOp(cls),
        edges=tuple([a._node if need else None for a, need in zip(args, ctx.needs_input_grad, strict=True)]),
        saved=(ctx,),
        attrs=tuple([spec_of(a._data) if isinstance(a, Tensor) else None for a in args]),
        where=user_location(2) if define.modes.lines else None,
        outputs=tuple([spec_of(o._data) if isinstance(o, Tensor) else None for o in outputs]),
    )
    ctx._saved = [_saved_record(t, args, outputs) for t in ctx._to_save]
    ctx._to_save = ()
    linked = []
    for i, o in enumerate(_unaliased(ctx, args, outputs)):
        original = outputs[i]
        if not isinstance(o, Tensor):
            linked.append(o)
            continue
        differentiable = dtypes.is_inexact(o.dtype) and not any(original is t for t in ctx._non_differentiable)
        if any(original is d for d in ctx._dirty):
            rebase(o, wrap(o._data, Output(node, i) if differentiable else None))
        elif differentiable:
            if o._node is not None:
                o = wrap(o._data)  # a tensor from outside that forward returned
            o._node = Output(node, i)
        linked.append(o)
    ctx._non_differentiable = ctx._dirty = ()  # release the tensors: no reference from the node back to its outputs
    return linked


def _saved_record(t: Any, args: tuple[Any, ...], outputs: list[Any]) -> tuple[str, int, Any]:
    """Where a saved tensor comes from, so that backward can link it to the tape again without holding the tensor."""
    if t is None:
        return ("none", 0, None)
    for i, a in enumerate(args):
        if a is t:
            return ("input", i, t._data)
    for i, o in enumerate(outputs):
        if o is t:
            return ("output", i, t._data)
    return ("other", 0, t._data)


def _saved_tensor(node: Node, record: tuple[str, int, Any]) -> Any:
    kind, index, data = record
    if kind == "none":
        return None
    check_saved(data, node, f"saved_tensors of {kind} {index}" if kind != "other" else "saved_tensors")
    link: Any = None
    if grad_mode.enabled:  # higher order: what backward computes from it is recorded
        if kind == "input":
            link = node.edges[index]
        elif kind == "output" and dtypes.is_inexact(data.dtype):
            link = Output(node, index)
    return wrap(data, link)


def _run_backward(cls: type[Function], node: Node, g: Any, edges: tuple[Any, ...]) -> list[Any]:
    """Call the user's backward and check what it returns. Gradients cross this line in the user's convention: for
    complex tensors the conjugate of what the engine carries."""
    from .engine import dense

    ctx: FunctionContext = node.saved[0]
    gradients = []
    for i, spec in enumerate(node.outputs or ()):
        gi = dense(g.get(i))
        if gi is None and spec is not None and ctx._materialize and dtypes.is_inexact(spec.dtype):
            from ..ops.array.creation import zeros_like_spec

            gi = zeros_like_spec(spec)
        gradients.append(_conjugate(gi))
    ctx._node = node
    try:
        result = cls.backward(ctx, *gradients)
    finally:
        ctx._node = None
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    name = f"{cls.__name__}.backward"
    while len(results) > len(edges) and results[-1] is None:
        results.pop()
    if len(results) != len(edges):
        raise RuntimeError(
            f"{name}: returned {len(results)} gradients; expected {len(edges)}, one per argument of forward "
            f"({', '.join(_argument_names(cls, len(edges)))}), None for those without."
        )
    return [_checked(name, cls, i, r, node, edges) for i, r in enumerate(results)]


def _checked(name: str, cls: type[Function], i: int, g: Any, node: Node, edges: tuple[Any, ...]) -> Any:
    """One gradient that the user returned, in the shape and dtype of its input."""
    if g is None or edges[i] is None:
        return None
    argument = _argument_names(cls, len(edges))[i]
    spec = node.attrs[i]
    if isinstance(g, (np.ndarray, np.generic, int, float, complex)):
        g = Tensor(g)
    if not isinstance(g, Tensor):
        raise TypeError(f"{name}: expected a tensor or None for {argument!r}. Got {type(g).__name__}.")
    if tuple(g.shape) != tuple(spec.shape):
        raise ValueError(
            f"{name}: the gradient of {argument!r} must have its shape {format_shape(spec.shape)}. Got {describe(g)}."
        )
    if g.dtype != spec.dtype:
        from .engine import fit

        g = fit(g, spec)
    return _conjugate(g)


def _conjugate(g: Any) -> Any:
    if g is None or not dtypes.is_complex(g.dtype):
        return g
    from ..ops.array.elementwise import conj

    return conj(g)


def _argument_names(cls: type[Function], count: int) -> list[str]:
    """The names of forward's arguments, for messages."""
    names: list[str] = []
    for parameter in list(inspect.signature(cls.forward).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        else:
            names.append(parameter.name)
    return (names + [f"argument {i}" for i in range(len(names), count)])[:count]


__all__ = ["Function", "FunctionContext"]
