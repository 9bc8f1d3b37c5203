"""Checkpoints: the whole state of a training run in a directory, written atomically.

    checkpoints/
      step-00001200/
        manifest.json            schema, step, position (`weft.io.branches`), scores, size and SHA-256 of each file
        model.safetensors        one file per part: tensors here, …
        optimizer.safetensors
        loader.json              … and parts that hold no tensor as JSON
        manifest.sha256          so that the manifest itself is covered
      branch.json                where a branch without checkpoints starts (`weft.io.branch_point`)

A directory with that name is complete: it is renamed into place after its files are synced to disk. Later damage (bit
flips, truncation) is detected by the checksums: `latest` and `best` verify them, name a damaged checkpoint in a warning
and fall back to the one before. Nothing read from a checkpoint is executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError
from .branch_point import BranchPoint, branch_point
from .branches import Lineage, Record, by_age, entries, going_on, next_serial, position
from .checked import file_error
from .durable import explain_os_error, write_directory
from .manifest import check_manifest, is_part_file
from .tree_file import load as load_tree
from .tree_file import pack, read_tree, write_packed

SCHEMA = 1
MANIFEST = "manifest.json"
MANIFEST_SUM = "manifest.sha256"
_NAME = re.compile(r"step-(\d{8,})(?:\.branch-\d+)?")  # the second form: a later branch reached the same step
_PART = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

Packed = tuple[Any, dict[str, np.ndarray]]


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or is damaged."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged or could not be written; training continues."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk. `load()` reads all parts, `part(name)` one of them."""

    path: Path
    step: int
    scores: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """further information from the writer: versions, settings"""
    parts: tuple[str, ...] = ()

    def part(self, name: str) -> Any:
        """Load the tree that was written as part `name`.

        Raises:
            CheckpointError: the file matches its checksum but does not hold a tree.
        """
        if name not in self.parts:
            raise KeyError(f"checkpoint {self.path}: there is no part {name!r}. It has {', '.join(self.parts)}.")
        file = self.path / f"{name}.safetensors"
        try:
            if file.exists():
                return load_tree(file)
            file = self.path / f"{name}.json"
            return read_tree(file.read_bytes(), {}, file_error("load", file))
        except FileError as error:
            raise CheckpointError(f"checkpoint: {self.path} is damaged: {error}") from None

    def load(self) -> dict[str, Any]:
        """Load all parts, by name."""
        return {name: self.part(name) for name in self.parts}


def checkpoint_path(directory: str | os.PathLike[str], step: int) -> Path:
    """The path of the checkpoint of a step."""
    return Path(directory) / f"step-{step:08d}"


# Writing -----------------------------------------------------------------------------------------------------------------


def snapshot(parts: Mapping[str, Any]) -> dict[str, Packed]:
    """Copy `parts`, so that further training does not change them."""
    for name in parts:
        if not _PART.fullmatch(name) or f"{name}.json" == MANIFEST:
            raise ValueError(f"checkpoint: {name!r} cannot name a part. Expected letters, digits, '_' and '-'.")
    return {name: pack(tree, copy=True) for name, tree in parts.items()}


