"""Mirror: copies the rounds of this host's ranks to the other hosts, and theirs to this one.

It is part of the relay. What a rank of another host publishes appears in this host's exchange as if the rank were here,
so ranks need not know who is where, and results do not depend on it. A frame carries one round of one rank, straight
from its staging buffer and into the copy of it. Rounds that were sent before a connection broke are sent again and
ignored there. A round is never overwritten while it is needed: its rank goes on only after the ranks that read it have.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np

from .context import Context
from .exchange import ABORT_BYTES, CHUNK_BYTES, LEFT, RECORD_BYTES, Exchange
from .memory import KeeperError, Memory
from .wire import Connection, Frame, WireError

ROUND, ROW, ABORT = 32, 33, 34  # kinds of frames, beside those of `relay`
IDLE_SECONDS = 0.05
_BYTES = np.dtype(np.uint8)


class Peer(Protocol):
    """A connection to another host's relay."""

    host: int
    connection: Connection
    closed: threading.Event
    sending: threading.Lock
    mirrored: Sent


class Sent:
    """What has been sent over a connection: the last round of each rank, what was said about it, and the error of the run."""

    def __init__(self) -> None:
        self.rounds: dict[int, int] = {}
        self.rows: dict[int, tuple[int, int, int]] = {}
        self.aborted = False


class Mirror:
    """The exchange of this host, as its relay uses it."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self._context, self._memory = context, memory
        self._exchange: Exchange | None = None
        self._lock = threading.Lock()

    @property
    def _host(self) -> int:
        return self._context.host

    def _open(self, create: bool) -> Exchange | None:
        """The exchange; None if no rank of this host uses it yet, unless it is to be created."""
        with self._lock:
            if self._exchange is None and self._context.members > 1:
                try:
                    if create or self._memory.find(Exchange.NAME) is not None:
                        self._exchange = Exchange(self._context.members, self._memory.open)
                except (OSError, KeeperError):
                    return None  # the keeper is being started again
            return self._exchange

    # Sending --------------------------------------------------------------------------------------------------------

    def run(self, peer: Peer) -> None:
        """Send what happens here until the connection is closed; for a thread of its own."""
        while not peer.closed.is_set():
            exchange = self._open(False)
            if exchange is None:
                peer.closed.wait(IDLE_SECONDS)
                continue
            seen = exchange.changes()
            with peer.sending:
                self.flush(peer)
            exchange.wait_changes(seen + 1, IDLE_SECONDS)

    def flush(self, peer: Peer) -> None:
        """Send what is new. The caller holds the connection's lock."""
        exchange = self._exchange
        if exchange is None:
            return
        ranks = [q for q in range(exchange.ranks) if exchange.host(q) == self._host and exchange.identity(q)]
        # The rows are read first and sent last: a rank that has left is not known to have before its last round is.
        rows = {q: (exchange.state(q), exchange.steps(q), exchange.head(exchange.state_at(q))[0]) for q in ranks}
        sent = peer.mirrored
        for rank in ranks:
            arrived = exchange.arrived(rank)
            for seq in range(max(sent.rounds.get(rank, 0) + 1, arrived - 1, 1), arrived + 1):
                self._send_round(peer, exchange, rank, seq)
                sent.rounds[rank] = seq
        for rank, row in rows.items():
            if sent.rows.get(rank) != row:
                self._send_row(peer, exchange, rank, row)
                sent.rows[rank] = row
        found = exchange.aborted()
        if found is not None and not sent.aborted:
            sent.aborted = True
            text = found[1].encode()
            peer.connection.send(Frame(ABORT, 0, 0, found[0], 0, len(text)), [text])

    def _send_round(self, peer: Peer, exchange: Exchange, rank: int, seq: int) -> None:
        at = exchange.record_at(rank, seq)
        nbytes = min(exchange.head(at)[4], CHUNK_BYTES)
        data = exchange.chunk(rank, seq, _BYTES, nbytes)
        peer.connection.send(Frame(ROUND, rank, seq, 0, 0, RECORD_BYTES + nbytes), [exchange.raw(at), data])

    def _send_row(self, peer: Peer, exchange: Exchange, rank: int, row: tuple[int, int, int]) -> None:
        state, steps, _ = row
        records = [exchange.raw(exchange.step_at(rank, steps)), exchange.raw(exchange.state_at(rank))]
        peer.connection.send(Frame(ROW, rank, steps, state, 0, 2 * RECORD_BYTES), records)

    # Receiving ------------------------------------------------------------------------------------------------------

    def on_round(self, peer: Peer, frame: Frame) -> None:
        exchange = self._checked(peer, frame, RECORD_BYTES, RECORD_BYTES + CHUNK_BYTES)
        if exchange is None or frame.step <= exchange.arrived(frame.part):
            peer.connection.skip(frame.nbytes)
            return
        peer.connection.read(exchange.raw(exchange.record_at(frame.part, frame.step)))
        peer.connection.read(exchange.chunk(frame.part, frame.step, _BYTES, frame.nbytes - RECORD_BYTES))
        exchange.set_host(frame.part, peer.host)
        exchange.publish(frame.part, frame.step)
        exchange.ring()

    def on_row(self, peer: Peer, frame: Frame) -> None:
        exchange = self._checked(peer, frame, 2 * RECORD_BYTES, 2 * RECORD_BYTES)
        if exchange is None:
            peer.connection.skip(frame.nbytes)
            return
        if frame.a > LEFT:
            raise WireError(f"a rank in the unknown state {frame.a}")
        records = [bytearray(RECORD_BYTES), bytearray(RECORD_BYTES)]
        for record in records:
            peer.connection.read(record)
        exchange.put_record(exchange.step_at(frame.part, frame.step), records[0])
        exchange.put_record(exchange.state_at(frame.part), records[1])
        exchange.set_row(frame.part, peer.host, frame.a, frame.step)

    def on_abort(self, peer: Peer, frame: Frame) -> None:
        if frame.nbytes > ABORT_BYTES or not 1 < frame.a < 256:
            raise WireError("a malformed error of the run")
        text = bytearray(frame.nbytes)
        peer.connection.read(text)
        exchange = self._open(True)
        if exchange is not None:
            exchange.abort(frame.a, text.decode(errors="replace"))

    def _checked(self, peer: Peer, frame: Frame, least: int, most: int) -> Exchange | None:
        """The exchange, if the frame is about a rank that is not this host's."""
        if not least <= frame.nbytes <= most or frame.part >= self._context.members:
            raise WireError(f"a malformed frame about rank {frame.part}")
        exchange = self._open(True)
        if exchange is not None and exchange.host(frame.part) == self._host and exchange.identity(frame.part):
            return None  # another host speaks for a rank that was moved here
        return exchange

    def handlers(self) -> dict[int, Any]:
        """What to do with frames of each kind."""
        return {ROUND: self.on_round, ROW: self.on_row, ABORT: self.on_abort}
