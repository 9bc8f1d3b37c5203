"""`python -m weft.distributed.task SCRIPT ARGUMENTS`: the main program of a worker.

Runs the user's script, or a module (`-m MODULE`), as the `__main__` of a process that belongs to a run. Only the lead prints:
what other workers write to their standard output goes to a file in the run's directory.
"""

from __future__ import annotations

import os
import random
import runpy
import select
import sys
import threading
from typing import Any, TextIO

import numpy as np

import weft as wf

from . import context as contexts
from . import finish

STATUS_ORPHANED = 80


class LeadOutput:
    """A text stream that prints on the lead and writes to a file elsewhere."""

    def __init__(self, stream: TextIO, log: TextIO) -> None:
        self._stream, self._log = stream, log

    def _target(self) -> TextIO:
        from . import is_lead

        return self._stream if is_lead() else self._log

    def write(self, text: str) -> int:
        return self._target().write(text)

    def flush(self) -> None:
        self._target().flush()

    def isatty(self) -> bool:
        return self._target() is self._stream and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def end_with(lifeline: int) -> None:
    """End this process when the other end of a pipe is closed: its supervisor is gone."""

    def watch() -> None:
        poll = select.poll()
        poll.register(lifeline, select.POLLIN)
        while not poll.poll(1000):
            pass
        os._exit(STATUS_ORPHANED)

    threading.Thread(target=watch, name="weft-lifeline", daemon=True).start()


def seed_everything(seed: int) -> None:
    """All workers draw the same numbers until their steps begin, also in scripts that set no seed."""
    wf.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def main(argv: list[str]) -> None:
    """Run a script in this process."""
    context = contexts.current()
    if context is None:
        raise SystemExit("weft.distributed.task: this module is started by `weft run`.")
    if context.lifeline >= 0:
        end_with(context.lifeline)
    seed_everything(context.seed)
    path = os.path.join(context.directory, f"worker-{os.getpid()}.log")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # a pipe to the command, which shows each line when it comes
    with open(path, "w", buffering=1) as log:
        sys.stdout = LeadOutput(sys.stdout, log)
        try:
            if argv[0] == "-m":
                sys.argv = argv[1:]
                runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
            else:
                sys.argv = argv
                sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
                runpy.run_path(argv[0], run_name="__main__")
        finally:
            finish()
            sys.stdout.flush()
            sys.stdout = sys.stdout._stream


if __name__ == "__main__":
    main(sys.argv[1:])
