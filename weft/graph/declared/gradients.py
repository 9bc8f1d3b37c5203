"""`wf.gradients`: symbolic derivatives of a declared graph, as new nodes of the same graph.

Declared tensors are on the tape like eager ones (placeholders, constants and reads are its leaves), so the derivative is
the ordinary backward pass run on symbolic tensors: it visits every node between `ys` and `xs` once, after all partial
gradients of its outputs have been summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...autograd.engine import run_backward
from ...autograd.tape import enable_grad
from ...ops.array.creation import ones_like
from ...tensor import Tensor
from .building import DeclaredGraph, building, name_scope


def gradients(ys: Any, xs: Any, grad_ys: Any = None) -> Any:
    """Return the gradients of the sum of all elements of `ys` with respect to each of `xs`, as symbolic tensors.

    Args:
        ys: a symbolic tensor or several.
        xs: tensors (placeholders, constants, any tensor between) or Variables. One gives one, a list gives a list;
            None stands for an x that no y depends on.
        grad_ys: the cotangent of each y, of its shape; ones by default.

    >>> with wf.Graph().as_default() as graph:
    ...     x = wf.placeholder(wf.float32, ())
    ...     dx = wf.gradients(x * x, x)
    >>> with wf.Session(graph) as sess:
    ...     sess.run(dx, {x: 3.0}).item()
    6.0
    """
    many = isinstance(xs, (list, tuple))
    targets: Sequence[Any] = list(xs) if many else [xs]
    outputs = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    if not outputs:
        raise ValueError("gradients: expected at least one y. Got none.")
    for i, y in enumerate(outputs):
        if not isinstance(y, Tensor) or not y.is_symbolic:
            raise TypeError(
                f"gradients: y {i} must be a symbolic tensor of a declared graph. Got {type(y).__name__}. "
                "For eager tensors use `wf.grad` or `y.backward()`."
            )
        if not dtypes.is_inexact(y.dtype):
            raise TypeError(f"gradients: y {i} must be floating. Got {y.dtype.name}, made at {y._data.node.where}.")
    graph = outputs[0]._data.node.graph
    seeds = (
        [None] * len(outputs) if grad_ys is None else list(grad_ys) if isinstance(grad_ys, (list, tuple)) else [grad_ys]
    )
    if len(seeds) != len(outputs):
        raise ValueError(f"gradients: expected one grad_y per y. Got {len(seeds)} for {len(outputs)} ys.")
    groups = [_tensors_of(graph, x, i) for i, x in enumerate(targets)]
    inputs = [t for group in groups for t in group]
    with enable_grad(), name_scope("gradients"), building(graph):
        pairs = [
            (y, ones_like(y.detach()) if s is None else s)
            for y, s in zip(outputs, seeds, strict=True)
            if y._node is not None
        ]
        found: list[Any] = [None] * len(inputs)
        if pairs and inputs:
            roots, starts = [y for y, _ in pairs], [s for _, s in pairs]
            found = run_backward(roots, starts, True, True, inputs) or found
        results = []
        at = 0
        for group in groups:
            total = None
            for g in found[at : at + len(group)]:
                if g is not None:
                    total = g if total is None else total + g
            results.append(total)
            at += len(group)
    return results if many else results[0]


def _tensors_of(graph: Any, x: Any, position: int) -> list[Tensor]:
    """The tensors whose gradients add up to that of `x`: itself, or every read of a variable."""
    reads = getattr(x, "reads", None)
    if reads is not None and isinstance(graph, DeclaredGraph):
        return _distinct(reads(graph))
    if not isinstance(x, Tensor):
        raise TypeError(f"gradients: x {position} must be a tensor or a Variable. Got {type(x).__name__}.")
    if not x.is_symbolic and isinstance(graph, DeclaredGraph):
        return _distinct(graph.reads_of.get(id(x), []))
    if x.is_symbolic and x._data.node.graph is not graph:
        raise ValueError(
            f"gradients: x {position} belongs to graph {x._data.node.graph.name!r}, the ys to {graph.name!r}."
        )
    return [x] if x._node is not None else []


def _distinct(reads: Sequence[Tensor]) -> list[Tensor]:
    """Reads with separate tape nodes; reads of a parameter share one."""
    return list({id(t._node): t for t in reads if t._node is not None}.values())
