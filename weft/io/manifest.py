"""Validation of a checkpoint's manifest before it is used.

A manifest may only name regular files directly in the checkpoint's directory, called like its parts. A name such as
`../../.ssh/id_rsa`, or a symbolic link, is rejected, so that opening a checkpoint reads no other files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from .checked import Checked, Refuse, parse_json

MAX_MANIFEST_BYTES = 100_000_000
_FILE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\.(safetensors|json)", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def check_manifest(text: bytes, refuse: Refuse) -> dict[str, Any]:
    """Parse and validate a manifest; `refuse(reason, place)` makes the error for an invalid one."""
    manifest = parse_json(text, refuse, MAX_MANIFEST_BYTES)
    manifest["facts"].mapping()
    if type(manifest["schema"].value) is not int or manifest["schema"].value != 1:
        return dict(manifest.value)  # of another version, which the caller reports
    manifest["step"].integer(0)
    for score in manifest["scores"].mapping().values():
        score.number()
    for name, facts in manifest["files"].mapping().items():
        if not _FILE.fullmatch(name) or name == "manifest.json":
            facts.fail("this cannot be a file of a checkpoint. Expected a part's name, with .safetensors or .json.")
        facts["bytes"].integer(0)
        if not _DIGEST.fullmatch(facts["sha256"].text()):
            facts["sha256"].expected("64 hexadecimal digits")
    _one_file_per_part(manifest["files"])
    return dict(manifest.value)


def _one_file_per_part(files: Checked) -> None:
    for name in files.value:
        if name.endswith(".json") and name.replace(".json", ".safetensors") in files.value:
            files.fail(f"part {name.removesuffix('.json')!r} has two files.")


def is_part_file(path: Path) -> bool:
    """Whether `path` is a regular file and not a link, or missing, which the caller handles."""
    return not os.path.lexists(path) or path.is_file() and not path.is_symlink()
