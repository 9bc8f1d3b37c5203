"""A parameter server: what a task of a cluster holds for a `KVStore`, and how it answers its workers.

Messages are JSON and arrays over the cluster's authenticated channels. Those that change something are written to the
journal and then handled, one at a time; handling is deterministic, so a process that is started again comes to the
same bits. Pulls, leases and barriers that have to wait are kept, without a thread, and tried again after every
change. Answers are sent with no lock held: a worker that does not read delays no other.

Dense values are replaced, never changed in place, so what was pulled stays as it was. In sync the value before the last
update is kept too: a worker that was killed between the pushes of its keys computes them again from the same weights.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from . import failpoints
from . import rows as row_sums
from .kvstore_compression import expand
from .parameter_server_journal import Journal
from .parameter_server_update import (
    Update,
    UpdateProgram,
    declare_update,
    flat_settings,
    make_optimizer,
    optimizer_class,
    summed_rows,
)
from .remote_messages import dump_error
from .server_state import APPLY, DUPLICATE, EARLY, STALE, Fences, KeyClock, Lease, Leases

Reply = Callable[..., None]
Answer = tuple[dict[str, Any], Sequence[np.ndarray]]
_DTYPES = {d.name: d for d in dtypes.ALL}
RULES = ("assign", "add")
"""what a push does to a key without an optimiser"""


class FencedError(RuntimeError):
    """A message of an earlier life of a worker."""


class Key:
    """A named value on a server: a dense tensor, or its rows of a table."""

    def __init__(self, value: np.ndarray, table: bool, rule: str, clock: KeyClock) -> None:
        self.value, self.table, self.rule, self.clock = value, table, rule, clock
        self.previous: Any = None  # sync: the value before the last update; of a table (rows, values)
        self.state: dict[str, np.ndarray] = {}
        self.step = 0
        self.update: str | None = None
        self.held: dict[int, dict[int, tuple[Any, float | None]]] = {}  # sync: clock -> slot -> (gradient, weight)

    def nbytes(self) -> int:
        return self.value.nbytes + sum(a.nbytes for a in self.state.values())


class KeyStore:
    """The keys of one store on one server.

    Args:
        directory: of its journal; None writes none.
        place: names the task in errors.
    """

    def __init__(self, directory: str | None, place: str) -> None:
        self.place = place
        self.keys: dict[str, Key] = {}
        self.slots, self.consistency, self.spares = 0, "sync", 0
        self.leases: Leases | None = None
        self._fences = Fences()
        self._updates: dict[str, Update] = {}
        self._settings: dict[str, dict[str, float]] = {}
        self._barriers = 0
        self._ended = False
        self._level = -1  # the epoch that all slots have begun
        self._arrived: set[int] = set()
        self._waiting: list[tuple[dict[str, Any], list[np.ndarray], Reply]] = []
        self._lock = threading.Lock()
        self._journal = None if directory is None else Journal(directory)
        self.duplicates = self.updates = 0
        if self._journal is not None:
            self._recover(self._journal)

    def _recover(self, journal: Journal) -> None:
        """Come to the state of an earlier process."""
        snapshot = journal.snapshot()
        if snapshot is not None:
            self._load(snapshot)
        for message, arrays in journal.records():
            try:
                self._change(message, arrays)
            except Exception as error:  # it was raised before, too, and the worker was told
                print(f"weft: {self.place}: {message['kv']} fails again: {error}", file=sys.stderr, flush=True)

    def _write(self, message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        if self._journal is not None:
            self._journal.append(message, arrays)

    # Messages -------------------------------------------------------------------------------------------------------

    def answer(self, message: dict[str, Any], arrays: list[np.ndarray], reply: Reply) -> None:
        """Handle a message and answer it, now or when it may be answered."""
        ready: list[tuple[Reply, dict[str, Any], Sequence[np.ndarray]]] = []
        with self._lock:
            found = self._attempt(message, arrays)
            if found is None:
                self._waiting.append((message, arrays, reply))
            else:
                ready.append((reply, *found))
            if message["kv"] in _CHANGES or message["kv"] in ("lease", "barrier"):
                ready += self._retry()
        for each, answer, results in ready:
            each(answer, results)

    def _attempt(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        """The answer to a message, which may be an error; None if it has to wait."""
        try:
            self._check(message)
            return self._handle(message, arrays)
        except Exception as error:
            return {"error": dump_error(error, self.place)}, ()

    def _retry(self) -> list[tuple[Reply, dict[str, Any], Sequence[np.ndarray]]]:
        """Answer what had to wait and need not any more."""
        ready = []
        moved = True
        while moved and self._waiting:
            moved, waiting, self._waiting = False, self._waiting, []
            for message, arrays, reply in waiting:
                found = self._attempt(message, arrays)
                if found is None:
                    self._waiting.append((message, arrays, reply))
                else:
                    moved = True
                    ready.append((reply, *found))
        return ready

    def _check(self, message: dict[str, Any]) -> None:
        if "process" in message and not self._fences.admits(message["process"], message["generation"]):
            raise FencedError(
                f"parameter server: worker {message['process']} was started again; generation {message['generation']} is an "
                "earlier life of it."
            )

    def _handle(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        what = message["kv"]
        if what in _CHANGES:
            if what == "push":
                message, arrays = self._new(message, arrays)
                if not message["items"]:
                    return {"new": 0}, ()
            failpoints.reach("ps-before")
            self._validate(message, arrays)
            if what == "init" and message["key"] in self.keys:
                return {"new": False}, ()
            self._write(message, arrays)
            failpoints.reach("ps-logged")
            found = self._change(message, arrays)
            failpoints.reach("ps-applied")
            if self._journal is not None and self._journal.grown(sum(key.nbytes() for key in self.keys.values())):
                self._journal.compact(self._dump)
            return found
        if what == "lease":
            return self._lease(message)
        read = _READS.get(what)
        if read is None:
            raise ValueError(f"parameter server: there is no operation {what!r}.")
        return read(self, message, arrays)

    def _new(self, message: dict[str, Any], arrays: list[np.ndarray]) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Only those pushes of a message that were not accepted before: a copy is neither written nor applied."""
        items, kept, at = [], [], 0
        for item in message["items"]:
            count = {"none": 0, "rows": 2}.get(item["kind"], 1)
            if not self._key(item["key"]).clock.accepted(item["slot"], item["clock"]):
                items.append(item)
                kept += arrays[at : at + count]
            else:
                self.duplicates += 1
            at += count
        return {**message, "items": items}, kept

    def _validate(self, message: dict[str, Any], arrays: list[np.ndarray]) -> None:
        """Raise for what cannot be applied, before it is written."""
        if message["kv"] == "push":
            rest = iter(arrays)
            for item in message["items"]:
                if not 0 <= item["slot"] < self.slots or item["clock"] < 0:
                    raise ValueError(f"push: there are workers 0 to {self.slots - 1}. Got {item['slot']}.")
                self._gradient(item, rest)
        elif message["kv"] == "rules":
            for name in message["keys"]:
                self._key(name)
            self._rule(message, arrays)
        elif message["kv"] == "init" and message["key"] in self.keys:
            known = self.keys[message["key"]]
            if known.value.shape != arrays[0].shape or known.value.dtype != arrays[0].dtype:
                raise ValueError(
                    f"init: there is a key {message['key']!r} of {known.value.dtype.name} {known.value.shape} already. Got "
                    f"{arrays[0].dtype.name} {arrays[0].shape}."
                )
        elif message["kv"] == "open":
            given = (message["slots"], message["consistency"])
            if self.slots and given != (self.slots, self.consistency):
                raise ValueError(
                    f"KVStore: the store was opened with {self.slots} workers and consistency {self.consistency!r}. Got "
                    f"{given[0]} and {given[1]!r}."
                )
        elif message["kv"] == "epoch" and self.leases is not None and message["epoch"] > self.leases.epoch:
            if not self.leases.over:
                raise ValueError(f"parameter server: {self.leases.missing()} pieces of an epoch are not done.")

    def _change(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        found: Answer = _CHANGES[message["kv"]](self, message, arrays)
        return found

    def _key(self, name: str) -> Key:
        found = self.keys.get(name)
        if found is None:
            raise KeyError(f"KVStore: there is no key {name!r}. Call `init({name!r}, value)` first.")
        return found

    # Keys and rules -------------------------------------------------------------------------------------------------

    def open(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        if not self.slots:
            self.slots, self.consistency, self.spares = message["slots"], message["consistency"], message["spares"]
            self.leases = Leases(self.slots, self.consistency == "sync", self.spares)
        return {"barriers": self._barriers, "keys": len(self.keys)}, ()

    def init(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        new = message["key"] not in self.keys
        if new:
            clock = KeyClock(self.slots, self.consistency)
            self.keys[message["key"]] = Key(np.array(arrays[0]), message["table"], message["rule"], clock)
        return {"new": new}, ()

    def rules(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Set the update of keys: a graph, or an optimiser's import path."""
        name, settings = self._rule(message, arrays)
        self._updates[name].set(settings)
        self._settings[name] = settings
        for key in [self._key(k) for k in message["keys"]]:
            if key.update != name:
                begun = self._updates[name].begin(key.value.shape)
                same = key.state.keys() == begun.keys() and all(key.state[k].shape == begun[k].shape for k in begun)
                if key.update is None or not same:
                    key.state, key.step = begun, 0
                key.update = name
        return {}, ()

    def _rule(self, message: dict[str, Any], arrays: list[np.ndarray]) -> tuple[str, dict[str, float]]:
        """Name and settings of an update, which can be run from now on."""
        if message["path"] is not None:
            optimizer = make_optimizer(optimizer_class(message["path"]), message["settings"])
            first = self._key(message["keys"][0])
            program = declare_update(optimizer, 0, first.value.shape, first.value.dtype, first.table)
            settings = flat_settings(optimizer.param_groups[0])
        else:
            program = UpdateProgram(message["facts"], arrays[0].tobytes(), arrays[1].tobytes())
            settings = message["settings"]
        # The settings belong to a group of the optimiser, so two groups with the same formula are two updates.
        name = f"{message['group']}:{program.digest}"
        if name not in self._updates:
            self._updates[name] = Update(program)
        return name, settings

    def settings(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Change the settings of a group, such as its learning rate."""
        for name, update in self._updates.items():
            if name.split(":", 1)[0] == str(message["group"]):
                update.set(message["settings"])
                self._settings[name] = {**self._settings[name], **message["settings"]}
        return {}, ()

    def assign(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Replace the state of a key: what an optimiser knew before training began, or the value itself."""
        key = self._key(message["key"])
        names = message["state"]
        if message["value"]:
            key.value, arrays = np.array(arrays[0]).reshape(key.value.shape), arrays[1:]
        for name, array in zip(names, arrays, strict=True):
            if name in key.state and key.state[name].shape == array.shape:
                key.state[name] = np.array(array, key.state[name].dtype)
        key.step = message["step"]
        return {}, ()

    # Pushes ---------------------------------------------------------------------------------------------------------

    def push(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        rest = iter(arrays)
        new = 0
        for item in message["items"]:
            gradient = self._gradient(item, rest)
            key = self.keys[item["key"]]
            verdict = key.clock.offer(item["slot"], item["clock"])
            if verdict == DUPLICATE:
                continue
            new += 1
            if verdict == APPLY:
                self._apply(key, [(gradient, item["weight"])])
                continue
            key.held.setdefault(item["clock"], {})[item["slot"]] = (gradient, item["weight"])
            self._complete(key)
        return {"new": new}, ()

    def _complete(self, key: Key) -> None:
        while (clock := key.clock.complete()) is not None:
            held = key.held.pop(clock, {})
            self._apply(key, [held[slot] for slot in sorted(held)])

    def _gradient(self, item: dict[str, Any], arrays: Any) -> Any:
        """The gradient of an item: an array, rows (indices, values), or None."""
        key, kind = self._key(item["key"]), item["kind"]
        if kind == "none":
            return None
        if kind == "rows":
            indices, values = next(arrays), next(arrays)
            fits = key.table and indices.ndim == 1 and values.shape == (len(indices), *key.value.shape[1:])
            if not fits or values.dtype != key.value.dtype or indices.dtype != np.int64:
                raise ValueError(
                    f"push_rows: key {item['key']!r} is {key.value.dtype.name} {key.value.shape} here. Got rows "
                    f"{indices.shape} and values {values.dtype.name} {values.shape}."
                )
            if len(indices) and not (0 <= int(indices.min()) and int(indices.max()) < len(key.value)):
                raise IndexError(f"push_rows: key {item['key']!r} has no such rows.")
            return row_sums.coalesce(indices, values)
        found = next(arrays)
        if kind in ("2bit", "8bit"):
            found = expand(item["compressed"], found)
        if found.shape != key.value.shape or found.dtype != key.value.dtype:
            raise ValueError(
                f"push: key {item['key']!r} is {key.value.dtype.name} {key.value.shape}. Got {found.dtype.name} {found.shape}."
            )
        return found

    def _apply(self, key: Key, parts: list[tuple[Any, float | None]]) -> None:
        """One update from the gradients of some slots, in their order."""
        found = [(g, w) for g, w in parts if g is not None]
        self.updates += 1
        if not found:
            key.previous = None  # not changed: as before
            return
        total = sum(w for _, w in parts if w is not None)
        scale = [None if w is None or len(parts) == 1 else w / total for _, w in found]
        if key.table and all(isinstance(g, tuple) for g, _ in found):
            scaled = [
                (g[0], g[1] if s is None else g[1] * g[1].dtype.type(s)) for (g, _), s in zip(found, scale, strict=True)
            ]
            self._apply_rows(key, summed_rows(scaled))
            return
        dense = [_dense(g, key.value) for g, _ in found]
        summed = dense[0] if scale[0] is None else dense[0] * dense[0].dtype.type(scale[0])
        for g, s in zip(dense[1:], scale[1:], strict=True):
            summed = summed + (g if s is None else g * g.dtype.type(s))
        before = key.value
        if key.update is None:
            key.value = summed.copy() if key.rule == "assign" else key.value + summed
        else:
            key.step += 1
            key.value, key.state = self._updates[key.update].dense(key.value, summed, key.state, key.step)
        if key.clock.sync:
            key.previous = before

    def _apply_rows(self, key: Key, gradient: row_sums.Rows) -> None:
        indices, values = gradient
        old = (indices, key.value[indices]) if key.clock.sync else None
        if key.update is None:
            if key.rule == "assign":
                key.value[indices] = values
            else:
                key.value[indices] += values
        else:
            key.step += 1
            whole = self._updates[key.update].rows(key.value, gradient, key.state, key.step)
            if whole is not None:
                old = key.value if key.clock.sync else None  # type: ignore[assignment]
                key.value = whole
        key.previous = old

    # Pulls ----------------------------------------------------------------------------------------------------------

    def pull(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        found = []
        for name, clock in zip(message["keys"], message["clocks"], strict=True):
            key = self._key(name)
            verdict = key.clock.pull(clock)
            if verdict == EARLY:
                return None
            if verdict == STALE:
                return {"stale": True}, ()
            found.append(self._value(key, clock))
        return {}, found

    def _value(self, key: Key, clock: int) -> np.ndarray:
        """The value that a pull with this clock sees; in sync the version of that clock."""
        before = key.clock.sync and key.clock.version == clock + 1 and key.previous is not None
        if isinstance(key.previous, np.ndarray) and before:
            return key.previous
        if not key.table:
            return key.value
        value = key.value.copy()  # tables change in place
        if before:
            indices, rows = key.previous
            value[indices] = rows
        return value

    def pull_rows(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        key = self._key(message["key"])
        verdict = key.clock.pull(message["clock"])
        if verdict == EARLY:
            return None
        if verdict == STALE:
            return {"stale": True}, ()
        indices = arrays[0]
        if not key.table or indices.ndim != 1 or indices.dtype != np.int64:
            raise ValueError(f"pull_rows: key {message['key']!r} is no table, or the row numbers are no int64 vector.")
        if len(indices) and not (0 <= int(indices.min()) and int(indices.max()) < len(key.value)):
            raise IndexError(f"pull_rows: key {message['key']!r} has no such rows.")
        before = key.clock.sync and key.clock.version == message["clock"] + 1 and key.previous is not None
        if before and isinstance(key.previous, np.ndarray):
            return {}, [key.previous[indices]]
        rows = key.value[indices]
        if before:
            changed, old = key.previous
            at = np.searchsorted(changed, indices)
            hit = np.zeros(0, np.int64)
            if len(changed):
                hit = np.flatnonzero((at < len(changed)) & (changed[np.minimum(at, len(changed) - 1)] == indices))
            rows[hit] = old[at[hit]]
        return {}, [rows]

    def state(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        key = self._key(message["key"])
        return {"names": list(key.state), "step": key.step}, [key.value.copy(), *[a.copy() for a in key.state.values()]]

    def facts(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        keys = {
            name: {
                "shape": list(key.value.shape), "dtype": key.value.dtype.name, "table": key.table, "step": key.step,
                "version": key.clock.version, "counts": key.clock.counts,
            }
            for name, key in self.keys.items()
        }  # fmt: skip
        return {"pid": os.getpid(), "keys": keys, "updates": self.updates, "duplicates": self.duplicates}, ()

    # Membership, barriers, leases -----------------------------------------------------------------------------------

    def retire(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """A slot pushes no more: at all, or in an epoch, of which another may have begun meanwhile."""
        if message["epoch"] is None or message["epoch"] >= self._level:
            for key in self.keys.values():
                key.clock.retire(message["slot"])
                self._complete(key)
        return {}, ()

    def level(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """All slots begin an epoch with the same clock."""
        self._level = message["epoch"]
        for key in self.keys.values():
            key.clock.level(message["clock"])
        return {}, ()

    def barrier(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        if message["number"] < self._barriers:
            return {}, ()
        self._arrived.add(message["rank"])
        if len(self._arrived) < self.slots:
            return None
        self._arrived.clear()
        passed = {"kv": "passed", "number": message["number"]}
        self._write(passed)
        self._change(passed, [])
        return {}, ()

    def passed(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        self._barriers = message["number"] + 1
        return {}, ()

    def epoch(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        assert self.leases is not None
        return {"clock": self.leases.open(message["epoch"], message["batches"])}, ()

    def _lease(self, message: dict[str, Any]) -> Answer | None:
        """Note what a worker has done, and give it something to do; it waits until there is something."""
        assert self.leases is not None
        if message["done"] is not None:
            done, message["done"] = message["done"], None  # a message that waits is handled again
            if done["epoch"] == self.leases.epoch:
                finished = {
                    "kv": "finished",
                    "process": message["process"],
                    "generation": message["generation"],
                    **done,
                }
                self._write(finished)
                self._change(finished, [])
        if self._ended:
            return {"over": True}, ()
        if self.leases.epoch < message["epoch"]:
            return None
        if self.leases.epoch > message["epoch"]:
            return {"gate": self.leases.epoch}, ()
        taken = self.leases.take(message["process"])
        if isinstance(taken, Lease):
            noted = {"kv": "taken", "process": message["process"], "generation": message["generation"]}
            self._write(noted)
            return {"slot": taken.slot, "clock": taken.clock, "piece": taken.piece}, ()
        return ({"gate": self.leases.epoch + 1}, ()) if taken == "gate" else None

    def taken(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """From the journal: a process took what there was to take."""
        assert self.leases is not None
        self.leases.take(message["process"])
        return {}, ()

    def finished(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        assert self.leases is not None
        self.leases.finish(message["process"], message["piece"], message["result"])
        return {}, ()

    def progress(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer | None:
        """How far the epoch is; with `wait`, the results of an epoch, when it is over."""
        assert self.leases is not None
        if message["wait"] is None:
            return {"epoch": self.leases.epoch, "missing": self.leases.missing(), "clock": self.leases.clock}, ()
        results = self.leases.results_of(message["wait"])
        return None if results is None else ({"results": results}, ())

    def end(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """There are no more epochs: workers that ask for a lease are told so."""
        self._ended = message["ended"]
        return {}, ()

    # Snapshots ------------------------------------------------------------------------------------------------------

    def _dump(self) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "slots": self.slots, "consistency": self.consistency, "spares": self.spares, "barriers": self._barriers,
            "level": self._level, "ended": self._ended,
            "leases": None if self.leases is None else self.leases.dump(), "settings": self._settings, "keys": [], "updates": [],
            "duplicates": self.duplicates, "applied": self.updates,
        }  # fmt: skip
        arrays: dict[str, np.ndarray] = {}
        for number, (name, update) in enumerate(self._updates.items()):
            meta["updates"].append({"name": name, "facts": update.program.facts})
            arrays[f"u{number}.program"], arrays[f"u{number}.weights"] = update.program.arrays()
        for number, (name, key) in enumerate(self.keys.items()):
            held: list[list[Any]] = []
            arrays[f"k{number}.value"] = key.value
            for state, array in key.state.items():
                arrays[f"k{number}.state.{state}"] = array
            if isinstance(key.previous, np.ndarray):
                arrays[f"k{number}.previous"] = key.previous
            elif key.previous is not None:
                arrays[f"k{number}.previous_rows"], arrays[f"k{number}.previous_values"] = key.previous
            for clock, slots in key.held.items():
                for slot, (gradient, weight) in slots.items():
                    kind = "none" if gradient is None else "rows" if isinstance(gradient, tuple) else "dense"
                    at = f"k{number}.held{len(held)}"
                    if kind == "dense":
                        arrays[at] = gradient
                    elif kind == "rows":
                        arrays[f"{at}.rows"], arrays[f"{at}.values"] = gradient
                    held.append([clock, slot, kind, weight])
            meta["keys"].append({
                "name": name, "table": key.table, "rule": key.rule, "clock": key.clock.dump(), "step": key.step,
                "update": key.update, "state": list(key.state), "held": held,
            })  # fmt: skip
        return {"meta": json.dumps(meta), "arrays": arrays}

    def _load(self, snapshot: dict[str, Any]) -> None:
        meta = json.loads(snapshot["meta"])
        arrays = {name: np.array(a) for name, a in snapshot["arrays"].items()}
        self.slots, self.consistency, self.spares = meta["slots"], meta["consistency"], meta["spares"]
        self._barriers, self._settings = meta["barriers"], meta["settings"]
        self._level, self._ended = meta["level"], meta["ended"]
        self.duplicates, self.updates = meta["duplicates"], meta["applied"]
        if meta["leases"] is not None:
            self.leases = Leases(self.slots, self.consistency == "sync", self.spares)
            self.leases.load(meta["leases"])
        for number, entry in enumerate(meta["updates"]):
            program = UpdateProgram(
                entry["facts"], *[arrays[f"u{number}.{part}"].tobytes() for part in ("program", "weights")]
            )
            made = self._updates[entry["name"]] = Update(program)
            made.set(self._settings[entry["name"]])
        for number, entry in enumerate(meta["keys"]):
            clock = KeyClock(self.slots, self.consistency)
            clock.load(entry["clock"])
            key = self.keys[entry["name"]] = Key(arrays[f"k{number}.value"], entry["table"], entry["rule"], clock)
            key.step, key.update = entry["step"], entry["update"]
            key.state = {name: arrays[f"k{number}.state.{name}"] for name in entry["state"]}
            key.previous = arrays.get(f"k{number}.previous")
            if f"k{number}.previous_rows" in arrays:
                key.previous = (arrays[f"k{number}.previous_rows"], arrays[f"k{number}.previous_values"])
            for at, (when, slot, kind, weight) in enumerate(entry["held"]):
                name = f"k{number}.held{at}"
                gradient: Any = None
                if kind == "dense":
                    gradient = arrays[name]
                elif kind == "rows":
                    gradient = (arrays[f"{name}.rows"], arrays[f"{name}.values"])
                key.held.setdefault(when, {})[slot] = (gradient, weight)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def _dense(gradient: Any, like: np.ndarray) -> np.ndarray:
    if not isinstance(gradient, tuple):
        return np.asarray(gradient)
    found = np.zeros_like(like)
    found[gradient[0]] = gradient[1]
    return found


_CHANGES: dict[str, Callable[..., Any]] = {
    name: getattr(KeyStore, name)
    for name in (
        "open",
        "init",
        "rules",
        "settings",
        "assign",
        "push",
        "retire",
        "level",
        "epoch",
        "finished",
        "taken",
        "passed",
        "end",
    )
}
_READS: dict[str, Callable[..., Any]] = {
    name: getattr(KeyStore, name) for name in ("pull", "pull_rows", "state", "facts", "barrier", "progress")
}


class Stores:
    """The stores of a task, by name. A task that was started again finds their journals where it left them.

    Args:
        directory: of the cluster on this host.
        name, place: of the task.
    """

    def __init__(self, directory: str, name: str, place: str) -> None:
        self._directory, self._name, self._place = directory, name, place
        self._index = os.path.join(directory, f"{name}.stores.json")
        self._known: dict[str, KeyStore] = {}
        self._lock = threading.Lock()

    def answer(self, message: dict[str, Any], arrays: list[np.ndarray], reply: Reply) -> None:
        """Handle a message for one of the stores."""
        self._store(message).answer(message, arrays, reply)

    def _store(self, message: dict[str, Any]) -> KeyStore:
        name = str(message["store"])
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                return found
            places = {}
            if os.path.exists(self._index):
                with open(self._index) as file:
                    places = json.load(file)
            if name not in places:
                if message["kv"] != "open":
                    raise KeyError(f"KVStore: there is no store {name!r} on this task.")
                base = message.get("directory") or os.path.join(self._directory, "stores")
                places[name] = os.path.join(base, name, self._name)
                with open(os.open(f"{self._index}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    json.dump(places, file)
                os.replace(f"{self._index}.new", self._index)
            made = self._known[name] = KeyStore(places[name], self._place)
            return made
