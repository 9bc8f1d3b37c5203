"""A training run that can be killed: `python resume_program.py DIRECTORY MODE WORKERS KILL`.

KILL is "never", "after=SECONDS" (a SIGKILL that long after the first step of this process), or "write=N" (in the middle
of writing the N-th file of a checkpoint), or "rename=N" (just before the N-th rename). It prints the SHA-256 of the final
weights, optimiser state and history.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import weft as wf
from weft import nn, optim
from weft.data import DataLoader, TensorDataset, sample_rng
from weft.io import checkpoint
from weft.train import Callback, EarlyStopping


def noisy(image: np.ndarray) -> np.ndarray:
    return image + sample_rng().normal(0, 0.1, image.shape).astype(np.float32)


class Killer(Callback):
    """Kills the process some time after its first step, and slows steps down so that there is something to hit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.started = seconds, False

    def on_step_end(self, trainer: Any, logs: dict[str, float]) -> None:
        time.sleep(0.004)
        if self.seconds is not None and not self.started:
            self.started = True
            threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def die_at(owner: Any, name: str, n: int) -> None:
    real, calls = getattr(owner, name), itertools.count(1)

    def dying(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == n:
            if name == "write_packed":  # half a file
                args[0].write(b"half")
                args[0].flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, dying)


def main(directory: str, mode: str, workers: int, kill: str) -> None:
    wf.manual_seed(5)
    what, _, value = kill.partition("=")
    if what == "write":
        die_at(checkpoint, "write_packed", int(value))
    if what == "rename":
        die_at(os, "rename", int(value))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 8)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    data = TensorDataset(x, y).map(noisy, element=0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    optimizer = optim.AdamW(model.parameters(), lr=0.02)
    epochs = 5
    train = DataLoader(data, batch_size=8, shuffle=True, seed=1, num_workers=workers)
    test = DataLoader(TensorDataset(x, y), batch_size=48)
    accumulation = 2 if mode == "accumulate" else 1
    updates = -(-len(train) // accumulation) * epochs
    trainer = wf.Trainer(
        model, optimizer, nn.CrossEntropyLoss(),
        metrics=["accuracy", "f1"], callbacks=[Killer(float(value) if what == "after" else None), EarlyStopping(patience=99)],
        scheduler=optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=updates), schedule_every="step",
        capture=mode == "captured", grad_accumulation=accumulation, ema=0.9 if mode == "captured" else None,
        clip_grad_norm=1.0, checkpoint_dir=directory, checkpoint_every=3, resume="auto", keep=2, progress=False,
    )  # fmt: skip
    history = trainer.fit(train, test, epochs=epochs)
    train.close()
    digest = hashlib.sha256()
    for name, tensor in sorted(trainer.weights().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    for state in optimizer.state_dict()["state"]:
        for name, tensor in sorted(state.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    digest.update(json.dumps(history).encode())
    print(f"{digest.hexdigest()} after {trainer.step} steps", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
