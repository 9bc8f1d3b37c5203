"""The backward engine: from gradients of outputs to gradients of leaves, one node at a time.

Nodes are processed by falling sequence number, which is a topological order (Note [Tape]). The engine, not the rules,
undoes broadcasting and dtype promotion, adds up the gradients of values used several times, turns row-sparse gradients
into dense ones where something needs them dense, and conjugates at the two ends so that complex gradients follow
PyTorch's convention while rules stay plain transposes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import describe, format_shape
from ..ops import dispatch
from ..ops.spec import Spec, is_known
from ..tensor import Tensor, wrap
from .tape import FREED, Leaf, Node, Output, check_saved, grad_mode, memory_of, mutations

ndarray = np.ndarray
_new = object.__new__
_AS_THEY_ARE = frozenset({Spec, type(None), bool, int, float, complex})  # saved values that are no arrays
_ops: Any = None


def ops() -> Any:
    """The op functions the engine itself uses; resolved late because gradient rules are written with them."""
    global _ops
    if _ops is None:
        from . import _engine_ops

        _ops = _engine_ops
    return _ops


def run_backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Any],
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> list[Any] | None:
    """Backpropagate from `outputs`. Without `inputs`, gradients are added to the leaves' `.grad`; with them, the
    gradients of exactly these tensors are returned (None for one that was not reached) and `.grad` stays untouched."""
    if retain_graph is None:
        retain_graph = create_graph
    seeds = [_seed(t, g, create_graph) for t, g in zip(outputs, gradients, strict=True)]
    wanted: dict[Any, list[int]] = {}
    needed: set[int] | None = None
    if inputs is not None:
        for i, t in enumerate(inputs):
            if t._node is None:
                raise RuntimeError(f"grad: input {i} does not require gradients. Call `x.requires_grad_()` before the forward pass.")
            wanted.setdefault(t._node, []).append(i)
        needed = _ancestors_of(outputs, set(wanted))
    previous = grad_mode.enabled
    grad_mode.enabled = create_graph
    try:
        found = _run([t._node for t in outputs], seeds, retain_graph, create_graph, wanted, needed, inputs is None)
    finally:
        grad_mode.enabled = previous
    if inputs is None:
        return None
    results: list[Any] = [None] * len(inputs)
    for node, places in wanted.items():
        for i in places:
            results[i] = found.get(node)
    return results


def _seed(output: Tensor, gradient: Any, create_graph: bool) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(f"backward: expected a tensor. Got {type(output).__name__}.")
    if output._node is None:
        raise RuntimeError(
            "backward: the tensor does not require gradients: nothing it was computed from does, or it was computed "
            "under no_grad. Call `x.requires_grad_()` on an input before the forward pass."
        )
    if gradient is None:
        if output.size != 1:
            raise RuntimeError(
                f"backward: only a tensor with one element has a gradient of 1. Got shape {format_shape(output.shape)}; "
                "call `.sum()` or `.mean()` first, or pass `gradient`."
            )
        if dtypes.is_complex(output.dtype):
            raise RuntimeError("backward: a complex output needs an explicit `gradient`; use a real loss.")
        data = output._data
        if data.__class__ is ndarray:
            return wrap(np.ones(data.shape, data.dtype))
        return ops().ones_like(output.detach())
    if not isinstance(gradient, Tensor):
        gradient = Tensor(gradient)
    if gradient.shape != output.shape:
        raise ValueError(f"backward: gradient must have the output's shape. Got {describe(gradient)}; expected {describe(output)}.")
    if gradient.dtype != output.dtype:
        gradient = ops().astype(gradient, output.dtype)
    if not create_graph:
        gradient = gradient.detach()
    return ops().conj(gradient) if dtypes.is_complex(gradient.dtype) else gradient


def _parents(node: Any) -> tuple[Any, ...]:
    if node.__class__ is Output:
        return (node.parent,)
    return node.edges if node.__class__ is not Leaf else ()


def _ancestors_of(outputs: Sequence[Tensor], targets: set[Any]) -> set[int]:
    """The ids of the nodes on a path from an output to a target: the only ones worth running."""
    lowest = min((t.seq for t in targets), default=0)
    order: list[Any] = []
    seen: set[int] = set()
    stack = [t._node for t in outputs]
    while stack:
        node = stack.pop()
        if id(node) in seen or node.seq < lowest:
            continue
        seen.add(id(node))
        order.append(node)
        stack.extend(p for p in _parents(node) if p is not None)
    order.sort(key=lambda n: n.seq)
    needed: set[int] = set()
    for node in order:
        if node in targets or any(id(p) in needed for p in _parents(node) if p is not None):
            needed.add(id(node))
    return needed


def _run(
    roots: list[Any],
    seeds: list[Any],
    retain: bool,
    create_graph: bool,
    wanted: dict[Any, list[int]],
    needed: set[int] | None,
    accumulate: bool,
) -> dict[Any, Any]:
    """Run the nodes by falling number; returns the gradients of the nodes in `wanted`."""
    grads: dict[Any, Any] = {}  # node -> gradient of its output (a dict by index for several outputs)
    queue: list[tuple[int, Any]] = []  # (-seq, node); numbers are unique, so nodes are never compared
    leaves: list[Any] = []
    found: dict[Any, Any] = {}
    push, pop = heapq.heappush, heapq.heappop
    observers = [m for m in dispatch.current_modes() if hasattr(m, "around_backward")] if dispatch._special else None

    def give(node: Any, g: Any) -> None:
        have = grads.get(node)
        if have is None:
            grads[node] = g
            if node.__class__ is Leaf:
                leaves.append(node)
            else:
                push(queue, (-node.seq, node))
        else:
            grads[node] = _plus(have, g)

    for node, g in zip(roots, seeds, strict=True):
        if needed is None or id(node) in needed:
            give(node, g)
    while queue:
        node = pop(queue)[1]
        g = grads.pop(node)
        if node.hooks:
            g = run_hooks(node.hooks, g)
        if node.__class__ is Output:
            if node in wanted:
                found[node] = _finish(g)
            parent = node.parent
            if needed is not None and id(parent) not in needed:
                continue
            slots = grads.get(parent)
            if slots is None:
                slots = grads[parent] = {}
                push(queue, (-parent.seq, parent))
            slots[node.index] = _plus(slots[node.index], g) if node.index in slots else g
            continue
        edges = node.edges
        if needed is not None:
            if node in wanted:
                found[node] = _finish(g)
            edges = tuple([e if e is not None and id(e) in needed else None for e in edges])
            if not any(edges):
                continue
        while node.saved.__class__ is not tuple and node.saved is not FREED:
            node.saved.restore(node)  # a checkpointed region, maybe within another: it is run again now
        if node.saved is FREED:
            raise RuntimeError(
                f"backward of {node.op.title}: the graph was freed by an earlier backward. "
                "Pass `retain_graph=True` to the first backward if you need a second one."
            )
        if observers:
            results = _observed(observers, node, g, edges, create_graph)
        else:
            results = pullback(node, g, edges, create_graph)
        if not retain and node.op.keeps_arrays:
            node.saved = FREED
        specs = node.specs
        for i, edge in enumerate(edges):
            if edge is None:
                continue
            gi = results[i]
            if gi is None:
                continue
            if specs is not None:
                spec = specs[i]
                if gi.shape != spec.shape or gi.dtype != spec.dtype or not is_known(spec.shape):
                    gi = fit(gi, spec)
            if edge in grads:
                give(edge, gi)
            else:  # `give`, written out: most values are used once
                grads[edge] = gi
                if edge.__class__ is Leaf:
                    leaves.append(edge)
                else:
                    push(queue, (-edge.seq, edge))
    # A gradient may reach two leaves as one object (add passes it on unchanged); each leaf must own its memory.
    taken = {id(g._data) for g in seeds if g.__class__ is Tensor}
    for leaf in leaves:
        g = grads.pop(leaf)
        if leaf.hooks:
            g = run_hooks(leaf.hooks, g)
        if leaf in wanted:
            found[leaf] = _finish(g)
        elif accumulate:
            _accumulate(leaf, g, taken)
    return found


def _observed(observers: list[Any], node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Sequence[Any]:
    """`pullback` within the modes that watch backward."""
    if not observers:
        return pullback(node, g, edges, create_graph)
    *outer, last = observers
    return last.around_backward(node, lambda: _observed(outer, node, g, edges, create_graph))


def _plus(a: Any, b: Any) -> Any:
    """The sum of two gradients, of which none, one or both are row-sparse."""
    return b + a if a.__class__ is Tensor and b.__class__ is not Tensor else a + b


def pullback(node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Sequence[Any]:
    """Apply the gradient rules of `node.op`: gradients for the inputs with an edge, aligned with `edges`."""
    op = node.op
    if op.pullback is not None:  # a user's Function; its outputs' gradients come as a dict by index
        return op.pullback(node, g, edges, create_graph)
    if g.__class__ is dict:
        g = [_output_gradient(g.get(i), spec, op.fills) for i, spec in enumerate(node.outputs)]
    elif g.__class__ is not Tensor:
        g = dense(g)
    return op.pull(g, saved_values(node, create_graph) if node.saved else (), node.attrs, edges)


def _output_gradient(g: Any, spec: Spec, fill: bool) -> Any:
    """The gradient of one of several outputs: zeros (or None) if nobody used it, None if it is of a kind without one."""
    if g is None:
        return ops().zeros_like_spec(spec) if fill and dtypes.is_inexact(spec.dtype) else None
    return dense(g)


def saved_values(node: Node, create_graph: bool) -> list[Any]:
    """What `node` saved, as its rules want it: tensors that, for higher order, are linked to the tape again."""
    op = node.op
    if create_graph or not op.plain_saves:
        return [_unwrap(node, item, value, create_graph) for item, value in zip(op.saved_items, node.saved, strict=True)]
    values = []
    for i, value in enumerate(node.saved):
        if value.__class__ is ndarray:
            base = value.base
            key = id(value) if base is None else id(memory_of(value))
            if key in mutations and mutations[key][-1].clock > node.seq:
                return [_unwrap(node, item, v, False) for item, v in zip(op.saved_items, node.saved, strict=True)]
            tensor = _new(Tensor)
            tensor._data = value
            tensor._node = None
            values.append(tensor)
        elif value.__class__ in _AS_THEY_ARE:
            values.append(value)
        else:
            values.append(_unwrap(node, op.saved_items[i], value, False))
    return values


def _unwrap(node: Node, item: tuple[str, int, int], value: Any, create_graph: bool) -> Any:
    """A saved value as the rule wants it: a tensor that, for higher order, is linked to the tape again."""
    kind, index, _ = item
    if value is None or kind == "like":
        return value
    op = node.op
    if kind == "in":
        if op.variadic:
            for v in value:
                check_saved(v, node, op.tensor_names[0])
            return tuple([wrap(v, node.edges[i] if create_graph else None) for i, v in enumerate(value)])
        if value.__class__ is not ndarray and not hasattr(value, "shape"):
            return value  # a weak Python scalar
        check_saved(value, node, op.tensor_names[index])
        return wrap(value, node.edges[index] if create_graph else None)
    if kind == "outs":
        for v in value:
            check_saved(v, node, "out")
        return tuple([wrap(v, Output(node, i) if create_graph else None) for i, v in enumerate(value)])
    check_saved(value, node, "out")
    return wrap(value, (Output(node, index) if node.outputs is not None else node) if create_graph else None)


def fit(g: Any, spec: Spec) -> Any:
    """Sum a gradient back to the shape, and cast it back to the dtype, that the input had before it was broadcast."""
    g = dense(g)
    if not is_known(spec.shape) or not is_known(g.shape):
        g = ops().sum_to_like(g, spec)
    elif g.shape != spec.shape:
        g = ops().sum_to(g, spec.shape)
    if g.dtype != spec.dtype:
        if dtypes.is_complex(g.dtype) and not dtypes.is_complex(spec.dtype):
            g = ops().real(g)
        g = ops().astype(g, spec.dtype)
    return g


def dense(g: Any) -> Any:
    return g.to_dense() if g is not None and g.__class__ is not Tensor and hasattr(g, "is_row_sparse") else g


def _finish(g: Any) -> Any:
    g = dense(g)
    return ops().conj(g) if dtypes.is_complex(g.dtype) else g


def run_hooks(hooks: list[Any], g: Any) -> Any:
    for hook in list(hooks):
        replaced = hook(_finish(g))
        if replaced is not None:
            if not isinstance(replaced, Tensor) or replaced.shape != g.shape:
                raise ValueError(
                    f"hook: expected None or a gradient of shape {format_shape(g.shape)}. Got {describe(replaced)}."
                )
            g = ops().conj(replaced) if dtypes.is_complex(replaced.dtype) else replaced
    return g


def _accumulate(leaf: Leaf, g: Any, taken: set[int]) -> None:
    tensor = leaf.tensor()
    if tensor is None:
        return
    if g.dtype.kind == "c":
        g = ops().conj(g)
    if g.__class__ is not Tensor and not g.keep and not getattr(tensor, "sparse_grad", False):
        g = dense(g)
    have = tensor.grad
    if have is None:
        if type(g) is Tensor and type(g._data) is ndarray:
            if id(g._data) in taken:
                g = wrap(g._data.copy(), g._node)
            else:
                g = ops().own(g)
            taken.add(id(g._data))
        tensor.grad = g
    else:
        tensor.grad = have + g
    if leaf.after:
        for hook in list(leaf.after):
            hook(tensor)
