"""The backward engine: propagate gradients from outputs to leaves, one tape node at a time.

Nodes are processed by falling sequence number, which is a topological order (Note [Tape]). The engine, not the rules,
undoes broadcasting and dtype promotion, adds up the gradients of values used several times, turns row-sparse gradients
into dense ones where something needs them dense, and conjugates at the two ends so that complex gradients follow
PyTorch's convention while rules stay plain transposes.

Note [Bare gradients]. A small real gradient is passed from rule to rule as a bare array where rules are plain arithmetic
(`Op.pull_arrays`): wrapping every one in a Tensor would cost more than computing it. It becomes a Tensor again for hooks,
for other rules and at the leaves.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import describe, format_shape, type_name
from ..ops.core import define
from ..ops.core.short_floats import widened
from ..ops.core.spec import Spec, is_known, same_size
from ..tensor import Tensor, current_grad_hook, wrap
from . import shards
from .tape import FREED, Leaf, Node, Output, check_saved, grad_mode, memory_of, mutations

ndarray = np.ndarray
_new = object.__new__
F32, F64 = dtypes.float32, dtypes.float64
_NON_ARRAY_TYPES = frozenset({Spec, type(None), bool, int, float, complex})  # types of saved values that are not arrays
_ones = {d: np.ones((), d) for d in dtypes.FLOATING}  # the gradient of a loss with respect to itself
for _one in _ones.values():
    _one.flags.writeable = False
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
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
    beyond: bool = True,
    transposed: bool = False,
) -> list[Any] | None:
    """Backpropagate from `outputs`. Without `inputs`, gradients are added to the leaves' `.grad`; with them, the
    gradients of exactly these tensors are returned (None for one that was not reached) and `.grad` stays untouched.

    Inputs may have been computed from each other: with `beyond`, gradients propagate beyond an input; otherwise every input
    gets only what reaches it without passing through another one, and as another pass goes on from there, which runs the
    hooks of the inputs, this one does not.

    `transposed` is for gradient rules that call the engine: complex gradients are plain transposes at both ends, as they are
    between two nodes, instead of following the user's convention."""
    if retain_graph is None:
        retain_graph = create_graph
    if not transposed:
        capture = current_grad_hook()
        if capture is not None:
            capture.differentiate()
    seeds = [_seed(t, g, create_graph, transposed) for t, g in zip(outputs, gradients, strict=True)]
    if inputs is None and shards.current.shard is not None:
        seeds = shards.current.shard.seeds(outputs, seeds)
    wanted = None if inputs is None else _targets(inputs)
    needed = None if wanted is None else _ancestors_of(outputs, wanted)
    previous = grad_mode.enabled
    grad_mode.enabled = create_graph
    try:
        found = _run([t._node for t in outputs], seeds, retain_graph, create_graph, wanted, needed, beyond, transposed)
    finally:
        grad_mode.enabled = previous
    if inputs is None:
        return None
    return [found.get(t._node) for t in inputs]


def _targets(inputs: Sequence[Tensor]) -> set[Any]:
    """The nodes whose gradients are requested."""
    for i, t in enumerate(inputs):
        if not isinstance(t, Tensor):
            raise TypeError(f"grad: input {i} must be a tensor. Got {type_name(t)}.")
        if t._node is None:
            raise RuntimeError(
                f"grad: input {i} does not require gradients. Call `x.requires_grad_()` before the forward pass."
            )
    return {t._node for t in inputs}


def _seed(output: Tensor, gradient: Any, create_graph: bool, transposed: bool) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(f"backward: expected a tensor. Got {type_name(output)}.")
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
            return wrap(np.full_like(data, 1) if data.ndim else _ones[data.dtype])
        return ops().ones_like(output.detach())
    if not isinstance(gradient, Tensor):
        gradient = Tensor(gradient)
    if gradient.shape != output.shape and not _may_agree(gradient.shape, output.shape):
        raise ValueError(
            f"backward: gradient must have the output's shape. Got {describe(gradient)}; expected {describe(output)}."
        )
    if gradient.dtype != output.dtype:
        gradient = ops().astype(gradient, output.dtype)
    if not create_graph:
        gradient = gradient.detach()
    return gradient if transposed else _conjugate(gradient)


