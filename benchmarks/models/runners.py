"""Who trains: every framework in every mode its users run it in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.protocol import WEIGHTS
from benchmarks.harness.report import Section
from benchmarks.harness.runners import KEPT, Runner
from benchmarks.harness.turns import Entry

from .configurations import CONFIGURATIONS, Configuration

PACKAGE = "benchmarks.models"


def _images(c: Configuration) -> bool:
    return c.kind == "image"


def _dense(c: Configuration) -> bool:
    return c.optimizer != "sparse_adam"


def _embeddings(c: Configuration) -> bool:
    return c.kind == "ncf" and _dense(c)


RUNNERS = {
    "weft": Runner("weft", "captured", "Weft, captured"),
    "weft-dense": Runner("weft", "dense", "Weft, captured, plain Adam", covers=_embeddings),
    "weft-eager": Runner("weft", "eager", "Weft, eager"),
    "torch": Runner("torch", "eager", "torch eager"),
    "torch-cl": Runner("torch", "channels_last", "torch eager, channels-last", covers=_images),
    "torch-compile": Runner("torch", "compile", "torch.compile"),
    "torch-kept": Runner("torch", "eager", "torch eager, kept memory", KEPT),
    "torch-cl-kept": Runner("torch", "channels_last", "torch eager, channels-last, kept memory", KEPT, _images),
    "torch-compile-kept": Runner("torch", "compile", "torch.compile, kept memory", KEPT),
    "jax": Runner("jax", "jit", "jax.jit", covers=_dense),
    "jax-kept": Runner("jax", "jit", "jax.jit, kept memory", KEPT, _dense),
    "tf": Runner("tf", "function", "tf.function", covers=_dense),
    "tf-kept": Runner("tf", "function", "tf.function, kept memory", KEPT, _dense),
    "paddle": Runner("paddle", "static", "paddle", covers=_dense),
    "mlx": Runner("mlx", "compile", "mlx", covers=_dense),
}


def entries(
    model: str, runners: Sequence[str], interpreters: dict[str, str], weights: Path, package: str = PACKAGE
) -> list[Entry]:
    """How to start the runners that cover a model; the first one is the reference."""
    found = []
    for name in runners:
        r = RUNNERS[name]
        if not r.covers(CONFIGURATIONS[model]):
            continue
        python = interpreters.get(r.framework)
        command = None if python is None else [python, "-m", f"{package}.worker_{r.framework}", model, r.mode]
        found.append(Entry(name, command, {**r.env, WEIGHTS: str(weights)}, f"no interpreter with {r.framework} given"))
    return found


TITLES = {
    "alexnet": "AlexNet", "vgg19": "VGG-19", "resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2", "gnmt": "GNMTv2",
    "ncf": "NCF, exact Adam", "ncf_sparse": "NCF, row-sparse Adam", "gpt": "GPT", "mlp": "MLP", "tiny_mlp": "tiny MLP",
}  # fmt: skip
SECTION = Section(
    "training",
    {name: f"{title}, batch {CONFIGURATIONS[name].batch}" for name, title in TITLES.items()},
    RUNNERS,
    lambda name: (CONFIGURATIONS[name].items, CONFIGURATIONS[name].unit),
    "Training speed relative to the fastest other framework",
)
