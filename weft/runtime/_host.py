"""Resources of this process: processors, memory and control-group limits.

Every function reads the current value from the operating system, returns `None` where it does not exist (no such file,
not Linux, no limit set) and never raises: an unreadable limit is treated as no limit.
"""

from __future__ import annotations

import os
from functools import cache
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


@cache
def _control_groups(controller: str) -> list[Path]:
    """Directories, innermost first, whose limits for `controller` apply to this process. Cached.

    A limit on any ancestor binds as well, so the whole chain is returned. Inside a container the path in
    `/proc/self/cgroup` often names the host's tree, which is not mounted: the root then has this process's limits.
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
    """The CPU quota of the control group in processors, or `None`."""
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
    """The number of usable processors: the affinity mask, limited by the control-group quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cpu_quota()
    if quota is not None:
        count = min(count, ceil(quota))
    return max(count, 1)


def thread_allowance() -> int | None:
    """The number of threads that the control group still allows, or `None` without a limit."""
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


def _cgroup_memory_limit(directory: Path) -> int | None:
    limit = _integer(_read(directory / "memory.max"))
    if limit is None:
        limit = _integer(_read(directory / "memory.limit_in_bytes"))
    return None if limit is None or limit >= _UNLIMITED else limit


def cgroup_memory_available() -> int | None:
    """Free bytes in the control group (counting reclaimable page cache), or `None` without a limit."""
    left = []
    for directory in _control_groups("memory"):
        limit = _cgroup_memory_limit(directory)
        used = _integer(_read(directory / "memory.current"))
        if used is None:
            used = _integer(_read(directory / "memory.usage_in_bytes"))
        if limit is not None and used is not None:
            droppable = _memory_stat(directory, "inactive_file", "total_inactive_file")
            left.append(max(limit - used + min(droppable, used), 0))
    return min(left, default=None)


def _meminfo(*names: str) -> list[int | None]:
    """The named fields of `/proc/meminfo`, in bytes."""
    fields = {}
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        name, _, figure = line.partition(":")
        if name in names:
            fields[name] = int(figure.split()[0]) * 1024
    return [fields.get(name) for name in names]


def system_memory_available() -> int | None:
    """Free bytes of the system (`MemAvailable` and free swap), or `None` off Linux."""
    available, swap = _meminfo("MemAvailable", "SwapFree")
    return None if available is None else available + (swap or 0)


def memory_available() -> int | None:
    """Bytes this process can still allocate: the minimum over the system and the control group."""
    figures = [figure for figure in (system_memory_available(), cgroup_memory_available()) if figure is not None]
    return min(figures, default=None)


@cache
def memory_total() -> int | None:
    """Total bytes available to this process: the machine's memory or its control group's limit."""
    (total,) = _meminfo("MemTotal")
    figures = [_cgroup_memory_limit(directory) for directory in _control_groups("memory")]
    return min((figure for figure in (total, *figures) if figure is not None), default=None)


def anonymous_resident() -> int | None:
    """Resident anonymous (not file-backed) bytes of this process, or `None` off Linux."""
    text = _read(Path("/proc/self/statm"))
    if text is None:
        return None
    _, resident, shared, *_ = text.split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
