"""Points at which tests end a worker: before or after each write that other workers depend on.

`hook` is None in ordinary runs. Tests set it in their own process, or name a point in the environment of a run
(``WEFT_DISTRIBUTED_FAILPOINT="ready:3:/path/of/a/marker"``): the first worker that comes to that point for the third time
creates the marker and kills itself; no other worker does while the marker exists.
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


def _killer(wanted: str, count: int, marker: str) -> Callable[[str], None]:
    seen: Counter[str] = Counter()

    def kill(point: str) -> None:
        seen[point] += 1
        if point == wanted and seen[point] >= count:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


if VARIABLE in os.environ:
    _point, _count, _marker = os.environ[VARIABLE].split(":", 2)
    hook = _killer(_point, int(_count), _marker)
