"""`wf.function(inputs, outputs, updates=…, givens=…)`: a function of a declared graph, as in Theano.

Outputs and new values are computed from the old values of all variables; then the updates are stored. A given replaces a
tensor of the graph by another expression: what depends on it is declared once more, with the replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...autograd.tree import flatten
from ...errors import describe
from ...tensor import Tensor, wrap
from ..graph import Node, Value
from .building import DeclaredGraph, constant, control_dependencies
from .variables import assign_node


def declared_function(
    inputs: Sequence[Any], outputs: Any = None, updates: Any = None, givens: Any = None
) -> Callable[..., Any]:
    """A function of the values of `inputs` that returns the values of `outputs` and carries out `updates`.

    Args:
        inputs: symbolic tensors, usually placeholders.
        outputs: a symbolic tensor, a Variable, or any nesting of them; None for a function of its updates only.
        updates: pairs, or a dict, of a Variable (or eager tensor) and the symbolic tensor that it becomes.
        givens: pairs, or a dict, of a symbolic tensor and what takes its place: a symbolic tensor, a Variable or a value.
    """
    pairs = _pairs("updates", updates)
    graph = _graph_of([inputs, outputs, [new for _, new in pairs]])
    targets = [graph_value(graph, new, "updates") for _, new in pairs]
    leaves, _ = flatten(outputs)
    found = [graph_value(graph, x, "outputs") for x in leaves]
    replaced = {graph_value(graph, old, "givens"): new for old, new in _pairs("givens", givens)}
    if replaced:
        with graph.as_default():
            moved = _replaced(graph, [*found, *targets], replaced)
        found, targets = moved[: len(found)], moved[len(found) :]
    with graph.as_default(), control_dependencies([v.node for v in (*found, *targets)]):
        stores = [_store(graph, old, new) for (old, _), new in zip(pairs, targets, strict=True)]
    return _callable(graph, list(inputs), outputs, found, stores)


def _callable(graph: DeclaredGraph, inputs: list[Any], outputs: Any, found: list[Value], stores: list[Node]) -> Any:
    from ...autograd.tree import unflatten
    from ..execute.session import Session

    _, structure = flatten(outputs)
    step = Session(graph).make_callable([*[wrap(v) for v in found], *stores], inputs)

    def call(*args: Any, timeout: float | None = None) -> Any:
        values = step(*args, timeout=timeout)
        return None if outputs is None else unflatten(structure, values[: len(found)])

    return call


def _store(graph: DeclaredGraph, old: Any, new: Value) -> Node:
    memory = getattr(old, "tensor", old)
    if not isinstance(memory, Tensor) or memory.is_symbolic:
        raise TypeError(f"function: an update writes a wf.Variable or an eager tensor. Got {describe(old)}.")
    return assign_node(graph, memory, wrap(new))


def _pairs(name: str, given: Any) -> list[tuple[Any, Any]]:
    """Pairs, from a dict or from a sequence of pairs."""
    items = list(given.items()) if isinstance(given, Mapping) else list(given or ())
    for item in items:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise TypeError(
                f"function: {name} must be a dict or a list of pairs, `[(variable, new)]`. Got {describe(item)}."
            )
    if len({id(getattr(old, "tensor", old)) for old, _ in items}) != len(items):
        raise ValueError(f"function: {name} name a tensor twice.")
    return [(old, new) for old, new in items]


def _graph_of(tree: Any) -> DeclaredGraph:
    for x in flatten(tree)[0]:
        data = getattr(x, "_data", None)
        if isinstance(data, Value) and isinstance(data.node.graph, DeclaredGraph):
            return data.node.graph
        if isinstance(getattr(x, "graph", None), DeclaredGraph):
            graph: DeclaredGraph = x.graph
            return graph
    raise TypeError(
        "function: a list of inputs belongs to a declared graph, `wf.function([x], y)` with `x = wf.placeholder(…)`. To capture "
        "Python code pass the function itself, `wf.function(step)`."
    )


def graph_value(graph: DeclaredGraph, x: Any, what: str) -> Value:
    """The value of a symbolic tensor, Variable, eager tensor or number in `graph`."""
    if hasattr(x, "__weft_tensor__"):
        with graph.as_default():
            x = x.__weft_tensor__()
    if isinstance(x, Tensor):
        value = x._data if isinstance(x._data, Value) else graph.outside(x)
        if isinstance(value, Value):
            if value.node.graph is not graph:
                raise ValueError(f"function: {what} hold a tensor of another graph, {value.node.graph.name!r}.")
            return value
    raise TypeError(f"function: {what} must be tensors of the graph or Variables. Got {describe(x)}.")


def _replaced(graph: DeclaredGraph, targets: Sequence[Value], given: Mapping[Value, Any]) -> list[Value]:
    """The values of `targets` after the replacements; nodes that depend on none of them are shared."""
    from ..execute.executor import needed_nodes

    now: dict[Value, Value] = {}
    for old, new in given.items():
        known = isinstance(new, Tensor) or hasattr(new, "__weft_tensor__")
        value = graph_value(graph, new if known else constant(new, dtype=old.dtype), "givens")
        if value.dtype != old.dtype:
            raise TypeError(
                f"function: a given must keep the dtype of what it replaces, {old.name!r}. Got {value.dtype.name}; expected "
                f"{old.dtype.name}: write `.astype(wf.{old.dtype.name})`."
            )
        now[old] = value
    copies: dict[Node, Node] = {}
    for node in needed_nodes([v.node for v in targets], set(given)):
        inputs = [now.get(v, v) if isinstance(v, Value) else v for v in node.inputs]
        control = tuple([copies.get(n, n) for n in node.control])
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) and control == tuple(node.control):
            continue
        copy = graph.add(
            node.op, inputs, node.attrs, node.outputs, node.where, node.name
        )  # an output has shape and dtype
        copy.control, copy.device = control, node.device
        copies[node] = copy
        now.update(zip(node.outputs, copy.outputs, strict=True))
    for write, causes in list(graph.updates.items()):  # in-place writes of modules that were declared again
        if write in copies:
            graph.updates[copies[write]] = tuple([copies.get(c, c) for c in causes])
    return [now.get(v, v) for v in targets]
