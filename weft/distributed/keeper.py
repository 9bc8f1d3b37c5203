"""The keeper: a small process that creates the run's shared memory and hands it to workers, on one host.

Memory is anonymous (memfd): it has no name in the file system and vanishes with its last holder. The keeper holds every
segment, so the death of any worker, or of all of them, loses nothing; and every worker holds every segment, so the successor of
a keeper that was killed finds them among the open files of the workers, running or frozen (`recover`), or is given them
(`offer`). It uses the standard library only and starts in milliseconds:

    python keeper.py SOCKET LIFELINE_FD JOURNAL [--remove]

With --remove the directory of the socket is removed at the end: its maker may have been killed.

One request per line of JSON over a Unix socket in a directory that only the user can enter; file descriptors travel beside.
    {"open": name, "nbytes": n}     -> {"ok": name} and the descriptor
    {"find": name}                  -> {"ok": name} and the descriptor, or {"missing": name}
    {"offer": name}, descriptor     -> {"ok": name}
    {"drop": name}                  -> {"ok": name}; processes that have it keep it
The journal is a file with the names of the segments that were created. A keeper that finds names in it is the successor of one
that died: it waits for these segments and never creates them, since their contents are with the workers.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import shutil
import socket
import sys
import time
from typing import Any

if __package__:
    from .failpoints import reach
else:  # this file is the program: its directory is where modules are found
    from failpoints import reach  # type: ignore[no-redef, import-not-found]

LINE_LIMIT = 4096
RECOVERY_SECONDS = 5.0
REMOVE_SECONDS = 2.0
LOST = 75  # exit status: the workers that held the memory are gone
ISOLATED = 76  # exit status of a relay that reaches no other host
OTHER_BITS = 77  # exit status of a worker whose host computes other bits than the first one


class Client:
    """One connection: bytes of an unfinished line, and descriptors that arrived with it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.data = connection, b""
        self.descriptors: list[int] = []

    def close(self) -> None:
        self.connection.close()
        for descriptor in self.descriptors:
            os.close(descriptor)

    def answer(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        line = json.dumps(message).encode() + b"\n"
        socket.send_fds(self.connection, [line], [] if descriptor is None else [descriptor])


class Keeper:
    """The segments by name, and the requests that wait for one."""

    def __init__(self, journal: str) -> None:
        self.segments: dict[str, int] = {}
        self.journal = journal
        self.missing: set[str] = set()
        if os.path.exists(journal):
            with open(journal) as file:
                self.missing = {line.strip() for line in file if line.endswith("\n")}
        self.recover()

    def memory_name(self, name: str) -> str:
        """What the kernel calls a segment: unique to this run."""
        return f"weft:{os.path.basename(os.path.dirname(os.path.abspath(self.journal)))}:{name}"

    def recover(self) -> None:
        """Find missing segments among the open files of the workers."""
        wanted = {f"/memfd:{self.memory_name(name)} (deleted)": name for name in self.missing}
        for process in os.listdir("/proc") if wanted else ():
            if not process.isdecimal() or int(process) == os.getpid():
                continue
            try:
                for number in os.listdir(f"/proc/{process}/fd"):
                    path = f"/proc/{process}/fd/{number}"
                    name = wanted.get(os.readlink(path))
                    if name in self.missing:
                        self.take(name, os.open(path, os.O_RDWR | os.O_CLOEXEC))
            except OSError:  # it ended meanwhile, or belongs to another user
                continue
        self.waiting: list[tuple[Client, dict[str, Any]]] = []

    def handle(self, client: Client, message: dict[str, Any]) -> None:
        """Answer a request, now or when the segment it wants is offered."""
        if isinstance(message.get("offer"), str) and client.descriptors:
            self.take(message["offer"], client.descriptors.pop(0))
            client.answer({"ok": message["offer"]})
            waiting, self.waiting = self.waiting, []
            for other, request in waiting:
                self.open(other, request)
        elif isinstance(message.get("find"), str):
            name = message["find"]
            found = self.segments.get(name)
            client.answer({"missing": name} if found is None else {"ok": name}, found)
        elif isinstance(message.get("open"), str) and isinstance(message.get("nbytes"), int):
            self.open(client, message)
        elif isinstance(message.get("drop"), str):
            self.drop(message["drop"])
            client.answer({"ok": message["drop"]})
        else:
            client.answer({"error": "expected open, find, offer or drop"})

    def take(self, name: str, descriptor: int) -> None:
        if name in self.segments:
            os.close(descriptor)
        else:
            self.segments[name] = descriptor
            reach("segment recovered")
            self.missing.discard(name)

    def drop(self, name: str) -> None:
        found = self.segments.pop(name, None)
        if found is not None:
            os.close(found)
            with open(f"{self.journal}.new", "w") as file:
                file.writelines(f"{other}\n" for other in (*self.segments, *self.missing))
            os.replace(f"{self.journal}.new", self.journal)

    def open(self, client: Client, request: dict[str, Any]) -> None:
        name, nbytes = request["open"], request["nbytes"]
        if name in self.missing:
            self.waiting.append((client, request))
            return
        try:
            if name not in self.segments:
                self.segments[name] = create(self.memory_name(name), nbytes)
                reach("segment created")
                with open(self.journal, "a") as file:
                    file.write(f"{name}\n")
                reach("segment recorded")
            found = os.fstat(self.segments[name]).st_size
            if found != max(nbytes, 1):
                client.answer({"error": f"segment {name} has {found:,} bytes, this worker expects {nbytes:,}"})
                return
            client.answer({"ok": name}, self.segments[name])
            reach("segment given")
        except OSError as error:
            client.answer({"error": f"cannot reserve {nbytes:,} bytes of shared memory: {error.strerror}"})


def create(name: str, nbytes: int) -> int:
    """A descriptor of `nbytes` of zeroed memory. Pages are allocated when they are first written."""
    if nbytes < 0 or nbytes >= 1 << 46:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, max(nbytes, 1))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def receive(client: Client) -> list[dict[str, Any]] | None:
    """The complete messages that have arrived; None at the end of the connection or after nonsense."""
    data, descriptors, _, _ = socket.recv_fds(client.connection, 4096, 4)
    client.descriptors += descriptors
    client.data += data
    if not data or len(client.data) > LINE_LIMIT:
        return None
    *lines, client.data = client.data.split(b"\n")
    try:
        messages = [json.loads(line) for line in lines]
    except ValueError:
        return None
    return messages if all(isinstance(m, dict) for m in messages) else None


