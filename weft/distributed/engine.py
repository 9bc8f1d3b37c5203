"""Engines: start the processes of a run on its hosts, learn of their ends, start them again.

An engine knows nothing of training. A task is an argument list and an environment: user code is named by path, and nothing
is pickled. `LocalEngine` uses processes of this machine, and directories of it as further hosts; tests use it, too.
`weft.distributed.ray_engine` uses the nodes of a Ray cluster. Standard library only.
"""

from __future__ import annotations

import dataclasses
import os
import select
import time
from collections.abc import Mapping
from typing import Protocol

from .host import REAPED, Event, Host, HostJoined, Place

GLANCE_SECONDS = 0.1  # how often hosts look for what no descriptor announces


@dataclasses.dataclass(frozen=True)
class Task:
    """A process to run: its name within the run, its program, additions to the environment, and the host it runs on."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    host: int = 0


class EngineError(RuntimeError):
    """The engine cannot do its work; the message says why in plain words."""


class Engine(Protocol):
    """What a run needs of the system it runs on. One thread uses it.

    Hosts appear and vanish as events of `wait`. A driver that succeeds one that was killed finds hosts and tasks as they are:
    `places` and `running`.
    """

    def places(self) -> dict[int, Place]:
        """The hosts that can be used."""

    def running(self) -> dict[str, int]:
        """The process numbers of the tasks that run, by name."""

    def start(self, task: Task) -> int:
        """Start a task, or start it again; returns the process number on its host, 0 if the host is gone meanwhile."""

    def wait(self, seconds: float) -> list[Event]:
        """What happened, as soon as anything has, or nothing after `seconds`."""

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a task's process; nothing happens if it has ended."""

    def read(self, host: int, name: str) -> bytes | None:
        """A file of the run's directory on a host; None if there is none."""

    def write(self, host: int, name: str, data: bytes) -> None:
        """Replace such a file in one step; only the user can read it."""

    def reset(self, host: int) -> None:
        """End every task of a host, without events, and empty its directory."""

    def close(self) -> None:
        """End every task and wait until all are gone; nothing of the run is left on any host."""


class LocalEngine:
    """Tasks are processes of this machine. Further hosts are subdirectories.

    Args:
        directory: of the run.
        lifeline: the reading end of a pipe that tasks watch; they end when it is closed.
        hosts: how many.
        workers: how many workers a host has processors for.
    """

    def __init__(self, directory: str, lifeline: int, hosts: int = 1, workers: int = 1) -> None:
        self._hosts: dict[int, Host] = {}
        self._events: list[Event] = []
        reaped = os.path.join(directory, REAPED)
        for index in range(hosts):
            place = os.path.join(directory, f"host-{index}") if index else directory
            os.makedirs(place, 0o700, exist_ok=True)
            self._hosts[index] = host = Host(index, place, lifeline, reaped)
            host.adopt()
            self._events.append(HostJoined(index, workers))

    def places(self) -> dict[int, Place]:
        return {index: host.place for index, host in self._hosts.items()}

    def running(self) -> dict[str, int]:
        return {name: task.pid for host in self._hosts.values() for name, task in host.tasks.items()}

    def start(self, task: Task) -> int:
        return self._hosts[task.host].start(task.name, list(task.arguments), task.environment)

    def wait(self, seconds: float) -> list[Event]:
        end = time.monotonic() + seconds
        while True:
            found, self._events = self._events, []
            for host in self._hosts.values():
                found += host.collect()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            poll = select.poll()
            for host in self._hosts.values():
                for handle in host.handles():
                    poll.register(handle, select.POLLIN)
            poll.poll(min(left, GLANCE_SECONDS) * 1000)

    def signal(self, name: str, number: int) -> None:
        for host in self._hosts.values():
            host.signal(name, number)

    def read(self, host: int, name: str) -> bytes | None:
        return self._hosts[host].read(name)

    def write(self, host: int, name: str, data: bytes) -> None:
        self._hosts[host].write(name, data)

    def reset(self, host: int) -> None:
        self._hosts[host].reset()

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()
