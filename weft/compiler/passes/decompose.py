"""Replaces ops that fuse better as their parts by a decomposition.

    %y = softmax(%x, axis=-1)                                                          before
    %m = max(%x); %e = exp(%x - %m); %s = reduce_sum(%e); %y = %e / %s                after

A decomposition is a Python function with the op's parameters, written with public ops; `decomposition(name)` registers
one. It is traced into the flow, so its parts are simplified and fused like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...autograd.tape import no_grad
from ...graph.capture.tracing import Capture
from ...graph.graph import Node
from ...ops.array.elementwise import astype
from ...ops.core.slow_path import check_memory
from ...tensor import wrap
from ..flow import Flow, rebuild
from ..target import Target

_table: dict[str, Callable[..., Any]] = {}
_late: dict[str, Callable[..., Any]] = {}  # applied after the passes that match the whole op


def decomposition(name: str, late: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a decomposition of the op `name`. With `late`, it is applied by `decompose_late` and gets the target."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        (_late if late else _table)[name] = fn
        return fn

    return add


def counting(name: str, n: int) -> np.ndarray:
    """0, 1, … n - 1 as an array for a decomposition of `name`; raises before allocation if it cannot fit."""
    check_memory(name, (n,), np.dtype(np.int64))
    return np.arange(n, dtype=np.int64)


class FlowCapture(Capture):
    """Ops called inside become nodes of a flow; control flow finds the flow as the graph in progress."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow.name)
        self.graph = flow  # type: ignore[assignment]


def decompose(flow: Flow) -> Flow:
    """Replace every op that has a decomposition, until nothing changes."""
    from . import decompositions as decompositions  # registers them

    for _ in range(8):
        before = [n.op.name for n in flow.nodes]
        flow = rebuild(flow, partial(_rule, _table))
        if [n.op.name for n in flow.nodes] == before:
            break
    return flow


def decompose_late(flow: Flow, target: Target) -> Flow:
    """Apply the late decompositions, which take the target."""
    if not any(n.op.name in _late for n in flow.nodes):
        return flow
    return rebuild(flow, partial(_rule, {name: partial(fn, target=target) for name, fn in _late.items()}))


def _rule(table: dict[str, Callable[..., Any]], new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
    fn = table.get(node.op.name)
    if fn is None or any(0 in v.shape for v in (*args, node.outputs[0]) if v is not None):
        return None  # nothing to compute
    tensors = [None if a is None else wrap(a) for a in args]
    with no_grad(), FlowCapture(new):
        result = node.op.run(fn, node.op.merge(tensors, node.attrs))
        if result is NotImplemented:
            return None
        outs = result if isinstance(result, tuple) else (result,)
        outs = tuple([astype(o, v.dtype) for o, v in zip(outs, node.outputs, strict=True)])
    values = [new.operand(t) for t in outs]
    for value, old in zip(values, node.outputs, strict=True):
        assert tuple(value.shape) == tuple(old.shape) and value.dtype == old.dtype, (node.op.name, value, old)
    return values
