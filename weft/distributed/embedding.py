"""`wf.distributed.Embedding`: a table of vectors whose rows are spread over the servers of a cluster, and updated there.

The client never holds the table. A look-up parts the rows by server, fetches them and puts them together; gradients flow to the
fetched rows, and `step()` sends them, each row once, to the servers, whose optimiser updates them. See `docs/distributed.md`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, optim
from ..autograd.tape import is_grad_enabled
from ..errors import format_shape
from ..graph.capture.tracing import CaptureError
from ..graph.graph import Node
from ..io.shards import index_file, index_metadata, write_index
from ..nn import functional as F
from ..nn import initializers
from ..nn.initializers import Initializer
from ..nn.module import Layer
from ..nn.parameter import Parameter
from ..ops.array.row_sparse import RowSparse
from ..ops.core.spec import check_size
from ..optim.optimizer import Optimizer
from ..tensor import Tensor, wrap
from ..typing import DTypeLike
from .cluster import BACK_SECONDS, Cluster
from .embedding_cache import RowCache
from .embedding_graph import add_pull, add_push, graph_of
from .embedding_init import check_init
from .embedding_table import row_dtype
from .remote_messages import TaskLostError
from .table_server import load_optimizer

if TYPE_CHECKING:
    from .table_server import Answer

SAVE_SECONDS = 3600.0
CALL_SECONDS = 120.0
OWN_SERVERS = 2  # of a table for which no cluster is given
METADATA = "weft.embedding"


class Embedding(Layer):
    """Look-up table of vectors that is spread over the servers of a cluster.

    Row r of a table on n servers is on server r % n, and has the number r // n there. A row takes memory from its first update
    on. What it holds before is a function of the seed and r alone, so the contents do not depend on the number of servers.

    Args:
        num_embeddings: rows of the table; `grow` adds more.
        embedding_dim: length of each vector.
        optimizer: a class of `weft.optim`, or `functools.partial` of one with its settings. It runs on the servers. With a form
            for rows (SGD, Adagrad, Adam(lazy=True), SparseAdam) it changes the rows of a step alone; others (SGD with momentum,
            Adam) give what they would give with dense gradients, see "Sharded embeddings" in the guide.
        cluster: its tasks of the job `job` are the servers; by default two processes of this machine, ended by `close()`.
        job: by default "ps" if the cluster has it, else all tasks.
        init: `nn.init.normal`, `uniform` or `constant`; by default standard normal with a seed of the default generator.
        name: under which clients that joined the cluster share the table.
        max_rows: that may exist at once; beyond it every server evicts its share of the least recently used.
        cache_rows: how many fetched rows to keep here.
        staleness: for how many updates (`step`, `push`) of this client a kept row may be used.
        dtype: float32 or float64.

    Shapes: x of integers (…) → (…, embedding_dim).

    >>> from weft.distributed import Cluster, Embedding
    >>> with Cluster(ps=2) as cluster:
    ...     table = Embedding(1000, 4, optimizer=optim.SGD, cluster=cluster, init=nn.init.zeros())
    ...     table(wf.tensor([3, 998, 3])).sum().backward()
    ...     table.step()
    ...     table(wf.tensor([3, 998, 5]))[:, 0].tolist()
    [-0.0020000000949949026, -0.0010000000474974513, 0.0]
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, optimizer: Any = optim.SGD, cluster: Cluster | None = None,
        job: str | None = None, init: Initializer | None = None, name: str | None = None, max_rows: int | None = None,
        cache_rows: int = 0, staleness: int = 0, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = check_size("Embedding", num_embeddings, "num_embeddings", 1)
        self.embedding_dim = check_size("Embedding", embedding_dim, "embedding_dim", 1)
        self.dtype = row_dtype(np.dtype(dtype or dtypes.get_default_dtype()).name)
        self.init = check_init(initializers.normal() if init is None else init)
        path, settings = _optimizer_facts(optimizer)
        load_optimizer(path, settings, self.embedding_dim, self.dtype)  # raises for wrong settings now
        cache_rows = check_size("Embedding", cache_rows, "cache_rows")
        self._cache = None
        if cache_rows:
            staleness = check_size("Embedding", staleness, "staleness")
            self._cache = RowCache(cache_rows, staleness, self.embedding_dim, self.dtype)
        self._started = Cluster(ps=OWN_SERVERS) if cluster is None else None
        self._cluster: Cluster | None = cluster or self._started
        self._tasks = _servers(self._cluster_of(), job)
        self.name = name or f"#{secrets.token_hex(6)}"
        self._now = SimpleNamespace(
            clock=0, step=0, checkpoint=None, checkpoint_step=0
        )  # changes without a new capture
        self._writer = secrets.token_hex(8)
        self._updating = threading.Lock()  # updates arrive in the order of their numbers
        self._caching = threading.Lock()
        self._pending: list[tuple[np.ndarray, Parameter]] = []
        self._lives: dict[int, str] = {}
        self._live: dict[int, int] = {}
        count = len(self._tasks)
        if max_rows is not None:
            max_rows = -(-check_size("Embedding", max_rows, "max_rows", 1) // count)
        self._facts: dict[str, Any] = {
            "servers": count, "num": self.num_embeddings, "dim": self.embedding_dim, "dtype": self.dtype.name,
            "init": self.init.dump(), "optimizer": path, "settings": settings, "max_rows": max_rows,
        }  # fmt: skip
        try:
            self._make(self._tasks)
        except BaseException:
            self.close()
            raise

    @property
    def clock(self) -> int:
        """Updates that this client has made."""
        return int(self._now.clock)

    @property
    def checkpoint(self) -> str | None:
        """The last checkpoint that was written or read."""
        found: str | None = self._now.checkpoint
        return found

    @property
    def servers(self) -> int:
        """How many servers hold the rows."""
        return len(self._tasks)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, servers={self.servers}"

    # Look-ups -------------------------------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        graph = graph_of(x)
        if graph is not None:
            return add_pull(graph, self, x)
        rows, inverse = self._distinct(x)
        training = self.training and is_grad_enabled()
        values = self._fetch(rows, training)
        places = wrap(inverse)
        if not training:
            return F.embedding(places, wrap(values))
        leaf = Parameter(wrap(values), sparse_grad=True)
        self._pending.append((rows, leaf))
        return F.embedding(places, leaf, sparse=True)

    def pull(self, x: Any) -> Tensor:
        """The vectors for indices, without the tape: for captured functions, which take them as an input, and declared graphs.

        For a tensor of a declared graph this adds a node that fetches them at every step; `wf.gradients(loss, rows)` gives what
        `push` takes. The node runs in the process of the session, also where the rest of the step is on tasks of a cluster.

        Returns:
            A new tensor of shape (*x.shape, embedding_dim).
        """
        graph = graph_of(x)
        if graph is not None:
            return add_pull(graph, self, x)
        rows, inverse = self._distinct(x)
        values = self._fetch(rows, True)
        if len(rows) == inverse.size:  # none is repeated
            return wrap(values.reshape((*inverse.shape, self.embedding_dim)))
        return wrap(values[inverse])

    def push(self, x: Any, gradients: Any) -> Node | None:
        """Update rows with the gradients of what `pull(x)` returned; those of equal indices are summed.

        For tensors of a declared graph this adds a node that does so, and returns it.
        """
        graph = graph_of(x, gradients)
        if graph is not None:
            return add_push(graph, self, x, gradients)
        rows = np.asarray(_integers(x), np.int64).reshape(-1)
        self._check_range(rows)
        values = gradients._array("push") if isinstance(gradients, Tensor) else np.asarray(gradients)
        if values.size != len(rows) * self.embedding_dim:
            raise ValueError(
                f"Embedding: expected a gradient of {self.embedding_dim} numbers for each of {len(rows)} indices. Got shape "
                f"{format_shape(values.shape)}."
            )
        self._push_rows(rows, values.reshape(len(rows), self.embedding_dim).astype(self.dtype, copy=False))
        return None

    def _distinct(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Every row once, and for every index where it is."""
        indices = _integers(x)
        flat = indices.reshape(-1).astype(np.int64, copy=False)
        self._check_range(flat)
        if _all_differ(flat):
            return flat, np.arange(len(flat)).reshape(indices.shape)
        rows, inverse = np.unique(flat, return_inverse=True)
        return rows, inverse.reshape(indices.shape)

    def _check_range(self, rows: np.ndarray) -> None:
        if len(rows):
            low, high = int(rows.min()), int(rows.max())
            if low < 0 or high >= self.num_embeddings:
                raise IndexError(
                    f"Embedding: indices hold {low if low < 0 else high}; expected 0 to {self.num_embeddings - 1}."
                )

    def _fetch(self, rows: np.ndarray, use: bool) -> np.ndarray:
        cache = self._cache
        if cache is None or not len(rows):
            return self._fetch_remote(rows, use)
        with self._caching:
            known, cached = cache.find(rows, self._now.clock)
        values = np.empty((len(rows), self.embedding_dim), self.dtype)
        values[known] = cached
        wanted = rows[~known]
        if len(wanted):
            clock = self._now.clock
            fetched = self._fetch_remote(wanted, use)
            values[~known] = fetched
            with self._caching:
                cache.keep(wanted, fetched, clock)
        return values

    def _fetch_remote(self, rows: np.ndarray, use: bool) -> np.ndarray:
        """Part, gather, stitch."""
        count = len(self._tasks)
        if count == 1:
            return self._ask("pull", {self._tasks[0]: [rows]}, use=use)[self._tasks[0]][1][0]
        owner = rows % count
        places = {task: np.flatnonzero(owner == i) for i, task in enumerate(self._tasks)}
        answers = self._ask("pull", {task: [rows[at]] for task, at in places.items() if len(at)}, use=use)
        values = np.empty((len(rows), self.embedding_dim), self.dtype)
        for task, (_, arrays) in answers.items():
            values[places[task]] = arrays[0]
        return values

    # Updates --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Update the rows of the look-ups since the last step with their gradients: one update of the table."""
        rows: list[np.ndarray] = []
        values: list[np.ndarray] = []
        for own, leaf in reversed(self._pending):  # the order in which `backward` adds them up
            gradient: Any = leaf.grad
            if gradient is None:
                continue
            if isinstance(gradient, RowSparse):
                rows.append(own[gradient.indices._array("step")])
                values.append(gradient.values._array("step"))
            else:
                rows.append(own)
                values.append(gradient._array("step"))
        if not rows:
            raise RuntimeError(
                "Embedding: there are no gradients. Call `backward()` on a loss that was computed from look-ups, in training "
                "mode, before `step()`."
            )
        self._pending.clear()
        self._push_rows(np.concatenate(rows), np.concatenate(values))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the look-ups since the last step."""
        self._pending.clear()

    def _push_rows(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Merge gradients of equal rows in their order, as `nn.Embedding(sparse=True)` does, and send them."""
        if not _all_differ(rows):
            merged = RowSparse(wrap(rows), wrap(values), (self.num_embeddings, self.embedding_dim)).coalesce()
            rows, values = merged.indices._array("step"), merged.values._array("step")
        count = len(self._tasks)
        arrays = {self._tasks[0]: [rows, values]}
        if count > 1:
            owner = rows % count
            for i, task in enumerate(self._tasks):  # all of them: they count the updates
                at = np.flatnonzero(owner == i)
                arrays[task] = [rows[at], values[at]]
        with self._updating:
            self._now.clock += 1
            answers = self._ask("push", arrays, writer=self._writer, number=self._now.clock)
        for task, (answer, _) in answers.items():
            self._live[task], self._now.step = answer["live"], max(self._now.step, answer["step"])

    def configure(self, **settings: Any) -> None:
        """Change settings of the optimiser, for example `configure(lr=0.01)`."""
        self._ask("configure", self._all(), settings=settings)
        # tables that are made again, after a loss, begin with them
        self._facts["settings"] = {**self._facts["settings"], **settings}

    # Size -----------------------------------------------------------------------------------------------------------

    def materialize(self) -> None:
        """Make all rows now instead of at their first updates: then it is known that the servers' memory suffices."""
        for task, (answer, _) in self._ask("materialize", self._all(), seconds=SAVE_SECONDS).items():
            self._live[task] = answer["live"]

    def grow(self, num_embeddings: int) -> None:
        """Give the table more rows; those that are there keep their numbers and values."""
        num = check_size("Embedding.grow", num_embeddings, "num_embeddings", self.num_embeddings)
        self._ask("grow", self._all(), num=num)
        self.num_embeddings = self._facts["num"] = num

    def evict(self, *, unused_for: int) -> int:
        """Drop rows that were neither looked up in training nor updated in the last `unused_for` updates of the table.

        A dropped row is as it began again; its memory is used for others. Returns how many were dropped.
        """
        check_size("Embedding.evict", unused_for, "unused_for")
        answers = self._ask("evict", self._all(), unused_for=unused_for)
        if self._cache is not None:
            self._cache.clear()
        for task, (answer, _) in answers.items():
            self._live[task] = answer["live"]
        return sum(answer["count"] for answer, _ in answers.values())

    def info(self) -> dict[str, Any]:
        """Updates so far, rows that exist and were evicted, and per server its rows and bytes."""
        answers = self._ask("state", self._all())
        found = [answers[task][0] for task in self._tasks]
        return {
            "step": max(a["step"] for a in found), "rows": sum(a["live"] for a in found),
            "evicted": sum(a["evicted"] for a in found),
            "servers": [{"rows": a["live"], "bytes": a["bytes"]} for a in found],
        }  # fmt: skip

    @property
    def cache(self) -> RowCache | None:
        """The rows kept here, with counts of `hits` and `misses`."""
        return self._cache

    # Checkpoints ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all rows that exist, with the optimiser's state: every server its own, then an index that makes them valid.

        Servers on several hosts need a file system that they share. Other clients should not update meanwhile: each server's
        rows are of one moment, but not of the same one.
        """
        path = os.path.abspath(path)
        save = secrets.token_hex(4)
        try:
            answers = self._ask("save", self._all(), seconds=SAVE_SECONDS, path=path, save=save)
            shards: dict[str, str] = {}
            files = []
            for i, task in enumerate(self._tasks):
                for number, (file, names) in enumerate(answers[task][0]["files"]):
                    shards.update({f"{i}.{number}.{name}": file for name in names})
                    files.append([i, file])
            step = max(answer["step"] for answer, _ in answers.values())
            facts = {**self._facts, "step": step, "num": self.num_embeddings, "files": files}
            write_index(path, shards, {METADATA: json.dumps(facts)})
        except BaseException:
            for file in index_file(path).parent.glob(f"{os.path.basename(path)}.{save}.*"):
                file.unlink()
            raise
        self._now.checkpoint, self._now.checkpoint_step = path, step

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go back to a checkpoint, whatever number of servers wrote it. Every server reads the rows that belong to it.

        Raises:
            ValueError: it is of a table with another dimension, dtype, initialiser or optimiser.
        """
        path = os.path.abspath(path)
        facts = _read_facts(path)
        for name in ("dim", "dtype", "init", "optimizer"):
            if facts[name] != self._facts[name]:
                raise ValueError(
                    f"Embedding.load: {index_file(path)} is of a table with {name} {facts[name]!r}; this one has "
                    f"{self._facts[name]!r}."
                )
        self._make(self._tasks)  # on servers that were started again there is none
        num = max(facts["num"], self.num_embeddings)
        common = math.gcd(facts["servers"], len(self._tasks))
        messages = {}
        for i, task in enumerate(
            self._tasks
        ):  # server j of then has rows of server i of now only if they agree modulo both
            files = [file for j, file in facts["files"] if (i - j) % common == 0]
            messages[task] = self._message("load", path=path, files=files, step=facts["step"], num=num)
        answers = self._cluster_of().hub.call_all({t: (m, ()) for t, m in messages.items()}, SAVE_SECONDS)
        self.num_embeddings = self._facts["num"] = num
        self._pending.clear()
        if self._cache is not None:
            self._cache.clear()
        for task, (answer, _) in answers.items():
            self._lives[task], self._live[task] = answer["life"], answer["live"]
        self._now.step = facts["step"]
        self._now.checkpoint, self._now.checkpoint_step = path, facts["step"]

    def renew(self) -> None:
        """After the loss of a server for which there is no checkpoint: its rows begin anew, the others stay."""
        self._make(self._tasks)
        if self._cache is not None:
            self._cache.clear()

    def close(self) -> None:
        """End the servers that this table started, or let those of the given cluster forget it, unless it has a name."""
        cluster, self._cluster = getattr(self, "_cluster", None), None
        if cluster is None:
            return
        if self._started is not None:
            self._started.close()
        elif self.name.startswith("#") and not cluster._closed:
            there = [t for t in self._tasks if t in cluster.hub.links]
            cluster.hub.call_all({t: (self._message("drop"), ()) for t in there}, CALL_SECONDS)

    def __enter__(self) -> Embedding:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Calls ----------------------------------------------------------------------------------------------------------

    def _cluster_of(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("Embedding: the table is closed.")
        return self._cluster

    def _all(self) -> dict[int, list[np.ndarray]]:
        return {task: [] for task in self._tasks}

    def _message(self, how: str, **facts: Any) -> dict[str, Any]:
        return {"do": "rows", "how": how, "key": self.name, **facts}

    def _make(self, tasks: list[int]) -> None:
        cluster = self._cluster_of()
        cluster.wait_for(tasks, time.monotonic() + BACK_SECONDS)
        messages = {
            t: (self._message("make", **self._facts, server=i), ()) for i, t in enumerate(self._tasks) if t in tasks
        }
        for task, (answer, _) in cluster.hub.call_all(messages, CALL_SECONDS).items():
            self._lives[task], self._live[task] = answer["life"], answer["live"]
            self._now.step = max(self._now.step, answer["step"])
            if answer["num"] > self.num_embeddings:  # another client has made it larger
                self.num_embeddings = self._facts["num"] = answer["num"]

    def _ask(
        self, how: str, arrays: Mapping[int, list[np.ndarray]], seconds: float = CALL_SECONDS, **facts: Any
    ) -> dict[int, Answer]:
        """Call servers. After a connection broke the same is asked again: servers know which updates they have applied.

        Raises:
            TaskLostError: a server has died, with its rows.
        """
        hub = self._cluster_of().hub
        message = self._message(how, **facts)
        messages = {task: (message, given) for task, given in arrays.items()}
        try:
            answers = hub.call_all(messages, seconds)
        except TaskLostError:
            self._check_lives()
            answers = hub.call_all(messages, seconds)
        if any("missing" in answer for answer, _ in answers.values()):
            self._check_lives()
        return answers

    def _check_lives(self) -> None:
        """Raise if a server has lost its rows; wait until all are there."""
        cluster = self._cluster_of()
        cluster.wait_for(self._tasks, time.monotonic() + BACK_SECONDS)
        answers = cluster.hub.call_all({t: (self._message("state"), ()) for t in self._tasks}, CALL_SECONDS)
        lost = [t for t, (answer, _) in answers.items() if answer.get("life") != self._lives[t]]
        if not lost:
            return
        rows = sum(self._live[t] for t in lost)
        names = ", ".join(cluster.name_of(t) for t in lost)
        which = ", ".join(f"r % {self.servers} == {self._tasks.index(t)}" for t in lost)
        if self._now.checkpoint is None:
            remedy = "There is no checkpoint: `table.renew()` lets these rows begin anew and keeps the others."
        else:
            remedy = (
                f"The last checkpoint is {self._now.checkpoint}, of update {self._now.checkpoint_step} of {self._now.step}: "
                f"`table.load({self._now.checkpoint!r})` takes the whole table back to it."
            )
        raise TaskLostError(
            f"Embedding: {names} was started again and has lost its rows of the table, {rows:,} that had been updated ({which}). "
            f"{remedy}"
        )


def _integers(x: Any) -> np.ndarray:
    """Indices as an array."""
    if isinstance(x, Tensor):
        if type(x._data) is not np.ndarray:
            raise CaptureError(
                "Embedding: rows on servers cannot be looked up within a captured function. Call `rows = table.pull(x)` before, "
                "pass them in, and give the gradients to `table.push(x, gradients)`. In a declared graph, use these two as nodes."
            )
        x = x._data
    array = np.asarray(x)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Embedding: indices must be integers. Got {array.dtype.name}; use `x.astype(wf.int64)`.")
    return array


def _all_differ(rows: np.ndarray) -> bool:
    ordered = np.sort(rows)
    return not (ordered[1:] == ordered[:-1]).any()


def _servers(cluster: Cluster, job: str | None) -> list[int]:
    jobs = {place.job for place in cluster._places}
    if job is None and "ps" in jobs:
        job = "ps"
    found = [p.number for p in cluster._places if job is None or p.job == job]
    if not found:
        raise ValueError(f"Embedding: the cluster has no job {job!r}. Got {', '.join(sorted(jobs))}.")
    return found


def _optimizer_facts(optimizer: Any) -> tuple[str, dict[str, Any]]:
    """Import path and settings of an optimiser that is given as a class or a partial of one."""
    settings: dict[str, Any] = {}
    kind: Callable[..., Any] = optimizer
    if isinstance(optimizer, functools.partial):
        kind, settings = optimizer.func, dict(optimizer.keywords)
        if optimizer.args:
            raise TypeError("Embedding: settings of the optimiser must be given by name: `partial(optim.SGD, lr=0.1)`.")
    if not isinstance(kind, type) or not issubclass(kind, Optimizer):
        raise TypeError(
            "Embedding: optimizer must be a class of weft.optim or a functools.partial of one, such as "
            f"`partial(optim.Adagrad, lr=0.1)`. Got {optimizer!r}."
        )
    try:
        settings = json.loads(json.dumps(settings))
    except TypeError:
        raise TypeError(f"Embedding: settings of the optimiser must be numbers. Got {settings!r}.") from None
    return f"{kind.__module__}:{kind.__qualname__}", settings


def _read_facts(path: str) -> dict[str, Any]:
    """What `save` noted about a table."""
    found = index_metadata(path).get(METADATA)
    if found is None:
        raise ValueError(
            f"Embedding.load: {index_file(path)} is no checkpoint of a table. Expected one that `save` wrote."
        )
    facts: dict[str, Any] = json.loads(found.text())
    for _, file in facts["files"]:
        if os.path.basename(file) != file:
            raise ValueError(f"Embedding.load: {index_file(path)} names a file outside of its directory: {file!r}.")
    return facts
