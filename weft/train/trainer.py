"""Trainer: a training loop with metrics, callbacks, checkpoints and exact resumption.

It uses only the public API: `wf.function`, `nn`, `optim`, `data`, `io`. `examples/digits_by_hand.py` shows the same
training with the loop written out.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf

from ..distributed import context
from ..io import Checkpoint, CheckpointError, CheckpointManager, latest, list_checkpoints, open_checkpoint
from ..tensor import Tensor
from . import inputs, nan_loss, state, watching
from .callbacks import Callback, CSVLogger, LossCurve, TensorBoard, better_mode
from .interrupt import Interrupt
from .metrics import as_metrics, batch_length
from .progress import Progress
from .steps import Steps


class Trainer:
    """Trains and evaluates a model.

    A batch is a tuple whose last item is the target and whose other items are the model's inputs. Override `forward`
    for other batches.

    **Resuming.** With `checkpoint_dir` and `resume="auto"` a run that was killed at any moment continues from its last
    checkpoint, and its result is bitwise identical to that of an undisturbed run: a checkpoint holds model, optimiser,
    scheduler, EMA, random states, loader positions, metrics so far and the state of callbacks.

    Args:
        model: the module to train.
        optimizer: an optimiser of the model's parameters.
        loss: a function (or module) of (output, target).
        metrics: names ("accuracy", "top5", "f1", "mse" …), `Metric` objects, or functions of (output, target).
        callbacks: `Callback` objects.
        scheduler: a learning-rate schedule of `weft.optim`.
        schedule_every: call the scheduler each "epoch" or each "step" (one-cycle, warm-up).
        capture: compile the training step with `wf.function`.
        grad_accumulation: batches whose gradients are averaged for one update.
        clip_grad_norm: the maximum global norm of the gradients.
        ema: decay of a moving average of the weights (or an EMA object), which validation uses.
        autocast: a 16-bit dtype such as `wf.bfloat16` for mixed precision.
        checkpoint_dir: the directory of the run's checkpoints; None writes none.
        checkpoint_every: steps between checkpoints; by default one at the end of each epoch.
        resume: "auto" continues from the newest valid checkpoint in `checkpoint_dir`, if there is one; a path continues
            from that checkpoint, on a new branch if there are later ones; None starts from scratch and refuses a
            directory with checkpoints of another run.
        keep: the number of latest checkpoints to keep, besides the best one.
        monitor: the value that determines the best checkpoint; by default "val_loss", or "loss" without validation.
        mode: "min" or "max"; by default derived from `monitor`.
        stop_on_nan: end training with a FloatingPointError before the update when the loss is NaN. The error names the line
            that made the NaN, or the sample or weight that held it.
        log_dir: write `history.csv`, `loss.png` and TensorBoard events there.
        progress: show a progress bar.
        facts: JSON values to store in the manifest of checkpoints.
        workers: train with this many worker processes. `fit` then runs the script again in each of them, up to this call; the
            weights are the same, bit by bit, for any number of workers.
        shards: with workers, into how many shards a batch is cut; part of the numerical definition of the run.
        memory: with workers, "full" or "lean": keep the weights and optimiser state once instead of twice. A worker that dies
            while it updates them then costs a restart from the last checkpoint.
        strategy: `wf.distributed.ParameterServer(…)`: train with the weights on servers.

    >>> x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    >>> model = nn.Linear(2, 1)
    >>> trainer = wf.Trainer(model, optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), progress=False)
    >>> history = trainer.fit(x, x[:, :1], batch_size=16, epochs=5)
    >>> history[-1]["loss"] < history[0]["loss"]
    True
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss: Callable[[Any, Any], Tensor],
        *,
        metrics: Any = None,
        callbacks: Sequence[Callback] = (),
        scheduler: Any = None,
        schedule_every: str = "epoch",
        capture: bool = True,
        grad_accumulation: int = 1,
        clip_grad_norm: float | None = None,
        ema: Any = None,
        autocast: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        resume: str | os.PathLike[str] | None = None,
        keep: int | None = 3,
        monitor: str | None = None,
        mode: str | None = None,
        stop_on_nan: bool = True,
        log_dir: str | os.PathLike[str] | None = None,
        progress: bool | Progress = True,
        facts: dict[str, Any] | None = None,
        workers: int | None = None,
        shards: int = 8,
        memory: str = "full",
        strategy: Any = None,
    ) -> None:
        _check_count("grad_accumulation", grad_accumulation)
        if checkpoint_every is not None:
            _check_count("checkpoint_every", checkpoint_every)
        if workers is not None:
            _check_count("workers", workers)
        _check_count("shards", shards)
        if memory not in ("full", "lean"):
            raise ValueError(f"Trainer: memory must be 'full' or 'lean'. Got {memory!r}.")
        if schedule_every not in ("epoch", "step"):
            raise ValueError(f"Trainer: schedule_every must be 'epoch' or 'step'. Got {schedule_every!r}.")
        if clip_grad_norm is not None and not clip_grad_norm > 0:
            raise ValueError(f"Trainer: clip_grad_norm must be positive. Got {clip_grad_norm!r}.")
        if checkpoint_dir is None and (resume == "auto" or checkpoint_every is not None):
            raise ValueError("Trainer: resume='auto' and checkpoint_every need a checkpoint_dir. Got None.")
        if not callable(loss):
            raise TypeError(f"Trainer: loss must be a function of (output, target). Got {type(loss).__name__}.")
        _check_parts(model, optimizer, scheduler, callbacks)
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.metrics = as_metrics(metrics)
        self.callbacks = [*callbacks, *_log_callbacks(log_dir)]
        self.scheduler, self.schedule_every = scheduler, schedule_every
        self.capture, self.autocast = capture, autocast
        self.grad_accumulation, self.clip_grad_norm = grad_accumulation, clip_grad_norm
        self.ema = wf.optim.EMA(model, ema) if isinstance(ema, (int, float)) else ema
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.checkpoint_every, self.resume, self.keep = checkpoint_every, resume, keep
        self.monitor, self.mode = monitor, mode
        self.stop_on_nan = stop_on_nan
        self.facts = dict(facts or {})
        self.workers, self.memory, self.strategy = workers, memory, strategy
        run = context.current()
        self.shards: int | None = run.shards if run is not None else shards if workers is not None else None
        """the logical shards of a batch in a distributed run; None in an ordinary one"""
        self.shard_seed: int | None = None
        """the seed of the random numbers that shards draw"""
        self.progress = progress if isinstance(progress, Progress) else Progress(progress)
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

        self.epoch = 0
        """epochs that are done"""
        self.step = 0
        """number of weight updates so far"""
        self.batches = 0
        """batches of the current epoch that are done"""
        self.trained = False
        """whether the current epoch is trained but not validated yet"""
        self.totals: dict[str, np.ndarray] = {}
        """sums of statistics of the current epoch"""
        self.history: list[dict[str, float]] = []
        """one row of numbers per epoch"""
        self.stopped: str | None = None
        """why training ended early"""
        self.seconds = 0.0
        """time spent on the current epoch"""
        self.checkpoint_failed = False
        """whether the last checkpoint could not be written"""
        self._steps = Steps(self)
        self._interrupt = Interrupt()
        self._manager: CheckpointManager | None = None
        self._sharded: Any = None  # in a worker of a distributed run
        self._resumed = False
        self._lineage: Any = None  # of the checkpoints, after a resume from an older one

    # Public ------------------------------------------------------------------------------------

    def forward(self, batch: Any) -> tuple[Tensor, Any, Any]:
        """The loss of a batch, the model's output, and the target that metrics compare it with."""
        given, target = split_batch(batch)
        output = self.model(*given)
        return self.loss(output, target), output, target

    def stop(self, reason: str = "asked to") -> None:
        """Stop training after the current epoch."""
        self.stopped = reason

    def weights(self) -> dict[str, Tensor]:
        """The weights for inference: the moving average if there is one, else the model's weights."""
        if self.ema is None:
            return self.model.state_dict()
        with self.ema.applied():
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def captured_graph(self) -> Any:
        """The graph of the captured training step, or None."""
        return (self._steps.train if self.grad_accumulation == 1 else self._steps.accumulate).graph()

    # Training -----------------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        epochs: int = 1,
        *,
        batch_size: int | None = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        shuffle: bool = True,
        train_loader: Any = None,
        val_loader: Any = None,
    ) -> list[dict[str, float]]:
        """Train until `epochs` epochs are done in total, including those before a resume and of earlier calls.

        `fit(x, y)` takes arrays or tensors, `fit(dataset)` samples, `fit(loader)` batches. With a dataset or a loader the
        second argument is the validation data: `fit(train_loader, val_loader)`.

        Args:
            x: an array or tensor of inputs (a tuple of several for a model with several inputs), a `Dataset`, a `DataLoader`,
                or any iterable of batches that can be iterated repeatedly. Floats of NumPy arrays take the dtype of the
                model's parameters.
            y: the targets, with arrays.
            epochs: the total number of epochs.
            batch_size: samples per step, with arrays or a dataset; 32 by default.
            validation_data: what to evaluate on after each epoch: `(x, y)`, a dataset or a loader.
            validation_split: hold out this last fraction of the samples for validation. They are the last ones as given,
                before any shuffling, as in Keras: shuffle data that are sorted first.
            shuffle: with arrays or a dataset, a new random order in each epoch.
            train_loader, val_loader: other names of the first argument and of `validation_data`.

        Returns:
            The history: one dict per epoch, with "loss", the metrics, "val_loss" …

        Ctrl-C ends training after the current step, with a checkpoint if there is a `checkpoint_dir`, and raises
        KeyboardInterrupt; a second Ctrl-C acts immediately. SIGTERM does the same and ends the program with status 143
        (SystemExit), unless the program handles the signal itself.
        """
        _check_count("epochs", epochs)
        x = _same_argument(x, train_loader, "train_loader")
        if y is not None and not inputs.takes_targets(x, y):
            y, validation_data = None, _same_argument(y, validation_data, "validation_data")
        validation_data = _same_argument(validation_data, val_loader, "val_loader")
        train_loader, val_loader = inputs.loaders(
            self.model, x, y, batch_size=batch_size, validation_data=validation_data, validation_split=validation_split,
            shuffle=shuffle,
        )  # fmt: skip
        _check_loader("the training data", train_loader)
        if val_loader is not None:
            _check_loader("the validation data", val_loader)
        if self.monitor is None:
            self.monitor = "loss" if val_loader is None else "val_loss"
        self.mode = "min" if better_mode(self.monitor, self.mode, "Trainer") > 0 else "max"
        if self.workers is not None or context.current() is not None:
            from . import script_runs

            if script_runs.done_elsewhere(self):
                return self.history
        if self.strategy is not None:
            from . import served

            served.check(self)
            if self.strategy.is_worker():
                served.work(self, train_loader)
        if self.grad_accumulation > 1:
            self._steps.prepare_accumulation()
        try:
            self._open_checkpoints(train_loader, val_loader)
            self._enter_run()
            if self.strategy is not None:
                self.strategy.begin(self.model, self.optimizer, train_loader, self.epoch)
            self._notify("on_fit_start")
            with self._interrupt:
                while self.epoch < epochs and self.stopped is None:
                    self._run_epoch(train_loader, val_loader, epochs)
                    if self._asked():  # after its last step, and the epoch has its checkpoint
                        raise self._interrupt.error()
            if self.stopped is not None:
                self.progress.say(f"stopped after epoch {self.epoch}: {self.stopped}")
        finally:
            self.progress.close()
            try:
                self._notify("on_fit_end")
            finally:
                if self.strategy is not None:
                    self.strategy.end()
                self._leave_run(train_loader, val_loader)
                if self._manager is not None:
                    self._manager.close()
                    self.checkpoint_failed = self._manager.failure is not None
                    self._lineage = self._manager.lineage
                    self._manager = None
                if self._interrupt.asked is signal.SIGTERM:
                    self._say_terminated()
        return self.history

    def _say_terminated(self) -> None:
        """Print the final line of a terminated run, with or without a progress bar."""
        if self.checkpoint_dir is None:
            kept = "there is no checkpoint_dir, so the trained weights are lost"
        elif self.checkpoint_failed:
            kept = f"the checkpoint could not be written; see {self.checkpoint_dir} for an older one"
        else:
            kept = f"resume='auto' continues from the checkpoint in {self.checkpoint_dir}"
        print(f"weft: terminated (SIGTERM) after step {self.step}; {kept}", file=sys.stderr, flush=True)

    def _run_epoch(self, train_loader: Any, val_loader: Any, epochs: int) -> None:
        """One epoch, or the rest of one."""
        self.model.train()
        self._notify("on_epoch_start")
        samples = self._train_epoch(train_loader, val_loader, epochs)
        logs = self._results(self.totals)
        if val_loader is not None:
            found = self._validate(train_loader, val_loader)
            logs.update({f"val_{name}": value for name, value in found.items()})
        if self.scheduler is not None and self.schedule_every == "epoch":
            self._step_scheduler(logs)
        row: dict[str, float] = {"epoch": self.epoch + 1, "step": self.step, **logs}
        self._notify("on_epoch_end", logs)
        row.update(logs)
        self.history.append(row)
        speed = {"samples_per_second": samples / self.seconds, "seconds": self.seconds} if self.seconds else {}
        self.progress.end_epoch(self.epoch + 1, epochs, {**logs, **speed})
        self.epoch += 1
        self.batches, self.totals, self.seconds, self.trained = 0, {}, 0.0, False
        if self.checkpoint_dir is not None and self.monitor not in logs:
            warnings.warn(
                f"Trainer: there is no {self.monitor!r} to tell the best checkpoint by. There are {', '.join(logs)}.",
                stacklevel=3,
            )
        self._save(train_loader, val_loader, scores=logs)

    def _validate(self, train_loader: Any, val_loader: Any) -> dict[str, float]:
        """Evaluate after an epoch. On an interrupt, a checkpoint is written from which a resume repeats only the validation."""
        self.trained = True
        start = val_loader.state_dict() if hasattr(val_loader, "state_dict") else None
        try:
            return self.evaluate(val_loader)
        except BaseException as error:
            if not self._asked():
                raise
            if start is not None:
                val_loader.load_state_dict(start)
            self._save(train_loader, val_loader)
            raise self._interrupt.error() from error

    def _train_epoch(self, loader: Any, val_loader: Any, epochs: int) -> int:
        if self.strategy is not None:
            from . import served

            return 0 if self.trained else served.train_epoch(self, loader, epochs)
        total = _length(loader)
        self.progress.start_epoch(self.epoch + 1, epochs, total, self.batches)
        started = time.perf_counter() - self.seconds
        samples = round(float(self.totals["loss"][1])) if "loss" in self.totals else 0
        waiting = 0  # accumulated batches since the last update
        for batch in () if self.trained else self._guarded(self._remaining(loader), loader, val_loader):
            n = batch_length(batch) if self._sharded is None else batch.samples
            if self._sharded is not None:
                loss = self._count(self.totals, self._sharded.train_on(batch), n)
                self.batches += batch.parts - 1
                watching.moved(self)
            elif self.grad_accumulation == 1:
                loss = self._count(self.totals, self._checked(self._steps.train, batch), n)
            else:
                loss = self._count(self.totals, self._checked(self._steps.accumulate, batch), n)
                waiting += 1
            self.batches += 1
            samples += n
            if waiting == self.grad_accumulation:
                self._update(waiting)
                waiting = 0
            if waiting == 0:
                self._after_step(loss)
            self.seconds = time.perf_counter() - started
            if waiting == 0 and self._time_to_save():
                self._save(loader, val_loader)
                if self._asked():
                    raise self._interrupt.error()
            if self.progress.moving:
                self.progress.advance(self.batches, self.totals["loss"][0] / samples, samples / self.seconds)
        if waiting:
            self._update(waiting)
            self._after_step(loss)
        if self.batches == 0:
            raise ValueError("Trainer: the training loader is empty. Expected at least one batch (is drop_last set?).")
        return samples

    def _checked(self, step: Callable[[Any], tuple[Tensor, ...]], batch: Any) -> tuple[Tensor, ...]:
        """Run a step; a NaN loss raises FloatingPointError with its origin."""
        try:
            return step(batch)
        except AssertionError as error:
            if not nan_loss.is_nan_loss(error):
                raise
        raise nan_loss.explained(self, batch)

    def _guarded(self, batches: Iterator[Any], loader: Any, val_loader: Any) -> Iterator[Any]:
        """Iterate over `batches`. A signal to the process group also kills the loader's workers: write the checkpoint then."""
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                if not self._asked() or self.batches % self.grad_accumulation:  # in the middle of an accumulation
                    raise
                self._save(loader, val_loader)
                raise self._interrupt.error() from error
            yield batch

    def _time_to_save(self) -> bool:
        return self._asked() or self.checkpoint_every is not None and self.step % self.checkpoint_every == 0

    def _after_step(self, loss: float) -> None:
        self.step += 1
        if self.scheduler is not None and self.schedule_every == "step":
            self.scheduler.step()
        logs = {"loss": loss}
        self._notify("on_step_end", logs)

    def _update(self, waiting: int) -> None:
        self._steps.update(wf.asarray(np.float32(1 / waiting)))

    def _step_scheduler(self, logs: dict[str, float]) -> None:
        if isinstance(self.scheduler, wf.optim.lr_scheduler.ReduceLROnPlateau):
            assert self.monitor is not None
            if self.monitor not in logs:
                raise ValueError(f"Trainer: there is no {self.monitor!r} to schedule by. There are {', '.join(logs)}.")
            self.scheduler.step(logs[self.monitor])
        else:
            self.scheduler.step()

    def _remaining(self, loader: Any) -> Iterator[Any]:
        """The remaining batches of this epoch."""
        iterator = iter(loader) if self._sharded is None else self._sharded.groups(loader, self.grad_accumulation)
        if not hasattr(loader, "state_dict"):  # it cannot restore its position: skip
            for _ in range(self.batches):
                next(iterator, None)
        return iterator

    # Metrics ------------------------------------------------------------------------------------------------------------

    def _count(self, totals: dict[str, np.ndarray], measured: tuple[Tensor, ...], n: int) -> float:
        """Add the loss and statistics of a batch to `totals`; returns its loss."""
        loss = float(measured[0])
        if not totals:
            totals["loss"] = np.zeros(2)
            for metric, statistics in zip(self.metrics, measured[1:]):
                totals[metric.name] = np.zeros(statistics.shape)
        total = totals["loss"]
        total[0] += loss * n
        total[1] += n
        for metric, statistics in zip(self.metrics, measured[1:]):
            totals[metric.name] += statistics.numpy()
        return loss

    def _results(self, totals: dict[str, np.ndarray]) -> dict[str, float]:
        logs = {"loss": float(totals["loss"][0] / totals["loss"][1])}
        for metric in self.metrics:
            logs[metric.name] = metric.result(totals[metric.name])
        return logs

    def evaluate(self, loader: Any, y: Any = None, *, batch_size: int | None = None) -> dict[str, float]:
        """The loss and metrics over a loader, in evaluation mode, with the averaged weights if there is an EMA.

        Args:
            loader: a loader, a dataset, or with `y` an array or tensor of inputs.
            y: the targets, with arrays.
            batch_size: samples per batch, with arrays or a dataset; 32 by default.

        Returns:
            Numbers by name: "loss" and the metrics.
        """
        loader, _ = inputs.loaders(self.model, loader, y, batch_size=batch_size, shuffle=False)
        totals: dict[str, np.ndarray] = {}
        sharded, local = self._sharded, self._local_evaluation()
        if local is not None:
            with _evaluation(self.model), _averaged(self.ema):
                for measured, n in local.evaluate(loader):
                    self._count(totals, measured, n)
            return self._evaluated(totals)
        with _evaluation(self.model), _averaged(self.ema) if sharded is None else sharded.averaged():
            for batch in loader if sharded is None else sharded.batches(loader):
                measured = self._steps.evaluate(batch) if sharded is None else sharded.evaluate_on(batch)
                self._count(totals, measured, batch_length(batch) if sharded is None else batch.samples)
                if self._asked():
                    raise self._interrupt.error()
        return self._evaluated(totals)

    def _evaluated(self, totals: dict[str, np.ndarray]) -> dict[str, float]:
        if not totals:
            raise ValueError("Trainer: the loader to evaluate on is empty. Expected at least one batch.")
        return self._results(totals)

    def predict(self, data: Any, *, batch_size: int | None = None) -> Any:
        """The model's outputs for a loader or dataset (concatenated along the first axis), or for one tensor or array.

        Args:
            data: a loader, a dataset, or a tensor or array, which is one batch unless there is a `batch_size`.
            batch_size: samples per batch; by default 32 for a dataset.
        """
        single = inputs.is_array(data)
        if single and batch_size is None:
            batches: Any = [(wf.asarray(inputs.in_model_dtype(self.model, data)),)]
        else:
            batches, _ = inputs.loaders(self.model, data, batch_size=batch_size, shuffle=False)
        outputs: list[Any] = []
        local = self._local_evaluation(predicts=True)
        with _evaluation(self.model), _averaged(self.ema):
            if local is not None:
                outputs += local.predict(batches, lambda b: b if single else split_batch(b, target_optional=True)[0])
            for batch in batches if local is None else ():
                given = batch if single else split_batch(batch, target_optional=True)[0]
                outputs.append(self._steps.predict(tuple(given)))
        if not outputs:
            raise ValueError("Trainer: nothing to predict for. Expected at least one batch.")
        return outputs[0] if len(outputs) == 1 else _join(outputs)

    # Checkpoints --------------------------------------------------------------------------------------------------------

    def _open_checkpoints(self, train_loader: Any, val_loader: Any) -> None:
        run = context.current()
        if run is None:  # in a distributed run the lead opens the directory when it first writes
            self._open_manager()
        if self._resumed or self.step:
            return
        if run is None:
            found = self._found_checkpoint()
        else:
            from .sharded import base_checkpoint

            found = base_checkpoint(run, lambda: watching.resumed(self._checkpoint_of_run()))
        if found is not None:
            state.restore(self, found, train_loader, val_loader)
            if run is None:
                self.progress.say(f"going on from {found.path}: {self.step} steps and {self.epoch} epochs are done")
            if self._manager is not None and self.resume != "auto":
                self._say_abandoned(self._manager.branch_from(found))
        self._resumed = True

    def _open_manager(self) -> None:
        if self.checkpoint_dir is not None:
            assert self.mode is not None
            self._manager = CheckpointManager(self.checkpoint_dir, self.keep, self.monitor, self.mode)
            self._manager.lineage = self._lineage
            if context.current() is not None:
                self._manager.on_written = watching.written

    def _found_checkpoint(self) -> Checkpoint | None:
        """The checkpoint that `resume` asks for."""
        if self.resume == "auto":
            assert self.checkpoint_dir is not None
            return latest(self.checkpoint_dir)
        if self.resume is not None:
            return open_checkpoint(self.resume)
        if self.checkpoint_dir is not None and list_checkpoints(self.checkpoint_dir):
            raise CheckpointError(
                f"Trainer: {self.checkpoint_dir} holds checkpoints of an earlier run. Go on with resume='auto', or use "
                "another directory."
            )
        return None

    def _checkpoint_of_run(self) -> Checkpoint | None:
        """The checkpoint that a distributed run begins with, or begins again with after it was lost. Called once for all workers:
        a branch is noted in the directory, so every later lead continues it, whoever writes its first checkpoint."""
        if self.resume != "auto" and self.checkpoint_dir is not None:
            own = state.checkpoint_of_this_run(self.checkpoint_dir)
            if own is not None:
                return own
        found = self._found_checkpoint()
        if found is not None and self.resume != "auto" and self.checkpoint_dir is not None:
            with CheckpointManager(self.checkpoint_dir) as manager:
                self._say_abandoned(manager.branch_from(found))
        return found

    def _say_abandoned(self, paths: list[Path]) -> None:
        if not paths:
            return
        names = ", ".join(path.name for path in paths)
        self.progress.say(
            f"a new branch: {names} in {self.checkpoint_dir} came later and {'is' if len(paths) == 1 else 'are'} abandoned. "
            f"resume='auto' follows the new branch. Once it has {self.keep}, only "
            f"{paths[-1].name} of the abandoned ones is kept."
            if self.keep is not None
            else f"a new branch: {names} in {self.checkpoint_dir} came later. resume='auto' follows the new branch."
        )

    def _save(self, train_loader: Any, val_loader: Any, scores: dict[str, float] | None = None) -> None:
        """Write a checkpoint of the current state."""
        if self.checkpoint_dir is None:
            return
        if self._sharded is not None:
            self._sharded.on_lead(lambda: self._write_checkpoint(train_loader, val_loader, scores))
        else:
            self._write_checkpoint(train_loader, val_loader, scores)

    def _write_checkpoint(self, train_loader: Any, val_loader: Any, scores: dict[str, float] | None) -> None:
        manager: CheckpointManager | None = self._manager
        if manager is None:
            self._open_manager()
            manager = self._manager
            assert manager is not None
        parts = state.collect(self, train_loader, val_loader)
        manager.save(self.step, parts, scores, state.facts(self))

    # Distributed runs ---------------------------------------------------------------------------------------------------

    def _finish_checkpoints(self, train_loader: Any, val_loader: Any) -> None:
        """On the lead, at the end: the last checkpoint is on disk before a worker goes on with its program."""
        if self._manager is None:
            assert self.checkpoint_dir is not None
            found = latest(self.checkpoint_dir)
            if found is None or found.step != self.step:  # the lead that should have written it has died meanwhile
                self._write_checkpoint(train_loader, val_loader, self.history[-1] if self.history else None)
        if self._manager is not None:
            self._manager.wait()

    def _enter_run(self) -> None:
        """In a worker of a distributed run: share the weights with the other workers."""
        run = context.current()
        if run is not None:
            from .sharded import Sharded

            self._sharded = Sharded(self, run)
            watching.entered(self)

    def _leave_run(self, train_loader: Any, val_loader: Any) -> None:
        sharded, self._sharded = self._sharded, None
        run = context.current()
        if sharded is not None and run is not None:
            failed = sys.exc_info()[0] is not None
            if not failed and self.checkpoint_dir is not None:
                sharded.on_lead(lambda: self._finish_checkpoints(train_loader, val_loader))
            sharded.close(None if failed else run.results)
            if run.results is not None and not failed:
                raise SystemExit(0)  # the rest of the script is the business of the process that started this one

    def _local_evaluation(self, predicts: bool = False) -> Any:
        """In a worker of a distributed run: what evaluates by shards without the other workers; None if they take part."""
        run = context.current()
        if run is None or self._sharded is not None and not predicts and not self._sharded.parallel.writes_alone:
            return None
        from .sharded import LocalEvaluation

        return LocalEvaluation(self, run)

    def _asked(self) -> bool:
        """Whether training was asked to end by a signal; in a distributed run all workers learn of it after the same step."""
        return self._interrupt.asked is not None if self._sharded is None else self._sharded.asked

    def _notify(self, hook: str, *args: Any) -> None:
        """Call a hook of every callback."""
        if self._sharded is not None:
            self._sharded.notify(hook, *args)
            return
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)


