"""How the comparing process talks to a worker: lines of JSON on standard input and output.

A worker prints {"ready": …, "losses": [first losses], "first_seconds": …} once, then answers every line with a number n by
{"seconds": [n step times]}; an empty line ends it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable


def serve(step: Callable[[], float], note: str) -> None:
    """Warm up, report the first losses, then time steps on request."""
    out = sys.stdout
    start = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - start
    losses += [step() for _ in range(2)]
    print(json.dumps({"ready": note, "losses": losses, "first_seconds": first}), file=out, flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}), file=out, flush=True)
