"""Variables of a task, in memory that outlives its process.

The keeper of the host (`weft.distributed.keeper`) holds the memory of variables, so the successor of a task that was killed finds
them. What was killed may have been writing: so before a program writes, and with the locks of what it writes held, the old
values are copied, and a record in shared memory says so; when the program has run, the store of one word ends the record. The
successor puts the old values of unfinished records back: the writes of a program happen wholly or not at all.

A write of some rows (`scatter_add`) does not copy a whole table. If the process is killed in the middle of one, the table is
lost, and begins again as after the loss of the host.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..multiprocessing import Segment
from ..runtime._host import memory_available
from .memory import Memory

SLOTS = 256  # writes that happen at once
MAX_STATES = 1 << 16  # variables of a task
NO_UNDO = 1 << 32  # in the word of a variable: only rows of it are written, and there is no copy
LARGE_BYTES = 1 << 24  # of variables for which free memory is looked at: its lack is a signal at the first write
_DTYPES = {d.name: d for d in dtypes.ALL}


class Record:
    """A variable in the journal."""

    __slots__ = ("journal", "index", "data", "undo", "facts")

    def __init__(self, journal: StateJournal, index: int, data: np.ndarray, facts: dict[str, Any]) -> None:
        self.journal, self.index, self.data, self.facts = journal, index, data, facts
        self.undo: np.ndarray | None = None


class StateJournal:
    """The memory of a task's variables. The store's lock is held while variables are made or dropped.

    Args:
        directory: of the cluster on this host, where the keeper listens.
        name: of the task.
    """

    def __init__(self, directory: str, name: str) -> None:
        self.name = name
        self._memory = Memory(os.path.join(directory, "keeper.sock"))
        self._file = os.path.join(directory, f"{name}.variables.json")
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(SLOTS):
            self._slots.put(slot)
        self.records: dict[str, Record] = {}
        found = self._read()
        control = self._memory.find(found["control"]) if found is not None else None
        self._control = f"{name}.{secrets.token_hex(6)}" if control is None or found is None else found["control"]
        if control is None:
            control = self._memory.open(self._control, 8 * (SLOTS + MAX_STATES))
        self._words = memoryview(control).cast("B").cast("Q")
        if found is not None:
            self._recover(found["states"])
        self._free = sorted(set(range(MAX_STATES)) - {r.index for r in self.records.values()}, reverse=True)
        self.write()

    # The list of variables ------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(self._file) as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    def write(self) -> None:
        """Write down which variables there are."""
        states = {key: {**record.facts, "index": record.index} for key, record in self.records.items()}
        with open(f"{self._file}.new", "w") as file:
            json.dump({"control": self._control, "states": states}, file)
        os.replace(f"{self._file}.new", self._file)

    def _recover(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Take over the variables of an earlier life of the task."""
        words = self._words
        for key, entry in states.items():
            index, facts = entry["index"], {k: v for k, v in entry.items() if k != "index"}
            data = self._array(facts["segment"], facts)
            word = words[SLOTS + index]
            if data is not None and word and words[(word & (NO_UNDO - 1)) - 1]:
                undo = None if word & NO_UNDO else self._array(f"{facts['segment']}.undo", facts)
                if undo is not None:
                    np.copyto(data, undo)
                else:
                    data = None
            if data is None:
                print(
                    f"weft: {self.name}: variable {facts['name']!r} was lost with the process, and begins again",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                self._forget(facts["segment"])
            else:
                self.records[key] = Record(self, index, data, facts)
        for i in range(SLOTS + MAX_STATES):
            if words[i]:
                words[i] = 0

    def _array(self, name: str, facts: Mapping[str, Any]) -> np.ndarray | None:
        segment = self._memory.find(name)
        return None if segment is None else segment.array(tuple(facts["shape"]), _DTYPES[facts["dtype"]])

    def make(self, key: str, name: str, shape: tuple[int, ...], dtype: np.dtype, owner: int) -> Record:
        """The memory of a variable; when it has its first value `write` must follow."""
        facts: dict[str, Any] = {
            "segment": f"{self.name}.{secrets.token_hex(6)}", "shape": list(shape), "dtype": dtype.name,
            "name": name, "owner": owner,
        }  # fmt: skip
        data = self._reserve(facts["segment"], prod(shape) * dtype.itemsize).array(shape, dtype)
        record = self.records[key] = Record(self, self._free.pop(), data, facts)
        return record

    def drop(self, key: str) -> None:
        """Forget a variable; `write` must follow. Steps that run keep the memory as long as they use it."""
        record = self.records.pop(key, None)
        if record is not None:
            self._forget(record.facts["segment"])
            self._free.append(record.index)

    def _reserve(self, name: str, nbytes: int) -> Segment:
        free = memory_available() if nbytes >= LARGE_BYTES else None
        if free is not None and nbytes > free:
            raise MemoryError(
                f"session: there is no memory for a variable of {nbytes:,} bytes on {self.name}: {free:,} are free. "
                "`Cluster(memory='lean')` keeps no copies of what is being written."
            )
        return self._memory.open(name, nbytes)

    def _forget(self, segment: str) -> None:
        for name in (segment, f"{segment}.undo"):
            self._memory.drop(name)

    def check(self) -> None:
        """If the keeper was killed, give its successor the memory. Called now and then."""
        self._memory.check()

    def close(self) -> None:
        """Leave the keeper; it has the variables."""
        self._memory.close()

    # Writes ---------------------------------------------------------------------------------------------------------

    def begin(self, records: Sequence[Record], rows: Sequence[bool]) -> int:
        """Variables are about to be written, of some perhaps only rows; their locks are held. Returns what `commit` needs."""
        slot = self._slots.get()
        words = self._words
        try:
            for record, partial in zip(records, rows, strict=True):
                if not partial:
                    undo = record.undo
                    if undo is None:
                        undo = record.undo = self._undo(record)
                    np.copyto(undo, record.data)
                words[SLOTS + record.index] = slot + 1 | NO_UNDO * partial
        except BaseException:
            for record in records:
                words[SLOTS + record.index] = 0
            self._slots.put(slot)
            raise
        words[slot] = 1
        return slot

    def _undo(self, record: Record) -> np.ndarray:
        data = record.data
        return self._reserve(f"{record.facts['segment']}.undo", data.nbytes).array(data.shape, data.dtype)

    def commit(self, slot: int, records: Sequence[Record]) -> None:
        """They are written."""
        words = self._words
        words[slot] = 0
        for record in records:
            words[SLOTS + record.index] = 0
        self._slots.put(slot)