def _may_agree(a: Any, b: Any) -> bool:
    """Whether two shapes, perhaps with unknown sizes, may be equal."""
    return a is None or b is None or len(a) == len(b) and all(map(same_size, a, b))


def parents(node: Any) -> tuple[Any, ...]:
    """The nodes to which `node` hands gradients; None among them for inputs that need none."""
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
        stack.extend(p for p in parents(node) if p is not None)
    order.sort(key=lambda n: n.seq)
    needed: set[int] = set()
    for node in order:
        if node in targets or any(id(p) in needed for p in parents(node) if p is not None):
            needed.add(id(node))
    return needed


def _run(
    roots: list[Any],
    seeds: list[Any],
    retain: bool,
    create_graph: bool,
    wanted: set[Any] | None,
    needed: set[int] | None,
    beyond: bool,
    transposed: bool,
) -> dict[Any, Any]:
    """Run the nodes by falling number; returns the gradients of the nodes in `wanted`, or, if that is None, adds those of
    the leaves to their `.grad`. Only nodes in `needed` are run, and unless `beyond` none in `wanted`."""
    grads: dict[Any, Any] = {}  # node -> gradient of its output (a dict by index for several outputs)
    queue: list[tuple[int, Any]] = []  # (-seq, node); numbers are unique, so nodes are never compared
    leaves: list[Any] = []
    found: dict[Any, Any] = {}
    push, pop = heapq.heappush, heapq.heappop
    modes = define.current_modes() if define.modes.active else ()
    finish = dense if transposed else _finish

    bare = (
        not create_graph and not define.modes.active
    )  # whether gradients may travel as arrays, see Note [Bare gradients]
    for node, g in zip(roots, seeds, strict=True):
        if needed is not None and id(node) not in needed:
            continue
        if node in grads:
            grads[node] = _plus(grads[node], g)
        else:
            grads[node] = g
            if node.__class__ is Leaf:
                leaves.append(node)
            else:
                push(queue, (-node.seq, node))
    while queue:
        node = pop(queue)[1]
        g = grads.pop(node)
        if node.hooks and (beyond or wanted is None or node not in wanted):
            g = run_hooks(node.hooks, wrap(g) if g.__class__ is ndarray else g)
        if node.__class__ is Output:
            if g.__class__ is ndarray:
                g = wrap(g)
            if wanted is not None and node in wanted:
                found[node] = finish(g)
                if not beyond:
                    continue
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
        if wanted is not None and needed is not None:
            if node in wanted:
                found[node] = finish(wrap(g) if g.__class__ is ndarray else g)
                if not beyond:
                    continue
            edges = tuple([e if e is not None and id(e) in needed else None for e in edges])
            if not any(edges):
                continue
        saved = node.saved
        if saved.__class__ is not tuple:
            saved = _restored(node)
        op = node.op
        results: Any = None
        if bare and op.pull_arrays is not None:
            results = _on_arrays(node, g, edges)
        if results is not None:
            pass
        elif g.__class__ is ndarray:
            results = pullback(node, wrap(g), edges, create_graph)
        elif modes:
            results = _within(modes, node, g, edges, create_graph)
        elif g.__class__ is Tensor and op.pullback is None:  # `pullback`, written out
            results = op.pull(g, saved_values(node, create_graph) if saved else saved, node.attrs, edges)
        else:
            results = pullback(node, g, edges, create_graph)
        if not retain and op.keeps_arrays:
            node.saved = FREED
        specs = node.specs
        if specs is not None:
            results = _fitted(results, specs, edges)
        for edge, gi in zip(edges, results):
            if edge is None or gi is None:
                continue
            if edge in grads:
                grads[edge] = _plus(grads[edge], gi)
            else:
                grads[edge] = gi
                if edge.__class__ is Leaf:
                    leaves.append(edge)
                else:
                    push(queue, (-edge.seq, edge))
    taken = {id(g._data) for g in seeds if g.__class__ is Tensor}
    for leaf in leaves:
        g = grads.pop(leaf)
        if g.__class__ is ndarray:
            g = wrap(g)
        if leaf.hooks and (beyond or wanted is None or leaf not in wanted):
            g = run_hooks(leaf.hooks, g)
        if wanted is None:
            _accumulate(leaf, g, taken)
        elif leaf in wanted:
            found[leaf] = finish(g)
    for node, g in found.items():
        found[node] = _owned(g, taken)
    return found


