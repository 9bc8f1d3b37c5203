"""Subgraphs: the branches and bodies of structured control flow, traced like captured functions.

A subgraph has formal inputs, and captures by identity every tensor of the surrounding program that it uses: symbolic
ones and outside ones alike become further inputs of the control-flow node. Writes to outside tensors are undone after
tracing; `effects` and `writes` list them, so that control flow can return them as results (see
`weft.graph.capture.effects`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...autograd.tree import flatten, unflatten
from ...errors import user_location
from ...ops.core.define import View, current_modes
from ...ops.core.inplace import LeafWriteError, ReadOnlyError, check_writeable
from ...ops.core.recording import DETACHED
from ...ops.internal import deferred_tables
from ...tensor import Tensor, wrap
from ..graph import PLACEHOLDER, Node, Value
from .tracing import Capture, CapturedGraph, CaptureError, Gradients, Uncapturable, beyond, capturing

ndarray = np.ndarray
MAX_NESTING = 64  # of branches and bodies in each other: tracing and compiling them are recursive


def sizes(tensor: Any) -> Any:
    """The shape of a tensor as a tuple, or None if its rank is not known."""
    return None if tensor.shape is None else tuple(tensor.shape)


def refuse_batched(what: str, values: Sequence[Any]) -> None:
    """Raise if a tensor that enters or leaves a branch or body stands for a batch, inside `vmap`."""
    if any(hasattr(v._data, "level") for v in values if isinstance(v, Tensor)):
        if in_function():
            raise Uncapturable("it maps a branch or loop with `vmap`", "Call `vmap` inside of the branch or loop body.")
        raise CaptureError(
            f"{what}: a branch or loop of a declared graph cannot be mapped with vmap. Call `vmap` inside of its body."
        )


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
        self._finals: dict[int, tuple[Tensor, Value]] = {}  # array -> an outside tensor on it and its value now
        self.outputs: list[Value] = []
        mode = capturing()
        if mode is not None and mode.graph.separates:
            self.families, self.entangled = mode.graph.families, mode.graph.entangled
            self.strides, self.alive = mode.graph.strides, mode.graph.alive

    def outside(self, tensor: Tensor) -> Value:
        if type(tensor._data) is ndarray and id(tensor._data) in self._finals:
            return self._finals[id(tensor._data)][1]
        found = self._found.get(id(tensor))
        if found is None:
            found = self._found[id(tensor)] = self.placeholder(sizes(tensor), tensor.dtype, "captured")
            self.copy_layout(tensor._data, found)
            self.captured.append(tensor)
            self.entries.append(found)
        return found

    def add(self, *args: Any, **kwargs: Any) -> Node:
        from ..declared.building import stamp

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
        if isinstance(tensor, Tensor) and isinstance(tensor._data, Value) and tensor._data.node.graph is not self:
            if getattr(tensor._data.node.graph, "finished", False):
                self.foreign(tensor._data)
            return self.outside(tensor)
        return super().operand(tensor)

    def is_outer(self, x: Tensor) -> bool:
        return type(x._data) is ndarray or x._data.node.graph is not self

    def assign(self, x: Tensor, value: Tensor) -> None:
        if not in_function():
            raise CaptureError(
                f"{self.name}: a tensor from outside is written in place inside a branch or loop body. "
                "Return the new value instead and write it outside, for example `x.copy_(wf.cond(...))`."
            )
        check_writeable("in-place", x)
        if deferred_tables.table_of(x) is not None:
            raise Uncapturable("a branch or loop body writes to a table whose rows are updated late", "")
        self.hold_value(x, value._data)

    def hold_value(self, x: Tensor, value: Value) -> None:
        self._finals[id(x._data)] = (x, value)

    def assigned(self) -> Any:
        return dict(self._finals)

    def assign_again(self, values: Any) -> None:
        self._finals = values

    def effects(self) -> list[Tensor]:
        """The tensors from outside that were written; of those that share memory the one that the others are views of."""
        found: dict[int, Tensor] = {}
        for x, data, node in self.touched.values():
            if type(data) is ndarray:
                if id(data) in self._finals:
                    found.setdefault(id(data), x)
            elif getattr(x, "_view", None).__class__ is not View:
                found[id(x)] = x
            elif x._view.cut is DETACHED and x._node is not node:
                raise Uncapturable("a branch or loop body writes to a detached tensor and records it", "")
        return list(found.values())


class SubCapture(Capture):
    """The mode that records into a subgraph."""

    def __init__(self, name: str) -> None:
        self.graph: SubGraph = SubGraph(name)
        self.gradients = _BranchGradients(threading.get_ident())


class _BranchGradients(Gradients):
    """`.grad` inside a branch or body: that of the surrounding function, which must not change there."""

    def __init__(self, thread: int) -> None:
        mode = capturing()
        self._outer = mode.gradients if mode is not None else None
        super().__init__(thread)

    def get(self, tensor: Tensor) -> Any:
        if self._outer is not None and id(tensor) not in self.changed:
            return self._outer.get(tensor)
        return super().get(tensor)

    def set(self, tensor: Tensor, value: Any) -> None:
        if threading.get_ident() == self.thread and self._outer is not None and in_function():
            if not _is_inner(tensor):
                raise Uncapturable("a branch or loop body sets `.grad` of a tensor from outside", "")
        super().set(tensor, value)

    def relink(self, tensor: Tensor, node: Any) -> None:
        if threading.get_ident() == self.thread and in_function() and not _is_inner(tensor):
            raise Uncapturable("a branch or loop body changes `requires_grad` of a tensor from outside", "")

    def hook(self, what: str, tensor: Tensor) -> None:
        """Hooks on tensors that the body computes from others that require gradients are traced with its gradient. Whether
        an iteration's state requires gradients is not known, and tensors from outside have hooks in the iterations and
        branches only that run."""
        mode = capturing()
        if threading.get_ident() != self.thread or mode is None:
            return
        data, graph = tensor._data, mode.graph
        made_here = type(data) is Value and data.node.graph is graph and data.node.op is not PLACEHOLDER
        if tensor._node is not None and made_here and id(tensor) not in graph.touched:
            self._mark_hooked()
            return
        where = user_location(2)
        if in_function():
            raise Uncapturable(
                f"a branch or loop body calls `{what}` on its state, a value of it or a tensor from outside at {where}",
                "",
            )
        raise CaptureError(
            f"{what}: a branch or loop body of a declared graph cannot give its state or a tensor from outside a gradient hook. "
            f"At {where}. Register it outside of the body, or change the gradient with a `wf.autograd.Function`."
        )

    def _mark_hooked(self) -> None:
        self.hooked_bodies = True
        if isinstance(self._outer, _BranchGradients):
            self._outer._mark_hooked()
        elif self._outer is not None:
            self._outer.hooked_bodies = True

    def differentiate(self) -> None:
        super().differentiate()
        if self._outer is not None:
            self._outer.differentiate()


def _is_inner(tensor: Tensor) -> bool:
    """Whether `tensor` was made in a branch or body."""
    return type(tensor._data) is Value and isinstance(tensor._data.node.graph, SubGraph)


class Sub:
    """A traced function: its graph, formal inputs, and the structure of its results."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        formals: Sequence[Any],
        structure: Any = None,
        operands: Sequence[Any] | None = None,
    ) -> None:
        """Trace `fn` on stand-ins for `formals` (tensors, whose values do not matter); `structure` rebuilds its arguments.

        The stand-ins have the memory layouts of `operands`, which are the formals by default.
        """
        capture = SubCapture(name)
        self.graph: SubGraph = capture.graph
        if sum(isinstance(mode, SubCapture) for mode in current_modes()) >= MAX_NESTING:
            raise CaptureError(
                f"{name}: branches and loops are nested deeper than {MAX_NESTING} levels. Both branches of an `if` on a tensor "
                "are traced, so a recursion that ends when a tensor says so never ends; write `wf.while_loop` instead, or "
                "`wf.case` and `wf.where` for many cases."
            )
        try:
            with capture:
                stand_ins = [wrap(capture.graph.placeholder(sizes(t), t.dtype, "formal")) for t in formals]
                self.formals = [t._data for t in stand_ins]
                for formal, t in zip(self.formals, formals if operands is None else operands, strict=False):
                    if isinstance(t, Tensor):
                        capture.graph.copy_layout(t._data, formal)
                result = fn(*stand_ins) if structure is None else fn(*unflatten(structure, stand_ins))
                leaves, self.structure = flatten(result)
                refuse_batched(name, leaves)
                self.static = [None if isinstance(v, (Tensor, int, float, bool)) else v for v in leaves]
                self.sources = [_source(leaf, stand_ins) for leaf in leaves]
                for leaf in leaves:
                    if not isinstance(leaf, Tensor):
                        if not isinstance(leaf, (int, float, bool)):
                            raise CaptureError(
                                f"{name}: a branch or body must return tensors and numbers. Got {type(leaf).__name__}."
                            )
                        leaf = capture.constant(Tensor(leaf)._data)
                    self.graph.outputs.append(capture.graph.operand(leaf))
                self.writes = [
                    i for i, (t, v) in enumerate(zip(stand_ins, self.formals, strict=True)) if t._data is not v
                ]
                self.effects = self.graph.effects()
                recorded = self.graph.recorded
                self.recorded_writes = {i for i in self.writes if id(stand_ins[i]) in recorded}
                self.recorded_effects = {id(e) for e in self.effects if id(e) in recorded}
                del stand_ins, result, leaves
        except (LeafWriteError, ReadOnlyError) as error:
            if not in_function():
                raise
            raise Uncapturable(  # the branch may not be taken: then nothing is wrong
                "a branch or loop body writes to a tensor that cannot be written to", str(error)
            ) from error
        finally:
            self.graph.restore()
            self.graph.touched.clear()
            self.graph.finished = True
            if (mode := capturing()) is not None and mode.graph.separates:
                mode.graph.layouts_matter |= self.graph.layouts_matter
                mode.graph.has_writes |= self.graph.has_writes

    @property
    def outputs(self) -> list[Value]:
        return self.graph.outputs

    @property
    def captured(self) -> list[Tensor]:
        return self.graph.captured


