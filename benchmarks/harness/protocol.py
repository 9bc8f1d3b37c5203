"""How the comparing process talks to a worker: lines of JSON on standard input and output.

A worker says hello once, after three steps, or after two that take long: {"ready": what it is, "check": [numbers all
frameworks must agree on], "first_seconds": …, "step_seconds": …, "peak_bytes": …}. Then it answers every line that holds a
number n by {"seconds": [n step times], "peak_bytes": …}; an empty line ends it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

THREADS = "BENCHMARK_THREADS"
WEIGHTS = "BENCHMARK_WEIGHTS"
BATCH = "BENCHMARK_BATCH"
CLOCK = "BENCHMARK_CLOCK"
LONG = "BENCHMARK_LONG"


def threads() -> int:
    """How many threads a worker may use."""
    return int(os.environ.get(THREADS, "2"))


def clock() -> Callable[[], float]:
    """What steps are timed with: the time that passes, or ("processor") what this process computes meanwhile.

    On a busy machine only the latter compares anything, with one thread: waiting for others does not count, spinning does.
    """
    return time.process_time if os.environ.get(CLOCK) == "processor" else time.perf_counter


def long_seconds() -> float:
    """How long a step may take to be repeated: a longer one is timed once, when its worker starts."""
    return float(os.environ.get(LONG, "30"))


def weights_path() -> str:
    """The file that holds the initial weights every framework starts from."""
    return os.environ[WEIGHTS]


def peak_bytes() -> int:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def answer(**facts: Any) -> None:
    """One line to the comparing process."""
    print(json.dumps(facts), flush=True)


def serve(step: Callable[[], Any], note: str, check: Callable[[], list[float]] | None = None) -> None:
    """Report first results, then time steps on request.

    Args:
        step: one step; whatever it starts has ended when it returns.
        note: framework, version and mode.
        check: what to compare with the other frameworks. By default the numbers that the first steps return.
    """
    numbers, seconds = [], []
    while len(seconds) < 2 or (len(seconds) < 3 and seconds[-1] < long_seconds()):
        start = time.perf_counter()
        numbers.append(step())
        seconds.append(time.perf_counter() - start)
    checked = [float(x) for x in numbers] if check is None else check()
    answer(
        ready=note, check=checked, first_seconds=seconds[0], step_seconds=seconds[-1], peak_bytes=peak_bytes()
    )  # fmt: skip
    for line in sys.stdin:
        if not line.strip():
            break
        seconds = []
        now = clock()
        for _ in range(int(line)):
            start = now()
            step()
            seconds.append(now() - start)
        answer(seconds=seconds, peak_bytes=peak_bytes())