def write_checkpoint(
    directory: str | os.PathLike[str],
    step: int,
    parts: Mapping[str, Any],
    *,
    scores: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint atomically and return its path. Other checkpoints in `directory` are not modified.

    Args:
        directory: the directory of the run's checkpoints; created if missing.
        step: the number of training steps so far.
        parts: trees by name, such as `{"model": model.state_dict(), "optimizer": optimizer.state_dict()}`.
        scores: numbers by which `best` selects a checkpoint.
        facts: JSON values that can be read without loading the parts.

    Raises:
        CheckpointError: it could not be written, say because the disk is full. Older checkpoints are intact.

    >>> path = wf.io.write_checkpoint("run", 7, {"model": nn.Linear(2, 1).state_dict()}, scores={"loss": 0.5})
    >>> path.name
    'step-00000007'
    """
    return write_snapshot(directory, step, {name: pack(tree) for name, tree in parts.items()}, scores, facts)


def write_snapshot(
    directory: str | os.PathLike[str],
    step: int,
    packed: Mapping[str, Packed],
    scores: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    lineage: Lineage | None = None,
) -> Path:
    """`write_checkpoint` for a `snapshot`; `lineage` defaults to that of the newest checkpoint, or of a new branch."""
    if step < 0:
        raise ValueError(f"checkpoint: step must be at least 0. Got {step}.")
    path = checkpoint_path(directory, step)
    records = list_records(directory)
    if lineage is None:
        begun = _begun_branch(directory, records)
        lineage = going_on(records, step) if begun is None else begun.lineage
    there = next((r for r in records if r.path == path), None)
    # Keep the checkpoint of the same step of another branch.
    aside = None if there is None or there.branch == lineage.branch else _branch_path(path, there.branch)

    def fill(temporary: Path) -> None:
        files = {}
        for name, (structure, arrays) in packed.items():
            file_name, size, digest = _write_part(temporary, name, structure, arrays)
            files[file_name] = {"bytes": size, "sha256": digest}
        manifest = {
            "schema": SCHEMA,
            "step": step,
            **entries(next_serial(records), lineage),
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "scores": {name: float(x) for name, x in (scores or {}).items() if math.isfinite(x)},
            "facts": dict(facts or {}),
            "files": files,
        }
        text = json.dumps(manifest, indent=2).encode()
        _write_synced(temporary / MANIFEST, text)
        _write_synced(temporary / MANIFEST_SUM, hashlib.sha256(text).hexdigest().encode() + b"\n")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_directory(path, fill, aside)
    except OSError as error:
        others = list_records(directory)
        kept = f"The latest one, {others[-1].path}, is intact." if others else "There is no older one."
        raise CheckpointError(
            f"checkpoint: {path} could not be written: {explain_os_error(error, path.parent)}. {kept} Nothing half-written "
            "was left behind."
        ) from error
    return path


def _write_part(directory: Path, name: str, structure: Any, arrays: dict[str, np.ndarray]) -> tuple[str, int, str]:
    """Write one part; returns the file's name, size and SHA-256."""
    if not arrays:
        data = json.dumps(structure, indent=1, allow_nan=False).encode()
        _write_synced(directory / f"{name}.json", data)
        return f"{name}.json", len(data), hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    with open(directory / f"{name}.safetensors", "xb") as file:
        size = write_packed(file, structure, arrays, digest)
        file.flush()
        os.fsync(file.fileno())
    return f"{name}.safetensors", size, digest.hexdigest()


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _branch_path(path: Path, branch: int) -> Path:
    """A free name for a checkpoint whose name a later branch needs."""
    while (found := path.with_name(f"{path.name}.branch-{branch}")).exists():
        branch += 1
    return found


# Reading -----------------------------------------------------------------------------------------------------------------


def list_checkpoints(directory: str | os.PathLike[str]) -> list[Path]:
    """The paths of the checkpoints in `directory` by step, lowest first. They are not verified."""
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(directory):
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_dir():
                found.append((int(match[1]), Path(entry.path)))
    return [path for _, path in sorted(found)]


def list_records(directory: str | os.PathLike[str]) -> list[Record]:
    """The checkpoints in `directory` in the order of writing. Only their manifests are verified."""
    found: list[tuple[Path, int, dict[str, Any] | None]] = []
    for path in list_checkpoints(directory):
        match = _NAME.fullmatch(path.name)
        assert match is not None
        try:
            manifest = _manifest(path)
        except (CheckpointError, OSError):
            found.append((path, int(match[1]), None))
        else:
            found.append((path, manifest["step"], manifest))
    return by_age(found)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint at `path`, or the latest valid one if `path` is a directory of checkpoints.

    Raises:
        FileNotFoundError: there is no checkpoint.
        CheckpointError: it is damaged; the message says how.
    """
    place = Path(path)
    if (place / MANIFEST).exists() or _NAME.fullmatch(place.name):
        if not place.is_dir():
            raise FileNotFoundError(f"checkpoint: there is no directory {place}.")
        return verify(place)
    found = latest(place)
    if found is None:
        raise FileNotFoundError(f"checkpoint: {place} is no checkpoint and holds none.")
    return found


def latest(directory: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest valid checkpoint, or None; newer damaged ones are named in a warning.

    The newest is the one written last: after a resume from an older checkpoint, one of the new branch, and before it has any,
    that older checkpoint.

    >>> path = wf.io.write_checkpoint("run", 7, {"model": {"weight": wf.ones(2)}})
    >>> checkpoint = wf.io.latest("run")
    >>> checkpoint.step, checkpoint.part("model")["weight"].tolist()
    (7, [1.0, 1.0])
    """
    records = list_records(directory)
    begun = _begun_branch(directory, records)
    if begun is not None:
        # Python's sort is stable: ancestors of the new branch last, each kind in the order of writing
        records.sort(key=lambda r: begun.lineage.holds(r.branch, r.step))
        if records and not begun.lineage.holds(records[-1].branch, records[-1].step):
            raise CheckpointError(
                f"checkpoint: the latest run in {directory} was resumed from {begun.start} and wrote no checkpoint. Resume "
                f"from there again, or from {records[-1].path} to abandon that."
            )
    return next(_good(r.path for r in reversed(records)), None)


def _begun_branch(directory: str | os.PathLike[str], records: list[Record]) -> BranchPoint | None:
    """The branch that has no checkpoint yet, or None; a damaged file is named in a warning."""
    try:
        return branch_point(directory, records)
    except (FileError, OSError) as error:
        warnings.warn(f"{error} The newest checkpoint is used instead.", CheckpointWarning, stacklevel=4)
        return None


def best(directory: str | os.PathLike[str], score: str, mode: str = "min") -> Checkpoint | None:
    """The valid checkpoint with the lowest (`mode="max"`: highest) `score`, or None; the older one of equals.

    >>> for step, loss in [(1, 0.5), (2, 0.9)]:
    ...     path = wf.io.write_checkpoint("run", step, {"model": {}}, scores={"loss": loss})
    >>> wf.io.best("run", "loss").step
    1
    """
    if mode not in ("min", "max"):
        raise ValueError(f"best: mode must be 'min' or 'max'. Got {mode!r}.")
    sign = 1.0 if mode == "min" else -1.0
    scored = []
    for record in list_records(directory):
        if record.manifest is not None and score in record.manifest["scores"]:
            scored.append((sign * record.manifest["scores"][score], record.step, record.path))
    return next(_good(path for _, _, path in sorted(scored)), None)


def _good(paths: Iterator[Path]) -> Iterator[Checkpoint]:
    for path in paths:
        try:
            yield verify(path)
        except (CheckpointError, OSError) as error:
            warnings.warn(
                f"{error} The one before it is used instead, if there is one.", CheckpointWarning, stacklevel=4
            )


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, verified by its checksum."""
    for name in (MANIFEST, MANIFEST_SUM):
        if not is_part_file(path / name):
            raise _damaged(path, f"{name} is not a plain file")
    try:
        text = (path / MANIFEST).read_bytes()
        wanted = (path / MANIFEST_SUM).read_bytes().strip()
    except FileNotFoundError as error:
        raise _damaged(path, f"{os.path.basename(error.filename)} is missing") from None
    if hashlib.sha256(text).hexdigest().encode() != wanted:
        raise _damaged(path, f"{MANIFEST} has another checksum than when it was written")
    manifest = check_manifest(
        text, lambda reason, place: _damaged(path, f"{MANIFEST}{place and ', ' + place}: {reason}")
    )
    if manifest.get("schema") != SCHEMA:
        raise CheckpointError(
            f"checkpoint: {path} has schema {manifest.get('schema')!r}; this version of Weft reads {SCHEMA}. Use the "
            f"version that wrote it ({manifest.get('facts', {}).get('weft', 'unknown')})."
        )
    try:
        position(manifest)
    except ValueError as error:
        raise _damaged(path, f"in {MANIFEST} {error}") from None
    return manifest


def verify(path: Path) -> Checkpoint:
    """The checkpoint at `path`, after reading every file and comparing its checksum.

    Raises:
        CheckpointError: something is missing or has changed since it was written.
    """
    manifest = _manifest(path)
    for name, facts in manifest["files"].items():
        if not is_part_file(path / name):
            raise _damaged(path, f"{name} is not a plain file")
        try:
            size, digest = _hash(path / name)
        except FileNotFoundError:
            raise _damaged(path, f"{name} is missing") from None
        if size != facts["bytes"]:
            raise _damaged(path, f"{name} has {size} bytes instead of {facts['bytes']}")
        if digest != facts["sha256"]:
            raise _damaged(path, f"{name} has another checksum than when it was written")
    parts = tuple(name.rpartition(".")[0] for name in manifest["files"])
    return Checkpoint(path, manifest["step"], manifest["scores"], manifest["facts"], parts)


def _hash(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"checkpoint: {path} is damaged: {why}.")
