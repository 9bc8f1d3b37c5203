"""ParameterServer: training with the weights on servers, and a choice of how closely the workers keep together.

    servers = wf.distributed.ParameterServer(workers=8, servers=2, consistency=Bounded(3))
    Trainer(model, optimizer, loss, strategy=servers).fit(loader, epochs=10)

The process that runs the script starts servers and workers, begins the epochs, validates, and in the end has the
weights. Workers run the same script up to the call that trains. A global batch is cut into as many pieces as there
are workers. In sync, one update is made from all pieces of a batch; else every piece is an update of its own. See
`docs/distributed.md`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..random import default_generator
from ..tensor import Tensor
from . import failpoints
from .cluster import Cluster
from .kvstore import KVStore
from .parameter_server_launch import WorkerPool
from .parameter_server_update import flat_settings
from .parameter_server_worker import Names, Worker, gradients_of, told, work
from .randomness import mix
from .remote_supervisor import make_local, make_ray
from .server_state import dump_consistency

GLANCE_SECONDS = 0.2
Results = list[dict[str, Any]]

_calls = 0  # of trainings by parameter servers, in this process


class ParameterServer:
    """A strategy for `Trainer`, and for loops written by hand.

    Args:
        workers: how many processes compute gradients; also into how many pieces a batch is cut.
        servers: how many processes hold the weights and update them.
        consistency: "sync", one update from all pieces of a batch, the same bits as often as it is run; `Bounded(s)`,
        every
            piece is an update, and a worker waits until the slowest is at most s updates behind; "async", no worker waits.
        backup: in sync, further workers, which compute copies of pieces that are late; the first copy counts, and
        both have the same bits. compression: "2bit" or "8bit" gradients, see `KVStore`. directory: where servers keep
        their journals. A script that was killed goes on from there when it is run again. By default they
            end with the script.
        engine, address, token, hosts: as for `Cluster`.
        threads: of each worker; by default the processors are divided among them.

    >>> servers = wf.distributed.ParameterServer(workers=4, servers=2, consistency="async")
    >>> servers.rank is None  # this process is no worker
    True
    """

    def __init__(
        self, workers: int = 2, servers: int = 1, consistency: Any = "sync", backup: int = 0, *, compression: str | None = None,
        directory: str | os.PathLike[str] | None = None, engine: str | None = None, address: str | None = None,
        token: str | None = None, hosts: int = 1, threads: int | None = None,
    ) -> None:  # fmt: skip
        for name, value, least in (("workers", workers, 1), ("servers", servers, 1), ("backup", backup, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"ParameterServer: {name} must be a number of at least {least}. Got {value!r}.")
        try:
            self._consistency = dump_consistency(consistency)
        except ValueError as error:
            raise ValueError(f"ParameterServer: {error}") from None
        if backup and consistency != "sync":
            raise ValueError(
                "ParameterServer: backup workers are for consistency='sync': otherwise no worker waits for another."
            )
        if backup and compression is not None:
            raise ValueError(
                "ParameterServer: copies of compressed gradients differ, so backup and compression exclude each other."
            )
        self.workers, self.servers, self.consistency, self.backup = workers, servers, consistency, backup
        self.compression = compression
        self.directory = None if directory is None else os.path.abspath(directory)
        self.engine = engine or ("local" if address is None else "ray")
        self._address, self._token, self._hosts, self._threads = address, token, hosts, threads
        self._told = told()
        self._worker: Worker | None = None
        self._names: Names | None = None
        self._run: _Run | None = None
        self.history: list[dict[str, float]] = []
        """of a loop written by hand: one row per epoch, with "loss" """
        self.results: list[Results] = []
        """of every epoch, what the workers said of each piece: "numbers" (loss times samples, samples), "process", "time" """

    @property
    def rank(self) -> int | None:
        """The number of this worker; None in the process that started the workers."""
        return None if self._told is None else int(self._told["process"])

    # For Trainer ----------------------------------------------------------------------------------------------------

    def begin(self, model: Any, optimizer: Any, loader: Any, epoch: int = 0) -> None:
        """Start servers and workers for an optimiser's parameters and the buffers of a model, from epoch number `epoch` on."""
        global _calls
        number, _calls = _calls, _calls + 1
        self._run = _Run(self, _names(model, optimizer), optimizer, loader, epoch, number)

    def train_epoch(self, epoch: int, batches: int) -> Results:
        """Train an epoch; afterwards model and optimiser are those of the servers. Returns the workers' results, in order."""
        assert self._run is not None
        self.results.append(self._run.epoch(epoch, batches))
        return self.results[-1]

    def end(self) -> None:
        """End the workers and servers."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def is_worker(self) -> bool:
        """Whether this process is a worker, and this is the training that it was started for; else an earlier one is skipped."""
        global _calls
        if self._told is None:
            return False
        number, _calls = _calls, _calls + 1
        if number < self._told["call"]:
            raise RuntimeError(
                "ParameterServer: a script can train with parameter servers once: its workers would have to repeat the first "
                "training to reach the second. Put the second one into another script, or use one training with more epochs."
            )
        return True

    def work(
        self, model: Any, optimizer: Any, loader: Any, compute: Callable[[Any], tuple[dict[str, Any], Any]],
        describe: Callable[[Any, int], dict[str, Any]],
    ) -> None:  # fmt: skip
        """In a worker: compute pieces until training is over. `compute(batch)` gives gradients by key and statistics."""
        assert self._told is not None
        worker = Worker(self._told, _names(model, optimizer))
        try:
            work(worker, loader, compute, describe)
        finally:
            worker.close()

    # For loops by hand ----------------------------------------------------------------------------------------------

    def batches(self, loader: Any, optimizer: Any, *, model: Any = None, epochs: int = 1) -> Iterator[Any]:
        """The batches of a loop written by hand: in a worker, the pieces that it computes; in the script's own process none, but
        when the loop is over the model has been trained there, too.

        ```python
        for x, y in servers.batches(loader, optimizer, model=model, epochs=3):
            loss = loss_fn(model(x), y)
            loss.backward()
            servers.step(loss)      # instead of optimizer.step()
        ```

        Args:
            loader: gives global batches.
            optimizer: whose parameters are trained; its update runs on the servers.
            model: whose buffers, such as running statistics, are kept on the servers, too.
        """
        if self.is_worker():
            assert self._told is not None
            self._names = _names(model, optimizer)
            self._worker = worker = Worker(self._told, self._names)
            optimizer.zero_grad()
            for batch, _ in worker.pieces(loader):
                yield batch
            worker.close()
            raise SystemExit(0)  # the rest of the script is the business of the process that started this one
        self.begin(model, optimizer, loader)
        try:
            for epoch in range(epochs):
                results = self.train_epoch(epoch, _length(loader))
                total = np.sum([r["numbers"][:2] for r in results], axis=0)
                self.history.append({"epoch": epoch + 1, "loss": float(total[0] / total[1])})
        finally:
            self.end()

    def step(self, loss: Tensor | float = 0.0) -> None:
        """In a loop written by hand, after `loss.backward()`: push the gradients, and clear them."""
        if self._worker is None or self._names is None:
            raise RuntimeError("ParameterServer.step: call it in a loop over `servers.batches(loader, optimizer)`.")
        worker, samples = self._worker, self._worker._weight
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        worker.push(gradients_of(self._names), {"numbers": [value * samples, samples], "shapes": []})
        for p in self._names.params:
            p.grad = None


class _Run:
    """A training, in the process that started it: the cluster of the servers, and the workers."""

    def __init__(
        self, strategy: ParameterServer, names: Names, optimizer: Any, loader: Any, epoch: int, call: int
    ) -> None:
        self._strategy, self._names, self._optimizer, self._first = strategy, names, optimizer, epoch
        s = strategy
        self._pool: WorkerPool | None = None
        self._settings: dict[int, dict[str, float]] = {}
        options = {"engine": s.engine, "address": s._address, "token": s._token, "hosts": s._hosts}
        self.cluster = Cluster(ps=s.servers, **options)  # type: ignore[arg-type]
        try:
            name = "training" if s.directory else f"training-{secrets.token_hex(4)}"
            self._kv = KVStore(
                "dist", cluster=self.cluster, rank=s.workers + s.backup, num_workers=s.workers, consistency=s.consistency,
                name=name, directory=s.directory, spares=s.backup, observer=True,
            )  # fmt: skip
            self._send_model()
            seeds = default_generator.state._data
            facts = {
                "cluster": self.cluster.file, "store": name, "workers": s.workers, "backup": s.backup,
                "consistency": s._consistency, "compression": s.compression, "directory": s.directory, "call": call,
                "seed": mix(int(seeds[0]), int(seeds[1])), "loader_seed": getattr(loader, "seed", None),
                "first_epoch": getattr(loader, "epoch", epoch) - epoch,
            }  # fmt: skip
            count = s.workers + s.backup
            threads = s._threads or max(1, len(os.sched_getaffinity(0)) // count)

            def make(directory: str, lifeline: int) -> Any:
                if s.engine == "local":
                    return make_local(directory, lifeline, s._hosts, count)
                code = os.getcwd() if s._address is not None else None  # which Ray copies to the other nodes
                return make_ray(directory, lifeline, s._address, s._token, s._hosts, -(-count // s._hosts), code)

            from .launch import this_program  # `import weft` does not need what it imports

            program = this_program("ParameterServer: the workers run the script again", "Put the training into a file.")
            self._pool = WorkerPool(make, s._hosts, count, program, facts, threads)
        except BaseException:
            self.close()
            raise

    def _send_model(self) -> None:
        """Make the keys, unless the servers have them from their journals."""
        kv, names = self._kv, self._names
        kv._ask_all({"kv": "end", "ended": False})
        there = set(kv.keys())
        for key, tensor in names.tensors.items():
            kv.init(key, tensor._data, rows=names.is_table(key), rule="add")
        if there:
            return
        kv._optimizer = (self._optimizer, None, {})
        kv._set_rules(list(names.groups), names.groups)
        for number, p in enumerate(names.params):
            if self._optimizer.state.get(p):
                self._send_state(f"p{number}", self._optimizer.state[p])

    def _send_state(self, key: str, state: dict[str, Any]) -> None:
        """Continue with the state that an optimiser has."""
        step = int(float(state["step"])) if "step" in state else 0
        arrays = {k: np.asarray(v._data) for k, v in state.items() if isinstance(v, Tensor) and k != "step"}
        for server, cut in self._parts(key):
            here = [np.ascontiguousarray(a[cut] if a.ndim else a) for a in arrays.values()]
            message = {"kv": "assign", "key": key, "state": list(arrays), "step": step, "value": False}
            self._kv._submit(server, message, here, key).wait(self._kv.timeout)

    def _parts(self, key: str) -> list[tuple[int, Any]]:
        """The servers of a key, each with the rows that it has."""
        count = self._kv._servers.servers
        if not self._names.is_table(key):
            return [(self._kv._server(key), slice(None))]
        return [(server, slice(server, None, count)) for server in range(count)]

    def epoch(self, epoch: int, batches: int) -> Results:
        """Train an epoch, and take over what the servers have then."""
        self._update_settings()
        number = epoch - self._first
        opened, _ = self._kv._submit(0, {"kv": "epoch", "epoch": number, "batches": batches}, (), "#epoch").wait(
            self._kv.timeout
        )
        self._kv._ask_all({"kv": "level", "clock": opened["clock"], "epoch": number})
        failpoints.reach("psd-epoch")
        asked = self._kv._submit(0, {"kv": "progress", "wait": number}, (), "#progress")
        while not asked._done.wait(GLANCE_SECONDS):
            assert self._pool is not None
            self._pool.check()
        answer, _ = asked.wait(self._kv.timeout)
        self._receive_model()
        found: Results = answer["results"]
        return found

    def _update_settings(self) -> None:
        """Send settings that have changed, such as a learning rate by its schedule."""
        for number, group in enumerate(self._optimizer.param_groups):
            now = flat_settings({k: v for k, v in group.items() if k != "params"})
            if self._settings.get(number, now) != now:
                self._kv._ask_all({"kv": "settings", "group": number, "settings": now})
            self._settings[number] = now

    def _receive_model(self) -> None:
        asked = [
            (key, cut, self._kv._submit(server, {"kv": "state", "key": key}, (), key))
            for key in self._names.tensors
            for server, cut in self._parts(key)
        ]
        states: dict[str, dict[str, Any]] = {}
        for key, cut, operation in asked:
            answer, (value, *arrays) = operation.wait(self._kv.timeout)
            tensor = self._names.tensors[key]
            tensor._data[cut if tensor.ndim else ...] = value
            if key.startswith("p") and answer["step"]:
                state = states.setdefault(key, {"step": np.float32(answer["step"])})
                for name, array in zip(answer["names"], arrays, strict=True):
                    if array.shape and self._names.is_table(key):
                        whole = state.setdefault(name, np.zeros(tensor.shape, array.dtype))
                        whole[cut] = array
                    else:
                        state[name] = array
        self._take_over(states)

    def _take_over(self, states: dict[str, dict[str, Any]]) -> None:
        optimizer = self._optimizer
        found = optimizer.state_dict()
        for number in range(len(self._names.params)):
            state = states.get(f"p{number}")
            if state is not None:
                found["state"][number] = (
                    state if optimizer.counts_steps else {k: v for k, v in state.items() if k != "step"}
                )
        optimizer.load_state_dict(found)

    def close(self) -> None:
        try:
            if self._pool is not None:
                if self._pool._error is None:
                    self._kv._ask_all({"kv": "end", "ended": True})
                    self._pool.wait()
                self._pool.close()
        finally:
            if hasattr(self, "_kv"):
                self._kv._servers.close()
            self.cluster.close()


def _names(model: Any, optimizer: Any) -> Names:
    groups: list[Sequence[Tensor]] = [group["params"] for group in optimizer.param_groups]
    buffers: Iterable[Tensor] = model.buffers() if model is not None else ()
    return Names(groups, list(buffers))


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        raise TypeError(
            "ParameterServer: the number of batches must be known. Expected a loader with a length, such as a DataLoader of a "
            f"dataset with random access. Got {type(loader).__name__}."
        ) from None


__all__ = ["ParameterServer"]
