"""SummaryWriter: writes scalars, histograms, text and graphs for TensorBoard."""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...tensor import Tensor
from . import messages
from .records import record

FLUSH_SECONDS = 2.0
_numbers = itertools.count()


class SummaryWriter:
    """Writes an event file into `directory`, to be viewed with `tensorboard --logdir directory`.

    Methods are thread-safe. Data reach the file within two seconds or at `flush()`; a process that dies leaves a file that
    is readable up to the last complete record.

    Args:
        directory: the directory; created if missing. Several writers, say of a run and its resumption, may share it.
        purge_step: the step from which this writer continues a run: TensorBoard hides later steps of older files.

    >>> writer = wf.io.SummaryWriter("logs")
    >>> for step in range(3):
    ...     writer.scalar("loss/train", 1.0 / (step + 1), step)
    >>> writer.histogram("weight", wf.ones(10), step=3)
    >>> writer.close()
    """

    def __init__(self, directory: str | os.PathLike[str], purge_step: int | None = None) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        # TensorBoard reads files in lexicographic order: later ones must sort later, also within one second
        seconds, rest = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds}.{rest:09d}.{next(_numbers):09d}.{os.getpid()}.{host}.weft"
        self.path = self.directory / name
        self._lock = threading.Lock()
        self._file: Any = open(self.path, "xb")
        self._flushed = time.monotonic()
        self._write(messages.event(time.time(), file_version="brain.Event:2"))
        if purge_step is not None:
            self._write(messages.event(time.time(), purge_step, session=messages.START))

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Add a point of a curve. Tags are grouped by their part before the slash ("loss/train")."""
        self._summary(step, messages.scalar(tag, float(value)))

    def scalars(self, values: dict[str, Any], step: int) -> None:
        """Add points of several curves at one step."""
        self._summary(step, *[messages.scalar(tag, float(value)) for tag, value in values.items()])

    def histogram(self, tag: str, values: Any, step: int, bins: int = 64) -> None:
        """Add a histogram of a tensor's finite values."""
        self._summary(step, messages.histogram(tag, _array(values), bins))

    def text(self, tag: str, content: str, step: int = 0) -> None:
        """Add a Markdown text."""
        self._summary(step, messages.text(tag, content))

    def graph(self, graph: Any) -> None:
        """Add a Weft graph (`step.graph` of a captured function, or a declared one)."""
        self._write(messages.event(time.time(), graph=graph_def(graph)))

    def flush(self) -> None:
        """Write buffered data to the file."""
        with self._lock:
            self._check()
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file. May be called twice."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _summary(self, step: int, *values: bytes) -> None:
        self._write(messages.event(time.time(), int(step), summary=messages.summary(values)))

    def _write(self, data: bytes) -> None:
        framed = record(data)
        with self._lock:
            self._check()
            self._file.write(framed)
            now = time.monotonic()
            if now - self._flushed > FLUSH_SECONDS:
                self._flushed = now
                self._file.flush()

    def _check(self) -> None:
        if self._file.closed:
            raise ValueError(f"SummaryWriter: {self.path} is closed.")


def _array(values: Any) -> np.ndarray:
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)


def graph_def(graph: Any) -> bytes:
    """A Weft graph as a GraphDef: one node per node, with shapes, dtypes and the user's line."""
    nodes = []
    for node in graph.nodes:
        inputs = [_reference(value) for value in node.inputs if value is not None]  # None: an omitted operand
        inputs += [f"^{before.name}" for before in node.control]
        first = node.outputs[0] if node.outputs else None
        notes = [("line", str(node.where))] if node.where is not None else []
        shape, dtype = (None, "") if first is None else (first.shape, first.dtype.name)
        nodes.append(messages.node(node.name, node.op.name, inputs, shape, dtype, notes))
    return messages.graph(nodes)


def _reference(value: Any) -> str:
    return value.node.name if value.index == 0 else f"{value.node.name}:{value.index}"
