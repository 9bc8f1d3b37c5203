"""Points at which tests end a process: before or after each write and message that others depend on.

`hook` is None in ordinary runs. Tests set it in their own process, or name points in the environment of a run
(``WEFT_DISTRIBUTED_FAILPOINT="ready:3:/path/of/a/marker;sent:1:/path/of/another"``): the first process that comes to a point for
the third time creates the marker and kills itself; no other process does while the marker exists. Standard library only.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

VARIABLE = "WEFT_DISTRIBUTED_FAILPOINT"

hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Say that this process is at `point`."""
    if hook is not None:
        hook(point)


def _killer(text: str) -> Callable[[str], None]:
    wanted: dict[str, tuple[int, str]] = {}
    for entry in text.split(";"):
        point, count, marker = entry.split(":", 2)
        wanted[point] = (int(count), marker)
    seen: Counter[str] = Counter()

    def kill(point: str) -> None:
        seen[point] += 1
        if point in wanted and seen[point] >= wanted[point][0]:
            try:
                os.close(os.open(wanted[point][1], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


if VARIABLE in os.environ:
    hook = _killer(os.environ[VARIABLE])
