"""`Trainer(strategy=ParameterServer(…))`: epochs that are trained by workers, with the weights on parameter servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..distributed.parameter_server_worker import Names, gradients_of
from . import nan_loss
from .sharded import flattened
from .steps import MaybeCaptured

if TYPE_CHECKING:
    from .trainer import Trainer


def check(trainer: Trainer) -> None:
    """Raise for settings that mean something else when gradients are applied on servers."""
    for name, used in (
        ("workers", trainer.workers is not None), ("clip_grad_norm", trainer.clip_grad_norm is not None),
        ("grad_accumulation", trainer.grad_accumulation > 1), ("ema", trainer.ema is not None),
        ("schedule_every='step'", trainer.scheduler is not None and trainer.schedule_every == "step"),
    ):  # fmt: skip
        if used:
            raise ValueError(f"Trainer: {name} cannot be used with strategy={type(trainer.strategy).__name__}(…).")


def work(trainer: Trainer, loader: Any) -> None:
    """Be a worker of the run; ends the process."""
    names = Names([group["params"] for group in trainer.optimizer.param_groups], list(trainer.model.buffers()))

    def compute(batch: Any) -> tuple[Any, Any]:
        loss, output, target = trainer._steps._forward(batch)
        if trainer.stop_on_nan:
            nan_loss.check(loss)
        trainer.optimizer.zero_grad()
        loss.backward()
        gradients = gradients_of(names)
        trainer.optimizer.zero_grad()
        return gradients, trainer._steps._measured(loss, output, target)

    def describe(measured: Any, samples: int) -> dict[str, Any]:
        shapes = [list(m.shape) for m in measured[1:]]
        return {"numbers": [float(measured[0]) * samples, float(samples), *flattened(measured[1:])], "shapes": shapes}

    captured = MaybeCaptured(compute, trainer.capture)
    trainer.model.train()
    trainer.strategy.work(
        trainer.model, trainer.optimizer, loader, lambda batch: trainer._checked(captured, batch), describe
    )
    raise SystemExit(0)  # the rest of the script is the business of the process that started this one


def train_epoch(trainer: Trainer, loader: Any, epochs: int) -> int:
    """Let the workers train an epoch; returns the number of its samples."""
    batches = len(loader)
    if not batches:
        raise ValueError("Trainer: the training loader is empty. Expected at least one batch (is drop_last set?).")
    trainer.progress.start_epoch(trainer.epoch + 1, epochs, batches, 0)
    started = time.perf_counter()
    results = trainer.strategy.train_epoch(trainer.epoch, batches)
    trainer.seconds = time.perf_counter() - started
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(loader.epoch + 1)
    totals: dict[str, np.ndarray] = {"loss": np.zeros(2)}
    for result in results:
        totals["loss"] += result["numbers"][:2]
        at = 2
        for metric, shape in zip(trainer.metrics, result["shapes"]):
            size = int(np.prod(shape))
            part = np.array(result["numbers"][at : at + size]).reshape(shape)
            totals[metric.name] = totals[metric.name] + part if metric.name in totals else part
            at += size
    trainer.totals = totals
    trainer.batches = batches
    sync = trainer.strategy.consistency == "sync"
    trainer.step += batches if sync else len([r for r in results if r["numbers"][1]])
    return round(float(totals["loss"][1]))


__all__ = ["check", "train_epoch", "work"]
