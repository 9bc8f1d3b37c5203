"""`weft cluster check`: measure what a run would run on, through the engine that would run it.

Each worker of the run is played by a probe (`probe`), on the host where the supervisor would place it. `measure` returns what a
simulator can be calibrated with; `diagnosis` says what is wrong. `docs/distributed.md` lists the fields.
"""

from __future__ import annotations

import itertools
import json
import secrets
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from .context import Context, environment
from .driver import keeper_task
from .engine import Engine, EngineError, Task
from .host import Ended, HostJoined
from .supervisor import KEEPER, WORKER, Start, Supervisor, number, role

SCHEMA = 1
JOIN_SECONDS = 20.0  # for further hosts
READY_SECONDS = 60.0  # for the start of a worker on a busy machine
ANSWER_SECONDS = 30.0
POLL_SECONDS = 0.005
MAX_PAIRS = 28  # of hosts that are measured: all pairs of eight


class Check:
    """Measures a cluster.

    Args:
        engine: what runs the probes.
        workers: how many workers the run would have, the least and the most.
        hosts: how many hosts.
        threads: of each worker.
        say: told what is being measured.
    """

    def __init__(
        self, engine: Engine, workers: tuple[int, int], hosts: int, threads: int, say: Callable[[str], None] = lambda text: None
    ) -> None:  # fmt: skip
        self.engine, self.workers, self.hosts, self.threads, self.say = engine, workers, hosts, threads, say
        self._token = secrets.token_hex(32)
        self._numbers = itertools.count(1)
        self._places: dict[str, int] = {}
        self._facts: dict[str, dict[str, Any]] = {}  # what the probes say of themselves
        self._ended: dict[str, tuple[int, float]] = {}  # tasks that ended: status, and when it was noticed

    def measure(self) -> dict[str, Any]:
        """Everything that is measured, as plain data."""
        self.say("waiting for hosts")
        actions = Supervisor(*self.workers, self.hosts).hosts_joined(self._join())
        starts = [action for action in actions if isinstance(action, Start)]
        self._places = {action.name: action.host for action in starts if role(action.name) == WORKER}
        for host in self.engine.places():
            self.engine.write(host, "token", self._token.encode())
        self.say("starting workers")
        for action in starts:
            if role(action.name) == KEEPER:
                self.engine.start(keeper_task(action.name, self.engine.places()[action.host], action.host))
        started = self._facts = self._start(list(self._places))
        self.say("computing")
        alone = {name: self._compute([name])[name] for name in self._firsts()}
        together = self._compute(list(self._places))
        self.say("moving bytes within hosts")
        shared = [self._shared(host) for host in sorted(set(self._places.values()))]
        self.say("moving bytes between hosts")
        links, clocks = self._links()
        self.say("killing workers")
        restarts = self._restart(self._lasts())
        return self._report(started, alone, together, shared, links, clocks, restarts)

    # Tasks ------------------------------------------------------------------------------------------------------------

    def _join(self) -> dict[int, int]:
        rooms: dict[int, int] = {}
        end = time.monotonic() + JOIN_SECONDS
        while len(rooms) < self.hosts and time.monotonic() < end:
            rooms.update({e.host: e.workers for e in self.engine.wait(0.2) if isinstance(e, HostJoined)})
        if not rooms:
            raise EngineError(f"No host has joined within {JOIN_SECONDS:g} seconds.")
        return rooms

    def _firsts(self) -> list[str]:
        """The first worker of each host."""
        return [min(self._on(host), key=number) for host in sorted(set(self._places.values()))]

    def _lasts(self) -> list[str]:
        return [max(self._on(host), key=number) for host in sorted(set(self._places.values()))]

    def _on(self, host: int) -> list[str]:
        return [name for name, at in self._places.items() if at == host]

    def _start(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Start probes and wait until they are ready: the facts that each tells, and how long its start took."""
        begun = {}
        for name in names:
            host = self._places[name]
            place = self.engine.places()[host]
            context = Context(
                place.directory, 1, self.workers[1], place.lifeline, host=host, hosts=self.hosts, address=place.address
            )
            self.engine.write(host, f"{name}.answer", b"{}")  # that of a predecessor
            self.engine.write(host, f"{name}.ask", b"{}\n")
            self._ended.pop(name, None)
            begun[name] = time.monotonic()
            variables = environment(context, self.threads, number(name))
            self.engine.start(Task(name, ("-m", "weft.distributed.probe"), variables, host))
        ready = self._answers(dict.fromkeys(names, 0), READY_SECONDS)
        for name, found in ready.items():
            found["start_seconds"] = found.pop("at") - begun[name]
        return ready

    def _ask(self, requests: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Ask several probes at once; their answers."""
        wanted = {}
        for name, request in requests.items():
            wanted[name] = next(self._numbers)
            text = json.dumps({"number": wanted[name], **request}).encode()
            self.engine.write(self._places[name], f"{name}.ask", text)
        found = self._answers(wanted, ANSWER_SECONDS)
        for name, answer in found.items():
            if "error" in answer:
                raise EngineError(
                    f"{name} on host {self._places[name]} cannot {requests[name]['what']}: {answer['error']}."
                )
        return found

    def _answers(self, wanted: dict[str, int], seconds: float) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + seconds
        while len(found) < len(wanted):
            for name in wanted.keys() - found.keys():
                text = self.engine.read(self._places[name], f"{name}.answer")
                answer = json.loads(text) if text else {}
                if answer.get("number") == wanted[name]:
                    found[name] = {**answer, "at": time.monotonic()}
            missing = sorted(wanted.keys() - found.keys())
            self._look()
            for name in missing:
                if name in self._ended:
                    raise EngineError(f"{name} on host {self._places[name]} ended with {self._ended[name][0]}.")
            if missing and time.monotonic() > end:
                raise EngineError(f"{', '.join(missing)} did not answer within {seconds:g} seconds.")
        return found

    def _look(self) -> None:
        for event in self.engine.wait(POLL_SECONDS):
            if isinstance(event, Ended):
                self._ended[event.name] = (event.status, time.monotonic())

    # Measurements -----------------------------------------------------------------------------------------------------

    def _compute(self, names: list[str]) -> dict[str, list[float]]:
        found = self._ask({name: {"what": "compute"} for name in names})
        return {name: answer["seconds"] for name, answer in found.items()}

    def _shared(self, host: int) -> dict[str, Any]:
        names = sorted(self._on(host), key=number)
        copied = self._ask({names[0]: {"what": "copy"}})[names[0]]["bytes_per_second"]
        latency = None
        if len(names) > 1:
            spin = len(names) <= self._facts[names[0]]["cpus"]  # as a team decides
            pair = {
                name: {"what": "message", "first": name == names[0], "start": 0, "spin": spin} for name in names[:2]
            }
            latency = self._ask(pair)[names[0]]["seconds"]
        return {"host": host, "latency_seconds": latency, "bytes_per_second": copied}

    def _links(self) -> tuple[list[dict[str, Any]], dict[int, tuple[float, float]]]:
        """The links between hosts in both directions, and how far each clock is ahead of the first host's, with the error."""
        first = {self._places[name]: name for name in self._firsts()}
        hosts = sorted(first)
        links: list[dict[str, Any]] = []
        clocks = {hosts[0]: (0.0, 0.0)}
        for a, b in list(itertools.combinations(hosts, 2))[:MAX_PAIRS]:
            port = self._ask({first[b]: {"what": "listen"}})[first[b]]["port"]
            address = self.engine.places()[b].address
            found = self._ask({first[a]: {"what": "connect", "address": address, "port": port}})[first[a]]
            for start, end, key in ((a, b, "sent"), (b, a, "received")):
                link = {"from": start, "to": end, "latency_seconds": found["seconds"], "bytes_per_second": found[key]}
                links.append(link)
            if a == hosts[0]:
                clocks[b] = (found["clock"], found["clock_error"])
        return links, clocks

    def _restart(self, names: list[str]) -> list[dict[str, Any]]:
        """Kill workers of different hosts, and start them again."""
        killed = {}
        for name in names:
            self._ended.pop(name, None)
            killed[name] = time.monotonic()
            self.engine.signal(name, signal.SIGKILL)
        end = time.monotonic() + ANSWER_SECONDS
        while missing := [name for name in names if name not in self._ended]:
            self._look()
            if time.monotonic() > end:
                raise EngineError(f"the death of {missing[0]} is not noticed within {ANSWER_SECONDS:g} seconds.")
        noticed = {name: self._ended[name][1] - killed[name] for name in names}
        started = self._start(names)
        return [
            {"task": name, "host": self._places[name], "noticed_seconds": noticed[name],
             "start_seconds": started[name]["start_seconds"]}
            for name in names
        ]  # fmt: skip

    def _report(
        self, started: dict[str, dict[str, Any]], alone: dict[str, list[float]], together: dict[str, list[float]],
        shared: list[Any], links: list[Any], clocks: dict[int, tuple[float, float]], restarts: list[Any],
    ) -> dict[str, Any]:  # fmt: skip
        from .probe import SHARD, SHARD_FLOPS

        per_worker = ("pid", "nice", "threads", "start_seconds", "number")
        hosts = []
        for name in self._firsts():
            host = self._places[name]
            clock, error = clocks.get(host, (None, None))
            own = {key: value for key, value in started[name].items() if key not in per_worker}
            hosts.append({
                "host": host, "address": self.engine.places()[host].address, "workers": len(self._on(host)), **own,
                "clock_seconds": clock, "clock_error_seconds": error,
            })  # fmt: skip
        workers = []
        for name in sorted(self._places, key=number):
            own = {key: started[name][key] for key in ("pid", "nice", "threads", "start_seconds")}
            compute = {
                "alone": quantiles(alone[name]) if name in alone else None,
                "together": quantiles(together[name]),
            }
            workers.append({"task": name, "host": self._places[name], **own, "compute_seconds": compute})
        return {
            "schema": SCHEMA, "time": time.time(), "hosts_wanted": self.hosts, "threads": self.threads, "hosts": hosts,
            "workers": workers, "shard": {"shape": list(SHARD), "flops": SHARD_FLOPS}, "shared_memory": shared,
            "links": links, "restarts": restarts,
        }  # fmt: skip


def quantiles(values: Iterable[float]) -> list[float]:
    """Eleven numbers: the least, the deciles, the greatest.

    >>> quantiles([3.0, 1.0, 2.0])[::5]
    [1.0, 2.0, 3.0]
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    found = []
    for tenth in range(11):
        low, rest = divmod(last * tenth, 10)
        found.append(ordered[low] + (ordered[min(low + 1, last)] - ordered[low]) * rest / 10)
    return found
