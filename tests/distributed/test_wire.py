"""The wire between hosts: both ends prove that they know the token, and nothing a peer sends harms a relay."""

from __future__ import annotations

import ast
import contextlib
import os
import pickle
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.distributed import wire
from weft.distributed.board import INITIALISED, Board, Shape
from weft.distributed.context import Context
from weft.distributed.memory import Memory
from weft.distributed.relay import Relay, relaying
from weft.distributed.wire import Connection, Frame, WireError

from .test_keeper import Host

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]

TOKEN = bytes(range(32))


@contextlib.contextmanager
def listening(token: bytes) -> Iterator[tuple[tuple[str, int], list[Connection], list[Exception]]]:
    """A server that accepts one connection after the other."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    made: list[Connection] = []
    errors: list[Exception] = []
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                found, _ = server.accept()
            except TimeoutError:
                continue
            try:
                made.append(wire.accept(found, token, 0))
            except WireError as error:
                errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname(), made, errors
    finally:
        over.set()
        thread.join(10)
        server.close()
        for connection in made:
            connection.close()


def pair(token: bytes = TOKEN) -> tuple[Connection, Connection]:
    with listening(token) as (address, made, _):
        client = wire.connect(address, token, 3, 5.0)
        _until(lambda: bool(made))
        return client, made.pop()


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_frames_arrive_in_the_memory_that_the_receiver_chose() -> None:
    client, server = pair()
    assert (client.host, server.host) == (0, 3)
    data = np.random.default_rng(0).normal(size=300_000)
    sender = threading.Thread(target=client.send, args=(Frame(2, 1, 7, 1 << 40, 5, data.nbytes + 3), [data, b"abc"]))
    sender.start()
    assert server.receive() == Frame(2, 1, 7, 1 << 40, 5, data.nbytes + 3)
    target = np.empty_like(data)
    server.read(target)
    server.skip(3)
    sender.join(10)
    assert np.array_equal(target, data)
    server.send(Frame(1, 0, 0, 0, 0, 0))
    assert client.receive().kind == 1
    client.close(), server.close()


@pytest.mark.parametrize("token", [bytes(32), TOKEN[:31] + b"x"], ids=["zeros", "one byte"])
def test_a_peer_with_another_token_is_refused_on_both_ends(token: bytes) -> None:
    with listening(TOKEN) as (address, made, errors):
        with pytest.raises(WireError, match="does not know the token"):
            wire.connect(address, token, 1, 5.0)
        _until(lambda: bool(errors))
        assert not made and "closed the connection" in str(errors[0])


def test_a_server_that_only_repeats_what_it_hears_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            found, _ = server.accept()
            with found:
                heard = found.recv(1000)
                found.sendall(heard + heard)

        thread = threading.Thread(target=echo)
        thread.start()
        with pytest.raises((WireError, ConnectionError)):
            wire.connect(server.getsockname(), TOKEN, 1, 5.0)
        thread.join(10)


def test_a_frame_that_is_changed_or_repeated_is_refused() -> None:
    for change in ("flip", "repeat"):
        client, server = pair()
        client.send(Frame(1, 0, 9, 0, 0, 0))
        data = bytearray(server.socket.recv(56, socket.MSG_PEEK))
        assert server.receive().step == 9
        if change == "flip":
            client._sent = 1
            data[8] ^= 1
        client.socket.sendall(data)
        with pytest.raises(WireError, match="wrong signature"):
            server.receive()
        client.close(), server.close()


def test_a_token_file_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN.hex())
    os.chmod(path, 0o644)
    with pytest.raises(PermissionError, match="expected mode 0600"):
        wire.read_token(str(path))
    os.chmod(path, 0o600)
    assert wire.read_token(str(path)) == TOKEN
    path.write_text("12")
    with pytest.raises(ValueError, match="holds no token"):
        wire.read_token(str(path))


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """A relay of a host with the state of one optimiser."""
    host = Host(tmp_path, "keeper.sock")
    context = Context(str(tmp_path), 8, 2, log=100, hosts=2)
    (tmp_path / "peers.json").write_text('{"0": ["127.0.0.1", 1], "3": ["127.0.0.1", 2]}')
    memory = Memory(host.socket)
    shape = Shape(8, 3, 3, relayed=True)
    board = Board(memory.open("board", Board.nbytes(shape)), shape)
    board.format((4096, 4096, 64))
    board.store("header", INITIALISED, 1 << 32)
    with relaying(context, TOKEN) as made:
        _until(lambda: bool(made.parts))
        yield made
    memory.close()
    host.close()


class Canary:
    """An object whose pickle says that it was read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_strangers_are_refused_with_one_line_and_cannot_harm_a_relay(
    relay: Relay, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address = relay._server.getsockname()
    rng = random.Random(0)
    pickled = pickle.dumps(Canary(str(tmp_path / "read")))
    said = [b"", b"GET / HTTP/1.1\r\n\r\n", wire.MAGIC, wire.MAGIC + bytes(36), pickled, b"\x16\x03\x01" + bytes(500)]
    before = resident_bytes()
    for _ in range(300):  # a scanner, HTTP, half a greeting, TLS, noise
        with socket.create_connection(address, 5) as peer, contextlib.suppress(ConnectionError):
            peer.sendall(rng.choice([*said, rng.randbytes(200)]))
    with socket.create_connection(address, 5) as silent:  # it is told nothing, and let go
        silent.settimeout(30)
        assert silent.recv(1) == b""
    for token in (bytes(32), rng.randbytes(32)):
        with pytest.raises((WireError, ConnectionError)):
            wire.connect(address, token, 3, 5.0)
    connection = wire.connect(address, TOKEN, 3, 5.0)
    connection.send(Frame(1, 0, 1, 0, 1, 0))
    assert connection.receive().kind == 1
    connection.close()
    refusals = [line for line in capfd.readouterr().err.splitlines() if "refused" in line]
    assert "Traceback" not in "".join(refusals) and len(refusals) == len(set(refusals)) < 10
    assert any("does not speak the language of relays" in line for line in refusals)
    assert not (tmp_path / "read").exists() and resident_bytes() - before < 64 << 20


def test_frames_of_a_peer_that_has_gone_mad_do_not_harm_a_relay(
    relay: Relay, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    kinds = [*range(1, 12), rng.randrange(1 << 32)]
    pickled = pickle.dumps(Canary(str(tmp_path / "read")))
    (part,) = relay.parts
    sizes = [0, 0, 0, 3, 40, 100, 4096 + 8 * 5 + 1, 2 * 4096 + 64, 4096 + 64]
    parsed, before = Counter[int](), resident_bytes()
    receive = Connection.receive

    def count(connection: Connection) -> Frame:
        frame = receive(connection)
        parsed[frame.kind] += 1
        return frame

    monkeypatch.setattr(Connection, "receive", count)
    while parsed.total() < 10_000:
        connection = wire.connect(relay._server.getsockname(), TOKEN, 3, 5.0)
        with contextlib.suppress(OSError):
            for _ in range(20):
                numbers = [rng.choice([0, 1, 2, 5, 9, 1 << 32 | 8, rng.randrange(1 << 64)]) for _ in range(3)]
                nbytes = rng.choice([*sizes, rng.randrange(1 << 64)])
                frame = Frame(rng.choice(kinds), rng.choice([0, 0, 0, 1, 77, 1 << 31]), *numbers, nbytes)
                payload = rng.choice([pickled, rng.randbytes(40), rng.randbytes(9000)])[: min(nbytes, 9000)]
                connection.send(frame, [payload])
            connection.socket.shutdown(socket.SHUT_WR)
            connection.socket.settimeout(30)
            while connection.socket.recv(1 << 16):  # until the relay has read all, or has had enough
                pass
        connection.close()
    monkeypatch.setattr(Connection, "receive", receive)
    assert min(parsed[kind] for kind in range(1, 12)) > 100
    connection = wire.connect(relay._server.getsockname(), TOKEN, 3, 5.0)
    assert connection.receive().kind in (1, 9, 10)
    connection.close()
    assert part.version <= 100 and resident_bytes() - before < 64 << 20 and not (tmp_path / "read").exists()
    assert "Traceback" not in capfd.readouterr().err
    assert not [name for name in os.listdir(relay.directory) if name not in {
        "keeper.sock", "segments", "peers.json", "listening", "base", "decisions",
    }]  # fmt: skip


def test_nothing_of_the_package_reads_pickles() -> None:
    """What crosses a wire, a pipe or a file is read as bytes, JSON or safetensors."""
    unsafe = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "multiprocessing.connection"}
    found = []
    for file in sorted(Path(wire.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                allows = any(keyword.arg == "allow_pickle" for keyword in node.keywords)
                names = [called] if called in ("eval", "exec", "np.load", "pickle.loads") or allows else []
            else:
                continue
            found += [f"{file.name}: {name}" for name in names if name in unsafe or isinstance(node, ast.Call)]
    assert found == []
