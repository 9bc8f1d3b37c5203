"""Communicator: one rank's part in the rounds of the run, and what it does when another rank does not come.

All ranks make the same calls in the same order. A rank that waits learns of these cases within `NAP_SECONDS`, and then
*all* ranks get the same error, which names two ranks and their lines:

* another rank makes another call, or the same one with other shapes or dtypes, or after another number of steps;
* another rank has ended its program, or goes on with steps without making the call;
* another rank was killed and cannot repeat its program. If it can, because the log has all its calls, the others wait
  for the process that is started in its place.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import numpy as np

from ..errors import user_location
from ..runtime._host import usable_cpus
from . import atomics, failpoints
from . import context as contexts
from .call_log import FULL, REASONS, CallLog
from .context import WORKER, Context
from .exchange import LEFT, Exchange, Record, pack_text
from .failpoints import reach
from .memory import Memory
from .processes import Handles, identity, start_time
from .spreading import Spreading

SPIN_ROUNDS = 4000  # polls before a rank sleeps, about 0.1 ms
NAP_SECONDS = 0.02  # how long it sleeps before it looks after the others
BEAT_SECONDS = 0.2
STALL_SECONDS = 10.0  # before a rank that waits says for whom
MAX_CACHED = 4096

DIVERGED, LOST, CORRUPTED = 2, 3, 4  # kinds of errors that end the run on all ranks


class DivergenceError(RuntimeError):
    """Ranks of a distributed run did different things: other calls, other shapes, or another number of steps."""


class WorkerLostError(RuntimeError):
    """A worker was killed, and what it had computed is with no other worker and not in the log."""


class CorruptionError(RuntimeError):
    """A worker computed, or holds, other values than the others for the same thing."""


for _class in (DivergenceError, WorkerLostError, CorruptionError):
    _class.__module__ = "weft.distributed"  # where users find them

_ERRORS: dict[int, type[RuntimeError]] = {DIVERGED: DivergenceError, LOST: WorkerLostError, CORRUPTED: CorruptionError}


class Call(NamedTuple):
    """A collective call: a hash of what must be the same on all ranks, and the text of its record."""

    digest: int
    text: bytes
    what: str
    line: str


class Communicator:
    """This process as a rank of the run; one thread at a time uses it.

    Args:
        run: the run.
        rank: the number of this process among the workers of all hosts.
        memory: the run's; by default that of its keeper.
        processes: know which processes of this host run.
    """

    def __init__(
        self, run: Context, rank: int, memory: Memory | None = None, processes: Handles | None = None
    ) -> None:  # fmt: skip
        self.run, self.rank, self.world = run, rank, run.members
        self.memory = Memory(run.socket) if memory is None else memory
        self.exchange = Exchange(self.world, self.memory.open)
        self.log = CallLog(self.exchange, self.memory.open)
        self.seq = 0  # rounds that are over
        self.calls = 0
        self.steps = 0
        self.lock = threading.RLock()
        self.direct: bool | None = None  # whether the ranks can read each other's memory, once they have found out
        self._relayed = run.hosts > 1
        self._processes = processes or Handles()
        self._spin = SPIN_ROUNDS if -(-self.world // run.hosts) <= usable_cpus() else 0
        self._records = [[self.exchange.record_at(q, half) for q in range(self.world)] for half in (0, 1)]
        self._spreading = Spreading(lambda cpu: self.exchange.set_processor(rank, cpu), self._processors)
        self._round = self.exchange.rounds(rank, NAP_SECONDS)
        self._texts: list[bytes | None] = [None, None]  # of this rank's two records
        self._chunks: dict[tuple[int, int, np.dtype, int], np.ndarray] = {}
        self._logs: bool | None = None
        self._calls: dict[object, Call] = {}
        # Rounds that a predecessor of this process has published before it was killed.
        self.published = self.exchange.arrived(rank)
        pid = os.getpid()
        self.exchange.join(rank, identity(pid, start_time(pid) or 0), run.host)
        self._stop = threading.Event()
        threading.Thread(target=self._beat, name="weft-collectives", daemon=True).start()
        atexit.register(self.leave)
        self._check_replayable(rank)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self.memory.check()  # a keeper that was started again needs the segments

    def _processors(self) -> tuple[set[int], set[int]]:
        """Where the other ranks of this host run: the lower ones, and all."""
        exchange = self.exchange
        found = {q: exchange.processor(q) for q in range(self.world) if q != self.rank}
        return {cpu for q, cpu in found.items() if q < self.rank}, set(found.values())

    def leave(self) -> None:
        """Say that this rank's program has ended."""
        if not self._stop.is_set():
            self._stop.set()
            self.exchange.set_state(self.rank, LEFT)

    # Calls ----------------------------------------------------------------------------------------------------------

    def call(self, key: tuple[object, ...], what: Callable[[], str] | None = None, depth: int = 4) -> Call:
        """The call that the user's line makes; `key` is all that must be the same on all ranks, `what()` the same in words."""
        location = user_location(depth)
        place = (key, None) if location is None else (key, location.code, location.line)
        found = self._calls.get(place)
        if found is None:
            if len(self._calls) > MAX_CACHED:
                self._calls.clear()
            words = str(key[0]) if what is None else what()
            line = "an unknown line" if location is None else _line(location.filename, location.line)
            digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
            found = Call(int.from_bytes(digest, "little"), pack_text(words, line), words, line)
            self._calls[place] = found
        return found

    # Rounds ---------------------------------------------------------------------------------------------------------

    def chunk(self, rank: int, dtype: np.dtype, count: int, ahead: int = 0) -> np.ndarray:
        """A rank's staging buffer of the last round; with `ahead=1` that of the next one, which only its rank writes."""
        key = (rank, self.seq + ahead & 1, dtype, count)
        found = self._chunks.get(key)
        if found is None:
            if len(self._chunks) > MAX_CACHED:
                self._chunks.clear()
            found = self._chunks[key] = self.exchange.chunk(rank, self.seq + ahead, dtype, count)
        return found

    def put(self, call: Call, array: np.ndarray | None) -> None:
        """One round: give the others a flat array, and wait until all have given theirs."""
        if array is None:
            self.arrive(call, 0)
            return
        if self.seq >= self.published:
            np.copyto(self.chunk(self.rank, array.dtype, array.size, 1), array)
        self.arrive(call, array.nbytes)

    def arrive(self, call: Call, nbytes: int) -> None:
        """One round; the data is in the staging buffer."""
        exchange, seq = self.exchange, self.seq + 1
        half = seq & 1
        if seq > self.published:  # else the predecessor's data stands: others may have read it
            at = self._records[half][self.rank]
            if self._texts[half] is not call.text:
                exchange.write_text(at, call.text)
                self._texts[half] = call.text
            exchange.write_head(at, seq, self.calls, call.digest, self.steps, nbytes, len(call.text))
            reach("round written")
            if self._relayed or failpoints.hook is not None:
                exchange.publish(self.rank, seq)
                exchange.announce()
                reach("round published")
            found = self._round(seq, 0 if self._spreading.shared else self._spin, call.digest, self.steps)
        else:
            found = atomics.TIMED_OUT
        if found == atomics.TIMED_OUT:
            found = self._wait_long(call, seq)
        if found == atomics.DIFFERENT:
            self._disagree(call, seq)
        self.seq = seq
        if self._spin:
            self._spreading.look()

    def _wait_long(self, call: Call, seq: int) -> int:
        """Wait for all ranks, and look after those that have not come."""
        started, stalls = time.monotonic(), 0
        while not self.exchange.wait(seq, 0, NAP_SECONDS):
            self._look(call, seq)
            if time.monotonic() - started > STALL_SECONDS * 2**stalls:
                stalls += 1
                self._say_stall(call, seq, time.monotonic() - started)
        heads = [self.exchange.head(at) for at in self._records[seq & 1]]
        same = all((h[0], h[2], h[3]) == (seq, call.digest, self.steps) for h in heads)
        return atomics.READY if same else atomics.DIFFERENT

    def _missing(self, seq: int) -> list[int]:
        return [q for q in range(self.world) if self.exchange.arrived(q) < seq]

    def _say_stall(self, call: Call, seq: int, seconds: float) -> None:
        missing = self._missing(seq)
        if missing and self.rank == min(set(range(self.world)) - set(missing)):
            names = ", ".join(self.name(q) for q in missing)
            print(
                f"weft: {self.name(self.rank)} has waited {seconds:.0f} s in {call.what} at {call.line} for {names}",
                file=sys.stderr,
                flush=True,
            )

    # Disagreement ---------------------------------------------------------------------------------------------------

    def name(self, rank: int) -> str:
        """How messages call a rank."""
        host = self.exchange.host(rank)
        return f"rank {rank}" if not self._relayed or host is None else f"rank {rank} on host {host}"

    def check_abort(self) -> None:
        """Raise the error with which the run ends, if there is one."""
        found = self.exchange.aborted()
        if found is not None:
            kind, text = found
            raise _ERRORS.get(kind, RuntimeError)(text)

    def fail(self, kind: int, text: str) -> NoReturn:
        """End the run: all ranks raise this error, or an earlier one."""
        self.exchange.abort(kind, f"distributed: {text}")
        self.check_abort()
        raise _ERRORS[kind](f"distributed: {text}")  # the process that wrote the first error died meanwhile

    def _look(self, call: Call, seq: int) -> None:
        """What has become of the ranks that have not arrived at a round."""
        self.check_abort()
        exchange = self.exchange
        for q in self._missing(seq):
            state, steps, who = exchange.state(q), exchange.steps(q), exchange.identity(q)
            dead = who != 0 and exchange.host(q) == self.run.host and not self._processes.alive(who)
            if exchange.arrived(q) >= seq:
                continue
            if state == LEFT:
                self.fail(
                    DIVERGED,
                    f"{self.name(q)} has ended its program{self._after(q)}, but {self.name(self.rank)} calls {call.what} at "
                    f"{call.line}. Every rank must make the same collective calls.",
                )
            if dead:
                self._check_replayable(q)
            elif steps > self.steps:
                step = exchange.record(exchange.step_at(q, steps))
                self.fail(
                    DIVERGED,
                    f"ranks disagree after step {self.steps}. {_capital(self.name(self.rank))} calls {call.what} at {call.line}; "
                    f"{self.name(q)} begins {step.what} at {step.line}. Every rank must make the same calls in the same order.",
                )

    def _after(self, rank: int) -> str:
        """What a rank did last."""
        arrived = self.exchange.arrived(rank)
        if not arrived:
            return " without a collective call"
        last = self.exchange.record(self.exchange.record_at(rank, arrived))
        return f" after {last.call} collective calls, the last one {last.what} at {last.line}"

    def _disagree(self, call: Call, seq: int) -> NoReturn:
        """Say which ranks make which calls. All ranks see the same records, so all say the same."""
        records = [self.exchange.record(at) for at in self._records[seq & 1]]
        if any(record.seq != seq for record in records):
            self.fail(
                LOST,
                f"{self.name(self.rank)} was started on another host, which does not have the results of its earlier collective "
                "calls. Start the run again.",
            )
        first = records[0]
        for q, record in enumerate(records):
            if (record.digest, record.steps) != (first.digest, first.steps):
                self.fail(DIVERGED, self._difference(first, 0, record, q))
        mine = Record(seq, self.calls, call.digest, self.steps, 0, call.what, call.line)
        self.fail(DIVERGED, self._replay_difference(mine, records[self.rank].what))

    def _difference(self, a: Record, first: int, b: Record, second: int) -> str:
        if a.digest == b.digest:
            does = [
                f"{self.name(q)} calls {r.what} at {r.line} after {r.steps} steps" for q, r in ((first, a), (second, b))
            ]
        else:
            does = [f"{self.name(q)} calls {r.what} at {r.line}" for q, r in ((first, a), (second, b))]
        return (
            f"ranks disagree in collective call number {a.call}. {_capital(does[0])}; {does[1]}. Every rank must make the same "
            "calls in the same order, with the same shapes and dtypes."
        )

    def _replay_difference(self, mine: Record, before: str) -> str:
        return (
            f"{self.name(self.rank)} was killed and repeats its program, but now calls {mine.what} at {mine.line} as collective "
            f"call number {mine.call}, where it made another one ({before}) before. A program whose collective calls depend on "
            "time or on unseeded random numbers cannot be repeated."
        )

    def _check_replayable(self, rank: int) -> None:
        """Raise if a rank that was killed cannot repeat its program from the log."""
        reason, since = self.exchange.closed()
        if reason and self.exchange.arrived(rank) >= since:
            last = self.exchange.record(self.exchange.record_at(rank, self.exchange.arrived(rank)))
            self.fail(
                LOST,
                f"{self.name(rank)} was killed in or after {last.what} at {last.line}, and its program cannot be repeated: the "
                f"results of collective calls are not kept since round {since}, because {REASONS[reason]}. Start the run "
                "again from a checkpoint, or let `distributed.step` train: its steps survive the death of a worker.",
            )

    # The log --------------------------------------------------------------------------------------------------------

    def close_log(self, reason: int) -> None:
        """Say that the next call is not logged."""
        self.exchange.close_log(reason, self.seq + 1)

    def replay(self, call: Call) -> np.ndarray | None:
        """The result of the next call as bytes, if a predecessor of this process made it and it is in the log."""
        seq = self.seq + 1
        if seq > self.published:
            return None
        while self.exchange.logged() < seq:
            if seq == self.published:
                return None  # the data of all ranks is still in the staging buffers
            self.check_abort()
            time.sleep(0.001)  # the rank that writes the log is about to
        digest, start, nbytes = self.log.read(seq)
        if digest != call.digest:
            mine = Record(seq, self.calls, call.digest, self.steps, 0, call.what, call.line)
            self.fail(DIVERGED, self._replay_difference(mine, "of another kind or shape"))
        self.seq = seq
        return self.log.memory.array((nbytes,), np.dtype(np.uint8), start)

    @property
    def logs(self) -> bool:
        """Whether this rank writes the log: it is the lowest one of its host. Asked after a round, so all ranks have joined."""
        if self._logs is None:
            mine = [q for q in range(self.world) if self.exchange.host(q) == self.run.host]
            self._logs = self.rank == min(mine)
        return self._logs

    def keep(self, call: Call, result: np.ndarray | None) -> None:
        """Add the result of the last call to the log; called by the rank that writes it."""
        exchange, seq = self.exchange, self.seq
        if exchange.logged() >= seq:
            return
        reason, since = exchange.closed()
        if (not reason or seq < since) and not self.log.append(seq, call.digest, result):
            exchange.close_log(FULL, seq)
        reach("call logged")

    # Steps ----------------------------------------------------------------------------------------------------------

    def begin_step(self, key: tuple[object, ...], what: str) -> None:
        """Compare the step that begins here with what other ranks say of theirs; `what` must be the same everywhere."""
        call = self.call(key, lambda: what, 5)
        exchange, step = self.exchange, self.steps + 1
        exchange.publish_step(self.rank, step, call.digest, call.text)
        if self._relayed:
            exchange.announce()
        self.steps = step
        self.check_abort()
        for q in range(self.world):
            if q == self.rank:
                continue
            at = exchange.step_at(q, step)
            seq, _, digest, _, _, _ = exchange.head(at)
            if seq == step and digest != call.digest:
                other = exchange.record(at)
                if exchange.head(at)[0] == step:  # it was not overwritten meanwhile
                    self.fail(
                        DIVERGED,
                        f"ranks disagree in step {step}. {_capital(self.name(self.rank))} begins {call.what} at {call.line}; "
                        f"{self.name(q)} begins {other.what} at {other.line}. Every rank must make the same steps in the same "
                        "order, with batches of the same size.",
                    )
            elif exchange.state(q) == LEFT and exchange.steps(q) < step and exchange.state(q) == LEFT:
                self.fail(
                    DIVERGED,
                    f"{self.name(q)} has ended its program after {exchange.steps(q)} steps{self._last_step(q)}, but "
                    f"{self.name(self.rank)} begins {call.what} at {call.line}, its step {step}. Every rank must make the same "
                    "number of steps.",
                )

    def step_line(self, rank: int) -> str:
        """Where a rank called the step that this rank is in, in words; empty if it is not known any more."""
        record = self.exchange.record(self.exchange.step_at(rank, self.steps))
        return f" (called at {record.line})" if record.seq == self.steps and self.steps else ""

    def _last_step(self, rank: int) -> str:
        steps = self.exchange.steps(rank)
        if not steps:
            return ""
        last = self.exchange.record(self.exchange.step_at(rank, steps))
        return f", the last one at {last.line}"

    def compare_state(self, number: int, checksum: int) -> tuple[int, int] | None:
        """Publish the checksum of this rank's weights at check `number`; (rank, checksum) of one that has another, if any."""
        exchange = self.exchange
        exchange.publish_state(self.rank, number, checksum)
        for q in range(self.world):
            seq, _, other, _, _, _ = exchange.head(exchange.state_at(q))
            if seq == number and other != checksum and exchange.head(exchange.state_at(q))[0] == number:
                return q, other
        return None