def _restored(node: Node) -> tuple[Any, ...]:
    """Recover the saved values of a node: recompute those of a checkpointed region; raise for a freed graph."""
    while node.saved.__class__ is not tuple:
        if node.saved is FREED:
            raise RuntimeError(
                f"backward of {node.op.title}: the graph was freed by an earlier backward. "
                "Pass `retain_graph=True` to the first backward if you need a second one."
            )
        node.saved.restore(node)  # nested regions take one step per level
    return node.saved


def _fitted(results: Sequence[Any], specs: Sequence[Any], edges: tuple[Any, ...]) -> list[Any]:
    """Gradients in the shapes and dtypes that the inputs had before they were broadcast and promoted."""
    fitted = []
    for g, spec, edge in zip(results, specs, edges, strict=True):
        if g is not None and edge is not None:
            if g.shape != spec.shape or g.dtype != spec.dtype or not is_known(spec.shape):
                g = fit(wrap(g) if g.__class__ is ndarray else g, spec)
        fitted.append(g)
    return fitted


def _owned(g: Any, taken: set[int]) -> Any:
    """`g` in unshared, writeable memory. The same array may have reached several places (add passes its gradient through),
    and it may be a read-only view (the gradient of a sum)."""
    if g.__class__ is not Tensor:
        return g
    if g._data.__class__ is not ndarray:
        graph = getattr(getattr(g._data, "node", None), "graph", None)
        if graph is not None and graph.is_lazy:
            if id(g._data) in taken or getattr(g, "_view", None) is not None:
                g = graph.twin(g)
            taken.add(id(g._data))
        return g
    data = g._data
    if id(data) in taken:
        g = wrap(data.copy(), g._node)
    elif data.base is not None:
        g = ops().own(g)
    taken.add(id(g._data))
    return g


def _within(
    modes: tuple[define.Mode, ...], node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool
) -> Sequence[Any]:
    """`pullback` within `modes`, the innermost of which is asked first."""
    if not modes:
        return pullback(node, g, edges, create_graph)
    return modes[-1].around_backward(node, lambda: _within(modes[:-1], node, g, edges, create_graph))


def _on_arrays(node: Node, g: Any, edges: tuple[Any, ...]) -> Any:
    """The rules of `node.op` on bare arrays, or None where that is not possible."""
    if g.__class__ is Tensor:
        g = g._data
    if g.__class__ is not ndarray or g.size >= define.NATIVE_MIN_ELEMENTS:
        return None
    dtype = g.dtype
    if dtype is not F32 and dtype is not F64:
        return None
    for value in node.saved:
        if value.__class__ is ndarray:
            if value.dtype is not dtype or value.size >= define.NATIVE_MIN_ELEMENTS:
                return None
            key = id(value) if value.base is None else id(memory_of(value))
            if key in mutations and mutations[key][-1].clock > node.seq:
                return None  # perhaps stale: the general path checks
        elif value.__class__ not in _NON_ARRAY_TYPES:
            return None
    try:
        results = node.op.pull_arrays(g, node.saved, node.attrs, edges)  # type: ignore[misc]
    except Exception:  # a NumPy warning raised as an error by the user: the tensor path computes without warnings
        return None
    if not g.ndim:  # NumPy turns results without axes into scalars
        return [None if r is None else np.asarray(r) for r in results]
    return results


