"""Building declared graphs: placeholders, constants, name scopes, control edges and device constraints.

Every op called on a symbolic tensor adds a node to the graph of that tensor. Nodes take name scope, control edges and
device from the scopes of the building thread: `name_scope`, `control_dependencies`, `device`, `colocate_with`. An eager
tensor used in a declared graph is state of the program, read by identity when a step runs: the next step sees eager writes
to it, and a `Variable` made from it shares its memory.

Several threads may build one graph; scopes are per thread. A graph may grow while it runs: running steps do not see the
new nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf
from ...errors import Location, user_location
from ...ops.core.define import Mode, operand
from ...ops.core.error_names import unknown_sizes
from ...ops.core.registry import Facts, Op
from ...ops.core.spec import Size, Spec, Symbol
from ...runtime.device import Device
from ...tensor import Tensor, to_array, wrap
from ...typing import DTypeLike, Operand
from ..graph import CONSTANT, Graph, Node, Value
from ..remote_data import holds_memory
from .origins import Remembering

ndarray = np.ndarray


class GraphOp(Facts):
    """An op of a declared graph that is not in the op table because it touches more than its inputs.

    `effects` has the meaning of the op table. An op that "blocks" has `start(arrays, done, run)`, others `run(arrays)`.
    """

    num_outputs: int | None = None

    def __init__(self, name: str) -> None:
        self.name = self.title = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class _NoOp(GraphOp):
    """Does nothing; it exists for its control edges."""

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return ()


NO_OP = _NoOp("no_op")


class IterationNumbers(GraphOp):
    """0, 1, … up to at least the input, rounded up so that few lengths occur."""

    pure = True

    def __init__(self) -> None:
        super().__init__("iteration_numbers")

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        n = int(arrays[0])
        grain = 1 << max(0, n.bit_length() - 3)
        return (np.arange(max(1, -(-n // grain) * grain)),)


class _Scopes(threading.local):
    graphs: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    control: tuple[Node, ...] = ()
    devices: tuple[Any, ...] = ()
    colocate: tuple[Node, ...] = ()


_scopes = _Scopes()


class DeclaredGraph(Graph):
    """A dataflow graph (`wf.Graph`), built by calling ops on symbolic tensors and run by a `Session`.

    >>> graph = wf.Graph()
    >>> with graph.as_default():
    ...     x = wf.placeholder(wf.float32, (None,), name="x")
    ...     y = wf.sum(x * x)
    >>> with wf.Session(graph) as sess:
    ...     sess.run(y, {x: [1.0, 2.0, 3.0]}).item()
    14.0
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(name)
        self._lock = threading.RLock()
        self._by_name: dict[str, Node] = {}
        self._tensors: dict[str, list[Tensor]] = {}  # of nodes read from a file
        self._reads: dict[int, tuple[Any, Tensor]] = {}  # implicit reads of eager tensors, by identity
        self.colocated: dict[Node, Node] = {}
        self.frames: dict[Node, tuple[str, ...]] = {}  # nodes inside loops built from routing ops
        self.observers: list[Node] = []  # prints and checks: they run whenever their input is computed
        self.updates: dict[Node, tuple[Node, ...]] = {}  # assigns that run whenever one of these nodes does
        self.reads_of: dict[int, list[Tensor]] = {}  # every read of a variable, for its gradient
        self.placed: list[Any] = []  # state that was declared on a task of a cluster, so that this is not forgotten

    @contextmanager
    def as_default(self) -> Iterator[DeclaredGraph]:
        """Context manager that makes this the default graph of the thread.

        Ops on eager tensors alone still run at once. Where the graph uses a result that was computed from parameters
        (tensors that require gradients) or random draws, that computation is part of every step: see Note [Origins].
        """
        saved = _scopes.graphs, _scopes.names, _scopes.control, _scopes.colocate
        _scopes.graphs, _scopes.names, _scopes.control, _scopes.colocate = (*_scopes.graphs, self), (), (), ()
        try:
            with Remembering():
                yield self
        finally:
            _scopes.graphs, _scopes.names, _scopes.control, _scopes.colocate = saved

    def add(
        self, op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...], specs: Any,
        where: Location | None = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        scope = "".join([f"{n}/" for n in _scopes.names])
        with self._lock:
            frame = self._frame(op, inputs, where) if self.frames and op is not CONSTANT else ()
            node = super().add(op, inputs, attrs, specs, where or user_location(2), scope + (name or op.name))
            stamp(node)
            if _scopes.colocate:
                self.colocated[node] = _scopes.colocate[-1]
            if frame:
                self.frames[node] = frame
            if op.observes:
                self.observers.append(node)
            self._by_name[node.name] = node
        return node

    def _frame(self, op: Any, inputs: Sequence[Any], where: Any) -> tuple[str, ...]:
        """The loop that a new node is in: that of its inputs, which must agree (constants are everywhere)."""
        found: dict[tuple[str, ...], Any] = {}
        for v in inputs:
            if isinstance(v, Value) and v.node.op is not CONSTANT:
                found.setdefault(self.frames.get(v.node, ()), v)
        for n in _scopes.control:
            if n.graph is self:
                found.setdefault(self.frames.get(n, ()), n)
        if len(found) > 1:
            text = ", ".join([f"{v.name!r} in {'/'.join(f) or 'no frame'}" for f, v in found.items()])
            raise ValueError(
                f"{op.name}: inputs are in different frames: {text}. Bring values into a loop with "
                f"`wf.enter(x, frame, is_constant=True)` and out of it with `exit`. At {where or user_location(3)}."
            )
        return next(iter(found), ())

    def constant(self, array: ndarray, name: str = "constant") -> Value:
        with self._lock:
            return super().constant(array, name)

    def call(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        # the tape must see the read of an eager tensor, not the tensor: its history is not part of the program
        operands = [self.symbolic(t) for t in tensors]
        try:
            return super().call(op, operands, attrs)
        except TypeError as error:
            clearer = unknown_sizes(op.title, operands, error)
            if clearer is None:
                raise
            raise clearer from error

    @property
    def open_sizes(self) -> bool:
        return True

    def outside(self, tensor: Tensor) -> Value:
        """An eager tensor: state of the program, read when the step runs."""
        return self.symbolic(tensor)._data

    def symbolic(self, tensor: Any) -> Any:
        """A tensor of this graph for `tensor`; numbers and None pass."""
        if not isinstance(tensor, Tensor) or not holds_memory(tensor):
            return tensor
        from .variables import implicit_read

        return implicit_read(self, tensor)

    def now(self, tensor: Tensor, value: Tensor | None) -> None:
        """Make later uses of the eager `tensor` mean `value`; None: they read the tensor again."""
        if value is not None:
            self._reads[id(tensor)] = (tensor, value)
        else:
            self._reads.pop(id(tensor), None)

    def random_state(self, generator: Any) -> Tensor:
        """The state of a draw from `generator`: a new one in every step."""
        from .variables import random_state

        return random_state(self, generator)

    def assign(self, x: Tensor, value: Tensor) -> None:
        if type(x._data) is not ndarray:  # a symbolic tensor: its name now stands for the new value
            return
        raise RuntimeError(
            "in-place: an eager tensor cannot be written by declaring a graph. Make it a variable, "
            "`v = wf.Variable(tensor)`, and run `v.assign(value)` in a session."
        )

    def truth(self, value: Value, tensor: Tensor) -> bool:
        from ..capture.tracing import TruthError

        try:
            self.refuse(value, "bool")
        except RuntimeError as error:
            advice = "Or write `wf.cond(condition, on_true, on_false)` or `wf.while_loop(...)`."
            raise TruthError("bool", value.node.where, f"{error} {advice}") from None

    def node(self, name: str) -> Node:
        """Return the node called `name`; KeyError if there is none."""
        found = self._by_name.get(name)
        if found is None:
            import difflib

            close = difflib.get_close_matches(name, self._by_name, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise KeyError(f"graph {self.name}: there is no node called {name!r}.{hint}")
        return found

    def tensor(self, name: str) -> Tensor:
        """Return the output of the node called `name`; `name:1` is its second output.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, (2,), name="x")
        >>> graph.tensor("x").shape
        (2,)
        """
        base, _, index = name.partition(":")
        outputs = self.node(base).outputs
        if index and not index.isdigit():
            raise ValueError(f"graph {self.name}: expected a name such as 'add' or 'topk:1'. Got {name!r}.")
        position = int(index or 0)
        if position >= len(outputs):
            raise IndexError(f"graph {self.name}: node {base!r} has {len(outputs)} outputs. Got {name!r}.")
        known = self._tensors.get(base)
        return wrap(outputs[position]) if known is None else known[position]

    def register(self, node: Node, tensors: list[Tensor]) -> None:
        """Add a node that was read from a file to the index, with its tensors, which are on the tape."""
        self._by_name[node.name] = node
        self._names[node.name] = self._names.get(node.name, 0) + 1
        self._tensors[node.name] = tensors
        if node.op.observes:
            self.observers.append(node)

    def variables(self) -> dict[str, Tensor]:
        """The memory of every variable that the graph reads or writes, by name."""
        states = set(_states_in(self))
        found: dict[str, Tensor] = {}
        for s in sorted(states, key=lambda s: s.number):
            name, n = s.name, 0
            while name in found:  # eager tensors that a graph reads share a default name
                n += 1
                name = f"{s.name}_{n}"
            found[name] = s.tensor
        return found

    def save(self, path: Any) -> Any:
        """Write the graph and its variables atomically to `path`.json and `path`.safetensors.

        A crash or a full disk leaves an older graph at `path` intact; see `weft.graph.declared.graph_files`.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, (2,), name="x")
        ...     y = wf.add(x, 1.0)
        >>> files = graph.save("model")
        >>> loaded = wf.Graph.load("model")
        >>> with wf.Session(loaded) as sess:
        ...     sess.run("add", {"x": [1.0, 2.0]}).tolist()
        [2.0, 3.0]
        """
        from .serialize import save_graph

        return save_graph(self, path)

    @staticmethod
    def load(path: Any, *, allow_files: Any = False) -> DeclaredGraph:
        """Read a graph written by `save`; safe for untrusted files (`docs/security.md`).

        Args:
            path: as given to `save`.
            allow_files: which paths the `save_variables` and `restore_variables` nodes of the file may use: True for
                any, or a list of files and folders. By default such a node raises PermissionError when it runs.

        Raises:
            FileError: a file is damaged, is not a graph, or holds something that is not allowed; the message says where.
        """
        from .loading import load_graph

        return load_graph(path, allow_files)

    def as_function(self, inputs: Sequence[Tensor], outputs: Any) -> Any:
        """Return a function of eager tensors that feeds `inputs` and returns the values of `outputs`.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, ())
        ...     y = x * 2
        >>> graph.as_function([x], y)(3.0).item()
        6.0
        """
        from ..execute.session import Session

        return Session(self).make_callable(outputs, inputs)

    def placement_report(self, devices: Any = None) -> str:
        """Return a table of where every node would run, and why."""
        from ..execute.placement import placement_report

        return placement_report(self, devices)


def _states_in(graph: Graph) -> Iterator[Any]:
    """The state that nodes of a graph, and of the branches and bodies in it, read or write."""
    for node in graph.nodes:
        if hasattr(node.op, "state"):
            yield node.op.state
        for sub in node.op.subs:
            yield from _states_in(sub.graph)


def stamp(node: Node) -> None:
    """Give a new node the control edges and the device of the scopes that its thread is in."""
    node.control = tuple([n for n in _scopes.control if n.graph is node.graph])
    node.device = _scopes.devices or None


def task_scope() -> tuple[Any, ...] | None:
    """The constraints of the surrounding `wf.device` scopes that name a task of a cluster; None if there are none."""
    return tuple([c for c in _scopes.devices if c.job is not None or c.task is not None]) or None


def stay_with(node: Node, device: tuple[Any, ...] | None) -> None:
    """Place a node that uses state where the state is, on the task of `device` or in this process, whatever scope made it."""
    own = [c for c in node.device or () if c.job is None and c.task is None]
    node.device = (*own, *(device or ())) or None


def effects_graph(what: str) -> Any:
    """The graph for a node with effects (state, queues): the branch or body being traced, else the default graph."""
    from ..capture.tracing import CaptureError, capturing

    mode = capturing()
    if mode is None:
        return get_default_graph()
    if type(mode).__name__ == "Capture":
        raise CaptureError(
            f"{what}: queues and variables of declared graphs cannot be used inside a captured function. Use them in a "
            "declared graph, or `q.get()` and `q.put(...)` outside of the function."
        )
    return mode.graph


class building(Mode):
    """While entered, creation ops (zeros, ones …) make constants of `graph` instead of eager tensors."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        tensors = [operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        foreign: Any = None
        for t in tensors:
            data: Any = getattr(t, "_data", None)
            if hasattr(data, "priority") and (foreign is None or data.priority > foreign.priority):
                foreign = data
        if foreign is not None:
            return foreign.apply(op, tensors, op.attrs(values))
        made = op.run(op.call, values)
        if isinstance(made, Tensor) and type(made._data) is ndarray and not tensors:
            return wrap(self.graph.constant(made._data))
        return made

    def constant(self, array: ndarray) -> Tensor:
        return wrap(self.graph.constant(array))


_default = DeclaredGraph("default")


def get_default_graph() -> DeclaredGraph:
    """Return the default graph of this thread: the innermost `as_default()`, else the graph of the process.

    >>> with wf.Graph("mine").as_default():
    ...     wf.get_default_graph().name
    'mine'
    """
    return _scopes.graphs[-1] if _scopes.graphs else _default


def reset_default_graph() -> None:
    """Replace the default graph of the process by an empty one; a Session on the old graph stays usable."""
    global _default
    if _scopes.graphs:
        raise RuntimeError("reset_default_graph: cannot be called inside `with graph.as_default():`.")
    _default = DeclaredGraph("default")


def explicit_graph() -> DeclaredGraph | None:
    """The innermost `as_default()` graph of this thread, or None outside of any."""
    return _scopes.graphs[-1] if _scopes.graphs else None


def leaf(tensor: Tensor) -> Tensor:
    """`tensor` with a place on the tape, if it can have a gradient."""
    if dtypes.is_inexact(tensor.dtype):
        tensor._node = Leaf(tensor)
    return tensor


def placeholder(
    dtype: DTypeLike, shape: int | Sequence[int | Symbol | None] | None = None, name: str = "placeholder"
) -> Tensor:
    """Declare a tensor whose value is fed when a step runs.

    Args:
        dtype: the dtype of the fed values.
        shape: the sizes, with None or a `Symbol` for unknown ones; None instead of a shape: unknown rank.
        name: the name of the node, made unique.

    >>> with wf.Graph().as_default() as graph:
    ...     x = wf.placeholder(wf.float32, (None, 2))
    ...     y = x.sum(axis=1)
    >>> with wf.Session(graph) as sess:
    ...     sess.run(y, {x: [[1.0, 2.0], [3.0, 4.0]]}).tolist()
    [3.0, 7.0]
    """
    dtype = dtypes.as_dtype(dtype)
    sizes = None if shape is None else _sizes(shape)
    value = get_default_graph().placeholder(sizes, dtype, name)
    value.node.where = user_location(1)
    return leaf(wrap(value))


def _sizes(shape: Any) -> tuple[Size, ...]:
    from ...ops.core.spec import Symbol

    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"placeholder: shape must be a tuple of sizes, or None. Got {shape!r}.")
    for d in shape:
        number = isinstance(d, (int, np.integer)) and not isinstance(d, bool)
        if d is not None and not isinstance(d, Symbol) and not (number and d >= 0):
            raise ValueError(f"placeholder: a size must be a number of at least 0, a Symbol or None. Got {d!r}.")
    return tuple([int(d) if isinstance(d, np.integer) else d for d in shape])


def constant(value: Operand, dtype: DTypeLike | None = None, name: str = "constant") -> Tensor:
    """Return a constant of the default graph, as a symbolic tensor."""
    if isinstance(value, Tensor) and value.is_symbolic:
        raise TypeError("constant: expected numbers. Got a symbolic tensor, whose value is not known yet.")
    array = np.array(to_array(value, dtype))
    array.flags.writeable = False
    graph = get_default_graph()
    made = graph.add(CONSTANT, (), (array,), (Spec(array.shape, array.dtype),), user_location(1), name)
    return leaf(wrap(made.outputs[0]))


# Scopes -------------------------------------------------------------------------------------------------------------------


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Context manager that prefixes the names of nodes made inside with `name/`; scopes nest.

    >>> with wf.Graph().as_default() as graph, wf.name_scope("encoder"):
    ...     x = wf.placeholder(wf.float32, (), name="x")
    >>> graph.node("encoder/x")
    <node encoder/x>
    """
    if not isinstance(name, str) or not name or ":" in name or name.startswith("/") or name.endswith("/"):
        raise ValueError(f"name_scope: expected a name such as 'layer1'. Got {name!r}.")
    saved = _scopes.names
    _scopes.names = (*saved, name)
    try:
        yield "/".join(_scopes.names)
    finally:
        _scopes.names = saved


def node_of(what: Any) -> Node:
    """The node behind a symbolic tensor, an operation or a node."""
    if isinstance(what, Node):
        return what
    found = getattr(getattr(what, "_data", None), "node", None)
    if not isinstance(found, Node):
        raise TypeError(f"graph: expected a symbolic tensor or a node. Got {type(what).__name__}.")
    return found


@contextmanager
def control_dependencies(operations: Sequence[Any] | None) -> Iterator[None]:
    """Context manager: nodes made inside run after `operations`.

    Args:
        operations: a list of tensors or nodes; None drops the control edges of outer scopes.

    >>> with wf.Graph().as_default() as graph:
    ...     v = wf.Variable(1.0)
    ...     with wf.control_dependencies([v.assign(5.0)]):
    ...         after = v.read()
    >>> with wf.Session(graph) as sess:
    ...     sess.run(after).item()
    5.0
    """
    saved = _scopes.control
    if operations is None:
        _scopes.control = ()
    else:
        if not isinstance(operations, (list, tuple)):
            raise TypeError(f"control_dependencies: expected a list. Got {type(operations).__name__}.")
        _scopes.control = tuple(dict.fromkeys((*saved, *[node_of(o) for o in operations])))
    try:
        yield
    finally:
        _scopes.control = saved


class device:
    """A device: a value to compare and to pass on, and a context in which nodes of a graph are placed on it.

    Args:
        name: a device, `cpu:1`, or a kind of device, `cpu`; in graphs also the task of a cluster, `/job:ps/task:0`.
        soft: ignore the constraint if it cannot be satisfied, instead of raising when the graph is placed.

    >>> with wf.Graph().as_default() as graph, wf.device("cpu:0"):
    ...     y = wf.placeholder(wf.float32, ()) + 1
    >>> wf.zeros(2).device == wf.device("cpu"), wf.device("cpu").type
    (True, 'cpu')
    """

    def __init__(self, name: Any, soft: bool = False) -> None:
        from ..execute.placement import constraint

        self._name: Any = name._name if isinstance(name, device) else name
        self._constraint = constraint(self._name, soft)
        self._saved: list[tuple[Any, ...]] = []

    @property
    def value(self) -> Any:
        """The device, with index 0 where none was given."""
        c = self._constraint
        return Device(c.kind or "cpu", c.index or 0, c.job or "local", c.task or 0)

    @property
    def type(self) -> str:
        """The kind of device, `cpu`."""
        return str(self.value.kind)

    @property
    def index(self) -> int | None:
        """The number of the device; None where none was given."""
        return self._constraint.index

    def __enter__(self) -> None:
        self._saved.append(_scopes.devices)
        _scopes.devices = (*_scopes.devices, self._constraint)

    def __exit__(self, *_: Any) -> None:
        _scopes.devices = self._saved.pop()

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, device):
            return bool(self.value == other.value)
        if isinstance(other, str):
            return str(self) == other
        return bool(self.value == other) if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"device('{self}')"


@contextmanager
def colocate_with(what: Any) -> Iterator[None]:
    """Context manager that places the nodes made inside on the device of `what` (a tensor, a node or a Variable)."""
    saved = _scopes.colocate
    _scopes.colocate = (*saved, what.anchor() if hasattr(what, "anchor") else node_of(what))
    try:
        yield
    finally:
        _scopes.colocate = saved


def group(*operations: Any, name: str = "group") -> Node:
    """Return a node that completes when all `operations` (tensors or nodes) have.

    >>> with wf.Graph().as_default() as graph:
    ...     a, b = wf.Variable(0.0), wf.Variable(0.0)
    ...     both = wf.group(a.assign(1.0), b.assign(2.0))
    >>> with wf.Session(graph) as sess:
    ...     sess.run(both)
    >>> a.tensor.item(), b.tensor.item()
    (1.0, 2.0)
    """
    if not operations:
        return no_op(name)
    nodes = [node_of(o) for o in operations]
    node = nodes[0].graph.add(NO_OP, (), (), (), user_location(1), name)
    node.control = tuple(dict.fromkeys((*node.control, *nodes)))
    return node


def no_op(name: str = "no_op") -> Node:
    """Return a node that computes nothing; it completes after its control edges."""
    return get_default_graph().add(NO_OP, (), (), (), user_location(1), name)


def refuse_foreign(graph: Graph, value: Value) -> NoReturn:
    raise ValueError(
        f"session: the tensor {value!r} belongs to graph {value.node.graph.name!r}, but the session runs graph "
        f"{graph.name!r}. It was made at {value.node.where}. Open a Session on that graph."
    )
