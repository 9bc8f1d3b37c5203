"""The tape: records of the ops that were run, for differentiating them later.

Note [Tape]. A tensor that takes part in differentiation has a `_node`: a `Leaf` if the user created it, a `Node` if
an op made it. A node keeps edges to the nodes of its inputs and only the values its gradient rules need; saved
outputs are arrays, not tensors, so there are no reference cycles and memory is freed with the last reference. Every
node has a sequence number greater than those of its inputs: processing nodes by falling number is a topological order.

Note [Mutation clock]. Writing to a tensor in place notes `(clock, location)` under the identity of the memory it lives
in (views share it). A saved array is stale exactly if its memory was written after the node that saved it was
recorded. Forward recording pays nothing for this; backward pays one dictionary look-up per saved array.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..errors import Location, user_location

if TYPE_CHECKING:
    from ..ops.core.registry import Op
    from ..tensor import Tensor

ndarray = np.ndarray
tick = itertools.count(1).__next__  # the clock of nodes and mutations, one for all threads


class _GradMode(threading.local):
    """Whether ops are recorded in this thread."""

    enabled = True


grad_mode = _GradMode()


class Node:
    """An op that was run on tensors that require gradients.

    `edges[i]` is the node of input i, or None if it needs no gradient. `saved` follows `op.saved_items`. `specs` holds
    the inputs' shapes and dtypes if the op broadcast or promoted them, else None. After a backward pass that frees the
    graph `saved` is `FREED`. `since` is set only where the values were saved later than the node was recorded (a checkpoint).

    The constructor makes all nodes but those of the fast path, which sets the same slots inline (Note [Fast path]).
    """

    __slots__ = ("op", "edges", "saved", "attrs", "specs", "seq", "hooks", "where", "outputs", "since", "__weakref__")

    op: Op | Any
    edges: tuple[Any, ...]
    saved: Any
    attrs: tuple[Any, ...]
    specs: Any
    seq: int
    hooks: list[Callable[..., Any]] | None
    where: Location | None
    outputs: Any
    since: int

    def __init__(
        self,
        op: Op | Any,
        edges: tuple[Any, ...],
        saved: Any = (),
        attrs: tuple[Any, ...] = (),
        specs: Any = None,
        where: Location | None = None,
        outputs: Any = None,
    ) -> None:
        self.op = op
        self.edges = edges
        self.saved = saved
        self.attrs = attrs
        self.specs = specs
        self.where = where
        self.outputs = outputs
        self.hooks = None
        self.seq = tick()

    def link(self, results: Sequence[Tensor], linked: Sequence[bool] | None = None) -> None:
        """Make `results` the outputs of this node: those whose dtype has gradients get a place on the tape, of them all or
        only those for which `linked` is true."""
        for i, r in enumerate(results):
            if dtypes.is_inexact(r.dtype) and (linked is None or linked[i]):
                r._node = Output(self, i)

    def __repr__(self) -> str:
        return f"<{self.op.name} #{self.seq}>"


class Output:
    """One of several outputs of a Node: where its gradient is collected before the node itself is run."""

    __slots__ = ("parent", "index", "seq", "hooks", "__weakref__")

    def __init__(self, parent: Node, index: int) -> None:
        self.parent, self.index, self.seq = parent, index, tick()
        self.hooks: list[Callable[..., Any]] | None = None

    def __repr__(self) -> str:
        return f"<output {self.index} of {self.parent.op.name} #{self.parent.seq}>"


class Leaf:
    """The end of the tape: gradients that reach it are added to the `.grad` of its tensor.

    `is_over` marks the variable of a transform that has returned: its gradient is not needed any more.
    """

    __slots__ = ("tensor", "seq", "hooks", "after", "is_over", "__weakref__")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.seq = 0
        self.is_over = False
        self.hooks: list[Callable[..., Any]] | None = None
        self.after: list[Callable[..., Any]] | None = None  # run after the gradient was accumulated

    def __repr__(self) -> str:
        return "<leaf>"


class _Freed:
    def __repr__(self) -> str:
        return "<freed>"


FREED = _Freed()


# Grad mode -----------------------------------------------------------------------------------------------------------


class set_grad_enabled:
    """Switch recording of ops on or off in this thread: at once, or as a context manager or decorator.

    >>> with wf.set_grad_enabled(False):
    ...     wf.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._previous = [grad_mode.enabled]
        self._enabled = bool(enabled)
        grad_mode.enabled = self._enabled

    def __enter__(self) -> set_grad_enabled:
        return self

    def __exit__(self, *_: Any) -> None:
        grad_mode.enabled = self._previous[0]