def _plus(a: Any, b: Any) -> Any:
    """The sum of two gradients, of which none, one or both are row-sparse or bare arrays."""
    if a.__class__ is ndarray or b.__class__ is ndarray:
        if a.__class__ is b.__class__ and a.dtype is b.dtype:
            return np.asarray(a + b)
        a, b = (wrap(v) if v.__class__ is ndarray else v for v in (a, b))
    return b + a if a.__class__ is Tensor and b.__class__ is not Tensor else a + b


def pullback(node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Sequence[Any]:
    """Apply the gradient rules of `node.op`: gradients for the inputs with an edge, aligned with `edges`."""
    op = node.op
    if op.pullback is not None:  # a user's Function; its outputs' gradients come as a dict by index
        given = {i: dense(gi) for i, gi in g.items()} if g.__class__ is dict else dense(g)
        return op.pullback(node, given, edges, create_graph)
    if g.__class__ is dict:
        g = [_output_gradient(g.get(i), spec, op.fills) for i, spec in enumerate(node.outputs)]
    elif g.__class__ is not Tensor:
        g = dense(g)
    return op.pull(g, saved_values(node, create_graph) if node.saved else (), node.attrs, edges)  # type: ignore[misc]


def _output_gradient(g: Any, spec: Spec, fill: bool) -> Any:
    """The gradient of one of several outputs: zeros (or None) if it is unused, None if its dtype has no gradient."""
    if g is None:
        return ops().zeros_like_spec(spec) if fill and dtypes.is_inexact(spec.dtype) else None
    return dense(g)


def saved_values(node: Node, create_graph: bool) -> list[Any]:
    """The saved values of `node` as its rules expect them: tensors, linked to the tape again for higher order."""
    values = _saved_tensors(node, create_graph)
    # every node that saved short floats has specs, see Note [Short floats]
    return widened(values) if node.specs is not None and node.op.widens else values


def _saved_tensors(node: Node, create_graph: bool) -> list[Any]:
    op = node.op
    if create_graph or not op.plain_saves:
        return [
            _unwrap(node, item, value, create_graph) for item, value in zip(op.saved_items, node.saved, strict=True)
        ]
    values = []
    for value in node.saved:
        if value.__class__ is ndarray:
            key = id(value) if value.base is None else id(memory_of(value))
            if key in mutations and mutations[key][-1].clock > node.seq:
                return [_unwrap(node, item, v, False) for item, v in zip(op.saved_items, node.saved, strict=True)]
            tensor = _new(Tensor)
            tensor._data = value
            tensor._node = None
            values.append(tensor)
        elif value.__class__ in _NON_ARRAY_TYPES:
            values.append(value)
        else:
            values.append(_unwrap(node, op.saved_items[len(values)], value, False))
    return values


def _unwrap(node: Node, item: tuple[str, int, int], value: Any, create_graph: bool) -> Any:
    """A saved value as the rule expects it: a tensor, linked to the tape again for higher order."""
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
    return _conjugate(dense(g))


def _conjugate(g: Any) -> Any:
    return ops().conj(g) if dtypes.is_complex(g.dtype) else g


def run_hooks(hooks: list[Any], g: Any) -> Any:
    for hook in list(hooks):
        replaced = hook(_finish(g))
        if replaced is not None:
            if not isinstance(replaced, Tensor) or replaced.shape != g.shape:
                raise ValueError(
                    f"hook: expected None or a gradient of shape {format_shape(g.shape)}. Got {describe(replaced)}."
                )
            g = _conjugate(replaced)
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
        g = _owned(g, taken)
        if current_grad_hook() is None:
            tensor._grad = g  # what the property does, but for its checks
        else:
            tensor.grad = g
    else:
        tensor.grad = have + g
    if leaf.after:
        for hook in list(leaf.after):
            hook(tensor)
