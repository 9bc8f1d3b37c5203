"""The supervisor: decides what happens when hosts and tasks come and go. No input or output; it takes events, returns actions.

Every host has a keeper, a relay if the run may have several hosts, and workers. A task that is killed is started again. A
worker that ends with an error ends the run: it would fail again, and so would the others. Tasks that keep dying without a step
being committed in between end the run too, with the last reason. The workers of a host that is lost are started on the others;
a host that joins gets its share of them.

The state is plain data (`dump`), so that the successor of a driver that was killed continues from it.
"""

from __future__ import annotations

import dataclasses
import signal
from typing import Any

from .keeper import ISOLATED, LOST, OTHER_BITS

MAX_FUTILE = 3  # deaths of one worker without progress before the run is given up
MAX_KILLED = 10  # by SIGKILL, which comes from outside; the program itself may be the reason, if memory is short
MAX_FUTILE_SERVICE = 20  # of a keeper or relay: they start in no time and may die often before the first step
KEEPER, RELAY, WORKER = "keeper", "relay", "worker"


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a task (again)."""

    name: str
    host: int = 0


@dataclasses.dataclass(frozen=True)
class Kill:
    """Kill a worker that is not needed; the others compute what it had begun."""

    name: str


@dataclasses.dataclass(frozen=True)
class Reset:
    """End the tasks of a host and empty its directory: its memory is lost, and it will join again."""

    host: int


@dataclasses.dataclass(frozen=True)
class Stop:
    """End all tasks; the run is over with this exit status and reason."""

    status: int
    reason: str = ""
    restart: bool = False
    """whether the run should be started anew, from its last checkpoint"""


Action = Start | Kill | Reset | Stop


def role(name: str) -> str:
    """What a task does: the first part of its name."""
    return name.partition("-")[0]


def number(name: str) -> int:
    """Which one of its role it is: of a keeper or relay the host, of a worker any number."""
    return int(name.rpartition("-")[2])


class Supervisor:
    """The state of a run's hosts and tasks.

    Args:
        min_workers, max_workers: how many workers there may be.
        hosts: how many hosts there may be.
    """

    def __init__(self, min_workers: int, max_workers: int, hosts: int = 1) -> None:
        self.min_workers, self.max_workers, self.several = min_workers, max_workers, hosts > 1
        self.room: dict[int, int] = {}  # host -> how many workers it has processors for
        self.workers: dict[str, int] = {}  # those that should run, or have finished -> host
        self.services: dict[str, int] = {}  # keepers and relays that should run -> host
        self.leaving: set[str] = set()  # workers that were told to go and have not ended yet
        self.finished: set[str] = set()
        self.deaths: dict[str, list[int]] = {}  # task -> [version at its last death, deaths since]
        self.wanted: int | None = None  # how many workers the user asked for in mid-run
        self.stopping = 0  # the signal by which the run was asked to end
        self.refused: set[int] = set()  # hosts that compute other bits
        self.restarts = 0
        self.over = False

    def dump(self) -> dict[str, Any]:
        """The state as plain data."""
        return {name: sorted(v) if isinstance(v, set) else v for name, v in vars(self).items()}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Supervisor:
        """The supervisor that `dump` described."""
        made = cls(state["min_workers"], state["max_workers"])
        for name, old in vars(made).items():
            value = state[name]
            if isinstance(old, set):
                value = set(value)
            elif name == "room":
                value = {int(host): count for host, count in value.items()}
            setattr(made, name, value)
        return made

    @property
    def running(self) -> dict[str, int]:
        """The tasks that should run, and their hosts."""
        workers = {name: host for name, host in self.workers.items() if name not in self.finished}
        return {**self.services, **workers}

    @property
    def target(self) -> int:
        """How many workers there should be."""
        count = sum(self.room.values()) if self.wanted is None else self.wanted
        return min(max(count, self.min_workers), self.max_workers)

    # Events ---------------------------------------------------------------------------------------------------------

    def host_joined(self, host: int, room: int) -> list[Action]:
        """A host can be used; it has processors for `room` workers."""
        return self.hosts_joined({host: room})

    def hosts_joined(self, rooms: dict[int, int]) -> list[Action]:
        """Several hosts at once, as at the start: no worker is started on one and moved to the next."""
        new = {host: room for host, room in rooms.items() if host not in self.room and host not in self.refused}
        if self.over or self._ending or not new:
            return []
        self.room.update(new)
        return [*[action for host in new for action in self._start_services(host)], *self._balance()]

    def host_lost(self, host: int, reason: str) -> list[Action]:
        """A host is gone, with all its tasks."""
        if self.over or host not in self.room:
            return []
        del self.room[host]
        self.services = {name: h for name, h in self.services.items() if h != host}
        gone = {name for name, h in self.workers.items() if h == host}
        self.workers = {name: h for name, h in self.workers.items() if h != host}
        self.leaving -= {name for name in self.leaving if name in gone}
        if self.stopping or self.finished and not gone - self.finished:  # what its workers would do is done
            return self._check_end()
        if not self.room:
            return self._stop(Stop(1, f"the last host of the run is lost: {reason}", restart=True))
        if self.finished:  # the lead may have been among them: its program is not complete
            return [self._move(name) for name in sorted(gone - self.finished)]
        return self._balance()

    def ended(self, name: str, status: int, version: int) -> list[Action]:
        """A task's process is gone; `version` is the number of steps committed by now."""
        if self.over:
            return []
        if name in self.leaving:
            self.leaving.discard(name)
            return []
        if name in self.services:
            return self._service_ended(name, status, version)
        if name not in self.workers or name in self.finished:
            return []  # of a host that is lost already
        if self.stopping:
            self.finished.add(name)
            return self._check_end()
        if status == 0:
            self.finished.add(name)
            return self._check_end()
        if status == LOST:
            reason = f"{name} found the weights half updated, and with lean memory there is no other copy"
            return self._stop(Stop(1, reason, restart=not self.stopping))
        if status == OTHER_BITS:
            return self._refuse(self.workers[name])
        if status > 0:
            return self._stop(Stop(status, f"{name} ended with status {status}"))
        count = self._count_death(name, version)
        if count > (MAX_KILLED if status == -signal.SIGKILL else MAX_FUTILE):
            return self._stop(Stop(1, f"{name} was killed by signal {-status} {count} times without a step in between"))
        self.restarts += 1
        return [Start(name, self.workers[name])]

    def want(self, count: int) -> list[Action]:
        """The user wants another number of workers; it is kept within the limits."""
        if self.over or self._ending:
            return []
        self.wanted = count
        return self._balance()

    def stop(self, signal_number: int) -> list[Action]:
        """The run was asked to end by a signal; its workers know."""
        self.stopping = signal_number
        return self._check_end()

    # Decisions ------------------------------------------------------------------------------------------------------

    @property
    def _ending(self) -> bool:
        return bool(self.stopping or self.finished)

    def _stop(self, action: Stop) -> list[Action]:
        self.over = True
        return [action]

    def _check_end(self) -> list[Action]:
        if not set(self.workers) <= self.finished:
            return []
        return self._stop(Stop(128 + self.stopping if self.stopping else 0))

    def _start_services(self, host: int) -> list[Action]:
        """The keeper first: the others ask it for memory."""
        names = [f"{KEEPER}-{host}", *([f"{RELAY}-{host}"] if self.several else [])]
        self.services.update(dict.fromkeys(names, host))
        return [Start(name, host) for name in names]

    def _count_death(self, name: str, version: int) -> int:
        before, count = self.deaths.get(name, (-1, 0))
        self.deaths[name] = [version, count + 1 if version == before else 1]
        return self.deaths[name][1]

    def _service_ended(self, name: str, status: int, version: int) -> list[Action]:
        host = self.services[name]
        count = self._count_death(name, version)
        mine = [worker for worker, at in self.workers.items() if at == host]
        if status == ISOLATED and self._ending:  # the hosts that it does not reach have finished
            self.finished.update(mine)
            self.services = {service: at for service, at in self.services.items() if at != host}
            return [Reset(host), *self._check_end()]
        if status == LOST and role(name) == RELAY:
            return self._stop(Stop(1, "no host has the run's memory", restart=not self.stopping))
        if status in (LOST, ISOLATED):
            if len(self.room) < 2 or count > MAX_FUTILE or self._ending:
                reason = {
                    LOST: "the run's memory is lost: the keeper and all workers died",
                    ISOLATED: f"host {host} does not reach any other host",
                }[status]
                return self._stop(Stop(1, reason, restart=not self.stopping))
            return [Reset(host), *self._start_services(host), *[Start(worker, host) for worker in mine]]
        if count > MAX_FUTILE_SERVICE:
            return self._stop(Stop(1, f"{name} ended {count} times without a step in between, last with {status}"))
        self.restarts += 1
        return [Start(name, host)]

    def _refuse(self, host: int) -> list[Action]:
        """A host computes other bits than the first one: the run goes on without it."""
        self.refused.add(host)
        return [Reset(host), *self.host_lost(host, "it computes other bits than the first one")]

    def _load_of(self, host: int) -> int:
        return sum(at == host for at in self.workers.values())

    def _balance(self) -> list[Action]:
        """Bring the number of workers to the target, and spread them over the hosts."""
        actions: list[Action] = []
        while len(self.workers) > self.target:
            actions.append(self._remove(self._last_worker(self._fullest())))
        while len(self.workers) < self.target:
            actions.append(self._add(self._emptiest()))
        while self.workers:
            full, empty = self._fullest(), self._emptiest()
            if self._excess(full) - self._excess(empty) < 2:
                break
            actions.append(self._remove(self._last_worker(full)))
            actions.append(self._add(empty))
        return actions

    def _excess(self, host: int) -> int:
        """How many workers a host has beyond its processors."""
        return self._load_of(host) - self.room[host]

    def _fullest(self) -> int:
        """Of the hosts that have workers the one with the least room, the last one of several."""
        return max((h for h in self.room if self._load_of(h)), key=lambda h: (self._excess(h), h))

    def _last_worker(self, host: int) -> str:
        return max((name for name, at in self.workers.items() if at == host), key=number)

    def _emptiest(self) -> int:
        """The host with the most room, the first one of several."""
        return min(self.room, key=lambda h: (self._excess(h), h))

    def _add(self, host: int) -> Start:
        taken = {number(name) for name in (*self.workers, *self.leaving)}
        name = f"{WORKER}-{next(i for i in range(len(taken) + 1) if i not in taken)}"
        self.workers[name] = host
        self.deaths.pop(name, None)
        return Start(name, host)

    def _move(self, name: str) -> Start:
        self.workers[name] = self._emptiest()
        return Start(name, self.workers[name])

    def _remove(self, name: str) -> Kill:
        del self.workers[name]
        self.leaving.add(name)
        return Kill(name)
