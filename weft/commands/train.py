"""`weft train`: from a configuration to a trained model, checkpoints and a loss curve."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import weft as wf

from .. import models, optim
from ..data import DataLoader
from ..distributed import context
from ..io import latest
from ..models.registry import find_checkpoint, restore_weights
from ..optim import lr_scheduler
from ..train import StopOnNaN, Trainer
from ..train.interrupt import TERMINATED
from .config import Config, ConfigError, listed, load_config
from .run import run_workers
from .tasks import TASKS, Task

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optim.SGD,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "rmsprop": optim.RMSprop,
    "adagrad": optim.Adagrad,
    "lion": optim.Lion,
}


# Keys that can be set on the command line.
OPTIONS = (
    ("train", "epochs", "--epochs"),
    ("train", "seed", "--seed"),
    ("data", "batch_size", "--batch-size"),
    ("data", "loaders", "--loaders"),
    ("optimizer", "lr", "--lr"),
)


@dataclasses.dataclass
class Run:
    """The objects that a configuration describes."""

    task: Task
    model: Any
    trainer: Trainer
    train_loader: DataLoader
    val_loader: DataLoader
    epochs: int


@dataclasses.dataclass
class Settings:
    """The keys of `[train]`."""

    epochs: int = 10
    seed: int = 0
    capture: bool = True
    grad_accumulation: int = 1
    clip_grad_norm: float | None = None
    ema: float | None = None
    label_smoothing: float = 0.0
    checkpoint_every: int | None = None
    keep: int = 3


@dataclasses.dataclass
class Loading:
    """The keys of `[data]` that say how it is loaded, whatever it is."""

    batch_size: int = 64
    loaders: int = 0


def run(arguments: argparse.Namespace) -> int:
    """`weft train …`"""
    config = load_config(arguments.target)
    if arguments.show:
        print((Path(config.path) if Path(config.path).is_file() else _recipe(config)).read_text(), end="")
        return 0
    for section, key, option in OPTIONS:
        value = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if value is not None:
            config.override(section, key, value, option)
    if arguments.eager:
        config.override("train", "capture", False, "--eager")
    directory = Path(arguments.out) if arguments.out else _new_directory(Path("runs"), config.name)
    if arguments.workers is not None and context.current() is None:
        return run_workers(["-m", "weft", *_words(arguments, directory)], arguments)
    made = build(config, directory)
    parameters = sum(p.size for p in made.model.parameters())
    say = made.trainer.progress.say
    say(
        f"{config['model']['name']} with {parameters:,} parameters, {config['data']['name']} with "
        f"{len(made.task.train):,} samples, in {directory}"
    )
    try:
        made.trainer.fit(made.train_loader, made.val_loader, made.epochs)
    except KeyboardInterrupt:
        print(f"\ninterrupted; `{_same_command(arguments, directory)}` resumes", file=sys.stderr)
        return 130
    except SystemExit as ended:
        if ended.code != TERMINATED:
            raise
        print(f"`{_same_command(arguments, directory)}` resumes", file=sys.stderr)
        return TERMINATED
    finally:
        made.train_loader.close()
    return _report(config, made, directory)


def build(config: Config, directory: Path, progress: bool = True) -> Run:
    """Build the objects that `config` describes; errors are `ConfigError`s with file, line and key."""
    settings: Settings = _section(config, "train", Settings)
    for key in ("epochs", "grad_accumulation", "keep", "checkpoint_every"):
        value = getattr(settings, key)
        if value is not None and value < 1:
            config.fail(("train", key), f"must be at least 1. Got {value}.")
    wf.manual_seed(settings.seed)
    loading, task = make_task(config)
    if settings.label_smoothing:
        if task.kind != "classes" or not 0 < settings.label_smoothing < 1:
            config.fail(("train", "label_smoothing"), "expected a number between 0 and 1, for data with classes.")
        task.loss = wf.nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    model = make_model(config, task)
    optimizer = make_optimizer(config, model)
    try:
        train_loader = DataLoader(
            task.train, loading.batch_size, shuffle=True, num_workers=loading.loaders, seed=settings.seed
        )
    except (ValueError, TypeError, OverflowError) as error:
        config.fail(("data",), str(error))
    val_loader = plain_loader(task.validation)
    updates = -(-len(train_loader) // settings.grad_accumulation) * settings.epochs
    scheduler, every = make_schedule(config, optimizer, settings.epochs, updates)
    _same_config(config, directory)
    try:
        trainer = Trainer(
            model, optimizer, task.loss,
            metrics=task.metrics, callbacks=[StopOnNaN()], scheduler=scheduler, schedule_every=every,
            capture=settings.capture, grad_accumulation=settings.grad_accumulation, clip_grad_norm=settings.clip_grad_norm,
            ema=settings.ema, checkpoint_dir=directory / "checkpoints", checkpoint_every=settings.checkpoint_every,
            resume="auto", keep=settings.keep, log_dir=directory, progress=progress,
            facts={"config": config.tables, "task": describe_task(config, task)},
        )  # fmt: skip
    except (ValueError, TypeError, OverflowError) as error:
        config.fail(("train",), str(error))
    return Run(task, model, trainer, train_loader, val_loader, settings.epochs)


def plain_loader(dataset: Any) -> DataLoader:
    """All of a dataset in order, in large batches."""
    return DataLoader(dataset, min(len(dataset), 512), seed=0)


def make_task(config: Config) -> tuple[Loading, Task]:
    """The data of `[data]`, and how it is loaded."""
    name = config.choose("data", TASKS)
    names = {f.name for f in dataclasses.fields(Loading)}
    if "workers" in config["data"]:
        config.fail(("data", "workers"), "is called `loaders` now. `weft train --workers N` trains with N processes.")
    own = {k: v for k, v in config["data"].items() if k not in names}
    loading: Loading = _section(config, "data", Loading, {k: v for k, v in config["data"].items() if k in names})
    if loading.batch_size < 1 or loading.loaders < 0:
        key = "batch_size" if loading.batch_size < 1 else "loaders"
        config.fail(("data", key), f"must be at least {int(key == 'batch_size')}. Got {getattr(loading, key)}.")
    arguments = config.with_section("data", own).arguments("data", TASKS[name])
    if name == "text" and not arguments.get("length"):
        arguments["length"] = int(config["model"].get("block_size", 64))
    try:
        return loading, TASKS[name](**arguments)
    except TypeError as error:
        config.fail(("data",), f"{error}.")
    except (ValueError, OSError, ImportError) as error:
        key = next((k for k in arguments if k in str(error)), "path" if "path" in arguments else "name")
        config.fail(("data", key), str(error))


def make_model(config: Config, task: Task) -> Any:
    """The model of `[model]`; arguments that follow from the data are filled in."""
    constructors = models.constructors()
    name = config.choose("model", constructors)
    constructor = constructors[name]
    arguments = config.arguments("model", constructor)
    import inspect

    accepted = inspect.signature(constructor).parameters
    for key, value in task.arguments.items():
        if key in accepted:
            if arguments.setdefault(key, value) != value and key not in ("num_classes", "out_features"):
                config.fail(("model", key), f"does not fit the data. Got {arguments[key]}; the data have {value}.")
    try:
        model = constructor(**arguments)
    except (ValueError, TypeError, ArithmeticError, IndexError, MemoryError) as error:
        config.fail(("model",), str(error))
    _try(config, model, task)
    return model


def _try(config: Config, model: Any, task: Task) -> None:
    """Run one sample through the model, to report a shape mismatch early and with the file's name."""
    import numpy as np

    sample = np.asarray(task.train[0][0])[None]
    training = model.training
    try:
        with wf.no_grad():
            model.eval()(wf.asarray(sample))
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        config.fail(("model",), f"{config['model']['name']} does not take samples of shape {sample.shape[1:]}: {error}")
    model.train(training)


