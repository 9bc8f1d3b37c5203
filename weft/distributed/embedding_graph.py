"""Look-ups and updates of a sharded table as nodes of declared graphs. They run in the process that has the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import user_location
from ..graph.declared.building import DeclaredGraph, GraphOp, leaf, stay_with
from ..graph.graph import Node, Value
from ..ops.core.spec import Spec
from ..tensor import Tensor, wrap

if TYPE_CHECKING:
    from .embedding import Embedding


class PullOp(GraphOp):
    """Fetches rows of a table."""

    effects = frozenset(("reads", "host"))

    def __init__(self, table: Embedding) -> None:
        super().__init__("embedding_pull")
        self.table = table

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return (self.table.pull(np.asarray(arrays[0]))._data,)


class PushOp(GraphOp):
    """Updates rows of a table."""

    effects = frozenset(("writes", "host"))

    def __init__(self, table: Embedding) -> None:
        super().__init__("embedding_push")
        self.table = table

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        self.table.push(np.asarray(arrays[0]), np.asarray(arrays[1]))
        return ()


def graph_of(*values: Any) -> DeclaredGraph | None:
    """The declared graph that one of the values belongs to."""
    for value in values:
        data = getattr(value, "_data", None)
        if isinstance(data, Value) and isinstance(data.node.graph, DeclaredGraph):
            return data.node.graph
    return None


def add_pull(graph: DeclaredGraph, table: Embedding, x: Tensor) -> Tensor:
    """A node that fetches rows; gradients can be asked for with respect to its result."""
    shape = None if x.shape is None else (*x.shape, table.embedding_dim)
    node = graph.add(PullOp(table), [x._data], (), [Spec(shape, table.dtype)], user_location(2), "embedding_pull")
    stay_with(node, None)
    return leaf(wrap(node.outputs[0]))


def add_push(graph: DeclaredGraph, table: Embedding, x: Any, gradients: Any) -> Node:
    """A node that updates rows."""
    inputs = [graph.operand(v) if isinstance(v, Tensor) else graph.constant(np.asarray(v)) for v in (x, gradients)]
    node = graph.add(PushOp(table), inputs, (), (), user_location(2), "embedding_push")
    stay_with(node, None)
    return node
