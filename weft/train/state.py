"""Collects and restores the state of a training run, such that a resumed run is bitwise identical."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf

from ..compiler import tuning
from ..distributed import context
from ..io import Checkpoint, CheckpointError, latest
from ..runtime import threads

if TYPE_CHECKING:
    from .trainer import Trainer


def collect(trainer: Trainer, train_loader: Any, val_loader: Any) -> dict[str, Any]:
    """The parts of a checkpoint."""
    parts: dict[str, Any] = {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "random": random_state(),
        "loaders": {name: loader.state_dict() for name, loader in _loaders(train_loader, val_loader)},
        "trainer": {
            "epoch": trainer.epoch,
            "step": trainer.step,
            "batches": trainer.batches,
            "trained": trainer.trained,
            "totals": trainer.totals,
            "history": trainer.history,
            "stopped": trainer.stopped,
            "seconds": trainer.seconds,
            "shard_seed": trainer.shard_seed,
            "tuning": tuning.export(),  # which kernels the captured step computes with
        },
        "callbacks": {name: callback.state_dict() for name, callback in _named_callbacks(trainer)},
    }
    if trainer.scheduler is not None:
        parts["scheduler"] = trainer.scheduler.state_dict()
    if trainer.ema is not None:
        parts["ema"] = trainer.ema.state_dict()
    return parts


def facts(trainer: Trainer) -> dict[str, Any]:
    """Facts stored in the manifest, readable without loading the checkpoint."""
    found: dict[str, Any] = {
        "weft": wf.__version__,
        "threads": threads.get_num_threads(),
        "captured": trainer.capture,
        "monitor": {"name": trainer.monitor, "mode": trainer.mode},
    }
    if trainer.shards is not None:
        found["shards"] = trainer.shards
    run = context.current()
    if run is not None and run.run:
        found["run"] = run.run
    made_by = getattr(trainer.model, "made_by", None)
    if made_by is not None:
        found["model"] = made_by
    return {**found, **trainer.facts}


def checkpoint_of_this_run(directory: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest checkpoint in `directory` if this run wrote it, before it was lost and started again; else None."""
    run = context.current()
    if run is None or not run.run:
        return None
    try:
        found = latest(directory)
    except CheckpointError:  # an earlier run began a branch and wrote nothing
        return None
    return found if found is not None and found.facts.get("run") == run.run else None


def restore(trainer: Trainer, checkpoint: Checkpoint, train_loader: Any, val_loader: Any) -> None:
    """Restore the state that `checkpoint` holds."""
    saved = checkpoint.load()
    for part, has in (("scheduler", trainer.scheduler is not None), ("ema", trainer.ema is not None)):
        if has != (part in saved):
            raise CheckpointError(
                f"Trainer: the checkpoint {checkpoint.path} was written {'without' if has else 'with'} {part}, this trainer "
                f"is {'with' if has else 'without'}. Make the trainer as it was, or start in another directory."
            )
    shards = checkpoint.facts.get("shards")
    if shards != trainer.shards:
        how = "without workers" if shards is None else f"with batches cut into {shards} shards"
        again = "without workers" if shards is None else f"with `--shards {shards}` (on any number of workers)"
        raise CheckpointError(
            f"Trainer: the checkpoint {checkpoint.path} was written {how}, so a run that goes on "
            f"{'without workers' if trainer.shards is None else f'with {trainer.shards} shards'} would compute other numbers. "
            f"Go on {again}, or start in another directory."
        )
    try:
        trainer.model.load_state_dict(saved["model"])
        trainer.optimizer.load_state_dict(saved["optimizer"])
        if trainer.scheduler is not None:
            trainer.scheduler.load_state_dict(saved["scheduler"])
        if trainer.ema is not None:
            trainer.ema.load_state_dict(saved["ema"])
        for name, loader in _loaders(train_loader, val_loader):
            if name in saved["loaders"]:
                loader.load_state_dict(saved["loaders"][name])
        _restore_progress(trainer, saved["trainer"])
        for name, callback in _named_callbacks(trainer):
            if name in saved["callbacks"]:
                callback.load_state_dict(saved["callbacks"][name])
        set_random_state(saved["random"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"Trainer: the checkpoint {checkpoint.path} belongs to another run. {error}") from error


def _restore_progress(trainer: Trainer, state: dict[str, Any]) -> None:
    """Restore the counters of the run."""
    kinds = {"epoch": int, "step": int, "batches": int, "history": list, "seconds": (int, float)}
    for name, kind in kinds.items():
        if not isinstance(state[name], kind) or isinstance(state[name], bool):  # type: ignore[arg-type]
            raise TypeError(f"trainer.{name} is {type(state[name]).__name__}.")
    if "tuning" in state:
        tuning.adopt(state["tuning"])
    trainer.epoch, trainer.step, trainer.batches = state["epoch"], state["step"], state["batches"]
    trainer.trained = state.get("trained", False) is True
    trainer.totals, trainer.history = state["totals"], state["history"]
    trainer.stopped, trainer.seconds = state["stopped"], state["seconds"]
    trainer.shard_seed = state.get("shard_seed")


def _loaders(train_loader: Any, val_loader: Any) -> list[tuple[str, Any]]:
    pairs = (("train", train_loader), ("validation", val_loader))
    return [(name, loader) for name, loader in pairs if hasattr(loader, "state_dict")]


def _named_callbacks(trainer: Trainer) -> list[tuple[str, Any]]:
    return [(f"{i}-{type(callback).__name__}", callback) for i, callback in enumerate(trainer.callbacks)]


def random_state() -> dict[str, Any]:
    """The state of every generator that user code may draw from: Weft's, NumPy's and Python's."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    return {
        "weft": wf.default_generator.state_dict(),
        "numpy": {"kind": kind, "keys": keys, "rest": (int(position), int(has_gauss), float(gauss))},
        "python": {"version": version, "words": np.array(words, np.uint64), "gauss": next_gauss},
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the generators to what `random_state` returned."""
    wf.default_generator.load_state_dict(state["weft"])
    legacy = state["numpy"]
    np.random.set_state((legacy["kind"], legacy["keys"], *legacy["rest"]))
    python = state["python"]
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss"]))
