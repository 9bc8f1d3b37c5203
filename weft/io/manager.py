"""CheckpointManager: writes checkpoints in the background and keeps the ones worth keeping."""

from __future__ import annotations

import errno
import os
import queue
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

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
    """The checkpoints of one run.

    `save` copies what it is given and returns; a thread writes it. There is one write at a time: a second `save` waits
    for the first, so that memory holds at most one copy. What goes wrong in the thread is said by a
    `CheckpointWarning` at the next call, and older checkpoints stay as they were.

    Old checkpoints are removed after each write that succeeded and was verified, except the last `keep` good ones and the
    best by `score`. Damaged ones do not count; the first time one is met, a `CheckpointWarning` names it.
    One process at a time writes to a directory; a second one is refused.

    A run that goes on from an older checkpoint says so with `branch_from`. Its checkpoints are then a branch of their own,
    which `latest` follows from the first one on. What was written after the older checkpoint is abandoned: it is kept until
    the new branch has `keep` checkpoints; then only its last one is kept, for at most `keep` abandoned branches. A `save`
    of a step before the newest one's does the same by itself.

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
            raise ValueError(f"CheckpointManager: keep must be an integer of at least 1, or None. Got {keep!r}.")
        if mode not in ("min", "max"):
            raise ValueError(f"CheckpointManager: mode must be 'min' or 'max'. Got {mode!r}.")
        self.directory, self.keep, self.score, self.mode = Path(directory), keep, score, mode
        self.background = background
        self.failure: CheckpointError | None = None
        """why the latest write failed; None if it did not"""
        self.lineage: Lineage | None = None
        """of what is saved next, after `branch_from`; None: it follows the newest in the directory"""
        self._unsaid: CheckpointError | None = None
        self._remarks: list[str] = []  # what to say at the next call besides
        self._state: dict[Path, bool] = {}  # which checkpoints verified and which did not
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
        """Return when the last checkpoint is on the disk; warn if it could not be written or others are damaged."""
        self._work.join()
        failure, self._unsaid = self._unsaid, None
        remarks, self._remarks = self._remarks, []
        for text in [str(failure)] * (failure is not None) + remarks:
            warnings.warn(text, CheckpointWarning, stacklevel=2)

    def branch_from(self, start: Checkpoint) -> list[Path]:
        """Checkpoints saved from now on come after `start`, not after the newest in the directory.

        Returns:
            The checkpoints that are abandoned by that: those between `start` and the newest one, or all if `start` is
            in another directory. None of them if `start` is the newest.
        """
        self._work.join()
        records = list_records(self.directory)
        last = newest(records)
        at = next((i for i, r in enumerate(records) if r.path.resolve() == start.path.resolve()), None)
        if last is None or at is not None and records[at] is last:
            self.lineage = None if last is None else last.lineage
            return []
        branch = new_branch(records)
        if at is None:
            self.lineage = Lineage(((branch, None),))
        else:
            self.lineage = records[at].lineage.fork(branch, start.step)
        return [
            r.path for r in records
            if last.lineage.holds(r.branch, r.step) and not self.lineage.holds(r.branch, r.step)
        ]  # fmt: skip

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
        lineage = self.lineage
        try:
            path = write_snapshot(self.directory, step, packed, scores, facts, lineage)
            verify(path)  # before anything older is given up for it
        except CheckpointError as error:
            self.failure = self._unsaid = error
            return
        except Exception as error:
            self.failure = self._unsaid = CheckpointError(f"checkpoint: step {step} could not be written: {error!r}.")
            return
        self._state[path] = True
        try:
            self._prune(path)
        except Exception as error:  # it is tried again after the next write
            self._remarks.append(f"checkpoint: {path} is written, but older ones could not be removed: {error!r}.")

    def _prune(self, new: Path) -> None:
        """Remove what is not worth keeping. A crash in between removes less, never more.

        Kept are the last `keep` good checkpoints of the current branch and its ancestors with everything newer than the
        oldest of them, the best one, and the last good one of each of the `keep` youngest abandoned branches. What is
        damaged does not count; one whose manifest cannot be read is left alone, for nothing is known about it. As long as
        there are fewer than `keep` good ones nothing is removed.
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
        """Where in `own` the last `keep` good ones start; 0 if there are not as many."""
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
        """Whether a checkpoint verifies; looked at once, for it means to read all of it."""
        if path not in self._state:
            try:
                verify(path)
                self._state[path] = True
            except (CheckpointError, OSError) as error:
                self._state[path] = False
                self._remarks.append(f"{error} It does not count among the {self.keep} to keep.")
        return self._state[path]


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
