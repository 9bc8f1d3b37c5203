"""Checkpoints of variables that are on several tasks: each task writes its shard, the client the index (`weft.io.shards`).

All variables are locked, on all tasks, before the first is copied: the values are of one moment. Writing to disk happens after
that, beside the steps. Tasks on several hosts need a file system that they share.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.declared.building import GraphOp
from ..graph.declared.serialize import RestoreOp, SaveOp
from ..graph.declared.variables import State, locked
from ..io.shards import read_sharded, shard_file, write_index, write_shard
from .remote_messages import TaskLostError
from .remote_store import KEYS

if TYPE_CHECKING:
    from .cluster import Cluster


def save_variables(cluster: Cluster, path: Any, states: Mapping[str, State] | None) -> None:
    """Write a checkpoint of `states`, by the names they get in it, or of everything that is on the tasks."""
    path = os.path.abspath(path)
    save = secrets.token_hex(4)
    here: dict[str, State] = {}
    names: dict[int, dict[str, str]] = {}
    if states is None:
        tasks: dict[int, list[str] | None] = {place.number: None for place in cluster._places}
    else:
        here = {name: s for name, s in states.items() if s.home is None}
        for name, state in states.items():
            if state.home is not None:
                names.setdefault(cluster._task_of_state(state), {})[cluster.keys.of(state)] = name
        tasks = {task: list(keys) for task, keys in names.items()}
    cluster.wait_for(tasks, None)
    hub = cluster.hub
    try:
        begun = hub.call_all({t: ({"do": "save_begin", "save": save, "keys": keys}, ()) for t, keys in tasks.items()})
        with locked(list(here.values()), []):
            values = {name: np.array(s.tensor._data, order="C") for name, s in here.items()}
            hub.call_all({t: ({"do": "save_copy", "save": save}, ()) for t in tasks})
        shards: dict[str, str] = {}
        keys: dict[str, str] = {}
        messages = {}
        for task, (answer, _) in begun.items():
            renamed = names.get(task, {})
            file = shard_file(path, save, cluster._places[task].name)
            shards.update({renamed.get(k, k): file.name for k in answer["keys"]})
            keys.update({k: renamed.get(k, k) for k in answer["keys"]})
            messages[task] = ({"do": "save_write", "save": save, "file": str(file), "names": renamed}, ())
        hub.call_all(messages, 3600.0)
        if values:
            file = shard_file(path, save, "client")
            write_shard(file, values)
            shards.update(dict.fromkeys(values, file.name))
        write_index(path, shards, {KEYS: keys})
    except BaseException:
        for task in tasks:
            with contextlib.suppress(TaskLostError, TimeoutError):
                hub.call(task, {"do": "save_end", "save": save}, seconds=5.0)
            shard_file(path, save, cluster._places[task].name).unlink(missing_ok=True)
        raise


def restore_variables(cluster: Cluster, path: Any, wanted: Mapping[str, tuple[int, str]]) -> None:
    """Read variables into tasks: `wanted` has task and name in the checkpoint, by key. All are checked before any is stored."""
    path = os.path.abspath(path)
    save = secrets.token_hex(4)
    by_task: dict[int, dict[str, str]] = {}
    for key, (task, name) in wanted.items():
        by_task.setdefault(task, {})[key] = name
    cluster.wait_for(by_task, None)
    reads: dict[int, Any] = {
        t: ({"do": "restore_read", "save": save, "path": path, "names": n}, ()) for t, n in by_task.items()
    }
    try:
        cluster.hub.call_all(reads, 3600.0)
    except BaseException:
        for task in by_task:
            with contextlib.suppress(TaskLostError, TimeoutError):
                cluster.hub.call(task, {"do": "save_end", "save": save}, seconds=5.0)
        raise
    cluster.hub.call_all({t: ({"do": "restore_store", "save": save}, ()) for t in by_task})


class ClusterSaveOp(GraphOp):
    """`save_variables` in a step of a cluster; runs in the client's process."""

    effects = frozenset(("reads", "host"))

    def __init__(self, cluster: Cluster, op: SaveOp) -> None:
        super().__init__(op.name)
        self.cluster, self.op = cluster, op

    def run(self, arrays: Any) -> tuple[Any, ...]:
        if all(s.device is None for s in self.op.states.values()):
            return self.op.run(arrays)
        self.cluster.make(self.op.states.values())
        save_variables(self.cluster, self.op.path, self.op.states)
        self.cluster.remember(self.op.path)
        return ()


class ClusterRestoreOp(GraphOp):
    """`restore_variables` in a step of a cluster; runs in the client's process."""

    effects = frozenset(("writes", "host"))

    def __init__(self, cluster: Cluster, op: RestoreOp) -> None:
        super().__init__(op.name)
        self.cluster, self.op = cluster, op

    def run(self, arrays: Any) -> tuple[Any, ...]:
        cluster, states = self.cluster, self.op.states
        if all(s.device is None for s in states.values()):
            return self.op.run(arrays)
        cluster.make(states.values())
        here = {name: s for name, s in states.items() if s.home is None}
        found = read_sharded(self.op.path, here)
        there = {cluster.keys.of(s): (cluster._task_of_state(s), n) for n, s in states.items() if s.home is not None}
        restore_variables(cluster, self.op.path, there)
        RestoreOp(self.op.path, here).store(found)
        return ()


def in_process(cluster: Cluster, op: Any) -> Any:
    """The op that does in the client's process what `op` does on several tasks."""
    if isinstance(op, SaveOp):
        return ClusterSaveOp(cluster, op)
    return ClusterRestoreOp(cluster, op) if isinstance(op, RestoreOp) else op
