"""A worker's side of the keeper: opens the run's segments and gives them back to a keeper that was restarted."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from typing import Any

from ..multiprocessing import Segment
from .failpoints import reach

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
PATIENCE_SECONDS = 60.0


class KeeperError(RuntimeError):
    """The keeper refused a request, or cannot be reached."""


class Memory:
    """The segments of a run, by name. Thread-safe."""

    def __init__(self, path: str, seconds: float = CONNECT_SECONDS) -> None:
        self.path = path
        self.segments: dict[str, Segment] = {}
        self._lock = threading.Lock()
        self._connection = self._connect(seconds)

    def _connect(self, seconds: float) -> socket.socket:
        end = time.monotonic() + seconds
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self.path)
                connection.settimeout(ANSWER_SECONDS)
                return connection
            except OSError as error:
                connection.close()
                if time.monotonic() > end:
                    raise KeeperError(f"distributed: cannot reach the keeper of the run's memory: {error}.") from error
                time.sleep(0.01)

    def open(self, name: str, nbytes: int) -> Segment:
        """The segment `name`, created with `nbytes` of zeros by the first worker that asks."""
        with self._lock:
            found = self.segments.get(name)
            if found is None:
                _, descriptor = self._insist({"open": name, "nbytes": nbytes})
                found = self.segments[name] = Segment.attach(descriptor)
            return found

    def _insist(self, message: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Ask the keeper, and its successor if it is killed meanwhile."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._ask(message, [])
            except OSError as error:
                if time.monotonic() > end:
                    raise KeeperError(
                        f"distributed: the keeper of the run's memory does not answer: {error}."
                    ) from error
                with contextlib.suppress(OSError):  # killed again: once more
                    self._renew()

    def find(self, name: str) -> Segment | None:
        """The segment `name` if a worker has created it."""
        with self._lock:
            found = self.segments.get(name)
            if found is None:
                answer, descriptor = self._ask({"find": name}, [])
                if "ok" not in answer:
                    return None
                found = self.segments[name] = Segment.attach(descriptor)
            return found

    def drop(self, name: str) -> None:
        """Let a segment go; arrays on it stay valid in the processes that have them."""
        with self._lock:
            self.segments.pop(name, None)
            self._insist({"drop": name})

    def check(self) -> None:
        """If the keeper was restarted, give it the segments. Called now and then by the heartbeat."""
        with self._lock:
            if self._broken():
                with contextlib.suppress(
                    OSError, KeeperError
                ):  # not there yet, or killed again: the next heartbeat tries
                    self._renew(0.0)

    def _broken(self) -> bool:
        if self._connection.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0))  # the keeper says nothing unasked: this is the end of the connection

    def _renew(self, seconds: float = CONNECT_SECONDS) -> None:
        self._connection.close()
        self._connection = self._connect(seconds)
        for name, segment in self.segments.items():
            self._ask({"offer": name}, [segment.fd])
            reach("segment offered")

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, Any], int]:
        socket.send_fds(self._connection, [json.dumps(message).encode() + b"\n"], descriptors)
        data, received, _, _ = socket.recv_fds(self._connection, 4096, 1)
        if not data:
            raise ConnectionResetError("the keeper closed the connection")
        while not data.endswith(b"\n"):
            more = self._connection.recv(4096)
            if not more:
                raise ConnectionResetError("the keeper closed the connection")
            data += more
        answer = json.loads(data)
        if "error" in answer:
            for descriptor in received:
                os.close(descriptor)
            raise KeeperError(f"distributed: {answer['error']}.")
        return answer, received[0] if received else -1

    def close(self) -> None:
        self._connection.close()
