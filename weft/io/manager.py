"""CheckpointManager: writes checkpoints in the background and keeps the ones worth keeping."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from .checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointWarning,
    _manifest,
    best,
    latest,
    list_checkpoints,
    snapshot,
    write_snapshot,
)
from .durable import TEMPORARY, recover

_LOCK = ".lock"


class CheckpointManager:
    """The checkpoints of one run.

    `save` copies what it is given and returns; a thread writes it. There is one write at a time: a second `save` waits
    for the first, so that memory holds at most one copy. What goes wrong in the thread is said by a
    `CheckpointWarning` at the next call, and older checkpoints stay as they were.

    Old checkpoints are removed after each successful write, except the last `keep` and the best by `score`.
    One process at a time writes to a directory; a second one is refused.

    Args:
        directory: where; it is made if need be.
        keep: how many of the latest to keep; None keeps all.
        score: the name of the score by which one is best; None keeps none for that.
        mode: "min" if less is better, else "max".
        background: write in a thread; False writes before `save` returns, and raises what goes wrong.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int | None = 3,
        score: str | None = None,
        mode: str = "min",
        background: bool = True,
    ) -> None:
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise ValueError(
                f"CheckpointManager: keep must be an integer of at least 1, or None. Got {keep!r}."
            )
        if mode not in ("min", "max"):
            raise ValueError(f"CheckpointManager: mode must be 'min' or 'max'. Got {mode!r}.")
        self.directory, self.keep, self.score, self.mode = Path(directory), keep, score, mode
        self.background = background
        self.failure: CheckpointError | None = None
        """why the latest write failed; None if it did not"""
        self._unsaid: CheckpointError | None = None
        self._work: queue.Queue[Any] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = _lock(self.directory)
        recover(self.directory)

    def save(
        self,
        step: int,
        parts: Mapping[str, Any],
        scores: Mapping[str, float] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint of `parts` as they are now."""
        if self._lock is None:
            raise RuntimeError("CheckpointManager: it is closed.")
        self.wait()
        job = (step, snapshot(parts), dict(scores or {}), dict(facts or {}))
        if not self.background:
            self._write(*job)
            if self.failure is not None:
                self._unsaid = None
                raise self.failure
            return
        if self._thread is None:
            # A daemon, so that a program that ends in an error does not wait here for ever; `close` waits for it.
            self._thread = threading.Thread(target=self._serve, name="weft-checkpoint", daemon=True)
            self._thread.start()
        self._work.put(job)

    def wait(self) -> None:
        """Return when the last checkpoint is on the disk; warn if it could not be written."""
        self._work.join()
        failure, self._unsaid = self._unsaid, None
        if failure is not None:
            warnings.warn(str(failure), CheckpointWarning, stacklevel=2)

    def latest(self) -> Checkpoint | None:
        """The newest good checkpoint."""
        self._work.join()
        return latest(self.directory)

    def best(self) -> Checkpoint | None:
        """The good checkpoint with the best score."""
        self._work.join()
        return None if self.score is None else best(self.directory, self.score, self.mode)

    def close(self) -> None:
        """Wait for the last write and let go of the directory."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._work.put(None)
                self._thread.join()
                self._thread = None
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # In the thread ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            job = self._work.get()
            try:
                if job is None:
                    return
                self._write(*job)
            finally:
                job = None  # the copies may be large: let them go before waiting again
                self._work.task_done()

    def _write(self, step: int, packed: Any, scores: dict[str, float], facts: dict[str, Any]) -> None:
        self.failure = None
        try:
            write_snapshot(self.directory, step, packed, scores, facts)
            self._prune()
        except CheckpointError as error:
            self.failure = self._unsaid = error
        except Exception as error:
            self.failure = self._unsaid = CheckpointError(
                f"checkpoint: step {step} could not be written: {error!r}."
            )

    def _prune(self) -> None:
        """Remove what is neither among the last nor the best. A crash in between removes less, never more."""
        if self.keep is None:
            return
        paths = list_checkpoints(self.directory)
        chosen = self._best_of(paths)
        for path in paths[: -self.keep]:
            if path != chosen:
                aside = path.with_name(
                    f"{TEMPORARY}old-{path.name}"
                )  # a half-removed one must not look like one
                os.rename(path, aside)
                shutil.rmtree(aside, ignore_errors=True)

    def _best_of(self, paths: list[Path]) -> Path | None:
        if self.score is None:
            return None
        scored = []
        for path in paths:
            try:
                value = _manifest(path)["scores"].get(self.score)
            except (CheckpointError, OSError):
                continue  # damaged: nobody's best; `latest` names it to the user
            if value is not None:
                scored.append((value if self.mode == "min" else -value, path))
        return min(scored)[1] if scored else None


def _lock(directory: Path) -> int:
    """An open file that keeps other processes from writing to `directory`; closing it, or dying, lets go."""
    handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return handle  # no such lock on this system
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return handle  # a file system without locks
        os.close(handle)
        raise CheckpointError(
            f"checkpoint: another run is writing to {directory}. Wait for it, stop it, or use another directory."
        ) from None
    return handle
