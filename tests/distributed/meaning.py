"""What the workers of `test_semantics` run: many small trainings, one after the other; each prints a line with its result."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft as wf
import weft.distributed
from weft import data, nn, optim
from weft.nn import functional as F

NOISE = wf.Generator(11)


def digest(*parts: Any) -> str:
    """A short text for the bits of models, optimisers and numbers."""
    made = hashlib.sha256()
    for part in parts:
        if isinstance(part, nn.Module):
            arrays = [t.numpy() for t in part.state_dict().values()]
        elif isinstance(part, optim.Optimizer):
            arrays = [t.numpy() for state in part.state_dict()["state"] for t in state.values()]
        else:
            arrays = [np.asarray(part)]
        for array in arrays:
            made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]


def say(name: str, *parts: Any) -> None:
    print("RESULT", name, digest(*parts), flush=True)


def table(n: int = 46) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)
    return x, (x[:, :3].sum(1) > 0).astype(np.int64)


def recommender() -> None:
    """NCF with row-sparse gradients."""
    for make in (lambda p: optim.SGD(p, lr=0.3, weight_decay=0.01), lambda p: optim.SparseAdam(p, lr=0.05)):
        wf.manual_seed(1)
        users, items, head = nn.Embedding(30, 8, sparse=True), nn.Embedding(500, 8, sparse=True), nn.Linear(16, 1)
        model = nn.ModuleList([users, items, head])
        optimizer = make(model.parameters())

        @wf.distributed.step(optimizer, [model], clip_grad_norm=0.5)
        def step(u: Any, i: Any, y: Any, users: Any = users, items: Any = items, head: Any = head) -> Any:
            loss = F.binary_cross_entropy_with_logits(head(wf.concat([users(u), items(i)], 1))[:, 0], y)
            loss.backward()
            return loss

        rng = np.random.default_rng(3)
        for n in (32, 32, 7):
            numbers = rng.integers(0, 30, n), rng.integers(0, 500, n), rng.random(n, np.float32)
            loss = step(*map(wf.asarray, numbers))
        say("recommender", model, optimizer, float(loss))


def noise() -> None:
    """Random numbers of every generator, inside and outside of the step."""
    wf.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @wf.distributed.step(optimizer, capture=False)
    def step(x: Any, y: Any) -> Any:
        x = x + wf.asarray(np.random.normal(size=x.shape).astype(np.float32)) * random.random()
        x = x + wf.randn(*x.shape, generator=NOISE)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    x, y = table()
    drawn = []
    for _ in range(3):
        step(wf.asarray(x), wf.asarray(y))
        with wf.distributed.writing(), wf.no_grad():
            model[0].weight.mul_(0.9)
        drawn += [np.random.normal(), random.gauss(0, 1), wf.rand(1).item(), wf.rand(1, generator=NOISE).item()]
    say("noise", model, optimizer, drawn)


def denominators() -> None:
    """A loss with ignored labels, and one with two denominators."""
    for penalty in (0.0, 0.1):
        wf.manual_seed(3)
        model = nn.Linear(6, 2)
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        @wf.distributed.step(optimizer)
        def step(x: Any, y: Any, model: Any = model, penalty: float = penalty) -> Any:
            out = model(x)
            loss = F.cross_entropy(out, y)
            if penalty:
                loss = loss + penalty * F.cross_entropy(out, y, wf.tensor([0.5, 2.0]))
            loss.backward()
            return loss

        x, y = table()
        y[5:17] = -100
        losses = [float(step(wf.asarray(x[:n]), wf.asarray(y[:n]))) for n in (46, 3)]
        say("denominators", model, losses)


class Drawn(data.Dataset):
    """Samples with noise from the global generators."""

    def __init__(self) -> None:
        self.x, self.y = table()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + np.float32(np.random.normal() * 0.1 + random.random()), self.y[index]


class Stream(data.IterableDataset):
    """Numbered samples, with noise."""

    def __iter__(self) -> Iterator[Any]:
        x, y = table(50)
        return iter([(x[i] + np.float32(np.random.normal()), np.int64(i), y[i]) for i in range(50)])


class Counts(nn.Module):
    """Counts how often it has seen each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)
        self.register_buffer("seen", wf.zeros(50, dtype=wf.int64), reduce="sum")

    def forward(self, x: Any, number: Any) -> Any:
        if self.training:
            with wf.no_grad():
                self.seen += (number.unsqueeze(1) == wf.arange(50)).long().sum(0)
        return self.out(x)


class Clamp(wf.train.Callback):
    """Changes weights after each epoch, on the lead."""

    def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
        with wf.distributed.writing(), wf.no_grad():
            for p in trainer.model.parameters():
                p.clamp_(-0.3, 0.3)


def trainer() -> None:
    """A Trainer with everything."""
    cases: dict[str, dict[str, Any]] = {
        "plain": {"callbacks": [Clamp()]},
        "all": {"grad_accumulation": 2, "clip_grad_norm": 0.5, "ema": 0.9, "autocast": wf.bfloat16},
        "eager": {"capture": False, "callbacks": [wf.train.EarlyStopping(patience=1, min_delta=1.0)]},
    }
    for name, given in cases.items():
        wf.manual_seed(4)
        model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 2))
        optimizer = optim.AdamW(model.parameters(), lr=0.02)
        scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        made = wf.Trainer(
            model, optimizer, nn.CrossEntropyLoss(), metrics=["accuracy"], scheduler=scheduler, progress=False, **given
        )
        x, y = table(32)
        validation = data.DataLoader(data.TensorDataset(x, y), 16)
        history = made.fit(data.DataLoader(Drawn(), 16, shuffle=True, seed=1), validation, epochs=3)
        rows = [[row["loss"], row["accuracy"], row["val_loss"], row["val_accuracy"]] for row in history]
        say(f"trainer {name}", model, optimizer, rows, len(history), float(optimizer.param_groups[0]["lr"]))


def synchronised() -> None:
    """Batch norm over the global batch, with dropout, several batches per update, and batches with empty shards."""
    wf.manual_seed(5)
    layers = nn.Linear(6, 12), nn.SyncBatchNorm(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 4), nn.SyncBatchNorm(4)
    model = nn.Sequential(*layers, nn.Linear(4, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    made = wf.Trainer(model, optimizer, nn.CrossEntropyLoss(), progress=False, grad_accumulation=2)
    x, y = table(51)  # the last batch has three samples
    history = made.fit(data.DataLoader(data.TensorDataset(x, y), 16, shuffle=True, seed=1), epochs=3)
    say("synchronised", model, optimizer, [row["loss"] for row in history])


def stream() -> None:
    """Every sample of a stream counts once per epoch."""
    wf.manual_seed(6)
    model = Counts()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    made = wf.Trainer(model, optimizer, nn.CrossEntropyLoss(), progress=False)
    made.fit(data.DataLoader(Stream(), 16, seed=1), epochs=5)
    assert model.seen.tolist() == [5] * 50, model.seen
    say("stream", model, made.history[-1]["loss"])


ALL = (recommender, noise, denominators, trainer, synchronised, stream)

if __name__ == "__main__":
    for scenario in ALL:
        if len(sys.argv) == 1 or scenario.__name__ in sys.argv[1:]:
            scenario()