def _source(leaf: Any, stand_ins: Sequence[Tensor]) -> Any:
    """The tensor whose memory a result of a branch or body shares: (number of a formal or an outside tensor, whether it is
    that tensor itself), or None for new memory."""
    if not isinstance(leaf, Tensor):
        return None
    view = getattr(leaf, "_view", None)
    base = view.base if view.__class__ is View and type(leaf._data) is not ndarray else leaf
    for i, t in enumerate(stand_ins):
        if base is t:
            return i, leaf is t
    mode = capturing()
    if mode is not None and (
        type(base._data) is ndarray or id(base) in mode.graph.touched or mode.graph.is_outer(base)
    ):
        return base, leaf is base
    return None


def after(tensor: Tensor) -> Any:
    """A place on the tape just after `tensor`: gradients with respect to it are partial ones, and being linked to the
    tensor's own place they can be differentiated again."""
    return beyond(tensor)


class cut:
    """While entered, `tensors` have separate nodes on the tape, so that gradients with respect to them are partial."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)

    def __enter__(self) -> None:
        self._nodes = [t._node for t in self._tensors]
        for t in self._tensors:
            t._node = after(t)

    def __exit__(self, *_: Any) -> None:
        for t, node in zip(self._tensors, self._nodes, strict=True):
            t._node = node
