"""Every test of the loader must leave nothing behind: no process, no shared memory with a name."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(autouse=True)
def nothing_left_behind():
    shm = Path("/dev/shm")
    before = {p.name for p in shm.iterdir()} if shm.is_dir() else set()
    processes = set(multiprocessing.active_children())
    yield
    deadline = time.monotonic() + 5
    while set(multiprocessing.active_children()) - processes and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not set(multiprocessing.active_children()) - processes, "worker processes are still there"
    if shm.is_dir():
        left = {p.name for p in shm.iterdir()} - before
        assert not {name for name in left if "weft" in name}
