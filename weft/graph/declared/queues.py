"""Queues, barriers and coordinators: pass tuples of tensors between steps and threads of one process.

Note [Queue contract]. A queue holds *elements*: tuples of arrays, one per component. A call that cannot proceed is
*pending*: it is remembered in the order of arrival, occupies no thread, and is tried again when the queue changes. Pending
calls of one kind finish in order. What happens to a call:

=================  =================================  =============================================================
call               open queue                         after `close()`
=================  =================================  =============================================================
enqueue            pending while the queue is full    new ones fail (QueueClosedError); pending ones still succeed as
                                                      space frees up, or fail with `close(cancel_pending=True)`
dequeue            pending while the queue is empty   takes the remaining ones; fails when too few remain and no
                                                      enqueue is pending that could bring it
dequeue_many(n)    pending until n elements are there fails as dequeue does; elements it was offered stay in the queue
dequeue_up_to(n)   as dequeue_many                    takes the remaining ones if there is at least one
=================  =================================  =============================================================

`enqueue_many` fills free slots as they appear; when it fails, elements already enqueued stay. A call whose step is
cancelled or passes its deadline, or whose own `timeout` passes, is withdrawn: it has no effect from then on. An element
that an abandoned step had taken goes back to the front (Note [Leases]), even if the queue is full or closed by then. A
queue copies its inputs and gives up ownership of its outputs.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ... import dtypes
from ...errors import format_shape, user_location
from ...ops.core.spec import Spec
from ...tensor import Tensor, to_array, wrap
from ..execute.leases import lease, note_effects
from ..graph import Node, Value
from .building import DeclaredGraph, GraphOp, effects_graph, leaf, stay_with, task_scope

ndarray = np.ndarray
Element = tuple[Any, ...]
Done = Callable[[BaseException | None, Sequence[Any]], None]
Withdraw = Callable[[], bool]
"""withdraws a call that was started; False if it is too late: the call is done or being reported"""


class QueueClosedError(RuntimeError):
    """The queue is closed: it accepts no elements, or too few are left."""


class _Moved(Exception):
    """The queue is on a task of a cluster by now: the call belongs there."""


class QueueHome(Protocol):
    """Where the elements of a queue are that lives on a task of a cluster: the eager calls, there."""

    def put(self, elements: list[Element], timeout: float | None) -> None: ...

    def get(self, count: int | None, partial: bool, timeout: float | None) -> Sequence[ndarray]: ...

    def size(self) -> int: ...

    def closed(self) -> bool: ...

    def close(self, cancel_pending: bool) -> None: ...


class _Call:
    """A pending call. `attempt()` returns its outcome, or None; it runs with the queue's lock held."""

    __slots__ = ("attempt", "done", "outcome", "is_enqueue")

    def __init__(self, attempt: Callable[[], Any], done: Done, is_enqueue: bool) -> None:
        self.attempt, self.done, self.is_enqueue = attempt, done, is_enqueue
        self.outcome: tuple[BaseException | None, Sequence[Any]] | None = None


class _QueueOp(GraphOp):
    """A queue call as a node. It blocks: an executor starts it and is called back."""

    effects = frozenset(("reads", "writes", "blocks"))

    def __init__(self, queue: Queue, method: str, count: int | None = None) -> None:
        super().__init__(f"{queue.kind}_{method}")
        self.queue, self.method, self.count = queue, method, count

    def start(self, arrays: Sequence[ndarray], done: Done, run: Any) -> Withdraw | None:
        queue = self.queue
        if self.method in ("enqueue", "enqueue_many"):
            elements = [queue._checked(arrays)] if self.method == "enqueue" else queue._split(arrays)
            return queue._start_enqueue(elements, done, lambda: note_effects([self], run))
        if self.method == "size":
            done(None, [np.asarray(queue.size(), np.int64)])
            return None
        if self.method in ("close", "cancel"):
            queue.close(self.method == "cancel")
            note_effects([self], run)
            done(None, ())
            return None
        return queue._start_dequeue(
            self.count, self.method == "dequeue_up_to", done, lambda elements: lease(run, self, queue, elements)
        )


