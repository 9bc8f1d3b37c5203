"""Distributed training: one program, run by many workers, with the same result on any number of them.

See `docs/distributed.md` for the guide and the guarantees. `import weft` does not import this package; importing it starts
nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .context import WORKER, current

if TYPE_CHECKING:
    from .steps import step as step

__all__ = ["is_lead", "rank", "step", "world_size"]

_team: Any = None  # this worker's team, once it has joined a run


def join(team: Any) -> None:
    """Make `team` the one that the functions below speak of."""
    global _team
    _team = team


def is_lead() -> bool:
    """Whether this process is the one that prints, logs and writes checkpoints: always, outside of a distributed run.

    >>> is_lead()
    True
    """
    if current() is None:
        return True
    return bool(_team.peers.lead()) if _team is not None else os.environ.get(WORKER, "0") == "0"


def rank() -> int:
    """The number of this worker among those of the run; 0 outside of a distributed run.

    >>> rank()
    0
    """
    if _team is None:
        return 0
    return int(_team.peers.live().index(_team.row)) + (_world() >> 32)


def world_size() -> int:
    """How many workers the run has now; 1 outside of a distributed run.

    >>> world_size()
    1
    """
    if _team is None:
        return 1
    return _world() & 0xFFFFFFFF or len(_team.peers.live())


def _world() -> int:
    """Workers on hosts before this one, and on all hosts, as the relay says; 0 if there is one host."""
    from .board import WORLD

    return int(_team.board.load("header", WORLD))


def __getattr__(name: str) -> Any:
    if name == "step":  # needs the whole package, which a module below imports this one from
        from .steps import step

        return step
    raise AttributeError(f"module 'weft.distributed' has no attribute {name!r}")
