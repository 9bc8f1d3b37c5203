"""Capture: run an eager function once on symbolic tensors and keep what it would have computed.

Note [Capture rules].
* Tensors the function closes over become the graph's variables by identity: read when first used, written in program
  order by in-place ops; the last value is stored into the tensor's own memory when the program runs.
* An argument is the value it has on entry, also if the function writes to an outside tensor on the same memory.
* `.grad` of outside tensors is state of the trace. What the function leaves there is stored after the call if the
  gradients existed before it (accumulation) or if asked for (`keep_grads=True`); gradients that the function itself
  started from None stay inside the program: `.grad` is None after the call.
* State that must live outside (optimiser moments) is created with `outside()`, which suspends the capture.
* A symbolic tensor that is stored somewhere and outlives the call is an error with the line that made it.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, NoReturn

import numpy as np

from ..autograd.tape import Leaf, grad_mode
from ..errors import format_shape
from ..ops import deferred
from ..ops.dispatch import Mode, operand, suspended
from ..ops.registry import Op
from ..tensor import Tensor, set_grad_hook, wrap
from .graph import Graph, Node, Value

ndarray = np.ndarray


class CaptureError(RuntimeError):
    """A function cannot be captured as it is written. The message shows the line and what to write instead."""


class TruthError(CaptureError):
    """The truth of a symbolic tensor was asked for."""


class Variable:
    """An outside tensor in a captured graph: its value on entry and, if it was written, its last value."""

    __slots__ = ("tensor", "entry", "final")

    def __init__(self, tensor: Tensor, entry: Value) -> None:
        self.tensor, self.entry = tensor, entry
        self.final: Value | None = None


class CapturedGraph(Graph):
    """The graph of one captured call. `inputs` are the argument placeholders, `variables` the outside tensors."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.inputs: list[Value] = []
        self.variables: list[Variable] = []
        self._by_id: dict[int, Variable] = {}
        self.finished = False
        self.alive: list[Any] = []  # weak references to symbolic tensors made during the trace
        self.held: set[int] = set()  # those that the graph itself holds on to (operands of control flow)
        self.links: dict[Any, bool] = {}  # whether a value (or outside array) had a gradient when it was first seen
        self.cuts: dict[Node, Any] = {}  # nodes that use a value otherwise than it was first seen, with their lines

    def hold(self, tensor: Any) -> None:
        """Remember that the graph keeps `tensor` (and the base of a view) alive."""
        while tensor is not None:
            self.held.add(id(tensor))
            tensor = getattr(getattr(tensor, "_view", None), "base", None)

    def compare_links(self, operands: list[Any], result: Any) -> None:
        """Note where the tape says less than the nodes: a value that has a gradient is used as if it had none.

        That is so under `no_grad`, after `detach` and inside a Function. See `weft.graph.backward`, which differentiates nodes.
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

    def outside(self, tensor: Tensor) -> Value:
        # by the array, not the tensor: a tensor and what it was detached from are one variable
        data = tensor._data
        variable = self._by_id.get(id(data))
        if variable is None:
            entry = self.placeholder(data.shape, data.dtype, "variable")
            variable = Variable(wrap(data) if id(data) in deferred.tables else tensor, entry)
            self._check_overlap(variable)
            self._by_id[id(data)] = variable
            self.variables.append(variable)
        elif variable.tensor._node is None and tensor._node is not None and id(data) not in deferred.tables:
            variable.tensor = tensor  # seen detached first: the one on the tape is whose gradient is wanted
        return variable.final if variable.final is not None else variable.entry

    def _check_overlap(self, new: Variable) -> None:
        """Two captured tensors on overlapping memory would hide writes from each other."""
        base = new.tensor._data.base
        if base is None:
            return
        for other in self.variables:
            data = other.tensor._data
            if (data.base if data.base is not None else data) is base and np.shares_memory(
                data, new.tensor._data
            ):
                if (
                    data.__array_interface__["data"] == new.tensor._data.__array_interface__["data"]
                    and data.shape == new.tensor._data.shape
                    and data.strides == new.tensor._data.strides
                ):
                    continue
                raise CaptureError(
                    f"capture: the function uses two outside tensors of shapes {data.shape} and "
                    f"{new.tensor.shape} that share memory. Make the view inside the function instead."
                )

    def assign(self, x: Tensor, value: Tensor) -> None:
        """An in-place op gave the outside tensor `x` a new value."""
        if not x._data.flags.writeable:
            raise ValueError("in-place: the tensor is read-only (it shares memory with a read-only array).")
        table = None if deferred.direct.on else deferred.table_of(x)
        if table is not None:  # written as a whole, by somebody who has caught up with it
            table.settle(memory=False)
        self.outside(x)
        self._by_id[id(x._data)].final = value._data

    def made(self, result: Any) -> None:
        for t in result if isinstance(result, tuple) else (result,):
            self.alive.append(weakref.ref(t))

    @property
    def dynamic(self) -> bool:
        return False

    def unknown_size(self, node: Node) -> None:
        raise CaptureError(
            f"{node.op.name}: the size of its result depends on the data, so it cannot be part of a captured function. "
            f"At {node.where}. Compute it outside and pass it in, or use a form with a fixed size such as `wf.where`."
        )

    def foreign(self, value: Any) -> NoReturn:
        where = getattr(getattr(value, "node", None), "where", None)
        raise CaptureError(
            f"capture: a symbolic tensor made by an earlier capture is used again. It was made at {where}. "
            "Return it from the captured function instead of storing it."
        )

    def refuse(self, value: Value, action: str) -> NoReturn:
        if self.finished:
            self.foreign(value)
        raise CaptureError(
            f"{action}: the value of this tensor is not known while the function is captured. It was made at "
            f"{value.node.where}. Return it and look at it outside, use `wf.debug.print`, or run with WEFT_EAGER=1."
        )

    def truth(self, value: Value, tensor: Tensor) -> bool:
        if self.finished:
            self.foreign(value)
        raise TruthError(
            "if/while: the truth of a tensor is not known while the function is captured. "
            f"It was made at {value.node.where}. Write `wf.cond(condition, on_true, on_false)`, `wf.where(...)` or "
            "`wf.while_loop(...)`, or run with WEFT_EAGER=1."
        )


class Gradients:
    """`.grad` of outside tensors during a capture (see Note [Capture rules])."""

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.changed: dict[int, tuple[Tensor, Any]] = {}
        self.existed: set[int] = set()  # tensors whose earlier gradient the function saw

    def get(self, tensor: Tensor) -> Any:
        if threading.get_ident() == self.thread:
            found = self.changed.get(id(tensor))
            if found is not None:
                return found[1]
            have = getattr(tensor, "_grad", None)
            if have is not None:
                self.existed.add(id(tensor))
            return have
        return getattr(tensor, "_grad", None)

    def set(self, tensor: Tensor, value: Any) -> None:
        if threading.get_ident() == self.thread:
            self.changed[id(tensor)] = (tensor, value)
        else:
            tensor._grad = value


class Capture(Mode):
    """The mode that records every op of its thread into a graph."""

    def __init__(self, name: str) -> None:
        self.graph = CapturedGraph(name)
        self.gradients = Gradients(threading.get_ident())

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        tensors = [operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        foreign = None
        for t in tensors:
            data = getattr(t, "_data", None)
            priority = getattr(data, "priority", 0)
            if priority > 1 and (foreign is None or priority > foreign.priority):
                foreign = data
        if (
            foreign is not None
        ):  # a batched value: vmap unpacks it and calls the op again, inside this capture
            with self.again():
                return foreign.apply(op, tensors, op.attrs(values))
        if deferred.tables and not deferred.direct.on:
            with self.again():
                tensors, result = deferred.catch_up(op, tensors, op.attrs(values))
            if result is not None:
                return result
        result = self.graph.call(op, tensors, op.attrs(values))
        self.graph.compare_links(tensors, result)
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

    def __enter__(self) -> Capture:
        super().__enter__()
        self._previous_hook = set_grad_hook(self.gradients)
        return self

    def __exit__(self, *exc: Any) -> None:
        set_grad_hook(self._previous_hook)
        super().__exit__(*exc)

    def argument(self, tensor: Tensor, name: str) -> Tensor:
        """The symbolic stand-in for one argument of the captured call."""
        value = self.graph.placeholder(tuple(tensor.shape), tensor.dtype, name)
        self.graph.inputs.append(value)
        symbolic = wrap(value)
        self.graph.links[value] = tensor._node is not None
        if tensor._node is not None:
            symbolic._node = Leaf(symbolic)
        return symbolic

    def finish(self, returned: set[int]) -> None:
        """Close the trace; a symbolic tensor that is still alive and was not returned has escaped."""
        self.graph.finished = True
        for node in self.graph.nodes:
            if hasattr(node.op, "backward"):
                node.op.backward = None  # closures over the function's tensors, of no use after the trace
        returned = returned | self.graph.held
        if any(self._escaped(r, returned) is not None for r in self.graph.alive):
            gc.collect()  # cycles of the user's own objects may still hold dead tensors
            for r in self.graph.alive:
                t = self._escaped(r, returned)
                if t is not None:
                    where = t._data.node.where
                    raise CaptureError(
                        f"capture: a tensor of shape {format_shape(t.shape)} computed in the captured function was "
                        f"stored outside of it. It was made at {where}. Return it, or write into an existing tensor "
                        "in place (`self.w.copy_(new)` or `self.w -= step`) instead of rebinding the name."
                    )
        self.graph.alive.clear()

    @staticmethod
    def _escaped(ref: Any, returned: set[int]) -> Tensor | None:
        t = ref()
        return t if t is not None and id(t) not in returned and type(t._data) is Value else None


class _Again:
    def __init__(self, mode: Capture) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        from ..ops import dispatch

        self._saved = dispatch.modes.of_thread.stack
        dispatch.modes.of_thread.stack = (*self._saved, self._mode)

    def __exit__(self, *_: Any) -> None:
        from ..ops import dispatch

        dispatch.modes.of_thread.stack = self._saved


def outside() -> Any:
    """Suspend any capture for a while: tensors made inside are ordinary ones (for state created on first use)."""
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
    from ..ops.dispatch import current_modes

    for mode in reversed(current_modes()):
        if isinstance(mode, Capture):
            return mode
    return None
