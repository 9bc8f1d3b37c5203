"""`Trainer(workers=n)` in a script: `fit` starts workers that run the same script up to the same call.

The script's own process computes nothing. It waits for the workers and then takes over their results: weights, optimiser
state, history. A worker reaches earlier calls of `fit` again; their results are on disk, so it takes those over, too.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..distributed import context
from ..io import latest
from . import state

if TYPE_CHECKING:
    from .trainer import Trainer

_calls = 0  # of `fit` with workers, in this process
_directory: tempfile.TemporaryDirectory[str] | None = None  # of the results, in the script's own process


def done_elsewhere(trainer: Trainer) -> bool:
    """Whether a call of `fit` is complete: another process did it, and `trainer` has the results.

    Raises:
        RuntimeError: the workers failed, or there is no script that they could run.
    """
    global _calls
    number, _calls = _calls, _calls + 1
    run = context.current()
    if run is None:
        _start(trainer, number)
        return True
    if run.results is not None and number < run.fit:
        _take_over(trainer, Path(run.results).parent / str(number))
        return True
    return False


def _start(trainer: Trainer, number: int) -> None:
    global _directory
    from ..distributed.launch import Run, this_program

    if _directory is None:
        _directory = tempfile.TemporaryDirectory(prefix="weft-results-")
    results = os.path.join(_directory.name, str(number))
    assert trainer.workers is not None and trainer.shards is not None
    program = this_program(
        "Trainer: workers=… runs the script again in every worker",
        "Put the training into a file and start it with `weft run --workers N file.py`.",
    )
    run = Run(program, trainer.workers, trainer.shards, results=results, fit=number, memory=trainer.memory)
    status = run.run()
    if status:
        raise RuntimeError(f"Trainer: the workers ended with status {status}; their messages are above.")
    _take_over(trainer, Path(results))


def _take_over(trainer: Trainer, directory: Path) -> None:
    checkpoint = latest(directory)
    if checkpoint is None:
        raise RuntimeError(f"Trainer: the workers left no results in {directory}.")
    state.restore(trainer, checkpoint, None, None)
