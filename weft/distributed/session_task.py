"""`python -m weft.distributed.session_task`: a task of a cluster. It holds variables and queues and runs parts of steps.

Threads are alike: each waits for any connection to become readable, reads what has come, lets the next thread wait for that
connection, and then does what the message asks for. So a part of a step runs on the thread that received its message or its
last missing value, and a connection is read while an earlier message is still being worked on. One thread always waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..graph.execute.resumable import deferring, run_engines
from . import wire
from .engine import Task
from .remote_calls import Calls
from .remote_channel import Channel
from .remote_memory import StateJournal
from .remote_messages import (
    ASK,
    CALL,
    END,
    PING,
    PONG,
    RELEASE,
    REPLY,
    SHARED,
    START,
    STOP,
    STOPPED,
    TOKEN,
    VALUE,
    TaskLostError,
    dump_error,
    pack_call,
    receive_arrays,
    receive_call,
    receive_token,
)
from .remote_partition import CLIENT
from .remote_segments import Borrower, Lender
from .remote_store import TaskStore
from .remote_task_steps import TaskPart, TaskStep, fit
from .rendezvous import Exchange, Exchanges
from .task import end_with
from .wire import Frame, WireError

VARIABLE = "WEFT_SESSION_TASK"
"""names the configuration in the environment of a task"""
IS_CLIENT = 1 << 31  # set in the numbers that clients give in the handshake
NEEDED = ("weft.optim.steps", "weft.ops.nn.namespace", "weft.backends.llvm.native")  # by the first steps, so rather now
CONNECT_SECONDS = 5.0
GONE_SECONDS = 60.0  # how long the private state of a client whose connection broke is kept
Work = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Config:
    """What a task is told when it starts.

    Attributes:
        job, task: its name in devices.
        number: its number among the tasks of the cluster.
        generation: how often it was started before.
        directory: of the run on this host; it holds the token and the sockets.
        lifeline: a file descriptor that is closed when the task should end.
        address: at which other hosts reach this one; None if none have to.
        modules: to import at the start.
        checkpoint: from which variables are restored.
        survives: whether variables are in memory of the host's keeper.
    """

    job: str
    task: int
    number: int
    generation: int
    directory: str
    lifeline: int
    address: str | None
    modules: tuple[str, ...] = ()
    checkpoint: str | None = None
    survives: bool = False

    @property
    def name(self) -> str:
        return f"{self.job}-{self.task}"

    @property
    def place(self) -> str:
        return f"/job:{self.job}/task:{self.task}"

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def socket_file(directory: str, name: str) -> str:
    return os.path.join(directory, f"{name}.sock")


def address_file(name: str) -> str:
    """The file of the run's directory in which a task says that it is there, and where."""
    return f"{name}.json"


class Client:
    """A client of this task: its channel, registered parts and running steps."""

    def __init__(self, number: int, channel: Channel, server: Server) -> None:
        self.number, self.channel = number, channel
        self.parts: dict[int, TaskPart] = {}
        self.steps: dict[int, TaskStep] = {}
        self.exchanges = Exchanges(number, lambda destination: server.route(self, destination), server.lender)
        self.withdraw: dict[int, Any] = {}  # calls that wait for a queue: how to withdraw them
        self.nodes: dict[int, Any] = {}  # runs of steps whose nodes the client runs one by one
        self.leaves = False  # whether it has said goodbye
        self.beginning = threading.Lock()

    def end_step(self, step: TaskStep, late: bool) -> None:
        self.steps.pop(step.number, None)
        self.exchanges.end(step.number, late)


class Connection:
    """A connection of this task: with a client, or from another task, which only sends values."""

    def __init__(self, channel: Channel, client: Client | None) -> None:
        self.channel, self.client = channel, client
        self.borrower = Borrower(channel)
        self.peer = channel.peer & 0xFFFF  # of a task: its number


