"""The two files of a saved graph, written atomically: a crash leaves the old graph or the new one.

`name.json` is the program and the manifest: it holds its own SHA-256 and size and SHA-256 of `name.safetensors`, the
weights it belongs to. A save goes:

1. the new weights are written and synced as `.name.<start of their SHA-256>.safetensors`, a *pending* file;
2. the new program replaces `name.json`. From this rename on the new graph is the one that is loaded;
3. the pending file becomes `name.safetensors`.

Loading takes the weights that the program names by checksum: `name.safetensors`, or the pending file if the process that
saved died before 3. So a program is never paired with weights of another save. Files of Weft 0.1 have no checksums and
load as they did.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError
from ...io.checked import require_plain
from ...io.durable import TEMPORARY, beside, explain_os_error, sync_directory, write_file
from ...io.tensor_file import read_arrays, write_arrays

LOCK_SECONDS = 60.0  # how long a save waits for another one in the same directory


def graph_files(path: Any) -> tuple[Path, Path]:
    """Program and weights file of the graph `path`, which may also be one of the two."""
    base = Path(path)
    base = base.with_suffix("") if base.suffix in (".json", ".safetensors") else base
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".safetensors")


def _pending(weights_file: Path, digest: str) -> Path:
    """The path of the pending file for weights with that SHA-256."""
    return weights_file.with_name(f".{weights_file.stem}.{digest[:16]}{weights_file.suffix}")


def _program_digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of a program's content, however its JSON is laid out."""
    content = {k: v for k, v in data.items() if k != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# Writing ------------------------------------------------------------------------------------------------------------------


def write_graph_files(path: Any, program: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write program and weights atomically; returns the program's file.

    Raises:
        OSError: it could not be written, say because the disk is full. A graph that was there before is intact.
    """
    program_file, weights_file = graph_files(path)
    with _alone_in(program_file.parent) as alone:
        before = _content(program_file)
        try:
            _finish(program_file, weights_file)
            if alone:
                _clear_unfinished(program_file, weights_file)
            _write(program_file, weights_file, program, arrays)
        except OSError as error:
            there = "There was none before." if before is None else "The graph that was there before is intact."
            if _content(program_file) != before:  # a sync failed after the rename
                there = "The new graph is in place, but a loss of power may undo that."
            explained = explain_os_error(error, program_file.parent)
            raise type(error)(
                error.errno, f"save: {program_file} could not be written: {explained}. {there}"
            ) from error
    return program_file


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _write(
    program_file: Path, weights_file: Path, program: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    digest = hashlib.sha256()
    temporary = beside(weights_file)
    pending: Path | None = None
    try:
        with open(temporary, "xb") as file:
            size = write_arrays(file, arrays, digest=digest)
            file.flush()
            os.fsync(file.fileno())
        pending = _pending(weights_file, digest.hexdigest())
        os.replace(temporary, pending)
        sync_directory(pending.parent)
        data = {**program, "weights": {"bytes": size, "sha256": digest.hexdigest()}}
        write_file(program_file, json.dumps({**data, "checksum": _program_digest(data)}, indent=1).encode())
    except BaseException:
        temporary.unlink(missing_ok=True)
        # An error after the rename of the program (a sync that fails) comes too late: the new graph is the one there is.
        if pending is not None and _named_digest(program_file) != digest.hexdigest():
            pending.unlink(missing_ok=True)
        raise
    # The graph is saved. If its weights cannot get their name now, they are loaded under the other one.
    with contextlib.suppress(OSError):
        _finish(program_file, weights_file)


def _finish(program_file: Path, weights_file: Path) -> None:
    """The last step of a save, also of one whose process died before it."""
    digest = _named_digest(program_file)
    if digest is not None and (pending := _pending(weights_file, digest)).exists():
        os.replace(pending, weights_file)
        sync_directory(weights_file.parent)


def _named_digest(program_file: Path) -> str | None:
    """The SHA-256 of the weights that the program on disk belongs to; None if it names none."""
    try:
        facts = _weights_facts(json.loads(program_file.read_bytes()), program_file)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return None if facts is None else facts[1]


def _clear_unfinished(program_file: Path, weights_file: Path) -> None:
    """Remove pending files of saves whose process died. The caller holds the directory's lock."""
    for name in (program_file.name, weights_file.name):
        for entry in program_file.parent.glob(glob.escape(f"{TEMPORARY}{name}.") + "*"):
            entry.unlink(missing_ok=True)
    pattern = re.compile(re.escape(f".{weights_file.stem}.") + "[0-9a-f]{16}" + re.escape(weights_file.suffix))
    for entry in weights_file.parent.iterdir():
        if pattern.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[bool]:
    """Hold the directory's lock for a block, so that saves do not mix; False where there are no locks."""
    try:
        import fcntl

        handle = os.open(directory, os.O_RDONLY)
    except ImportError:
        yield False
        return
    try:
        yield _locked(fcntl, handle, directory)
    finally:
        os.close(handle)


def _locked(fcntl: Any, handle: int, directory: Path) -> bool:
    ends = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return False  # a file system without locks
        if time.monotonic() > ends:
            raise TimeoutError(
                f"save: another process has been saving a graph in {directory} for {LOCK_SECONDS:.0f} seconds. Wait for it, "
                "or use another directory."
            )
        time.sleep(0.01)


# Reading ------------------------------------------------------------------------------------------------------------------


def read_graph_files(
    path: Any, parse: Callable[[bytes, Path], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The program, as `parse(text, file)` returns it, and the weights that belong to it.

    Raises:
        FileError: the program's checksum is wrong, or its weights are not there.
    """
    program_file, weights_file = graph_files(path)
    text, version = _read_version(program_file)
    while True:
        data = parse(text, program_file)
        stored = data.get("checksum")
        if stored is not None and stored != _program_digest(data):
            raise FileError(
                "load",
                program_file,
                "is damaged: its checksum is another than when it was written. Take a copy that is intact; if you changed it "
                "by hand, remove the entry 'checksum'.",
                "checksum",
            )
        try:
            return data, _read_weights(data, program_file, weights_file)
        except (ValueError, FileNotFoundError):
            before = version
            text, version = _read_version(program_file)
            if version == before:  # else another process has just saved: once more
                raise


def _read_version(file: Path) -> tuple[bytes, tuple[int, int]]:
    """The content of a file, and an identity that differs from that of a replacement, even with the same content."""
    require_plain("load", file)
    with open(file, "rb") as opened:
        facts = os.fstat(opened.fileno())
        return opened.read(), (facts.st_ino, facts.st_mtime_ns)


def _weights_facts(data: Any, program_file: Path) -> tuple[int, str] | None:
    """Size and SHA-256 of the weights that a program belongs to; None for a file of Weft 0.1."""
    facts = data.get("weights") if isinstance(data, dict) else None
    if facts is None:
        return None
    size, digest = (facts.get("bytes"), facts.get("sha256")) if isinstance(facts, dict) else (None, None)
    if type(size) is not int or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise FileError("load", program_file, "is damaged: 'weights' must hold 'bytes' and 'sha256'.", "weights")
    return size, digest


def _read_weights(data: Mapping[str, Any], program_file: Path, weights_file: Path) -> dict[str, np.ndarray]:
    facts = _weights_facts(data, program_file)
    if facts is None:
        return read_arrays(weights_file)[0]
    size, digest = facts
    # The first one again: between the two looks, the second may have got its name.
    for candidate in (weights_file, _pending(weights_file, digest), weights_file):
        with contextlib.suppress(FileNotFoundError), open(candidate, "rb") as file:
            is_it = os.fstat(file.fileno()).st_size == size
            if is_it and hashlib.file_digest(file, "sha256").hexdigest() == digest:
                arrays, _ = read_arrays(candidate)
                if os.path.samestat(os.stat(candidate), os.fstat(file.fileno())):  # else it was replaced meanwhile
                    return arrays
    if not weights_file.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(weights_file))
    raise FileError(
        "load",
        weights_file,
        f"is damaged or does not belong to {program_file.name}: that was saved with weights of {size} bytes and SHA-256 "
        f"{digest[:12]}…. Take both files of one save.",
    )
