"""The terminal of a run: one process, the command, draws a table of the workers and the progress of the lead.

Two processes that draw on one terminal disturb each other. So, if standard error is a terminal, tasks get pipes instead of it,
and the command prints what they write above the table. The lead's progress bar comes as messages in the same stream
(`RemoteBar`): lines with a character that no text has. What arrives without an end of line, such as a bar of another library,
is shown below.
"""

from __future__ import annotations

import codecs
import json
import os
import select
import sys
import threading
import time
from typing import Any, TextIO

VARIABLE = "WEFT_DISTRIBUTED_TERMINAL"
"""set for tasks whose output goes through the command, which draws for them"""
MESSAGE = "\x1eweft "  # begins a line that is a message
REFRESH_SECONDS = 0.25
STATUS_SECONDS = 1.0
READ_BYTES = 1 << 16


def drawn_elsewhere() -> bool:
    """Whether the command draws the progress of this process."""
    return VARIABLE in os.environ


class RemoteBar:
    """Stands for a progress bar of rich where the command draws it; has the part of its interface that `Trainer` uses."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.console = self

    def _send(self, **fields: Any) -> None:
        self._file.write(f"{MESSAGE}{json.dumps(fields)}\n")
        self._file.flush()

    def start(self) -> None:
        self._send(bar="clear")

    def add_task(self, description: str, total: int | None, completed: int = 0, **fields: Any) -> int:
        self._send(bar="add", description=description, total=total, completed=completed, fields=fields)
        return 0

    def update(self, task: int, completed: int, **fields: Any) -> None:
        self._send(bar="update", completed=completed, fields=fields)

    def remove_task(self, task: int) -> None:
        self._send(bar="clear")

    def stop(self) -> None:
        self._send(bar="clear")

    def print(self, text: str, **_: Any) -> None:
        """A line above the bar."""
        print(text, file=self._file, flush=True)


class Lines:
    """Splits the bytes of a stream into lines of text, messages, and the line that is not complete.

    >>> lines = Lines()
    >>> lines.feed("one\\n 10%\\r 20%\\nrest".encode())
    (['one', ' 20%'], [])
    >>> lines.open, lines.feed(b" of it\\n\\x1eweft {\\"bar\\": \\"clear\\"}\\n")
    ('rest', (['rest of it'], [{'bar': 'clear'}]))
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def open(self) -> str:
        """The line that is not complete, as a terminal would show it."""
        return "" if MESSAGE[0] in self._rest else _overwritten(self._rest)

    def feed(self, data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
        """The complete lines that this makes, and the messages."""
        *complete, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        lines, messages, begun = [], [], ""
        for line in complete:
            line, begun = begun + line, ""
            text, found, message = line.partition(MESSAGE)
            try:
                messages += [json.loads(message)] if found else []
            except ValueError:
                found = ""
            if found:
                begun = text  # the message came in the middle of a line
            else:
                lines.append(_overwritten(line))
        self._rest = begun + self._rest
        return lines, messages


def _overwritten(line: str) -> str:
    """What is left of a line in which carriage returns began it anew."""
    return next((part for part in reversed(line.split("\r")) if part), "")


class Terminal:
    """The live display of a run, drawn by a thread from `start` to `stop`.

    Args:
        directory: of the run.
        file: the terminal.
        capture: which descriptors of tasks, 1 and 2, go through this process.
    """

    def __init__(self, directory: str, file: TextIO, capture: tuple[int, ...] = (1, 2)) -> None:
        self._directory, self._file = directory, file
        self._pipes = {number: os.pipe() for number in capture}
        self._lines = {reading: Lines() for reading, _ in self._pipes.values()}
        for reading in self._lines:
            os.set_blocking(reading, False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="weft-terminal", daemon=True)
        self._status: dict[str, Any] | None = None
        self._looked = self._drawn = 0.0
        self._changed = True

    @staticmethod
    def usable(file: TextIO) -> bool:
        """Whether a table can be drawn on a stream."""
        return file.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def streams(self) -> dict[str, Any]:
        """What `subprocess.Popen` needs so that the output of a process comes here."""
        names = {1: "stdout", 2: "stderr"}
        made: dict[str, Any] = {names[number]: writing for number, (_, writing) in self._pipes.items()}
        return {**made, "env": {**os.environ, VARIABLE: "1"}}

    def start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from .table import bar

        self._console = Console(file=self._file, highlight=False)
        self._bar = bar(self._console)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()
        self._thread.start()

    def stop(self) -> None:
        """Print what is left, and remove the table."""
        self._ended.set()
        self._thread.join(5.0)
        self._read(0.0)
        self._print([lines.open for lines in self._lines.values() if lines.open])
        self._live.stop()
        for ends in self._pipes.values():
            for descriptor in ends:
                os.close(descriptor)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(f"weft: {text}", markup=False, soft_wrap=True)

    def _serve(self) -> None:
        while not self._ended.is_set():
            self._read(REFRESH_SECONDS)
            now = time.monotonic()
            if now - self._looked >= STATUS_SECONDS:
                self._looked, self._changed = now, True
                self._status = self._look()
            if self._changed and now - self._drawn >= REFRESH_SECONDS:
                self._drawn, self._changed = now, False
                self._live.update(self._picture(), refresh=True)

    def _look(self) -> dict[str, Any]:
        from .status import Found  # this module is also imported where there is no run

        return Found(self._directory).status()

    def _read(self, seconds: float) -> None:
        """Wait for output of tasks, and show it."""
        poll = select.poll()
        for reading in self._lines:
            poll.register(reading, select.POLLIN)
        for reading, _ in poll.poll(seconds * 1000):
            while True:
                try:
                    data = os.read(reading, READ_BYTES)
                except BlockingIOError:
                    break
                if not data:
                    break
                self._changed = True
                lines, messages = self._lines[reading].feed(data)
                self._print(lines)
                for message in messages:
                    self._on_message(message)

    def _print(self, lines: list[str]) -> None:
        if lines:
            from rich.text import Text

            self._console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)

    def _on_message(self, message: dict[str, Any]) -> None:
        kind = message.get("bar")
        if kind in ("clear", "add"):
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
        if kind == "add":
            self._bar.add_task(
                message["description"], total=message["total"], completed=message["completed"], **message["fields"]
            )
        elif kind == "update" and self._bar.task_ids:
            self._bar.update(self._bar.task_ids[0], completed=message["completed"], **message["fields"])

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        from . import table

        parts: list[Any] = [Text.from_ansi(lines.open, style="dim") for lines in self._lines.values() if lines.open]
        if self._bar.task_ids:
            parts.append(self._bar.get_renderable())
        status = self._status
        if status is not None and status["tasks"]:
            most = self._console.height - len(parts) - len(status["hosts"]) - 5
            parts += [table.headline(status), table.tasks(status, everything=False, most=max(most, 2))]
        return Group(*parts)


def of_run(directory: str) -> Terminal | None:
    """The display of a run whose command has a terminal, else None."""
    if not Terminal.usable(sys.stderr):
        return None
    return Terminal(directory, sys.stderr, (1, 2) if sys.stdout.isatty() else (2,))
