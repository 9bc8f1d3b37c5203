"""Faults of a disk: an error, or the end of the process, at a chosen write, sync or rename."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest


def full_disk() -> None:
    """What a full disk raises."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Faults:
    """Calls `strike` at the operation number `at` of those that `modules` make to change a disk; `count` of them ran."""

    def __init__(self, at: int, strike: Callable[[], None], modules: Sequence[ModuleType]) -> None:
        self.at, self.strike, self.modules, self.count = at, strike, modules, 0

    def _tick(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.strike()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count for the length of a block."""
        tick = self._tick

        class File(io.BufferedWriter):
            def write(self, data: Any) -> int:
                tick()
                return super().write(data)

        def opened(path: Any, mode: str) -> Any:
            return open(path, mode) if mode == "rb" else File(io.FileIO(path, mode))  # type: ignore[arg-type]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                tick()
                return real(*args)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for module in self.modules:
                patch.setattr(module, "open", opened, raising=False)
            for name in ("fsync", "replace", "rename"):
                patch.setattr(os, name, counted(getattr(os, name)))
            yield


def crashes(at: int, modules: Sequence[ModuleType], work: Callable[[], Any]) -> bool:
    """Run `work` in a forked process that ends without any clean-up at the operation `at`; whether it came to that."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with Faults(at, lambda: os._exit(9), modules).active():
                work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), f"the process ended with {status}"
    return status == 9