class _Switch:
    """A context manager and decorator that sets the grad mode of this thread while it is active."""

    value = True

    def __init__(self) -> None:
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(grad_mode.enabled)
        grad_mode.enabled = self.value

    def __exit__(self, *_: Any) -> None:
        grad_mode.enabled = self._previous.pop()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        import functools
        import inspect

        if inspect.isgeneratorfunction(fn):
            return self._generator(fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return fn(*args, **kwargs)

        return wrapped

    def _generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a generator: the mode is set while it runs and restored while it is suspended."""
        import functools

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = fn(*args, **kwargs)
            action, value = generator.send, None
            while True:
                try:
                    with type(self)():
                        item = action(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    value = yield item
                    action = generator.send
                except GeneratorExit:
                    with type(self)():
                        generator.close()
                    raise
                except BaseException as error:
                    action, value = generator.throw, error

        return wrapped


class no_grad(_Switch):
    """Context manager or decorator under which ops are not recorded on the tape.

    >>> x = wf.tensor(2.0, requires_grad=True)
    >>> with wf.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """

    value = False


class enable_grad(_Switch):
    """Context manager or decorator under which ops are recorded, also within `no_grad`.

    >>> x = wf.tensor(2.0, requires_grad=True)
    >>> with wf.no_grad(), wf.enable_grad():
    ...     (x * x).requires_grad
    True
    """

    value = True


def is_grad_enabled() -> bool:
    """Whether ops are being recorded in this thread."""
    return grad_mode.enabled


# Mutation ------------------------------------------------------------------------------------------------------------


class Moment:
    """The clock of one write, or of several that happen together."""

    __slots__ = ("clock",)

    def __init__(self, clock: int) -> None:
        self.clock = clock


class Write:
    """One write in place: when, where in the user's program, by what, and to which part of the memory.

    The part is kept as plain numbers: a reference to the array would keep its memory alive.
    """

    __slots__ = ("moment", "where", "op", "address", "shape", "strides", "itemsize")

    def __init__(self, array: ndarray, owner: ndarray, op: str) -> None:
        self.moment, self.where, self.op = Moment(tick()), user_location(3), op
        self.address: int | None = None  # None: all of it
        if array is not owner and array.size:
            self.address = array.__array_interface__["data"][0]
            self.shape, self.strides, self.itemsize = array.shape, array.strides, array.itemsize

    @property
    def clock(self) -> int:
        return self.moment.clock

    def touches(self, array: ndarray, owner: ndarray) -> bool:
        """Whether this write changed part of `array`, a view of `owner`."""
        if self.address is None or array is owner:
            return True
        start = owner.__array_interface__["data"][0]
        try:
            written = ndarray(self.shape, f"V{self.itemsize}", owner, self.address - start, self.strides)
            return np.shares_memory(written, array, max_work=100_000)  # type: ignore[arg-type]
        except (TypeError, ValueError, BufferError, np.exceptions.TooHardError):
            return True  # undecidable (a non-contiguous or exotic owner, too many strides to compare): assume it did


mutations: dict[int, list[Write]] = {}
_watchers: dict[int, Any] = {}
_MAX_WRITES = 64  # partial writes remembered per allocation; beyond that all of it counts as written


def memory_of(array: ndarray) -> ndarray:
    """The array that all views of one piece of memory come from (its own base, if any, is not an array)."""
    base = array.base
    while base.__class__ is ndarray:
        array, base = base, base.base
    return array


latest = Moment(0)
"""The clock of the latest write to any memory."""


def renew(moment: Moment, now: int) -> None:
    """Date the writes of `moment` to `now`: the same ops at the same lines are writing again."""
    moment.clock = latest.clock = now


relinked = Moment(0)
"""The clock of the latest change of an existing tensor's node."""


def note_relink() -> None:
    relinked.clock = tick()


def note_mutation(array: ndarray, op: str) -> None:
    """Remember that the memory of `array` is being written by `op` now, at the user's line."""
    owner = memory_of(array)
    key = id(owner)
    write = Write(array, owner, op)
    writes = mutations.get(key)
    if writes is None:
        _watchers[key] = weakref.ref(owner, lambda _, key=key: _forget(key))  # type: ignore[misc]
        mutations[key] = [write]
    elif write.address is None or len(writes) >= _MAX_WRITES:
        write.address = None
        mutations[key] = [write]
    else:
        writes.append(write)
    latest.clock = write.clock  # last: only when the write can be found


def _forget(key: int) -> None:
    mutations.pop(key, None)
    _watchers.pop(key, None)


def check_saved(array: Any, node: Node, name: str) -> None:
    """Raise if `array`, saved by `node`, was overwritten since."""
    check_overwritten(
        f"backward of {node.op.title}",
        f"its saved tensor {name!r}",
        array,
        getattr(node, "since", node.seq),
        node.where,
    )


def check_overwritten(op: str, what: str, array: Any, since: int, recorded: Location | None = None) -> None:
    """Raise if the memory of `array` was written to after the tick `since`."""
    if type(array) is not ndarray:
        return
    owner = memory_of(array)
    for write in reversed(mutations.get(id(owner), ())):
        if write.clock <= since:
            return
        if write.touches(array, owner):
            line = f" It was saved at {recorded}." if recorded is not None else ""
            raise RuntimeError(
                f"{op}: {what} of shape {array.shape} was overwritten in place by {write.op} after it was saved. "
                f"Overwritten at {write.where}.{line} "
                f"Compute out of place (`y = y + 1` instead of `y += 1`) or clone the tensor first."
            )
