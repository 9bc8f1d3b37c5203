"""What is trained: one entry per model, the same for every framework."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.protocol import BATCH, weights_path

# Adam's eps in the row-sparse configuration. PyTorch's SparseAdam adds it before the correction of the mean square, its
# Adam and ours after it; so small it changes nothing, and the losses can be compared.
SMALL = 1e-12


@dataclass(frozen=True)
class Configuration:
    """A model, its batch and its optimiser.

    `items` of `unit` are processed per step, for items per second. The learning rate `rate` is such that the first losses
    show a wrong gradient. `tolerance`: by how much the first losses of two frameworks may differ. `batches` different ones
    take turns: more than one where the time depends on how the data differ.
    """

    kind: str
    batch: int
    items: int
    unit: str
    optimizer: str
    arguments: dict[str, Any]
    rate: float = 0.01
    tolerance: float = 1e-4
    batches: int = 1


def _images(name: str, batch: int, tolerance: float = 1e-4, rate: float = 0.01) -> Configuration:
    return Configuration("image", batch, batch, "images", "sgd", {"name": name}, rate, tolerance)


CONFIGURATIONS = {
    "tiny_mlp": Configuration("mlp", 16, 1, "steps", "sgd", {"sizes": (32, 64, 64, 10)}, 0.1),
    "mlp": Configuration("mlp", 128, 128, "samples", "sgd", {"sizes": (784, 512, 512, 10)}, 0.1),
    "gpt": Configuration(
        "gpt", 8, 8 * 256, "tokens", "adamw", {"vocabulary": 8192, "length": 256, "layers": 6, "heads": 6, "width": 384},
        1e-3,
    ),
    "alexnet": _images("alexnet", 32),
    "vgg19": _images("vgg19", 8, 1e-3),  # Winograd convolutions round otherwise
    # batch norm over few values amplifies rounding: the other frameworks differ among themselves by 1e-3
    "resnet50": _images("resnet50", 16, 1e-2, 1e-3),
    "mobilenet_v2": _images("mobilenet_v2", 32, 4e-3),
    "gnmt": Configuration(
        "gnmt", 32, 32 * 25, "tokens", "sgd", {"vocabulary": 8000, "width": 512, "layers": 4, "length": 25}, 1.0
    ),
    "ncf": Configuration(
        "ncf", 16384, 16384, "samples", "adam",
        {"users": 138_000, "items": 27_000, "mf": 64, "layers": (256, 256, 128, 64), "sparse": False}, 1e-3,
        batches=8,
    ),
    "ncf_sparse": Configuration(
        "ncf", 16384, 16384, "samples", "sparse_adam",
        {"users": 138_000, "items": 27_000, "mf": 64, "layers": (256, 256, 128, 64), "sparse": True}, 1e-3,
        batches=8,
    ),
}  # fmt: skip


def batches(name: str) -> list[list[np.ndarray]]:
    """The data of the steps in turn, each inputs first, target last; the same numbers in every process.

    Smaller ones can be asked for by the environment, to check quickly that frameworks agree.
    """
    c = CONFIGURATIONS[name]
    rows = int(os.environ.get(BATCH, c.batch))
    return [[data[:rows] for data in _batch(c, seed)] for seed in range(c.batches)]


def batch(name: str) -> list[np.ndarray]:
    """The data of the first step."""
    return batches(name)[0]


def _batch(c: Configuration, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    a = c.arguments
    if c.kind == "mlp":
        return [rng.standard_normal((c.batch, a["sizes"][0]), np.float32), rng.integers(0, 10, c.batch)]
    if c.kind == "image":
        return [rng.standard_normal((c.batch, 3, 224, 224), np.float32), rng.integers(0, 1000, c.batch)]
    if c.kind == "gpt":
        tokens = rng.integers(0, a["vocabulary"], (c.batch, a["length"] + 1))
        return [tokens[:, :-1].copy(), tokens[:, 1:].copy()]
    if c.kind == "gnmt":
        shape = (c.batch, a["length"])
        return [
            rng.integers(0, a["vocabulary"], shape),
            rng.integers(0, a["vocabulary"], shape),
            rng.integers(0, a["vocabulary"], shape),
        ]
    return [
        rng.integers(0, a["users"], c.batch), rng.integers(0, a["items"], c.batch),
        (rng.random(c.batch) < 0.5).astype(np.float32),
    ]  # fmt: skip


def weights() -> dict[str, np.ndarray]:
    """The initial weights by Weft's names, from the file that the comparing process made."""
    with np.load(weights_path()) as file:
        return {name: file[name] for name in file.files}
