"""The tables that a task of a cluster serves: what it answers to the calls of `wf.distributed.Embedding`.

A table is known by its key, and belongs to no client: any that knows the key looks rows up and updates them. An update has
the name of its writer and a number that rises; one that was applied already is acknowledged and not applied again, so a writer
may send it again after its connection broke. A table that was made again, by a task that was started again, has another life.
"""

from __future__ import annotations

import importlib
import secrets
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..io.shards import index_file, shard_file, write_shard
from ..io.tensor_file import read_arrays
from ..nn.initializers import Initializer
from ..nn.parameter import Parameter
from ..optim.optimizer import Optimizer
from ..tensor import wrap
from .embedding_init import check_init
from .embedding_table import TableRows, row_dtype

Answer = tuple[dict[str, Any], list[np.ndarray]]
FACTS = (
    "servers",
    "server",
    "dim",
    "dtype",
    "init",
    "optimizer",
    "settings",
    "max_rows",
)  # that all clients must agree on


def load_optimizer(path: str, settings: dict[str, Any], dim: int, dtype: np.dtype) -> Optimizer:
    """The optimiser `module:Class` with its settings, of a stand-in parameter.

    Raises:
        ValueError: there is no such optimiser.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Embedding: the optimiser {path} cannot be imported on a server: {error}. Put its class in a module of its own, "
            "which `Cluster(modules=[…])` names."
        ) from error
    if not isinstance(found, type) or not issubclass(found, Optimizer):
        raise ValueError(f"Embedding: {path} is no optimiser. Expected a subclass of weft.optim.Optimizer.")
    kind: Any = found
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    made: Optimizer = kind([Parameter(wrap(np.zeros((1, dim), dtype)))], **given)
    return made


class ServedTable:
    """A table and what is known of its writers."""

    def __init__(self, facts: dict[str, Any]) -> None:
        dtype = row_dtype(facts["dtype"])
        self.facts = {name: facts[name] for name in FACTS}
        self.life = secrets.token_hex(8)
        self.applied: dict[str, int] = {}  # the last update of every writer
        optimizer = load_optimizer(facts["optimizer"], facts["settings"], facts["dim"], dtype)
        self.rows = TableRows(
            facts["servers"], facts["server"], facts["num"], facts["dim"], dtype,
            check_init(Initializer.load(facts["init"])), optimizer, facts["max_rows"],
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        rows = self.rows
        return {
            "life": self.life, "step": rows.step, "live": rows.live, "num": rows.num, "evicted": rows.evicted,
            "bytes": rows.nbytes,
        }  # fmt: skip


class TableServer:
    """Answers calls about tables. Thread-safe."""

    def __init__(self) -> None:
        self._tables: dict[str, ServedTable] = {}
        self._lock = threading.Lock()

    def answer(self, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        """Do what a message asks for; `{"missing": True}` if there is no such table."""
        how, key = message["how"], message["key"]
        if how == "make":
            return self._make(key, message)
        table = self._tables.get(key)
        if table is None:
            return {"missing": True}, []
        if how == "pull":
            return {}, [table.rows.pull(arrays[0], message["use"])]
        return _HOW[how](self, table, message, arrays)

    def _make(self, key: str, message: dict[str, Any]) -> Answer:
        with self._lock:
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = ServedTable(message)
            else:
                other = [name for name in FACTS if table.facts[name] != message[name]]
                if other:
                    raise ValueError(
                        f"Embedding: there is a table {key!r} with another {', '.join(other)}: "
                        f"{', '.join(repr(table.facts[n]) for n in other)} instead of "
                        f"{', '.join(repr(message[n]) for n in other)}. Give this one another name."
                    )
        return table.state(), []

    def _push(self, table: ServedTable, message: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
        writer, number = message["writer"], message["number"]
        rows = table.rows
        with rows.lock:
            if number > table.applied.get(writer, 0):
                rows.push(arrays[0], arrays[1])
                table.applied[writer] = number
            return {"step": rows.step, "live": rows.live}, []

    def _configure(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        table.rows.configure(message["settings"])
        return {}, []

    def _grow(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        table.rows.grow(message["num"])
        return table.state(), []

    def _materialize(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        table.rows.materialize()
        return table.state(), []

    def _evict(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        return {"count": table.rows.evict(message["unused_for"]), "live": table.rows.live}, []

    def _state(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        return table.state(), []

    def _drop(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        with self._lock:
            self._tables.pop(message["key"], None)
        return {}, []

    def _save(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        """Write the rows to files of a few megabytes each; the client writes the index that names them."""
        rows, files = table.rows, []
        with rows.lock:
            for number, block in enumerate(rows.blocks()):
                file = shard_file(message["path"], message["save"], f"{rows.server}-{number}")
                write_shard(file, {f"{rows.server}.{number}.{name}": array for name, array in block.items()})
                files.append([file.name, list(block)])
                del block  # no view of a column may stay: it could not grow
            return {**table.state(), "files": files}, []

    def _load(self, table: ServedTable, message: dict[str, Any], arrays: Any) -> Answer:
        """Replace all rows by those of a checkpoint that belong to this server; one file at a time is in memory."""
        rows, folder = table.rows, Path(index_file(message["path"])).parent
        with rows.lock:
            rows.clear(message["step"])
            if message["num"] > rows.num:
                rows.grow(message["num"])
            for name in message["files"]:
                stored, _ = read_arrays(folder / name, "Embedding.load")
                rows.put({full.split(".", 2)[2]: array for full, array in stored.items()})
                del stored
            table.applied.clear()
            table.life = secrets.token_hex(8)
            return table.state(), []


_HOW = {
    "push": TableServer._push, "materialize": TableServer._materialize, "configure": TableServer._configure,
    "grow": TableServer._grow, "evict": TableServer._evict, "state": TableServer._state, "drop": TableServer._drop,
    "save": TableServer._save, "load": TableServer._load,
}  # fmt: skip
