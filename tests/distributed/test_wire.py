"""The wire between hosts: both ends prove that they know the token, and nothing a peer sends harms a relay."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.distributed import wire
from weft.distributed.context import Context
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
    host = Host(tmp_path, "keeper.sock")
    context = Context(str(tmp_path), 8, 2, hosts=2)
    (tmp_path / "peers.json").write_text('{"0": ["127.0.0.1", 1], "3": ["127.0.0.1", 2]}')
    with relaying(context, TOKEN) as made:
        yield made
    host.close()


def test_strangers_cannot_harm_a_relay(relay: Relay, capfd: pytest.CaptureFixture[str]) -> None:
    address = relay._server.getsockname()
    rng = random.Random(0)
    for _ in range(300):  # a scanner, HTTP, half a greeting, noise
        with socket.create_connection(address, 5) as peer:
            peer.sendall(
                rng.choice([b"", b"GET / HTTP/1.1\r\n\r\n", wire.MAGIC, wire.MAGIC + bytes(36), rng.randbytes(200)])
            )
    connection = wire.connect(address, TOKEN, 3, 5.0)
    connection.send(Frame(1, 0, 1, 0, 1, 0))
    assert connection.receive().kind == 1
    connection.close()
    refusals = [line for line in capfd.readouterr().err.splitlines() if "refused" in line]
    assert 250 <= len(refusals) <= 300 and "Traceback" not in "".join(refusals)


def test_frames_of_a_peer_that_has_gone_mad_do_not_harm_a_relay(relay: Relay) -> None:
    rng = random.Random(1)
    sent = 0
    while sent < 4_000:
        connection = wire.connect(relay._server.getsockname(), TOKEN, 3, 5.0)
        with contextlib.suppress(OSError):
            for _ in range(5):
                frame = Frame(
                    rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, rng.randrange(1 << 32)]), rng.choice([0, 0, 1, 77, 1 << 31]),
                    *(rng.choice([0, 1, 5, rng.randrange(1 << 64)]) for _ in range(3)),
                    rng.choice([0, 0, 0, 3, 40, rng.randrange(1 << 64)]),
                )  # fmt: skip
                connection.send(frame, [rng.randbytes(min(frame.nbytes, 40))])
                sent += 1
        connection.close()
    connection = wire.connect(relay._server.getsockname(), TOKEN, 3, 5.0)
    assert connection.receive().kind == 1
    connection.close()
    assert not [name for name in os.listdir(relay.directory) if name not in {
        "keeper.sock", "segments", "peers.json", "listening", "base", "decisions",
    }]  # fmt: skip
