"""The models of the step benchmark, in Weft and in PyTorch, with the same weights and data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Task:
    """What is trained. `batch` is that of one worker."""

    title: str
    batch: int
    rate: float
    sizes: tuple[int, ...]


TASKS = {
    "mlp": Task("MLP 784-256-128-10", 64, 0.05, (784, 256, 128, 10)),
    "wide": Task("MLP 4×1024", 64, 0.01, (1024, 1024, 1024, 1024, 1024)),
    "resnet": Task("small ResNet, 32×32", 32, 0.05, (16, 32, 64)),
    "ncf": Task("NCF, row-sparse", 1024, 0.5, (50_000, 10_000, 32, 128, 64, 32)),
}
BATCHES = 4  # that take turns


def data(name: str, workers: int) -> list[list[np.ndarray]]:
    """The global batches: inputs first, target last."""
    task, rng, made = TASKS[name], np.random.default_rng(0), []
    n = task.batch * workers
    for _ in range(BATCHES):
        if name == "ncf":
            users, items = task.sizes[:2]
            target = (rng.random(n) < 0.5).astype(np.float32)
            made.append([rng.integers(0, users, n), rng.integers(0, items, n), target])
        elif name == "resnet":
            made.append([rng.standard_normal((n, 3, 32, 32), np.float32), rng.integers(0, 10, n)])
        else:
            made.append([rng.standard_normal((n, task.sizes[0]), np.float32), rng.integers(0, 10, n)])
    return made


def initial(name: str, shape: tuple[int, ...], number: int) -> np.ndarray:
    """The value that parameter number `number` of that name begins with."""
    if len(shape) == 1:
        return (np.ones if name.endswith("weight") else np.zeros)(shape, np.float32)
    rng = np.random.default_rng([1, number])
    scale = 0.01 if "user" in name or "item" in name else (2.0 / np.prod(shape[1:])) ** 0.5
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


def weft_model(name: str) -> tuple[Any, Any]:
    """(model, loss function)."""
    import weft as wf
    from weft import models, nn
    from weft.nn import functional as F

    sizes = TASKS[name].sizes
    if name == "ncf":
        model: Any = models.ncf(sizes[0], sizes[1], sizes[2], sizes[3:], sparse=True)
    elif name == "resnet":
        model = _resnet(nn, F, sizes)
    else:
        model = nn.Sequential(*_layers(nn, sizes))
    with wf.no_grad():
        for number, (key, p) in enumerate(model.named_parameters()):
            p.copy_(wf.asarray(initial(key, tuple(p.shape), number)))
    return model, F.binary_cross_entropy_with_logits if name == "ncf" else F.cross_entropy


def torch_model(name: str) -> tuple[Any, Any]:
    """(model, loss function)."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    from benchmarks.models.torch_models import NCF

    sizes = TASKS[name].sizes
    if name == "ncf":
        model: Any = NCF(sizes[0], sizes[1], sizes[2], sizes[3:], sparse=True)
    else:
        model = _resnet(nn, F, sizes) if name == "resnet" else nn.Sequential(*_layers(nn, sizes))
    with torch.no_grad():
        for number, (key, p) in enumerate(model.named_parameters()):
            p.copy_(torch.from_numpy(initial(key, tuple(p.shape), number)))
    return model, F.binary_cross_entropy_with_logits if name == "ncf" else F.cross_entropy


def _layers(nn: Any, sizes: tuple[int, ...]) -> list[Any]:
    made: list[Any] = []
    for i, o in zip(sizes, sizes[1:]):
        made += [nn.Linear(i, o), nn.ReLU()]
    return made[:-1]


def _resnet(nn: Any, F: Any, widths: tuple[int, ...]) -> Any:
    """A small residual network, of the layers of either framework."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.short = nn.Conv2d(i, o, 1, stride, bias=False) if i != o else None

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.short is None else self.short(x)))

    class ResNet(nn.Module):
        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
            before = (widths[0], *widths)
            self.blocks = nn.Sequential(*[Block(i, o, 1 + (i != o)) for i, o in zip(before, widths)])
            self.fc = nn.Linear(widths[-1], 10)

        def forward(self, x: Any) -> Any:
            return self.fc(self.blocks(F.relu(self.bn(self.conv(x)))).mean((2, 3)))

    return ResNet(widths)
