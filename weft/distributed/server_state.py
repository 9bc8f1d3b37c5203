"""The clocks of parameter servers and the leases of samples, as state machines without input or output.

A *slot* is a logical worker, 0 … n - 1; its *clock* counts its pushes of a key. A push is identified by (slot, clock,
key) and accepted once, whichever process sends it, however often. What happens then is the consistency:

* sync: a push is held until all slots have pushed with the same clock; then there is one update from all of them.
* `Bounded(s)`: a push is applied when it comes, in any order; a pull of a slot waits until the slowest is at most s
clocks behind.
* async: a push is applied when it comes, and no pull waits.

Time, sockets and arrays are elsewhere (`parameter_server_store`), so tests run thousands of schedules of these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

DUPLICATE, HELD, APPLY = "duplicate", "held", "apply"
"""what becomes of a push: it was accepted before; it waits for others; it is applied now"""
READY, EARLY, STALE = "ready", "early", "stale"
"""what becomes of a pull: it is answered; it waits; its version is gone, since the others have completed that clock"""


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Bounded staleness: a worker may be at most `staleness` clocks ahead of the slowest one.

    >>> from weft.distributed import Bounded
    >>> Bounded(3)
    Bounded(staleness=3)
    """

    staleness: int

    def __post_init__(self) -> None:
        if not isinstance(self.staleness, int) or isinstance(self.staleness, bool) or self.staleness < 0:
            raise ValueError(f"Bounded: the staleness must be a number of clocks, at least 0. Got {self.staleness!r}.")


def dump_consistency(consistency: Any) -> Any:
    """A consistency as JSON: "sync", "async" or a number of clocks.

    Raises:
        ValueError: it is none of the three.
    """
    if isinstance(consistency, Bounded):
        return consistency.staleness
    if consistency not in ("sync", "async"):
        raise ValueError(f"consistency must be 'sync', 'async' or Bounded(clocks). Got {consistency!r}.")
    return consistency


class KeyClock:
    """Which pushes of one key were accepted, and which pulls may be answered.

    Args:
        slots: how many logical workers push the key.
        consistency: as `dump_consistency` returns it.
    """

    def __init__(self, slots: int, consistency: Any) -> None:
        self.slots, self.sync = slots, consistency == "sync"
        self.bound = consistency if isinstance(consistency, int) else None
        self.version = 0  # updates so far
        self.counts = [0] * slots  # of every slot: all pushes with a smaller clock were accepted
        self._beyond: list[set[int]] = [set() for _ in range(slots)]  # accepted, with larger clocks
        self._active = set(range(slots))

    def accepted(self, slot: int, clock: int) -> bool:
        """Whether a push was accepted before, or comes too late to count."""
        return self._has(slot, clock) or self.sync and clock < self.version

    def offer(self, slot: int, clock: int) -> str:
        """Accept a push, once. In sync the caller then applies what `complete` names."""
        if self.accepted(slot, clock):
            return DUPLICATE
        self._beyond[slot].add(clock)
        self._settle(slot)
        if self.sync:
            return HELD
        self.version += 1
        return APPLY

    def _settle(self, slot: int) -> None:
        beyond = self._beyond[slot]
        while self.counts[slot] in beyond:
            beyond.remove(self.counts[slot])
            self.counts[slot] += 1

    def complete(self) -> int | None:
        """In sync: the clock for which all slots have pushed and which was not applied yet; counts as applied from now on."""
        clock = self.version
        if not self.sync or not self._active or not all(self._has(slot, clock) for slot in self._active):
            return None
        if not any(self._has(slot, clock) for slot in range(self.slots)):
            return None  # only slots that have ended
        self.version += 1
        return clock

    def _has(self, slot: int, clock: int) -> bool:
        return clock < self.counts[slot] or clock in self._beyond[slot]

    def pull(self, clock: int) -> str:
        """Whether a slot that has pushed `clock` times may read the key now."""
        if self.sync:
            if self.version < clock:
                return EARLY
            return READY if self.version <= clock + 1 else STALE
        if self.bound is None or not self._active:
            return READY
        return READY if clock - min(self.counts[s] for s in self._active) <= self.bound else EARLY

    def retire(self, slot: int) -> None:
        """A slot pushes no more; nobody waits for it."""
        self._active.discard(slot)

    def level(self, clock: int) -> None:
        """All slots begin again, together, with this clock: nothing is on its way."""
        self._active = set(range(self.slots))
        for slot in range(self.slots):
            self.counts[slot] = max(self.counts[slot], clock)
            self._beyond[slot] = {c for c in self._beyond[slot] if c >= self.counts[slot]}
            self._settle(slot)
        if self.sync:
            self.version = max(self.version, clock)

    def dump(self) -> dict[str, Any]:
        return {
            "version": self.version, "counts": self.counts, "beyond": [sorted(b) for b in self._beyond],
            "active": sorted(self._active),
        }  # fmt: skip

    def load(self, data: Mapping[str, Any]) -> None:
        self.version, self.counts = int(data["version"]), [int(c) for c in data["counts"]]
        self._beyond = [set(b) for b in data["beyond"]]
        self._active = set(data["active"])


@dataclasses.dataclass(frozen=True)
class Lease:
    """What a process computes next: the gradients of a piece of the data, pushed as `slot` with `clock`."""

    slot: int
    clock: int
    piece: int


GATE, WAIT = "gate", "wait"
"""no lease: nothing is left of the epoch; nothing is free until another process is done"""


