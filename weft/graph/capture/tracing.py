"""Tracing: run an eager function once on symbolic tensors and record its ops as a graph.

Note [Capture rules].
* Tensors the function closes over become the graph's variables by identity: read when first used, written in program
  order by in-place ops; the last value is stored into the tensor's own memory when the program runs.
* An argument is a placeholder. If the function writes to it, its last value is stored into the argument's memory likewise.
* Writes are seen through every alias, as eagerly. Inside the graph views know their base (`weft.ops.core.inplace`). Memory that
  arguments and outside tensors share is found when a call begins: if the program writes to it, the call runs eagerly. So
  does a function whose effects on the caller's memory are not known at trace time (`Uncapturable`).
* `.grad` of outside tensors is state of the trace. A gradient from before the call is an argument, and whether there is one
  belongs to the signature. The final gradient is stored after the call, unless the function itself
  updates the tensor and started from None: then the gradient stays inside the program, and `.grad` is None after the call
  (`keep_grads=True` stores all).
* `requires_grad_()` and `detach_()` on arguments, outside tensors and results have the same effect on every call
  (Note [Relinking] in `weft.graph.capture.relinking`).
* State that must live outside (optimiser moments) is created with `outside()`, which suspends the capture.
* A symbolic tensor that is stored somewhere and outlives the call is an error with the line that made it.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from ...autograd.tape import Leaf, grad_mode, no_grad
from ...autograd.tape import Node as TapeNode
from ...errors import format_shape, user_location
from ...ops.core import inplace, recording
from ...ops.core.define import Mode, operand, suspended
from ...ops.core.registry import Op
from ...ops.core.spec import is_known
from ...ops.internal import deferred_tables
from ...tensor import Tensor, set_grad_hook, wrap
from ..graph import Graph, Node, Value
from .relinking import Relinks

ndarray = np.ndarray


class CaptureError(RuntimeError):
    """A function cannot be captured as it is written. The message shows the line and what to write instead."""


class GraphBreak(CaptureError):
    """Python needs a value, or does something, that a program cannot. `action` says what; `at` is the user's line."""

    def __init__(self, action: str, at: Any, message: str | None = None) -> None:
        super().__init__(message or f"{action}: cannot be part of a captured function. At {at}.")
        self.action, self.at = action, at

    def with_message(self, message: str) -> GraphBreak:
        """The same error in other words."""
        made = type(self).__new__(type(self), message)
        made.__dict__.update(self.__dict__)
        return made


class TruthError(GraphBreak):
    """`bool()` of a symbolic tensor."""


class Escaped(GraphBreak):
    """A symbolic tensor was stored outside of the function. `tensors` are all of them."""

    def __init__(self, tensors: list[Any], at: Any, message: str) -> None:
        super().__init__("a tensor is stored outside of the function", at, message)
        self.tensors = tensors


