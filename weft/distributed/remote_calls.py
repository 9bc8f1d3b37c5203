"""What a task answers besides steps: registering parts, reading and assigning variables, queues, checkpoints, single nodes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.declared.queues import Queue
from ..graph.declared.variables import locked
from ..graph.execute.interpret import located, run_alone
from ..graph.execute.leases import give_back
from ..io.shards import read_sharded, write_shard
from ..runtime.interrupts import watched
from .remote_messages import dump_error
from .remote_parts import PartError, read_part
from .remote_task_steps import StepRun, TaskPart
from .table_server import TableServer

if TYPE_CHECKING:
    from .session_task import Client, Server

Reply = Callable[..., None]
SAVE_SECONDS = 60.0  # for how long variables are locked while other tasks get ready to copy theirs


class Calls:
    """Answers the calls of clients. A call that waits (for a queue) is answered later, on the thread that ends the waiting."""

    def __init__(self, server: Server) -> None:
        self.server, self.store = server, server.store
        self.pool = ThreadPoolExecutor(32, "weft-calls")
        self._saves: dict[str, _Save] = {}
        self._tables = TableServer()
        self._making = threading.Lock()
        self._stores: Any = None  # of parameter servers, once there is one here

    def answer(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """Do what `message` asks for and reply, now or later; errors raised here become the reply."""
        method = _METHODS.get(message.get("do") if isinstance(message, dict) else None)
        if method is None:
            raise PartError(f"session: a task cannot do {message!r}.")
        method(self, client, number, message, arrays, reply)

    def close_client(self, client: Client) -> None:
        for withdraw in list(client.withdraw.values()):
            withdraw()
        for step in list(client.nodes):
            self.end_nodes(client, step, b"[]")

    # Parts ----------------------------------------------------------------------------------------------------------

    def table(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        self.server.set_table(message["table"])
        reply({})

    def bye(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """The client leaves: what only it knows is not needed any more."""
        client.leaves = True
        reply({})

    def where(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        reply({"table": {str(k): [v[0], v[1]] for k, v in self.server.table.items()}})

    def register(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """Read a part, for which everything that it names is made first."""
        self.store.ensure(message["ensure"], arrays[1 + len(message["names"]) :], client.number)
        named = dict(zip(message["names"], arrays[1 : 1 + len(message["names"])], strict=True))
        client.parts[message["handle"]] = TaskPart(read_part(arrays[0].tobytes(), named, self.store))
        reply({})

    def ensure(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        self.store.ensure(message["ensure"], arrays, client.number)
        reply({})

    def unregister(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        for handle in message["handles"]:
            client.parts.pop(handle, None)
        reply({})

    # Variables ------------------------------------------------------------------------------------------------------

    def read(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        state = self.store.state(message["key"])
        with locked([state], []):
            reply({}, [state.tensor._data])

    def assign(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        state, (value,) = self.store.state(message["key"]), arrays
        if value.shape != state.tensor.shape or value.dtype != state.tensor.dtype:
            raise ValueError(
                f"assign: variable {message['key']!r} is {state.tensor.dtype.name} {state.tensor.shape}. Got "
                f"{value.dtype.name} {value.shape}."
            )
        with locked([], [state]):
            state.store(value)
        reply({})

    def drop(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        self.store.drop(message["keys"])
        reply({})

    def facts(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        states = {k: [list(s.tensor.shape), s.tensor.dtype.name] for k, s in self.store.named().items()}
        reply(
            {"pid": os.getpid(), "states": states, "queues": {k: q.size() for k, q in list(self.store.queues.items())}}
        )

    def echo(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        reply({}, arrays)

    def probe(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """Measure the way to another task: seconds to hand a message to it, and per byte."""
        channel = self.server.route(client, message["task"])
        data = [memoryview(bytes(message["bytes"]))]
        begun = time.perf_counter()
        for _ in range(message["times"]):
            channel.send(4, 0, 0, 0, b"\xff\x00", ())
        small = (time.perf_counter() - begun) / message["times"]
        begun = time.perf_counter()
        head = bytes([5, 1]) + len(data[0]).to_bytes(8, "little")
        channel.send(4, 0, 0, 0, head, data)
        reply({"message": small, "byte": (time.perf_counter() - begun) / len(data[0])})

    def kv(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """What a `KVStore` asks for."""
        with self._making:
            if self._stores is None:
                from .parameter_server_store import Stores

                config = self.server.config
                self._stores = Stores(config.directory, config.name, config.place)
        self._stores.answer(message, arrays, reply)

    # Queues ---------------------------------------------------------------------------------------------------------

    def queue(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        queue = self.store.queues.get(message["key"])
        if queue is None:
            barrier = self.store.barriers.get(message["key"])
            if barrier is None:
                raise KeyError(f"session: this task has no queue {message['key']!r}.")
            barrier.close()
            return reply({})
        how = message["how"]
        if how == "size":
            return reply({"size": queue.size()})
        if how == "closed":
            return reply({"closed": queue.closed})
        if how == "close":
            queue.close(message["cancel"])
            return reply({})
        return self._wait(client, number, reply, lambda done: _start(queue, message, arrays, done))

    def _wait(self, client: Client, number: int, reply: Reply, start: Callable[[Any], Any]) -> None:
        """Reply when a call that waits is done, unless it is withdrawn before."""

        over: list[bool] = []

        def done(error: BaseException | None, outputs: Sequence[Any]) -> None:
            over.append(True)
            client.withdraw.pop(number, None)
            if error is not None:
                reply({"error": dump_error(error, self.server.config.place)})
            else:
                reply({}, [np.asarray(a) for a in outputs])

        withdraw = start(done)
        if withdraw is not None:
            client.withdraw[number] = withdraw
            if over:
                client.withdraw.pop(number, None)

    def withdraw(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """Withdraw an earlier call; whether it was in time."""
        found = client.withdraw.pop(message["call"], None)
        reply({"withdrawn": bool(found is not None and found())})

    # Tables ---------------------------------------------------------------------------------------------------------

    def rows(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """Rows of tables, for `wf.distributed.Embedding`."""
        reply(*self._tables.answer(message, arrays))

    # Single nodes, for the naive executor ---------------------------------------------------------------------------

    def node(self, client: Client, number: int, message: Any, arrays: list[np.ndarray], reply: Reply) -> None:
        """Run one node of a part on the given arrays."""
        part = client.parts[message["handle"]]
        node = part.read.graph.node(message["node"])
        run, _ = client.nodes.setdefault(message["step"], (StepRun(message["step"], None), part))
        run.leased_elsewhere = part.read.leased
        run.deadline = None if message["left"] is None else time.monotonic() + message["left"]
        places = iter(arrays)
        inputs = [None if missing else next(places) for missing in message["missing"]]
        given = [a if v.__class__.__name__ == "Value" else v for a, v in zip(inputs, node.inputs, strict=True)]
        start = getattr(node.op, "start", None)
        if start is None:
            before, watched.by = watched.by, run
            try:
                outputs = run_alone(node, given, message["reference"])
            finally:
                watched.by = before
            return reply({}, [np.asarray(a) for a in outputs])

        def guarded(done: Any) -> Any:
            def located_done(error: BaseException | None, outputs: Any) -> None:
                done(None if error is None else located(error, node), outputs)

            try:
                return start(given, located_done, run)
            except Exception as error:
                raise located(error, node) from error.__cause__

        return self._wait(client, number, reply, guarded)

    def cancel(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """End a node that runs."""
        run, _ = client.nodes.get(message["step"], (None, None))
        if run is not None:
            run.cancel(message["reason"])
        reply({})

    def end_nodes(self, client: Client, step: int, head: bytes) -> None:
        """A step of single nodes is over; without a list of used dequeues it has succeeded."""
        run, part = client.nodes.pop(step, (None, None))
        if run is not None and head and run.leases:
            used = set(json.loads(head))
            give_back(run, part.nodes, {n.op for n in part.nodes if n.name in used})

    def effects(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """What a step of single nodes has done here."""
        run, part = client.nodes.get(message["step"], (None, None))
        if run is None:
            return reply({"effects": [], "leases": []})
        names = part.names
        effects = [names[id(op)] for op in run.effects if id(op) in names]
        return reply({"effects": effects, "leases": [names[id(lease.op)] for lease in run.leases]})

    # Checkpoints ----------------------------------------------------------------------------------------------------

    def save_begin(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """Lock variables; the values of all tasks are then of one moment."""
        states = self.store.named()
        wanted = message["keys"]
        chosen = {k: states[k] for k in (states if wanted is None else wanted) if k in states}
        save = self._saves[message["save"]] = _Save(chosen)
        self.pool.submit(save.hold)
        save.ready.wait(SAVE_SECONDS)
        reply({"keys": list(chosen)})

    def save_copy(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        self._saves[message["save"]].copy()
        reply({})

    def save_write(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        save = self._saves.pop(message["save"])
        names = message["names"]
        if message["file"] is not None and save.values:
            write_shard(Path(message["file"]), {names.get(k, k): a for k, a in save.values.items()})
        reply({})

    def save_end(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        save = self._saves.pop(message["save"], None)
        if save is not None:
            save.release.set()
        reply({})

    def restore_read(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        """Read variables from a checkpoint and check them; they are stored by `restore_store`."""
        names = message["names"]
        stored = read_sharded(message["path"], names.values())
        found = {key: stored[name] for key, name in names.items()}
        for key, array in found.items():
            have = self.store.state(key).tensor
            if array.shape != have.shape or array.dtype != have.dtype:
                raise ValueError(
                    f"restore: variable {names[key]!r} is {have.dtype.name} {have.shape}, the file has {array.dtype.name} "
                    f"{array.shape}."
                )
        save = self._saves[message["save"]] = _Save({})
        save.values = found
        reply({})

    def restore_store(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        values = self._saves.pop(message["save"]).values
        states = [self.store.state(key) for key in values]
        with locked([], states):
            for state, value in zip(states, values.values(), strict=True):
                state.store(value)
        reply({})

    def use_checkpoint(self, client: Client, number: int, message: Any, arrays: Any, reply: Reply) -> None:
        self.store.use_checkpoint(message["path"])
        reply({})


class _Save:
    """Variables that are being saved: locked, then copied, then written."""

    def __init__(self, states: dict[str, Any]) -> None:
        self.states = states
        self.values: dict[str, np.ndarray] = {}
        self.ready, self.release = threading.Event(), threading.Event()

    def hold(self) -> None:
        """Hold the locks, on a thread of the pool, until the copies are made or something went wrong."""
        with locked(list(self.states.values()), []):
            self.ready.set()
            self.release.wait(SAVE_SECONDS)

    def copy(self) -> None:
        self.values = {k: np.array(s.tensor._data, order="C") for k, s in self.states.items()}
        self.release.set()


def _start(queue: Queue, message: Any, arrays: list[np.ndarray], done: Any) -> Any:
    if message["how"] == "put":
        components = len(queue.dtypes)
        rows = [tuple(arrays[i : i + components]) for i in range(0, len(arrays), components)]
        return queue._start_enqueue([queue._checked(row) for row in rows], done)
    return queue._start_dequeue(message["count"], message["partial"], done)


_METHODS: dict[Any, Callable[..., None]] = {
    name: getattr(Calls, name)
    for name in (
        "table",
        "bye",
        "where",
        "register",
        "ensure",
        "unregister",
        "read",
        "assign",
        "drop",
        "facts",
        "echo",
        "probe",
        "kv",
        "queue",
        "rows",
        "withdraw",
        "cancel",
        "node",
        "effects",
        "save_begin",
        "save_copy",
        "save_write",
        "save_end",
        "restore_read",
        "restore_store",
        "use_checkpoint",
    )  # fmt: skip
}
