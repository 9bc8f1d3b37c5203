"""Channels: connections of a cluster on which any number of threads send frames, and one at a time receives them.

A frame is a header, a head (JSON, or the shapes of what follows) and data, the bytes of arrays. A channel begins with the
handshake of `wire`, which both ends must pass before anything is parsed. Over TCP every frame carries a MAC (keyed BLAKE2, a
fifth of the time of an HMAC) over a sequence number, header and head; data are neither signed nor encrypted, as in `wire`.
Over a Unix socket, whose directory only the user can enter, the kernel keeps others out and there is no MAC.

A frame is written by one system call and, if it is small, read by one: received bytes are buffered. Large data go straight
from and into the memory of tensors.
"""

from __future__ import annotations

import array
import hashlib
import hmac
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from .wire import _HEADER, _MAC, _SEQUENCE, Connection, Frame, WireError

BUFFER_BYTES = 1 << 16  # of received bytes
SMALL_BYTES = 4096  # of frames and values that are copied rather than sent and received in place
SOCKET_BYTES = 4 << 20  # what the kernel may buffer
MAX_HEAD_BYTES = 1 << 28
MAX_DESCRIPTORS = 8  # that come with one frame
_RIGHTS_SPACE = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
MAX_BUFFERS = 512  # that one system call sends


class Channel:
    """One end of a connection. `peer` is the number that the other end gave in the handshake."""

    def __init__(self, connection: Connection) -> None:
        self.socket, self.peer = connection.socket, connection.host
        self._send_mac = hashlib.blake2b(key=connection._send_key, digest_size=_MAC)
        self._receive_mac = hashlib.blake2b(key=connection._receive_key, digest_size=_MAC)
        self.signed = self.socket.family != socket.AF_UNIX
        self._first = _HEADER.size + (_MAC if self.signed else 0)
        self._sent = self._received = 0
        self._sending = threading.Lock()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self.bytes_sent = self.bytes_received = 0
        self.descriptors: deque[int] = deque()  # that came and were not taken yet
        if not self.signed:  # the kernel tunes those of TCP itself
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)

    def fileno(self) -> int:
        return self.socket.fileno()

    # Sending --------------------------------------------------------------------------------------------------------

    def send(
        self, kind: int, part: int = 0, step: int = 0, a: int = 0, head: bytes = b"", data: Sequence[memoryview] = (),
        descriptors: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Send a frame with the numbers `part`, `step` and `a`; `data` are views of bytes. Over a Unix socket, file
        descriptors may come with it.

        Raises:
            OSError: the connection is broken.
        """
        if len(data) > MAX_BUFFERS:
            data = [memoryview(b"".join(data))]
        nbytes = len(head)
        for view in data:
            nbytes += view.nbytes
        first = _HEADER.pack(kind, part, step, a, len(head), nbytes)
        with self._sending:
            if self.signed:
                mac = self._send_mac.copy()
                mac.update(_SEQUENCE.pack(self._sent) + first + head)
                first += mac.digest()
                self._sent += 1
            first += head
            total = self._first + nbytes
            if total <= SMALL_BYTES and not descriptors:
                sent = self.socket.send(b"".join((first, *data)) if data else first)
            elif descriptors:
                rights = array.array("i", descriptors)
                sent = self.socket.sendmsg([first, *data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            else:
                sent = self.socket.sendmsg([first, *data]) if data else self.socket.send(first)
            self.bytes_sent += total
            if sent < total:
                self._send_rest([first, *data], sent)

    def _send_rest(self, buffers: Sequence[Any], sent: int) -> None:
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
                continue
            self.socket.sendall(memoryview(buffer)[sent:])
            sent = 0

    @property
    def is_sending(self) -> bool:
        """Whether a frame is being sent now."""
        return self._sending.locked()

    # Receiving ------------------------------------------------------------------------------------------------------

    @property
    def buffered(self) -> bool:
        """Whether bytes have been received that were not asked for yet: no descriptor announces them."""
        return self._end > self._start

    def receive(self) -> tuple[Frame, bytes]:
        """Header and head of the next frame. The caller then reads its `nbytes - b` bytes of data with `read_into`.

        Raises:
            WireError: the frame is not signed by the peer, or too large.
            OSError: the connection is broken or closed.
        """
        data = self._take(self._first)
        header = data[: _HEADER.size] if self.signed else data
        frame = Frame._make(_HEADER.unpack(header))
        size = frame.b
        if size > MAX_HEAD_BYTES or size > frame.nbytes:
            raise WireError(f"a frame with a head of {size:,} bytes; at most {MAX_HEAD_BYTES:,} are read")
        head = self._take(size) if size else b""
        if self.signed:
            mac = self._receive_mac.copy()
            mac.update(_SEQUENCE.pack(self._received) + header + head)
            if not hmac.compare_digest(data[_HEADER.size :], mac.digest()):
                raise WireError("a frame with a wrong signature")
            self._received += 1
        return frame, head

    def _take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > BUFFER_BYTES // 2:
            large = bytearray(count)
            self.read_into(memoryview(large))
            return bytes(large)
        while self._end - self._start < count:
            if self._start + count > BUFFER_BYTES:
                rest = self._end - self._start
                self._buffer[:rest] = self._buffer[self._start : self._end]
                self._start, self._end = 0, rest
            got = self._receive(self._view[self._end :])
            if not got:
                raise ConnectionResetError("the peer closed the connection")
            self._end += got
            self.bytes_received += got
        data = bytes(self._view[self._start : self._start + count])
        self._start += count
        if self._start == self._end:
            self._start = self._end = 0
        return data

    def _receive(self, view: memoryview) -> int:
        """Some bytes, and over a Unix socket the descriptors that come with them."""
        if self.signed:
            return self.socket.recv_into(view)
        got, extra, _, _ = self.socket.recvmsg_into([view], _RIGHTS_SPACE, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(data[: len(data) - len(data) % found.itemsize])
                self.descriptors.extend(found)
        return got

    def read_into(self, view: memoryview) -> None:
        """Fill a view of bytes with the next ones."""
        have = min(self._end - self._start, len(view))
        if have:
            view[:have] = self._view[self._start : self._start + have]
            self._start += have
            if self._start == self._end:
                self._start = self._end = 0
        while have < len(view):
            got = self.socket.recv_into(view[have:], 0, socket.MSG_WAITALL)
            if not got:
                raise ConnectionResetError("the peer closed the connection")
            have += got
            self.bytes_received += got

    def take_buffered(self, count: int) -> memoryview | None:
        """The next `count` bytes, if they are few and were received already; valid until the next call of this object."""
        start = self._start
        if count > SMALL_BYTES or self._end - start < count:
            return None
        self._start = start + count
        if self._start == self._end:
            self._start = self._end = 0
        return self._view[start : start + count]

    def skip(self, count: int) -> None:
        """Read and forget."""
        while count:
            count -= len(self._take(min(count, BUFFER_BYTES // 2)))

    def close(self) -> None:
        """End the connection; threads that use it get an OSError."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
        self.socket.close()
        while self.descriptors:
            os.close(self.descriptors.popleft())
