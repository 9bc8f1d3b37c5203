"""Tests of runs leave nothing behind: not when they pass, not when they fail, and not when pytest itself is killed.

Everything a test starts inherits a variable that names this session and the test's scope. After every test no process with it
may be left, and the test's directory for temporary files, where runs have their sockets, must be empty. A small process, the
guard, ends what is left when the session dies: an orphan that holds the terminal's pipe would keep a parallel run waiting.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.distributed import processes

VARIABLE = "WEFT_TEST_PROCESS"
SECONDS = 10.0  # for processes that have been told to end
SESSION = secrets.token_hex(8)
MODULE, TEST = f"{SESSION}:module", f"{SESSION}:test"
GUARD = """
import os, sys, time
import processes  # its file alone: importing Weft would take a second
sys.stdin.read()  # returns when the session closes its end, or dies
end = time.monotonic() + 30
while time.monotonic() < end and (found := processes.with_variable(sys.argv[1], sys.argv[2])):
    processes.kill_all(found)
"""


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The process that ends what this session leaves behind."""
    tmp_path_factory.getbasetemp()  # made at its first use, and not in the directory of a test
    folder = str(Path(processes.__file__).parent)
    program = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {folder!r}){GUARD}", VARIABLE, SESSION]
    child = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    yield
    assert child.stdin is not None
    child.stdin.close()
    child.wait(40)


@pytest.fixture(scope="module", autouse=True)
def module_mark(guard: None) -> Iterator[None]:
    """Marks what the fixtures of a module start; it lives as long as they do."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = MODULE
    yield
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before


@pytest.fixture(autouse=True)
def nothing_is_left(module_mark: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a test a mark and a directory for temporary files, and check afterwards that both are unused."""
    directory = tempfile.mkdtemp(prefix="wt-", dir="/tmp")  # short: it is part of the names of sockets
    monkeypatch.setenv(VARIABLE, TEST)
    monkeypatch.setenv("TMPDIR", directory)
    monkeypatch.setattr(tempfile, "tempdir", directory)
    try:
        yield
        left = _left()
        files = sorted(os.listdir(directory))
    finally:
        processes.kill_all(processes.with_variable(VARIABLE, TEST))
        shutil.rmtree(directory, ignore_errors=True)
    assert not left, f"processes are left behind: {left}"
    assert not files, f"files are left behind: {files}"


def _left() -> list[str]:
    """The processes of the test that do not end by themselves."""
    end = time.monotonic() + SECONDS
    while found := processes.with_variable(VARIABLE, TEST):
        if time.monotonic() > end:
            return [f"{pid} {_command(pid)}" for pid in found]
        time.sleep(0.02)
    return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "(ended)"
