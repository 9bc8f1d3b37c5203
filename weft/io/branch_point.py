"""The start of a branch that has no checkpoint yet.

A run that resumes from an older checkpoint may be killed before it writes one of its own. So that `latest` does not return
to the abandoned branch then, `branch.json` in the directory of the checkpoints says where the new branch starts. It has
the serial that the first checkpoint of the branch will get, and counts until there is one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .branches import Lineage, Record, entries, next_serial, position
from .checked import file_error, parse_json, require_plain
from .durable import write_file

NAME = "branch.json"
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class BranchPoint:
    """A branch without checkpoints: the lineage they will have, and the path of the checkpoint at which it starts."""

    serial: int
    lineage: Lineage
    start: str


def write_branch_point(directory: Path, records: Sequence[Record], lineage: Lineage, start: Path) -> None:
    """Note that the next checkpoint in `directory` has `lineage` and follows `start`."""
    content = {"schema": 1, **entries(next_serial(records), lineage), "start": os.path.abspath(start)}
    write_file(directory / NAME, json.dumps(content, indent=2).encode() + b"\n")


def remove_branch_point(directory: Path) -> None:
    """Go on with the newest checkpoint in `directory`."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(directory / NAME)


def branch_point(directory: str | os.PathLike[str], records: Sequence[Record]) -> BranchPoint | None:
    """The branch that was started in `directory` after all of its checkpoints; None if there is none.

    Raises:
        FileError: the file is damaged.
    """
    path = Path(directory) / NAME
    require_plain("latest", path)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    content = parse_json(data, file_error("latest", path), MAX_BYTES)
    content["schema"].integer(1, 1)
    try:
        serial, lineage = position({key: content[key].value for key in ("serial", "branches")})
    except ValueError as error:
        content.fail(f"{error}.")
    start = content["start"].text()
    return BranchPoint(serial, lineage, start) if serial >= next_serial(records) else None
