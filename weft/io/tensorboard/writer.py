"""SummaryWriter: writes scalars, histograms, text, pictures, sounds, hyperparameters and graphs for TensorBoard."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any, Self

from ...autograd.tape import no_grad
from . import messages
from .records import record
from .torch_names import TorchNames, as_array

FLUSH_SECONDS = 2.0
_numbers = itertools.count()


class SummaryWriter(TorchNames):
    """Writes an event file into `directory`, to be viewed with `tensorboard --logdir directory`.

    Methods are thread-safe. Data reach the file within two seconds or at `flush()`; a process that dies leaves a file that
    is readable up to the last complete record.

    The methods have short names, and PyTorch's: `scalar` and `add_scalar`, `histogram` and `add_histogram`, `add_image`,
    `add_figure`, `add_hparams` …

    Args:
        directory: the directory; created if missing. Several writers, say of a run and its resumption, may share it. By default
            a new one below `runs`, named after the time and the machine.
        purge_step: the step from which this writer continues a run: TensorBoard hides later steps of older files.
        log_dir, comment, max_queue, flush_secs, filename_suffix: as of PyTorch's: another name of `directory`, an addition to the
            default one, two that are accepted, and an addition to the name of the file.

    >>> writer = wf.io.SummaryWriter("logs")
    >>> for step in range(3):
    ...     writer.scalar("loss/train", 1.0 / (step + 1), step)
    >>> writer.histogram("weight", wf.ones(10), step=3)
    >>> writer.add_image("input", wf.rand(3, 8, 8), global_step=3)
    >>> writer.close()
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, purge_step: int | None = None, *,
        log_dir: str | os.PathLike[str] | None = None, comment: str = "", max_queue: int = 10, flush_secs: float = FLUSH_SECONDS,
        filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if directory is not None and log_dir is not None:
            raise TypeError(
                "SummaryWriter: the directory was given twice, as `directory` and as `log_dir`. Give it once."
            )
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        found = directory if directory is not None else log_dir
        self.directory = (
            Path("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{host}{comment}") if found is None else Path(found)
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        self._parts: dict[str, SummaryWriter] = {}
        # TensorBoard reads files in lexicographic order: later ones must sort later, also within one second
        seconds, rest = divmod(time.time_ns(), 10**9)
        name = (
            f"events.out.tfevents.{seconds}.{rest:09d}.{next(_numbers):09d}.{os.getpid()}.{host}.weft{filename_suffix}"
        )
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
        self._summary(step, messages.histogram(tag, as_array(values), bins))

    def text(self, tag: str, content: str, step: int = 0) -> None:
        """Add a Markdown text."""
        self._summary(step, messages.text(tag, content))

    def graph(self, graph: Any, inputs: Any = None) -> None:
        """Add a graph: a declared one, a captured function's (`step` or `step.graph`), or a model's for the given `inputs`."""
        self._write(messages.event(time.time(), graph=graph_def(_graph_of(graph, inputs))))

    def flush(self) -> None:
        """Write buffered data to the file."""
        with self._lock:
            self._check()
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file. May be called twice."""
        for part in self._parts.values():
            part.close()
        with self._lock:
            self._file.close()

    def _sibling(self, name: str) -> SummaryWriter:
        found = self._parts.get(name)
        if found is None:
            found = self._parts[name] = SummaryWriter(self.directory / name)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _summary(self, step: Any, *values: bytes, walltime: float | None = None) -> None:
        when = time.time() if walltime is None else walltime
        self._write(messages.event(when, 0 if step is None else int(step), summary=messages.summary(values)))

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


def _graph_of(what: Any, inputs: Any) -> Any:
    """The graph of a captured function or of a model; a graph itself."""
    if hasattr(what, "nodes"):
        return what
    given = () if inputs is None else tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    if not hasattr(what, "signatures"):
        if not callable(what) or inputs is None:
            raise TypeError(
                "SummaryWriter: a graph is that captured, declared, or that of a model, `add_graph(model, inputs)`. "
                f"Got {type(what).__name__}{' without inputs' if callable(what) else ''}."
            )
        what = importlib.import_module("weft").function(what)
    if inputs is not None:
        with no_grad():
            what(*given)
    if not what.signatures:
        raise ValueError("SummaryWriter: the captured function has no graph yet. Call it once, or give its inputs.")
    return what.graph


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