def serve(path: str, lifeline: int, journal: str) -> int:
    """Serve until the lifeline, a pipe whose other end the command holds, is closed. Returns an exit status."""
    if os.path.exists(path):
        os.unlink(path)
    keeper = Keeper(journal)
    with socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as selector:
        server.bind(path)
        os.chmod(path, 0o600)
        server.listen(128)
        selector.register(server, selectors.EVENT_READ, None)
        selector.register(lifeline, selectors.EVENT_READ, "lifeline")
        end = time.monotonic() + RECOVERY_SECONDS
        while True:
            events = selector.select(max(end - time.monotonic(), 0) if keeper.missing else None)
            if keeper.missing and time.monotonic() > end:
                return LOST
            for key, _ in events:
                if key.data == "lifeline":
                    return 0
                if key.data is None:
                    connection, _ = server.accept()
                    selector.register(connection, selectors.EVENT_READ, Client(connection))
                    continue
                client: Client = key.data
                try:
                    messages = receive(client)
                    for message in messages or ():
                        keeper.handle(client, message)
                except OSError:
                    messages = None
                if messages is None:
                    selector.unregister(client.connection)
                    keeper.waiting = [entry for entry in keeper.waiting if entry[0] is not client]
                    client.close()


def main(argv: list[str]) -> int:
    status = serve(argv[0], int(argv[1]), argv[2])
    if status == 0 and argv[3:] == ["--remove"]:
        time.sleep(REMOVE_SECONDS)  # the other tasks are ending, too
        shutil.rmtree(os.path.dirname(os.path.abspath(argv[0])), ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
