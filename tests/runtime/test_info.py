"""What Weft says about the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.backends.onednn import copies
from weft.runtime import _host, info, memory, threads


def test_info_is_plain_data_and_agrees_with_its_sources() -> None:
    found = info.info()
    assert json.loads(json.dumps(found)) == found
    assert found["versions"]["numpy"] == np.__version__
    assert found["threads"]["width"] == threads.get_num_threads()
    assert found["openmp"]["path"] == threads.openmp_path()
    assert found["memory"]["in_use"] == memory.stats().in_use
    assert found["cpu"]["usable"] >= 1 and found["cpu"]["model"]


def test_copies_of_onednn_are_named_and_linked_on_request(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("libdnnl.so", "libdnnl.so.3", "libdnnl.so.3.2")]
    for file in files:
        file.write_bytes(b"library" * 100)
    (tmp_path / "libdnnl_other.so").write_bytes(b"another" * 100)
    assert copies.copies_of(files[1]) == [files[0], files[2]]
    found = info.info()
    found["onednn"]["copies"] = [str(files[0]), str(files[2])]
    text = info.format_info(found)
    assert "stored it again as libdnnl.so, libdnnl.so.3.2: 1.4 KiB" in text
    assert "which `weft info --dedupe` frees" in text
    assert copies.link_copies(files[1]) == ([files[0], files[2]], 1400)
    assert len({file.stat().st_ino for file in files}) == 1 and files[2].read_bytes() == b"library" * 100
    assert copies.copies_of(files[1]) == [] and len(list(tmp_path.iterdir())) == 4


def test_text_names_every_section() -> None:
    text = info.format_info()
    for name in (
        "weft",
        "python",
        "numpy",
        "processor",
        "threads",
        "OpenMP",
        "oneDNN",
        "kernel cache",
        "programs",
        "allocator",
    ):
        assert f"\n{name}" in f"\n{text}"
    assert os.environ["WEFT_CACHE_DIR"] in text


@pytest.mark.parametrize(
    ("environment", "key", "expected"),
    [
        ({"WEFT_OPENMP": "0"}, "openmp", {"path": None, "usable": False, "others": []}),
        (
            {"WEFT_ONEDNN": "0"},
            "onednn",
            {"available": False, "version": None, "path": None, "isa": None, "copies": []},
        ),
        ({"WEFT_CACHE": "0"}, "cache", {"directory": None, "files": 0, "bytes": 0, "limit": 512 << 20}),
    ],
)
def test_info_reports_disabled_libraries(environment: dict[str, str], key: str, expected: dict[str, object]) -> None:
    code = "import json; from weft.runtime import info; f = info.info(); info.format_info(f); print(json.dumps(f))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found[key] == expected
    assert found["problems"] == []


def test_a_missing_library_is_listed_as_a_problem_with_the_remedy() -> None:
    code = "from weft.runtime import info; print(info.format_info())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "WEFT_OPENMP": "/nonexistent/libgomp.so.1"},
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert "apt-get install libgomp1" in done.stdout and "none: one thread" in done.stdout


def test_a_machine_that_says_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "_read", lambda path: None)
    monkeypatch.setattr(_host, "memory_total", lambda: None)
    text = info.format_info()
    assert "unknown" in text
