"""Routing ops, the dataflow form of control flow in declared graphs: `switch`, `merge`, `enter`, `exit`, `next_iteration`.

Note [Dead tokens]. A value travels along an edge as a token. `switch(data, pred)` sends a live token to the port of the
branch taken and a *dead* one to the other. A node with a dead input does not run and sends dead tokens on. `merge` is not
strict: it runs as soon as one live token comes, and is dead only if all are. `enter` moves a token into a frame (a loop),
`next_iteration` into the next iteration of it, `exit` out of it; a dead token ends at `next_iteration`, which is how a loop
stops. Tokens carry their frame and iteration, so iterations may overlap.

A graph is acyclic except for edges that `next_iteration` makes, so a cycle without it cannot be built. Mixing values of
different frames in one node is an error when the node is made. `cond`, `while_loop` and `scan` are the structured forms;
prefer them: they compile. Routing ops are run node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...autograd.tape import Node as TapeNode
from ...autograd.tape import grad_mode
from ...errors import describe, format_shape, user_location
from ...ops.core.spec import Spec, is_known, spec_of
from ...tensor import Tensor, wrap
from ..graph import Node, Value
from .building import DeclaredGraph, GraphOp, get_default_graph


class RoutingOp(GraphOp):
    """A routing op. The token engine runs it by sending its tokens on."""

    rules = joint_rule = pull_arrays = None
    keeps_arrays = False
    saved_items: tuple[Any, ...] = ()

    def __init__(self, name: str, frame: str = "", is_constant: bool = False) -> None:
        super().__init__(name)
        self.routes = name
        self.frame, self.is_constant = frame, is_constant
        self.backward: Any = None

    def pullback(self, node: Any, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Any:
        if self.backward is None:
            raise RuntimeError(
                f"gradients: a loop built from routing ops ({self.name}) has no gradient. Use `wf.while_loop` or `wf.scan`."
            )
        grads = [g.get(i) for i in range(len(node.outputs))] if isinstance(g, dict) else [g]
        return self.backward(grads)


def frame_of(node: Node) -> tuple[str, ...]:
    return node.graph.frames.get(node, ()) if isinstance(node.graph, DeclaredGraph) else ()


def _symbolic(name: str, x: Any) -> Tensor:
    if hasattr(x, "__weft_tensor__"):
        x = x.__weft_tensor__()
    if not isinstance(x, Tensor):
        x = Tensor(x)
    if not isinstance(x._data, Value):
        x = wrap(get_default_graph().operand(x))
    if not isinstance(x._data.node.graph, DeclaredGraph):
        raise TypeError(
            f"{name}: only for tensors of a declared graph. In captured functions use `wf.cond` and `wf.while_loop`."
        )
    return x


def _node(op: RoutingOp, tensors: Sequence[Tensor], specs: Sequence[Spec], backward: Any = None) -> list[Tensor]:
    graph = tensors[0]._data.node.graph
    node = graph.add(op, [graph.operand(t) for t in tensors], (), specs, user_location(2), op.name)
    results = [wrap(v) for v in node.outputs]
    if grad_mode.enabled and any(t._node is not None for t in tensors):
        edges, outputs = tuple([t._node for t in tensors]), tuple([spec_of(v) for v in node.outputs])
        entry = TapeNode(op, edges, where=node.where, outputs=outputs)
        op.backward = backward(results) if backward is not None else None
        entry.link(results)
    return results


def switch(data: Any, pred: Any) -> tuple[Tensor, Tensor]:
    """Send `data` to one of two ports, (false, true), by the bool `pred`; the other port gets a dead token.

    >>> with wf.Graph().as_default() as graph:
    ...     x, pred = wf.placeholder(wf.float32, ()), wf.placeholder(wf.bool, ())
    ...     no, yes = wf.switch(x, pred)
    ...     y, index = wf.merge(-no, yes * 10)
    >>> with wf.Session(graph) as sess:
    ...     sess.run(y, {x: 2.0, pred: True}).item()
    20.0
    """
    data, pred = _symbolic("switch", data), _symbolic("switch", pred)
    if pred.dtype != dtypes.bool_ or pred._data.size not in (1, None):
        raise TypeError(f"switch: pred must be one bool. Got {describe(pred)}.")
    spec = Spec(data.shape, data.dtype)

    def backward(results: list[Tensor]) -> Any:
        ports = [r.detach() for r in results]

        def pull(g: list[Any]) -> list[Any]:
            from ...ops.array.creation import filled_like

            # zeros like an unused port carry its liveness
            sides = [filled_like(p, 0, p.dtype) if gi is None else gi for p, gi in zip(ports, g, strict=True)]
            return [merge(*sides)[0], None]

        return pull

    no, yes = _node(RoutingOp("switch"), [data, pred], [spec, spec], backward)
    return no, yes


def merge(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Return (value, index) of the first live input. In a loop: `merge(entered)`, closed by `next_iteration`."""
    if not inputs:
        raise ValueError("merge: expected at least one input. Got none.")
    tensors = [_symbolic("merge", x) for x in inputs]
    if len({t.dtype for t in tensors}) > 1:
        raise TypeError(f"merge: inputs must have one dtype. Got {[t.dtype.name for t in tensors]}.")
    shapes = [t.shape for t in tensors]
    shape: Any = shapes[0]
    for s in shapes[1:]:
        if shape is None or s is None or len(shape) != len(s):
            shape = None
        else:
            shape = tuple([a if a == b else None for a, b in zip(shape, s, strict=True)])
    if len(tensors) == 1 and tensors[0]._data.node.op.routes != "enter":
        raise ValueError("merge: one input is only for loops, where it must come from `enter`.")

    def backward(results: list[Tensor]) -> Any:
        if len(tensors) == 1:
            return None
        index = results[1].detach()

        def pull(g: list[Any]) -> list[Any]:
            return [None if g[0] is None else switch(g[0], index == i)[1] for i in range(len(tensors))]

        return pull

    value, index = _node(RoutingOp("merge"), tensors, [Spec(shape, tensors[0].dtype), Spec((), dtypes.int32)], backward)
    return value, index


