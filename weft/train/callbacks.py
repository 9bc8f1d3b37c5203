"""Callbacks: hooks that the `Trainer` calls at fixed points of the training loop."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io import SummaryWriter, save
from ..io.durable import write_file
from . import watching

if TYPE_CHECKING:
    from .trainer import Trainer


class Callback:
    """Base class of callbacks: override the hooks you need.

    `logs` maps names to numbers: of the step ("loss"), or of the epoch ("loss", the metrics, "val_loss" …). Call
    `trainer.stop("reason")` to end training after the current epoch. A callback with state returns it from
    `state_dict`, as plain values and tensors, so that a resumed run continues with it.

    Example:
        >>> class CountSteps(wf.train.Callback):
        ...     steps = 0
        ...
        ...     def on_step_end(self, trainer, logs):
        ...         self.steps += 1
    """

    scope = "lead"
    """Where the hooks run in a distributed run. "lead": on one worker; what it changes in the trainer (`stop`, learning rates,
    the logs) then reaches the others. "observer": on one worker, and it changes nothing in the trainer, so no worker waits
    for it. "everywhere": on every worker, with the same numbers; it must have no effects outside of the trainer."""

    def on_fit_start(self, trainer: Trainer) -> None:
        """Called before the first epoch, after the state of a resumed run is restored."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Called before the first batch of an epoch."""

    def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        """Called after each update of the weights."""

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        """Called after the epoch and its validation, before the checkpoint is written."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """Called at the end, also when training fails."""

    def state_dict(self) -> dict[str, Any]:
        """The state to store in checkpoints."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def watched(logs: dict[str, float], monitor: str, who: str) -> float | None:
    """The entry `monitor` of `logs`; None, with a warning that lists the entries, if it is missing."""
    if monitor not in logs:
        warnings.warn(f"{who}: there is no {monitor!r}. There are {', '.join(logs)}.", stacklevel=4)
        return None
    return logs[monitor]


def better_mode(monitor: str, mode: str | None, who: str) -> float:
    """1 if smaller values of `monitor` are better, else -1."""
    if mode not in (None, "min", "max"):
        raise ValueError(f"{who}: mode must be 'min', 'max' or None. Got {mode!r}.")
    if mode is None:
        growing = ("accuracy", "top", "f1", "precision", "recall", "r2")
        mode = "max" if monitor.removeprefix("val_").startswith(growing) else "min"
    return 1.0 if mode == "min" else -1.0


class EarlyStopping(Callback):
    """Stop training when a monitored value has stopped improving.

    Args:
        monitor: the name of the value in the epoch's logs.
        patience: epochs without improvement before training stops.
        min_delta: the smallest change that counts as an improvement.
        mode: "min" or "max"; by default derived from the name.
        restore_best: restore the weights of the best epoch at the end.

    Example:
        >>> stopping = wf.train.EarlyStopping("val_accuracy", patience=3, restore_best=True)
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore_best: bool = False,
    ) -> None:
        self.monitor, self.patience, self.min_delta, self.restore_best = (
            monitor,
            patience,
            abs(min_delta),
            restore_best,
        )
        self._sign = better_mode(monitor, mode, "EarlyStopping")
        self.best = math.inf
        self.waited = 0
        self._weights: dict[str, Any] | None = None

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        value = watched(logs, self.monitor, "EarlyStopping")
        if value is None:
            return
        if self._sign * value < self.best - self.min_delta:
            self.best, self.waited = self._sign * value, 0
            if self.restore_best:
                self._weights = {name: t.clone() for name, t in trainer.model.state_dict().items()}
            return
        self.waited += 1
        if self.waited >= self.patience:
            best = self._sign * self.best
            trainer.stop(f"{self.monitor} has not improved on {best:.4g} for {self.waited} epochs")

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._weights is not None:
            trainer.model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        weights = state["weights"]
        if weights is not None and not isinstance(weights, dict):
            raise TypeError(f"EarlyStopping: expected weights by name. Got {type(weights).__name__}.")
        self.best, self.waited, self._weights = float(state["best"]), int(state["waited"]), weights


class ModelCheckpoint(Callback):
    """Save the weights of the best and of the last epoch as `best.safetensors` and `last.safetensors`.

    These files hold the model only, for inference; the checkpoints of the `Trainer` (`checkpoint_dir`) hold the whole run.

    Args:
        directory: the folder of the two files; created if missing.
        monitor: the value in the epoch's logs that determines the best epoch.
        mode: "min" or "max"; by default derived from the name.
    """

    def __init__(self, directory: str | os.PathLike[str], monitor: str = "val_loss", mode: str | None = None) -> None:
        self.directory, self.monitor = Path(directory), monitor
        self._sign = better_mode(monitor, mode, "ModelCheckpoint")
        self.best = math.inf

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        weights = trainer.weights()
        save(weights, self.directory / "last.safetensors")
        value = watched(logs, self.monitor, "ModelCheckpoint")
        if value is not None and self._sign * value < self.best:
            self.best = self._sign * value
            save(weights, self.directory / "best.safetensors")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = float(state["best"])


class LRLogger(Callback):
    """Add the learning rate of each parameter group to the logs: "lr", or "lr_0", "lr_1" …"""

    scope = "everywhere"

    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        logs.update(learning_rates(trainer.optimizer))


def learning_rates(optimizer: Any) -> dict[str, float]:
    """The learning rates of an optimiser's parameter groups, by their name in logs."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return {"lr": rates[0]} if len(rates) == 1 else {f"lr_{i}": rate for i, rate in enumerate(rates)}