class Server:
    """The task: what it holds, who it is connected with, and the threads."""

    def __init__(self, config: Config) -> None:
        self.config, self._place = config, config.place
        self.token = wire.read_token(os.path.join(config.directory, "token"))
        self.journal = StateJournal(config.directory, config.name) if config.survives else None
        self.store = TaskStore(config.checkpoint, self.journal)
        self.lender = Lender()
        self.calls = Calls(self)
        self.clients: dict[int, Client] = {}
        now = time.monotonic()
        self._gone = dict.fromkeys(self.store.owners, now)  # clients whose connection broke, and when
        self.table: dict[int, Any] = {}  # number of a task -> (generation, address)
        self._peers: dict[int, tuple[int, Channel]] = {}
        self._peer_lock = threading.Lock()
        self._borrowing: set[Borrower] = set()  # of connections on which values came through shared memory
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._idle: deque[None] = deque()  # one entry for each thread that waits for messages
        self._threads = 0
        self._over = threading.Event()

    # Starting and ending --------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Open the sockets and say where they are."""
        config = self.config
        path = socket_file(config.directory, config.name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(path)
        os.chmod(path, 0o600)
        unix.listen(128)
        listeners = [unix]
        where: dict[str, Any] = {"pid": os.getpid(), "generation": config.generation, "unix": path, "tcp": None}
        if config.address is not None:
            listeners.append(socket.create_server((config.address, 0), backlog=128))
            where["tcp"] = list(listeners[1].getsockname()[:2])
        for listener in listeners:
            listener.setblocking(False)
            self._listeners[listener.fileno()] = listener
            self._epoll.register(listener.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
        target = os.path.join(config.directory, address_file(config.name))
        with open(os.open(f"{target}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(where, file)
        os.replace(f"{target}.new", target)

    def serve(self) -> None:
        """Serve until the process ends."""
        self._more_threads()
        while not self._over.wait(1.0):
            if self.journal is not None:
                self.journal.check()
            for client in list(self.clients.values()):
                client.exchanges.purge(client.steps.__contains__)
            for number, since in list(self._gone.items()):
                if number in self.clients:
                    del self._gone[number]
                elif time.monotonic() - since > GONE_SECONDS:
                    del self._gone[number]
                    self.store.drop_client(number)

    def _more_threads(self) -> None:
        with self._lock:
            self._threads += 1
            name = f"weft-task-{self._threads}"
        threading.Thread(target=self._attend, name=name, daemon=True).start()

    def _attend(self) -> None:
        epoll, idle = self._epoll, self._idle
        while True:
            idle.append(None)
            events = epoll.poll(-1, 1)
            idle.pop()
            if not idle:
                self._more_threads()
            for descriptor, _ in events:
                connection = self._connections.get(descriptor)
                if connection is not None:
                    self._readable(descriptor, connection)
                    if self._borrowing:
                        for each in list(self._borrowing):
                            each.give_back()
                elif descriptor in self._listeners:
                    self._accept(descriptor)

    # Connections ----------------------------------------------------------------------------------------------------

    def _accept(self, descriptor: int) -> None:
        listener = self._listeners[descriptor]
        try:
            found, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            found = None
        self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        if found is None:
            return
        found.setblocking(True)
        try:
            channel = Channel(wire.accept(found, self.token, self._number))
        except WireError as error:
            print(f"weft: {self.config.name} refused a connection: {error}", file=sys.stderr, flush=True)
            return
        client = None
        if channel.peer & IS_CLIENT:
            client = self.clients[channel.peer] = Client(channel.peer, channel, self)
        elif self.is_fenced(channel.peer):
            channel.close()
            return
        self._connections[channel.fileno()] = Connection(channel, client)
        self._epoll.register(channel.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    @property
    def _number(self) -> int:
        return numbered(self.config.number, self.config.generation)

    def is_fenced(self, number: int) -> bool:
        """Whether a task is an earlier life of one that was started again."""
        known = self.table.get(number & 0xFFFF)
        return known is not None and number >> 16 < known[0]

    def route(self, client: Client, destination: int) -> Channel:
        """The channel to a task or to the client."""
        if destination == CLIENT:
            return client.channel
        with self._peer_lock:
            known, found = self.table.get(destination), self._peers.get(destination)
            if known is None:
                raise TaskLostError(f"session: task {destination} is not known on {self.config.place}.")
            generation, address = known
            if found is not None and found[0] == generation:
                return found[1]
            if found is not None:
                found[1].close()
            try:
                made = Channel(wire.connect(address, self.token, self._number, CONNECT_SECONDS))
            except OSError as error:
                raise TaskLostError(f"session: {self.config.place} cannot reach another task: {error}.") from error
            self._peers[destination] = (generation, made)
            self._connections[made.fileno()] = Connection(made, None)  # segments come back on it
            self._epoll.register(made.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
            return made

    def set_table(self, table: dict[str, Any]) -> None:
        """Where the tasks are: number -> [generation, path of the socket or None, address of TCP or None]."""
        made: dict[int, Any] = {}
        for number, (generation, unix, tcp) in table.items():
            made[int(number)] = (generation, unix if unix is not None else (tcp[0], int(tcp[1])))
        with self._peer_lock:
            self.table = made
            for peer, (known, channel) in list(self._peers.items()):
                if peer not in made or made[peer][0] != known:
                    channel.close()
                    del self._peers[peer]

    def _close(self, descriptor: int, connection: Connection) -> None:
        """A connection has ended; with a client, all that it has here."""
        self._connections.pop(descriptor, None)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(descriptor)
        connection.channel.close()
        self._borrowing.discard(connection.borrower)
        client = connection.client
        if client is None:
            self.lender.lost(connection.channel)
            return
        if self.clients.get(client.number) is client:
            del self.clients[client.number]
        self.calls.close_client(client)
        for step in list(client.steps.values()):
            step.stop(0, "Its client is gone.")
            step.end(())
        if client.leaves:
            self.store.drop_client(client.number)
        else:
            self._gone[client.number] = time.monotonic()  # it may come back: the connection broke

    def _readable(self, descriptor: int, connection: Connection) -> None:
        channel = connection.channel
        works: list[Work] = []
        try:
            while True:
                frame, head = channel.receive()
                work = self._dispatch(connection, frame, head)
                if work is not None:
                    works.append(work)
                if not channel.buffered:
                    break
            self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        except (OSError, WireError) as error:
            if isinstance(error, WireError):
                print(f"weft: {self.config.name} closes a connection: {error}", file=sys.stderr, flush=True)
            works.append(lambda: self._close(descriptor, connection))
        for work in works[1:]:  # of several steps, or calls: not one after the other
            self.calls.pool.submit(self._guarded, work)
        if works:
            self._guarded(works[0])

    def _guarded(self, work: Work) -> None:
        try:
            work()
        except Exception as error:  # of the task itself: a step reports its own errors
            import traceback

            print(f"weft: {self.config.name}: {error}", file=sys.stderr)
            traceback.print_exc()

    # Frames ---------------------------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection, frame: Frame, head: bytes) -> Work | None:
        """Read a frame; returns what takes longer."""
        kind, client = frame.kind, connection.client
        if kind in (VALUE, TOKEN, SHARED):
            return self._value(connection, frame, head)
        if kind == RELEASE:
            self.lender.returned(connection.channel, frame.a)
            return None
        if client is None:
            raise WireError(f"a frame of kind {kind} from another task")
        if kind == START:
            return self._start(client, frame, head)
        if kind == CALL:
            message, arrays = receive_call(connection.channel, frame, head)
            return lambda: self._call(client, frame.part, message, arrays)
        connection.channel.skip(frame.nbytes - frame.b)
        if kind == PING:
            client.channel.send(PONG, 0, 0, frame.a)
            return None
        step = client.steps.get(frame.step)
        if kind == STOP:
            reason = head.decode(errors="replace")
            if step is None:
                client.exchanges.end(frame.step)
                answer: dict[str, Any] = {"over": True, "error": None, "effects": [], "leases": []}
                client.channel.send(STOPPED, 0, frame.step, client.number, json.dumps(answer).encode())
                return None
            return lambda: step.stop(frame.part, reason)
        if kind == END:
            return self._end(client, frame.step, step, head)
        if kind == ASK:
            return None if step is None else step.ask
        raise WireError(f"a frame of unknown kind {kind}")

    def _end(self, client: Client, number: int, step: TaskStep | None, head: bytes) -> Work | None:
        """Elements go back to their queues before the next message is read: the next step finds them there."""
        with deferring() as woken:
            if step is None:
                client.exchanges.end(number)
                self.calls.end_nodes(client, number, head)
            elif head:
                step.end(json.loads(head))
            else:
                step.keep_nothing()
        return (lambda: run_engines(woken.engines)) if woken.engines else None

    def _value(self, connection: Connection, frame: Frame, head: bytes) -> Work | None:
        token = frame.kind == TOKEN
        got: Any
        if frame.kind == SHARED:
            self._borrowing.add(connection.borrower)
            got = [connection.borrower.receive(head)]
        else:
            receive: Any = receive_token if token else receive_arrays
            got = receive(connection.channel, head, frame.nbytes - frame.b)
        client = self.clients.get(frame.a & 0xFFFFFFFF)
        exchange = None if client is None else client.exchanges.get(frame.step)
        if client is None or exchange is None:
            return None
        if not token:
            work = exchange.deposit(frame.part, got[0] if got else None)
            handle = frame.a >> 32
            return work if not handle or work is not None else self._begin_implied(client, frame.step, handle, exchange)
        source = connection.peer if connection.client is None else CLIENT
        return exchange.deposit(source, frame.part, *got)

    def _start(self, client: Client, frame: Frame, head: bytes) -> Work | None:
        feeds = receive_arrays(client.channel, head, frame.nbytes - frame.b)
        part, exchange = client.parts.get(frame.part), client.exchanges.get(frame.step)
        if part is None or exchange is None or not fit(feeds, part.fed):
            raise WireError("a step that does not fit what was registered")
        step = TaskStep(part, frame.step, feeds, exchange, client.channel, self._place, client.end_step)
        client.steps[frame.step] = step
        return step.begin

    def _begin_implied(self, client: Client, number: int, handle: int, exchange: Exchange) -> Work | None:
        """The first value for a part that had nothing to do before begins its step."""
        with client.beginning:
            part = client.parts.get(handle)
            if number in client.steps or part is None:
                return None
            step = TaskStep(part, number, (), exchange, client.channel, self._place, client.end_step)
            client.steps[number] = step
        return step.begin

    def _call(self, client: Client, number: int, message: Any, arrays: Any) -> None:
        def reply(answer: Any, results: Any = ()) -> None:
            head, data = pack_call(answer, results)
            with contextlib.suppress(OSError):  # the client is gone
                client.channel.send(REPLY, number, 0, client.number, head, data)

        try:
            self.calls.answer(client, number, message, arrays, reply)
        except Exception as error:
            reply({"error": dump_error(error, self.config.place)})


def numbered(number: int, generation: int) -> int:
    """What a task calls itself in the handshake."""
    return (generation & 0x7FFF) << 16 | number


def make_task(config: Config, environment: dict[str, str], host: int) -> Task:
    """The task for an engine."""
    return Task(config.name, ("-m", "weft.distributed.session_task"), {**environment, VARIABLE: config.dump()}, host)


def main() -> None:
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        raise SystemExit("weft.distributed.session_task: this module is started by `weft.distributed.Cluster`.")
    facts = json.loads(text)
    config = Config(**{**facts, "modules": tuple(facts["modules"])})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)  # prints what all threads do
    end_with(config.lifeline)
    sys.path.insert(0, os.getcwd())
    for module in (*NEEDED, *config.modules):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what was imported stays: collections, during which no thread runs, do not look at it again
    server = Server(config)
    server.listen()
    server.serve()


if __name__ == "__main__":
    main()