def enter(data: Any, frame: str, is_constant: bool = False) -> Tensor:
    """Pass `data` into the first iteration of the loop `frame`; with `is_constant`, into every iteration."""
    if not isinstance(frame, str) or not frame:
        raise ValueError(f"enter: expected the name of a frame. Got {frame!r}.")
    data = _symbolic("enter", data)
    (made,) = _node(RoutingOp("enter", frame, is_constant), [data], [Spec(data.shape, data.dtype)])
    node = made._data.node
    node.graph.frames[node] = (*frame_of(data._data.node), frame)
    return made


def exit(data: Any) -> Tensor:
    """Pass `data` out of its loop."""
    data = _symbolic("exit", data)
    frame = frame_of(data._data.node)
    if not frame:
        raise ValueError(
            f"exit: the tensor is not inside a frame; `enter` it first. It was made at {data._data.node.where}."
        )
    (made,) = _node(RoutingOp("exit"), [data], [Spec(data.shape, data.dtype)])
    made._data.node.graph.frames[made._data.node] = frame[:-1]
    return made


def next_iteration(data: Any, into: Tensor) -> Tensor:
    """Send `data` to the next iteration, where the loop's `merge` (with the value `into`) receives it."""
    data, into = _symbolic("next_iteration", data), _symbolic("next_iteration", into)
    node, target = data._data.node, into._data.node
    if target.op.routes != "merge" or len(target.inputs) != 1:
        raise ValueError(
            f"next_iteration: `into` must be the value of a loop's `merge(entered)`, not closed yet. Got {into!r}."
        )
    if not frame_of(node) or frame_of(node) != frame_of(target):
        raise ValueError(
            f"next_iteration: data and merge must be in the same frame. Got {'/'.join(frame_of(node)) or 'none'} and "
            f"{'/'.join(frame_of(target)) or 'none'}. Data was made at {node.where}."
        )
    if data.dtype != into.dtype:
        raise TypeError(f"next_iteration: the loop's value is {into.dtype.name}. Got {data.dtype.name}.")
    if is_known(data.shape) and is_known(into.shape) and data.shape != into.shape:
        raise ValueError(
            f"next_iteration: the loop's value has shape {format_shape(into.shape)}. Got {format_shape(data.shape)}."
        )
    (made,) = _node(RoutingOp("next_iteration"), [data], [Spec(data.shape, data.dtype)])
    target.inputs = (*target.inputs, made._data)
    return made


def has_routing(nodes: Sequence[Node]) -> bool:
    return any(isinstance(n.op, RoutingOp) for n in nodes)
