"""CheckpointManager: writes checkpoints in a background thread and prunes old ones."""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from .branch_point import remove_branch_point, write_branch_point
from .branches import Lineage, Record, new_branch, newest
from .checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointWarning,
    best,
    latest,
    list_records,
    snapshot,
    verify,
    write_snapshot,
)
from .durable import recover, remove_directory

_LOCK = ".lock"


class CheckpointManager:
    """Writes and prunes the checkpoints of one run.

    `save` copies its arguments and returns; a background thread writes them. There is one write at a time: a second `save`
    waits for the first, so memory holds at most one copy. A failed write is reported by a `CheckpointWarning` at the next
    call and leaves older checkpoints intact.

    After each write that succeeded and was verified, old checkpoints are removed except the last `keep` valid ones and
    the best by `score`. Damaged ones do not count; each is named once in a `CheckpointWarning`. Only one process at a time
    may write to a directory.

    A run that resumes from an older checkpoint calls `branch_from`. Its checkpoints then form a new branch, which `latest`
    follows from then on, also if the run is killed before it writes one. The checkpoints after the older one are abandoned:
    they are kept until the new branch has `keep` checkpoints; then only the last of them is kept, for at most `keep`
    abandoned branches. A `save` of a lower step than the newest one's does the same implicitly.

    Args:
        directory: the directory; created if missing.
        keep: the number of latest checkpoints to keep; None keeps all.
        score: the name of the score that determines the best checkpoint; None keeps none for its score.
        mode: "min" if lower scores are better, else "max".
        background: write in a thread; False writes before `save` returns, and raises on failure.

    >>> manager = wf.io.CheckpointManager("run", keep=2)
    >>> for step in range(1, 5):
    ...     manager.save(step, {"model": {"weight": wf.ones(2)}})
    >>> manager.close()
    >>> [path.name for path in wf.io.list_checkpoints("run")]
    ['step-00000003', 'step-00000004']
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
            raise ValueError(f"CheckpointManager: keep must be an integer of at least 1, or None. Got {keep!r}.")
        if mode not in ("min", "max"):
            raise ValueError(f"CheckpointManager: mode must be 'min' or 'max'. Got {mode!r}.")
        self.directory, self.keep, self.score, self.mode = Path(directory), keep, score, mode
        self.background = background
        self.failure: CheckpointError | None = None
        """the error of the latest write, or None"""
        self.lineage: Lineage | None = None
        """lineage of the next checkpoint, after `branch_from`; None: follow the newest in the directory"""
        self.on_written: Callable[[int, Path, float], None] | None = None
        """called with step, path and seconds after a checkpoint is written, by the thread that wrote it"""
        self._unsaid: CheckpointError | None = None
        self._remarks: list[str] = []  # further warnings for the next call
        self._state: dict[Path, bool] = {}  # whether each checkpoint is valid
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
        """Write a checkpoint of the current values of `parts`.

        Args:
            step: the number of training steps so far.
            parts: trees by name, as for `write_checkpoint`.
            scores: numbers by which `best` selects a checkpoint.
            facts: JSON values that can be read without loading the parts.
        """
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
            # A daemon, so that a program that fails does not hang on exit; `close` joins it.
            self._thread = threading.Thread(target=self._serve, name="weft-checkpoint", daemon=True)
            self._thread.start()
        self._work.put(job)

    def wait(self) -> None:
        """Wait for the last checkpoint; warn if it could not be written or others are damaged."""
        self._work.join()
        failure, self._unsaid = self._unsaid, None
        remarks, self._remarks = self._remarks, []
        for text in [str(failure)] * (failure is not None) + remarks:
            warnings.warn(text, CheckpointWarning, stacklevel=2)

    def branch_from(self, start: Checkpoint) -> list[Path]:
        """Start a branch: the next checkpoints follow `start` instead of the newest one in the directory.

        Returns:
            The abandoned checkpoints: those after `start`, or all if `start` is in another directory; empty if
            `start` is the newest.
        """
        self._work.join()
        records = list_records(self.directory)
        last = newest(records)
        at = next((i for i, r in enumerate(records) if r.path.resolve() == start.path.resolve()), None)
        if last is None or at is not None and records[at] is last:
            self.lineage = None if last is None else last.lineage
            remove_branch_point(self.directory)
            return []
        branch = new_branch(records)
        if at is None:
            self.lineage = Lineage(((branch, None),))
        else:
            self.lineage = records[at].lineage.fork(branch, start.step)
        write_branch_point(self.directory, records, self.lineage, start.path)
        return [
            r.path for r in records
            if last.lineage.holds(r.branch, r.step) and not self.lineage.holds(r.branch, r.step)
        ]  # fmt: skip

    def latest(self) -> Checkpoint | None:
        """The newest valid checkpoint, or None."""
        self._work.join()
        return latest(self.directory)

    def best(self) -> Checkpoint | None:
        """The valid checkpoint with the best score, or None."""
        self._work.join()
        return None if self.score is None else best(self.directory, self.score, self.mode)

    def close(self) -> None:
        """Wait for the last write and release the directory."""
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
                job = None  # release the copies before waiting again
                self._work.task_done()

    def _write(self, step: int, packed: Any, scores: dict[str, float], facts: dict[str, Any]) -> None:
        self.failure = None
        lineage, started = self.lineage, time.perf_counter()
        try:
            path = write_snapshot(self.directory, step, packed, scores, facts, lineage)
            verify(path)  # before older checkpoints are removed
        except CheckpointError as error:
            self.failure = self._unsaid = error
            return
        except Exception as error:
            self.failure = self._unsaid = CheckpointError(f"checkpoint: step {step} could not be written: {error!r}.")
            return
        self._state[path] = True
        if self.on_written is not None:
            self.on_written(step, path, time.perf_counter() - started)
        try:
            self._prune(path)
        except Exception as error:  # retried after the next write
            self._remarks.append(f"checkpoint: {path} is written, but older ones could not be removed: {error!r}.")

    def _prune(self, new: Path) -> None:
        """Remove old checkpoints. A crash in between removes fewer, never more.

        Kept are the last `keep` good checkpoints of the current branch and its ancestors with everything newer than the
        oldest of them, the best one, and the last good one of each of the `keep` youngest abandoned branches. What is
        damaged does not count; one with an unreadable manifest is left alone. Nothing is removed while there are fewer
        than `keep` valid ones.
        """
        if self.keep is None:
            return
        records = [r for r in list_records(self.directory) if r.manifest is not None]
        self._state = {r.path: self._state[r.path] for r in records if r.path in self._state}
        (current,) = [r.lineage for r in records if r.path == new]
        own = [r for r in records if current.holds(r.branch, r.step)]
        others = [r for r in records if not current.holds(r.branch, r.step)]
        victims = own[: self._first_of_the_last(own)] if len(own) > self.keep else []
        since = [r for r in own if r.branch == current.branch]
        if others and sum(self._good(r.path) for r in since) >= self.keep:
            last = self._last_of_each(others)
            victims += [r for r in others if r.path not in last]
        best_one = self._best_of(records) if victims else None
        for record in victims:
            if record.path != best_one:
                remove_directory(record.path)

    def _last_of_each(self, others: list[Record]) -> set[Path]:
        """The last good checkpoint of each abandoned branch, of the `keep` branches that were written to most recently."""
        found: dict[int, Path] = {}
        for record in reversed(others):
            if len(found) == self.keep:
                break
            if record.branch not in found and self._good(record.path):
                found[record.branch] = record.path
        return set(found.values())

    def _first_of_the_last(self, own: list[Record]) -> int:
        """The index in `own` at which the last `keep` valid ones start; 0 if there are fewer."""
        good = 0
        for i in reversed(range(len(own))):
            good += self._good(own[i].path)
            if good == self.keep:
                return i
        return 0

    def _best_of(self, records: list[Record]) -> Path | None:
        if self.score is None:
            return None
        scored = []
        for record in records:
            value = None if record.manifest is None else record.manifest["scores"].get(self.score)
            if value is not None:
                scored.append((value if self.mode == "min" else -value, record.step, record.path))
        return next((path for _, _, path in sorted(scored) if self._good(path)), None)

    def _good(self, path: Path) -> bool:
        """Whether a checkpoint is valid; cached, because verifying reads all of it."""
        if path not in self._state:
            try:
                verify(path)
                self._state[path] = True
            except (CheckpointError, OSError) as error:
                self._state[path] = False
                self._remarks.append(f"{error} It does not count among the {self.keep} to keep.")
        return self._state[path]


def _lock(directory: Path) -> int:
    """Lock `directory` against other writers; closing the file, or the end of the process, releases it."""
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
