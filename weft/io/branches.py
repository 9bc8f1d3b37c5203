"""The order and ancestry of the checkpoints in a directory.

A run that resumes from an older checkpoint starts a *branch*: later checkpoints are abandoned, and their step numbers
will occur again. So a manifest has two fields besides the step: `serial`, which grows with every write to the directory,
and `branches`, the path from the first branch to this one. The newest checkpoint has the highest serial; its ancestors
follow from `branches` alone, independent of what else is in the directory or was removed from it. Checkpoints of Weft
0.1 have neither field: they count as serial 0 of branch 0, ordered by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lineage:
    """The branches from the first to the current one, each with the step of the branch before at which it starts."""

    branches: tuple[tuple[int, int | None], ...] = ((0, None),)

    @property
    def branch(self) -> int:
        return self.branches[-1][0]

    def holds(self, branch: int, step: int) -> bool:
        """Whether step `step` of `branch` is on this lineage: not after the step at which the lineage left that branch."""
        left_at = [start for _, start in self.branches[1:]] + [math.inf]
        return any(
            own == branch and limit is not None and step <= limit
            for (own, _), limit in zip(self.branches, left_at, strict=True)
        )

    def fork(self, branch: int, step: int) -> Lineage:
        """The lineage of a new branch that starts at `step` of this one."""
        before = [pair for pair in self.branches[1:] if pair[1] is not None and pair[1] < step]
        return Lineage((self.branches[0], *before, (branch, step)))


@dataclass(frozen=True)
class Record:
    """A checkpoint's position in the history of its directory. `manifest` is None if it is unreadable."""

    path: Path
    step: int
    serial: int
    lineage: Lineage
    manifest: Mapping[str, Any] | None

    @property
    def branch(self) -> int:
        return self.lineage.branch


def position(manifest: Mapping[str, Any]) -> tuple[int, Lineage]:
    """Serial and lineage from a manifest.

    Raises:
        ValueError: they do not have the form that `entries` writes.
    """
    serial, branches = manifest.get("serial", 0), manifest.get("branches", [[0, None]])
    if type(serial) is not int or serial < 0 or not isinstance(branches, list) or not branches:
        raise ValueError("'serial' must be a natural number and 'branches' a list")
    for entry in branches:
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not int:
            raise ValueError("an entry of 'branches' must be [branch, step]")
        if entry[1] is not None and type(entry[1]) is not int:
            raise ValueError("a step in 'branches' must be an integer")
    return serial, Lineage(tuple([(branch, step) for branch, step in branches]))


def entries(serial: int, lineage: Lineage) -> dict[str, Any]:
    """The manifest fields of a checkpoint's position."""
    return {"serial": serial, "branches": [list(pair) for pair in lineage.branches]}


def by_age(found: Iterable[tuple[Path, int, Mapping[str, Any] | None]]) -> list[Record]:
    """Records of (path, step, manifest) in the order of writing, oldest first.

    The position of a checkpoint with an unreadable manifest is unknown; it is assumed to have been written right after
    the one with the next lower step.
    """
    records: list[Record] = []
    serial, lineage = 0, Lineage()
    for path, step, manifest in sorted(found, key=lambda f: (f[1], f[0].name)):
        if manifest is not None:
            serial, lineage = position(manifest)
        records.append(Record(path, step, serial, lineage, manifest))
    return sorted(records, key=lambda r: (r.serial, r.step, r.path.name))


def newest(records: Iterable[Record]) -> Record | None:
    """The last record with a readable manifest."""
    readable = [r for r in records if r.manifest is not None]
    return readable[-1] if readable else None


def next_serial(records: Iterable[Record]) -> int:
    return 1 + max((r.serial for r in records), default=0)


def new_branch(records: Iterable[Record]) -> int:
    """An unused branch number."""
    return 1 + max((branch for r in records for branch, _ in r.lineage.branches), default=-1)


def going_on(records: list[Record], step: int) -> Lineage:
    """The lineage of a checkpoint of `step`, derived from the content of the directory alone.

    It follows the newest checkpoint. A lower step than that one's means that the run went back, which starts a branch.
    """
    last = newest(records)
    if last is None:
        return Lineage()
    if step >= last.step:
        return last.lineage
    before = [r.step for r in records if r.step < step and last.lineage.holds(r.branch, r.step)]
    if not before:
        return Lineage(((new_branch(records), None),))
    return last.lineage.fork(new_branch(records), max(before))
