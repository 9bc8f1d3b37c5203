"""The probe: a task that measures what a worker would find on its host, for `weft cluster check`.

    python -m weft.distributed.probe

It runs with the environment of a worker. When it is ready it writes the facts about its process and machine to a file of the
run's directory, then it carries out what it is asked for in another file, one request after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft as wf

from ..runtime import _host, info, threads
from . import atomics, wire
from . import context as contexts
from .context import Context
from .memory import Memory
from .task import end_with
from .team import SPIN_ROUNDS
from .trace import clock_offset

POLL_SECONDS = 0.002
SHARD = (256, 512, 512)  # rows, inner and columns of the matrix product that stands for a shard
SHARD_FLOPS = 2 * SHARD[0] * SHARD[1] * SHARD[2]
SHARD_REPEATS = 40
SEGMENT_BYTES = 32 << 20  # more than the caches of most processors hold
COPIES = 5
ROUNDS = 500  # messages there and back, in shared memory and between hosts
PUSH_BYTES, PUSHES = 8 << 20, 6
ROUND_SECONDS = 5.0  # for all of them, before something is wrong
ECHO, PUSH, PULL, CLOCK = range(1, 5)
LINE_WORDS = 8


def facts(context: Context) -> dict[str, Any]:
    """What can be read about this process and its machine."""
    (machine,) = _host._meminfo("MemTotal")
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "pid": os.getpid(), "hostname": socket.gethostname(), "boot": _text("/proc/sys/kernel/random/boot_id"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0), "threads": threads.get_num_threads(),
        "cpus": _host.usable_cpus(), "processors": os.cpu_count(), "quota": _host.cpu_quota(), "load": os.getloadavg()[0],
        "cpu": info.cpu_model(), "features": info.cpu_features(), "weft": wf.__version__,
        "python": platform.python_version(), "numpy": np.__version__, "memory_machine": machine,
        "memory_total": _host.memory_total(), "memory_available": _host.memory_available(),
        "shm_bytes": None if shared is None else shared.f_blocks * shared.f_frsize,
        "overcommit": _text("/proc/sys/vm/overcommit_memory"), "open_files": soft,
    }  # fmt: skip


def _text(path: str) -> str | None:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().strip()
    return None


class Probe:
    """Carries out requests.

    Args:
        context: of the run that is measured.
        name: of this task.
    """

    def __init__(self, context: Context, name: str) -> None:
        self.context, self.name = context, name
        self._requests: dict[str, Callable[..., dict[str, Any]]] = {
            "compute": self.compute, "copy": self.copy, "message": self.message, "listen": self.listen, "connect": self.connect,
        }  # fmt: skip
        self._program: Any = None

    def run(self) -> None:
        """Answer until the process is ended."""
        self._answer(0, facts(self.context))
        done = 0
        while True:
            request = self._read()
            if request is None or request.get("number", 0) <= done:
                time.sleep(POLL_SECONDS)
                continue
            done = request.pop("number")
            try:
                found = self._requests[request.pop("what")](**request)
            except Exception as error:  # told to the one who asked
                found = {"error": f"{type(error).__name__}: {error}"}
            self._answer(done, found)

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self.context.directory, f"{self.name}.ask")) as file:
                found: dict[str, Any] = json.load(file)
        except (FileNotFoundError, ValueError):
            return None
        return found

    def _answer(self, number: int, found: dict[str, Any]) -> None:
        path = os.path.join(self.context.directory, f"{self.name}.answer")
        with open(f"{path}.new", "w") as file:
            json.dump({"number": number, **found}, file)
        os.replace(f"{path}.new", path)

    # Within a host ----------------------------------------------------------------------------------------------------

    def compute(self, repeats: int = SHARD_REPEATS) -> dict[str, Any]:
        """Seconds of a fixed matrix product, again and again."""
        if self._program is None:
            rows, inner, columns = SHARD
            draw = np.random.default_rng(0).standard_normal
            a, b = (wf.asarray(draw(shape, np.float32)) for shape in ((rows, inner), (inner, columns)))
            product = wf.function(lambda a, b: a @ b)
            product(a, b)
            self._program = lambda: product(a, b)
        return {"seconds": [_timed(self._program) for _ in range(repeats)]}

    def copy(self) -> dict[str, Any]:
        """Bytes per second of copies into shared memory."""
        target = self._segment().array((SEGMENT_BYTES,), np.uint8, SEGMENT_BYTES)
        source = np.ones(SEGMENT_BYTES, np.uint8)
        np.copyto(target, source)  # allocates the pages
        seconds = [_timed(lambda: np.copyto(target, source)) for _ in range(COPIES)]
        return {"bytes_per_second": SEGMENT_BYTES / statistics.median(seconds)}

    def _segment(self) -> Any:
        if not hasattr(self, "_memory"):
            self._memory = Memory(self.context.socket)
        return self._memory.open("check", 2 * SEGMENT_BYTES)

    def message(self, first: bool, start: int, spin: bool) -> dict[str, Any]:
        """Messages to another process of this host and back, as members of a team wake each other.

        Args:
            first: whether this process begins.
            start: the number of messages before.
            spin: whether to poll before sleeping.
        """
        words = self._segment().array((4 * LINE_WORDS,), np.uint64)
        base = words.__array_interface__["data"][0]
        there, back, bell = base, base + 8 * LINE_WORDS, base + 16 * LINE_WORDS
        functions, rounds = atomics.functions(), SPIN_ROUNDS if spin else 0
        send, wait = (there, back) if first else (back, there)
        seconds = []
        end = time.monotonic() + ROUND_SECONDS

        def round_trip(number: int) -> None:
            if first:
                functions.store(send, number)
                atomics.ring(bell)
            while atomics.wait_all(wait, 1, number, bell, rounds, 0.01) != atomics.READY:
                if time.monotonic() > end:
                    raise TimeoutError(f"no answer to message {number - start} within {ROUND_SECONDS:g} seconds")
            if not first:
                functions.store(send, number)
                atomics.ring(bell)

        for number in range(start + 1, start + 1 + ROUNDS):
            seconds.append(_timed(lambda number=number: round_trip(number)))  # type: ignore[misc]
        return {"seconds": statistics.median(seconds) / 2}

    # Between hosts ----------------------------------------------------------------------------------------------------

    def _token(self) -> bytes:
        return wire.read_token(os.path.join(self.context.directory, "token"))

    def listen(self) -> dict[str, Any]:
        """Wait for the probe of another host in the background; returns the port."""
        server = socket.create_server((self.context.address, 0))
        server.settimeout(ROUND_SECONDS)

        def serve() -> None:
            with server, contextlib.suppress(OSError):  # the other end says what happened
                found, _ = server.accept()
                self._serve(wire.accept(found, self._token(), self.context.host))

        threading.Thread(target=serve, daemon=True).start()
        return {"port": server.getsockname()[1]}

    def _serve(self, connection: wire.Connection) -> None:
        memory = np.zeros(PUSH_BYTES, np.uint8)
        while True:
            frame = connection.receive()
            received = time.time_ns()
            if frame.kind == PUSH:
                connection.read(memory[: min(frame.nbytes, PUSH_BYTES)])
            elif frame.kind == PULL:
                connection.send(wire.Frame(PULL, 0, 0, 0, 0, PUSH_BYTES), [memory])
                continue
            connection.send(wire.Frame(frame.kind, 0, frame.step, received, time.time_ns(), 0))

    def connect(self, address: str, port: int) -> dict[str, Any]:
        """Latency, bandwidth in both directions, and how far the clock of the other host is ahead."""
        connection = wire.connect((address, port), self._token(), self.context.host, ROUND_SECONDS)
        connection.socket.settimeout(ROUND_SECONDS)
        memory = np.zeros(PUSH_BYTES, np.uint8)

        def echo() -> None:
            connection.send(wire.Frame(ECHO, 0, 0, 0, 0, 0))
            connection.receive()

        def push() -> None:
            connection.send(wire.Frame(PUSH, 0, 0, 0, 0, PUSH_BYTES), [memory])
            connection.receive()

        def pull() -> None:
            connection.send(wire.Frame(PULL, 0, 0, 0, 0, 0))
            connection.receive()
            connection.read(memory)

        def clock() -> tuple[int, int]:
            connection.send(wire.Frame(CLOCK, 0, time.time_ns(), 0, 0, 0))
            frame = connection.receive()
            return clock_offset(frame.step, frame.a, frame.b, time.time_ns())

        try:
            echoes = [_timed(echo) for _ in range(ROUNDS)]
            pushes, pulls = ([_timed(action) for _ in range(PUSHES)] for action in (push, pull))
            offset, delay = min((clock() for _ in range(ROUNDS // 10)), key=lambda pair: pair[1])
        finally:
            connection.close()
        return {
            "seconds": statistics.median(echoes) / 2, "sent": PUSH_BYTES / statistics.median(pushes),
            "received": PUSH_BYTES / statistics.median(pulls), "clock": offset / 1e9, "clock_error": delay / 2e9,
        }  # fmt: skip


def _timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    context = contexts.current()
    if context is None:
        raise SystemExit("weft.distributed.probe: this module is started by `weft cluster check`.")
    end_with(context.lifeline)
    Probe(context, f"worker-{os.environ.get(contexts.WORKER, '0')}").run()


if __name__ == "__main__":
    main()
