"""The engine for Ray: the hosts of a run are the nodes of a Ray cluster. The only module that imports Ray.

Ray forms the cluster, places one agent per node and reports nodes that die. The agent is a detached actor that has the tasks of
its node as child processes (`weft.distributed.host.Host`), so that a driver that was killed finds them again. Only bytes, strings
and integers cross Ray; user code is named by path.

Without an address a cluster of this machine is started on a loopback address, without dashboard and with a token of the run.
Its processes are children of a small process of ours, `python -m weft.distributed.ray_engine DIRECTORY LIFELINE`, which outlives
the driver and ends with the command.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault(
    "RAY_BACKEND_LOG_LEVEL", "error"
)  # read when Ray's library is loaded; its warnings go to the terminal

import ray
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient  # type: ignore[attr-defined]
from ray.exceptions import ActorUnavailableError, AuthenticationError, GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import settings
from . import directories
from .engine import GLANCE_SECONDS, EngineError, Task
from .host import Ended, Event, Host, HostJoined, HostLost, Listens, Note, Place, Reported, Sampled
from .processes import adopt_orphans, descendants, kill_all, start_time, wait_gone

LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address of the machine, where others can reach it
HEAD_FILE, TOKEN_FILE, HEAD_LOG = "ray.json", "ray-token", "ray-head.log"
HEALTH = {
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 300, "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}  # fmt: skip
"""a node that dies is reported after two seconds instead of sixteen, a frozen one after five instead of sixty"""
STORE_BYTES = 80 << 20  # of Ray's object store, which the run does not use; about the least that Ray accepts
HEAD_SECONDS = 60.0  # for the start of Ray on a busy machine
REACH_SECONDS = 3.0  # for the first answer of a running cluster
CALL_SECONDS = 30.0  # for the answer of an agent
POLL_SECONDS = 2.0  # how long an agent waits for something to report
NODES_SECONDS = 0.5  # how often the nodes of the cluster are looked at
UNAVAILABLE_SECONDS = 8.0  # how long an agent may be out of reach
TEMPORARY = "WEFT_RAY_DIRECTORY"  # names a directory for the files of agents, which is removed with the cluster
LEAVE_SECONDS = 0.2  # between an agent's last answer and its end
ORPHANED_SECONDS = 60.0  # agents end when no driver calls them for this long
MAX_AGENTS = 3  # that are started on one node
MAX_OUTPUT = 16 << 20  # bytes of the tasks' output that are kept while no driver asks for them
EVENTS: dict[str, Any] = {kind.__name__: kind for kind in (Ended, Listens, Note, Sampled, Reported)}


class Agent:
    """The tasks of a run on one node. Runs as an actor of Ray; its methods are called by several threads.

    Args:
        run: names the run in the names of directories.
        index: the host's number.
    """

    def __init__(self, run: str, index: int) -> None:
        for name in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT"):  # Ray sets them for its own workers
            os.environ.pop(name, None)
        node = ray.get_runtime_context().get_node_id()
        prefix = os.path.join(os.environ.get(TEMPORARY, tempfile.gettempdir()), f"weft-{run}-{node[:8]}-")
        for old in glob.glob(f"{prefix}*"):  # of an agent that was killed on this node
            shutil.rmtree(old, ignore_errors=True)
        lifeline, self._alive = os.pipe()  # the writing end is closed with this process
        pipes = [os.pipe(), os.pipe()]
        self._read_ends = [reading for reading, _ in pipes]
        for reading in self._read_ends:
            os.set_blocking(reading, False)
        self._output = [bytearray(), bytearray()]
        self._lock = threading.Lock()
        self._driver, self._called = 0, time.monotonic()
        self._host = Host(
            index, directories.make(prefix), lifeline, None, ray.util.get_node_ip_address(),
            (pipes[0][1], pipes[1][1]), temporary=True,
        )  # fmt: skip
        self._node = node
        threading.Thread(target=self._attend, name="weft-agent", daemon=True).start()

    def hello(self) -> str:
        """A driver takes over: what it needs to know, as JSON. Calls of earlier drivers return nothing from now on."""
        with self._lock:
            self._driver, self._called = self._driver + 1, time.monotonic()
            self._host.collect()  # tasks that ended meanwhile do not run, which is what the new driver sees
            self._host.forget()
            place = dataclasses.asdict(self._host.place)
            return json.dumps({"driver": self._driver, "node": self._node, "index": self._host.index, "place": place})

    def running(self) -> str:
        with self._lock:
            return json.dumps({name: task.pid for name, task in self._host.tasks.items()})

    def start(self, task: str) -> int:
        made = json.loads(task)
        with self._lock:
            return self._host.start(made["name"], made["arguments"], made["environment"])

    def collect(self, driver: int, seconds: float) -> str:
        """What happened and what the tasks printed, as JSON, as soon as there is anything, or nothing after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            with self._lock:
                self._called = time.monotonic()
                if driver != self._driver:
                    return "{}"
                events = self._host.collect()
                self._read_output()
                if events or any(self._output):
                    texts = [bytes(part).decode("latin-1") for part in self._output]
                    for part in self._output:
                        part.clear()
                    return json.dumps(
                        {"events": [[type(e).__name__, dataclasses.asdict(e)] for e in events], "output": texts}
                    )
                handles = self._host.handles()
            left = end - time.monotonic()
            if left <= 0:
                return "{}"
            _poll([*handles, *self._read_ends], min(left, GLANCE_SECONDS))

    def signal(self, name: str, number: int) -> None:
        with self._lock:
            self._host.signal(name, number)

    def read(self, name: str) -> bytes | None:
        return self._host.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._host.write(name, data)

    def reset(self) -> None:
        with self._lock:
            self._host.reset()

    def close(self) -> None:
        """End the tasks, and then this process: Ray's control service, which could end it, may be gone."""
        self._end_tasks()
        threading.Timer(LEAVE_SECONDS, os._exit, (0,)).start()

    def _end_tasks(self) -> None:
        with self._lock:
            self._host.close()
            shutil.rmtree(self._host.place.directory, ignore_errors=True)

    def _read_output(self) -> None:
        for reading, kept in zip(self._read_ends, self._output):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(reading, 1 << 16):
                    kept += data
            del kept[: max(len(kept) - MAX_OUTPUT, 0)]

    def _attend(self) -> None:
        """Keep tasks from waiting for a reader of their output; end when there is no driver, or no raylet, any more."""
        raylet = os.getppid()
        while time.monotonic() - self._called < ORPHANED_SECONDS and os.getppid() == raylet:
            _poll(self._read_ends, 1.0)
            with self._lock:
                self._read_output()
            time.sleep(GLANCE_SECONDS)
        self._end_tasks()
        os._exit(0)


