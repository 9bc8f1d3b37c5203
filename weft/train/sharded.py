"""A `Trainer` in a distributed run: each global batch is computed shard by shard, by all workers.

The training loop itself runs on every worker, with the same numbers. What has effects elsewhere, callbacks and checkpoints,
runs on the lead; what the lead decides there (to stop, another learning rate) reaches the others as a decision.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf

from ..compiler import tuning
from ..distributed import ledger
from ..distributed.board import STOP
from ..distributed.context import Context
from ..distributed.decisions import Decisions
from ..distributed.parallel import DataParallel, relative_size
from ..io import Checkpoint, load, open_checkpoint, save, write_checkpoint
from ..tensor import Tensor, wrap
from . import state
from .callbacks import Callback
from .progress import Progress
from .steps import MaybeCaptured, Steps

if TYPE_CHECKING:
    from .trainer import Trainer

BASE_SECONDS = 120.0  # how long to wait for the checkpoint that another host begins with
STATES = "safetensors"  # files with the states of the callbacks, one per decision at the end of an epoch


class Sharded:
    """The part of a trainer that knows about the other workers. All of them call its methods in the same order."""

    def __init__(self, trainer: Trainer, context: Context) -> None:
        self.trainer, self.context = trainer, context
        self.directory = Path(context.directory)
        if trainer.shard_seed is None:  # not a resumed run; all workers draw the same number
            trainer.shard_seed = wf.default_generator.random_seed()
        self.parallel = DataParallel(
            context, trainer.model, trainer.optimizer, trainer.shard_seed, trainer.clip_grad_norm, trainer.ema
        )
        self.decisions = Decisions(self.parallel.team, os.path.join(context.directory, "decisions"))
        self.asked = False
        self._steps = Steps(trainer)
        capture = trainer.capture
        self._leaf = MaybeCaptured(self._gradients, capture)
        self._weighted_leaf = MaybeCaptured(self._weighted_gradients, capture)
        self._judge = MaybeCaptured(self._steps._evaluate, capture)
        self._compiled: set[Any] = set()
        self._shapes: list[tuple[int, ...]] | None = None  # of the statistics of each metric
        self._progress = trainer.progress
        self._evaluated = 0  # batches since the last update
        self._leads = False
        self._begun = False
        self._stale = False  # whether another worker has made decisions with its callbacks since
        trainer.progress = Progress(False)
        if not self.decisions.begun:  # else the callbacks of a dead lead are continued after the start
            self._take_over()

    # Programs -------------------------------------------------------------------------------------------------------

    def _gradients(self, batch: Any) -> tuple[Tensor, ...]:
        loss, output, target = self._steps._forward(batch)
        loss.backward()
        self.parallel.store_gradients()
        return self._steps._measured(loss, output, target)

    def _weighted_gradients(self, batch: Any) -> tuple[Tensor, ...]:
        *parts, weight = batch
        loss, output, target = self._steps._forward(tuple(parts))
        (loss * wf.astype(weight, loss.dtype)).backward()
        self.parallel.store_gradients()
        return self._steps._measured(loss, output, target)

    def _call(self, program: MaybeCaptured, batch: Any) -> Any:
        """Run a program. The first worker that compiles it chooses among the candidate kernels, the others do as it did:
        another choice may give other bits."""
        key = (id(program), _signature(batch))
        if key in self._compiled:
            return program(batch)
        with locked(self.directory / "tuning.lock"):
            file = self.directory / "tuning.json"
            if file.exists():
                tuning.adopt(json.loads(file.read_text()))
            found = program(batch)
            temporary = self.directory / f"tuning.{os.getpid()}"
            temporary.write_text(json.dumps(tuning.export()))
            os.replace(temporary, file)
        self._compiled.add(key)
        return found

    # Steps ----------------------------------------------------------------------------------------------------------

    def groups(self, loader: Iterable[Any], size: int) -> Iterator[Group]:
        """The batches of an epoch in groups: those whose gradients make one update."""
        batches = ledger.batches(loader)
        while group := list(itertools.islice(batches, size)):
            yield Group(group)

    def batches(self, loader: Iterable[Any]) -> Iterator[Group]:
        """The batches of an epoch."""
        return self.groups(loader, 1)

    def train_on(self, group: Group) -> tuple[Tensor, ...]:
        """One update; returns the loss and the statistics of the metrics."""
        shards, parallel = self.context.shards, self.parallel

        def compute(shard: int, weight: float) -> list[float]:
            losses: list[float] = []
            statistics: list[Any] = []
            for batch in group.batches:
                share = relative_size(batch.samples, shards, shard)
                if not share:
                    continue
                part = batch.shard(shard, shards)
                with parallel.accumulating(bool(losses)):
                    if share == 1.0:
                        measured = self._call(self._leaf, part)
                    else:
                        measured = self._call(self._weighted_leaf, (*part, wrap(np.array(share, np.float32))))
                losses.append(float(measured[0]))
                statistics.append(self._numbers(measured[1:]))
            return [sum(losses) / len(losses), *np.sum(statistics, axis=0)]

        return self._run(compute, group, True)

    def evaluate_on(self, group: Group) -> tuple[Tensor, ...]:
        """The loss and the statistics of the metrics; nothing is updated."""
        (batch,) = group.batches

        def compute(shard: int, weight: float) -> list[float]:
            measured = self._call(self._judge, batch.shard(shard, self.context.shards))
            return [float(measured[0]), *self._numbers(measured[1:])]

        return self._run(compute, group, False)

    def _run(self, compute: Callable[[int, float], Any], group: Group, trains: bool) -> tuple[Tensor, ...]:
        interrupt = self.trainer._interrupt
        if interrupt.asked and not self.asked:
            self.parallel.board.store("header", STOP, int(interrupt.asked))
        trainer = self.trainer
        self._evaluated = 0 if trains else self._evaluated + 1
        position = (trainer.epoch, trainer.batches, self._evaluated)
        row = self.parallel.run(compute, [b.samples for b in group.batches], trains, position)
        if row[-1]:
            interrupt.asked = signal.Signals(int(row[-1]))
            self.asked = True
        return (wrap(np.array(row[1] / row[0])), *self._split(row[2:-1]))

    def _numbers(self, statistics: Any) -> list[float]:
        """The statistics of the metrics as one list; remembers their shapes, for workers that computed no shard."""
        if self._shapes is None:
            self._shapes = [tuple(s.shape) for s in statistics]
            file = self.directory / "metrics.json"
            temporary = self.directory / f"metrics.{os.getpid()}"
            temporary.write_text(json.dumps(self._shapes))
            os.replace(temporary, file)
        return [float(v) for s in statistics for v in np.asarray(s.numpy(), np.float64).reshape(-1)]

    def _split(self, values: np.ndarray) -> Iterator[Tensor]:
        if self._shapes is None:
            file = self.directory / "metrics.json"
            end = time.monotonic() + 60.0
            while not file.exists() and time.monotonic() < end:  # it may be on its way from another host
                time.sleep(0.005)
            self._shapes = [tuple(s) for s in json.loads(file.read_text())]
        start = 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            yield wrap(values[start : start + size].reshape(shape).copy())
            start += size

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Evaluate with the moving averages, if there are any; the weights themselves are not touched."""
        if self.trainer.ema is None:
            yield
            return
        with self.parallel.showing_averages():
            yield

    # The lead -------------------------------------------------------------------------------------------------------

    @property
    def is_lead(self) -> bool:
        return self.parallel.team.peers.lead()

    @property
    def replaying(self) -> bool:
        """Whether this worker, which came late, still passes steps that are committed."""
        team = self.parallel.team
        return team.version < team.board.committed()[0]

    def _take_over(self) -> None:
        """If this worker is the lead now: show progress, and continue the callbacks of its predecessor."""
        if self._leads or not self.is_lead or self.replaying:
            return
        self._leads = True
        trainer = self.trainer
        trainer.progress = self._progress
        if self._begun:
            self._restore()
            for callback in trainer.callbacks:
                if callback.scope != "everywhere":
                    callback.on_fit_start(trainer)

    def _restore(self) -> None:
        """Give the callbacks the states they had after the last decision, if another worker made it."""
        if not self._stale:
            return
        self._stale = False
        file = self.decisions.latest(STATES)
        states = load(file) if file is not None else {}
        for number, callback in enumerate(self.trainer.callbacks):
            if str(number) in states:
                callback.load_state_dict(states[str(number)])

    def on_lead(self, action: Callable[[], None]) -> None:
        """Run `action` on the lead; the others wait, so the state does not change meanwhile."""

        def act() -> bool:
            self._take_over()
            action()
            return True

        self.decisions.make(act)

    def notify(self, hook: str, *args: Any) -> None:
        """Call a hook of the callbacks where it belongs."""
        trainer = self.trainer
        if self._begun:
            self._take_over()
        deciding = []
        for callback in trainer.callbacks:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                continue
            if callback.scope == "everywhere":
                getattr(callback, hook)(trainer, *args)
            elif callback.scope == "observer":
                if self.is_lead and not self.replaying:
                    getattr(callback, hook)(trainer, *args)
            else:
                deciding.append(callback)
        if deciding:
            stale, self._stale = self._stale, True
            self._apply(self.decisions.make(lambda: self._decide(deciding, hook, args, stale)), args)
        if hook == "on_fit_start":
            self._begun = True

    def _decide(self, callbacks: list[Callback], hook: str, args: tuple[Any, ...], stale: bool) -> dict[str, Any]:
        trainer = self.trainer
        self._stale = stale
        self._take_over()
        self._restore()
        for callback in callbacks:
            getattr(callback, hook)(trainer, *args)
        if hook == "on_epoch_end":
            states = {str(i): c.state_dict() for i, c in enumerate(trainer.callbacks)}
            save(states, self.decisions.file(self.decisions.current, STATES))
        rates = [float(group["lr"]) for group in trainer.optimizer.param_groups]
        return {"stopped": trainer.stopped, "rates": rates, "logs": dict(args[0]) if args else {}}

    def _apply(self, decision: dict[str, Any], args: tuple[Any, ...]) -> None:
        trainer = self.trainer
        trainer.stopped = decision["stopped"]
        for group, rate in zip(trainer.optimizer.param_groups, decision["rates"], strict=True):
            if float(group["lr"]) != rate:
                group["lr"] = rate
        if args:
            args[0].update(decision["logs"])

    def close(self, results: str | None) -> None:
        """Leave the run; the model keeps its weights in memory of this process.

        Args:
            results: where the lead writes the state of the trainer, for the process that started the run.
        """
        if results is not None:
            self.on_lead(lambda: _write_results(self.trainer, Path(results)))
        self.trainer.progress = self._progress
        self.parallel.close()


