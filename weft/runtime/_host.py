"""What the machine grants this process: processors, memory, control-group limits.

Every function reads the operating system afresh, returns `None` where the figure does not exist (no such
file, not Linux, no limit set) and never raises: a limit that cannot be read is treated as no limit.
"""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
# Version 1 writes "no limit" as a number near 2**63 rounded down to a page.
_UNLIMITED = 1 << 62


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _control_groups(controller: str) -> list[Path]:
    """Directories, innermost first, whose limits for `controller` apply to this process.

    A limit on any ancestor binds as well, so the whole chain is returned. Inside a container the path in
    `/proc/self/cgroup` often names the host's tree, which is not mounted: the root then holds our own limits.
    """
    text = _read(Path("/proc/self/cgroup"))
    if text is None:
        return []
    for line in text.splitlines():
        hierarchy, names, path = line.split(":", 2)
        if hierarchy == "0":
            root = _CGROUP_ROOT
        elif controller in names.split(","):
            root = _CGROUP_ROOT / controller
        else:
            continue
        found = root / path.lstrip("/")
        if not found.is_dir():
            found = root
        chain = [found]
        while chain[-1] != root and chain[-1] != chain[-1].parent:
            chain.append(chain[-1].parent)
        if any((directory / name).exists() for directory in chain for name in _LIMIT_FILES[controller]):
            return chain
    return []


_LIMIT_FILES = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max",),
}


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:  # "max"
        return None


def cpu_quota() -> float | None:
    """Processors' worth of time the control group grants per period, or `None` when there is no quota."""
    quotas = []
    for directory in _control_groups("cpu"):
        both = _read(directory / "cpu.max")
        if both is not None:
            quota_text, _, period_text = both.partition(" ")
            quota, period = _integer(quota_text), _integer(period_text)
        else:
            quota = _integer(_read(directory / "cpu.cfs_quota_us"))
            period = _integer(_read(directory / "cpu.cfs_period_us"))
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def usable_cpus() -> int:
    """Processors this process may keep busy: its affinity mask, narrowed by a control-group quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cpu_quota()
    if quota is not None:
        count = min(count, ceil(quota))
    return max(count, 1)


def thread_allowance() -> int | None:
    """Threads the control group still lets this process start, or `None` when it sets no limit."""
    left = []
    for directory in _control_groups("pids"):
        limit = _integer(_read(directory / "pids.max"))
        current = _integer(_read(directory / "pids.current"))
        if limit is not None and current is not None:
            left.append(max(limit - current, 0))
    return min(left, default=None)


def _memory_stat(directory: Path, *names: str) -> int:
    """Sum of the named counters in the group's `memory.stat`."""
    total = 0
    for line in (_read(directory / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key in names:
            total += _integer(value) or 0
    return total


def cgroup_memory_available() -> int | None:
    """Bytes the control group still grants (page cache it can drop counted as free), or `None` without a limit."""
    left = []
    for directory in _control_groups("memory"):
        limit = _integer(_read(directory / "memory.max"))
        used = _integer(_read(directory / "memory.current"))
        if limit is None and used is None:
            limit = _integer(_read(directory / "memory.limit_in_bytes"))
            used = _integer(_read(directory / "memory.usage_in_bytes"))
        if limit is None or used is None or limit >= _UNLIMITED:
            continue
        droppable = _memory_stat(directory, "inactive_file", "total_inactive_file")
        left.append(max(limit - used + min(droppable, used), 0))
    return min(left, default=None)


def system_memory_available() -> int | None:
    """Bytes the kernel could hand out without swapping (`MemAvailable`) plus free swap, or `None` off Linux."""
    text = _read(Path("/proc/meminfo"))
    if text is None:
        return None
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        figure = rest.split()
        if figure and figure[0].isdigit():
            fields[name] = int(figure[0]) * 1024
    if "MemAvailable" not in fields:
        return None
    return fields["MemAvailable"] + fields.get("SwapFree", 0)


def memory_available() -> int | None:
    """Bytes this process can still obtain: the smaller of what the system and the control group have left."""
    figures = [figure for figure in (system_memory_available(), cgroup_memory_available()) if figure is not None]
    return min(figures, default=None)