class _evaluation:
    """Evaluation mode for a block; restores the mode of every submodule at the end."""

    def __init__(self, model: Any) -> None:
        self._training = [m for m in model.modules() if m.training]

    def __enter__(self) -> None:
        for module in self._training:
            module.training = False

    def __exit__(self, *_: object) -> None:
        for module in self._training:
            module.training = True


class _averaged:
    """Uses the averaged weights within a block, if there are any."""

    def __init__(self, ema: Any) -> None:
        self._context = None if ema is None else ema.applied()

    def __enter__(self) -> None:
        if self._context is not None:
            self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)


def split_batch(batch: Any, target_optional: bool = False) -> tuple[tuple[Any, ...], Any]:
    """The model's inputs and the target: all items of a tuple but the last, and the last."""
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return tuple(batch[:-1]), batch[-1]
    if target_optional:
        return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), None
    raise TypeError(
        f"Trainer: expected batches of (input, target). Got {type(batch).__name__}"
        f"{f' of {len(batch)}' if isinstance(batch, (tuple, list, dict)) else ''}. Override Trainer.forward for other batches."
    )


def _log_callbacks(log_dir: str | os.PathLike[str] | None) -> list[Callback]:
    if log_dir is None:
        return []
    folder = Path(log_dir)
    return [CSVLogger(folder / "history.csv"), LossCurve(folder / "loss.png"), TensorBoard(folder / "tensorboard")]


