"""Clusters: processes with names such as `/job:ps/task:0`, on which sessions run the parts of their steps.

    cluster = wf.distributed.Cluster(ps=1, worker=2)
    with wf.Session(graph, cluster=cluster) as sess: ...

The process that makes a cluster owns it: it starts the tasks through an engine, starts again those that die, and ends them. Other
processes join it (`Cluster.join`). All are clients: each has a connection with every task. Variables and queues that are placed
on tasks live there, across sessions and clients. See `docs/graph.md`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..graph.declared.variables import State, Variable
from ..graph.graph import Node, Value
from ..io.shards import shards_of
from ..runtime.device import Device
from .processes import is_stopped, start_time
from .remote_client import CALL_SECONDS, Hub, Link
from .remote_messages import TaskLostError
from .remote_partition import CLIENT
from .remote_placement import HERE, SECONDS_PER_BYTE, SECONDS_PER_MESSAGE
from .remote_saving import restore_variables, save_variables
from .remote_state import StateKeys, place_of
from .remote_step import ClientRun, RemoteStep
from .remote_supervisor import START_SECONDS, Place, Supervisor, make_local, make_ray
from .session_task import IS_CLIENT

BACK_SECONDS = 60.0  # how long a step without a deadline waits for a task that is started again
REASON_SECONDS = 0.5  # how long a step waits to learn how a task died


class Cluster:
    """Tasks on which sessions run.

    Args:
        engine: "local", processes of this machine, or "ray", processes on the nodes of a Ray cluster. By default "ray" with an
            address, else "local": on one machine Ray gives nothing that they need, and takes seconds to start.
        address: `HOST:PORT` of a Ray cluster that runs already, and that this machine is a node of; implies `engine="ray"`.
        token: the path of a file with that cluster's token.
        hosts: how many hosts to use; with "local", directories of this machine stand for hosts.
        transport: "auto", Unix sockets within a host and TCP between hosts, or "tcp".
        cpu, ref: how many devices of these kinds a task has.
        threads: of each task; by default the processors are divided among the tasks.
        memory: "full": variables outlive the process of their task, in memory that the host keeps, with a copy of each that is
            written as a whole. "lean": they are in the memory of the process, once, and begin again when it is killed.
        modules: names of modules that tasks import, for ops that they define; Ray copies the current directory, where they are.
        jobs: the number of tasks of every job, by its name.

    Raises:
        EngineError: the tasks cannot be started.

    >>> from weft.distributed import Cluster
    >>> graph = wf.Graph()
    >>> with graph.as_default():
    ...     with wf.device("/job:ps/task:0"):
    ...         total = wf.Variable.remote((), init=1.0)
    ...     add = total.assign_add(2.0)
    >>> with Cluster(ps=1) as cluster, wf.Session(graph, cluster=cluster) as sess:
    ...     sess.run(add, timeout=60).item()
    3.0
    """

    _supervisor: Supervisor | None = None  # of the process that owns the cluster

    def __init__(
        self, *, engine: str | None = None, address: str | None = None, token: str | None = None, hosts: int = 1,
        transport: str = "auto", cpu: int = 1, ref: int = 0, threads: int | None = None, memory: str = "full",
        modules: Sequence[str] = (), **jobs: int,
    ) -> None:  # fmt: skip
        engine = engine or ("local" if address is None else "ray")
        _check(engine, address, hosts, transport, memory, cpu, ref, jobs)
        names = [(job, task) for job in jobs for task in range(jobs[job])]
        places = [Place(job, task, number) for number, (job, task) in enumerate(names)]
        self._open(places, secrets.token_bytes(32), cpu, ref, tuple(modules), transport)
        width = threads or max(1, len(os.sched_getaffinity(0)) // len(places))
        tcp = transport == "tcp" or engine == "ray" or hosts > 1

        def make(directory: str, lifeline: int) -> Any:
            if engine == "local":
                return make_local(directory, lifeline, hosts, len(places))
            code = os.getcwd() if address is not None and modules else None  # which Ray copies to the other nodes
            return make_ray(directory, lifeline, address, token, hosts, -(-len(places) // hosts), code)

        self._supervisor = Supervisor(
            places, make, hosts, tcp, width, self.modules, self.token, memory == "full", self._up, self._down, self._say
        )
        atexit.register(_close_at_exit, weakref.ref(self))
        try:
            self.wait_for(range(len(places)), time.monotonic() + START_SECONDS)
        except BaseException:
            self.close()
            raise

    def _open(
        self, places: list[Place], token: bytes, cpu: int, ref: int, modules: tuple[str, ...], transport: str
    ) -> None:
        self.token, self.modules, self.transport = token, modules, transport
        self.number = IS_CLIENT | secrets.randbits(30)
        self.version = 0  # changes whenever a task comes or goes
        self._places = places
        self._kinds = {"cpu": cpu, "ref": ref}
        self._numbers = {(p.job, p.task): p.number for p in places}
        self._changed = threading.Condition()
        self._why: dict[int, str] = {}
        self._there: dict[int, Link] = {}  # links of tasks that know where the others are
        self._begun = False
        self._closed = False
        self._joined: str | None = None
        self._links: dict[tuple[int, int], tuple[float, float]] = {}
        self._handles = itertools.count(1)
        self._unused: list[tuple[int, int]] = []  # handles of parts that no session uses any more
        self._last_clearing = 0.0
        self.moving = threading.RLock()  # while state moves to its task
        self._connecting = threading.Lock()
        self.checkpoint: str | None = None
        self.keys = StateKeys(self)
        self.hub = Hub(self.number, token, self._lost, self._runs, self.name_of)

    @staticmethod
    def join(file: str | os.PathLike[str]) -> Cluster:
        """Become another client of a running cluster, whose owner has `cluster.file`.

        Variables made by `wf.Variable.remote(..., name=...)` and queues made with `shared=True` are the same for all
        clients. Closing the cluster here leaves it running.
        """
        path = os.fspath(file)
        facts = _read_file(path)
        made = Cluster.__new__(Cluster)
        places = [Place(t["job"], t["task"], i) for i, t in enumerate(facts["tasks"])]
        made._open(
            places,
            bytes.fromhex(facts["token"]),
            facts["cpu"],
            facts["ref"],
            tuple(facts["modules"]),
            facts["transport"],
        )
        made._joined = path
        try:
            made.wait_for(range(len(places)), time.monotonic() + CALL_SECONDS)
        except BaseException:
            made.close()
            raise
        return made

    # What there is --------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> list[Device]:
        """The devices of all tasks; those of a job `ps` come last, so that nodes go there only for a reason."""
        found = sorted(self._places, key=lambda p: (p.job == "ps", p.number))
        return [
            Device(kind, i, p.job, p.task) for p in found for kind in ("cpu", "ref") for i in range(self._kinds[kind])
        ]

    @property
    def file(self) -> str:
        """A file that only this user can read, with which other processes join the cluster."""
        if self._joined is not None:
            return self._joined
        assert self._supervisor is not None
        return os.path.join(self._supervisor.directory, "cluster.json")

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """Process number and generation of every task that is there, by name (`ps-0`)."""
        found = {}
        for place in self._places:
            link = self.hub.links.get(place.number)
            if link is not None:
                pid = (place.address or {}).get("pid")
                found[place.name] = {"pid": pid, "generation": link.generation}
        return found

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for place in self._places:
            counts[place.job] = counts.get(place.job, 0) + 1
        jobs = ", ".join(f"{job}={count}" for job, count in counts.items())
        return f"<Cluster {jobs}, {'closed' if self._closed else f'{len(self.hub.links)} tasks are there'}>"

    def task_of(self, device: Device) -> int:
        """The number of the task that a device belongs to, or CLIENT."""
        return CLIENT if (device.job, device.task) == (HERE.job, HERE.task) else self._numbers[device.job, device.task]

    def number_of(self, device: Device) -> int:
        self._check_open()
        return self._numbers[device.job, device.task]

    def name_of(self, task: int) -> str:
        """A task for people."""
        if task == CLIENT:
            return "the client"
        return f"/job:{self._places[task].job}/task:{self._places[task].task}"

    # Membership -----------------------------------------------------------------------------------------------------

    def _up(self, place: Place, again: bool) -> None:
        """A task has said that it is there: connect, and tell the others."""
        assert place.address is not None
        try:
            self.hub.connect(place.number, place.generation, self._address(place.address))
        except OSError as error:
            self._say(f"{place.name} cannot be reached: {error}")
            return
        if not self._begun and any(p.number not in self.hub.links for p in self._places):
            return  # at the start they are told when all are there
        self._begun = True
        self._publish()
        with self._changed:
            self._why.pop(place.number, None)
            self._there = dict(self.hub.links)
            self.version += 1
            self._changed.notify_all()

    def _publish(self) -> None:
        """Tell every task where the others are, and other clients."""
        for place in self._places:
            table = {}
            for other in self._places:
                if other.address is None or place.address is None:
                    continue
                near = other.address["host"] == place.address["host"] and self.transport != "tcp"
                table[other.number] = [
                    other.generation, other.address["unix"] if near else None, other.address["tcp"],
                ]  # fmt: skip
            with contextlib.suppress(TaskLostError, TimeoutError):
                self.hub.call(place.number, {"do": "table", "table": table})
        facts = {
            "token": self.token.hex(), "cpu": self._kinds["cpu"], "ref": self._kinds["ref"], "modules": self.modules,
            "transport": self.transport,
            "tasks": [{"job": p.job, "task": p.task, "generation": p.generation, **(p.address or {})} for p in self._places],
        }  # fmt: skip
        with open(os.open(f"{self.file}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(facts, file)
        os.replace(f"{self.file}.new", self.file)

    def _address(self, address: Mapping[str, Any]) -> Any:
        if self.transport != "tcp" and os.path.exists(address["unix"]):
            return address["unix"]
        return (address["tcp"][0], int(address["tcp"][1]))

    def _down(self, place: Place) -> None:
        link = self.hub.links.get(place.number)
        if link is not None and link.generation == place.generation:
            self.hub.lose(link, place.died or "its supervisor has ended")
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def _lost(self, link: Link, reason: str) -> None:
        with self._changed:
            self.version += 1
            self._why[link.task] = reason
            self._changed.notify_all()

    def _runs(self, task: int) -> bool:
        """Whether the process of a task can be seen to run on this machine."""
        address = self._places[task].address
        if address is None or not os.path.exists(address["unix"]):
            return False
        return start_time(address["pid"]) is not None and not is_stopped(address["pid"])

    def why_lost(self, task: int, generation: int) -> str:
        """How a task ended, in words: what the engine says, else what the connection says."""
        said = self._why.get(task, "was lost")
        if self._supervisor is None or "has not answered" in said:
            return said
        return self._supervisor.reason(task, generation, REASON_SECONDS) or said

    def wait_for(self, tasks: Iterable[int], until: float | None) -> None:
        """Wait until tasks are there.

        Raises:
            TaskLostError: they do not come back in time.
        """
        end = time.monotonic() + BACK_SECONDS if until is None else until
        wanted = list(tasks)
        while True:
            self._check_open()
            if self._supervisor is not None:
                self._supervisor.check()
            self._look_again()
            with self._changed:
                links = self.hub.links
                missing = [t for t in wanted if t not in links or self._there.get(t) is not links[t]]
                if not missing:
                    return
                left = end - time.monotonic()
                if left <= 0:
                    names = ", ".join(self.name_of(t) for t in missing)
                    why = self._why.get(missing[0])
                    raise TaskLostError(
                        f"cluster: {names} {'is' if len(missing) == 1 else 'are'} not there"
                        f"{f' ({why})' if why else ''}, and did not come back in time."
                    )
                self._changed.wait(min(left, 0.1))

    def _look_again(self) -> None:
        """Connect again with tasks that are there: after a connection broke, or as a client that joined."""
        if self._joined is not None:
            try:
                entries = _read_file(self._joined)["tasks"]
            except FileNotFoundError:
                return  # the owner is closing the cluster, or writes the file now
            for place, entry in zip(self._places, entries, strict=True):
                place.address = entry if "unix" in entry else None
                place.generation = entry["generation"]
        elif not self._begun:
            return
        with self._connecting:
            for place in self._places:
                address = place.address
                if place.number in self.hub.links or address is None or place.died:
                    continue
                with contextlib.suppress(OSError):
                    self.hub.connect(place.number, place.generation, self._address(address))
                    with self._changed:
                        self._there = dict(self.hub.links)
                        self.version += 1

    def _say(self, text: str) -> None:
        print(f"weft: {text}", file=sys.stderr, flush=True)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("cluster: it is closed. Make a new one, or move what is needed out of it before.")

    # Calls ----------------------------------------------------------------------------------------------------------

    def call(
        self, device: Device, message: dict[str, Any], arrays: Sequence[np.ndarray] = ()
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Call the task of a device, when it is there."""
        task = self.number_of(device)
        if task not in self.hub.links:
            self.wait_for([task], None)
        return self.hub.call(task, message, arrays)

    def next_handle(self) -> int:
        """A number for a part of a step."""
        return next(self._handles)

    def clear(self) -> None:
        """Let tasks forget parts and private state that nobody uses any more; called now and then."""
        now = time.monotonic()
        if now - self._last_clearing < 1.0 or not (self._unused or self.keys.garbage):
            return
        self._last_clearing = now
        handles, self._unused = self._unused, []
        garbage, self.keys.garbage = self.keys.garbage, []
        messages: dict[int, dict[str, list[Any]]] = {}
        for task, handle in handles:
            messages.setdefault(task, {}).setdefault("handles", []).append(handle)
        for device, key in garbage:
            messages.setdefault(self.task_of(device), {}).setdefault("keys", []).append(key)
        for task, found in messages.items():
            with contextlib.suppress(TaskLostError, TimeoutError):
                if "handles" in found:
                    self.hub.call(task, {"do": "unregister", "handles": found["handles"]})
                if "keys" in found:
                    self.hub.call(task, {"do": "drop", "keys": found["keys"]})

    def forget_part(self, task: int, handle: int) -> None:
        self._unused.append((task, handle))

    def prepare(
        self, session: Any, nodes: Sequence[Node], fed: Sequence[Value], fetched: Sequence[Value], naive: bool
    ) -> Any:
        """A step of a session, placed, cut and registered with its tasks."""
        self._check_open()
        self.clear()
        return RemoteStep(self, session, nodes, fed, fetched, naive)

    def new_run(self, timeout: float | None, step: int) -> Any:
        """The run of a step of a session of this cluster."""
        self._check_open()
        return ClientRun(timeout, step, self.hub)

    def link(self, source: Device, destination: Device) -> tuple[float, float]:
        """Seconds per message and per byte between two tasks: measured, or estimated."""
        key = (self.task_of(source), self.task_of(destination))
        return self._links.get(key, (SECONDS_PER_MESSAGE, SECONDS_PER_BYTE))

    def measure_links(self, nbytes: int = 8 << 20) -> str:
        """Measure latency and bandwidth between all tasks; new steps are placed by them. Returns a table."""
        lines = ["links (seconds to send a message, GB/s):"]
        for source, target in itertools.permutations(self._places, 2):
            message = {"do": "probe", "task": target.number, "bytes": nbytes, "times": 50}
            for _ in range(2):  # the first time connects
                answer, _ = self.hub.call(source.number, message)
            found = self._links[source.number, target.number] = (answer["message"], answer["byte"])
            lines.append(f"  {source.name} → {target.name}: {found[0] * 1e6:.1f} µs, {1e-9 / found[1]:.1f} GB/s")
        return "\n".join(lines)

    # State ----------------------------------------------------------------------------------------------------------

    def variables(self) -> dict[str, str]:
        """The variables on tasks that all clients know by name, each with the task that holds it."""
        found = {}
        answers = self.hub.call_all({p.number: ({"do": "facts"}, ()) for p in self._places})
        for number, (answer, _) in answers.items():
            for key in answer["states"]:
                if not key.startswith("#"):
                    found[key] = self.name_of(number)
        return found

    def drop(self, *names: str) -> None:
        """Remove named variables and queues from the tasks."""
        self.hub.call_all({p.number: ({"do": "drop", "keys": list(names)}, ()) for p in self._places})

    def save(self, path: Any, variables: Iterable[Variable] | None = None) -> None:
        """Write a checkpoint of all variables on tasks, or of some: every task writes its shard, an index is written last.

        The values are of one moment. A task that is started again after this begins with the values of the last save.
        """
        states = None if variables is None else {v.name: v.state for v in variables}
        save_variables(self, path, states)
        self.remember(path)

    def remember(self, path: Any) -> None:
        """A task that is started again begins with the values of this checkpoint."""
        self.checkpoint = os.path.abspath(path)
        if self._supervisor is not None:
            self._supervisor.checkpoint = self.checkpoint

    def restore(self, path: Any, variables: Iterable[Variable] | None = None) -> None:
        """Read variables from a checkpoint, whichever and however many tasks wrote it.

        Args:
            path: as given to `save`.
            variables: which; by default all that are in the checkpoint and on the tasks.
        """
        if variables is None:
            stored, held = shards_of(path), self._held()
            restore_variables(self, path, {k: (task, k) for k, task in held.items() if k in stored})
        else:
            chosen = {v.name: v.state for v in variables}
            self.make(chosen.values())
            restore_variables(
                self, path, {self.keys.of(s): (self._task_of_state(s), name) for name, s in chosen.items()}
            )

    def _held(self) -> dict[str, int]:
        answers = self.hub.call_all({p.number: ({"do": "facts"}, ()) for p in self._places})
        return {key: number for number, (answer, _) in answers.items() for key in answer["states"]}

    def _task_of_state(self, state: State) -> int:
        device = getattr(state.home, "device", None)
        if device is None:
            raise ValueError(f"cluster: variable {state.name!r} is on no task of this cluster.")
        return self.number_of(device)

    def make(self, states: Iterable[State]) -> None:
        """Make variables on their tasks now, rather than with the first step that uses them."""
        for state in states:
            if getattr(state.home, "cluster", None) is not None or state.device is None:
                continue
            fitting = [d for d in self.devices if all(c.allows(d) for c in state.device)]
            if not fitting:
                raise ValueError(f"cluster: no task fits the device of variable {state.name!r}.")
            with self.moving:
                arrays: list[np.ndarray] = []
                entry = self.keys.entry(state, fitting[0], arrays)
                self.call(fitting[0], {"do": "ensure", "ensure": [entry]}, arrays)
                self.keys.settle(state, fitting[0])

    # The end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the tasks, with all variables on them; a client that joined only leaves."""
        if self._closed:
            return
        self._closed = True
        for task in list(self.hub.links):
            with contextlib.suppress(TaskLostError, TimeoutError):
                self.hub.call(task, {"do": "bye"}, seconds=1.0)
        self.hub.close()
        if self._supervisor is not None:
            self._supervisor.close()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Cluster:
        self._check_open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _check(
    engine: str, address: Any, hosts: Any, transport: str, memory: str, cpu: Any, ref: Any, jobs: Mapping[str, Any]
) -> None:
    if engine not in ("local", "ray"):
        raise ValueError(f"Cluster: engine must be 'local' or 'ray'. Got {engine!r}.")
    if engine == "local" and address is not None:
        raise ValueError("Cluster: an address is for engine='ray'.")
    if transport not in ("auto", "tcp"):
        raise ValueError(f"Cluster: transport must be 'auto' or 'tcp'. Got {transport!r}.")
    if memory not in ("full", "lean"):
        raise ValueError(f"Cluster: memory must be 'full' or 'lean'. Got {memory!r}.")
    if not jobs:
        raise ValueError(
            "Cluster: expected the number of tasks of at least one job, such as `Cluster(ps=1, worker=2)`."
        )
    for name, count in [*jobs.items(), ("cpu", cpu), ("hosts", hosts)]:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"Cluster: {name} must be a number of at least 1. Got {count!r}.")
    if not isinstance(ref, int) or ref < 0:
        raise ValueError(f"Cluster: ref must be a number of at least 0. Got {ref!r}.")
    if "local" in jobs:
        raise ValueError("Cluster: a job cannot be called 'local': that is the client's own process.")


def _read_file(path: str) -> dict[str, Any]:
    with open(path) as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(f"cluster: {path} is readable by others; expected mode 0600.")
        found: dict[str, Any] = json.load(file)
        return found


def _close_at_exit(reference: weakref.ref[Cluster]) -> None:
    cluster = reference()
    if cluster is not None:
        cluster.close()


__all__ = ["Cluster", "TaskLostError", "place_of"]
