"""The keeper of a run's memory: hands out segments, survives nonsense, and gets its segments back after it was killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.distributed import keeper as keeper_module
from weft.distributed.memory import KeeperError, Memory

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]


class Host:
    """A keeper process and the lifeline it hangs on."""

    def __init__(self, directory: Path, name: str = "k.sock") -> None:
        self.socket, self.journal = str(directory / name), str(directory / "segments")
        self.read, self.write = os.pipe()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        program = [sys.executable, str(keeper_module.__file__), self.socket, str(self.read), self.journal]
        self.process = subprocess.Popen(program, pass_fds=[self.read])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> int:
        os.close(self.write)
        assert self.process is not None
        status = self.process.wait(10)
        os.close(self.read)
        return status


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def test_all_workers_get_the_same_zeroed_memory(host: Host) -> None:
    a, b = Memory(host.socket), Memory(host.socket)
    first = a.open("state", 4096).array((4096,), "u1")
    assert not first.any()
    first[7] = 9
    assert b.find("other") is None
    found = b.find("state")
    assert found is not None and found.array((4096,), "u1")[7] == 9
    a.close(), b.close()


def test_a_worker_that_expects_another_size_is_told_so(host: Host) -> None:
    a = Memory(host.socket)
    a.open("state", 4096)
    b = Memory(host.socket)
    with pytest.raises(KeeperError, match="has 4,096 bytes, this worker expects 8,192"):
        b.open("state", 8192)
    with pytest.raises(KeeperError, match="cannot reserve"):
        b.open("huge", 1 << 60)
    a.close(), b.close()


def test_a_killed_keeper_gets_its_segments_back_from_the_workers(host: Host) -> None:
    a = Memory(host.socket)
    a.open("state", 64).array((64,), "u1")[:] = 5
    host.kill()
    host.start()
    late = Memory(host.socket)
    deadline = time.monotonic() + 20
    while "state" not in late.segments:
        a.check()  # the heartbeat of the living worker
        late.find("state")
        assert time.monotonic() < deadline
    assert late.segments["state"].array((64,), "u1")[3] == 5
    a.close(), late.close()


def test_the_keeper_survives_nonsense(host: Host) -> None:
    Memory(host.socket).close()  # it listens
    rng = random.Random(0)
    lines = [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"open": 3, "nbytes": "x"}\n',
        b'{"offer": "x"}\n',
        b"\xff\xfe\n",
        b"1" * 9000,
    ]
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(host.socket)  # blocks while the queue is full; with a time-out it would fail
            peer.settimeout(5)
            data = (
                rng.choice(lines)
                if rng.random() < 0.5
                else bytes(rng.randrange(256) for _ in range(rng.randrange(300)))
            )
            peer.sendall(data)
    memory = Memory(host.socket)
    assert memory.open("state", 16).array((16,), "u1").sum() == 0
    memory.close()


def test_the_keeper_ends_with_its_lifeline(tmp_path: Path) -> None:
    assert Host(tmp_path).close() == 0


def test_a_keeper_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeeperError, match="cannot reach the keeper"):
        Memory(str(tmp_path / "nowhere.sock"), seconds=0.1)
