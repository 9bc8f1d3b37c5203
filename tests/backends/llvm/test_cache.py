"""The object cache: private, with checksums, and ignored where its files cannot be trusted."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from weft.backends.llvm import cache, cache_limit, jit
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Buffer, Kernel
from weft.ops.core import scalar as s


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    return tmp_path / "cache" / "kernels"


def entries(folder):
    return [path for path in folder.iterdir() if path.name != cache_limit.STAMP]


def kernel(addend):
    i, n = s.index("i"), s.param("n")
    x = Buffer.of("x", np.float32, (n,))
    return Kernel("k", (x,), ("n",), (loops.loop("i", n, [loops.store(x[i], x[i] + addend)], "vector"),))


def call(compiled):
    x = np.zeros(5, np.float32)
    compiled.call_objects(id(x), 5)
    return x[0]


def test_entries_come_back(folder):
    cache.write("key", b"code")
    assert cache.read("key") == b"code"
    assert cache.read("other") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [p.name for p in entries(folder)] == ["key"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "header", "swap"])
def test_damaged_entry_is_not_read(folder, damage):
    cache.write("key", b"some object code")
    cache.write("other", b"other object code")
    path = folder / "key"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    elif damage == "truncate":
        content = content[:-4]
    elif damage == "empty":
        content = bytearray()
    elif damage == "header":
        content[2] ^= 1
    else:  # a sound entry under another's name
        content = bytearray((folder / "other").read_bytes())
    path.write_bytes(content)
    assert cache.read("key") is None


def test_entry_others_may_write_is_not_read(folder):
    cache.write("key", b"code")
    (folder / "key").chmod(0o666)
    assert cache.read("key") is None


def test_links_are_not_followed(folder, tmp_path):
    cache.write("key", b"code")
    os.rename(folder / "key", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "key")
    assert cache.read("key") is None


def test_foreign_owner_is_not_trusted(folder, monkeypatch):
    cache.write("key", b"code")
    monkeypatch.setattr(os, "getuid", lambda: 12345678)
    assert cache.read("key") is None
    assert cache.directory() is None


def test_open_directory_is_closed(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    cache.write("key", b"code")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_switched_off(folder, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "0")
    cache.write("key", b"code")
    assert cache.read("key") is None
    assert not folder.exists()


def test_unusable_directory_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "file"))
    cache.write("key", b"code")
    assert cache.read("key") is None
    assert call(jit.compile_kernel(kernel(11.5))) == 11.5


def test_default_directories(monkeypatch, tmp_path):
    monkeypatch.delenv("WEFT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg" / "weft" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.directory() == tmp_path / "home" / ".cache" / "weft" / "kernels"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """No home directory that could be used, and a separate directory for temporary files."""
    monkeypatch.delenv("WEFT_CACHE_DIR", raising=False)
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"weft-{os.getuid()}"


def test_unwritable_home_falls_back_to_a_private_temporary_directory(temporary):
    cache.write("key", b"code")
    assert cache.directory() == temporary / "kernels" and cache.read("key") == b"code"
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700


def test_no_home_and_no_password_entry_falls_back(temporary, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["no such user"])
    assert cache.directory() == temporary / "kernels"


def test_temporary_directory_that_is_a_link_is_not_used(temporary, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    temporary.symlink_to(tmp_path / "elsewhere")
    assert cache.directory() is None


def test_temporary_directory_of_another_user_is_not_used(temporary, monkeypatch):
    made = temporary.with_name("weft-12345678")
    made.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345678)
    assert cache.directory() is None


def test_no_temporary_directory_is_no_error(temporary, monkeypatch):
    def missing():
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    cache.write("key", b"code")
    assert cache.directory() is None and cache.read("key") is None


WITHOUT_A_HOME = """
import os, pwd
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
import weft as wf
assert float(wf.function(lambda x: (x * 2).sum())(wf.ones((100, 100)))) == 20000
assert os.environ["TMPDIR"] in str(wf.info()["cache"]["directory"])
"""

WITH_A_FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
import weft as wf
assert float(wf.function(lambda x: (x * 3).sum())(wf.ones((100, 100)))) == 30000
assert wf.info()["cache"]["files"] == 0
"""


@pytest.mark.parametrize("program", [WITHOUT_A_HOME, WITH_A_FULL_DISK], ids=["no home", "full disk"])
def test_programs_run_where_the_cache_cannot_be_kept(tmp_path, program):
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "WEFT_CACHE_DIR", "WEFT_CACHE")}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3]), "WEFT_NUM_THREADS": "2"}
    if program is WITH_A_FULL_DISK:
        env |= {"WEFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=120, text=True)
    assert done.returncode == 0, done.stderr


def test_second_compilation_runs_no_llvm(folder, monkeypatch):
    assert call(jit.compile_kernel(kernel(3.25))) == 3.25
    monkeypatch.setattr(jit, "compile_ir", lambda *_: pytest.fail("compiled again"))
    assert call(jit.compile_kernel(kernel(3.25))) == 3.25


def test_corrupted_entry_is_rebuilt(folder, monkeypatch):
    jit.compile_kernel(kernel(4.25))
    (entry,) = entries(folder)
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-50] + bytes(50))
    assert call(jit.compile_kernel(kernel(4.25))) == 4.25
    assert entry.read_bytes() == sound


def test_key_depends_on_versions(folder, monkeypatch):
    jit.compile_kernel(kernel(5.25))
    monkeypatch.setattr(jit, "versions", lambda: "another")
    jit.compile_kernel(kernel(5.25))
    assert len(entries(folder)) == 2
