"""Reading limits from a control-group tree and from the system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.runtime import _host


@pytest.fixture(autouse=True)
def forget_what_was_found() -> Iterator[None]:
    cached = (_host._control_groups, _host.memory_total)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, files: dict[str, str]) -> None:
    """Make `_host` see a control-group tree of `files` in which this process is at `membership`."""
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    real = _host._read
    monkeypatch.setattr(_host, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(_host, "_read", lambda path: membership if str(path) == "/proc/self/cgroup" else real(path))


def test_version_2_takes_the_tightest_limit_of_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "a/b/cpu.max": "max 100000",
        "a/cpu.max": "150000 100000",
        "a/b/memory.max": "max",
        "a/b/memory.current": "400",
        "a/memory.max": "1000",
        "a/memory.current": "600",
        "a/memory.stat": "anon 300\ninactive_file 100\n",
        "a/b/pids.max": "50",
        "a/b/pids.current": "20",
    }
    tree(tmp_path, monkeypatch, "0::/a/b\n", files)
    assert _host.cpu_quota() == 1.5
    assert _host.cgroup_memory_available() == 500
    assert _host.memory_total() == 1000
    assert _host.memory_available() == 500
    assert _host.thread_allowance() == 30
    assert _host.usable_cpus() <= 2


def test_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "cpu,cpuacct/x/unrelated": "",
        "cpu/x/cpu.cfs_quota_us": "50000",
        "cpu/x/cpu.cfs_period_us": "100000",
        "memory/x/memory.limit_in_bytes": "2000",
        "memory/x/memory.usage_in_bytes": "2500",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/memory.usage_in_bytes": "2500",
    }
    tree(tmp_path, monkeypatch, "4:cpu,cpuacct:/x\n3:memory:/x\n0::/x\n", files)
    assert _host.cpu_quota() == 0.5
    assert _host.usable_cpus() == 1
    assert _host.cgroup_memory_available() == 0
    assert _host.memory_total() == 2000
    assert _host.thread_allowance() is None


def test_container_whose_own_path_is_not_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, monkeypatch, "0::/host/path\n", {"cpu.max": "200000 100000"})
    assert _host.cpu_quota() == 2.0


def test_no_control_groups_means_no_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, monkeypatch, "", {})
    assert _host.cpu_quota() is None
    assert _host.cgroup_memory_available() is None
    assert _host.thread_allowance() is None
    assert _host.usable_cpus() >= 1


def test_unreadable_files_mean_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "_read", lambda path: None)
    assert _host.memory_available() is None
    assert _host.memory_total() is None
    assert _host.anonymous_resident() is None


def test_figures_of_this_machine_are_plausible() -> None:
    available, total, resident = _host.memory_available(), _host.memory_total(), _host.anonymous_resident()
    assert available is not None and total is not None and resident is not None
    assert 0 < resident < total and 0 < available
