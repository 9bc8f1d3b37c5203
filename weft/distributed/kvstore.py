"""KVStore: named values that workers push gradients to and pull weights from, in this process or on parameter servers.

A key is a dense tensor, which lives on one server, or a table of rows, which are spread over all: row r is on server
r mod n. The update of a key is an optimiser's, run where the key is (`parameter_server_update`); without one, a push
replaces the value by the sum of what the workers pushed. See `docs/distributed.md`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..ops.array.row_sparse import RowSparse
from ..optim.optimizer import Optimizer
from ..tensor import Tensor, to_array, wrap
from . import rank as run_rank
from . import world_size
from .kvstore_client import LocalServer, Operation, Sender
from .kvstore_compression import Compressor
from .parameter_server_store import RULES
from .parameter_server_update import declare_update, flat_settings, make_optimizer
from .rows import coalesce
from .server_state import dump_consistency

SECONDS = 600.0
CAPABLE = ("optimizer", "row_sparse", "priority", "compression", "exactly_once")
_DTYPES = {d.name: d for d in dtypes.ALL}


class KVStore:
    """Named values shared by workers.

    Args:
        kind: "local", in this process, or "dist", on the tasks of a cluster: those of its job `ps`, or all if there
        is none. cluster: for "dist"; every worker has its own client (`Cluster.join(file)`). rank, num_workers: this
        worker and how many there are; by default those of the run. consistency: "sync", one update from all workers;
        `Bounded(s)`, a pull waits until the slowest worker is at most s pushes
            behind; "async", no worker waits.
        compression: "2bit" or "8bit": push dense gradients with so many bits per number, with error feedback.
        threshold: of "2bit"; by default it follows each gradient.
        name: of the store; stores with different names on one cluster are separate.
        directory: where servers keep their journals; by default with the cluster, whose end they do not survive.
        generation: the number of this worker's life; what a worker with a smaller one still sends is refused.
        timeout: seconds after which an operation that is not answered raises TimeoutError.
        spares: further processes, which compute copies of what others do (`ParameterServer(backup=…)`).
        observer: this process is no worker: it pulls, but does not push.

    >>> kv = wf.distributed.KVStore("local")
    >>> kv.init("w", wf.ones(3))
    >>> kv.set_optimizer(optim.SGD, lr=0.5)
    >>> kv.push("w", wf.ones(3))
    >>> kv.pull("w")
    tensor([0.5, 0.5, 0.5])
    """

    def __init__(
        self, kind: str = "local", *, cluster: Any = None, rank: int | None = None, num_workers: int | None = None,
        consistency: Any = "sync", compression: str | None = None, threshold: float | None = None, name: str = "kvstore",
        directory: str | None = None, generation: int | None = None, timeout: float = SECONDS, spares: int = 0,
        observer: bool = False,
    ) -> None:  # fmt: skip
        if kind not in ("local", "dist"):
            raise ValueError(f"KVStore: kind must be 'local' or 'dist'. Got {kind!r}.")
        if (cluster is None) != (kind == "local"):
            raise ValueError(
                "KVStore: a cluster is for 'dist', and 'dist' needs one: `KVStore('dist', cluster=cluster)`."
            )
        dumped = dump_consistency(consistency)
        self.kind, self.timeout = kind, timeout
        self._rank = run_rank() if rank is None else rank
        self._workers = world_size() if num_workers is None else num_workers
        if kind == "local":
            self._rank, self._workers = 0, 1
        if not observer and not 0 <= self._rank < self._workers + spares:
            raise ValueError(f"KVStore: expected a rank from 0 to {self._workers - 1}. Got {self._rank}.")
        self._compressor = None if compression is None else Compressor(compression, threshold)
        self._name = name
        self._who = {"process": self._rank, "generation": time.time_ns() if generation is None else generation}
        self._optimizer: tuple[Optimizer | None, str | None, dict[str, Any]] | None = None
        self._facts: dict[str, dict[str, Any]] = {}
        self._clocks: dict[str, int] = {}
        self._pending: list[Operation] = []
        self._servers: Any = LocalServer("this process") if cluster is None else Sender(cluster, _servers_of(cluster))
        answers = self._ask_all(
            {"kv": "open", "slots": self._workers, "consistency": dumped, "spares": spares, "directory": directory}
        )
        self._barriers = int(answers[0][0]["barriers"])
        if any(answer["keys"] for answer, _ in answers):
            self._learn()

    # What there is --------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self._rank

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self._workers

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can do something: "optimizer", "row_sparse", "priority", "compression" or "exactly_once".

        >>> wf.distributed.KVStore("local").is_capable("optimizer")
        True
        """
        return capability in CAPABLE

    def keys(self) -> list[str]:
        """The names of all keys."""
        self._learn()
        return sorted(self._facts)

    def updates(self, key: str) -> int:
        """How many updates of a key the servers have made; of a table, as many as the server with most."""
        return max(int(answer["keys"].get(key, {"step": 0})["step"]) for answer, _ in self._ask_all({"kv": "facts"}))

    # Messages -------------------------------------------------------------------------------------------------------

    def _submit(
        self,
        server: int,
        message: dict[str, Any],
        arrays: Sequence[np.ndarray] = (),
        sequence: str = "",
        priority: int = 0,
    ) -> Operation:
        found: Operation = self._servers.submit(
            server, {"do": "kv", "store": self._name, **self._who, **message}, arrays, sequence, priority
        )
        return found

    def _ask_all(self, message: dict[str, Any]) -> list[tuple[dict[str, Any], list[np.ndarray]]]:
        asked = [self._submit(server, message, (), f"#{message['kv']}") for server in range(self._servers.servers)]
        return [operation.wait(self.timeout) for operation in asked]

    def _server(self, key: str) -> int:
        return zlib.crc32(key.encode()) % int(self._servers.servers)

    def _learn(self) -> None:
        """Ask which keys there are, and how often this worker has pushed them."""
        for server, (answer, _) in enumerate(self._ask_all({"kv": "facts"})):
            for key, facts in answer["keys"].items():
                if facts["table"]:
                    known = self._facts.get(key) if server else None
                    rows = facts["shape"][0] + (known["shape"][0] if known else 0)
                    facts = {**facts, "shape": [rows, *facts["shape"][1:]]}
                self._facts[key] = facts
                if self._rank < self._workers:
                    self._clocks[key] = max(self._clocks.get(key, 0), facts["counts"][self._rank])

    def _fact(self, key: str) -> dict[str, Any]:
        if key not in self._facts:
            self._learn()
        if key not in self._facts:
            raise KeyError(f"KVStore: there is no key {key!r}. Call `init({key!r}, value)` first.")
        return self._facts[key]

    def wait(self) -> None:
        """Wait until all pushes are acknowledged; raises the first error of one."""
        pending, self._pending = self._pending, []
        for operation in pending:
            operation.wait(self.timeout)

    def _keep(self, operation: Operation) -> None:
        """Remember a push: an error in it is raised by the next call that waits."""
        self._pending = [op for op in self._pending if not op.is_done or op._error is not None]
        self._pending.append(operation)

    # Keys -----------------------------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any, *, rows: bool = False, rule: str = "assign") -> None:
        """Make a key, or several from lists. The first worker's value counts; the others' must have the same shape and dtype.

        Args:
            key: a name, or a list of names.
            value: a tensor or array.
            rows: make it a table, for `push_rows` and `pull_rows`.
            rule: what a push does as long as there is no optimiser: "assign" or "add".
        """
        if isinstance(key, (list, tuple)):
            for name, each in zip(key, value, strict=True):
                self.init(name, each, rows=rows, rule=rule)
            return
        if rule not in RULES:
            raise ValueError(f"init: rule must be 'assign' or 'add'. Got {rule!r}.")
        key, array = str(key), _array(value)
        if rows and array.ndim < 2:
            raise ValueError(f"init: a table has rows, so at least two axes. Got {array.shape}.")
        message = {"kv": "init", "key": key, "table": rows, "rule": rule}
        if rows:
            count = self._servers.servers
            made = [self._submit(s, message, [np.ascontiguousarray(array[s::count])], key) for s in range(count)]
        else:
            made = [self._submit(self._server(key), message, [np.ascontiguousarray(array)], key)]
        new = [operation.wait(self.timeout)[0]["new"] for operation in made]
        self._facts[key] = {"shape": list(array.shape), "dtype": array.dtype.name, "table": rows}
        if not all(new):
            self._learn()
        elif self._optimizer is not None:
            self._set_rules([key])

    def set_optimizer(self, optimizer: Any, **settings: Any) -> None:
        """Update keys on the servers by an optimiser from now on. One worker calls it, before the first push.

        Args:
            optimizer: a class such as `optim.Adam`, an optimiser, of which the settings of the first group are taken,
            or the import path
                of a class, "my_module:MyOptimizer", which the servers import. Except for a path, the update travels
                as a graph.
            settings: of the class.

        >>> kv = wf.distributed.KVStore("local")
        >>> kv.init("w", wf.zeros(2))
        >>> kv.set_optimizer(optim.Adam, lr=0.1)
        >>> kv.pushpull("w", wf.ones(2))
        tensor([-0.1, -0.1])
        """
        if isinstance(optimizer, str):
            self._optimizer = (None, optimizer, settings)
        elif isinstance(optimizer, Optimizer):
            if settings:
                raise TypeError("set_optimizer: settings are for a class; an optimiser has its own.")
            self._optimizer = (optimizer, None, {})
        elif isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
            self._optimizer = (make_optimizer(optimizer, settings), None, {})
        else:
            raise TypeError(
                f"set_optimizer: expected an optimiser, its class, or 'module:Class'. Got {type(optimizer).__name__}."
            )
        self._learn()
        self._set_rules(list(self._facts))

    def set_settings(self, group: int = 0, **settings: Any) -> None:
        """Change settings of the optimiser on the servers, and of the one that was given here, such as `lr=0.01`."""
        if self._optimizer is not None:
            optimizer, _, by_path = self._optimizer
            (by_path if optimizer is None else optimizer.param_groups[group]).update(settings)
        flat = flat_settings({k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()})
        self._ask_all({"kv": "settings", "group": group, "settings": flat})

    def _set_rules(self, keys: Sequence[str], groups: Mapping[str, int] | None = None) -> None:
        """Send the updates of keys: one graph for all keys that it fits."""
        assert self._optimizer is not None
        optimizer, path, settings = self._optimizer
        alike: dict[Any, list[str]] = {}
        for key in keys:
            facts = self._facts[key]
            group = 0 if groups is None else groups[key]
            general = (
                None
                if optimizer is not None and optimizer.elementwise and not facts["table"]
                else tuple(facts["shape"])
            )
            alike.setdefault((group, facts["dtype"], facts["table"], general), []).append(key)
        sent = []
        for (group, dtype, table, _), names in alike.items():
            message: dict[str, Any] = {"kv": "rules", "group": group, "path": path, "facts": None, "settings": settings}
            arrays: list[np.ndarray] = []
            if optimizer is not None:
                program = declare_update(optimizer, group, self._facts[names[0]]["shape"], _DTYPES[dtype], table)
                message.update(facts=program.facts, settings=flat_settings(optimizer.param_groups[group]))
                arrays = program.arrays()
            for server in range(self._servers.servers):
                here = [k for k in names if table or self._server(k) == server]
                if here:
                    sent.append(self._submit(server, {**message, "keys": here}, arrays, "#rules"))
        for operation in sent:
            operation.wait(self.timeout)

    # Pushing and pulling --------------------------------------------------------------------------------------------

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Send a gradient; returns at once. Lists of keys take lists of values.

        Args:
            value: a tensor or array, a row-sparse gradient, or a list of them, which are added.
            priority: pushes and pulls with a higher one go first.
        """
        if isinstance(key, (list, tuple)):
            for number, (name, each) in enumerate(zip(key, value, strict=True)):
                self.push(name, each, priority - number)
            return
        key = str(key)
        if isinstance(value, RowSparse):
            self.push_rows(key, value.indices, value.values, priority)
            return
        facts = self._fact(key)
        if facts["table"]:
            raise ValueError(f"push: {key!r} is a table of rows. Use `push_rows`, or push a row-sparse gradient.")
        parts = [_array(v) for v in value] if isinstance(value, (list, tuple)) else [_array(value)]
        array = parts[0]
        for part in parts[1:]:
            array = array + part
        item = self._item(key, "dense")
        if self._compressor is not None:
            item["compressed"], array = self._compressor.compress(key, array)
            item["kind"] = self._compressor.kind
        else:
            array = np.array(array)  # the caller may change it while it travels
        self._keep(self._submit(self._server(key), {"kv": "push", "items": [item]}, [array], key, priority))

    def _item(self, key: str, kind: str) -> dict[str, Any]:
        clock = self._clocks.get(key, 0)
        self._clocks[key] = clock + 1
        return {"key": key, "slot": self._rank, "clock": clock, "kind": kind, "weight": None}

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> Any:
        """The value of a key, after this worker's pushes; a list of keys gives a list.

        Args:
            out: a tensor or array to write into, or a list of them.
        """
        if isinstance(key, (list, tuple)):
            asked = [self._ask(str(k), priority - i) for i, k in enumerate(key)]
            outs = [None] * len(asked) if out is None else list(out)
            return [self._result(found(), o) for found, o in zip(asked, outs, strict=True)]
        return self._result(self._ask(str(key), priority)(), out)

    def _ask(self, key: str, priority: int) -> Callable[[], np.ndarray]:
        """Ask for a key; the result waits for it."""
        facts, clock = self._fact(key), self._clocks.get(key, 0)
        message = {"kv": "pull", "keys": [key], "clocks": [clock]}
        if not facts["table"]:
            asked = self._submit(self._server(key), message, (), key, priority)
            return lambda: self._waited(asked)
        count = self._servers.servers
        each = [self._submit(s, message, (), key, priority) for s in range(count)]

        def whole() -> np.ndarray:
            found = np.empty(facts["shape"], _DTYPES[facts["dtype"]])
            for server, operation in enumerate(each):
                found[server::count] = self._waited(operation)
            return found

        return whole

    def _waited(self, operation: Operation) -> np.ndarray:
        answer, arrays = operation.wait(self.timeout)
        if answer.get("stale"):
            raise RuntimeError("pull: the other workers have gone on without this one; it must be started again.")
        return arrays[0]

    def _result(self, array: np.ndarray, out: Any) -> Any:
        self._raise_failures()
        if out is None:
            return wrap(array)
        target = out._data if isinstance(out, Tensor) else out
        target[...] = array
        return out

    def _raise_failures(self) -> None:
        """Raise the error of a push that has failed."""
        for operation in self._pending:
            if operation.is_done and operation._error is not None:
                self._pending.remove(operation)
                raise operation._error

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Any:
        """Push and then pull: in sync the value after the update from all workers."""
        self.push(key, value, priority)
        return self.pull(key, out, priority)

    def push_rows(self, key: str, rows: Any, values: Any, priority: int = 0) -> None:
        """Send the gradients of some rows of a table. Rows that occur several times are added before they travel.

        >>> kv = wf.distributed.KVStore("local")
        >>> kv.init("table", wf.zeros((4, 2)), rows=True)
        >>> kv.set_optimizer(optim.SGD, lr=1.0)
        >>> kv.push_rows("table", [2, 2], wf.ones((2, 2)))
        >>> kv.pull_rows("table", [1, 2])
        tensor([[ 0.,  0.],
                [-2., -2.]])
        """
        facts = self._table(key, "push_rows")
        indices, given = (
            _row_numbers(rows, facts, "push_rows"),
            _array(values).astype(_DTYPES[facts["dtype"]], copy=False),
        )
        if given.shape != (len(indices), *facts["shape"][1:]):
            raise ValueError(f"push_rows: expected values of {(len(indices), *facts['shape'][1:])}. Got {given.shape}.")
        indices, given = coalesce(indices, given)
        item, count = self._item(key, "rows"), self._servers.servers
        for server in range(count):
            here = indices % count == server
            arrays = [indices[here] // count, np.ascontiguousarray(given[here])]
            self._keep(self._submit(server, {"kv": "push", "items": [item]}, arrays, key, priority))

    def pull_rows(self, key: str, rows: Any, priority: int = 0) -> Tensor:
        """Some rows of a table, in the order in which they are asked for."""
        facts = self._table(key, "pull_rows")
        indices, count = _row_numbers(rows, facts, "pull_rows"), self._servers.servers
        message = {"kv": "pull_rows", "key": key, "clock": self._clocks.get(key, 0)}
        places = [np.flatnonzero(indices % count == server) for server in range(count)]
        asked = [
            self._submit(server, message, [indices[at] // count], key, priority) if len(at) else None
            for server, at in enumerate(places)
        ]
        found = np.empty((len(indices), *facts["shape"][1:]), _DTYPES[facts["dtype"]])
        for at, operation in zip(places, asked, strict=True):
            if operation is not None:
                found[at] = self._waited(operation)
        self._raise_failures()
        return wrap(found)

    def _table(self, key: str, what: str) -> dict[str, Any]:
        facts = self._fact(key)
        if not facts["table"]:
            raise ValueError(f"{what}: {key!r} is no table. Make it one with `init({key!r}, value, rows=True)`.")
        return facts

    # Together -------------------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait until all workers are here, with all their pushes acknowledged."""
        self.wait()
        message = {"kv": "barrier", "rank": self._rank, "number": self._barriers}
        self._submit(0, message, (), "#barrier").wait(self.timeout)
        self._barriers += 1

    def retire(self) -> None:
        """This worker pushes no more, and no other waits for it any longer."""
        self.wait()
        self._ask_all({"kv": "retire", "slot": self._rank, "epoch": None})

    def close(self) -> None:
        """Wait for the pushes and leave; the keys stay on the servers as long as these run."""
        try:
            self.wait()
        finally:
            self._servers.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._servers.close()


def _servers_of(cluster: Any) -> list[int]:
    places = cluster._places
    return [p.number for p in places if p.job == "ps"] or [p.number for p in places]


def _array(value: Any) -> np.ndarray:
    return to_array(value.detach() if isinstance(value, Tensor) else value)


def _row_numbers(rows: Any, facts: dict[str, Any], what: str) -> np.ndarray:
    indices = np.asarray(_array(rows), np.int64).reshape(-1)
    if len(indices) and not (0 <= int(indices.min()) and int(indices.max()) < facts["shape"][0]):
        raise IndexError(
            f"{what}: rows are 0 to {facts['shape'][0] - 1}. Got {int(indices.min())} to {int(indices.max())}."
        )
    return indices


__all__ = ["KVStore"]
