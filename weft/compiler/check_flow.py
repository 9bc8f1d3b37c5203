"""Structural checks of flows: the invariants that every pass must preserve.

%a = exp(%x); %b = add(%a, %c)      rejected if %c is defined later, or in another flow
%a: float32[3] = exp(%x: float32[2])    rejected: exp of two elements has two

With `WEFT_VALIDATE=1` the flow is checked after every pass, and an error names the pass that broke it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import format_shape
from ..graph.graph import CONSTANT, PLACEHOLDER, Node, Source, Value
from ..ops.core.spec import Spec, same_size
from .flow import Flow


def check_flow(flow: Flow, after: str = "") -> Flow:
    """Return `flow` if it is well formed.

    Raises:
        ValueError: nodes are out of order, a value comes from another flow, or a shape or dtype is not the one that the
            op's own rule gives for its inputs. The message names the pass (`after`), the node and the user's line.
    """
    made: set[Value] = set()
    names: set[str] = set()
    for position, node in enumerate(flow.nodes):
        if node.graph is not flow:
            _fail(flow, after, node, "belongs to another graph")
        if node.order != position:
            _fail(flow, after, node, f"says it is node {node.order}, but it is node {position}")
        if node.name in names:
            _fail(flow, after, node, "has the name of another node")
        names.add(node.name)
        for value in node.inputs:
            if isinstance(value, Value) and value not in made:
                _fail(flow, after, node, f"reads {value!r}, which no earlier node of the flow makes")
        for index, value in enumerate(node.outputs):
            if value.node is not node or value.index != index:
                _fail(flow, after, node, f"holds {value!r} as output {index}, which belongs elsewhere")
        _check_specs(flow, after, node)
        made.update(node.outputs)
    for value in flow.inputs:
        if value not in made or value.node.op is not PLACEHOLDER:
            _fail(flow, after, value.node, "is an input of the flow, but no placeholder in it")
    for value in flow.outputs:
        if value not in made:
            _fail(flow, after, value.node, "is returned, but not made in the flow")
    return flow


def _check_specs(flow: Flow, after: str, node: Node) -> None:
    """The outputs have the shapes and dtypes that the op's rule infers from the inputs."""
    op = node.op
    if op is CONSTANT:
        array = node.attrs[0]
        expected: Any = Spec(array.shape, array.dtype)
    elif isinstance(op, Source) or getattr(op, "infer", None) is None:
        return
    else:
        try:
            expected = op.run(op.infer, op.merge(node.inputs, node.attrs))
        except (TypeError, ValueError, IndexError) as error:
            _fail(flow, after, node, f"is refused by its own shape rule ({error})")
    specs = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    if len(specs) != len(node.outputs):
        _fail(flow, after, node, f"has {len(node.outputs)} outputs where its shape rule gives {len(specs)}")
    for spec, value in zip(specs, node.outputs, strict=True):
        if not _agree(spec.shape, value.shape) or spec.dtype != value.dtype:
            wanted = f"{spec.dtype.name}{format_shape(spec.shape)}"
            _fail(flow, after, node, f"makes {value!r} where its shape rule gives {wanted}")


def _agree(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(same_size(p, q) for p, q in zip(a, b, strict=True))


def _fail(flow: Flow, after: str, node: Node, problem: str) -> NoReturn:
    when = f" after {after}" if after else ""
    raise ValueError(f"flow {flow.name}{when}: node {node.name} ({node.op.name}) {problem}. Made at {node.where}.")
