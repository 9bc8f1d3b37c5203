"""The relay: a process per host that makes the teams of several hosts one.

Every host has a board, the whole state and workers. Each computes the shards of its own block; the relay sends their partial
sums to the other hosts, and those that it receives it puts into slots of its row, as if it had computed them. Every host then
updates all slices itself. Since a shard gives the same bits wherever it is computed, hosts need not agree on anything: a shard
that does not arrive in time is computed by the workers who wait for it, and a step counts as committed on each host by itself.
A host that falls behind, or comes later, takes over the state of another one.

Threads: one that accepts connections, three per peer (one sends, one sends collectives, one receives), and the main one, which
decides (`_look_around`).
What a peer says is checked against what this host knows: its sizes, steps and names.

    python -m weft.distributed.relay
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import context as contexts
from . import wire
from .board import (
    BLOCK,
    HOLD,
    LEADING,
    MAX_SHARDS,
    NO_SLOT,
    PERMIT,
    RECEIVED_BYTES,
    RELEASED,
    SENT_BYTES,
    STOP,
    STOP_AT,
    WORLD,
    Place,
)  # fmt: skip
from .context import Context
from .failpoints import reach
from .keeper import ISOLATED, LOST
from .memory import KeeperError, Memory
from .mirror import Mirror
from .relay_part import Part, Peer
from .task import end_with
from .trace import clock_offset, recorder
from .tree import block
from .wire import Connection, Frame, WireError

PING, NODE, NEED, STATE, FILE, STOPPING, STOP_REQUEST, STOP_ACK, CLOCK, CLOCK_ANSWER = range(1, 11)

LOOK_SECONDS = 0.02
PING_SECONDS = 0.2
SILENT_SECONDS = 5.0
"""how long a peer may be silent before the connection counts as cut"""
LOST_SECONDS = 60.0
"""how long a host waits for another that has the state, or for the one that leads, before it gives up"""
PATIENCE_SECONDS = 2.0
"""how long to wait for another host's shards, at least, before they are computed here"""
SELDOM_SECONDS = 10.0
"""between two lines that say the same of strangers"""
MAX_SAID = 1000
MAX_PARTS = 64
MAX_NAME = 256
FILES = re.compile(
    r"decisions/\d{1,9}\.(json|safetensors)|metrics\.json|probe\.json|base-\d{1,2}(\.json|/[\w.-]{1,128})"
)
"""what hosts tell each other beside the state: paths in the directory of the run"""


