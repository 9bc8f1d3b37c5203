"""Transport: send values from one device to another.

The two ends of a crossing know each other only by their `Key`, so it does not matter whether the other device is in this
process. `LocalTransport` is the one for devices of one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...runtime.device import Device

Done = Callable[[BaseException | None, Sequence[Any]], None]
Tag = tuple[tuple[str, int], ...]  # the loops a value is in, outermost first, each with its iteration


class Key(NamedTuple):
    """The name of one value in transit: source, destination, edge, step and loop iteration."""

    source: Device
    destination: Device
    edge: str
    step: int
    iteration: Tag = ()


class Transport(Protocol):
    """Sends and receives values by key.

    `send` never waits for the receiver. `receive` calls `done` once the value of `key` has arrived, perhaps at once, and
    returns a function that withdraws the call. `listen` passes every value of a step for `destination` to `deliver`, for
    loops, whose number of iterations is unknown. `forget` drops the remaining values of a step.
    """

    def send(self, key: Key, array: Any) -> None: ...

    def receive(self, key: Key, done: Done) -> Callable[[], None]: ...

    def listen(self, step: int, destination: Device, deliver: Callable[[Key, Any], None]) -> None: ...

    def forget(self, step: int) -> None: ...


class LocalTransport:
    """A transport within this process: a table of unreceived values and of waiting receivers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Key, Any] = {}
        self._waiting: dict[Key, Done] = {}
        self._listeners: dict[tuple[int, Device], Callable[[Key, Any], None]] = {}
        self.sent = 0  # how many values have crossed

    def send(self, key: Key, array: Any) -> None:
        with self._lock:
            self.sent += 1
            deliver = self._listeners.get((key.step, key.destination))
            done = self._waiting.pop(key, None) if deliver is None else None
            if deliver is None and done is None:
                if key in self._values:
                    raise RuntimeError(f"transport: {key} was sent twice.")
                self._values[key] = array
                return
        if deliver is not None:
            deliver(key, array)
        elif done is not None:
            done(None, [array])

    def receive(self, key: Key, done: Done) -> Callable[[], None]:
        with self._lock:
            if key in self._values:
                array = self._values.pop(key)
            else:
                self._waiting[key] = done
                return lambda: self._withdraw(key)
        done(None, [array])
        return lambda: None

    def listen(self, step: int, destination: Device, deliver: Callable[[Key, Any], None]) -> None:
        with self._lock:
            self._listeners[(step, destination)] = deliver

    def _withdraw(self, key: Key) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def forget(self, step: int) -> None:
        with self._lock:
            for table in (self._values, self._waiting):
                for key in [k for k in table if k.step == step]:
                    del table[key]
            for listener in [k for k in self._listeners if k[0] == step]:
                del self._listeners[listener]
