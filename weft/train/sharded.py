"""A `Trainer` in a distributed run: each global batch is computed shard by shard, by all workers.

The training loop itself runs on every worker, with the same numbers. What has effects elsewhere, callbacks and checkpoints,
runs on the lead; what the lead decides there (to stop, another learning rate) reaches the others as a decision.
"""

from __future__ import annotations

import contextlib
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

from ..distributed import ledger, tree
from ..distributed.board import STOP
from ..distributed.context import Context
from ..distributed.decisions import Decisions
from ..distributed.local_shards import LocalShards
from ..distributed.parallel import Compute, Computed, DataParallel, Report, next_part, share
from ..distributed.programs import Program, locked
from ..distributed.randomness import READING
from ..io import Checkpoint, load, open_checkpoint, save, write_checkpoint
from ..tensor import Tensor, wrap
from . import state
from .callbacks import Callback
from .progress import Progress
from .steps import Steps

if TYPE_CHECKING:
    from .trainer import Trainer

BASE_SECONDS = 120.0  # how long to wait for the checkpoint that another host begins with
STATES = "safetensors"  # files with the states of the callbacks, one per decision at the end of an epoch
WRITTEN = "written"  # in such a file: the state of the run, if callbacks have changed it


class Sharded:
    """The part of a trainer that knows about the other workers. All of them call its methods in the same order."""

    def __init__(self, trainer: Trainer, context: Context) -> None:
        self.trainer, self.context = trainer, context
        self.directory = Path(context.directory)
        if trainer.shard_seed is None:  # not a resumed run; all workers draw the same number
            trainer.shard_seed = wf.default_generator.random_seed()
        self.parallel = DataParallel(
            context, trainer.model, trainer.optimizer, trainer.shard_seed, trainer.clip_grad_norm, trainer.ema,
            batches=trainer.grad_accumulation,
        )  # fmt: skip
        self.decisions = Decisions(self.parallel.team, os.path.join(context.directory, "decisions"))
        self.asked = False
        self._steps = Steps(trainer)
        training = trainer.capture and not self.parallel.synchronised
        self._leaf = Program(self._gradients, context.directory, "Trainer", training)
        self._counter = Program(self._count, context.directory, "Trainer", training)
        self._evaluation = Evaluation(trainer, self.parallel, context)
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

    def _gradients(self, scales: Tensor, *parts: Any) -> tuple[tuple[Tensor, ...], list[Any], Tensor]:
        """A shard's loss and statistics, its row-sparse gradients, and its report."""
        trainer = self.trainer
        with self.parallel.computing(scales) as shard:
            loss, output, target = self._steps._forward(_joined(parts))
            trainer.optimizer.zero_grad()
            loss.backward()
        rows = self.parallel.store_gradients()
        return self._steps._measured(loss, output, target), rows, shard.report()

    def _count(self, scales: Tensor, *parts: Any) -> Tensor:
        with wf.no_grad(), self.parallel.computing(scales) as shard:
            self._steps._forward(_joined(parts))
            return shard.report()

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
        read: dict[tuple[int, int], Any] = {}  # a step that collects counts first needs the samples twice

        def part(number: int, batch: ledger.GlobalBatch, shard: int) -> tuple[Any, ...]:
            if (number, shard) not in read:
                read[number, shard] = _split(read_shard(parallel, batch, shard, shards))
            return read[number, shard]

        def compute(shard: int, counts: np.ndarray | None, collects: bool) -> Computed:
            losses: list[float] = []
            statistics: list[Any] = []
            reports: list[Report] = []
            weight = 0.0
            for number, batch in enumerate(group.batches):
                size = share(batch.samples, shards, shard)
                if not size:
                    reports.append(Report(0.0, False, []))
                    continue
                scales = parallel.scales(batch.samples, shard, None if counts is None else counts[number])
                parallel.begin_batch(number, batch.samples)
                if collects:
                    reports.append(Report.read(self._counter(scales, *part(number, batch, shard))))
                    continue
                with parallel.accumulating(bool(losses)):
                    measured, rows, values = self._leaf(scales, *part(number, batch, shard))
                    parallel.store_rows(rows)
                reports.append(Report.read(values))
                weight += reports[-1].weight
                losses.append(float(measured[0]) * reports[-1].weight * batch.samples)
                statistics.append(self._numbers(measured[1:]))
            loss = 0.0
            if weight:  # the mean over all samples of the group, though each batch has the same weight in the update
                loss = sum(losses) / group.samples * group.parts / weight
            void = any(r.void for r in reports)
            numbers = [float(v) for v in np.sum(statistics, axis=0)] if statistics else []
            return Computed(loss, numbers, weight, void, [r.counts for r in reports])

        return self._run(compute, group, True)

    def evaluate_on(self, group: Group) -> tuple[Tensor, ...]:
        """The loss and the statistics of the metrics; nothing is updated."""
        (batch,) = group.batches
        return self._run(self._evaluation.compute(batch, self._numbers), group, False)

    def _run(self, compute: Compute, group: Group, trains: bool) -> tuple[Tensor, ...]:
        interrupt = self.trainer._interrupt
        if interrupt.asked and not self.asked:
            self.parallel.board.store("header", STOP, int(interrupt.asked))
        trainer = self.trainer
        self._evaluated = 0 if trains else self._evaluated + 1
        position = (trainer.epoch, trainer.batches, self._evaluated)
        row = self.parallel.run(compute, [b.samples for b in group.batches], trains, position)
        if row.stop:
            interrupt.asked = signal.Signals(row.stop)
            self.asked = True
        return (wrap(np.array(row.loss)), *self._shaped(row.numbers))

    def _numbers(self, statistics: Any) -> list[float]:
        """The statistics of the metrics as one list; remembers their shapes, for workers that computed no shard."""
        if self._shapes is None:
            self._shapes = [tuple(s.shape) for s in statistics]
            with locked(self.directory / "metrics.lock"):
                file = self.directory / "metrics.json"
                known = json.loads(file.read_text()) if file.exists() else {}
                temporary = self.directory / f"metrics.{os.getpid()}"
                temporary.write_text(json.dumps({**known, str(self.parallel.number): self._shapes}))
                os.replace(temporary, file)
        return flattened(statistics)

    def _shaped(self, values: np.ndarray) -> Iterator[Tensor]:
        if self._shapes is None:
            file, key = self.directory / "metrics.json", str(self.parallel.number)
            end = time.monotonic() + 60.0
            known: dict[str, Any] = {}
            while key not in known and time.monotonic() < end:  # it may be on its way from another host
                time.sleep(0.005)
                known = json.loads(file.read_text()) if file.exists() else {}
            self._shapes = [tuple(s) for s in known[key]]
        return shaped(values, self._shapes)

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
                    with self._no_writes(type(callback).__name__):
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
        parallel = self.parallel

        def on_write(values: dict[Any, np.ndarray]) -> None:
            parallel.pending = values

        parallel.on_write = on_write
        try:
            for callback in callbacks:
                getattr(callback, hook)(trainer, *args)
        finally:
            written = {} if parallel.pending is None else _named(parallel.pending)
            parallel.on_write = parallel.pending = None
        if hook == "on_epoch_end" or written:
            states = {str(i): c.state_dict() for i, c in enumerate(trainer.callbacks)}
            save({**states, WRITTEN: written}, self.decisions.file(self.decisions.current, STATES))
        rates = [float(group["lr"]) for group in trainer.optimizer.param_groups]
        logs = dict(args[0]) if args else {}
        return {"stopped": trainer.stopped, "rates": rates, "logs": logs, "wrote": bool(written)}

    @contextlib.contextmanager
    def _no_writes(self, name: str) -> Iterator[None]:
        """A context for a callback that no other worker waits for."""
        self.parallel.write_refused = (
            f"writing: {name} has the scope 'observer', so the other workers do not wait for it and would not get what it "
            'changes. Give it `scope = "lead"`.'
        )
        try:
            yield
        finally:
            self.parallel.write_refused = None

    def _apply(self, decision: dict[str, Any], args: tuple[Any, ...]) -> None:
        trainer = self.trainer
        trainer.stopped = decision["stopped"]
        for group, rate in zip(trainer.optimizer.param_groups, decision["rates"], strict=True):
            if float(group["lr"]) != rate:
                group["lr"] = rate
        if decision["wrote"]:
            found = load(self.decisions.file(self.decisions.current, STATES))[WRITTEN]
            names = _names(self.parallel.shelf.memory[0])
            self.parallel.write({name: np.asarray(found[key]) for name, key in names.items()})
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


