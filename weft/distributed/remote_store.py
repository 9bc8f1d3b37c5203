"""What a task of a cluster holds across steps, by key: variables, queues and barriers.

A key is a name that all clients share, or one that a single client made up; what only one client knows goes with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..graph.declared.queues import Barrier, PriorityQueue, Queue, RandomShuffleQueue
from ..graph.declared.serialize import QUEUES
from ..graph.declared.variables import State, state_of
from ..io.shards import index_file, index_metadata, read_sharded
from ..nn.initializers import Initializer
from ..ops.core.spec import Symbol
from ..runtime import memory
from ..tensor import Tensor, wrap
from .remote_memory import Record, StateJournal
from .remote_parts import PartError

KEYS = (
    "weft.keys"  # in the metadata of a checkpoint's index: the names of variables, by the keys they had on their tasks
)

BLOCK_BYTES = 1 << 23  # of a variable that are initialised at once
_DTYPES = {d.name: d for d in dtypes.ALL}


class TaskStore:
    """The things by key. Thread-safe.

    Args:
        checkpoint: of an earlier life of this task: what is in it begins with the value it has there.
        journal: the memory in which variables survive this process; None: they do not.
    """

    def __init__(self, checkpoint: str | None = None, journal: StateJournal | None = None) -> None:
        self.states: dict[str, State] = {}
        self.queues: dict[str, Queue] = {}
        self.barriers: dict[str, Barrier] = {}
        self._owners: dict[str, int] = {}
        self._lock = threading.Lock()
        self._checkpoint, self._journal = checkpoint, journal
        for key, record in () if journal is None else journal.records.items():
            self._keep(key, record)
            if record.facts["owner"]:
                self._owners[key] = record.facts["owner"]

    @property
    def owners(self) -> set[int]:
        """The clients that have private things here."""
        return set(self._owners.values())

    def _keep(self, key: str, record: Record) -> None:
        state = self.states[key] = state_of(wrap(record.data), record.facts["name"])
        state.record = record

    def ensure(self, entries: Sequence[dict[str, Any]], arrays: Sequence[np.ndarray], client: int) -> None:
        """Make what is missing; an entry that exists must be the same kind of thing.

        Raises:
            PartError: it is another kind of thing.
        """
        makers = {"state": self._state, "queue": self._queue, "barrier": self._barrier}
        with self._lock:
            known = len(self.states)
            for entry in entries:
                makers[entry["what"]](entry, arrays, client)
                if entry["private"]:
                    self._owners.setdefault(entry["key"], client)
            if self._journal is not None and len(self.states) != known:
                self._journal.write()

    def _state(self, entry: dict[str, Any], arrays: Sequence[np.ndarray], client: int) -> None:
        key, shape, dtype = entry["key"], tuple([int(d) for d in entry["shape"]]), _DTYPES[entry["dtype"]]
        found = self.states.get(key)
        if found is not None:
            data = found.tensor._data
            if data.shape != shape or data.dtype != dtype:
                raise PartError(
                    f"session: there is a variable {key!r} of {data.dtype.name} {data.shape} on this task already; this one is "
                    f"{dtype.name} {shape}. Give it another name, or remove the old one with `cluster.drop({key!r})`."
                )
            return
        values = self._saved(key)
        if values is None or values.shape != shape or values.dtype != dtype:
            values = None if entry["array"] is None else arrays[entry["array"]]
        if values is not None and (values.shape != shape or values.dtype != dtype):
            raise PartError(f"session: the value of variable {key!r} is {values.dtype.name} {values.shape}.")
        if self._journal is None:
            data, record = memory.empty(shape, dtype), None
        else:
            owner = client if entry["private"] else 0
            record = self._journal.make(key, entry["name"], shape, dtype, owner)
            data = record.data
        try:
            if values is not None:
                np.copyto(data, values)
            else:
                _initialise(data, Initializer.load(entry["init"]))
        except BaseException:  # an initialiser that does not fit the shape
            if self._journal is not None:
                self._journal.drop(key)
            raise
        if record is None:
            self.states[key] = state_of(Tensor(data), entry["name"])
        else:
            self._keep(key, record)

    def _saved(self, key: str) -> np.ndarray | None:
        """The value of a variable in the checkpoint."""
        path = self._checkpoint
        if path is None or not index_file(path).exists():
            return None
        keys = index_metadata(path).get(KEYS)
        found = None if keys is None else keys.get(key)
        return None if found is None else read_sharded(path, [found.text()])[found.text()]

    def _queue(self, entry: dict[str, Any], arrays: Sequence[np.ndarray], client: int) -> None:
        key = entry["key"]
        if key in self.queues:
            return
        facts = entry["queue"]
        kinds = [_DTYPES[d] for d in facts["dtypes"]]
        shapes = [None if s is None else tuple([_size(d) for d in s]) for s in facts["shapes"]]
        cls, capacity, name = QUEUES[facts["kind"]], facts["capacity"], facts["name"]
        if cls is PriorityQueue:
            made: Queue = PriorityQueue(capacity, kinds[1:], shapes[1:], name)
        elif cls is RandomShuffleQueue:
            made = RandomShuffleQueue(capacity, facts["reserve"], kinds, shapes, entry["seed"], name)
        else:
            made = cls(capacity, kinds, shapes, name)
        made.single, made.device = facts["single"], None
        at, components = entry["array"], len(kinds)
        for i in range(entry["elements"]):
            made._push(tuple([np.array(a) for a in arrays[at + i * components : at + (i + 1) * components]]))
        if entry["closed"]:
            made.close()
        self.queues[key] = made

    def _barrier(self, entry: dict[str, Any], arrays: Sequence[np.ndarray], client: int) -> None:
        made = self.barriers.setdefault(entry["key"], Barrier(entry["parties"], entry["name"]))
        if made.parties != entry["parties"]:
            raise PartError(f"session: barrier {entry['key']!r} has {made.parties} parties, not {entry['parties']}.")

    def drop(self, keys: Sequence[str]) -> None:
        """Forget things. Steps that run keep what they use."""
        with self._lock:
            dropped = False
            for key in keys:
                if self.states.pop(key, None) is not None and self._journal is not None:
                    self._journal.drop(key)
                    dropped = True
                self._owners.pop(key, None)
                queue, barrier = self.queues.pop(key, None), self.barriers.pop(key, None)
                if queue is not None:
                    queue.close(cancel_pending=True)
                if barrier is not None:
                    barrier.close()
            if dropped and self._journal is not None:
                self._journal.write()

    def drop_client(self, client: int) -> None:
        """Forget what only this client knows."""
        self.drop([key for key, owner in list(self._owners.items()) if owner == client])

    def state(self, key: str) -> State:
        found = self.states.get(key)
        if found is None:
            raise KeyError(f"session: this task has no variable {key!r}.")
        return found

    def named(self) -> dict[str, State]:
        """The variables, in the order in which their locks are taken."""
        with self._lock:
            return dict(sorted(self.states.items(), key=lambda item: item[1].number))

    def use_checkpoint(self, path: str | None) -> None:
        self._checkpoint = None if path is None else os.path.abspath(path)


def _initialise(data: np.ndarray, init: Initializer) -> None:
    """Fill a variable, by blocks of rows: a second array of its size might not fit into memory."""
    if not data.ndim or not data.size:
        data[...] = init.values(data.shape, data.dtype)
        return
    rows = max(1, BLOCK_BYTES // data[0].nbytes)
    for first in range(0, len(data), rows):
        block = data[first : first + rows]
        block[...] = init.values(data.shape, data.dtype, first, len(block))


def _size(entry: Any) -> Any:
    return Symbol(entry["symbol"]) if isinstance(entry, dict) else entry
