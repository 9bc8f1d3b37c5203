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
    least, most = found["workers"]
    if not least <= arguments.workers <= most:
        limits = f"{least} to {most} workers" if least != most else f"exactly {most} workers"
        raise CommandError(
            f"scale: the run was started for {limits}. Got {arguments.workers}. Start it with, for example, "
            f"--workers 1..{max(arguments.workers, most)} to change the number within these limits."
        )
    set_wanted(found["directory"], arguments.workers)
    return 0
