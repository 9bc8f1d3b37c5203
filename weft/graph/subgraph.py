"""Subgraphs: the branches and bodies of structured control flow, traced like captured functions.

A subgraph has formal inputs, and captures by identity every tensor of the surrounding program that it uses: symbolic
ones and outside ones alike become further inputs of the control-flow node. It has no side effects: writing to a tensor
from outside is refused, because nobody could say how often the write happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..autograd.tape import Leaf, tick
from ..autograd.tape import Node as TapeNode
from ..ops.dispatch import current_modes
from ..tensor import Tensor, wrap
from .capture import Capture, CapturedGraph, CaptureError, Gradients
from .graph import Node, Value
from .tree import flatten, unflatten

MAX_NESTING = 64  # of branches and bodies in each other: tracing and compiling them are recursive


def sizes(tensor: Any) -> Any:
    """The shape of a tensor as a tuple, or None if its rank is not known."""
    return None if tensor.shape is None else tuple(tensor.shape)


def in_function() -> bool:
    """Whether a function is being captured in this thread (a declared graph may have subgraphs without that)."""
    return any(type(mode) is Capture for mode in current_modes())


class SubGraph(CapturedGraph):
    """The graph of a branch or body. `captured` are the surrounding tensors it uses, `entries` their values inside."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.captured: list[Tensor] = []
        self.entries: list[Value] = []
        self._found: dict[int, Value] = {}
        self.outputs: list[Value] = []

    def outside(self, tensor: Tensor) -> Value:
        found = self._found.get(id(tensor))
        if found is None:
            found = self._found[id(tensor)] = self.placeholder(sizes(tensor), tensor.dtype, "captured")
            self.captured.append(tensor)
            self.entries.append(found)
        return found

    def add(self, *args: Any, **kwargs: Any) -> Node:
        from .declare import stamp

        node = super().add(*args, **kwargs)
        stamp(node)
        return node

    def unknown_size(self, node: Node) -> None:
        if in_function():
            super().unknown_size(node)

    @property
    def dynamic(self) -> bool:
        return not in_function()

    @property
    def open_sizes(self) -> bool:
        return not in_function()

    def operand(self, tensor: Any) -> Any:
        if (
            isinstance(tensor, Tensor)
            and isinstance(tensor._data, Value)
            and tensor._data.node.graph is not self
        ):
            if getattr(tensor._data.node.graph, "finished", False):
                self.foreign(tensor._data)
            return self.outside(tensor)
        return super().operand(tensor)

    def assign(self, x: Tensor, value: Tensor) -> NoReturn:
        raise CaptureError(
            f"{self.name}: a tensor from outside is written in place inside a branch or loop body. "
            "Return the new value instead and write it outside, for example `x.copy_(wf.cond(...))`."
        )


class SubCapture(Capture):
    """The mode that records into a subgraph."""

    def __init__(self, name: str) -> None:
        self.graph: SubGraph = SubGraph(name)
        self.gradients = Gradients(threading.get_ident())


class Sub:
    """A traced function: its graph, formal inputs, and the structure of its results."""

    def __init__(
        self, name: str, fn: Callable[..., Any], formals: Sequence[Any], structure: Any = None
    ) -> None:
        """Trace `fn` on stand-ins for `formals` (tensors, whose values do not matter); `structure` rebuilds its arguments."""
        capture = SubCapture(name)
        self.graph: SubGraph = capture.graph
        if sum(isinstance(mode, SubCapture) for mode in current_modes()) >= MAX_NESTING:
            raise CaptureError(
                f"{name}: branches and loops are nested deeper than {MAX_NESTING} levels. Use `wf.case`, `wf.where` or a "
                "loop over the levels."
            )
        with capture:
            stand_ins = [wrap(capture.graph.placeholder(sizes(t), t.dtype, "formal")) for t in formals]
            self.formals = [t._data for t in stand_ins]
            result = fn(*stand_ins) if structure is None else fn(*unflatten(structure, stand_ins))
            leaves, self.structure = flatten(result)
            self.static = [None if isinstance(v, (Tensor, int, float, bool)) else v for v in leaves]
            for leaf in leaves:
                if not isinstance(leaf, Tensor):
                    if not isinstance(leaf, (int, float, bool)):
                        raise CaptureError(
                            f"{name}: a branch or body must return tensors and numbers. Got {type(leaf).__name__}."
                        )
                    leaf = capture.constant(Tensor(leaf)._data)
                self.graph.outputs.append(capture.graph.operand(leaf))
            del stand_ins, result, leaves
        self.graph.finished = True

    @property
    def outputs(self) -> list[Value]:
        return self.graph.outputs

    @property
    def captured(self) -> list[Tensor]:
        return self.graph.captured


def after(tensor: Tensor) -> Any:
    """A place on the tape just after `tensor`: gradients with respect to it are partial ones, and being linked to the
    tensor's own place they can be differentiated again."""
    if tensor._node is None:
        return Leaf(tensor)
    from ..ops.shaping import clone

    node = TapeNode()
    node.op, node.edges, node.seq = clone.op, (tensor._node,), tick()  # type: ignore[attr-defined]
    node.saved = node.attrs = ()
    node.specs = node.hooks = node.where = node.outputs = None
    return node


class cut:
    """While entered, `tensors` have places of their own on the tape, so that gradients with respect to them are partial."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)

    def __enter__(self) -> None:
        self._nodes = [t._node for t in self._tensors]
        for t in self._tensors:
            t._node = after(t)

    def __exit__(self, *_: Any) -> None:
        for t, node in zip(self._tensors, self._nodes, strict=True):
            t._node = node
