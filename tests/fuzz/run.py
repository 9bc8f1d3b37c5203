"""Damage files and read them until time is up: `python -m tests.fuzz.run --seconds 3600 [--only graph] [--seed 1]`.

Cases come from `tests.fuzz.targets`. Each runs in a worker process, whose memory is limited, so that a crash, a hang or an
allocation without bound is a finding too. The file of each finding is kept in `--keep`, with the error beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HANG = 60.0  # seconds for one case
MEMORY = 4 << 30  # bytes that a worker may use


def work(connection: Any, only: str, seed: int) -> None:
    """Cases until the process is ended; says which one it is at, and what was found."""
    faulthandler.enable()
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from tests.fuzz import targets

    seeds = {}
    for target in targets.TARGETS:
        if only in target.name:
            with contextlib.suppress(ImportError):  # of a library that is not installed
                seeds[target.name] = target.seeds()
    chosen = [t for t in targets.TARGETS if t.name in seeds]
    case = 0
    while True:
        for target in chosen:
            name = f"{target.name}-{seed}-{case}"
            connection.send(("at", name, ""))
            try:
                targets.check(target, seeds[target.name], random.Random(name))
            except Exception:
                connection.send(("found", name, traceback.format_exc()))
        case += 1


def content_of(name: str) -> bytes:
    """The file of a case, made again from its name."""
    from tests.fuzz import targets

    target = next(t for t in targets.TARGETS if t.name == name.rsplit("-", 2)[0])
    seeds, source = target.seeds(), random.Random(name)
    first, second = source.choice(seeds), source.choice(seeds)
    return target.mutate(first, second, source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default from the clock")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    options = parser.parse_args()
    os.environ.setdefault("WEFT_TUNE", "0")
    seed = int(time.time()) if options.seed is None else options.seed
    end, cases, found = time.monotonic() + options.seconds, 0, 0
    context = multiprocessing.get_context("spawn")

    def report(name: str, text: str) -> None:
        nonlocal found
        found += 1
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / name).write_bytes(content_of(name))
        (options.keep / f"{name}.txt").write_text(text)
        print(f"{name}: {text.strip().splitlines()[-1]}", flush=True)

    while time.monotonic() < end:
        here, there = context.Pipe()
        worker = context.Process(target=work, args=(there, options.only, seed), daemon=True)
        worker.start()
        there.close()
        at = ""
        while time.monotonic() < end:
            try:
                if not here.poll(min(HANG, max(0.0, end - time.monotonic()))):
                    if time.monotonic() < end:
                        report(at, f"it hangs for more than {HANG} seconds")
                    break
                what, name, text = here.recv()
            except EOFError:
                worker.join(5)
                if at:
                    report(at, f"the process ended with status {worker.exitcode}")
                break
            if what == "found":
                report(name, text)
            else:
                at, cases = name, cases + 1
        worker.kill()
        worker.join()
        seed += 1
    print(f"{cases} cases, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