def _poll(handles: list[int], seconds: float) -> None:
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    poll.poll(seconds * 1000)


@dataclasses.dataclass
class _Remote:
    """What the driver knows of an agent."""

    actor: Any
    node: str
    place: Place | None = None  # None until it has answered
    driver: int = 0
    pending: Any = None  # the reference of its answer to `hello` or `collect`
    unavailable_since: float | None = None


class RayEngine:
    """Tasks run on the nodes of a Ray cluster.

    Args:
        directory: of the run on this machine; a second engine with the same directory adopts what the first one started.
        lifeline: the reading end of a pipe; a cluster that this engine started ends when it is closed.
        address: ``HOST:PORT`` of a running cluster that this machine belongs to; by default one is started on this machine.
        token: the path of a file with the cluster's token; by default what Ray's variables `RAY_AUTH_…` say.
        hosts: how many nodes to use at most.
        workers: how many workers a host has processors for; by default what Ray says.
        working_dir: a directory with the user's code that Ray copies to the other nodes.
        first: the least number of a host that has not been there before.
    """

    def __init__(
        self,
        directory: str,
        lifeline: int,
        address: str | None = None,
        token: str | None = None,
        hosts: int = 1,
        workers: int | None = None,
        working_dir: str | None = None,
        first: int = 0,
    ) -> None:
        if ray.is_initialized():
            raise EngineError(
                "This process uses Ray already; start the run from a process that does not call ray.init."
            )
        self._most, self._workers = hosts, workers
        self._head: subprocess.Popen[bytes] | None = None
        self._local: dict[str, Any] = {}
        if address is None:
            self._local = _find_head(directory) or self._start_head(directory, lifeline)
            address, token = self._local["address"], os.path.join(directory, TOKEN_FILE)
        assert address is not None
        self._run = hashlib.sha256(f"{socket.gethostname()}:{os.path.realpath(directory)}".encode()).hexdigest()[:12]
        self._remotes: dict[int, _Remote] = {}
        self._events: list[Event] = []
        self._agents_on: dict[str, int] = {}
        self._next = first
        try:
            _connect(address, token, f"weft-{self._run}", working_dir)
            self._nodes = _Nodes()
            self._adopt()
        except BaseException:
            self._end_head()
            raise

    # The protocol ---------------------------------------------------------------------------------------------------

    def places(self) -> dict[int, Place]:
        return {index: remote.place for index, remote in self._remotes.items() if remote.place is not None}

    def running(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index in self.places():
            found.update(json.loads(self._call(index, "running") or "{}"))
        return found

    def start(self, task: Task) -> int:
        environment = {**settings.inherited(), **task.environment}
        made = {"name": task.name, "arguments": list(task.arguments), "environment": environment}
        return self._call(task.host, "start", json.dumps(made)) or 0

    def wait(self, seconds: float) -> list[Event]:
        end = time.monotonic() + seconds
        while True:
            self._look_at_nodes()
            if self._events:
                found, self._events = self._events, []
                return found
            left = end - time.monotonic()
            if left <= 0:
                return []
            pending = {remote.pending: index for index, remote in self._remotes.items()}
            if not pending:
                time.sleep(min(left, NODES_SECONDS))
                continue
            ready, _ = ray.wait(list(pending), timeout=min(left, NODES_SECONDS))
            for reference in ready:
                self._answered(pending[reference])

    def signal(self, name: str, number: int) -> None:
        for index in self.places():
            self._call(index, "signal", name, number)

    def read(self, host: int, name: str) -> bytes | None:
        data: bytes | None = self._call(host, "read", name)
        return data

    def write(self, host: int, name: str, data: bytes) -> None:
        self._call(host, "write", name, data)

    def reset(self, host: int) -> None:
        self._call(host, "reset")

    def close(self) -> None:
        if ray.is_initialized():
            self._nodes.close()
            closing = [remote.actor.close.remote() for remote in self._remotes.values()]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=CALL_SECONDS)
            self._remotes.clear()
            _within(ray.shutdown, REACH_SECONDS)
        self._end_head()

    # Agents ---------------------------------------------------------------------------------------------------------

    def _call(self, index: int, method: str, *arguments: Any) -> Any:
        """What an agent answers; None if it is gone."""
        remote = self._remotes.get(index)
        if remote is None or remote.place is None:
            return None
        end = time.monotonic() + UNAVAILABLE_SECONDS
        while True:
            try:
                return ray.get(getattr(remote.actor, method).remote(*arguments), timeout=CALL_SECONDS)
            except ActorUnavailableError as error:
                if method == "start" or time.monotonic() > end:  # a second start could be a second process
                    return self._lose(index, _reason(error))
                time.sleep(GLANCE_SECONDS)
            except RayActorError as error:
                return self._lose(index, _reason(error))
            except GetTimeoutError:
                return self._lose(index, f"its agent does not answer within {CALL_SECONDS:g} seconds")

    def _lose(self, index: int, reason: str) -> None:
        remote = self._remotes.pop(index, None)
        if remote is None:
            return
        _within(lambda: _kill(remote.actor), 0.0)  # it may be alive but out of reach: its tasks end with it
        if remote.place is not None:
            self._events.append(HostLost(index, reason))
        elif self._agents_on[remote.node] >= MAX_AGENTS:
            self._events.append(Note(f"node {remote.node[:8]} is not used: its agent does not start: {reason}"))

    def _answered(self, index: int) -> None:
        remote = self._remotes[index]
        try:
            answer = json.loads(ray.get(remote.pending, timeout=CALL_SECONDS))
        except ActorUnavailableError as error:
            now = time.monotonic()
            remote.unavailable_since = remote.unavailable_since or now
            if now - remote.unavailable_since > UNAVAILABLE_SECONDS:
                return self._lose(index, _reason(error))
            time.sleep(GLANCE_SECONDS)
            answer = {}
        except (RayError, GetTimeoutError) as error:
            return self._lose(index, _reason(error))
        else:
            remote.unavailable_since = None
        if "place" in answer:
            self._greeted(index, answer)
        for kind, fields in answer.get("events", ()):
            self._events.append(EVENTS[kind](**fields))
        for descriptor, text in enumerate(answer.get("output", ()), 1):
            _print(descriptor, text.encode("latin-1"))
        remote.pending = (
            remote.actor.hello.remote()
            if remote.place is None
            else remote.actor.collect.remote(remote.driver, POLL_SECONDS)
        )
        return None

    def _greeted(self, index: int, answer: dict[str, Any]) -> None:
        remote = self._remotes[index]
        remote.place, remote.driver, remote.node = Place(**answer["place"]), answer["driver"], answer["node"]
        workers = self._workers or max(1, int(self._nodes.processors.get(remote.node, 1)))
        self._events.append(HostJoined(index, workers))

    def _adopt(self) -> None:
        """Find the agents of an earlier driver and wait for their answers; start those that are missing."""
        for found in ray.util.list_named_actors(all_namespaces=True):
            if found["namespace"] == f"weft-{self._run}":
                index = int(found["name"].rpartition("-")[2])
                with contextlib.suppress(ValueError):  # it died meanwhile
                    actor = ray.get_actor(found["name"], found["namespace"])
                    self._remotes[index] = _Remote(actor, "", pending=actor.hello.remote())
                self._next = max(self._next, index + 1)
        self._nodes.first(HEAD_SECONDS)
        for index, remote in list(self._remotes.items()):
            ray.wait([remote.pending], timeout=CALL_SECONDS)
            self._agents_on.setdefault(remote.node, 0)
            self._answered(index)
        self._look_at_nodes()
        end = time.monotonic() + HEAD_SECONDS
        while not self.places():
            pending = {remote.pending: index for index, remote in self._remotes.items()}
            ready, _ = ray.wait(list(pending), timeout=NODES_SECONDS) if pending else ([], None)
            for reference in ready:
                self._answered(pending[reference])
            self._look_at_nodes()
            notes = [event.text for event in self._events if isinstance(event, Note)]
            if time.monotonic() > end or (notes and not self._remotes):
                ray.shutdown()
                why = notes[-1] if notes else f"no agent has started within {HEAD_SECONDS:g} seconds"
                raise EngineError(f"The Ray cluster cannot be used: {why}.")

    def _look_at_nodes(self) -> None:
        """Start an agent on every node that has none; notice nodes that are gone."""
        if not self._nodes.changed():
            return
        alive = set(self._nodes.processors)
        for index, remote in list(self._remotes.items()):
            if remote.node and remote.node not in alive:
                self._lose(index, "its node has left the Ray cluster")
        mine = ray.get_runtime_context().get_node_id()
        used = {remote.node for remote in self._remotes.values()}
        for node in sorted(alive - used, key=lambda node: (node != mine, node)):  # the driver's machine is host 0
            if len(self._remotes) >= self._most:
                return
            if self._agents_on.get(node, 0) < MAX_AGENTS:
                self._agents_on[node] = self._agents_on.get(node, 0) + 1
                self._start_agent(node)

    def _start_agent(self, node: str) -> None:
        options: dict[str, Any] = {
            "name": f"host-{self._next}", "namespace": f"weft-{self._run}", "lifetime": "detached", "num_cpus": 0,
            "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 8,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }  # fmt: skip
        actor: Any = ray.remote(Agent).options(**options).remote(self._run, self._next)
        self._remotes[self._next] = _Remote(actor, node, pending=actor.hello.remote())
        self._next += 1

    # The cluster of this machine ------------------------------------------------------------------------------------

    def _start_head(self, directory: str, lifeline: int) -> dict[str, Any]:
        descriptor = os.open(os.path.join(directory, TOKEN_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(os.urandom(32).hex())
        log = os.path.join(directory, HEAD_LOG)
        with open(log, "wb") as output:
            self._head = subprocess.Popen(
                [sys.executable, "-m", "weft.distributed.ray_engine", directory, str(lifeline)],
                pass_fds=(lifeline,), stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0,
            )  # fmt: skip
        end = time.monotonic() + HEAD_SECONDS
        while (found := _find_head(directory)) is None:
            if self._head.poll() is not None or time.monotonic() > end:
                self._end_head()
                with open(log, errors="replace") as file:
                    said = file.read().strip().splitlines()
                raise EngineError(f"Ray does not start on this machine: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.02)
        return found

    def _end_head(self) -> None:
        """End the cluster that was started for this run, and no other."""
        pid = self._head.pid if self._head is not None else self._local.get("pid", 0)
        if self._head is not None or (pid and start_time(pid) == self._local["started"]):
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                if not wait_gone(handle, 20.0):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)  # its children die with it
                    wait_gone(handle, 10.0)
                os.close(handle)
        if self._head is not None:
            self._head.wait()
            self._head = None
        if self._local:
            shutil.rmtree(self._local["temporary"], ignore_errors=True)
            self._local = {}


class _Nodes:
    """The nodes of the cluster and their processors, asked for by a thread: Ray's control service may not answer."""

    def __init__(self) -> None:
        self.processors: dict[str, float] = {}
        self._asked, self._seen = 0, 0
        self._over = threading.Event()
        self._answered = threading.Event()
        threading.Thread(target=self._ask, name="weft-nodes", daemon=True).start()

    def _ask(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # whatever Ray says while its service is gone: the last answer counts
                found = {n["NodeID"]: n["Resources"].get("CPU", 1) for n in ray.nodes() if n["Alive"]}
                self.processors, self._asked = found, self._asked + 1
                self._answered.set()
            if self._over.wait(NODES_SECONDS):
                return

    def first(self, seconds: float) -> None:
        """Wait for the first answer."""
        if not self._answered.wait(seconds):
            raise EngineError(f"The Ray cluster does not say what nodes it has within {seconds:g} seconds.")

    def changed(self) -> bool:
        """Whether there was an answer since the last call."""
        before, self._seen = self._seen, self._asked
        return self._seen != before

    def close(self) -> None:
        self._over.set()


def _within(action: Callable[[], None], seconds: float) -> None:
    """Do something that may wait for Ray's control service for ever; go on after `seconds`."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)


def _kill(actor: Any) -> None:
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor)


def _print(descriptor: int, data: bytes) -> None:
    """Write what a task printed to this process's output; a reader that is gone is no reason to fail."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]


def _reason(error: Exception) -> str:
    """One sentence of an error of Ray."""
    text = " ".join(str(error).split())
    if "node" in text and "died" in text:
        return "its node died"
    return "its agent died" if isinstance(error, RayActorError) else text[:200] or type(error).__name__


# Connecting ---------------------------------------------------------------------------------------------------------


def _use_token(path: str | None) -> None:
    """Let Ray in this process, and in those it starts, use a token file."""
    if path is not None:
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=path)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _connect(address: str, token: str | None, namespace: str, working_dir: str | None) -> None:
    """Make this process a driver of a cluster, or say in plain words why it cannot be one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise EngineError(f"{address!r} is no address of a Ray cluster; expected HOST:PORT, as `ray start` prints it.")
    if token is not None:
        try:
            with open(token) as file:
                text = file.read().strip()
        except OSError as error:
            raise EngineError(f"The token file {token} cannot be read: {error.strerror}.") from None
        if not text:
            raise EngineError(f"The token file {token} is empty.")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineError(f"No Ray cluster can be reached at {address}: {error}.") from None
    _use_token(token)
    _greet(address)
    options: dict[str, Any] = {"runtime_env": {"working_dir": working_dir}} if working_dir else {}
    local = host.startswith("127.")
    try:
        with _own_signals():
            ray.init(
                address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR,
                _node_ip_address=host if local else None, **options,
            )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        cause = " ".join(str(error.__cause__ or error).split())
        raise EngineError(
            f"This machine cannot use the Ray cluster at {address}: {cause[:300]} (It must be a node of the cluster: "
            f"`ray start --address={address}`.)"
        ) from None


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM: Ray's would end it at once, and training with it, without a checkpoint."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main and before is not None and signal.getsignal(signal.SIGTERM) is not before:
            signal.signal(signal.SIGTERM, before)


def _greet(address: str) -> None:
    """Ask the cluster for its name. With a wrong token `ray.init` would try for long and then speak of the network."""
    found: list[BaseException | None] = []

    def ask() -> None:
        try:
            GcsClient(address=address)
            found.append(None)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    if not found:
        raise EngineError(f"{address} does not answer as a Ray cluster does.")
    error = found[0]
    if isinstance(error, AuthenticationError) or "auth" in str(error).lower():
        path = os.environ.get("RAY_AUTH_TOKEN_PATH")
        given = f"the one in {path} is wrong" if path else "none, or a wrong one, was given"
        raise EngineError(
            f"The Ray cluster at {address} asks for a token, and {given}. Put the cluster's token (`ray get-auth-token` on its "
            "head) into a file that only you can read, and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH."
        )
    if error is not None:
        raise EngineError(f"{address} does not answer as a Ray cluster does: {error}")


# The head process ---------------------------------------------------------------------------------------------------


def _find_head(directory: str) -> dict[str, Any] | None:
    """The cluster that was started for a run, if it runs."""
    try:
        with open(os.path.join(directory, HEAD_FILE)) as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return found if start_time(found["pid"]) == found["started"] else None


def head(directory: str, lifeline: int) -> None:
    """Run a cluster of one node until SIGTERM comes or the lifeline is closed. Its processes are killed with this one."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    adopt_orphans()  # so that what the raylet started is found when the raylet is gone
    os.environ.update(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0")
    _use_token(os.path.join(directory, TOKEN_FILE))
    temporary = directories.make("weft-ray-")
    os.environ[TEMPORARY] = temporary
    node = None
    try:
        system: dict[str, Any] = {**HEALTH}
        options = RayParams(
            node_ip_address=LOOPBACK, include_dashboard=False, temp_dir=temporary, object_store_memory=STORE_BYTES,
            _system_config=system, num_cpus=len(os.sched_getaffinity(0)),
        )  # fmt: skip
        node = Node(options, head=True, shutdown_at_exit=False, spawn_reaper=True)
        told = {
            "address": node.gcs_address, "pid": os.getpid(), "started": start_time(os.getpid()), "temporary": temporary,
        }  # fmt: skip
        path = os.path.join(directory, HEAD_FILE)
        with open(f"{path}.new", "w") as file:
            json.dump(told, file)
        os.replace(f"{path}.new", path)
        poll = select.poll()
        poll.register(lifeline, select.POLLIN)
        while not asked and not poll.poll(200) and not node.dead_processes():
            pass
    finally:
        if node is not None:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        kill_all(descendants(os.getpid()))  # the raylet's agents would notice its death after many seconds
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    head(sys.argv[1], int(sys.argv[2]))
