"""The driver: carries out what the supervisor decides, through an engine. It may be killed at any time.

The state of the supervisor is in a file of the run's directory, and tasks are found again by their environment, so the next
driver continues.

    python -m weft.distributed.driver DIRECTORY LIFELINE_FD
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any

from .. import settings
from . import scale
from .context import Context, environment
from .engine import Engine, EngineError, LocalEngine, Task
from .events import say
from .failpoints import reach
from .host import Ended, Event, HostJoined, HostLost, Listens, Note, Place
from .processes import signal_name
from .status import SPEC, Watch
from .supervisor import KEEPER, RELAY, Kill, Reset, Start, Stop, Supervisor, number, role

STATE, RESULT = "supervisor.json", "result.json"
ASKED = "asked"  # a file with the signal by which the command was asked to end the run
POLL_SECONDS = 0.5
GRACE_SECONDS = 20.0
STATUS_NO_ENGINE = 69  # of the driver's process, if the engine cannot be used


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """What the user asked for; written once by the command.

    Attributes:
        arguments: the script and its arguments, or ``["-m", module, …]``.
        min_workers, max_workers: how many workers.
        hosts: how many hosts.
        shards: into how many logical shards a global batch is cut.
        threads: of each worker.
        engine: "local" or "ray".
        address: of a Ray cluster that runs already.
        working_dir: the directory of the user's code, which Ray copies to other nodes.
        seed, results, fit: see `Context`.
        token: the secret of the run, in hex.
        check_every, memory: see `Context`.
        command: the process number of the command, and when it started.
        events: a file for the events of the run.
        trace: a file for spans of all tasks; `trace_steps` are the first and the last step to record.
    """

    arguments: list[str]
    min_workers: int
    max_workers: int
    hosts: int
    shards: int
    threads: int
    seed: int
    token: str
    results: str | None = None
    fit: int = 0
    engine: str = "local"
    address: str | None = None
    working_dir: str | None = None
    command: tuple[int, int] = (0, 0)
    events: str | None = None
    trace: str | None = None
    trace_steps: tuple[int, int] | None = None
    check_every: int = 0
    memory: str = "full"


class Driver:
    """One life of a driver."""

    def __init__(self, directory: str, lifeline: int, spec: RunSpec, engine: Engine) -> None:
        self.directory, self.lifeline, self.spec, self.engine = directory, lifeline, spec, engine
        self.addresses: dict[int, list[Any]] = {}
        self.lost: list[int] = []  # hosts that lost their memory: if they come back they take over the state of another
        self.supervisor = Supervisor(spec.min_workers, spec.max_workers, spec.hosts)
        self._deadline: float | None = None
        self._asked = 0
        self._wanted: int | None = None
        self._missed: list[Event] = []
        state = self._read(STATE)
        if state is not None:
            self.supervisor = Supervisor.load(state["supervisor"])
            self.addresses = {int(host): value for host, value in state["addresses"].items()}
            self.lost = state["lost"]
            self._wanted = state["wanted"]
        if self.supervisor.stopping:
            self._deadline = time.monotonic() + GRACE_SECONDS
        self.watch = Watch(directory, spec, engine)

    def say(self, text: str) -> None:
        say(text)

    def run(self) -> Stop:
        """Drive until the run is over."""
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, self._ask)
        ended = self._read(RESULT)
        if ended is not None:  # the driver before this one was killed while it ended the tasks
            self.engine.close()
            return Stop(**ended)
        self._asked = self._asked or int(self._read(ASKED) or 0)  # the signal itself went to an earlier driver
        stop = self._catch_up()
        while stop is None:
            self.watch.tick()
            if self._orphaned():
                return self._abandon()
            stop = self._turn()
        if self._orphaned():  # so the tasks ended
            return self._abandon()
        self.watch.finish(stop)
        self._write(RESULT, dataclasses.asdict(stop))
        reach("result written")
        self.engine.close()
        return stop

    def _turn(self) -> Stop | None:
        """Wait for what happens, and act on it."""
        if self._asked and not self.supervisor.stopping:
            self._deadline = time.monotonic() + GRACE_SECONDS
            self.watch.asked(self._asked)
            for name in self.supervisor.workers:
                self.engine.signal(name, self._asked)
            return self._act(self.supervisor.stop(self._asked), True)
        events, self._missed = [*self._missed, *self.engine.wait(0 if self._missed else POLL_SECONDS)], []
        stop = self._act([*self._decide(events), *self._rescale()], any(map(_counts, events)))
        if stop is None and self._deadline is not None and time.monotonic() > self._deadline:
            stop = Stop(128 + self.supervisor.stopping, "workers did not end in time and were killed")
        return stop

    def _abandon(self) -> Stop:
        """End the run without its command, and remove what that would remove."""
        stop = Stop(1, "the command is gone")
        self.watch.finish(stop)
        self.engine.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        return stop

    def _orphaned(self) -> bool:
        """Whether the command is gone: the pipe has no other end."""
        poll = select.poll()
        poll.register(self.lifeline, select.POLLIN)
        return bool(poll.poll(0))

    def _ask(self, signal_number: int, _: object) -> None:
        """Ctrl-C and SIGTERM go to the workers, which write a checkpoint and end; the second time they are killed."""
        if self._asked:
            self._deadline = 0.0
        self._asked = signal_number

    def _catch_up(self) -> Stop | None:
        """After a driver that was killed: what ended, was lost or was not started while there was none."""
        running = self.engine.running()
        gone = [host for host in self.supervisor.room if host not in self.engine.places()]
        if gone and len(gone) == len(self.supervisor.room):
            return Stop(1, "every host of the run was lost while there was no driver", restart=True)
        self._missed = [HostLost(host, "it was lost while there was no driver") for host in gone]
        for name, host in self.supervisor.running.items():
            if name not in running and host in self.engine.places():
                self._start(Start(name, host))
        return None

    def _decide(self, events: list[Event]) -> list[Any]:
        actions: list[Any] = []
        for event in events:
            self.watch.see(event)
        joined = {e.host: e.workers for e in events if isinstance(e, HostJoined)}
        if joined:
            actions += self.supervisor.hosts_joined(joined)
        for event in events:
            if isinstance(event, Ended):
                found = self.supervisor.ended(event.name, event.status, event.version)
                if event.status < 0 and any(isinstance(a, Start) and a.name == event.name for a in found):
                    self.say(f"{event.name} was killed by {signal_name(-event.status)} and is started again")
                actions += found
            elif isinstance(event, HostLost):
                self.say(f"host {event.host} is lost: {event.reason}")
                self.addresses.pop(event.host, None)
                self.lost.append(event.host)
                self._publish()
                actions += self.supervisor.host_lost(event.host, event.reason)
            elif isinstance(event, Listens):
                address, port = event.text.split()
                self.addresses[event.host] = [address, int(port)]
                self._publish()
            elif isinstance(event, Note):
                self.say(event.text)
        return actions

    def _publish(self) -> None:
        """Tell every relay where the others are."""
        text = json.dumps({str(host): where for host, where in sorted(self.addresses.items())}).encode()
        for host in self.engine.places():
            self.engine.write(host, "peers.json", text)

    def _rescale(self) -> list[Any]:
        """What follows from the number of workers that the user asks for."""
        wanted = scale.wanted(self.directory)
        if wanted == self._wanted or wanted is None:
            return []
        self._wanted = wanted
        actions = self.supervisor.want(wanted)
        self.say(f"{len(self.supervisor.workers)} workers from now on")
        return actions

    def _act(self, actions: list[Any], changed: bool) -> Stop | None:
        """Carry out actions; what is decided is written down first.

        The end of the run is not: a driver that succeeds this one before the result is written would wait for ever.
        """
        stop = next((action for action in actions if isinstance(action, Stop)), None)
        if stop is not None:
            return stop
        if actions or changed:
            state = {"addresses": self.addresses, "lost": self.lost, "wanted": self._wanted}
            self._write(STATE, {"supervisor": self.supervisor.dump(), **state})
            reach("state written")
        for action in actions:
            if isinstance(action, Start):
                self._start(action)
            elif isinstance(action, Kill):
                self.watch.removed(action.name)
                self.engine.signal(action.name, signal.SIGKILL)
            elif isinstance(action, Reset):
                self.addresses.pop(action.host, None)
                self.engine.reset(action.host)
                self.lost.append(action.host)
                self._publish()
        return None

    def _start(self, action: Start) -> None:
        place = self.engine.places().get(action.host)
        if place is not None:
            self.watch.started(action.name, action.host, self.engine.start(self._task(action, place)))
            reach("task started")

    def _task(self, action: Start, place: Place) -> Task:
        spec, host = self.spec, action.host
        if role(action.name) == KEEPER:
            if spec.hosts > 1:
                self.engine.write(host, "token", spec.token.encode())
            return keeper_task(action.name, place, host)
        context = Context(
            place.directory, spec.shards, spec.max_workers, place.lifeline, seed=spec.seed, results=spec.results, fit=spec.fit,
            host=host, hosts=spec.hosts, joins=self._joins(host), address=place.address, trace=spec.trace_steps,
            workers=spec.max_workers if spec.min_workers == spec.max_workers else 0, check_every=spec.check_every,
            memory=spec.memory, run=hashlib.sha256(spec.token.encode()).hexdigest()[:16],
        )  # fmt: skip
        variables = environment(context, spec.threads, number(action.name))
        if spec.hosts > 1:
            variables[settings.TUNE.name] = "0"  # the hosts' choices of kernels would differ
        if role(action.name) == RELAY:
            return Task(action.name, ("-m", "weft.distributed.relay"), variables, host)
        return Task(action.name, ("-m", "weft.distributed.task", *spec.arguments), variables, host)

    def _joins(self, host: int) -> bool:
        """Whether a host comes after the run began: another one has the state."""
        return host != 0 or 0 in self.lost

    def _read(self, name: str) -> Any:
        return read_json(self.directory, name)

    def _write(self, name: str, value: Any) -> None:
        write_json(self.directory, name, value)


def read_json(directory: str, name: str) -> Any:
    """A file of the run's directory; None if there is none."""
    try:
        with open(os.path.join(directory, name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write_json(directory: str, name: str, value: Any) -> None:
    """Replace such a file in one step."""
    path = os.path.join(directory, name)
    with open(f"{path}.new", "w") as file:
        json.dump(value, file)
    os.replace(f"{path}.new", path)


def _counts(event: Event) -> bool:
    """Whether an event changes what a driver's successor must know."""
    return isinstance(event, (Ended, HostJoined, HostLost, Listens))


def keeper_task(name: str, place: Place, host: int) -> Task:
    """The keeper of a host."""
    program = os.path.join(place.package, "keeper.py")
    socket, journal = (os.path.join(place.directory, file) for file in ("keeper.sock", "segments"))
    removes = ("--remove",) if place.temporary else ()
    return Task(name, (program, socket, str(place.lifeline), journal, *removes), {}, host)


def make_engine(directory: str, lifeline: int, spec: RunSpec) -> Engine:
    """The engine that the spec names."""
    if spec.engine == "ray":
        try:
            from .ray_engine import RayEngine
        except ImportError:
            raise EngineError("Ray is not installed. `pip install 'weft[distributed]'` installs it.") from None
        room = None if spec.address is not None else -(-spec.max_workers // spec.hosts)
        state = read_json(directory, STATE) or {"supervisor": {"room": {}}, "lost": []}
        first = 1 + max([-1, *map(int, state["supervisor"]["room"]), *state["lost"]])
        return RayEngine(
            directory, lifeline, spec.address, hosts=spec.hosts, workers=room, working_dir=spec.working_dir, first=first
        )
    room = -(-spec.max_workers // spec.hosts)
    if spec.min_workers < spec.max_workers:  # as many as there are processors for
        room = min(room, max(1, len(os.sched_getaffinity(0)) // (spec.threads * spec.hosts)))
    return LocalEngine(directory, lifeline, spec.hosts, room)


def main(argv: list[str]) -> int:
    lifeline = int(argv[1])
    sys.stdout = sys.stderr  # what Ray has to say is not part of the program's output
    with open(os.path.join(argv[0], SPEC)) as file:
        spec = RunSpec(**json.load(file))
    try:
        engine = make_engine(argv[0], lifeline, spec)
    except EngineError as error:
        if read_json(argv[0], RESULT) is not None:
            return 1  # the run is over; what is left of it cannot be reached
        write_json(argv[0], RESULT, dataclasses.asdict(Stop(2, str(error))))
        return STATUS_NO_ENGINE
    return Driver(argv[0], lifeline, spec, engine).run().status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
