"""Exchange: the memory by which the ranks of a run exchange values and find out whether they agree.

Communication goes in *rounds*, numbered from 1. In a round every rank puts a chunk of data into its staging buffer, a
record of the call it is in beside it, and then its round number into its `arrived` word. When all words have reached
the round, every rank may read all chunks. A rank has two staging buffers and two records, used in turn. That suffices
without a second barrier: a rank begins round r + 2 after all have arrived at r + 1, so after all have finished reading
round r.

Every word is written by one rank, or, for the ranks of other hosts, by this host's relay (`mirror`), which copies
rounds as they are. Nothing here waits for longer than it is told, and nothing decides what a silent rank means; see
`communicator`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..multiprocessing import Segment
from . import atomics

CHUNK_BYTES = 1 << 21
"""of a staging buffer: small enough to stay in a cache that processors share, large enough for a round to cost little"""
STEP_RECORDS = 64  # steps for which the record is kept, by rank
RECORD_BYTES = 512
_HEAD = struct.Struct("<QQQQQI")  # seq, call, digest, steps, bytes of data, bytes of text
TEXT_BYTES = RECORD_BYTES - _HEAD.size
ABORT_BYTES = 2048
_LINE = 64  # bytes of a cache line

_MAGIC = 0x5745_4654_0002
# Byte offsets of the words of the header, one cache line each.
_BELL, _LOGGED, _CLOSED, _ABORT, _CHANGED = (_LINE * i for i in range(1, 6))
_HEADER_BYTES = 8 * _LINE
# Words of a rank's row.
_IDENTITY, _HOST, _STATE, _STEPS, _PROCESSOR = range(5)
ABSENT, RUNNING, LEFT = range(3)
_NO_ABORT, _WRITING = 0, 1  # values of the abort word; others are the kind of an error whose text is complete


class Record(NamedTuple):
    """What a rank says about the call, or the step, that it is in.

    Attributes:
        seq: the round, or for steps the number of the step.
        call: the number of the call; a call may take several rounds.
        digest: a hash of what must be the same on all ranks.
        steps: how many steps the rank had begun.
        nbytes: of the chunk in the staging buffer.
        what: the call in words.
        line: the user's line.
    """

    seq: int
    call: int
    digest: int
    steps: int
    nbytes: int
    what: str
    line: str


def pack_text(what: str, line: str) -> bytes:
    """The text of a record; the end of a long path is kept."""
    first = what.encode()[:160]
    room = TEXT_BYTES - len(first) - 1
    return first + b"\0" + line.encode()[-room:]


def split_text(data: bytes) -> tuple[str, str]:
    """(what, line) of the text of a record."""
    what, _, line = data.decode(errors="replace").partition("\0")
    return what, line


class Layout:
    """Where things are in the control segment of a run with `ranks` ranks, in bytes."""

    def __init__(self, ranks: int) -> None:
        self.arrived = _HEADER_BYTES
        self.rows = self.arrived + _aligned(8 * ranks)
        self.records = self.rows + _LINE * ranks
        self.steps = self.records + 2 * RECORD_BYTES * ranks
        self.states = self.steps + STEP_RECORDS * RECORD_BYTES * ranks
        self.abort = self.states + RECORD_BYTES * ranks
        self.nbytes = self.abort + ABORT_BYTES


class Exchange:
    """A view of the memory.

    Args:
        ranks: how many there are.
        open_segment: opens memory of the run by name and size.
    """

    NAME, DATA = "collectives", "collectives-data"

    def __init__(self, ranks: int, open_segment: Callable[[str, int], Segment]) -> None:
        self.ranks, self.layout = ranks, Layout(ranks)
        segment = open_segment(self.NAME, self.layout.nbytes)
        self.data = open_segment(self.DATA, ranks * 2 * CHUNK_BYTES)
        self.view = memoryview(segment)
        self._at = ctypes.addressof(ctypes.c_char.from_buffer(segment))
        self._f = atomics.functions()
        self.bell = self._at + _BELL
        self._arrived = self._at + self.layout.arrived
        self._store(0, _MAGIC)

    def _load(self, at: int) -> int:
        return int(self._f.load(self._at + at))

    def _store(self, at: int, value: int) -> None:
        self._f.store(self._at + at, value)

    def _row(self, rank: int, field: int) -> int:
        return self.layout.rows + rank * _LINE + 8 * field

    # Ranks ----------------------------------------------------------------------------------------------------------

    def join(self, rank: int, identity: int, host: int) -> None:
        """Say that a process of this host is the rank."""
        self.set_host(rank, host)
        self._store(self._row(rank, _STEPS), 0)
        self._store(self._row(rank, _IDENTITY), identity)
        self.set_state(rank, RUNNING)

    def identity(self, rank: int) -> int:
        """The process that is the rank, if it is on this host; see `processes.identity`."""
        return self._load(self._row(rank, _IDENTITY))

    def host(self, rank: int) -> int | None:
        """The host of a rank; None while it is not known."""
        word = self._load(self._row(rank, _HOST))
        return word - 1 if word else None

    def state(self, rank: int) -> int:
        """ABSENT, RUNNING or LEFT."""
        return self._load(self._row(rank, _STATE))

    def set_state(self, rank: int, state: int) -> None:
        self._store(self._row(rank, _STATE), state)
        self.announce()

    def steps(self, rank: int) -> int:
        """How many steps a rank has begun."""
        return self._load(self._row(rank, _STEPS))

    def processor(self, rank: int) -> int:
        """The processor on which a rank of this host was last; -1 if it is not known."""
        return self._load(self._row(rank, _PROCESSOR)) - 1

    def set_processor(self, rank: int, processor: int) -> None:
        self._store(self._row(rank, _PROCESSOR), processor + 1)

    def set_host(self, rank: int, host: int) -> None:
        self._store(self._row(rank, _HOST), host + 1)

    def set_row(self, rank: int, host: int, state: int, steps: int) -> None:
        """What another host said about one of its ranks."""
        self.set_host(rank, host)
        self._store(self._row(rank, _IDENTITY), 0)
        self._store(self._row(rank, _STEPS), steps)
        self._store(self._row(rank, _STATE), state)
        self.ring()

    # Rounds ---------------------------------------------------------------------------------------------------------

    def arrived(self, rank: int) -> int:
        """The last round that a rank has published."""
        return int(self._f.load(self._arrived + 8 * rank))

    def publish(self, rank: int, seq: int) -> None:
        """Make the record and the chunk of a round, which are written, visible to the others."""
        self._f.store(self._arrived + 8 * rank, seq)

    def rounds(self, rank: int, seconds: float) -> Callable[[int, int, int, int], int]:
        """A function for the rounds of a rank: (round, polls, digest, steps) -> `atomics.READY`, `TIMED_OUT` or `DIFFERENT`.

        It publishes the round, polls so many times until all ranks have arrived, sleeps once, and compares their
        records.
        """
        f, words, count, bell = self._f, self._arrived, self.ranks, self.bell
        native, syscall, number = f.round, f.syscall, f.number
        timeout = atomics.timespec(seconds)
        at = ctypes.addressof(timeout)
        records = [self._at + self.record_at(0, half) for half in (0, 1)]
        stride = self.record_at(1, 0) - self.record_at(0, 0)

        def run(seq: int, polls: int, digest: int, steps: int, keep: object = timeout) -> int:
            found: int = native(
                words, count, rank, seq, polls, bell, syscall, number, at, records[seq & 1], stride, digest, steps
            )
            return found

        return run

    def announce(self) -> None:
        """Wake those who wait, and the threads that send to other hosts."""
        self._f.add(self._at + _CHANGED, 1)
        self.ring()

    def ring(self) -> None:
        self._f.ring(self.bell, self._f.syscall, self._f.number)

    def changes(self) -> int:
        """How often `announce` was called."""
        return self._load(_CHANGED)

    def wait_changes(self, count: int, seconds: float) -> None:
        """Wait until `changes` is at least `count`."""
        atomics.wait_all(self._at + _CHANGED, 1, count, self.bell, 0, seconds)

    def wait(self, seq: int, rounds: int, seconds: float) -> bool:
        """Wait until all ranks have arrived at a round: poll `rounds` times, then sleep once, for `seconds` at most."""
        return not atomics.wait_all(self._arrived, self.ranks, seq, self.bell, rounds, seconds)

    def chunk(self, rank: int, seq: int, dtype: np.dtype, count: int) -> np.ndarray:
        """The beginning of a rank's staging buffer for a round."""
        return self.data.array((count,), dtype, (2 * rank + (seq & 1)) * CHUNK_BYTES)

    # Records --------------------------------------------------------------------------------------------------------

    def record_at(self, rank: int, seq: int) -> int:
        """Where the record of a round is."""
        return self.layout.records + (2 * rank + (seq & 1)) * RECORD_BYTES

    def step_at(self, rank: int, step: int) -> int:
        """Where the record of a step is."""
        return self.layout.steps + (rank * STEP_RECORDS + step % STEP_RECORDS) * RECORD_BYTES

    def state_at(self, rank: int) -> int:
        """Where the record of the checksum of a rank's weights is."""
        return self.layout.states + rank * RECORD_BYTES

    def write_head(self, at: int, seq: int, call: int, digest: int, steps: int, nbytes: int, length: int) -> None:
        """Write a record whose text, of so many bytes, is there already."""
        _HEAD.pack_into(self.view, at, seq, call, digest, steps, nbytes, length)

    def write_text(self, at: int, text: bytes) -> None:
        start = at + _HEAD.size
        self.view[start : start + len(text)] = text

    def head(self, at: int) -> tuple[int, int, int, int, int, int]:
        """(seq, call, digest, steps, bytes of data, bytes of text) of a record."""
        return _HEAD.unpack_from(self.view, at)

    def record(self, at: int) -> Record:
        """A record that its writer has published."""
        seq, call, digest, steps, nbytes, length = self.head(at)
        start = at + _HEAD.size
        text = bytes(self.view[start : start + min(length, TEXT_BYTES)])
        return Record(seq, call, digest, steps, nbytes, *split_text(text))

    def raw(self, at: int) -> memoryview:
        """The bytes of a record."""
        return self.view[at : at + RECORD_BYTES]

    def put_record(self, at: int, data: bytearray) -> None:
        """Copy a record of another host's rank; its number is written last."""
        self._store(at, 0)
        self.view[at + 8 : at + RECORD_BYTES] = data[8:]
        self._store(at, int.from_bytes(data[:8], "little"))

    def publish_step(self, rank: int, step: int, digest: int, text: bytes) -> None:
        """Say that a rank begins a step. The number of the record is written last, so a reader takes it for complete."""
        at = self.step_at(rank, step)
        self._store(at, 0)
        self.write_text(at, text)
        self.write_head(at, 0, 0, digest, step, 0, len(text))
        self._store(at, step)
        self._store(self._row(rank, _STEPS), step)

    def publish_state(self, rank: int, number: int, digest: int) -> None:
        """Say which checksum a rank's weights have at check `number`."""
        at = self.state_at(rank)
        self._store(at, 0)
        self.write_head(at, 0, 0, digest, 0, 0, 0)
        self._store(at, number)
        self.announce()

    # The end of the log, and of the run -----------------------------------------------------------------------------

    def logged(self) -> int:
        """How many calls the log of this host has."""
        return self._load(_LOGGED)

    def set_logged(self, count: int) -> None:
        self._store(_LOGGED, count)

    def closed(self) -> tuple[int, int]:
        """(reason, round) from which on calls are not logged; the reason is 0 as long as they are."""
        word = self._load(_CLOSED)
        return word >> 56, word & (1 << 56) - 1

    def close_log(self, reason: int, seq: int) -> None:
        self._f.swap(self._at + _CLOSED, 0, reason << 56 | seq)

    def abort(self, kind: int, text: str) -> None:
        """Make all ranks fail with this text. The first one counts; `kind` is greater than 1."""
        if int(self._f.swap(self._at + _ABORT, _NO_ABORT, _WRITING)) == _NO_ABORT:
            data = text.encode()[: ABORT_BYTES - 8]
            at = self.layout.abort
            struct.pack_into("<Q", self.view, at, len(data))
            self.view[at + 8 : at + 8 + len(data)] = data
            self._store(_ABORT, kind)
        self.announce()

    def aborted(self) -> tuple[int, str] | None:
        """(kind, text) of the error with which the run ends."""
        kind = self._load(_ABORT)
        if kind <= _WRITING:
            return None
        at = self.layout.abort
        (length,) = struct.unpack_from("<Q", self.view, at)
        return kind, bytes(self.view[at + 8 : at + 8 + min(length, ABORT_BYTES - 8)]).decode(errors="replace")


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE
