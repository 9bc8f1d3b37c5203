"""What every test gets: its own random seed, a kernel cache that is not the user's, and flows checked after each pass.

A worker of a parallel run lives for the whole suite, so between tests it gives back the memory that large arrays leave in
the allocator's cache.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import zlib

import numpy as np
import pytest

CACHE_VARIABLE = "WEFT_CACHE_DIR"
MAX_CACHED = 64 << 20  # bytes of free blocks that a test may leave to the next one


def pytest_configure(config: pytest.Config) -> None:
    """Give the session one cache directory; the workers of a parallel run inherit, and share, the first one's."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # a shell's `&` leaves it ignored, in child processes too
    os.environ.setdefault("WEFT_VALIDATE", "1")
    os.environ.setdefault("WEFT_TUNE", "0")  # numbers must not depend on which kernel was faster just now
    if not hasattr(config, "workerinput"):
        directory = tempfile.mkdtemp(prefix="weft-test-cache-")
        os.environ[CACHE_VARIABLE] = directory
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


def pytest_runtest_setup() -> None:
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray installs a handler in a process that used it


def pytest_runtest_logfinish() -> None:
    memory = sys.modules.get("weft.runtime.memory")
    if memory is not None and memory.stats().cached > MAX_CACHED:
        memory.trim()


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """Seed every generator from the test's name: the same numbers alone, in any order, and in any process."""
    value = zlib.crc32(request.node.nodeid.encode())
    random.seed(value)
    np.random.seed(value)
    manual_seed = getattr(sys.modules.get("weft"), "manual_seed", None)
    if manual_seed is not None:
        manual_seed(value)
    return value
