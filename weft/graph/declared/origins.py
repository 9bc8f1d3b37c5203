"""Origins: how an eager tensor that a declared graph uses was computed.

Note [Origins]. A graph reads an eager tensor by identity. If the tensor was *computed* from parameters, or from random
numbers, its value of now is not what the program means: the gradient would not reach the parameter, and every step would
see the same draw. So such a tensor remembers how it was made, and the graph declares that again, on its own reads:
* A view of a tensor that requires gradients knows its base and the view ops (`Tensor._view`), always.
* The state of a draw knows its generator, always: the graph draws again in every step.
* Inside `with graph.as_default():` the result of any op on such tensors knows op and operands (`Origin`).
A tensor that was written in place since is no longer what its origin says; it is read by identity.
What was computed from parameters without being remembered is refused, because its gradient would silently be lost.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ...autograd.tape import Leaf, grad_mode, memory_of, mutations
from ...errors import format_shape
from ...ops.core.define import Mode, Origin, View
from ...ops.core.registry import Op
from ...tensor import Tensor

ndarray = np.ndarray
MAX_CHAIN = 1000  # ops in a row; longer chains are cut and read as values, so that their operands can be freed


def is_made(tensor: Any) -> bool:
    """Whether an eager tensor depends on parameters or draws, so that its origin matters."""
    if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
        return False
    if tensor._node is not None:
        return True
    view = getattr(tensor, "_view", None)
    if view.__class__ is View:
        return is_made(view.base)
    return view.__class__ is Origin and not _overwritten(tensor, view)


def _overwritten(tensor: Tensor, origin: Origin) -> bool:
    writes = mutations.get(id(memory_of(tensor._data)))
    return bool(writes) and writes[-1].clock > origin.clock  # type: ignore[index]


def _depth(tensor: Any) -> int:
    view = getattr(tensor, "_view", None)
    if view.__class__ is View:
        view = getattr(view.base, "_view", None)
    return view.depth if view.__class__ is Origin else 0


class Remembering(Mode):
    """While entered (by `graph.as_default()`), results of ops on parameters and draws remember how they were made."""

    allows_programs = True

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        made = op.run(op.call, values)
        tensors = tuple(op.tensors(values))
        if any(is_made(t) for t in tensors):
            depth = 1 + max([_depth(t) for t in tensors])
            if depth <= MAX_CHAIN:
                for i, t in enumerate(made if made.__class__ is tuple else (made,)):
                    if t.__class__ is Tensor and type(t._data) is ndarray and getattr(t, "_view", None) is None:
                        t._view = Origin(op, tensors, op.attrs(values), i, depth)
        return made


def derived(graph: Any, tensor: Tensor) -> Tensor | None:
    """What `tensor` was made by, declared in `graph`; None if it is to be read by identity."""
    view = getattr(tensor, "_view", None)
    if view.__class__ is View and is_made(view.base):
        made = graph.symbolic(view.base)
        for op, attrs in view.steps:
            made = _again(op, [made], attrs)
        return made
    if view.__class__ is Origin and not _overwritten(tensor, view):
        if view.op is None:
            return graph.random_state(view.tensors[0])
        made = _again(view.op, [graph.symbolic(t) for t in view.tensors], view.attrs)
        return made[view.index] if isinstance(made, tuple) else made
    if tensor._node is not None and tensor._node.__class__ is not Leaf and grad_mode.enabled:
        _refuse(graph, tensor)
    return None


def _again(op: Op, tensors: list[Any], attrs: tuple[Any, ...]) -> Any:
    return op.run(op.call, op.merge(tensors, attrs))


def _refuse(graph: Any, tensor: Tensor) -> NoReturn:
    raise RuntimeError(
        f"graph {graph.name}: an eager tensor of shape {format_shape(tensor.shape)} that was computed from parameters is used, "
        "and gradients could not reach them through it. Compute it inside `with graph.as_default():`, where the graph "
        "sees how it is made, or use `.detach()` to take its value of now as it is."
    )
