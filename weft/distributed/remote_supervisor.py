"""The processes of a cluster: a thread of the client starts its tasks through an engine, and starts again those that end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import settings
from . import directories
from .driver import keeper_task
from .engine import Engine, EngineError, LocalEngine
from .host import Ended, HostJoined, HostLost, Note
from .keeper import LOST
from .session_task import Config, address_file, make_task

GLANCE_SECONDS = 0.1
KEEPER = "memory-keeper-"  # no job has such a name
START_SECONDS = 120.0
STABLE_SECONDS = 10.0  # a task that lived this long is started again at once
LONGEST_PAUSE = 10.0  # seconds before a task that keeps ending is started again


@dataclasses.dataclass
class Place:
    """A task of the cluster, as the supervisor sees it."""

    job: str
    task: int
    number: int
    host: int = -1
    generation: int = 0
    address: dict[str, Any] | None = None  # what the task says of itself, once it is there
    died: str = ""  # why its last life ended
    since: float = 0.0  # when it was there
    start_at: float = 0.0
    pause: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.job}-{self.task}"


class Supervisor:
    """Keeps the tasks of a cluster running.

    Args:
        places: the tasks.
        make: makes the engine, for a directory and a lifeline.
        hosts: how many hosts are wanted.
        tcp: whether tasks listen on TCP.
        threads: of each task.
        cpu: how many virtual devices a task has.
        modules: that tasks import.
        token: of the cluster.
        survives: whether variables outlive the processes of their tasks.
        up, down: called, on the supervisor's thread, when a task is there and when its process has ended.
        say: prints what happens.
    """

    def __init__(
        self, places: list[Place], make: Callable[[str, int], Engine], hosts: int, tcp: bool, threads: int,
        modules: tuple[str, ...], token: bytes, survives: bool, up: Callable[[Place, bool], None], down: Callable[[Place], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.places, self._make, self._hosts, self._tcp, self._threads = places, make, hosts, tcp, threads
        self._modules, self._token, self._survives, self._up, self._down, self._say = (
            modules,
            token,
            survives,
            up,
            down,
            say,
        )
        self.directory = directories.make("weft-cluster-")
        self.checkpoint: str | None = None
        self.died = threading.Condition()
        self._read, self._write = os.pipe()
        self._known: dict[int, Any] = {}
        self._closing = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="weft-cluster", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what has ended the supervisor."""
        if self._failed:
            raise self._failed[0]

    def close(self) -> None:
        """End all tasks; nothing of the cluster is left."""
        self._closing.set()
        self._thread.join(60.0)
        for descriptor in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        shutil.rmtree(self.directory, ignore_errors=True)

    def reason(self, number: int, generation: int, seconds: float) -> str:
        """Why a life of a task has ended, as soon as the engine knows."""
        place = self.places[number]
        with self.died:
            self.died.wait_for(lambda: place.generation > generation or bool(place.died), seconds)
            return place.died

    # The thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        engine: Engine | None = None
        try:
            engine = self._make(self.directory, self._read)
            while not self._closing.is_set():
                self._look(engine, engine.wait(GLANCE_SECONDS))
        except BaseException as error:
            self._failed.append(error)
            for place in self.places:
                self._down(place)
        finally:
            if engine is not None:
                engine.close()

    def _look(self, engine: Engine, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, HostJoined):
                self._known = engine.places()
                engine.write(event.host, "token", self._token.hex().encode())
                if self._survives:
                    self._start_keeper(engine, event.host)
            elif isinstance(event, HostLost):
                self._known = engine.places()
                for place in [p for p in self.places if p.host == event.host]:
                    self._ended(place, f"was lost with its host ({event.reason})")
                    place.host = -1
            elif isinstance(event, Ended) and event.name.startswith(KEEPER):
                host = int(event.name.removeprefix(KEEPER))
                if event.status == LOST:  # a task died with it: what others have they give to its successor
                    engine.write(host, "segments", b"")
                if host in self._known:
                    self._start_keeper(engine, host)
            elif isinstance(event, Ended):
                found = next((p for p in self.places if p.name == event.name), None)
                if found is not None and found.host >= 0:
                    self._ended(found, _how(event.status))
            elif isinstance(event, Note):
                self._say(event.text)
        if len(self._known) < self._hosts and any(p.host < 0 and not p.generation for p in self.places):
            return  # the hosts that were asked for are not all there yet
        for place in self.places:
            if place.host < 0 or (place.start_at and time.monotonic() >= place.start_at):
                self._start(engine, place)
            elif place.address is None and not place.start_at:
                self._arrived(engine, place)

    def _start_keeper(self, engine: Engine, host: int) -> None:
        """The keeper also removes the directory when this process has been killed."""
        place = dataclasses.replace(self._known[host], temporary=True)
        engine.start(keeper_task(f"{KEEPER}{host}", place, host))

    def _ended(self, place: Place, reason: str) -> None:
        with self.died:
            place.died, place.address = reason, None
            self.died.notify_all()
        if time.monotonic() - place.since > STABLE_SECONDS:
            place.pause = 0.0
        place.start_at = time.monotonic() + place.pause
        place.pause = min((place.pause or 0.05) * 2, LONGEST_PAUSE)
        self._say(f"{place.name} {reason} and is started again")
        self._down(place)

    def _start(self, engine: Engine, place: Place) -> None:
        hosts = sorted(self._known)
        if not hosts:
            return
        if place.host < 0:
            place.host = hosts[place.number % len(hosts)]
        where = self._known[place.host]
        again = place.generation > 0
        place.generation += 1
        place.start_at, place.address = 0.0, None
        config = Config(
            place.job, place.task, place.number, place.generation, where.directory, where.lifeline,
            where.address if self._tcp else None, self._modules, self.checkpoint if again else None, self._survives,
        )  # fmt: skip
        threads = str(self._threads)
        environment = {
            settings.NUM_THREADS.name: threads, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
        }  # fmt: skip
        if not engine.start(make_task(config, environment, place.host)):
            place.host = -1

    def _arrived(self, engine: Engine, place: Place) -> None:
        text = engine.read(place.host, address_file(place.name))
        if text is None:
            return
        found = json.loads(text)
        if found["generation"] != place.generation:
            return
        place.address = {**found, "host": place.host}
        with self.died:
            place.died = ""
        place.since = time.monotonic()
        self._up(place, place.generation > 1)


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def make_local(directory: str, lifeline: int, hosts: int, workers: int) -> Engine:
    return LocalEngine(directory, lifeline, hosts, workers)


def make_ray(
    directory: str, lifeline: int, address: str | None, token: str | None, hosts: int, workers: int, code: str | None
) -> Engine:
    try:
        from .ray_engine import RayEngine
    except ImportError:
        raise EngineError(
            "Ray is not installed. `pip install 'weft[distributed]'` installs it; `Cluster(engine=\"local\")` needs none."
        ) from None
    return RayEngine(directory, lifeline, address, token, hosts, workers, code)
