"""Which results of control flow depend on which inputs, so that only those that need it get a place on the tape.

Eagerly a result requires gradients if it was computed from something that does. The trace of a branch or body does not know
yet which of its inputs that will be; its nodes say how results and inputs are connected.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import dtypes
from ...tensor import Tensor
from ..graph import Value
from .subgraph import Sub


def _masks(sub: Sub) -> list[int]:
    """For each result the set of inputs (formals, then captured tensors) that it is computed from, as the bits of a number.

    Only ways on which gradients travel count: through floating values, and ops that have a gradient.
    """
    found: dict[Value, int] = {v: 1 << i for i, v in enumerate((*sub.formals, *sub.graph.entries))}
    for node in sub.graph.nodes:
        mask = 0
        if not getattr(node.op, "declared_nondifferentiable", False):
            for v in node.inputs:
                if v.__class__ is Value:
                    mask |= found.get(v, 0)
        for v in node.outputs:
            found.setdefault(v, mask if dtypes.is_inexact(v.dtype) else 0)
    return [found.get(v, 0) for v in sub.outputs]


def _linked(tensors: Sequence[Tensor], flags: Sequence[bool] = ()) -> int:
    """The bits of the inputs that require gradients: `flags` of the first ones, then those of `tensors`."""
    on = [*flags, *[t._node is not None for t in tensors]]
    return sum([1 << i for i, flag in enumerate(on) if flag])


def of_branches(subs: Sequence[Sub], operands: Sequence[Tensor]) -> list[bool]:
    """Whether each result of a `cond` requires gradients, in one branch at least."""
    per_branch = []
    for sub in subs:
        linked = _linked((*operands, *sub.captured))
        per_branch.append([bool(mask & linked) for mask in _masks(sub)])
    return [any(found) for found in zip(*per_branch, strict=True)]


def of_loop(body: Sub, state: Sequence[Tensor], rest: Sequence[Tensor] = ()) -> list[bool]:
    """Whether each result of a loop body requires gradients after any number of iterations, the state first.

    `rest` are further operands, which are not part of the state.
    """
    masks = _masks(body)
    flags = [t._node is not None for t in state]
    while True:
        linked = _linked((*rest, *body.captured), flags)
        found = [bool(mask & linked) for mask in masks]
        new = [a or b for a, b in zip(flags, found, strict=False)]
        if new == flags:
            return [*flags, *found[len(flags) :]]
        flags = new
