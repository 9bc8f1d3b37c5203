"""`python -m weft.distributed.parameter_server_worker SCRIPT`: a worker of a `ParameterServer`, and what it does.

The worker runs the user's script up to the call that trains. Then it asks the servers for leases: a lease is a piece
of the data, a slot and a clock. It pulls the weights, computes the gradients of the piece, pushes them, and says that
the piece is done when all servers have acknowledged. It holds nothing that matters: one that is killed gets the same
lease again.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..ops.array.row_sparse import RowSparse
from ..tensor import Tensor
from . import failpoints, ledger, tree
from .cluster import Cluster
from .kvstore import KVStore
from .kvstore_client import Operation
from .parameter_server_launch import VARIABLE
from .randomness import Randomness
from .rows import coalesce
from .server_state import Bounded

Gradient = Any
"""a tensor, rows (indices, values), or None"""


def told() -> dict[str, Any] | None:
    """What this process was told if it is a worker; None in any other process."""
    text = os.environ.get(VARIABLE)
    return None if text is None else dict(json.loads(text))


class Names:
    """The keys of a model: `p0`, `p1` … for its parameters and `b0` … for its floating-point buffers.

    Args:
        groups: the parameters of each group of the optimiser.
        buffers: of the model.
    """

    def __init__(self, groups: Sequence[Sequence[Tensor]], buffers: Sequence[Tensor]) -> None:
        self.params = [p for group in groups for p in group]
        self.groups = {f"p{i}": g for i, g in enumerate([g for g, group in enumerate(groups) for _ in group])}
        self.buffers = [b for b in buffers if b.dtype.kind == "f" or b.dtype.name == "bfloat16"]
        self.tensors = {f"p{i}": p for i, p in enumerate(self.params)} | {
            f"b{i}": b for i, b in enumerate(self.buffers)
        }

    def is_table(self, key: str) -> bool:
        """Whether a parameter has row-sparse gradients, so that only rows travel."""
        return bool(getattr(self.tensors[key], "sparse_grad", False)) and key.startswith("p")


class Worker:
    """A worker of a run.

    Args:
        facts: what it was told.
        names: the keys of its model.
    """

    def __init__(self, facts: Mapping[str, Any], names: Names) -> None:
        self.facts, self.names = facts, names
        self.process = int(facts["process"])
        self._cluster = Cluster.join(facts["cluster"])
        self._kv = KVStore(
            "dist", cluster=self._cluster, rank=self.process, num_workers=facts["workers"], name=facts["store"],
            generation=facts["generation"], consistency=_consistency(facts["consistency"]), spares=facts["backup"],
            compression=facts["compression"], directory=facts["directory"],
        )  # fmt: skip
        self._randomness = Randomness(facts["seed"])
        self._table_keys = [key for key in names.tensors if names.is_table(key)]
        self._dense: dict[int, list[str]] = {}
        for key in names.tensors:
            if key not in self._table_keys:
                self._dense.setdefault(self._kv._server(key), []).append(key)
        self._lease: dict[str, Any] | None = None
        self._done: dict[str, Any] | None = None
        self._weight = 0.0
        self._pulled: dict[str, np.ndarray] = {}

    # Leases ---------------------------------------------------------------------------------------------------------

    def pieces(self, loader: Any) -> Iterator[tuple[Any, int]]:
        """The pieces that this worker computes, with their numbers of samples, and with the weights in the model."""
        epoch, number = -1, -1
        batches: Iterator[ledger.GlobalBatch] = iter(())
        batch: Any = None
        wanted = 0
        while True:
            lease = self._ask(wanted)
            if "over" in lease:
                return
            if "gate" in lease:  # nothing is left of this epoch
                if self.facts["consistency"] != "sync":  # in sync a slot is no process
                    self._kv._ask_all({"kv": "retire", "slot": self.process, "epoch": wanted})
                wanted = lease["gate"]
                continue
            if wanted != epoch:
                self._begin(loader, wanted)
                epoch, batches, number = wanted, ledger.batches(loader), -1
            k = lease["piece"] // self.facts["workers"]
            while number < k:
                batch, number = next(batches), number + 1
            if not self._pull(lease["clock"]):
                continue  # others have done it meanwhile
            failpoints.reach("psw-pulled")
            self._lease = {**lease, "epoch": wanted}
            shard = lease["piece"] % self.facts["workers"]
            samples = _share(batch.samples, self.facts["workers"], shard)
            self._weight = float(samples)
            if not samples:
                self.push({}, {"numbers": [0.0, 0.0], "shapes": []})
                continue
            with self._randomness.shard((wanted, k), shard):
                yield batch.shard(shard, self.facts["workers"]), samples
            if self._lease is not None:
                raise RuntimeError(
                    "ParameterServer: the batch was not pushed. Call `servers.step(loss)` once for every batch, after "
                    "`loss.backward()`."
                )

    def _begin(self, loader: Any, epoch: int) -> None:
        if hasattr(loader, "set_epoch"):
            if self.facts["loader_seed"] is not None:
                loader.seed = self.facts["loader_seed"]
            loader.set_epoch(self.facts["first_epoch"] + epoch)

    def _ask(self, epoch: int) -> dict[str, Any]:
        done, self._done = self._done, None
        message = {"kv": "lease", "epoch": epoch, "done": done}
        answer, _ = self._kv._submit(0, message, (), "#lease").wait(self._kv.timeout)
        return answer

    # Weights and gradients ------------------------------------------------------------------------------------------

    def _pull(self, clock: int) -> bool:
        """Bring the weights of a clock into the model; whether they are still there."""
        asked: list[tuple[list[str], Operation]] = []
        for server, keys in self._dense.items():
            message = {"kv": "pull", "keys": keys, "clocks": [clock] * len(keys)}
            asked.append((keys, self._kv._submit(server, message, (), f"#{server}")))
        tables = []
        for key in self._table_keys:
            self._kv._clocks[key] = clock
            tables.append((key, self._kv._ask(key, 0)))
        there = True
        for keys, operation in asked:
            answer, arrays = operation.wait(self._kv.timeout)
            if answer.get("stale"):
                there = False
                continue
            for key, array in zip(keys, arrays, strict=True):
                self.names.tensors[key]._data[...] = array
                if key.startswith("b"):
                    self._pulled[key] = array
        for key, found in tables:
            try:
                self.names.tensors[key]._data[...] = found()
            except RuntimeError:
                there = False
        return there

    def push(self, gradients: Mapping[str, Gradient], result: dict[str, Any]) -> None:
        """Push the gradients of the piece and wait until all servers have them: then it is done."""
        lease = self._lease
        if lease is None:
            raise RuntimeError(
                "ParameterServer: there is no batch to push. Call `servers.step(loss)` once for every batch."
            )
        sent = []
        for server, keys in self._dense.items():
            items, arrays = [], []
            for key in keys:
                item, array = self._item(key, gradients)
                items.append(item)
                arrays += array
            sent.append(self._kv._submit(server, {"kv": "push", "items": items}, arrays, f"#{server}"))
        for key in self._table_keys:
            sent += self._push_rows(key, gradients.get(key))
        for operation in sent:
            operation.wait(self._kv.timeout)
            failpoints.reach("psw-pushed")
        told = {**result, "process": self.process, "clock": lease["clock"], "time": time.time()}
        self._done = {"piece": lease["piece"], "epoch": lease["epoch"], "result": told}
        self._lease = None

    def _item(self, key: str, gradients: Mapping[str, Gradient]) -> tuple[dict[str, Any], list[np.ndarray]]:
        assert self._lease is not None
        item = {
            "key": key, "slot": self._lease["slot"], "clock": self._lease["clock"], "kind": "none", "weight": self._weight,
        }  # fmt: skip
        tensor = self.names.tensors[key]
        if key.startswith("b"):
            if not self._weight:
                return item, []
            return {**item, "kind": "dense"}, [np.ascontiguousarray(tensor._data - self._pulled[key])]
        gradient = gradients.get(key)
        if gradient is None:
            return item, []
        array = np.array(gradient._data)
        compressor = self._kv._compressor
        if compressor is None:
            return {**item, "kind": "dense"}, [array]
        facts, codes = compressor.compress(key, array)
        return {**item, "kind": compressor.kind, "compressed": facts}, [codes]

    def _push_rows(self, key: str, gradient: Gradient) -> list[Operation]:
        assert self._lease is not None
        count = self._kv._servers.servers
        item = {
            "key": key,
            "slot": self._lease["slot"],
            "clock": self._lease["clock"],
            "kind": "none",
            "weight": self._weight,
        }
        if gradient is None:
            return [self._kv._submit(s, {"kv": "push", "items": [item]}, (), key) for s in range(count)]
        rows, values = gradient
        indices, merged = coalesce(np.asarray(rows._data, np.int64).reshape(-1), np.asarray(values._data))
        item["kind"] = "rows"
        sent = []
        for server in range(count):
            here = indices % count == server
            arrays = [indices[here] // count, np.ascontiguousarray(merged[here])]
            sent.append(self._kv._submit(server, {"kv": "push", "items": [item]}, arrays, key))
        return sent

    def close(self) -> None:
        self._kv.close()
        self._cluster.close()


def gradients_of(names: Names) -> dict[str, Any]:
    """The gradients that the parameters have, by key; those of tables as (rows, values)."""
    found: dict[str, Any] = {}
    for number, p in enumerate(names.params):
        g = p.grad
        if g is None:
            continue
        key = f"p{number}"
        if isinstance(g, RowSparse):
            found[key] = (g.indices, g.values) if names.is_table(key) else g.to_dense()
        else:
            found[key] = g
    return found


def _consistency(dumped: Any) -> Any:
    return Bounded(dumped) if isinstance(dumped, int) else dumped


def _share(samples: int, pieces: int, piece: int) -> int:
    start, stop = tree.bounds(samples, pieces, piece)
    return stop - start


def work(
    worker: Worker,
    loader: Any,
    compute: Callable[[Any], tuple[dict[str, Any], Any]],
    describe: Callable[[Any, int], Any],
) -> None:
    """Compute pieces until there are no more: `compute(batch)` gives (gradients, statistics)."""
    for batch, samples in worker.pieces(loader):
        gradients, statistics = compute(batch)
        worker.push(gradients, describe(statistics, samples))


def main(argv: list[str]) -> None:
    facts = told()
    if facts is None:
        raise SystemExit(f"{__name__}: this module is started by `weft.distributed.ParameterServer`.")
    from .task import end_with

    end_with(facts["lifeline"])
    sys.stdout = open(os.devnull, "w")  # the script's own process prints
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
