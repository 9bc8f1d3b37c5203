"""State on the tasks of a cluster, seen from the client: keys, homes, and what a task needs to make it.

A variable or queue that is placed on a task is made there before the first step that uses it, with the value or elements it
had here. From then on the client's object stands for it: it reads, assigns, puts and gets there.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.declared.queues import Barrier, Element, Queue
from ..graph.declared.variables import State, locked
from ..graph.remote_data import RemoteData
from ..nn.initializers import constant
from ..runtime.device import Device
from .remote_client import CALL_SECONDS, Lost, Mailbox
from .remote_messages import TaskLostError, load_error
from .remote_parts import queue_facts

if TYPE_CHECKING:
    from .cluster import Cluster


class VariableHome:
    """A variable on a task.

    Attributes:
        initial: the value with which it was moved there, or None if it was made there by an initialiser.
    """

    def __init__(self, cluster: Cluster, key: str, device: Device, initial: np.ndarray | None, init: Any) -> None:
        self.cluster, self.key, self.device, self.initial, self.init = cluster, key, device, initial, init
        self.text = f"on {place_of(device)}"

    def read(self) -> np.ndarray:
        """A copy of the value."""
        _, arrays = self.cluster.call(self.device, {"do": "read", "key": self.key})
        return arrays[0]

    def assign(self, value: np.ndarray) -> None:
        """Store a value."""
        self.cluster.call(self.device, {"do": "assign", "key": self.key}, [value])


class TaskQueueHome:
    """A queue on a task: what `QueueHome` says, there."""

    def __init__(self, cluster: Cluster, key: str, device: Device, name: str) -> None:
        self.cluster, self.key, self.device, self.name = cluster, key, device, name

    def _call(
        self, how: str, arrays: Sequence[np.ndarray] = (), **facts: Any
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        return self.cluster.call(self.device, {"do": "queue", "key": self.key, "how": how, **facts}, arrays)

    def _wait(self, message: dict[str, Any], arrays: Sequence[np.ndarray], timeout: float | None) -> list[np.ndarray]:
        """A call that may wait for the queue; withdrawn when the time is over."""
        cluster, box = self.cluster, Mailbox()
        task = cluster.number_of(self.device)
        number = cluster.hub.start_call(task, {"do": "queue", "key": self.key, **message}, arrays, box)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            if not cluster.hub.wait(box, until):
                answer, _ = cluster.call(self.device, {"do": "withdraw", "call": number})
                if answer["withdrawn"]:
                    raise TimeoutError(f"{self.name}: nothing happened within {timeout} seconds.")
                cluster.hub.wait(box, time.monotonic() + CALL_SECONDS)  # its outcome is on the way
        except KeyboardInterrupt:  # an abandoned call must not take an element later
            cluster.call(self.device, {"do": "withdraw", "call": number})
            raise
        finally:
            cluster.hub.forget_call(number)
        item = box.items.popleft() if box.items else Lost(task)
        if isinstance(item, Lost):
            raise TaskLostError(f"{self.name}: {place_of(self.device)}, which holds the queue, was lost.")
        _, (answer, results) = item
        if "error" in answer:
            raise load_error(answer["error"])
        return list(results)

    def put(self, elements: list[Element], timeout: float | None) -> None:
        self._wait({"how": "put"}, [a for element in elements for a in element], timeout)

    def get(self, count: int | None, partial: bool, timeout: float | None) -> Sequence[np.ndarray]:
        return self._wait({"how": "get", "count": count, "partial": partial}, (), timeout)

    def size(self) -> int:
        return int(self._call("size")[0]["size"])

    def closed(self) -> bool:
        return bool(self._call("closed")[0]["closed"])

    def close(self, cancel_pending: bool = False) -> None:
        self._call("close", cancel=cancel_pending)


def place_of(device: Device) -> str:
    """A task for people: `/job:ps/task:0`."""
    return f"/job:{device.job}/task:{device.task}"


class StateKeys:
    """The keys of state, and how it gets to its task."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next = itertools.count(1)
        self._initial: weakref.WeakKeyDictionary[State, np.ndarray] = weakref.WeakKeyDictionary()
        self.garbage: list[tuple[Device, str]] = []  # private things that nobody uses any more

    def of(self, what: State | Queue | Barrier) -> str:
        if what.shared:
            return what.name
        if isinstance(what, State):
            return f"#{self.cluster.number:08x}/{what.number}"
        if what not in self._numbers:
            self._numbers[what] = next(self._next)
        return f"#{self.cluster.number:08x}/queue-{self._numbers[what]}"

    def check(self, what: State | Queue | Barrier) -> None:
        """Raise if `what` is on another cluster."""
        home = what.home
        other = getattr(home, "cluster", None)
        if home is not None and other is not None and other is not self.cluster:
            raise RuntimeError(
                f"session: {what.name!r} lives on a task of another cluster. A variable or queue stays where it was first "
                "used; make a new one for this cluster."
            )

    def entry(self, what: State | Queue | Barrier, device: Device, arrays: list[np.ndarray]) -> dict[str, Any]:
        """What a task needs to make `what` if it does not have it; arrays that belong to it are appended."""
        self.check(what)
        entry: dict[str, Any] = {"key": self.of(what), "name": what.name, "private": not what.shared, "array": None}
        if isinstance(what, State):
            data = what.tensor._data
            entry.update(what="state", shape=list(data.shape), dtype=data.dtype.name, init=None)
            home = what.home
            initial = home.initial if isinstance(home, VariableHome) else None
            if home is None:
                with locked([what], []):
                    initial = self._initial[what] = np.array(data)
            if initial is not None:
                entry["array"] = len(arrays)
                arrays.append(initial)
            else:
                init = home.init if isinstance(home, VariableHome) else what.init
                entry["init"] = (constant(init) if isinstance(init, (int, float)) else init).dump()
        elif isinstance(what, Queue):
            entry.update(
                what="queue",
                queue=queue_facts(what),
                seed=getattr(what, "seed", None),
                elements=0,
                array=len(arrays),
                closed=False,
            )
        else:
            entry.update(what="barrier", parties=what.parties)
        return entry

    def settle(self, what: State | Queue | Barrier, device: Device) -> None:
        """`what` has been made on the task of `device`: from now on it is there."""
        if isinstance(what, State):
            home = what.home
            if isinstance(home, VariableHome):
                return
            data = what.tensor._data
            initial = self._initial.pop(what, None)
            made = VariableHome(self.cluster, self.of(what), device, initial, what.init)
            what.tensor._data = RemoteData(tuple(data.shape), data.dtype, made, what.name)
        elif isinstance(what, Queue):
            if what.home is not None:
                return
            what.move(lambda elements: self._send(what, device, elements))
        else:
            if what.home is not None:
                return
            what.home = TaskQueueHome(self.cluster, self.of(what), device, what.name)
        if not what.shared:
            weakref.finalize(what, self.garbage.append, (device, self.of(what))).atexit = False

    def _send(self, queue: Queue, device: Device, elements: list[Element]) -> TaskQueueHome:
        """Make a queue on its task with the elements that it has here."""
        arrays: list[np.ndarray] = []
        entry = self.entry(queue, device, arrays)
        entry.update(elements=len(elements), array=0, closed=queue._closed)
        self.cluster.call(device, {"do": "ensure", "ensure": [entry]}, [a for element in elements for a in element])
        return TaskQueueHome(self.cluster, self.of(queue), device, queue.name)