def _line(filename: str, line: int) -> str:
    """`file:line`, relative to the working directory if that is shorter."""
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return f"{min(relative, filename, key=len)}:{line}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# This process -----------------------------------------------------------------------------------------------------------

_communicator: Communicator | None = None
_in_shard = False


def communicator() -> Communicator | None:
    """This process as a rank, joined at the first call; None outside of a run and if it has one worker."""
    global _communicator
    if _communicator is None:
        run = contexts.current()
        rank = int(os.environ.get(WORKER, "0"))
        if run is None or run.members < 2 or rank >= run.members:
            return None
        _communicator = Communicator(run, rank)
    return _communicator


def begin_step(name: str, samples: list[int], trains: bool) -> None:
    """Called by every rank at the beginning of a step, before it computes anything."""
    found = communicator()
    if found is not None:
        kind = "a training step" if trains else "an evaluation step"
        part = f" of optimiser {name}" if name else ""
        sizes = "+".join(map(str, samples))
        found.begin_step((name, *samples, trains), f"{kind}{part} on {sizes} samples")


def fail(kind: int, text: str) -> NoReturn:
    """End the run with an error on all ranks."""
    found = communicator()
    if found is None:
        raise _ERRORS[kind](f"distributed: {text}")
    found.fail(kind, text)


def check_abort() -> None:
    """Raise the error with which the run ends, if there is one. Called by ranks that wait for something else than a round."""
    if _communicator is not None:
        _communicator.check_abort()


class shard_body:
    """A context for computing a shard: collectives are refused in it."""

    def __enter__(self) -> None:
        global _in_shard
        self._before, _in_shard = _in_shard, True

    def __exit__(self, *_: object) -> None:
        global _in_shard
        _in_shard = self._before


def in_shard() -> bool:
    """Whether the body of a distributed step is being computed."""
    return _in_shard
