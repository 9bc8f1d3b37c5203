"""The wire between hosts: connections that authenticate both ends before anything is parsed, and frames of known lengths.

Both ends know the run's token. Each proves it by an HMAC over the other's random number; only then are frames read. A frame
is a header of fixed size with a MAC over it and its sequence number, then `nbytes` of payload, which the receiver reads into
memory that it chose: nothing is allocated by the numbers of a peer. Payloads are neither encrypted nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

MAGIC = b"weft-1\r\n"
NONCE = 32
HANDSHAKE_SECONDS = 1.0
CHUNK = 1 << 20
_HEADER = struct.Struct("<IIQQQQ")
_SEQUENCE = struct.Struct("<Q")
_HOST = struct.Struct("<I")
_MAC = 16
TOKEN_BYTES = 32


class WireError(ConnectionError):
    """A peer that is not one of this run, or that sent what no relay sends."""


class Frame(NamedTuple):
    """The header of a frame. What the numbers mean depends on the kind; see `relay`."""

    kind: int
    part: int
    step: int
    a: int
    b: int
    nbytes: int


def read_token(path: str) -> bytes:
    """The secret of a run.

    Raises:
        PermissionError: others than the owner can read the file.
        ValueError: it does not hold a token.
    """
    with open(path) as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(f"distributed: {path} is readable by others; expected mode 0600.")
        token = bytes.fromhex(file.read().strip())
    if len(token) != TOKEN_BYTES:
        raise ValueError(f"distributed: {path} holds no token: expected {TOKEN_BYTES} bytes in hex, got {len(token)}.")
    return token


class Connection:
    """An authenticated connection. One thread may send while another receives."""

    def __init__(self, peer: socket.socket, keys: tuple[bytes, bytes], host: int) -> None:
        self.socket, self.host = peer, host
        self._send_key, self._receive_key = keys
        self._sent = self._received = 0
        self.bytes_sent = self.bytes_received = 0
        if peer.family != socket.AF_UNIX:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: Frame, buffers: Sequence[Any] = ()) -> None:
        """Send a frame; the buffers together have `nbytes`, straight from their memory."""
        header = _HEADER.pack(*frame)
        mac = _mac(self._send_key, _SEQUENCE.pack(self._sent) + header)[:_MAC]
        self._sent += 1
        self._write(header + mac)
        for buffer in buffers:
            self._write(buffer)

    def _write(self, buffer: Any) -> None:
        view = _bytes_of(buffer)
        self.bytes_sent += len(view)
        while view:
            view = view[self.socket.send(view[:CHUNK]) :]

    def receive(self) -> Frame:
        """The next frame's header. The caller then reads its payload with `read`."""
        data = bytearray(_HEADER.size + _MAC)
        self.read(data)
        header, mac = bytes(data[: _HEADER.size]), bytes(data[_HEADER.size :])
        expected = _mac(self._receive_key, _SEQUENCE.pack(self._received) + header)[:_MAC]
        if not hmac.compare_digest(mac, expected):
            raise WireError("a frame with a wrong signature")
        self._received += 1
        return Frame(*_HEADER.unpack(header))

    def read(self, buffer: Any) -> None:
        """Fill a buffer."""
        view = _bytes_of(buffer)
        self.bytes_received += len(view)
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the peer closed the connection")
            view = view[count:]

    def skip(self, nbytes: int) -> None:
        """Read and forget."""
        scratch = bytearray(min(nbytes, CHUNK))
        while nbytes:
            part = memoryview(scratch)[: min(nbytes, CHUNK)]
            self.read(part)
            nbytes -= len(part)

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        except OSError:
            pass  # it is closed already
        self.socket.close()


def connect(address: tuple[str, int] | str, token: bytes, host: int, seconds: float) -> Connection:
    """Connect to a peer: the relay of another host, or the Unix socket of that path.

    Raises:
        WireError: the peer does not know the token.
        OSError: it cannot be reached.
    """
    name = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    peer = _open(address, seconds)
    try:
        peer.settimeout(HANDSHAKE_SECONDS)
        end = time.monotonic() + HANDSHAKE_SECONDS
        mine = secrets.token_bytes(NONCE)
        peer.sendall(MAGIC + mine + _HOST.pack(host))
        answer = _exactly(peer, NONCE + 32 + _HOST.size, end)
        theirs, proof, other = answer[:NONCE], answer[NONCE : NONCE + 32], answer[NONCE + 32 :]
        said = mine + theirs + _HOST.pack(host) + other
        if not hmac.compare_digest(proof, _mac(token, b"server" + said)):
            raise WireError(f"{name} does not know the token of this run")
        peer.sendall(_mac(token, b"client" + said))
        if _exactly(peer, 1, end) != b"!":
            raise WireError(f"{name} did not accept the token of this run")
        peer.settimeout(None)
        return Connection(peer, _keys(token, said), _HOST.unpack(other)[0])
    except BaseException:
        peer.close()
        raise


def _open(address: tuple[str, int] | str, seconds: float) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, seconds)
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.settimeout(seconds)
        peer.connect(address)
        return peer
    except BaseException:
        peer.close()
        raise


def accept(peer: socket.socket, token: bytes, host: int) -> Connection:
    """The other end of `connect`. Closes the socket if it fails.

    Raises:
        WireError: the peer does not know the token, or speaks another language.
    """
    try:
        peer.settimeout(HANDSHAKE_SECONDS)
        end = time.monotonic() + HANDSHAKE_SECONDS
        opening = _exactly(peer, len(MAGIC) + NONCE + _HOST.size, end)
        if not opening.startswith(MAGIC):
            raise WireError("it does not speak the language of relays")
        theirs, other = opening[len(MAGIC) : len(MAGIC) + NONCE], opening[len(MAGIC) + NONCE :]
        mine = secrets.token_bytes(NONCE)
        said = theirs + mine + other + _HOST.pack(host)
        peer.sendall(mine + _mac(token, b"server" + said) + _HOST.pack(host))
        if not hmac.compare_digest(_exactly(peer, 32, end), _mac(token, b"client" + said)):
            raise WireError("it does not know the token of this run")
        peer.sendall(b"!")
        peer.settimeout(None)
        send, receive = _keys(token, said)
        return Connection(peer, (receive, send), _HOST.unpack(other)[0])
    except OSError as error:
        peer.close()
        raise error if isinstance(error, WireError) else WireError(str(error)) from error


def _exactly(peer: socket.socket, count: int, end: float) -> bytes:
    """So many bytes, before the clock is at `end`: a peer that sends slowly does not have longer."""
    data = b""
    while len(data) < count:
        peer.settimeout(max(end - time.monotonic(), 0.001))
        more = peer.recv(count - len(data))
        if not more:
            raise WireError("it closed the connection")
        data += more
    return data


def _bytes_of(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256().name)


def _keys(token: bytes, said: bytes) -> tuple[bytes, bytes]:
    """The keys of the two directions: from the end that connected, and to it."""
    return _mac(token, b"forth" + said), _mac(token, b"back" + said)
