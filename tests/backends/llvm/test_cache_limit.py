"""The kernel cache is bounded: the least recently used entries go first, also when several processes share the directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from weft.backends.llvm import cache, cache_limit, jit
from weft.runtime import limits

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(cache_limit, "_written", 0)
    return tmp_path / "kernels"


def limit_to(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(limits, "cache_bytes", lambda: entries * PAGE)


def age(folder: Path, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / key, (then, then))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {cache_limit.STAMP}


def test_entries_used_longest_ago_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(10):
        cache.write(f"key{i}", b"code")
        age(folder, f"key{i}", 10_000 - i)
    assert cache.read("key0") == b"code"  # which makes it the most recent
    limit_to(monkeypatch, 10)
    age(folder, cache_limit.STAMP, 10_000)
    cache.write("new", b"code")
    assert names(folder) == {"key0", "new", *[f"key{i}" for i in range(3, 10)]}
    assert cache.read("key1") is None and cache.read("key0") == b"code"


def test_the_size_stays_bounded_however_much_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(monkeypatch, 64)
    for i in range(300):
        cache.write(f"key{i}", bytes(100))
        count, size = cache_limit.contents(folder)
        assert count <= 66 and size == count * PAGE
        assert cache.read(f"key{i}") is not None, "a new entry is not the one that goes"


def test_a_read_renews_an_entry_at_most_once_an_hour(folder: Path) -> None:
    cache.write("key", b"code")
    age(folder, "key", 100)
    before = (folder / "key").stat().st_mtime
    cache.read("key")
    assert (folder / "key").stat().st_mtime == before
    age(folder, "key", 4000)
    cache.read("key")
    assert (folder / "key").stat().st_mtime > before


def test_what_dead_processes_left_goes_and_what_is_being_written_stays(folder: Path) -> None:
    cache.write("key", b"code")
    for name, seconds in ((".new-dead", 10_000), (".new-alive", 1)):
        (folder / name).write_bytes(b"half")
        age(folder, name, seconds)
    assert cache_limit.prune(folder, 1 << 30, lambda info: True) == 1
    assert names(folder) == {"key", ".new-alive"}


def test_links_directories_and_files_of_others_are_left_alone(folder: Path, tmp_path: Path) -> None:
    cache.write("key", b"code")
    (tmp_path / "outside").write_bytes(bytes(PAGE))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "inner").mkdir()
    assert cache_limit.prune(folder, 0, lambda info: False) == 0 and (folder / "key").exists()
    assert cache_limit.prune(folder, 0, lambda info: True) == 1
    assert names(folder) == {"link", "inner"} and (tmp_path / "outside").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="several processes")
def test_processes_prune_read_and_write_one_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(monkeypatch, 40)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for i in range(150):
                    key = f"key{(i * 7 + number) % 90}"
                    found = cache.read(key)
                    assert found in (None, key.encode() * 20)
                    if found is None:
                        cache.write(key, key.encode() * 20)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    results = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert results == [0, 0, 0, 0]
    count, size = cache_limit.contents(folder)
    assert 0 < count and size <= 44 * PAGE  # each process may have written one since the last look
    assert not [name for name in names(folder) if name.startswith(cache_limit.TEMPORARY)]


def test_no_limit_looks_at_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cache_bytes", lambda: limits.UNLIMITED)
    cache.write("key", b"code")
    assert names(folder) == {"key"} and not (folder / cache_limit.STAMP).exists()


def compiled(addend: float) -> jit.Compiled:
    from weft.compiler.loop_ir import ir as loops
    from weft.compiler.loop_ir.ir import Buffer, Kernel
    from weft.ops.core import scalar as s

    i, n = s.index("i"), s.param("n")
    x = Buffer.of("x", "float32", (n,))
    body = (loops.loop("i", n, [loops.store(x[i], x[i] + addend)], "vector"),)
    return jit.compile_kernel(Kernel("k", (x,), ("n",), body))


def test_code_is_unloaded_when_nothing_refers_to_it() -> None:
    first = compiled(1.25)
    before = jit.loaded()
    calls = [compiled(100.5 + k).call for k in range(5)]
    assert jit.loaded() == before + 5
    import numpy as np

    array = np.zeros(4, np.float32)
    calls[3](array.ctypes.data, 4)  # a call keeps its code, also without the rest of what was compiled
    assert array.tolist() == [103.5] * 4
    calls.clear()
    second = compiled(2.25)  # LLVM is called again: it is time to unload
    assert jit.loaded() == before + 1 and first is not second


def test_the_garbage_collector_leaves_unloading_to_the_next_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code in a cycle was unloaded by llvmlite's finaliser, without the lock, and then once more."""
    import gc

    from llvmlite.binding import ffi

    disposed = []
    dispose = ffi.lib.LLVMPY_LLJIT_Dylib_Tracker_Dispose

    def recording(tracker: object, problem: object) -> object:
        disposed.append(tracker)
        return dispose(tracker, problem)

    monkeypatch.setitem(ffi.lib._fntab, "LLVMPY_LLJIT_Dylib_Tracker_Dispose", recording)
    compiled(3.25)
    cycle: list[object] = [compiled(200.5 + k) for k in range(5)]
    cycle.append(cycle)
    disposed.clear()
    del cycle
    gc.collect()
    assert not disposed
    compiled(4.25)
    assert len(disposed) >= 5 and len({id(d) for d in disposed}) == len(disposed)