def _join(outputs: list[Any]) -> Any:
    first = outputs[0]
    if isinstance(first, Tensor):
        return wf.concat(outputs, axis=0)
    if isinstance(first, dict):
        return {key: _join([o[key] for o in outputs]) for key in first}
    return type(first)(_join(list(items)) for items in zip(*outputs))


def _check_parts(model: Any, optimizer: Any, scheduler: Any, callbacks: Sequence[Any]) -> None:
    """Reject combinations that would train nothing or be ignored silently."""
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"Trainer: expected an optimizer of weft.optim. Got {type(optimizer).__name__}.")
    own = {id(p) for p in model.parameters()}
    if own and not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "Trainer: the optimizer has none of the model's parameters, so nothing would be trained. Make it with "
            "`model.parameters()` of this model."
        )
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("Trainer: the scheduler belongs to another optimizer. Make it with the optimizer given here.")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise TypeError(f"Trainer: callbacks must be Callback objects. Got {type(callback).__name__}.")


def _length(loader: Any) -> int | None:
    """The number of batches per epoch; None if unknown, as for streams."""
    try:
        return len(loader)
    except TypeError:
        return None


def _same_argument(value: Any, other: Any, name: str) -> Any:
    """The one of two spellings of an argument that was given."""
    if value is not None and other is not None:
        raise TypeError(f"Trainer: {name} was given twice, under two names. Give it once.")
    return other if value is None else value


def _check_loader(name: str, loader: Any) -> None:
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(
            f"Trainer: {name} must be arrays (`fit(x, y)`), a Dataset or a DataLoader. Got {type(loader).__name__}."
        )


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Trainer: {name} must be an integer of at least 1. Got {value!r}.")
