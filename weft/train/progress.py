"""The progress bar of `Trainer.fit`, and one line per finished epoch."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from ..distributed import is_lead
from ..distributed.terminal import RemoteBar, drawn_elsewhere

WIDTH = 79  # columns of a line in a file; a terminal has its own
REFRESH_SECONDS = 0.1  # a step may take microseconds; drawing takes a thousand times longer


class Progress:
    """The progress display of `fit`: a bar on a terminal, elsewhere one line per epoch.

    Args:
        enabled: False prints nothing.
        file: the stream to write to; standard error by default, so that standard output stays clean.
    """

    def __init__(self, enabled: bool = True, file: TextIO | None = None) -> None:
        self.enabled = enabled
        self._file = sys.stderr if file is None else file
        self._bar: Any = None
        self._task: Any = None
        self._next = 0.0

    def start_epoch(self, epoch: int, epochs: int, total: int | None, done: int) -> None:
        """Start a bar of `total` batches (None: unknown), `done` of which are complete."""
        if not self.enabled:
            return
        if self._bar is None and (drawn_elsewhere() or self._file.isatty()):
            self._bar = RemoteBar(self._file) if drawn_elsewhere() else _bar(self._file)
            self._bar.start()
        if self._bar is not None:
            self._task = self._bar.add_task(f"epoch {epoch}/{epochs}", total=total, completed=done, loss="", rate="")

    @property
    def moving(self) -> bool:
        """Whether a bar is shown."""
        return self._task is not None

    def advance(self, done: int, loss: float, rate: float) -> None:
        """Update the bar: batches done, mean loss, and samples per second."""
        if self._bar is None or self._task is None:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REFRESH_SECONDS
            self._bar.update(self._task, completed=done, loss=f"loss {loss:.4f}", rate=f"{rate:,.0f} samples/s")

    def end_epoch(self, epoch: int, epochs: int, logs: dict[str, float]) -> None:
        """Replace the bar by a line about the epoch."""
        if not self.enabled:
            return
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        width = WIDTH if self._bar is None else max(WIDTH // 2, getattr(self._bar.console, "width", WIDTH + 1) - 1)
        self.say(epoch_line(f"epoch {epoch:>{len(str(epochs))}}/{epochs}", logs, width))

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.enabled or not is_lead():
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._file, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None


def _bar(file: TextIO) -> Any:
    from rich.console import Console

    from ..distributed.table import bar

    return bar(Console(file=file), transient=True)


def epoch_line(head: str, logs: dict[str, float], width: int = WIDTH) -> str:
    """The logs of an epoch on one line of at most `width` columns.

    In a line that is too long, a value of the validation stands beside that of the training (`loss 0.51 val 0.62`), and then
    the speed is left out. If the values alone do not fit, they continue on lines of their own, indented below the first
    value, instead of being broken anywhere by the terminal.
    """
    speed = [part for name, part in _parts(logs) if name in _SPEED]
    values = [part for name, part in _parts(logs) if name not in _SPEED]
    grouped = _grouped(logs)
    short = [part.replace(" samples/s", "/s") for part in speed]
    for parts in ([*values, *speed], [*grouped, *speed], [*grouped, *short], [*grouped, *short[1:]], grouped):
        line = "  ".join([head, *parts])
        if len(line) <= width:
            return line
    lines = [head]
    for part in [*grouped, *speed]:
        if len(lines[-1]) + 2 + len(part) > width and lines[-1].strip() != head:
            lines.append(" " * len(head))
        lines[-1] += "  " + part
    return "\n".join(lines)


def _grouped(logs: dict[str, float]) -> list[str]:
    """The values of an epoch, with `val_loss` as "val" behind `loss`."""
    shown = {name: part for name, part in _parts(logs) if name not in _SPEED}
    both = {name for name in shown if f"val_{name}" in shown}
    return [
        f"{part} val {shown[f'val_{name}'].rpartition(' ')[2]}" if name in both else part
        for name, part in shown.items()
        if name.removeprefix("val_") not in both or name in both
    ]


def format_logs(logs: dict[str, float]) -> str:
    """The logs of an epoch on one line."""
    return "  ".join(part for _, part in _parts(logs))


_SPEED = ("samples_per_second", "seconds")


def _parts(logs: dict[str, float]) -> list[tuple[str, str]]:
    """What is shown of the logs, by name."""
    parts = []
    for name, value in logs.items():
        if name in ("epoch", "step"):
            continue
        if name == "samples_per_second":
            parts.append((name, f"{value:,.0f} samples/s"))
        elif name == "seconds":
            parts.append((name, f"{value:.1f} s"))
        elif name.startswith("lr"):
            parts.append((name, f"{name} {value:.2e}"))
        else:
            parts.append((name, f"{name} {value:.4f}"))
    return parts
