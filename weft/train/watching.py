"""What a `Trainer` in a distributed run tells those who watch it: events, its position, and scalars for TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..distributed import context
from ..distributed.events import tell
from ..distributed.figures import position
from ..distributed.status import RESTARTS

if TYPE_CHECKING:
    from ..io import Checkpoint
    from .trainer import Trainer


def entered(trainer: Trainer) -> None:
    """The trainer of this worker takes part in the run."""
    if trainer._sharded.is_lead:
        place = trainer.checkpoint_dir
        tell("fit", checkpoint_dir=None if place is None else os.path.abspath(place), trained_steps=trainer.step)


def moved(trainer: Trainer) -> None:
    """A step was made."""
    trainer._sharded.parallel.team.figures.position = position(trainer.epoch, trainer.batches)


def resumed(found: Checkpoint | None) -> Checkpoint | None:
    """The run continues from a checkpoint; called once per run."""
    if found is not None:
        tell("resume", path=os.path.abspath(found.path), trained_steps=found.step)
    return found


def written(step: int, path: Path, seconds: float) -> None:
    """A checkpoint was written."""
    tell("checkpoint", path=os.path.abspath(path), seconds=round(seconds, 6), trained_steps=step)


def scalars(trainer: Trainer) -> dict[str, float]:
    """Figures of the run for TensorBoard; none in an ordinary run."""
    run = context.current()
    if trainer._sharded is None or run is None:
        return {}
    team: Any = trainer._sharded.parallel.team
    seconds = team.figures.step_seconds
    found = {"distributed/step_seconds": seconds, "distributed/stragglers": float(len(team.stragglers.named))}
    if seconds:
        found["distributed/shards_per_second"] = run.shards / seconds
    try:
        found["distributed/restarts"] = float(Path(run.directory, RESTARTS).read_text())
    except (FileNotFoundError, ValueError):
        found["distributed/restarts"] = 0.0  # the driver has written nothing yet
    return found
