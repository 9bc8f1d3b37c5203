"""`weft scale`: change the number of workers of a run while it goes on."""

from __future__ import annotations

import argparse

from .errors import CommandError


def run(arguments: argparse.Namespace) -> int:
    """`weft scale RUN N`"""
    from ..distributed import status
    from ..distributed.scale import set_wanted

    try:
        found = status.find(arguments.target)
    except LookupError as error:
        raise CommandError(f"scale: {error.args[0]}. `weft status` lists the runs.") from None
    if found["state"] in ("ended", "stale", "unknown"):
        raise CommandError(f"scale: the run {arguments.target!r} is over.")
    min_workers, max_workers = found["workers"]
    if not min_workers <= arguments.workers <= max_workers:
        limits = (
            f"{min_workers} to {max_workers} workers"
            if min_workers != max_workers
            else f"exactly {max_workers} workers"
        )
        raise CommandError(
            f"scale: the run was started for {limits}. Got {arguments.workers}. Start it with, for example, "
            f"--workers 1..{max(arguments.workers, max_workers)} to change the number within these limits."
        )
    set_wanted(found["directory"], arguments.workers)
    return 0
