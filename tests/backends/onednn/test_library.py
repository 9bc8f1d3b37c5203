"""Loading oneDNN: lazily, once, and with one warning when it cannot be done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.backends.onednn import capi, library

_PROGRAM = """
import pathlib, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import weft.backends.onednn.eager as eager
    from weft.backends.onednn import library
    from weft.backends.onednn.capi import Unsupported
    import numpy as np
    assert "libdnnl" not in pathlib.Path("/proc/self/maps").read_text(), "importing loads nothing"
    print("available", library.available(), library.available())
    print("facts", library.version(), library.path(), library.isa())
    try:
        eager.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    except Unsupported as refusal:
        print("unsupported", refusal)
for warning in caught:
    print("warning", warning.category.__name__, warning.message)
"""


def _run(**environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=60, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_switched_off_is_silent() -> None:
    lines = _run(WEFT_ONEDNN="0")
    assert lines[:2] == ["available False False", "facts None None None"]
    assert [line for line in lines if line.startswith("warning")] == []
    assert lines[2].startswith("unsupported oneDNN: not available")


def test_bogus_path_warns_once_and_uses_no_other_library() -> None:
    lines = _run(WEFT_ONEDNN_LIBRARY="/nowhere/libdnnl.so.3")
    assert lines[:2] == ["available False False", "facts None None None"]
    warned = [line for line in lines if line.startswith("warning")]
    assert len(warned) == 1
    assert "RuntimeWarning" in warned[0] and "/nowhere/libdnnl.so.3" in warned[0] and ">= 3.2" in warned[0]


def test_a_library_that_is_not_onednn_warns_once() -> None:
    lines = _run(WEFT_ONEDNN_LIBRARY="libc.so.6")
    assert lines[0] == "available False False"
    assert len([line for line in lines if line.startswith("warning")]) == 1


def test_without_openmp_there_is_no_onednn_and_no_second_warning() -> None:
    lines = _run(WEFT_OPENMP="0")
    assert lines[0] == "available False False"
    assert [line for line in lines if line.startswith("warning")] == []


def test_missing_libgomp_warns_once() -> None:
    lines = _run(WEFT_OPENMP="/nowhere/libgomp.so.1")
    assert lines[0] == "available False False"
    assert len([line for line in lines if line.startswith("warning")]) == 1


def test_named_path_is_used() -> None:
    path = library.path()
    assert path is not None
    lines = _run(WEFT_ONEDNN_LIBRARY=path)
    assert lines[0] == "available True True"
    assert lines[1].split()[2] == path
    assert not [line for line in lines if line.startswith(("warning", "unsupported"))]


def test_facts() -> None:
    version = library.version()
    assert version is not None and tuple(map(int, version.split("."))) >= (3, 2, 0)
    path = library.path()
    assert path is not None and Path(path).is_file()
    assert library.isa()


def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MINIMUM_VERSION", (99, 0))
    with pytest.raises(library._NotLoaded, match=r"no usable libdnnl >= 99\.0 .*too old.*pip install onednn-cpu-gomp"):
        library._open()


def test_many_threads_load_one_library() -> None:
    found: list[object] = []
    workers = [threading.Thread(target=lambda: found.append(library.load())) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert len(found) == 8 and all(item is found[0] is not None for item in found)


def test_a_bad_status_names_the_call_and_the_shapes() -> None:
    lib = library.require()
    with pytest.raises(
        RuntimeError, match=r"dnnl_memory_desc_create_with_strides: invalid_arguments\. Got shape \(2,\)"
    ):
        lib.create("memory_desc_create_with_strides", 99, capi.dims((2,)), 3, capi.dims((1,)), what="shape (2,)")
    assert isinstance(capi.failure("f", capi.Status.UNIMPLEMENTED, ""), capi.Unsupported)
    assert isinstance(capi.failure("f", capi.Status.OUT_OF_MEMORY, ""), MemoryError)
    assert "status 77" in str(capi.failure("f", 77, ""))