def _recording(method: Callable[..., None]) -> Callable[..., None]:
    """Decorates a hook of a `_Recorder` that writes files: an OSError becomes a warning instead of ending training."""

    @functools.wraps(method)
    def guarded(self: _Recorder, *args: Any) -> None:
        try:
            method(self, *args)
        except OSError as error:
            self.lost(error)

    return guarded


class _Recorder(Callback):
    """Base of callbacks that only log. A full disk loses the log, never the run."""

    scope = "observer"

    _told = False

    def lost(self, error: OSError) -> None:
        """Warn once that the log could not be written."""
        if not self._told:
            self._told = True
            warnings.warn(
                f"{type(self).__name__}: {self.place()} could not be written: {error.strerror or error}. "
                "Training continues without it.",
                stacklevel=4,
            )

    def place(self) -> Path:
        """The path that is written."""
        raise NotImplementedError


class CSVLogger(_Recorder):
    """Write the logs of all epochs to a CSV file, replaced atomically after each epoch.

    Args:
        path: the file; its folder is created if missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def place(self) -> Path:
        return self.path

    @_recording
    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        rows = [*trainer.history, {"epoch": trainer.epoch + 1, "step": trainer.step, **logs}]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, text.getvalue().encode())


class TensorBoard(_Recorder):
    """Write TensorBoard events: scalars, histograms of the weights after each epoch, and the captured graph once.

    Args:
        directory: where; view it with `tensorboard --logdir directory`.
        every: steps between two points of the training loss.
        histograms: whether to write histograms of parameters.
        graph: whether to write the graph of the captured step.
    """

    def __init__(
        self, directory: str | os.PathLike[str], every: int = 10, histograms: bool = True, graph: bool = True
    ) -> None:
        self.directory, self.every, self.histograms, self.graph = (Path(directory), max(1, every), histograms, graph)
        self.writer: SummaryWriter | None = None
        self._graph_written = False

    def on_fit_start(self, trainer: Trainer) -> None:
        self.writer = SummaryWriter(self.directory, purge_step=trainer.step + 1 if trainer.step else None)

    def place(self) -> Path:
        return self.directory

    def lost(self, error: OSError) -> None:
        """Stop writing: an event file cannot be read past a gap."""
        super().lost(error)
        writer, self.writer = self.writer, None
        if writer is not None:
            with contextlib.suppress(OSError):  # flushing the buffer fails for the same reason
                writer.close()

    @_recording
    def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if self.writer is not None and trainer.step % self.every == 0:
            rates = {f"learning_rate/{k}": v for k, v in learning_rates(trainer.optimizer).items()}
            self.writer.scalars({"loss/step": logs["loss"], **rates, **watching.scalars(trainer)}, trainer.step)

    @_recording
    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if self.writer is None:
            return
        named = {}
        for name, value in logs.items():
            base = name.removeprefix("val_")
            named[f"{base}/{'validation' if base != name else 'train'}"] = value
        self.writer.scalars(named, trainer.step)
        if self.histograms:
            for name, parameter in trainer.model.named_parameters():
                self.writer.histogram(name.replace(".", "/"), parameter, trainer.step)
        if self.graph and not self._graph_written:
            graph = trainer.captured_graph()
            if graph is not None:
                self.writer.graph(graph)
                self._graph_written = True
        self.writer.flush()

    @_recording
    def on_fit_end(self, trainer: Trainer) -> None:
        if self.writer is not None:
            self.writer.close()


class StopOnNaN(Callback):
    """Raise FloatingPointError as soon as the loss is NaN or infinite."""

    scope = "everywhere"

    def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if not math.isfinite(logs["loss"]):
            raise FloatingPointError(
                f"Trainer: the loss is {logs['loss']} at step {trainer.step} (epoch {trainer.epoch + 1}). Lower the learning "
                "rate, clip gradients, or run eagerly under `wf.detect_anomaly()` to see where it comes from."
            )


class LossCurve(_Recorder):
    """Plot the loss and the metrics over training as a PNG or SVG, updated during training and at the end.

    Needs matplotlib; without it there is one warning and no plot.

    Args:
        path: the file, .png or .svg; an SVG follows the colour scheme (light or dark) of the page that shows it.
        title: the title of the plot.
        points: the largest number of step losses to keep; beyond it every other one is dropped.
    """

    def __init__(self, path: str | os.PathLike[str], title: str = "", points: int = 2000) -> None:
        self.path, self.title = Path(path), title
        self._points, self._stride = max(2, points), 1
        self._losses: list[tuple[int, float]] = []
        self._next = 0.0

    def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if trainer.step % self._stride == 0:
            self._losses.append((trainer.step, logs["loss"]))
            if len(self._losses) > self._points:  # halve the resolution, which stays above that of the plot
                self._losses, self._stride = self._losses[1::2], self._stride * 2

    def place(self) -> Path:
        return self.path

    @_recording
    def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
        if time.monotonic() >= self._next:
            started = time.monotonic()
            self._draw([*trainer.history, {"epoch": trainer.epoch + 1, "step": trainer.step, **logs}])
            now = time.monotonic()
            self._next = now + 50 * (now - started)  # plotting takes at most 2 % of the time

    @_recording
    def on_fit_end(self, trainer: Trainer) -> None:
        if trainer.history:
            self._draw(trainer.history)

    def _draw(self, rows: list[dict[str, float]]) -> None:
        from .picture import draw_curves

        draw_curves(self.path, self._losses, rows, self.title)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": np.array(self._losses, np.float64).reshape(-1, 2), "stride": self._stride}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._losses = [(int(step), float(loss)) for step, loss in state["losses"]]
        self._stride = state["stride"]
