"""Variables: state that lives across steps and sessions, and the ops that read and write it.

A `Variable` is a reference to memory: an eager tensor (`v.tensor`), a lock, and a name. Reads and writes are nodes, so
they happen when a step runs, in an order that only data and control edges decide.

Note [Atomic state ops]. Each of `read`, `assign`, `assign_add`, `assign_sub`, `scatter_add` and `assign_fn` is atomic:
it holds the variable's lock (shared for reads, alone for writes) from reading the old value to storing the new one. A
region of pure nodes that is compiled to one program takes the locks of all its variables, in one global order, around the
whole call; all checks run before the first store. Separate `read` and `assign` nodes are not atomic together: another
step may come between them. Eager writes to `v.tensor` take no lock.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf, no_grad, note_mutation
from ...errors import describe, format_shape, user_location
from ...ops.core.spec import Spec, same_size
from ...tensor import Tensor, to_array, wrap
from ..capture.inlining import inline
from ..capture.subgraph import Sub, in_function
from ..graph import Node, Value
from ..remote_data import Home, RemoteData
from .building import (
    DeclaredGraph,
    GraphOp,
    effects_graph,
    explicit_graph,
    get_default_graph,
    leaf,
    stay_with,
    task_scope,
)
from .origins import derived

ndarray = np.ndarray
_numbers = itertools.count()


class SharedLock:
    """Many readers or one writer, served in the order in which they came.

    A release hands the lock to the next waiter, so that a loop that reacquires it at once (training) cannot starve others
    (a checkpoint).
    """

    __slots__ = ("_mutex", "_readers", "_writing", "_queue")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._readers, self._writing = 0, False
        self._queue: deque[_Turn] = deque()

    def acquire(self) -> None:
        self._take(alone=True)

    def acquire_shared(self) -> None:
        self._take(alone=False)

    def release(self) -> None:
        with self._mutex:
            self._writing = False
            self._hand_over()

    def release_shared(self) -> None:
        with self._mutex:
            self._readers -= 1
            self._hand_over()

    def _take(self, alone: bool) -> None:
        with self._mutex:
            if not self._queue and self._grant(alone):
                return
            turn = _Turn(alone)
            self._queue.append(turn)
        try:
            turn.come.acquire()
        except BaseException:  # Ctrl-C while waiting: leave the queue, or give back what came meanwhile
            with self._mutex:
                waiting = turn in self._queue
                if waiting:
                    self._queue.remove(turn)
                    self._hand_over()
            if not waiting:
                self.release() if alone else self.release_shared()
            raise

    def _grant(self, alone: bool) -> bool:
        """Take the lock if it can be had now; the mutex is held."""
        if self._writing or (alone and self._readers):
            return False
        if alone:
            self._writing = True
        else:
            self._readers += 1
        return True

    def _hand_over(self) -> None:
        while self._queue and self._grant(self._queue[0].alone):
            self._queue.popleft().come.release()


class _Turn:
    """A waiter in the queue of a lock; `come` is released when it is its turn."""

    __slots__ = ("alone", "come")

    def __init__(self, alone: bool) -> None:
        self.alone, self.come = alone, threading.Lock()
        self.come.acquire()


class State:
    """The memory behind variables: one State per eager tensor, found by the tensor's identity.

    Attributes:
        device: the constraints of the task of a cluster on which it was declared; None: it stays in this process.
        shared: whether all clients of a cluster mean the same variable by `name`.
        init: what it holds at first, for a variable that is made on its task (`Variable.remote`).
        record: on a task of a cluster, what lets it survive the death of the process in the middle of a write.
    """

    __slots__ = ("tensor", "lock", "number", "name", "device", "shared", "init", "record", "__weakref__")

    def __init__(self, tensor: Tensor, name: str) -> None:
        self.tensor, self.lock, self.number, self.name = tensor, SharedLock(), next(_numbers), name
        self.device: tuple[Any, ...] | None = None
        self.shared = False
        self.init: Any = None
        self.record: Any = None

    @property
    def home(self) -> Home | None:
        """Where the memory is, if it is not in this process."""
        data = self.tensor._data
        return data.home if data.__class__ is RemoteData else None

    def value(self) -> ndarray:
        """A copy of the value of now."""
        home = self.home
        if home is not None:
            return home.read()
        with locked([self], []):
            return np.array(self.tensor._data)

    def store(self, value: ndarray) -> None:
        """Write `value` (checked already) into the memory; the caller holds the lock."""
        data = self.tensor._data
        np.copyto(data, value)
        note_mutation(data, "assign")


_states: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()
_states_lock = threading.Lock()


def state_of(tensor: Tensor, name: str = "tensor") -> State:
    """The state that `tensor` is."""
    with _states_lock:
        found = _states.get(id(tensor))
        if found is None or found.tensor is not tensor:
            found = _states[id(tensor)] = State(tensor, name)
        return found


class locked:
    """Hold the locks of `reads` (shared) and `writes` (exclusive), acquired in one global order. Threads may share it.

    Args:
        rows: those of `writes` of which only some rows are written.
    """

    __slots__ = ("_locks", "_records", "_rows", "_entry")

    def __init__(self, reads: Sequence[State], writes: Sequence[State], rows: Sequence[State] = ()) -> None:
        alone = set(writes)
        every = sorted({*reads, *writes}, key=lambda s: s.number)
        self._locks = [(s.lock, s in alone) for s in every]
        kept = [s for s in every if s in alone and s.record is not None]
        self._records, self._rows = [s.record for s in kept], [s in rows for s in kept]
        self._entry: Any = None  # what is written belongs to one thread at a time

    def __enter__(self) -> None:
        held = 0
        try:
            for lock, alone in self._locks:
                lock.acquire() if alone else lock.acquire_shared()
                held += 1
            if self._records:
                self._entry = self._records[0].journal.begin(self._records, self._rows)
        except BaseException:  # Ctrl-C while waiting
            self._release(held)
            raise

    def __exit__(self, *_: Any) -> None:
        if self._records:
            self._records[0].journal.commit(self._entry, self._records)
        self._release(len(self._locks))

    def _release(self, held: int) -> None:
        for lock, alone in reversed(self._locks[:held]):
            lock.release() if alone else lock.release_shared()


# Nodes --------------------------------------------------------------------------------------------------------------------


class ReadOp(GraphOp):
    """The value of a variable at some moment of the step."""

    effects = frozenset(("reads",))

    def __init__(self, state: State) -> None:
        super().__init__("read")
        self.state = state


def _scatter_add(old: Any, indices: Any, updates: Any) -> Any:
    from ...ops.array.gathering import index_add

    return index_add(old, indices, updates, 0)


KINDS: dict[str, Callable[..., Any]] = {
    "assign": lambda old, value: value,
    "assign_add": lambda old, value: old + value,
    "assign_sub": lambda old, value: old - value,
    "scatter_add": _scatter_add,
}


class WriteOp(GraphOp):
    """A new value for a variable, computed from the old one and the inputs; the output is the new value.

    `kind` names one of KINDS, or is "assign_fn" with the function as the subgraph `sub`.
    """

    effects = frozenset(("reads", "writes"))

    def __init__(self, kind: str, state: State, sub: Sub | None = None) -> None:
        super().__init__(kind)
        self.kind, self.state, self.sub = kind, state, sub

    def apply(self, old: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        """The new value, with public ops: eager on eager tensors, nodes on symbolic ones."""
        with no_grad():
            if self.sub is None:
                new = KINDS[self.kind](old, *inputs)
            else:
                new = inline(self.sub, [old], inputs)[0]
            target = self.state.tensor
            if new.dtype != target.dtype:
                new = new.astype(target.dtype)
        if tuple(new.shape) != tuple(target.shape):
            raise ValueError(
                f"{self.kind}: the new value does not fit variable {self.state.name!r}. "
                f"Got {describe(new)}; expected {describe(target)}."
            )
        return new


def implicit_read(graph: DeclaredGraph, tensor: Tensor) -> Tensor:
    """The value of an eager tensor in `graph`: one read without control edges, shared by all uses, or, if the tensor was
    computed from parameters or draws, that computation declared (Note [Origins])."""
    found = graph._reads.get(id(tensor))
    if found is None:
        from .building import control_dependencies

        with control_dependencies(None):
            made = derived(graph, tensor)
            if made is None:
                made = _read(graph, state_of(tensor), "read")
            else:
                graph.reads_of.setdefault(id(tensor), []).append(made)
            found = graph._reads[id(tensor)] = (tensor, made)
    return found[1]


def _read(graph: DeclaredGraph, state: State, name: str) -> Tensor:
    tensor = state.tensor
    node = graph.add(ReadOp(state), (), (), (Spec(tensor.shape, tensor.dtype),), user_location(2), name)
    stay_with(node, state.device)
    made = wrap(node.outputs[0])
    if tensor._node.__class__ is Leaf:
        made._node = tensor._node  # the same leaf: `backward()` of a declared module finds the parameter
    else:
        leaf(made)
    if isinstance(graph, DeclaredGraph):
        graph.reads_of.setdefault(id(tensor), []).append(made)
    return made


def assign_node(graph: DeclaredGraph, tensor: Tensor, value: Tensor) -> Node:
    """A node that stores `value` in the memory of an eager tensor."""
    state = state_of(tensor)
    op = WriteOp("assign", state)
    spec = Spec(tensor.shape, tensor.dtype)
    node = graph.add(op, [graph.operand(value)], (), (spec,), user_location(2), f"{state.name}/assign")
    stay_with(node, state.device)
    return node


_ADVANCE = np.array([0, 1], np.int64)
_ADVANCE.flags.writeable = False


def random_state(graph: DeclaredGraph, generator: Any) -> Tensor:
    """The state of a draw: every step advances the generator by one, atomically."""
    state = state_of(generator.state, "generator")
    one = graph.constant(_ADVANCE)
    op = WriteOp("assign_add", state)
    moved = graph.add(op, [one], (), (Spec((2,), one.dtype),), user_location(2), "draw")
    stay_with(moved, None)
    return wrap(moved.outputs[0]) - wrap(one)


class Variable:
    """A reference to state of a declared graph.

    Using the variable in an op reads it. `read()` and the writing methods add nodes that run when a step fetches them, or
    something that depends on them; see Note [Atomic state ops]. `v.tensor` is the memory, an ordinary eager tensor.

    Args:
        initial: anything array-like, or an eager tensor, which then *is* the variable's memory.
        name: the name of the variable, made unique in its graph.
        dtype: the dtype; by default that of `initial`.

    >>> with wf.Graph().as_default() as graph:
    ...     v = wf.Variable([1.0, 2.0], name="v")
    ...     update = v.assign_add([10.0, 10.0])
    >>> with wf.Session(graph) as sess:
    ...     sess.run(update).tolist()
    [11.0, 12.0]
    >>> v.numpy().tolist()
    [11.0, 12.0]
    """

    def __init__(self, initial: Any, name: str = "variable", dtype: Any = None) -> None:
        if isinstance(initial, Variable):
            raise TypeError("Variable: expected numbers or an eager tensor. Got a Variable; use `v.tensor`.")
        if isinstance(initial, Tensor):
            if initial.is_symbolic:
                raise TypeError(
                    "Variable: the initial value must be known. Got a symbolic tensor; assign it in a step instead."
                )
            if dtype is not None and initial.dtype != dtype:
                raise TypeError(
                    f"Variable: a tensor that becomes a variable keeps its dtype. Got {initial.dtype.name} and dtype={dtype}."
                )
            tensor = initial
        else:
            tensor = Tensor(np.array(to_array(initial, dtype)))
        if type(tensor._data) is ndarray and not tensor._data.flags.writeable:
            raise ValueError("Variable: the tensor is read-only (it shares memory with a read-only array).")
        self.graph = get_default_graph()
        self.name = self.graph.unique_name(name)
        self.state = state_of(tensor, self.name)
        if self.state.home is None:
            self.state.device = task_scope() or self.state.device
        if self.state.device is not None:
            self.graph.placed.append(self.state)

    @classmethod
    def remote(cls, shape: Any, init: Any = None, name: str | None = None, dtype: Any = None) -> Variable:
        """Declare a variable that is made on its task of a cluster and is never in the memory of this process.

        The task is that of the surrounding `wf.device("/job:…")`; the first session that uses the variable makes it.

        Args:
            shape: the sizes.
            init: a number, or an initialiser such as `nn.init.normal(0.02)`; zeros by default.
            name: the name by which all clients of the cluster mean this variable; without one nobody else can use it.
            dtype: the dtype; float32 by default.

        >>> with wf.Graph().as_default() as graph, wf.device("/job:ps/task:0"):
        ...     w = wf.Variable.remote((1000, 1000), init=nn.init.normal(0.02), name="w")
        >>> w.shape, w.dtype.name
        ((1000, 1000), 'float32')
        """
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(isinstance(d, bool) or not isinstance(d, (int, np.integer)) or d < 0 for d in sizes):
            raise ValueError(f"Variable.remote: shape must be known sizes of at least 0. Got {shape!r}.")
        if init is not None and not isinstance(init, (int, float)) and not hasattr(init, "values"):
            raise TypeError(
                f"Variable.remote: init must be a number or an initialiser such as `nn.init.normal(0.02)`. Got "
                f"{describe(init)}. Values that exist here belong into `wf.Variable(values)`."
            )
        device = task_scope()
        if device is None:
            raise ValueError(
                'Variable.remote: no task was named. Declare it inside of `with wf.device("/job:ps/task:0"):`, or "/job:ps".'
            )
        made = cls.__new__(cls)
        made.graph = get_default_graph()
        made.name = made.graph.unique_name(name or "variable")
        data = RemoteData(
            tuple([int(d) for d in sizes]), dtypes.as_dtype(dtype or dtypes.float32), _Nowhere(), made.name
        )
        made.state = state_of(wrap(data), made.name)
        made.state.device, made.state.shared, made.state.init = device, name is not None, 0.0 if init is None else init
        return made

    # What it is -----------------------------------------------------------------------------------------------------------

    @property
    def tensor(self) -> Tensor:
        """The memory, as an eager tensor; that of a variable on a task of a cluster refuses to be shared."""
        return self.state.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype:
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    def numpy(self) -> ndarray:
        """Return a copy of the current value as an array."""
        return self.state.value()

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} {self.dtype.name}{format_shape(self.shape)}>"

    def reads(self, graph: DeclaredGraph) -> list[Tensor]:
        """Every read of this variable in `graph`."""
        return graph.reads_of.get(id(self.tensor), [])

    def anchor(self) -> Node:
        """A node on the variable's device, for `colocate_with`."""
        return self.value()._data.node

    # Nodes ----------------------------------------------------------------------------------------------------------------

    def _graph(self) -> DeclaredGraph:
        found = effects_graph(f"variable {self.name!r}")
        return found if found is not get_default_graph() else explicit_graph() or self.graph

    def value(self) -> Tensor:
        """Return the implicit read, shared by all plain uses of the variable: one per graph, without control edges."""
        return implicit_read(explicit_graph() or self.graph, self.tensor)

    def read(self) -> Tensor:
        """Add a read that runs after the control edges of the surrounding scopes."""
        return _read(self._graph(), self.state, f"{self.name}/read")

    def _write(self, kind: str, inputs: Sequence[Any], sub: Sub | None = None) -> Tensor:
        graph = self._graph()
        op = WriteOp(kind, self.state, sub)
        tensors = [
            t if isinstance(t, Tensor) else t.__weft_tensor__() if hasattr(t, "__weft_tensor__") else None
            for t in inputs
        ]
        values = [
            graph.operand(t)
            if t is not None
            else graph.constant(_as_array(x, self.dtype if i == len(inputs) - 1 else None))
            for i, (t, x) in enumerate(zip(tensors, inputs, strict=True))
        ]
        if sub is None and kind != "scatter_add":
            _check_fit(kind, self, values[0])
        where = user_location(2)
        node = graph.add(op, values, (), (Spec(self.shape, self.dtype),), where, f"{self.name}/{kind}")
        stay_with(node, self.state.device)
        return wrap(node.outputs[0])

    def assign(self, value: Any) -> Tensor:
        """Store `value`, of the variable's shape; returns the new value.

        >>> with wf.Graph().as_default() as graph:
        ...     v = wf.Variable(1.0)
        ...     x = wf.placeholder(wf.float32, ())
        ...     update = v.assign(x * 2)
        >>> with wf.Session(graph) as sess:
        ...     sess.run(update, {x: 3.0}).item()
        6.0
        """
        return self._write("assign", [value])

    def assign_add(self, value: Any) -> Tensor:
        """Add `value` to the variable, atomically; returns the new value."""
        return self._write("assign_add", [value])

    def assign_sub(self, value: Any) -> Tensor:
        """Subtract `value` from the variable, atomically; returns the new value."""
        return self._write("assign_sub", [value])

    def scatter_add(self, indices: Any, updates: Any) -> Tensor:
        """Add `updates`, of shape `(n, *shape[1:])`, to the rows at `indices`, of shape `(n,)`, atomically.

        Repeated indices accumulate. Returns the new value.

        >>> with wf.Graph().as_default() as graph:
        ...     v = wf.Variable([[0.0], [0.0], [0.0]])
        ...     update = v.scatter_add([2, 0, 2], [[1.0], [2.0], [3.0]])
        >>> with wf.Session(graph) as sess:
        ...     sess.run(update).tolist()
        [[2.0], [0.0], [4.0]]
        """
        return self._write("scatter_add", [indices, updates])

    def assign_fn(self, fn: Callable[[Tensor], Any]) -> Tensor:
        """Store `fn(old value)`, atomically; `fn` may use other tensors of the graph. Returns the new value.

        >>> with wf.Graph().as_default() as graph:
        ...     v = wf.Variable(3.0)
        ...     update = v.assign_fn(lambda old: old * old)
        >>> with wf.Session(graph) as sess:
        ...     sess.run(update).item()
        9.0
        """
        graph = self._graph()
        sub = Sub("assign_fn", fn, [self.tensor])
        if len(sub.outputs) != 1:
            raise ValueError(f"assign_fn: the function must return one tensor. Got {len(sub.outputs)}.")
        out = sub.outputs[0]
        if tuple(out.shape) != tuple(self.shape):
            raise ValueError(
                f"assign_fn: the function must keep the variable's shape. Got {format_shape(out.shape)}; "
                f"expected {format_shape(self.shape)}."
            )
        for t in sub.captured:
            graph.hold(t)
        return self._write("assign_fn", sub.captured, sub)

    # Use as a tensor ------------------------------------------------------------------------------------------------------

    def __weft_tensor__(self) -> Tensor:
        return self.tensor if in_function() else self.value()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"Variable has no attribute {name!r}.")
        return getattr(self.__weft_tensor__(), name)

    def __getitem__(self, index: Any) -> Tensor:
        return self.__weft_tensor__()[index]