def make_optimizer(config: Config, model: Any) -> Any:
    """The optimiser of `[optimizer]`; AdamW if there is none."""
    name = config.choose("optimizer", OPTIMIZERS, "adamw")
    arguments = config.arguments("optimizer", OPTIMIZERS[name], without=("params",))
    try:
        return OPTIMIZERS[name](model.parameters(), **arguments)
    except (ValueError, TypeError) as error:
        key = next((k for k in arguments if k in str(error)), "name")
        config.fail(("optimizer", key), str(error))


def make_schedule(config: Config, optimizer: Any, epochs: int, updates: int) -> tuple[Any, str]:
    """The schedule of `[schedule]`, and whether it advances per "epoch" or per "step"."""
    if "schedule" not in config.tables:
        return None, "epoch"
    name = config.choose("schedule", SCHEDULES)
    cls, every, given = SCHEDULES[name]
    filled = given(optimizer, epochs, updates)
    arguments = config.arguments("schedule", cls, without=("optimizer", "last_epoch"))
    try:
        return cls(optimizer, **{**filled, **arguments}), every
    except (ValueError, TypeError) as error:
        key = next((k for k in arguments if k in str(error)), "name")
        config.fail(("schedule", key), str(error))


# name: (class, when it moves, what it gets unless the configuration says otherwise)
SCHEDULES: dict[str, Any] = {
    "one-cycle": (
        lr_scheduler.OneCycleLR,
        "step",
        lambda o, epochs, n: {"max_lr": float(o.param_groups[0]["lr"]), "total_steps": n, "cycle_momentum": False},
    ),
    "cosine": (lr_scheduler.CosineAnnealingLR, "step", lambda o, epochs, n: {"T_max": n}),
    "warm-up": (lr_scheduler.LinearWarmup, "step", lambda o, epochs, n: {"warmup_steps": max(1, n // 10)}),
    "step": (lr_scheduler.StepLR, "epoch", lambda o, epochs, n: {"step_size": max(1, epochs // 3)}),
    "exponential": (lr_scheduler.ExponentialLR, "epoch", lambda o, epochs, n: {"gamma": 0.9}),
    "plateau": (lr_scheduler.ReduceLROnPlateau, "epoch", lambda o, epochs, n: {}),
}


def describe_task(config: Config, task: Task) -> dict[str, Any]:
    """The task description that `weft predict` needs."""
    return {
        "data": config["data"]["name"],
        "kind": task.kind,
        "classes": list(task.classes),
        "vocabulary": task.vocabulary,
        "shape": list(task.example_shape),
    }


def _section(config: Config, section: str, cls: Callable[..., Any], content: dict[str, Any] | None = None) -> Any:
    """A dataclass from the keys of a section."""
    narrowed = config if content is None else config.with_section(section, content)
    return cls(**narrowed.arguments(section, cls))


def _recipe(config: Config) -> Path:
    from .config import recipes

    return recipes()[config.name]


def _new_directory(root: Path, name: str) -> Path:
    """The directory of an unfinished run of that name, to resume, or a new one."""
    place, n = root / name, 1
    while (place / "done.json").exists():
        n += 1
        place = root / f"{name}-{n}"
    return place


def _same_command(arguments: argparse.Namespace, directory: Path) -> str:
    """The command that resumes the run."""
    words = _words(arguments, directory)
    run = context.current()
    if run is not None:
        words += ["--workers", str(run.members), "--shards", str(run.shards)]
    return shlex.join(["weft", *words])


def _words(arguments: argparse.Namespace, directory: Path) -> list[str]:
    """The arguments of this command with its directory, without those about workers."""
    words = ["train", arguments.target, "--out", str(directory)]
    for _, _, option in OPTIONS:
        value = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if value is not None:
            words += [option, str(value)]
    return words + ["--eager"] * arguments.eager


def _same_config(config: Config, directory: Path) -> None:
    """Check that a resumed run has the configuration it was started with."""
    found = latest(directory / "checkpoints")
    if found is None:
        return
    old, new = found.facts.get("config", {}), json.loads(json.dumps(config.tables))
    differences = [
        f"{section}.{key}"
        for section in sorted({*old, *new})
        for key in sorted({*old.get(section, {}), *new.get(section, {})})
        if old.get(section, {}).get(key) != new.get(section, {}).get(key)
        and f"{section}.{key}" != "data.loaders"  # batches do not depend on the number of loaders
    ]
    if differences:
        kind = "a finished" if (directory / "done.json").exists() else "an unfinished"
        raise ConfigError(
            f"{directory}: there is {kind} run with other settings ({listed(differences)}). Use the same settings to "
            "resume it, or another directory with --out to start a new run."
        )


def _report(config: Config, made: Run, directory: Path) -> int:
    trainer = made.trainer
    row = trainer.history[-1]
    if not trainer.checkpoint_failed:
        (directory / "done.json").write_text(json.dumps(row, indent=1) + "\n")
    checkpoint = find_checkpoint(directory)
    if trainer.ema is not None:
        trainer.ema.copy_to()  # the run is over: use the averaged weights
        trainer.ema = None
    restore_weights(made.model, checkpoint)
    found = trainer.evaluate(plain_loader(made.task.test))
    epoch = checkpoint.part("trainer")["epoch"]
    if made.task.kind == "classes":
        print(f"test accuracy   {found['accuracy']:.2%} (with the weights of epoch {epoch}, the best in validation)")
    else:
        print(
            f"test loss       {found['loss']:.4f} per character (with the weights of epoch {epoch}, the best in validation)"
        )
    print(f"checkpoint      {checkpoint.path}")
    if (directory / "loss.png").exists():
        print(f"loss curve      {directory / 'loss.png'}")
    missing = "" if importlib.util.find_spec("tensorboard") else " (pip install tensorboard)"
    print(f"TensorBoard     tensorboard --logdir {directory / 'tensorboard'}{missing}")
    print("use it from Python:\n")
    print("\n".join(f"    {line}" for line in python_lines(config, made.task, directory)))
    hint = "--index 0" if made.task.kind == "classes" else "--prompt 'The '"
    print(f"\nor from here: weft predict {directory} {hint}")
    if trainer.checkpoint_failed:
        print(
            "\nthe last checkpoint could not be written, see above: what is kept is older than what was trained",
            file=sys.stderr,
        )
    return 1 if trainer.checkpoint_failed else 0


def python_lines(config: Config, task: Task, directory: Path) -> tuple[str, str]:
    """Two lines of Python that load and use the model."""
    load = f'wf.models.load("{directory.as_posix()}")'
    if task.kind == "text":
        settings = config["data"]
        source = (
            f'open("{settings["path"]}").read()'
            if settings.get("path")
            else "wf.data.text_corpus({})".format(repr(settings["corpus"]) if "corpus" in settings else "")
        )
        return (
            f"import weft as wf; model, text = {load}, wf.data.CharacterDataset({source}, 1)",
            'print(text.decode(model.generate([text.encode("The ")], 200, temperature=0.8)))',
        )
    samples = {"digits": 'wf.data.digits("test")', "cifar-like": 'wf.data.synthetic_images("test", 9)'}
    name = config["data"]["name"]
    images = (
        f"wf.asarray({samples[name]}.arrays[0][:9])" if name in samples else f"wf.zeros({(1, *task.example_shape)})"
    )
    return (f"import weft as wf; model = {load}", f"print(model({images}).argmax(axis=1))")
