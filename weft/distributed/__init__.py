"""Distributed training: one program, run by many workers, with the same result on any number of them.

See `docs/distributed.md` for the guide and the guarantees. `import weft` does not import this package; importing it starts
nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from .context import WORKER, current

if TYPE_CHECKING:
    from .cluster import Cluster as Cluster
    from .collectives import all_gather as all_gather
    from .collectives import all_reduce as all_reduce
    from .collectives import barrier as barrier
    from .collectives import broadcast as broadcast
    from .collectives import empty as empty
    from .collectives import reduce_scatter as reduce_scatter
    from .communicator import CorruptionError as CorruptionError
    from .communicator import DivergenceError as DivergenceError
    from .communicator import WorkerLostError as WorkerLostError
    from .embedding import Embedding as Embedding
    from .kvstore import KVStore as KVStore
    from .parameter_server import ParameterServer as ParameterServer
    from .remote_messages import TaskLostError as TaskLostError
    from .server_state import Bounded as Bounded
    from .shard import weighted_mean as weighted_mean
    from .steps import step as step
    from .writes import writing as writing

# What needs the whole package, which the modules below import this one from: loaded at first use.
_ELSEWHERE = {
    "all_gather": "collectives", "all_reduce": "collectives", "barrier": "collectives", "broadcast": "collectives",
    "empty": "collectives", "reduce_scatter": "collectives", "step": "steps", "weighted_mean": "shard", "writing": "writes",
    "CorruptionError": "communicator", "DivergenceError": "communicator", "WorkerLostError": "communicator",
    "Cluster": "cluster", "TaskLostError": "remote_messages", "Embedding": "embedding",
    "KVStore": "kvstore", "Bounded": "server_state", "ParameterServer": "parameter_server",
}  # fmt: skip

__all__ = [
    "Bounded", "Cluster", "CorruptionError", "DivergenceError", "Embedding", "KVStore", "ParameterServer", "TaskLostError",
    "WorkerLostError", "all_gather", "all_reduce", "barrier", "broadcast", "empty",
    "is_lead", "rank", "reduce_scatter", "step", "weighted_mean", "world_size",
    "writing",
]  # fmt: skip

_team: Any = None  # this worker's team, once it has joined a run


def join(team: Any) -> None:
    """Make `team` the one that the functions below speak of."""
    global _team
    _team = team


def is_lead() -> bool:
    """Whether this process is the one that prints, logs and writes checkpoints: always, outside of a distributed run.

    >>> wf.distributed.is_lead()
    True
    """
    if current() is None:
        return True
    return bool(_team.peers.lead()) if _team is not None else os.environ.get(WORKER, "0") == "0"


def finish() -> None:
    """Called when this worker's program is complete."""
    if _team is not None:
        _team.peers.retire()


def rank() -> int:
    """The number of this worker among those of the run, from 0; a worker that is started again has the same. 0 outside of a run.

    In an elastic run (`--workers 2..8`) it is the position among the workers that are there now.

    >>> wf.distributed.rank()
    0
    """
    run = current()
    if run is not None and run.workers:
        return int(os.environ.get(WORKER, "0"))
    if _team is None:
        return 0
    return int(_team.peers.live().index(_team.row)) + (_world() >> 32)


def world_size() -> int:
    """How many workers the run has, in an elastic run how many there are now; 1 outside of a run.

    >>> wf.distributed.world_size()
    1
    """
    run = current()
    if run is not None and run.workers:
        return run.workers
    if _team is None:
        return 1
    return _world() & 0xFFFFFFFF or len(_team.peers.live())


def _world() -> int:
    """Workers on hosts before this one, and on all hosts, as the relay says; 0 if there is one host."""
    from .board import WORLD

    return int(_team.board.load("header", WORLD))


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
    raise AttributeError(f"module 'weft.distributed' has no attribute {name!r}")