class _Nowhere:
    """Where a variable is that no session has made yet."""

    text = "not made yet"

    def read(self) -> ndarray:
        raise RuntimeError(
            "variable: it has no value yet. It is made on its task when a session of a cluster, `wf.Session(graph, "
            "cluster=cluster)`, first runs a step that uses it."
        )

    def assign(self, value: ndarray) -> None:
        self.read()


def _as_array(value: Any, dtype: Any) -> ndarray:
    array = to_array(value)
    if dtype is not None and array.dtype != dtype and isinstance(value, (int, float, list, tuple)):
        array = array.astype(dtype)
    return np.array(array)


def _check_fit(kind: str, variable: Variable, value: Value) -> None:
    """Raise at build time if the value can never fit the variable."""
    shape = value.shape
    if shape is None:
        return
    full = tuple(variable.shape)
    short = kind != "assign" and len(shape) <= len(full)
    padded = (1,) * (len(full) - len(shape)) + tuple(shape) if short else tuple(shape)
    fits = len(padded) == len(full) and all(
        same_size(a, b) or (short and a == 1) for a, b in zip(padded, full, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{kind}: the value does not fit variable {variable.name!r}. Got {describe(value)}; expected "
            f"{variable.dtype.name} {format_shape(full)}."
        )


def _operator(name: str) -> Callable[..., Any]:
    def method(self: Variable, *args: Any) -> Any:
        return getattr(self.__weft_tensor__(), name)(*args)

    method.__name__ = name
    return method


for _name in (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow", "matmul",
    "rmatmul", "neg", "abs", "invert", "and", "or", "xor", "lt", "le", "gt", "ge",
):  # fmt: skip
    setattr(Variable, f"__{_name}__", _operator(f"__{_name}__"))