class Queue:
    """Base class of queues; see Note [Queue contract]. Any thread may call any method.

    Args:
        capacity: the maximum number of elements.
        dtypes: the dtype of every component.
        shapes: the shape of every component (None sizes allowed), or None: anything. `dequeue_many` and
            `dequeue_up_to` stack elements, so those must have equal shapes.
        shared: on a task of a cluster, whether all clients mean the same queue by `name`.

    Methods called with symbolic tensors, and `dequeue…` inside `with graph.as_default():`, add nodes; `put` and `get`
    are the eager forms and work at once.
    """

    kind = "queue"

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, name: str | None = None, shared: bool = False
    ) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            raise ValueError(f"{self.kind}: capacity must be at least 1. Got {capacity!r}.")
        from ... import dtypes as table

        several = isinstance(dtypes, (list, tuple))
        self.dtypes = tuple([table.as_dtype(d) for d in (dtypes if several else [dtypes])])
        self.single = not several
        self.shapes: tuple[Any, ...] = (None,) * len(self.dtypes)
        if shapes is not None:
            given = list(shapes) if several else [shapes]
            if len(given) != len(self.dtypes):
                raise ValueError(
                    f"{self.kind}: expected one shape per component. Got {len(given)} for {len(self.dtypes)}."
                )
            self.shapes = tuple([None if s is None else tuple(s) for s in given])
        self.capacity = capacity
        self.name = name or self.kind
        if shared and name is None:
            raise ValueError(f"{self.kind}: a shared queue needs a name.")
        self.shared = shared
        self.device = task_scope()  # the task of a cluster on which it was declared; None: it stays in this process
        self.home: QueueHome | None = None  # where its elements are, if not in this process
        self._lock = threading.Lock()
        self._calls: deque[_Call] = deque()
        self._closed = False

    # What kinds differ in -------------------------------------------------------------------------------------------------

    def _push(self, element: Element) -> None:
        raise NotImplementedError

    def _pop(self) -> Element:
        raise NotImplementedError

    def _unpop(self, element: Element) -> None:
        """Put an element back where `_pop` takes the next one."""
        raise NotImplementedError

    def _held(self) -> int:
        raise NotImplementedError

    def _available(self) -> int:
        """The number of elements that may be taken now."""
        return self._held()

    # Elements -------------------------------------------------------------------------------------------------------------

    def _checked(self, arrays: Sequence[Any]) -> Element:
        if len(arrays) != len(self.dtypes):
            raise ValueError(f"{self.name}: an element has {len(self.dtypes)} components. Got {len(arrays)}.")
        made = []
        for i, (a, dtype, shape) in enumerate(zip(arrays, self.dtypes, self.shapes, strict=True)):
            weak = isinstance(a, (bool, int, float, complex, list, tuple))
            array = np.array(to_array(a, dtype if weak else None))
            if array.dtype != dtype:
                raise TypeError(f"{self.name}: component {i} must be {dtype.name}. Got {array.dtype.name}.")
            if shape is not None and not _fits(shape, array.shape):
                raise ValueError(
                    f"{self.name}: component {i} must have shape {format_shape(shape)}. Got {format_shape(array.shape)}."
                )
            made.append(array)
        return tuple(made)

    def _split(self, arrays: Sequence[Any]) -> list[Element]:
        parts = [np.asarray(to_array(a)) for a in arrays]
        sizes = {a.shape[0] if a.ndim else None for a in parts}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(f"{self.name}: enqueue_many needs components of equal length along axis 0. Got {sizes}.")
        return [self._checked([a[i] for a in parts]) for i in range(sizes.pop() or 0)]

    # Calls ----------------------------------------------------------------------------------------------------------------

    def _start_enqueue(
        self, elements: Iterable[Element], done: Done, used: Callable[[], None] | None = None
    ) -> Withdraw | None:
        """`used()` is called, with the lock held, when the first element is in. Of a deque, what is in is taken off."""
        with self._lock:
            closed = self._closed and self.home is None
        if closed:
            done(QueueClosedError(f"{self.name}: enqueue after the queue was closed."), ())
            return None
        left = elements if elements.__class__ is deque else deque(elements)

        def attempt() -> Any:
            before = len(left)
            while left and self._held() < self.capacity:
                self._push(left.popleft())
            if used is not None and len(left) != before:
                used()
            return None if left else (None, ())

        return self._submit(_Call(attempt, done, True))

    def _start_dequeue(
        self, count: int | None, partial: bool, done: Done, taken: Callable[[list[Element]], None] | None = None
    ) -> Withdraw:
        """`taken(elements)` is called, with the lock held, when they leave the queue."""
        least = 1 if count is None else count

        def attempt() -> Any:
            have = self._available()
            if have >= least:
                return None, self._take(count, taken)
            if self._closed and not any(c.is_enqueue for c in self._calls):
                if partial and have:
                    return None, self._take(have, taken)
                text = f"{self.name}: is closed and has {have} elements left, but {least} were asked for."
                return QueueClosedError(text), ()
            return None

        if count is not None and count > self.capacity:
            raise ValueError(
                f"{self.name}: {count} elements can never be there at once. The capacity is {self.capacity}."
            )
        return self._submit(_Call(attempt, done, False))

    def _take(self, count: int | None, taken: Callable[[list[Element]], None] | None) -> list[Any]:
        rows = [self._pop() for _ in range(1 if count is None else count)]
        try:
            if count is None:
                made = list(rows[0])
            elif not rows:
                made = [np.empty((0, *(s or ())), d) for s, d in zip(self.shapes, self.dtypes, strict=True)]
            else:
                made = [np.stack(column) for column in zip(*rows, strict=True)]
        except BaseException as error:
            for row in reversed(rows):
                self._unpop(row)
            if not isinstance(error, ValueError):
                raise
            raise ValueError(f"{self.name}: dequeue_many needs elements of equal shapes.") from None
        if taken is not None:
            taken(rows)
        return made

    def give_back(self, elements: Sequence[Element]) -> None:
        """Return elements that were taken to the front of the queue."""
        with self._lock:
            for element in reversed(elements):
                self._unpop(element)
        self._flush()

    def _submit(self, call: _Call) -> Withdraw:
        with self._lock:
            if self.home is not None:
                raise _Moved
            self._calls.append(call)
        self._flush()

        def withdraw() -> bool:
            with self._lock:
                if call not in self._calls:
                    return False
                self._calls.remove(call)
                return True

        return withdraw

    def _flush(self) -> None:
        """Try pending calls, each kind in order, until none makes progress; report outside the lock."""
        finished: list[_Call] = []
        with self._lock:
            progress = True
            while progress:
                progress = False
                for is_enqueue in (True, False):
                    while True:
                        call = next((c for c in self._calls if c.is_enqueue is is_enqueue), None)
                        if call is None:
                            break
                        before = self._held()
                        try:
                            call.outcome = call.attempt()
                        except Exception as error:
                            call.outcome = (error, ())
                        if call.outcome is None:
                            progress = progress or self._held() != before
                            break
                        self._calls.remove(call)
                        finished.append(call)
                        progress = True
        for call in finished:
            assert call.outcome is not None
            call.done(*call.outcome)

    def move(self, home: Callable[[list[Element]], QueueHome]) -> None:
        """Give the elements away to `home(elements)`, which from now on is where they are; pending calls follow."""
        with self._lock:
            elements = [self._pop() for _ in range(self._held())]
            try:
                self.home = home(elements)
            except BaseException:
                for element in reversed(elements):
                    self._unpop(element)
                raise
            calls, self._calls = self._calls, deque()
        for call in calls:
            call.done(_Moved(), ())

    def close(self, cancel_pending: bool = False) -> None:
        """Accept no further elements; `cancel_pending` also fails pending enqueues. Closing twice is allowed."""
        cancelled: list[_Call] = []
        with self._lock:
            home = self.home
            self._closed = True
            if cancel_pending:
                cancelled = [c for c in self._calls if c.is_enqueue]
                self._calls = deque([c for c in self._calls if not c.is_enqueue])
        if home is not None:
            home.close(cancel_pending)
            return
        for call in cancelled:
            call.done(QueueClosedError(f"{self.name}: the queue was closed and its pending calls cancelled."), ())
        self._flush()

    @property
    def closed(self) -> bool:
        return self._closed if self.home is None else self.home.closed()

    def size(self) -> int:
        """Return the number of elements in the queue now."""
        if self.home is not None:
            return self.home.size()
        with self._lock:
            return self._held()

    def __len__(self) -> int:
        return self.size()

    # Eager use ------------------------------------------------------------------------------------------------------------

    def _wait(
        self, start: Callable[[Done], Withdraw | None], timeout: float | None, taken: Sequence[Element] = ()
    ) -> Any:
        """Start a call and wait for its outcome; `taken` holds the elements that it has taken from the queue."""
        event = threading.Event()
        outcome: list[Any] = []

        def done(error: BaseException | None, outputs: Sequence[Any]) -> None:
            outcome.extend((error, outputs))
            event.set()

        withdraw = start(done)
        try:
            if not event.wait(timeout) and (withdraw is None or withdraw()):
                raise TimeoutError(f"{self.name}: nothing happened within {timeout} seconds.")
            event.wait()  # its outcome may be on the way
        except BaseException:  # also Ctrl-C: an abandoned call must not take an element later
            if withdraw is not None and not withdraw() and taken:
                self.give_back(taken)
            raise
        if outcome[0] is not None:
            raise outcome[0]
        return outcome[1]

    def _wait_for_elements(self, count: int | None, partial: bool, timeout: float | None) -> Any:
        taken: list[Element] = []
        try:
            arrays = self._wait(lambda done: self._start_dequeue(count, partial, done, taken.extend), timeout, taken)
        except _Moved:
            assert self.home is not None
            arrays = self.home.get(count, partial, timeout)
        return self._as_tensors(arrays)

    def put(self, *components: Any, timeout: float | None = None) -> None:
        """Enqueue one element eagerly, blocking while the queue is full; TimeoutError after `timeout` seconds."""
        self._put([self._checked(components)], timeout)

    def put_many(self, *components: Any, timeout: float | None = None) -> None:
        """Enqueue the slices of the components along axis 0 eagerly, blocking while the queue is full."""
        self._put(self._split(components), timeout)

    def _put(self, elements: list[Element], timeout: float | None) -> None:
        left = deque(elements)
        try:
            self._wait(lambda done: self._start_enqueue(left, done), timeout)
        except _Moved:
            assert self.home is not None
            self.home.put(list(left), timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Dequeue one element eagerly, blocking while the queue is empty; TimeoutError after `timeout` seconds."""
        return self._wait_for_elements(None, False, timeout)

    def get_many(self, count: int, timeout: float | None = None, up_to: bool = False) -> Any:
        """Dequeue `count` elements eagerly, stacked along a new axis 0 (`up_to`: fewer once the queue is closed)."""
        return self._wait_for_elements(_count(self.name, count), up_to, timeout)

    def _as_tensors(self, arrays: Sequence[ndarray]) -> Any:
        made = tuple([wrap(a) for a in arrays])
        return made[0] if self.single else made

    # Nodes ----------------------------------------------------------------------------------------------------------------

    def _add(self, method: str, inputs: Sequence[Any], specs: Sequence[Spec], count: int | None = None) -> Node:
        graph = effects_graph(self.name)
        if isinstance(graph, DeclaredGraph):
            own = (t._data.node.graph for t in inputs if isinstance(t, Tensor) and isinstance(t._data, Value))
            graph = next(own, graph)
        values = []
        for i, t in enumerate(inputs):
            if hasattr(t, "__weft_tensor__"):
                t = t.__weft_tensor__()
            if not isinstance(t, Tensor):
                t = Tensor(to_array(t, self._component_dtype(i)))
                values.append(graph.constant(np.array(t._data)))
            else:
                values.append(graph.operand(t))
        for i, v in enumerate(values):
            expected = self._component_dtype(i)
            if v.dtype != expected:
                raise TypeError(f"{self.name}: component {i} must be {expected.name}. Got {v.dtype.name}.")
        node = graph.add(_QueueOp(self, method, count), values, (), specs, user_location(2), f"{self.name}/{method}")
        stay_with(node, self.device)
        return node

    def _component_dtype(self, i: int) -> np.dtype:
        return self.dtypes[i]

    def _check_count(self, components: Sequence[Any]) -> None:
        if len(components) != len(self.dtypes):
            raise ValueError(f"{self.name}: an element has {len(self.dtypes)} components. Got {len(components)}.")

    def enqueue(self, *components: Any) -> Node:
        """Add a node that enqueues one element."""
        self._check_count(components)
        return self._add("enqueue", components, ())

    def enqueue_many(self, *components: Any) -> Node:
        """Add a node that enqueues the slices of the components along axis 0."""
        self._check_count(components)
        return self._add("enqueue_many", components, ())

    def dequeue(self) -> Any:
        """Return the components of the next element as symbolic tensors; each step that uses them takes one element."""
        specs = [Spec(s, d) for s, d in zip(self.shapes, self.dtypes, strict=True)]
        return self._results(self._add("dequeue", (), specs))

    def dequeue_many(self, count: int) -> Any:
        """Return the next `count` elements as symbolic tensors, stacked along a new axis 0."""
        return self._many("dequeue_many", _count(self.name, count), count)

    def dequeue_up_to(self, count: int) -> Any:
        """Like `dequeue_many`, but with fewer elements once the queue is closed."""
        return self._many("dequeue_up_to", _count(self.name, count), None)

    def _many(self, method: str, count: int, size: int | None) -> Any:
        specs = [Spec(None if s is None else (size, *s), d) for s, d in zip(self.shapes, self.dtypes, strict=True)]
        return self._results(self._add(method, (), specs, count))

    def size_op(self) -> Tensor:
        """Return the number of elements as a symbolic tensor."""
        return wrap(self._add("size", (), [Spec((), dtypes.int64)]).outputs[0])

    def close_op(self, cancel_pending: bool = False) -> Node:
        """Add a node that closes the queue."""
        return self._add("cancel" if cancel_pending else "close", (), ())

    def _results(self, node: Node) -> Any:
        made = tuple([leaf(wrap(v)) for v in node.outputs])  # gradients with respect to what was dequeued exist
        return made[0] if self.single else made


def _fits(shape: Sequence[Any], given: Sequence[int]) -> bool:
    return len(shape) == len(given) and all(s is None or s == g for s, g in zip(shape, given, strict=True))


def _count(name: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"{name}: a number of elements must be an integer of at least 0. Got {count!r}.")
    return count


class FIFOQueue(Queue):
    """A queue whose elements leave in the order in which they came.

    Args:
        capacity: the maximum number of elements.
        dtypes: the dtype of every component: a list, or one dtype for elements with one component.
        shapes: the shape of every component (None sizes allowed), or None for any shape.
        name: the prefix of its nodes.
        shared: on a task of a cluster, whether all clients mean the same queue by `name`.

    >>> q = wf.FIFOQueue(10, wf.float32, ())
    >>> with wf.Graph().as_default() as graph:
    ...     x = q.dequeue() * 2
    >>> q.put(1.5)
    >>> with wf.Session(graph) as sess:
    ...     sess.run(x).item()
    3.0
    """

    kind = "fifo_queue"

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, name: str | None = None, shared: bool = False
    ) -> None:
        super().__init__(capacity, dtypes, shapes, name, shared)
        self._items: deque[Element] = deque()

    def _push(self, element: Element) -> None:
        self._items.append(element)

    def _pop(self) -> Element:
        return self._items.popleft()

    def _unpop(self, element: Element) -> None:
        self._items.appendleft(element)

    def _held(self) -> int:
        return len(self._items)


class RandomShuffleQueue(Queue):
    """A queue whose elements leave in random order.

    Args:
        min_after_dequeue: the number of elements that stay for mixing until the queue is closed.
        seed: of the order; random by default.
        capacity, dtypes, shapes, name, shared: as in `FIFOQueue`.

    >>> q = wf.RandomShuffleQueue(10, 0, wf.int64, (), seed=0)
    >>> q.put_many([1, 2, 3])
    >>> sorted(q.get_many(3).tolist())
    [1, 2, 3]
    """

    kind = "random_shuffle_queue"

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        seed: int | None = None,
        name: str | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__(capacity, dtypes, shapes, name, shared)
        if not 0 <= min_after_dequeue < capacity:
            raise ValueError(
                f"{self.kind}: min_after_dequeue must be between 0 and capacity - 1. Got {min_after_dequeue}."
            )
        self.min_after_dequeue = min_after_dequeue
        self.seed = seed
        self._items: list[Element] = []
        self._random = np.random.default_rng(seed)

    def _push(self, element: Element) -> None:
        self._items.append(element)

    def _pop(self) -> Element:
        i = int(self._random.integers(len(self._items)))
        self._items[i], self._items[-1] = self._items[-1], self._items[i]
        return self._items.pop()

    def _unpop(self, element: Element) -> None:
        self._items.append(element)

    def _held(self) -> int:
        return len(self._items)

    def _available(self) -> int:
        return len(self._items) - (0 if self._closed else self.min_after_dequeue)


class PriorityQueue(Queue):
    """A queue whose elements leave by priority: smallest first, equal ones in the order in which they came.

    An element has the priority, an int64 number, before its components. Arguments are those of `FIFOQueue`.

    >>> q = wf.PriorityQueue(10, wf.float32, ())
    >>> q.put(5, 0.5)
    >>> q.put(1, 0.1)
    >>> q.get()[0].item()
    1
    """

    kind = "priority_queue"

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, name: str | None = None, shared: bool = False
    ) -> None:
        from ... import dtypes as table

        several = isinstance(dtypes, (list, tuple))
        kinds = [table.int64, *(dtypes if several else [dtypes])]
        forms = None if shapes is None else [(), *(shapes if several else [shapes])]
        super().__init__(capacity, kinds, forms, name, shared)
        if forms is None:
            self.shapes = ((), *self.shapes[1:])
        self._items: list[tuple[int, int, Element]] = []
        self._arrivals = itertools.count()
        self._returns = itertools.count(-1, -1)

    def _push(self, element: Element) -> None:
        heapq.heappush(self._items, (int(element[0]), next(self._arrivals), element))

    def _pop(self) -> Element:
        return heapq.heappop(self._items)[2]

    def _unpop(self, element: Element) -> None:
        heapq.heappush(self._items, (int(element[0]), next(self._returns), element))

    def _held(self) -> int:
        return len(self._items)


class StagingArea(FIFOQueue):
    """A small FIFO between two devices or pipeline stages: `stage` the next element while a step uses the last one."""

    kind = "staging_area"

    def stage(self, *components: Any) -> Node:
        """Add a node that enqueues one element."""
        return self.enqueue(*components)

    def unstage(self) -> Any:
        """Return the components of the oldest element as symbolic tensors."""
        return self.dequeue()


class Barrier:
    """A reusable barrier: no step passes `wait()` before `parties` steps have arrived.

    A step that is cancelled or passes its deadline while it waits is withdrawn: it no longer counts as arrived.
    """

    def __init__(self, parties: int, name: str = "barrier", shared: bool = False) -> None:
        if not isinstance(parties, int) or parties < 1:
            raise ValueError(f"barrier: expected at least one party. Got {parties!r}.")
        self.parties, self.name, self.shared = parties, name, shared
        self.device = task_scope()
        self.home: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Done] = []
        self._closed = False

    def _start(self, done: Done) -> Callable[[], None] | None:
        passed: list[Done] = []
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.append(done)
                if len(self._waiting) == self.parties:
                    passed, self._waiting = self._waiting, []
        if closed:
            done(QueueClosedError(f"{self.name}: the barrier is closed."), ())
            return None
        for other in passed:
            other(None, ())

        def withdraw() -> None:
            with self._lock:
                if done in self._waiting:
                    self._waiting.remove(done)

        return withdraw

    def close(self) -> None:
        """Fail current and later waiters with QueueClosedError."""
        if self.home is not None:
            self.home.close()
            return
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(QueueClosedError(f"{self.name}: the barrier was closed."), ())

    def wait(self) -> Node:
        """Add a node that completes once all parties have arrived."""
        node: Node = effects_graph(self.name).add(_BarrierOp(self), (), (), (), user_location(1), f"{self.name}/wait")
        stay_with(node, self.device)
        return node


class _BarrierOp(GraphOp):
    effects = frozenset(("blocks",))

    def __init__(self, barrier: Barrier) -> None:
        super().__init__("barrier_wait")
        self.barrier = barrier

    def start(self, arrays: Sequence[ndarray], done: Done, run: Any) -> Callable[[], None] | None:
        return self.barrier._start(done)