class Relay:
    """The relay of this host. `run` returns when the run ends."""

    def __init__(self, context: Context, token: bytes) -> None:
        self.context, self.token, self.host = context, token, context.host
        self.directory = context.directory
        self.memory = Memory(context.socket)
        self.parts: list[Part] = []
        self.peers: dict[int, Peer] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self._addresses_read: tuple[int, int] = (0, 0)
        self._tried: dict[int, float] = {}
        self._lock = threading.RLock()
        self._stops: dict[
            int, tuple[int, int, float, set[int]]
        ] = {}  # part -> (step, signal, deadline, hosts to answer)
        self._ended = threading.Event()
        self.recorder = recorder()
        self._moved = [0, 0]  # bytes sent and received by connections that are closed
        self._hopeful = time.monotonic()  # when this host had the state, or another one that could give it
        self._reached = time.monotonic()  # when this host led, or was connected to another one
        self._server = socket.create_server((context.address, 0))
        self._said: dict[str, float] = {}
        self.mirror = Mirror(context, self.memory)

    def say(self, text: str) -> None:
        print(f"weft: host {self.host}: {text}", file=sys.stderr, flush=True)

    def _say_seldom(self, text: str) -> None:
        """Say what a stranger could make this process say again and again."""
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(text, -SELDOM_SECONDS) < SELDOM_SECONDS or len(self._said) >= MAX_SAID:
                return
            self._said[text] = now
        self.say(text)

    def run(self) -> int:
        """Relay until the lifeline is closed, which ends this process, or `stop` is called. Returns an exit status."""
        address, port = self._server.getsockname()[:2]
        self._write("listening", f"{address} {port}\n".encode())
        reach("relay listens")
        threading.Thread(target=self._accept, name="weft-accept", daemon=True).start()
        while not self._ended.wait(LOOK_SECONDS):
            self._look_around()
            now = time.monotonic()
            if now - self._reached > LOST_SECONDS:
                self.say(f"no other host can be reached for {LOST_SECONDS:.0f} seconds")
                return ISOLATED
            if now - self._hopeful > LOST_SECONDS:
                return LOST
        return 0

    def stop(self) -> None:
        self._ended.set()
        self._server.close()
        for peer in list(self.peers.values()):
            self._drop(peer, None)
        for part in self.parts:
            part.peers.leave()
        self.memory.close()

    # Connections ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        slots = threading.BoundedSemaphore(16)  # a port scanner must not exhaust the threads
        while not self._ended.is_set():
            try:
                found, address = self._server.accept()
            except OSError:
                return
            slots.acquire()

            def greet(found: socket.socket = found, address: Any = address) -> None:
                try:
                    self._admit(wire.accept(found, self.token, self.host))
                except WireError as error:
                    self._say_seldom(f"refused {address[0]}: {error}")
                finally:
                    slots.release()

            threading.Thread(target=greet, daemon=True).start()

    def _admit(self, connection: Connection) -> None:
        """A new connection to a host replaces an older one: that host's relay was started again."""
        if connection.host == self.host or connection.host not in self.addresses:
            self._read_addresses()
        if connection.host == self.host or connection.host not in self.addresses:
            connection.close()
            self._say_seldom(f"refused host {connection.host}: it is not in the run")
            return
        peer = Peer(connection)
        with self._lock:
            old = self.peers.get(connection.host)
            if old is not None:
                self._drop(old, None)
            self.peers[connection.host] = peer
        reach("peer admitted")
        peer.threads = [
            threading.Thread(target=self._guard, args=(peer, work), daemon=True)
            for work in (self._send, self._receive, self.mirror.run)
        ]
        for thread in peer.threads:
            thread.start()

    def _guard(self, peer: Peer, work: Any) -> None:
        try:
            work(peer)
        except Exception as error:  # a relay lives on; the peer connects again
            if not isinstance(error, OSError):
                traceback.print_exc()
            self._drop(peer, error)

    def _drop(self, peer: Peer, error: Exception | None) -> None:
        with self._lock:
            if peer.closed.is_set():
                return
            peer.close()
            self._moved[0] += peer.connection.bytes_sent
            self._moved[1] += peer.connection.bytes_received
            if self.peers.get(peer.host) is peer:
                del self.peers[peer.host]
        if error is not None and any(part.peers.live() for part in self.parts):
            self.say(f"lost the connection to host {peer.host}: {error}")
        self._arrange()

    def _read_addresses(self) -> None:
        path = os.path.join(self.directory, "peers.json")
        try:
            status = os.stat(path)
            if (status.st_mtime_ns, status.st_ino) == self._addresses_read:
                return
            with open(path) as file:
                found = json.load(file)
        except (FileNotFoundError, ValueError):
            return
        self.addresses = {int(host): (str(a), int(p)) for host, (a, p) in found.items()}
        self._addresses_read = (status.st_mtime_ns, status.st_ino)

    def _connect(self) -> None:
        """Connect to the hosts with smaller numbers."""
        for host, address in self.addresses.items():
            if host >= self.host or host in self.peers or time.monotonic() - self._tried.get(host, 0.0) < 0.1:
                continue
            self._tried[host] = time.monotonic()
            try:
                self._admit(wire.connect(address, self.token, self.host, 2.0))
            except WireError as error:
                self._say_seldom(f"cannot join host {host}: {error}")
                self._tried[host] = time.monotonic() + 1.0
            except OSError:
                continue  # not there yet, or gone: the list will say

    # Deciding -------------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        self._read_addresses()
        self._connect()
        self._find_parts()
        if not self.parts or any(s.version >= 0 for p in list(self.peers.values()) for s in list(p.standing.values())):
            self._hopeful = time.monotonic()
        self.memory.check()
        now = time.monotonic()
        if self.peers or self._leads():
            self._reached = now
        with self._lock:
            for peer in list(self.peers.values()):
                if peer.host not in self.addresses:
                    self._drop(peer, None)
                elif now - peer.heard > SILENT_SECONDS and peer.reading:
                    self._drop(peer, TimeoutError(f"silent for {SILENT_SECONDS:.0f} seconds"))
        for part in self.parts:
            part.peers.beat()
            part.peers.look()
            if not part.initialised:
                self._begin(part)
            else:
                self._hopeful = time.monotonic()
            self._judge(part)
            self._stop_together(part)
        self._arrange()
        self._publish_figures()

    def _publish_figures(self) -> None:
        """For those who watch the run: the bytes that this relay has moved, in its row of the first board; and its spans."""
        if self.parts:
            with self._lock:
                connections = [peer.connection for peer in self.peers.values()]
                sent = self._moved[0] + sum(c.bytes_sent for c in connections)
                received = self._moved[1] + sum(c.bytes_received for c in connections)
            row = self.parts[0].board.members[self.parts[0].peers.row]
            row[SENT_BYTES], row[RECEIVED_BYTES] = sent, received
        if self.recorder is not None:
            self.recorder.flush()

    def _find_parts(self) -> None:
        while len(self.parts) < MAX_PARTS:
            number = len(self.parts)
            names = ("", "0-") if number == 0 else (f"{number}-",)
            for prefix in names:
                if number and self.parts[0].prefix == "":
                    return
                try:
                    self.parts.append(Part(number, prefix, self.memory, self.context.log))
                    break
                except (LookupError, OSError, KeeperError):
                    continue
            else:
                return

    def _begin(self, part: Part) -> None:
        """The first host begins by itself; every other takes over the state of one that has it."""
        if self.host == 0 and not self.context.joins and not part.torn:
            part.board.store("header", PERMIT, 1)
            self._hopeful = time.monotonic()
            return
        for peer in list(self.peers.values()):
            if peer.of(part.number).version >= 0 and self._ask(peer, part, warm=False):
                return

    def _ask(self, peer: Peer, part: Part, warm: bool) -> bool:
        """Ask for the state, and not again while the answer is under way."""
        standing = peer.of(part.number)
        now = time.monotonic()
        if now - standing.asked < 5.0:
            return True
        standing.asked = now
        self._queue(peer, Frame(NEED, part.number, part.version, warm, 0, 0))
        return True

    def _judge(self, part: Part) -> None:
        """Whether this host is too far behind the others, or they behind it."""
        if not part.initialised:
            return
        version = part.version
        for peer in list(self.peers.values()):
            standing = peer.of(part.number)
            if standing.version < 0:
                continue
            if standing.joined:
                dropped = not standing.joins_us and standing.version > version + 1
                standing.joined = standing.workers > 0 and not dropped
            elif standing.version > version + 1:
                if part.warm():
                    self._ask(peer, part, warm=True)
            elif standing.warm and standing.workers and part.warm() and standing.version >= version - 1:
                standing.joined, standing.sent = True, max(standing.sent, version)
        self._release(part)

    def _release(self, part: Part) -> None:
        """Let the workers compute what has not arrived for too long."""
        board, step = part.board, part.version + 1
        mine = self._block(part)
        if len(mine) == board.shape.shards or not part.shards_ready(mine, step, 0.0):
            return
        now = time.monotonic()
        if part.waiting_since[0] != step:
            part.waiting_since = (step, now)
        elif now - part.waiting_since[1] > PATIENCE_SECONDS and board.load("header", RELEASED) < step:
            missing = [i for i, _, _ in board.pending("shards", board.shape.shards, step)]
            late = [p for p, shards in self._blocks(part).items() if p != self.host and set(shards) & set(missing)]
            if missing:
                self.say(f"step {step}: computing the shards of host {', '.join(map(str, late))}, which are late")
            self._release_step(part, step)
            for host in late:
                if host in self.peers:
                    self.peers[host].of(part.number).joined = False

    def _release_step(self, part: Part, step: int) -> None:
        board = part.board
        if board.load("header", RELEASED) < step:
            board.store("header", RELEASED, step)
            board.ring()

    def _blocks(self, part: Part) -> dict[int, range]:
        """Which host computes which shards, as this host sees it."""
        with self._lock:
            joined = [p.host for p in self.peers.values() if p.of(part.number).joined]
        hosts = sorted([self.host, *joined])
        return {host: block(part.board.shape.shards, i, len(hosts)) for i, host in enumerate(hosts)}

    def _block(self, part: Part) -> range:
        return self._blocks(part)[self.host]

    def _leads(self) -> bool:
        """Whether the lead of the run is a worker of this host: the first of those that the driver knows of."""
        return self.host == min([*self.addresses, self.host])

    def _arrange(self) -> None:
        """Tell the workers which shards are theirs, and whether the lead is among them."""
        for part in self.parts:
            mine = self._block(part)
            board = part.board
            board.store("header", LEADING, self._leads())
            with self._lock:
                workers = {p.host: p.of(part.number).workers for p in self.peers.values()}
            before = sum(n for host, n in workers.items() if host < self.host)
            total = sum(workers.values()) + len(part.peers.live())
            board.store("header", WORLD, before << 32 | total)
            value = 1 << 32 | mine.start << 16 | mine.stop
            if board.load("header", BLOCK) != value:
                board.store("header", BLOCK, value)
                reach("block given")
                board.ring()

    def _stop_together(self, part: Part) -> None:
        """A worker was asked to stop: all hosts stop after the same step, which the lead's host chooses."""
        board = part.board
        asked = board.load("header", STOP)
        now = time.monotonic()
        pending = self._stops.get(part.number)
        if pending is not None:
            step, number, deadline, waiting = pending
            with self._lock:
                waiting &= set(self.peers)
            if not waiting or now > deadline:
                board.store("header", STOP_AT, step << 8 | number)
                board.store("header", HOLD, 0)
                board.ring()
        elif asked and board.load("header", LEADING):
            step = part.version + 2  # workers may be in the step before
            board.store("header", HOLD, step)
            step = max(step, part.version + 1)
            with self._lock:
                peers = list(self.peers.values())
            self._stops[part.number] = (step, asked, now + 1.0, {p.host for p in peers})
            for peer in peers:
                self._queue(peer, Frame(STOPPING, part.number, step, asked, 0, 0))
        elif asked and not board.load("header", STOP_AT):
            leads = min([*self.addresses, self.host])
            if leads in self.peers and part.number not in self._stops:
                self._queue(self.peers[leads], Frame(STOP_REQUEST, part.number, 0, asked, 0, 0))

    # Sending --------------------------------------------------------------------------------------------------------

    def _queue(self, peer: Peer, frame: Frame, buffers: list[Any] | None = None) -> None:
        with self._lock:
            peer.wants.append((frame, buffers or []))

    def _send(self, peer: Peer) -> None:
        pinged = files = 0.0
        said: list[int] = []
        while not peer.closed.is_set():
            with peer.sending:
                self.mirror.flush(peer)  # what ranks published before the shards below come before them
                now = time.monotonic()
                workers = [len(part.peers.live()) for part in self.parts]
                if now - pinged > PING_SECONDS or workers != said:
                    pinged, said = now, workers
                    self._ping(peer)
                    if self.recorder is not None:
                        peer.connection.send(Frame(CLOCK, 0, time.monotonic_ns(), 0, 0, 0))
                self._send_decisions(peer)
                if now - files > 0.05:
                    files = now
                    self._send_files(peer)
                with self._lock:
                    wants, peer.wants = peer.wants, []
                    needs, peer.needs = peer.needs, set()
                    clocks, peer.clocks = peer.clocks, []
                for sent, received in clocks:
                    peer.connection.send(Frame(CLOCK_ANSWER, 0, sent, received, time.monotonic_ns(), 0))
                for frame, buffers in wants:
                    peer.connection.send(frame, buffers)
                for number, warm in needs:
                    self._send_state(peer, self.parts[number], warm)
                idle = not self._send_nodes(peer)
            if idle:
                self._idle(peer)

    def _idle(self, peer: Peer) -> None:
        """Wait a moment, but not longer than until there is something to send."""
        if len(self.parts) != 1:
            time.sleep(0.001)
            return
        (part,) = self.parts
        version = part.version
        if peer.of(part.number).sent > version or not part.initialised:
            part.board.wait_version(version + 1, 0, 0.005)
        else:
            part.shards_ready(self._block(part), version + 1, 0.005)

    def _ping(self, peer: Peer) -> None:
        for part in self.parts:
            version = part.version if part.initialised else -1
            known = version + 1
            warm = part.warm()
            workers = len(part.peers.live()) | peer.of(part.number).joined << 32
            peer.connection.send(Frame(PING, part.number, known, warm, workers, 0))
        if not self.parts:
            peer.connection.send(Frame(PING, 0, 0, 0, 0, 0))
        reach("ping sent")

    def _send_nodes(self, peer: Peer) -> bool:
        """Send the partial sums of this host's block as soon as all of them are there."""
        sent = False
        for part in self.parts:
            standing = peer.of(part.number)
            if not part.initialised or not standing.joined:
                continue
            version = part.version
            step = max(standing.sent + 1, version)
            if step > version + 1:
                continue
            blocks = self._blocks(part)
            if step == version + 1 and not part.shards_ready(blocks[self.host], step, 0.0):
                continue
            nodes = part.own_nodes(step) if step else {}
            if nodes is None:
                continue
            self._send_decisions(peer)  # those that were made before this step come before it
            theirs = set(blocks.get(peer.host, ()))
            for place, shards in nodes.items():
                if set(shards) - theirs:
                    self._send_node(peer, part, step, place, shards)
            standing.sent = step
            sent = True
        return sent

    def _send_node(self, peer: Peer, part: Part, step: int, place: Place, shards: list[int]) -> None:
        log = part.log()
        if log is None:
            return
        rows = np.empty((len(shards), 1 + log.width))
        rows[:, 0] = shards
        for row, shard in zip(rows, shards, strict=True):
            row[1:] = log.statistics[step & 1, shard]
        trains = place.slot != NO_SLOT
        payload = part.slot(place.row, place.slot) if trains else np.empty(0, np.uint8)
        nbytes = rows.nbytes + payload.nbytes + 1
        a = place.level << 32 | place.position
        frame = Frame(NODE, part.number, step, a, len(shards) << 32 | log.width << 1 | trains, nbytes)
        started = time.monotonic_ns()
        peer.connection.send(frame, [rows, payload])
        reach("relay sent")
        intact = part.version < step + 1  # else the slot may have been used again while it was sent
        peer.connection._write(b"\x01" if intact else b"\x00")
        self._record("send", peer, frame, started)

    def _record(self, name: str, peer: Peer, frame: Frame, started: int) -> None:
        """A partial sum was sent or received."""
        if self.recorder is not None and self.recorder.wants(frame.step):
            track = f"{'to' if name == 'send' else 'from'} host {peer.host}"
            self.recorder.add(
                name, track, started, step=frame.step, part=frame.part, node=frame.a, host=peer.host, bytes=frame.nbytes
            )

    def _send_state(self, peer: Peer, part: Part, warm: bool) -> None:
        if not part.initialised:
            return
        standing = peer.of(part.number)
        version, pieces, width = part.snapshot()
        self._send_files(peer)  # what was told and decided until then
        self._send_decisions(peer)
        if warm:
            standing.joined, standing.sent, standing.joins_us = True, version, True
            standing.version = version
            self._arrange()
        nbytes = sum(p.nbytes for p in pieces)
        reach("state pinned")
        peer.connection.send(Frame(STATE, part.number, version, width, part.state_bytes, nbytes), pieces)
        reach("state sent")

    def _send_decisions(self, peer: Peer) -> None:
        while True:
            name = f"decisions/{peer.next_decision}.json"
            if name not in peer.has:
                if not os.path.exists(os.path.join(self.directory, name)):
                    return
                self._send_file(peer, f"decisions/{peer.next_decision}.safetensors")  # written before it
                self._send_file(peer, name)
            peer.next_decision += 1

    def _send_files(self, peer: Peer) -> None:
        names = ["metrics.json", "probe.json"]
        for base in glob.glob(os.path.join(self.directory, "base-*.json")):  # written after the others
            base = os.path.basename(base).removesuffix(".json")
            folder = os.path.join(self.directory, base)
            names += [f"{base}/{name}" for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
            names.append(f"{base}.json")
        for name in names:
            self._send_file(peer, name)

    def _send_file(self, peer: Peer, name: str) -> bool:
        """Send a file that the peer does not have in this version; False if there is none."""
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                status = os.fstat(file.fileno())
                key = (status.st_mtime_ns, status.st_size)
                if peer.has.get(name) == key or not FILES.fullmatch(name):
                    return True
                text = name.encode()
                frame = Frame(FILE, 0, 0, len(text), status.st_size, len(text) + status.st_size)
                peer.connection.send(frame, [text])
                left = status.st_size
                while left:
                    data = file.read(min(left, wire.CHUNK))
                    if not data:
                        raise WireError(f"{name} became shorter while it was sent")
                    peer.connection._write(data)
                    left -= len(data)
                peer.has[name] = key
                reach("file sent")
                return True
        except FileNotFoundError:
            return False

    # Receiving ------------------------------------------------------------------------------------------------------

    def _receive(self, peer: Peer) -> None:
        handlers = {
            PING: self._on_ping, NODE: self._on_node, NEED: self._on_need, STATE: self._on_state, FILE: self._on_file,
            STOPPING: self._on_stopping, STOP_REQUEST: self._on_stop_request, STOP_ACK: self._on_stop_ack,
            CLOCK: self._on_clock, CLOCK_ANSWER: self._on_clock_answer, **self.mirror.handlers(),
        }  # fmt: skip
        while not peer.closed.is_set():
            peer.reading = True
            frame = peer.connection.receive()
            peer.heard, peer.reading = time.monotonic(), False
            handler = handlers.get(frame.kind)
            if handler is None:
                raise WireError(f"a frame of the unknown kind {frame.kind}")
            if frame.kind in (NEED, STATE, NODE, STOPPING, STOP_REQUEST, STOP_ACK) and frame.part >= len(self.parts):
                peer.connection.skip(frame.nbytes)  # of an optimiser that has not begun here
                continue
            handler(peer, frame)
            peer.heard = time.monotonic()

    def _on_ping(self, peer: Peer, frame: Frame) -> None:
        if frame.nbytes or frame.part >= MAX_PARTS:
            raise WireError("a malformed ping")
        standing = peer.of(frame.part)
        standing.version, standing.warm = frame.step - 1, bool(frame.a)
        standing.workers, standing.joins_us = frame.b & 0xFFFF, bool(frame.b >> 32)

    def _on_clock(self, peer: Peer, frame: Frame) -> None:
        if frame.nbytes:
            raise WireError("a malformed message about the clock")
        with self._lock:
            peer.clocks = [*peer.clocks[-3:], (frame.step, time.monotonic_ns())]

    def _on_clock_answer(self, peer: Peer, frame: Frame) -> None:
        if frame.nbytes:
            raise WireError("a malformed message about the clock")
        if self.recorder is not None:
            self.recorder.clock(peer.host, *clock_offset(frame.step, frame.a, frame.b, time.monotonic_ns()))

    def _on_node(self, peer: Peer, frame: Frame) -> None:
        started = time.monotonic_ns()
        part, step = self.parts[frame.part], frame.step
        level, position = frame.a >> 32, frame.a & 0xFFFFFFFF
        count, width, trains = frame.b >> 32, frame.b >> 1 & 0x7FFFFFFF, bool(frame.b & 1)
        shards = part.board.shape.shards
        log = part.log(width if 3 <= width <= 1 << 16 else 0)
        expected = count * (1 + width) * 8 + part.slot_bytes * trains + 1
        if not 0 < count <= shards <= MAX_SHARDS or log is None or width != log.width or frame.nbytes != expected:
            raise WireError(f"a partial sum of {frame.nbytes} bytes; expected {expected}")
        if level > MAX_SHARDS.bit_length() or position >= shards:
            raise WireError("a partial sum that is not in the tree")
        peer.of(part.number).version = max(peer.of(part.number).version, step - 1)
        rows = np.empty((count, 1 + width))
        peer.connection.read(rows)
        while part.version < step - 1 and not peer.closed.is_set():  # this host is still in an earlier step
            if not part.initialised or part.version < step - 2:
                break
            self._release_step(part, step - 1)  # nothing more comes for it from this peer
            part.board.wait_version(step - 1, 0, 0.05)
        slot = part.own_slot(step, level, position) if part.version == step - 1 and part.initialised else None
        if slot is None:
            peer.connection.skip(part.slot_bytes * trains + 1)
            return
        place = Place(level, position, part.peers.row, slot if trains else NO_SLOT, step)
        inside = place.inside(shards)
        if not all(s in inside for s in rows[:, 0]):
            raise WireError("a partial sum of shards that are not in it")
        if trains:
            peer.connection.read(part.slot(part.peers.row, slot))
        intact = bytearray(1)
        peer.connection.read(intact)
        reach("partial sum received")
        self._record("receive", peer, frame, started)
        if intact[0] == 1 and part.version == step - 1:
            part.put(step, place, rows)

    def _on_need(self, peer: Peer, frame: Frame) -> None:
        if frame.nbytes:
            raise WireError("a malformed request")
        with self._lock:
            peer.needs.add((frame.part, bool(frame.a)))

    def _on_state(self, peer: Peer, frame: Frame) -> None:
        part, version, width = self.parts[frame.part], frame.step, frame.a
        expected = part.state_bytes + part.shared_bytes + (version * width * 8 if width else 0)
        if frame.nbytes != expected or version > self.context.log or width > 1 << 16 or frame.b != part.state_bytes:
            raise WireError(f"a state of {frame.nbytes} bytes; expected {expected}: the hosts train different models")
        standing = peer.of(part.number)
        standing.asked = 0.0
        if version < part.version or part.initialised and version == part.version:
            peer.connection.skip(frame.nbytes)
            return
        warm = part.warm()
        part.install(version, width, peer.connection)
        if warm:
            standing.joined, standing.sent, standing.joins_us = True, version, True
            self._arrange()
        self.say(f"took over the state of host {peer.host} after step {version}")

    def _on_file(self, peer: Peer, frame: Frame) -> None:
        if frame.a > MAX_NAME or frame.nbytes != frame.a + frame.b:
            raise WireError("a malformed file")
        text = bytearray(frame.a)
        peer.connection.read(text)
        name = text.decode("ascii", "replace")
        if not FILES.fullmatch(name):
            raise WireError(f"a file of the unexpected name {name[:40]!r}")
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{threading.get_ident()}"
        try:
            with open(temporary, "wb") as file:
                left = frame.b
                while left:
                    data = bytearray(min(left, wire.CHUNK))
                    peer.connection.read(data)
                    file.write(data)
                    left -= len(data)
        except OSError:
            os.unlink(temporary)
            raise
        reach("file received")
        if name.startswith("decisions/") and os.path.exists(path):
            os.unlink(temporary)  # a decision is made once
        else:
            os.replace(temporary, path)
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            peer.has[name] = (status.st_mtime_ns, status.st_size)

    def _on_stopping(self, peer: Peer, frame: Frame) -> None:
        board = self.parts[frame.part].board
        board.store("header", STOP_AT, frame.step << 8 | frame.a & 0xFF)
        self._queue(peer, Frame(STOP_ACK, frame.part, frame.step, 0, 0, 0))

    def _on_stop_request(self, peer: Peer, frame: Frame) -> None:
        self.parts[frame.part].board.swap("header", STOP, 0, frame.a & 0xFF)

    def _on_stop_ack(self, peer: Peer, frame: Frame) -> None:
        pending = self._stops.get(frame.part)
        if pending is not None:
            pending[3].discard(peer.host)

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self.directory, name)
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)


@contextlib.contextmanager
def relaying(context: Context, token: bytes) -> Iterator[Relay]:
    """A relay in a thread of this process, for tests."""
    relay = Relay(context, token)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join(10.0)


def main() -> None:
    context = contexts.current()
    if context is None:
        raise SystemExit("weft.distributed.relay: this module is started by `weft run`.")
    if context.lifeline >= 0:
        end_with(context.lifeline)
    sys.exit(Relay(context, wire.read_token(os.path.join(context.directory, "token"))).run())


if __name__ == "__main__":
    main()


__all__ = ["Relay", "relaying"]