class Group:
    """Batches that make one update."""

    def __init__(self, batches: list[ledger.GlobalBatch]) -> None:
        self.batches = batches
        self.samples = sum(b.samples for b in batches)
        self.parts = len(batches)


def base_checkpoint(context: Context, find: Callable[[], Checkpoint | None]) -> Checkpoint | None:
    """The checkpoint that the run began with, the same for a worker that joins later; None if it began from nothing.

    The first host looks for it; the others get it from there, so they need not share the directory.
    """
    directory = Path(context.directory)
    chosen, copy = directory / "base.json", directory / "base"
    if context.host > 0 or context.joins:
        end = time.monotonic() + BASE_SECONDS
        while not chosen.exists():
            if time.monotonic() > end:
                raise RuntimeError(f"distributed: no other host told host {context.host} where the run began.")
            time.sleep(0.01)
        return open_checkpoint(copy) if json.loads(chosen.read_text()) else None
    with locked(directory / "base.lock"):
        if not chosen.exists():
            found = find()
            if found is not None:
                shutil.copytree(found.path, copy, copy_function=_link)
            temporary = directory / "base.new"
            temporary.write_text(json.dumps(found is not None))
            os.replace(temporary, chosen)
        return open_checkpoint(copy) if json.loads(chosen.read_text()) else None


def _write_results(trainer: Trainer, directory: Path) -> None:
    write_checkpoint(directory, trainer.step, state.collect(trainer, None, None), facts=state.facts(trainer))


def _link(source: str, target: str) -> None:
    """A second name for a file, which stays when the first is removed; a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among the workers of a host. The system releases it when its holder dies."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _signature(batch: Any) -> tuple[Any, ...]:
    return tuple((tuple(t.shape), str(t.dtype)) if isinstance(t, Tensor) else type(t) for t in batch)


__all__ = ["Group", "Sharded", "base_checkpoint"]
