"""How busy the machine was while we measured: what other processes and other guests took from us."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# shares of the machine's processors above which figures are not to be trusted
FOREIGN_LIMIT = 0.10
STEAL_LIMIT = 0.05


@dataclass(frozen=True)
class Sample:
    """Counters of the kernel at one moment, in seconds of processor time."""

    at: float
    busy: float
    steal: float
    ours: float


def sample(processes: list[int]) -> Sample:
    """The counters now; `processes` and this one are "ours"."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields[:8]
    own = 0
    for pid in {*processes, os.getpid()}:
        try:
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended: what it used is among the children's time of this process
            continue
        own += int(after_name[11]) + int(after_name[12])
    ended = os.times()
    busy = (user + nice + system + irq + softirq) / tick
    return Sample(time.monotonic(), busy, steal / tick, own / tick + ended.children_user + ended.children_system)


@dataclass(frozen=True)
class Business:
    """How much of the processors went elsewhere between two samples."""

    load_before: float
    load_after: float
    foreign: float
    steal: float

    @property
    def busy(self) -> bool:
        """Whether the figures measured meanwhile deserve a warning."""
        return self.foreign > FOREIGN_LIMIT or self.steal > STEAL_LIMIT

    def __str__(self) -> str:
        return (
            f"{'BUSY' if self.busy else 'quiet'} machine: other processes took {self.foreign:.0%} and other guests "
            f"{self.steal:.0%} of the processors; load average {self.load_before:.1f} before, {self.load_after:.1f} after"
        )

    def facts(self) -> dict[str, float | bool]:
        """For JSON."""
        return asdict(self) | {"busy": self.busy}


def between(before: Sample, after: Sample, load_before: float) -> Business:
    """What happened between two samples."""
    span = max((after.at - before.at) * (os.cpu_count() or 1), 1e-9)
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    return Business(load_before, os.getloadavg()[0], max(0.0, foreign / span), (after.steal - before.steal) / span)


def available_bytes() -> int:
    """The memory new processes can have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def describe() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "processor": model, "cpus": os.cpu_count(), "system": platform.system(), "python": platform.python_version(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
