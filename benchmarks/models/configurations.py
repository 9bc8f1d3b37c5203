"""What is trained: one entry per model, the same for every framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Configuration:
    """A model, its batch and its optimiser. `unit` items are processed per step, for items per second."""

    kind: str
    batch: int
    items: int
    unit: str
    optimizer: str
    arguments: dict[str, Any]


def _images(name: str, batch: int) -> Configuration:
    return Configuration("image", batch, batch, "images", "sgd", {"name": name})


CONFIGURATIONS = {
    "tiny_mlp": Configuration("mlp", 16, 1, "steps", "sgd", {"sizes": (32, 64, 64, 10)}),
    "mlp": Configuration("mlp", 128, 128, "samples", "sgd", {"sizes": (784, 512, 512, 10)}),
    "gpt": Configuration(
        "gpt", 8, 8 * 256, "tokens", "adamw", {"vocabulary": 8192, "length": 256, "layers": 6, "heads": 6, "width": 384}
    ),
    "alexnet": _images("alexnet", 32),
    "vgg19": _images("vgg19", 8),
    "resnet50": _images("resnet50", 16),
    "mobilenet_v2": _images("mobilenet_v2", 32),
    "gnmt": Configuration("gnmt", 32, 32 * 25, "tokens", "sgd", {"vocabulary": 8000, "width": 512, "layers": 4, "length": 25}),
    "ncf": Configuration(
        "ncf", 16384, 16384, "samples", "adam",
        {"users": 138_000, "items": 27_000, "mf": 64, "layers": (256, 256, 128, 64)},
    ),
}  # fmt: skip


def batch(name: str) -> list[np.ndarray]:
    """The data of one step, inputs first, target last; the same numbers in every process."""
    c = CONFIGURATIONS[name]
    rng = np.random.default_rng(0)
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