class Leases:
    """Which pieces of an epoch are computed by whom, and which are done.

    Batch k of an epoch is cut into n pieces, k n … k n + n - 1. In sync piece i is slot i mod n of clock i div n, and
    a clock begins when the one before it is done; spare processes, and those that are done, get copies of pieces that
    others compute. Otherwise a process is a slot, and gets the next piece. A piece is done when the process says so,
    after the servers have acknowledged all its pushes. A process that was killed asks again, with a higher
    generation, and gets the piece that it had.

    Args:
        slots: n.
        spares: further processes, in sync.
    """

    def __init__(self, slots: int, sync: bool, spares: int = 0) -> None:
        self.slots, self.sync, self.spares = slots, sync, spares
        self.epoch, self.pieces = -1, 0
        self.clock = 0  # sync: of the pieces that are being computed; otherwise: with which the epoch began
        self._first = 0  # sync: the clock with which the epoch began
        self._next = 0
        self._held: dict[int, Lease] = {}  # by process
        self._clocks: dict[int, int] = {}  # async: the next clock of each process
        self._done: set[int] = set()
        self.results: dict[int, Any] = {}  # of the pieces that are done, as JSON
        self.past: list[list[Any]] = []  # the results of earlier epochs, in the order of their pieces

    def open(self, epoch: int, batches: int) -> int:
        """Begin an epoch, once; returns the clock with which all slots begin it."""
        if epoch > self.epoch:
            if not self.over:
                raise ValueError(
                    f"leases: epoch {epoch} cannot begin: {self.missing()} pieces of epoch {self.epoch} are left."
                )
            if self.sync:
                self._first = self.clock
            else:
                self.clock = max([self.clock, *self._clocks.values()])
                self._clocks = {}
            if self.epoch >= 0:
                self.past.append([self.results[piece] for piece in sorted(self.results)])
            self.epoch, self.pieces, self._next = epoch, batches * self.slots, 0
            self._done, self.results, self._held = set(), {}, {}
        return self._first if self.sync else self.clock

    @property
    def over(self) -> bool:
        """Whether every piece of the epoch is done."""
        return len(self._done) == self.pieces

    def results_of(self, epoch: int) -> list[Any] | None:
        """The results of an epoch in the order of its pieces; None as long as it is not over."""
        if epoch < self.epoch:
            return self.past[epoch - self.epoch]  # the last of them is the epoch before this one
        return [self.results[p] for p in sorted(self.results)] if epoch == self.epoch and self.over else None

    def missing(self) -> int:
        return self.pieces - len(self._done)

    def take(self, process: int) -> Lease | str:
        """What a process computes next; the same again until it is done, or done by another process."""
        held = self._held.get(process)
        if held is not None and held.piece not in self._done:
            return held
        self._held.pop(process, None)
        if self.over:
            return GATE
        return self._take_slot(process) if self.sync else self._take_next(process)

    def _take_next(self, process: int) -> Lease | str:
        if self._next >= self.pieces:
            return GATE
        lease = Lease(process, self._clocks.get(process, self.clock), self._next)
        self._next += 1
        self._held[process] = lease
        return lease

    def _take_slot(self, process: int) -> Lease | str:
        first = (self.clock - self._first) * self.slots
        open_slots = [s for s in range(self.slots) if first + s not in self._done]
        held: dict[int, int] = dict.fromkeys(open_slots, 0)
        for other in self._held.values():
            if other.clock == self.clock and other.slot in held:
                held[other.slot] += 1
        if self.spares:
            chosen = process if held.get(process) == 0 else min(held, key=lambda s: (held[s], -s))
        elif process in held:
            chosen = process
        else:
            return WAIT
        lease = self._held[process] = Lease(chosen, self.clock, first + chosen)
        return lease

    def finish(self, process: int, piece: int, result: Any) -> bool:
        """A piece is done; whether it was not before."""
        if piece in self._done or not 0 <= piece < self.pieces:
            return False
        self._done.add(piece)
        self.results[piece] = result
        held = self._held.get(process)
        if not self.sync and held is not None and held.piece == piece:
            self._clocks[process] = held.clock + 1
        if self.sync:
            first = (self.clock - self._first) * self.slots
            if all(first + s in self._done for s in range(self.slots)):
                self.clock += 1
        return True

    def dump(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch, "pieces": self.pieces, "clock": self.clock, "first": self._first, "next": self._next,
            "held": {str(p): dataclasses.astuple(lease) for p, lease in self._held.items()},
            "clocks": {str(p): c for p, c in self._clocks.items()}, "done": sorted(self._done),
            "results": {str(p): r for p, r in self.results.items()}, "past": self.past,
        }  # fmt: skip

    def load(self, data: Mapping[str, Any]) -> None:
        self.epoch, self.pieces, self.clock = data["epoch"], data["pieces"], data["clock"]
        self._first, self._next = data["first"], data["next"]
        self._held = {int(p): Lease(*lease) for p, lease in data["held"].items()}
        self._clocks = {int(p): c for p, c in data["clocks"].items()}
        self._done = set(data["done"])
        self.results = {int(p): r for p, r in data["results"].items()}
        self.past = list(data["past"])


class Fences:
    """Generations of processes: what an earlier life of a process still sends is refused."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def admits(self, process: int, generation: int) -> bool:
        if generation < self.known.get(process, 0):
            return False
        self.known[process] = generation
        return True
