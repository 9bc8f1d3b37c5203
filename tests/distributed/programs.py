"""What the workers of the tests run: `python programs.py NAME ARGUMENTS`; prints a digest of weights and optimiser state."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
import weft.distributed
from weft import data, nn, optim
from weft.distributed import same_bits
from weft.io import CheckpointManager, latest


def digest(model: Any, optimizer: Any) -> str:
    made = hashlib.sha256()
    for tensor in model.state_dict().values():
        made.update(np.asarray(tensor.numpy()).tobytes())
    for state in optimizer.state_dict()["state"]:
        for tensor in state.values():
            made.update(np.asarray(tensor.numpy()).tobytes())
    return made.hexdigest()


def samples(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, 12)).astype(np.float32)
    return x, (x[:, :4].sum(1) > 0).astype(np.int64)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))


class Count(wf.train.Callback):
    """Counts its calls, and changes the learning rate."""

    epochs = 0

    def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
        self.epochs += 1
        logs["seen"] = float(self.epochs)
        for group in trainer.optimizer.param_groups:
            group["lr"] *= 0.9

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs = state["epochs"]


class Miscounted(wf.train.Metric):
    """How many samples of an epoch were not trained on exactly once; a target is a class + 2 × the number of its sample."""

    name, greater_is_better = "miscounted", False

    def __init__(self, n: int) -> None:
        self.samples = np.arange(n)

    def measure(self, output: Any, target: Any) -> Any:
        same = wf.asarray(self.samples)[None, :] == (target // 2)[:, None]
        return same.float().sum(axis=0)

    def result(self, total: np.ndarray) -> float:
        return float((total != 1).sum())


class Slow(data.TensorDataset):
    """Samples that take some time, without needing the processor."""

    pause = 0.0

    def gather(self, indices: Any) -> Any:
        time.sleep(self.pause)
        return super().gather(indices)


def counted(epochs: int = 20, pause: int = 0, directory: str | None = None, every: int = 0) -> None:
    """A Trainer that counts its samples, which faults of all kinds happen to. `pause` is in milliseconds per shard."""
    wf.manual_seed(3)
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    x, y = samples()
    y = y + 2 * np.arange(len(y))
    given: dict[str, Any] = {}
    if directory is not None:
        given = {"checkpoint_dir": directory, "resume": "auto", "checkpoint_every": every or None}
    made = wf.Trainer(
        model, optimizer, lambda output, target: nn.functional.cross_entropy(output, target % 2), progress=False,
        metrics=[Miscounted(len(y))], callbacks=[Count()], **given,
    )  # fmt: skip
    dataset = Slow(x, y)
    dataset.pause = pause / 1000
    history = made.fit(data.DataLoader(dataset, 32, shuffle=True), epochs=epochs)
    wrong = sum(row["miscounted"] for row in history)
    last = history[-1]
    print("RESULT", digest(model, optimizer), repr(last["loss"]), last["seen"], f"miscounted={wrong:g}", flush=True)


def trainer(*options: str, directory: str | None = None, epochs: int = 3, workers: int | None = None) -> None:
    """A Trainer; `options` switch its features on."""
    wf.manual_seed(3)
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    given: dict[str, Any] = {"progress": False, "metrics": ["accuracy"], "callbacks": [Count()]}
    if "clip" in options:
        given["clip_grad_norm"] = 0.3
    if "ema" in options:
        given["ema"] = 0.9
    if "accumulate" in options:
        given["grad_accumulation"] = 2
    if "eager" in options:
        given["capture"] = False
    if directory is not None:
        given.update(checkpoint_dir=directory, resume="auto", checkpoint_every=2)
    run = weft.distributed.current()
    if "other-bits" in options and run is not None and run.host == 1:
        same_bits.digest = lambda: "of another processor"
    if "slow-disk" in options:
        write = CheckpointManager._write
        CheckpointManager._write = lambda *args: (time.sleep(1.0), write(*args))[1]  # type: ignore[method-assign]
    made = wf.Trainer(model, optimizer, nn.CrossEntropyLoss(), workers=workers, **given)
    x, y = samples()
    loader = data.DataLoader(data.TensorDataset(x, y), 32, shuffle=True)  # the last batch has 22 samples
    history = made.fit(loader, data.DataLoader(data.TensorDataset(x[:30], y[:30]), 16), epochs=epochs)
    if directory is not None:
        assert (found := latest(directory)) is not None and found.step == made.step
    last = history[-1]
    print("RESULT", digest(model, optimizer), repr(last["loss"]), repr(last["val_loss"]), last["seen"], flush=True)


def by_hand(epochs: int = 3) -> None:
    """A loop with two optimisers, in the manner of a GAN."""
    wf.manual_seed(1)
    first, second = network(), nn.Linear(2, 2)
    optimizers = optim.Adam(first.parameters(), lr=0.01), optim.SGD(second.parameters(), lr=0.1, momentum=0.9)

    @wf.distributed.step(optimizers[0])
    def step_one(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(second(first(x)), y)
        loss.backward()
        return loss

    @wf.distributed.step(optimizers[1])
    def step_two(x: Any, y: Any) -> Any:
        out = second(first(x).detach())
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        return {"loss": loss, "right": (out.argmax(axis=1) == y).float().mean()}

    x, y = samples()
    for _ in range(epochs):
        for a, b in data.DataLoader(data.TensorDataset(x, y), 32, shuffle=True, seed=0):
            one, two = step_one(a, b), step_two(a, b)
    digests = digest(first, optimizers[0])[:16], digest(second, optimizers[1])[:16]
    print("RESULT", *digests, repr(one.item()), repr(two["right"].item()), flush=True)


def fails(where: str) -> None:
    """A script with a mistake."""
    if where == "before":
        raise ValueError("this script has a mistake")
    model = nn.Linear(12, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    class Broken(data.TensorDataset):
        def __getitem__(self, index: int) -> Any:
            raise ValueError(f"sample {index} is broken")

        gather = None

    wf.Trainer(model, optimizer, nn.CrossEntropyLoss(), progress=False).fit(
        data.DataLoader(Broken(*samples()), 32), epochs=1
    )


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    options = [word for word in rest if "=" not in word]
    named: dict[str, Any] = {k: int(v) if v.isdecimal() else v for k, v in (w.split("=") for w in rest if "=" in w)}
    {"trainer": trainer, "counted": counted, "by_hand": by_hand, "fails": fails}[name](*options, **named)
    assert Path(sys.argv[0]).exists()