def _names(values: dict[Any, Any]) -> dict[Any, str]:
    """A text for each field of the state."""
    return {name: str(number) for number, name in enumerate(values)}


def _named(values: dict[Any, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: values[name] for name, key in _names(values).items()}


class Evaluation:
    """Loss and metrics of the shards of a batch.

    Args:
        trainer: whose model it is.
        steps: `DataParallel`, or `LocalShards`.
        context: the run.
    """

    def __init__(self, trainer: Trainer, steps: Any, context: Context) -> None:
        self._steps, self._shards, self._programs = steps, context.shards, Steps(trainer)
        self._judge, self._counter, self._output = (
            Program(fn, context.directory, "Trainer", trainer.capture)
            for fn in (self._evaluate, self._count, self._predict)
        )

    def _evaluate(self, scales: Tensor, *parts: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        with wf.no_grad(), self._steps.computing(scales) as shard:
            loss, output, target = self._programs._forward(_joined(parts))
            report = shard.report(loss)
        return self._programs._measured(loss, output, target), report

    def _count(self, scales: Tensor, *parts: Any) -> Tensor:
        with wf.no_grad(), self._steps.computing(scales) as shard:
            self._programs._forward(_joined(parts))
            return shard.report()

    def _predict(self, scales: Tensor, *inputs: Any) -> Any:
        with self._steps.computing(scales):
            return self._programs._predict(inputs)

    def compute(self, batch: ledger.GlobalBatch, numbers: Callable[[Any], list[float]]) -> Compute:
        """The evaluation of a batch; `numbers` makes numbers of the statistics of the metrics."""

        def compute(shard: int, counts: np.ndarray | None, collects: bool) -> Computed:
            parts = _split(read_shard(self._steps, batch, shard, self._shards))
            self._steps.begin_batch(0, batch.samples)
            if collects:
                report = Report.read(self._counter(self._steps.scales(batch.samples, shard), *parts))
                return Computed(0.0, [], 0.0, False, [report.counts])
            scales = self._steps.scales(batch.samples, shard, None if counts is None else counts[0])
            measured, values = self._judge(scales, *parts)
            report = Report.read(values)
            return Computed(float(measured[0]), numbers(measured[1:]), report.weight, report.void, [report.counts])

        return compute

    def predict(self, batch: ledger.GlobalBatch, position: tuple[int, ...], inputs: Callable[[Any], Any]) -> list[Any]:
        """The outputs for the shards of a batch; `inputs` takes the model's inputs from what was read."""
        outputs = []
        for shard in tree.present(batch.samples, self._shards):
            with self._steps.randomness.shard(position, shard):
                parts = inputs(read_shard(self._steps, batch, shard, self._shards))
                outputs.append(self._output(self._steps.scales(batch.samples, shard), *parts))
        return outputs


class LocalEvaluation:
    """Evaluation and prediction by one worker of a run, shard by shard: with the bits of all workers together.

    It is what a callback on the lead may call, and all workers after training.
    """

    def __init__(self, trainer: Trainer, context: Context) -> None:
        self._trainer, self._local = trainer, LocalShards(context.shards, trainer.shard_seed or 0)
        self._evaluation = Evaluation(trainer, self._local, context)

    def evaluate(self, loader: Iterable[Any]) -> Iterator[tuple[tuple[Tensor, ...], int]]:
        """The loss and the statistics of the metrics of each batch, and its samples."""
        for number, batch in enumerate(ledger.batches(loader), 1):
            shapes: list[tuple[int, ...]] = []

            def numbers(statistics: Any, shapes: list[tuple[int, ...]] = shapes) -> list[float]:
                shapes[:] = [tuple(s.shape) for s in statistics]
                return flattened(statistics)

            row = self._local.run(self._evaluation.compute(batch, numbers), [batch.samples], False, self._at(number))
            yield (wrap(np.array(row.loss)), *shaped(row.numbers, shapes)), batch.samples

    def predict(self, loader: Iterable[Any], inputs: Callable[[Any], Any]) -> Iterator[Any]:
        """The outputs of each shard, in order."""
        for number, batch in enumerate(ledger.batches(loader), 1):
            yield from self._evaluation.predict(batch, self._at(number), inputs)

    def _at(self, number: int) -> tuple[int, ...]:
        return self._trainer.epoch, self._trainer.batches, number


def read_shard(steps: Any, batch: ledger.GlobalBatch, shard: int, shards: int) -> Any:
    """The samples of a shard; the user's code may draw random numbers for them."""
    with steps.randomness.python(READING) if batch.runs_code else contextlib.nullcontext():
        return batch.shard(shard, shards)


def flattened(statistics: Any) -> list[float]:
    """The statistics of the metrics as one list."""
    return [float(v) for s in statistics for v in np.asarray(s.numpy(), np.float64).reshape(-1)]


def shaped(values: np.ndarray, shapes: list[tuple[int, ...]]) -> Iterator[Tensor]:
    """What `flattened` made a list of."""
    start = 0
    for shape in shapes:
        size = int(np.prod(shape))
        yield wrap(values[start : start + size].reshape(shape).copy())
        start += size


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
    directory, number = Path(context.directory), next_part()
    chosen, copy = directory / f"base-{number}.json", directory / f"base-{number}"
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
            temporary = directory / f"base-{number}.new"
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


def _split(batch: Any) -> tuple[Any, ...]:
    """A batch as arguments: separate tensors have a shorter dispatch path than a tuple."""
    return tuple(batch) if type(batch) in (tuple, list) and len(batch) > 1 else (batch,)


def _joined(parts: tuple[Any, ...]) -> Any:
    """What `_split` was given."""
    return parts if len(parts) > 1 else parts[0]


__all__ = ["Group", "Sharded", "base_checkpoint"]
