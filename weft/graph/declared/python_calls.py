"""Calls of Python code on symbolic tensors: modules, captured functions and optimisers inside a declared graph.

Most ops need no mode: one symbolic operand makes them nodes. But a module may also compute with its own tensors alone
(`running_var + eps`), draw random numbers, and write in place. While `Declaring` is entered, all of these become nodes:
* every op is declared, whatever its operands; eager tensors are read by identity when a step runs;
* a draw takes its state from the generator in every step;
* an in-place write is an assign. It runs in every step that computes what the call returned, as it would eagerly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...autograd.tree import flatten
from ...tensor import Tensor, wrap
from ..capture.tracing import Capture, Gradients, capturing
from ..graph import Node, Value
from ..remote_data import holds_memory
from .building import DeclaredGraph, group, stay_with
from .gradients import gradients

ndarray = np.ndarray


class Declaring(Capture):
    """Mode that declares every op of its thread in `graph`; `writes` are the assigns made for in-place ops."""

    graph: Any

    def __init__(self, graph: DeclaredGraph) -> None:
        self.graph = graph
        self.gradients = Gradients(threading.get_ident())
        self.writes: list[Node] = []
        self._written: dict[int, tuple[Tensor, Any]] = {}  # what was written, with its place on the tape before

    def assign(self, x: Tensor, value: Tensor) -> None:
        if not holds_memory(x):
            return  # a symbolic tensor: its name now stands for the new value
        if type(x._data) is ndarray and not x._data.flags.writeable:
            raise ValueError("in-place: the tensor is read-only (it shares memory with a read-only array).")
        from .variables import assign_node

        node = assign_node(self.graph, x, value)
        self.writes.append(node)
        self._written.setdefault(id(x), (x, x._node))
        self.graph.now(x, wrap(node.outputs[0], value._node))

    def touch(self, x: Tensor) -> None:
        pass  # nothing is undone: `forget` restores the tape links

    def views_of(self, base: Tensor) -> None:
        return None  # a declared graph writes to the base of a view

    def random_state(self, generator: Any) -> Tensor:
        return self.graph.random_state(generator)

    def __enter__(self) -> Declaring:
        super().__enter__()
        return self

    def forget(self) -> None:
        """After the call: later uses of the written tensors read them again."""
        for x, tape in self._written.values():
            self.graph.now(x, None)
            x._node = tape

    def attach(self, since: int, result: Any) -> None:
        """Make the writes from index `since` on run whenever `result` is computed."""
        nodes = tuple(dict.fromkeys(t._data.node for t in flatten(result)[0] if _is_symbolic(t)))
        if not nodes:
            nodes = tuple(self.writes[since:])
        for node in self.writes[since:]:
            self.graph.updates.setdefault(node, nodes)


def _is_symbolic(t: Any) -> bool:
    return isinstance(t, Tensor) and isinstance(t._data, Value)


def graph_of(args: Sequence[Any]) -> DeclaredGraph | None:
    """The declared graph of the first symbolic tensor among `args` (and what they contain), or None."""
    for t in flatten(list(args))[0]:
        if _is_symbolic(t):
            graph = t._data.node.graph
            return graph if isinstance(graph, DeclaredGraph) else None
    return None


def declared_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`fn(*args, **kwargs)` where symbolic tensors are among the arguments: as part of their graph, if it is declared."""
    mode = capturing()
    if isinstance(mode, Declaring):
        since = len(mode.writes)
        result = fn(*args, **kwargs)
        mode.attach(since, result)
        return result
    graph = graph_of([*args, *kwargs.values()]) if mode is None else None
    if graph is None:
        return fn(*args, **kwargs)
    with Declaring(graph) as new:
        try:
            result = fn(*args, **kwargs)
            new.attach(0, result)
        finally:
            new.forget()
    return result


def minimize(optimizer: Any, loss: Tensor) -> Node:
    """Declare one update of the parameters of `optimizer` by the gradients of `loss`.

    Parameters, moments and step counters are the optimiser's own tensors, so eager code and steps of a session may
    alternate. Later changes of the learning rate (`group["lr"] = …`, a scheduler) take effect.

    Args:
        optimizer: any `weft.optim` optimiser.
        loss: a symbolic tensor of a declared graph.

    Returns:
        The node to fetch.

    >>> with wf.Graph().as_default() as graph:
    ...     x, model = wf.placeholder(wf.float32, (None, 2)), nn.Linear(2, 1)
    ...     train = wf.minimize(optim.Adam(model.parameters(), lr=0.1), wf.mean(model(x) ** 2))
    >>> with wf.Session(graph) as sess:
    ...     sess.run(train, {x: [[1.0, 2.0]]})
    """
    if isinstance(optimizer, Tensor) and hasattr(loss, "param_groups"):
        optimizer, loss = loss, optimizer  # `minimize(loss, optimizer)` reads as well
    if not _is_symbolic(loss) or not isinstance(loss._data.node.graph, DeclaredGraph):
        raise TypeError(
            "minimize: the loss must be a symbolic tensor of a declared graph. Use `loss.backward()` and `step()`."
        )
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"minimize: expected an optimiser such as optim.Adam(parameters). Got {type(optimizer).__name__}."
        )
    graph = loss._data.node.graph
    params = [p for g in optimizer.param_groups for p in g["params"]]
    found = gradients(loss, params)
    if not any(g is not None for g in found):
        raise ValueError("minimize: the loss depends on none of the optimiser's parameters.")
    since = len(graph.nodes)
    with graph.as_default(), Declaring(graph) as mode:
        try:
            for p, g in zip(params, found, strict=True):
                p.grad = g
            optimizer.step()
        finally:
            mode.forget()
        _place_with_parameters(graph, since, optimizer, params)
        return group(*mode.writes, name="minimize")


def _place_with_parameters(graph: DeclaredGraph, since: int, optimizer: Any, params: Sequence[Tensor]) -> None:
    """Let moments and other state of an optimiser live on the task of the parameters that they belong to, if on one."""
    from .variables import state_of

    wanted: dict[int, set[Any]] = {}
    for p in params:
        for t in (optimizer.state.get(p) or {}).values():
            if isinstance(t, Tensor):
                wanted.setdefault(id(t), set()).add(state_of(p).device)
    for node in graph.nodes[since:]:
        state = getattr(node.op, "state", None)
        devices = wanted.get(id(state.tensor), set()) if state is not None else set()
        if len(devices) == 1 and None not in devices and state is not None and state.home is None:
            (state.device,) = devices
            stay_with(node, state.device)
            graph.placed.append(state)