class Uncapturable(CaptureError):
    """The function's effects on its caller's memory are not known at trace time. `reason` completes "because …"."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"capture: {reason}. {advice}")
        self.reason = reason


class CapturedVariable:
    """An outside tensor in a captured graph: its value on entry and, if it was written, its last value.

    `places` are the tensors on its array that the function used (itself, and what it was detached from), each with its place
    on the tape on entry.
    """

    __slots__ = ("tensor", "entry", "final", "places")

    def __init__(self, tensor: Tensor, entry: Value) -> None:
        self.tensor, self.entry = tensor, entry
        self.final: Value | None = None
        self.places: list[tuple[Tensor, Any]] = []

    def seen(self, tensor: Tensor, node: Any) -> None:
        """Note that the function uses `tensor`, which has the array of this variable and was at `node` on entry."""
        if not any(t is tensor for t, _ in self.places):
            self.places.append((tensor, node))
            if self.tensor._node is None and tensor._node is not None:
                self.tensor = tensor


class CapturedGraph(Graph):
    """The graph of one captured call. `inputs` are the argument placeholders, `variables` the outside tensors."""

    separates = True
    may_cut = False  # whether the text of a symbolic tensor is a reason to give the trace up

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.inputs: list[Value] = []
        self.variables: list[CapturedVariable] = []
        self._by_id: dict[int, CapturedVariable] = {}
        self.finished = False
        self.alive: list[Any] = []  # weak references to symbolic tensors made during the trace
        self.held: set[int] = set()  # those that the graph itself holds on to (operands of control flow)
        self.tape_ops: list[Any] = []  # ops of the tape alone that hold on to tensors, with a method `release`
        self.links: dict[Any, bool] = {}  # whether a value (or outside array) had a gradient when it was first seen
        self.touched: dict[int, tuple[Tensor, Any, Any]] = {}  # tensors from outside that were written, as they were
        self.families: dict[int, tuple[Any, Any]] = {}  # array of an outside tensor -> (the array, views of it)
        self.strides: dict[Value, tuple[int, ...]] = {}  # of the eager array, in bytes, where it is not row-major
        self.entangled: list[
            tuple[Any, Any]
        ] = []  # weak references to tensors that may share memory, which data decide
        self.recorded: set[int] = set()  # tensors that were written while the tape recorded
        self.has_writes = False  # whether anything was written in place
        self.layouts_matter = False  # whether it depends on strides of arguments which tensors share memory
        self.relinks: Relinks | None = None  # of the function that is captured
        self.cuts: dict[Node, Any] = {}  # nodes that use a value otherwise than it was first seen, with their lines

    def hold(self, tensor: Any) -> None:
        """Remember that the graph keeps `tensor` (and the base of a view) alive."""
        self.held.add(id(tensor))
        view = getattr(tensor, "_view", None)
        if view.__class__ is recording.View:
            self.held |= {id(t) for v in view.chain() for t in (v.base, v.root)}

    def compare_links(self, operands: list[Any], result: Any) -> None:
        """Record where the tape is cut: a value that has a gradient is used as if it had none.

        That is so under `no_grad`, after `detach` and inside a Function. See `weft.graph.capture.backward`, which
        differentiates nodes.
        """
        made = [r for r in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(r, Tensor)]
        for t in operands:
            if isinstance(t, Tensor):
                linked = t._node is not None and grad_mode.enabled
                key = t._data if type(t._data) is Value else id(t._data)
                if self.links.setdefault(key, linked) != linked and made and type(made[0]._data) is Value:
                    self.cuts.setdefault(made[0]._data.node, made[0]._data.node.where)
        for r in made:
            if type(r._data) is Value:
                self.links.setdefault(r._data, r._node is not None)

    @contextlib.contextmanager
    def ignoring_cuts(self) -> Iterator[None]:
        """Context manager in which the tape may be cut, because the result is put on it as a whole."""
        links, cuts = dict(self.links), dict(self.cuts)
        try:
            yield
        finally:
            self.links, self.cuts = links, cuts

    def outside(self, tensor: Tensor) -> Value:
        # by the array, not the tensor: a tensor and what it was detached from are one variable
        data = tensor._data
        variable = self._by_id.get(id(data))
        if variable is None:
            entry = self.placeholder(data.shape, data.dtype, "variable")
            self._note_strides(entry, data)
            variable = CapturedVariable(wrap(data) if id(data) in deferred_tables.tables else tensor, entry)
            self._by_id[id(data)] = variable
            self.variables.append(variable)
        if id(data) not in deferred_tables.tables:
            variable.seen(tensor, tensor._node if self.relinks is None else self.relinks.entry(tensor))
        return variable.final if variable.final is not None else variable.entry

    def assign(self, x: Tensor, value: Tensor) -> None:
        """An in-place op gave the outside tensor `x` a new value."""
        inplace.check_writeable("in-place", x)
        table = None if deferred_tables.direct.on else deferred_tables.table_of(x)
        if table is not None:  # written as a whole, after pending row updates were applied
            table.settle(memory=False)
        self.outside(x)
        self._by_id[id(x._data)].final = value._data

    def touch(self, x: Tensor) -> None:
        """Called before the value or the place on the tape of `x` changes."""
        self.check_entangled(x)
        self.has_writes = True
        if id(x) not in self.touched and self.is_outer(x):
            self.touched[id(x)] = (x, x._data, x._node)
        if grad_mode.enabled:
            self.recorded.add(id(x))

    def is_outer(self, x: Tensor) -> bool:
        """Whether `x` was there before this graph."""
        return type(x._data) is ndarray

    def check_entangled(self, x: Tensor) -> None:
        for first, second in self.entangled:
            a, b = first(), second()
            if a is not None and b is not None and (x is a or x is b):
                raise Uncapturable(
                    "it writes to a tensor after a branch or loop from which data decide whether it comes out as the same "
                    "memory. Use `.clone()` in the branch, or compute out of place",
                    "",
                )

    def current(self, x: Tensor) -> Value:
        """The current value of `x`."""
        return self.operand(x)

    def pin(self, x: Tensor, value: Value) -> None:
        """Let `x` alone stand for `value`, until `undoing` ends."""
        if id(x) not in self.touched:
            self.touched[id(x)] = (x, x._data, x._node)
        if type(x._data) is ndarray:
            self.hold_value(x, value)
        else:
            x._data = value

    def hold_value(self, x: Tensor, value: Value) -> None:
        """Let the outside tensor `x` stand for `value` from now on."""
        self.outside(x)
        self._by_id[id(x._data)].final = value

    def assigned(self) -> Any:
        """The values of outside tensors now, for `assign_again`."""
        return {v: v.final for v in self.variables}

    def assign_again(self, values: Any) -> None:
        for v in self.variables:
            v.final = values.get(v)

    def restore(self) -> None:
        """Restore outside tensors to their state before the trace."""
        for x, data, node in self.touched.values():
            if type(data) is not ndarray:
                x._data = data
            x._node = node

    def views_of(self, base: Tensor) -> recording.Base:
        """The views of an outside tensor that this graph has made."""
        found = self.families.get(id(base._data))
        if found is None:
            found = self.families[id(base._data)] = (base._data, recording.Base())
        return found[1]

    def note_detached(self, tensor: Tensor, made: Tensor) -> None:
        if not self.finished:
            self.made(made)
            recording.link_symbolic(inplace.DETACH, tensor, (), made, recording.DETACHED)

    def is_alias(self, op: Op, data: Value, attrs: tuple[Any, ...], result: Value) -> bool:
        if not is_known(data.shape) or not is_known(result.shape) or 0 in data.shape:
            return True
        if op.name == "reshape" and attrs[1]:
            return False  # an explicit copy
        strides = self.strides.get(data)
        fake = _strided(data, strides)  # stands for the eager array; only its strides are looked at
        if op.name == "reshape":
            self.layouts_matter = True
            try:
                shown = np.reshape(fake, result.shape, copy=False)
            except ValueError:
                return False
        else:
            shown = op.run(op.fn, op.merge([fake], attrs))
        if not shown.flags.c_contiguous:
            self.strides[result] = shown.strides
        return True

    def in_layout_of(self, x: Tensor, value: Tensor) -> Tensor:
        """`value` as it is after it was written to the memory of `x`, whose layout decides what a reshape copies."""
        strides = self._strides_of(x._data)
        if self.strides.get(value._data) == strides or not self.separates:
            return value
        from ...ops.array.shaping import clone

        with no_grad():  # another value: `value` may stand for other memory, too
            written = clone(wrap(value._data))._data
        self.strides.pop(written, None)
        if strides is not None:
            self.strides[written] = strides
        return wrap(written, value._node)

    def _note_strides(self, value: Value, array: ndarray) -> None:
        if array.size and not array.flags.c_contiguous:
            self.strides[value] = array.strides

    def _strides_of(self, data: Any) -> tuple[int, ...] | None:
        """The strides of a value or outside array, None if it is row-major."""
        if type(data) is Value:
            return self.strides.get(data)
        return None if data.flags.c_contiguous else data.strides

    def copy_layout(self, data: Any, value: Value) -> None:
        """`value` stands for the memory of `data`, a value or outside array."""
        strides = self._strides_of(data) if type(data) in (Value, ndarray) else None
        if strides is not None:
            self.strides[value] = strides

    def same_layout(self, first: Any, second: Any) -> bool:
        """Whether two values or outside arrays have the same memory order."""
        return self._strides_of(first) == self._strides_of(second)

    def follow_layout(self, op: Op, tensors: list[Any], result: Any) -> None:
        """Elementwise ops keep the memory order of their operands, eagerly, and so decide what a later reshape copies."""
        if not self.strides or op.expression is None or type(getattr(result, "_data", None)) is not Value:
            return
        made = result._data
        datas = [getattr(t, "_data", None) for t in tensors]
        full = [d for d in datas if getattr(d, "shape", None) == made.shape]
        found = {self._strides_of(d) for d in full}
        if len(found) == 1 and None not in found:
            order = np.empty_like(_strided(made, next(iter(found))), order="K", subok=False) if made.size else None
            if order is not None and not order.flags.c_contiguous:
                self.strides[made] = order.strides

    def made(self, result: Any) -> None:
        for t in result if isinstance(result, tuple) else (result,):
            self.alive.append(weakref.ref(t))

    @property
    def dynamic(self) -> bool:
        return False

    def unknown_size(self, node: Node) -> None:
        raise GraphBreak(
            f"{node.op.name}, the size of whose result depends on the data",
            node.where,
            f"{node.op.name}: the size of its result depends on the data, so it cannot be part of a captured function. "
            f"At {node.where}. Compute it outside and pass it in, or use a form with a fixed size such as `wf.where`.",
        )

    def foreign(self, value: Any) -> NoReturn:
        node = getattr(value, "node", None)
        where = getattr(node, "where", None)
        if node is not None and not isinstance(node.graph, CapturedGraph):
            raise CaptureError(
                f"capture: a tensor of a declared graph is used in a captured function. It was made at {where}. The inputs of "
                "a captured function are its arguments: pass the tensor as an argument instead of declaring it inside."
            )
        raise CaptureError(
            f"capture: a symbolic tensor made by an earlier capture is used again. It was made at {where}. "
            "Return it from the captured function instead of storing it."
        )

    def refuse(self, value: Value, action: str) -> NoReturn:
        if self.finished:
            self.foreign(value)
        raise GraphBreak(
            action,
            user_location(2),
            f"{action}: the value of this tensor is not known while the function is captured. It was made at "
            f"{value.node.where}. Return it and look at it outside, use `wf.debug.print`, or run with WEFT_EAGER=1.",
        )

    def truth(self, value: Value, tensor: Tensor) -> bool:
        if self.finished:
            self.foreign(value)
        raise TruthError(
            "if/while",
            user_location(2),
            "if/while: the truth of a tensor is not known while the function is captured. "
            f"It was made at {value.node.where}. Write `wf.cond(condition, on_true, on_false)`, `wf.where(...)` or "
            "`wf.while_loop(...)`, or run with WEFT_EAGER=1.",
        )

    def describe(self, value: Value, tensor: Tensor) -> str:
        if self.may_cut and not self.finished:
            raise GraphBreak("print", user_location(2))
        return super().describe(value, tensor)


def gradient_kind(gradient: Any) -> bool | None:
    """The part of the signature for a gradient from before the call: None if there is none, else whether it is dense."""
    return None if gradient is None else isinstance(gradient, Tensor)


class Gradients:
    """`.grad` of outside tensors during a capture (see Note [Capture rules])."""

    def __init__(self, thread: int, capture: Capture | None = None) -> None:
        self.thread, self.capture = thread, capture
        self.differentiates = False  # whether the function takes gradients itself, which runs hooks of outside tensors
        self.hooked_bodies = False  # whether a branch or loop body has hooks
        self.changed: dict[int, tuple[Tensor, Any]] = {}
        self.found: dict[int, tuple[Tensor, Any, bool | None]] = {}  # what was there before: its stand-in and its kind

    def get(self, tensor: Tensor) -> Any:
        if threading.get_ident() != self.thread:
            return getattr(tensor, "_grad", None)
        changed = self.changed.get(id(tensor))
        if changed is not None:
            return changed[1]
        if self.capture is None:
            return getattr(tensor, "_grad", None)
        before = self.found.get(id(tensor))
        if before is None:
            owner = self.capture.originals.get(id(tensor), tensor)
            if type(owner._data) is Value:
                return None  # made inside the function
            have = getattr(owner, "_grad", None)
            kind = gradient_kind(have)
            if kind is False:
                self.found[id(tensor)] = (tensor, None, kind)
                raise Uncapturable(
                    "it reads a row-sparse gradient that was there before the call",
                    "Call `zero_grad()` at the beginning of the captured function.",
                )
            stand_in = None if have is None else self.capture.argument(have, "gradient")
            before = self.found[id(tensor)] = (tensor, stand_in, kind)
        return before[1]

    def set(self, tensor: Tensor, value: Any) -> None:
        if threading.get_ident() == self.thread:
            self.changed[id(tensor)] = (tensor, value)
        else:
            tensor._grad = value

    def relink(self, tensor: Tensor, node: Leaf | None) -> None:
        """The user changes whether `tensor` requires gradients (Note [Relinking])."""
        if threading.get_ident() == self.thread and self.capture is not None:
            self.capture.relinks.note(tensor, node)

    def hook(self, what: str, tensor: Tensor) -> None:
        """The user gives `tensor` a gradient hook (`what` is the method): inside, the trace runs it; the caller's tensors
        keep theirs after the call, and every call adds one."""
        if threading.get_ident() != self.thread or self.capture is None:
            return
        if type(tensor._data) is ndarray or id(tensor) in self.capture.originals:
            raise Uncapturable(
                f"it calls `{what}` on an argument or outside tensor at {user_location(2)}",
                "Register the hook before the call, or on a tensor that the function computes.",
            )

    def differentiate(self) -> None:
        """The user takes gradients."""
        if threading.get_ident() == self.thread:
            self.differentiates = True


class Capture(Mode):
    """The mode that records every op of its thread into a graph."""

    takes_writes = True

    def __init__(self, name: str) -> None:
        self.graph = CapturedGraph(name)
        self.gradients = Gradients(threading.get_ident(), self)
        self.stand_ins: list[Tensor] = []
        self.leaves: list[Tensor] = []  # per argument, the beginning of its tape inside the function
        self.relinks = self.graph.relinks = Relinks(self)
        self.entry_nodes: dict[int, Any] = {}  # stand-in -> its node when the function begins
        self.originals: dict[int, Tensor] = {}  # stand-in (or leaf) -> the argument of the call that is captured

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        tensors = [operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        foreign = None
        for t in tensors:
            data = getattr(t, "_data", None)
            priority = getattr(data, "priority", 0)
            if priority > 1 and (foreign is None or priority > foreign.priority):
                foreign = data
        if foreign is not None:  # a batched value: vmap unpacks it and calls the op again, inside this capture
            with self.again():
                return foreign.apply(op, tensors, op.attrs(values))
        if deferred_tables.tables and not deferred_tables.direct.on:
            with self.again():
                tensors, result = deferred_tables.catch_up(op, tensors, op.attrs(values))
            if result is not None:
                return result
        result = self.graph.call(op, tensors, op.attrs(values))
        self.graph.compare_links(tensors, result)
        if self.graph.separates:
            self.graph.follow_layout(op, tensors, result)
            if op.name == "stop_gradient":  # the memory of its operand, like `detach`
                recording.link_symbolic(inplace.DETACH, tensors[0], (), result, recording.DETACHED)
        return result

    def again(self) -> Any:
        """Re-enter this mode while it is set aside."""
        return _Again(self)

    def constant(self, array: ndarray) -> Tensor:
        made = wrap(self.graph.constant(array))
        self.graph.made(made)
        return made

    def assign(self, x: Tensor, value: Tensor) -> None:
        self.graph.assign(x, value)

    def touch(self, x: Tensor) -> None:
        self.graph.touch(x)

    def views_of(self, base: Tensor) -> recording.Base | None:
        return self.graph.views_of(base)

    def in_layout_of(self, x: Tensor, value: Tensor) -> Tensor:
        return self.graph.in_layout_of(x, value) if self.graph.separates else value

    def __enter__(self) -> Capture:
        super().__enter__()
        self._previous_hook = set_grad_hook(self.gradients)
        return self

    def __exit__(self, *exc: Any) -> None:
        set_grad_hook(self._previous_hook)
        super().__exit__(*exc)

    def argument(self, tensor: Tensor, name: str) -> Tensor:
        """The symbolic stand-in for one argument of the captured call."""
        graph = self.graph
        value = graph.placeholder(tuple(tensor.shape), tensor.dtype, name)
        graph.inputs.append(value)
        if type(tensor._data) is ndarray:
            graph._note_strides(value, tensor._data)
        symbolic, leaf = wrap(value), wrap(value)
        graph.links[value] = tensor._node is not None
        if tensor._node.__class__ is Leaf:
            symbolic._node = leaf._node = Leaf(symbolic)
        elif tensor._node is not None:  # not a leaf for the function either: it may be written to
            leaf._node = Leaf(leaf)
            symbolic._node = beyond(leaf)
        self.stand_ins.append(symbolic)
        self.leaves.append(leaf)
        self.originals[id(symbolic)] = self.originals[id(leaf)] = tensor
        self.entry_nodes[id(symbolic)] = symbolic._node
        graph.made(symbolic)
        return symbolic

    def finish(self, returned: set[int]) -> None:
        """Close the trace; a symbolic tensor that is still alive and was not returned has escaped."""
        self.graph.finished = True
        self.stand_ins.clear()
        self.leaves.clear()
        self.originals.clear()
        self.entry_nodes.clear()
        self.gradients.found.clear()
        self.graph.strides.clear()  # keeps subgraphs alive that were traced and not used
        returned = set(returned)
        graphs: list[Any] = [self.graph]
        while graphs:
            graph = graphs.pop()
            returned |= graph.held | {id(t) for t in getattr(graph, "captured", ())}
            for op in graph.tape_ops:
                op.release()
            graph.tape_ops.clear()
            for node in graph.nodes:
                if hasattr(node.op, "backward"):
                    node.op.backward = None  # closures over the function's tensors, of no use after the trace
                graphs += [sub.graph for sub in node.op.subs]
        if any(self._escaped(r, returned) is not None for r in self.graph.alive):
            gc.collect()  # cycles of the user's own objects may still hold dead tensors
            escaped = [t for t in (self._escaped(r, returned) for r in self.graph.alive) if t is not None]
            escaped = [t for t in escaped if not _only_in_frames(t, escaped)]
            if escaped:
                where = escaped[0]._data.node.where
                raise Escaped(
                    escaped,
                    where,
                    f"capture: a tensor of shape {format_shape(escaped[0].shape)} computed in the captured function was "
                    f"stored outside of it. It was made at {where}. Return it, or write into an existing tensor "
                    "in place (`self.w.copy_(new)` or `self.w -= step`) instead of rebinding the name.",
                )
        self.graph.alive.clear()

    @staticmethod
    def _escaped(ref: Any, returned: set[int]) -> Tensor | None:
        t = ref()
        return t if t is not None and id(t) not in returned and type(t._data) is Value else None


def _only_in_frames(tensor: Tensor, known: list[Tensor]) -> bool:
    """Whether only frames hold a tensor: a debugger keeps the frames of functions that have returned."""
    holders = gc.get_referrers(tensor)
    for holder in holders:
        if holder is known or isinstance(holder, FrameType):
            continue
        if type(holder) not in (dict, list, tuple):
            return False
        if any(h is not holders and not isinstance(h, FrameType) for h in gc.get_referrers(holder)):
            return False
    return True


def beyond(tensor: Tensor) -> TapeNode:
    """A place on the tape just after `tensor`, at which gradients with respect to it can be taken; no leaf."""
    from ...ops.array.shaping import clone

    return TapeNode(clone.op, (tensor._node,))  # type: ignore[attr-defined]


def _strided(value: Value, strides: tuple[int, ...] | None) -> ndarray:
    """An array with the shape of `value` and these strides (None: row-major) whose elements must not be touched."""
    cell = np.empty(1, value.dtype)
    if strides is None:
        strides, step = (), value.dtype.itemsize
        for d in reversed(value.shape):
            strides, step = (step, *strides), step * d
    return np.lib.stride_tricks.as_strided(cell, value.shape, strides)


class undoing:
    """Context manager that undoes writes to outside tensors at its end (the values that were made stay)."""

    def __init__(self, graph: CapturedGraph) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        graph = self._graph
        self._touched, graph.touched = graph.touched, {}
        self._assigned, self._recorded = graph.assigned(), set(graph.recorded)

    def __exit__(self, *_: Any) -> None:
        graph = self._graph
        graph.restore()
        graph.touched, graph.recorded = self._touched, self._recorded
        graph.assign_again(self._assigned)


class _Again:
    def __init__(self, mode: Capture) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        from ...ops.core import define

        self._saved = define.modes.of_thread.stack
        define.modes.of_thread.stack = (*self._saved, self._mode)

    def __exit__(self, *_: Any) -> None:
        from ...ops.core import define

        define.modes.of_thread.stack = self._saved


def outside() -> Any:
    """Context manager that suspends capture: tensors made inside are eager ones (for state created on first use)."""
    return _Outside()


class _Outside:
    def __enter__(self) -> None:
        self._suspended = suspended(0)
        self._suspended.__enter__()
        self._hook = set_grad_hook(None)

    def __exit__(self, *exc: Any) -> None:
        set_grad_hook(self._hook)
        self._suspended.__exit__(*exc)


def capturing() -> Capture | None:
    """The capture in progress in this thread, or None."""
    from ...ops.core.define import current_modes

    for mode in reversed(current_modes()):
        if isinstance(mode, Capture):
            return mode
    return None
