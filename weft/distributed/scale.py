"""Change the number of workers of a run while it goes on.

The number is a file of the run's directory, which the driver reads twice a second and keeps within the limits of ``--workers``.
Workers that are too many are killed, which changes nothing but the time: the others compute what they had begun. Standard
library only.
"""

from __future__ import annotations

import os

WANTED = "wanted"


def set_wanted(directory: str, workers: int) -> None:
    """Ask the driver of the run in `directory` for another number of workers."""
    path = os.path.join(directory, WANTED)
    with open(f"{path}.{os.getpid()}", "w") as file:
        file.write(str(workers))
    os.replace(f"{path}.{os.getpid()}", path)


def wanted(directory: str) -> int | None:
    """The number of workers that was asked for; None if it was not."""
    try:
        with open(os.path.join(directory, WANTED)) as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None
