"""A distributed step means what the same step means on one process: one worker with several shards, compared with one batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
import weft.distributed
from tests.each import each
from weft import nn, optim
from weft.distributed import context, keeper, parallel
from weft.distributed.context import Context
from weft.nn import functional as F

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd and pidfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
]

SHARDS = 4


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """This process is the only worker of a run."""
    made = Context(str(tmp_path), SHARDS, 2)
    read, write = os.pipe()
    program = [sys.executable, str(keeper.__file__), made.socket, str(read), str(tmp_path / "segments")]
    process = subprocess.Popen(program, pass_fds=[read])
    monkeypatch.setattr(context, "current", lambda: made)
    monkeypatch.setattr(weft.distributed, "current", lambda: made)
    monkeypatch.setattr(weft.distributed, "_team", None)
    opened: list[Any] = []
    before = parallel.DataParallel.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        opened.append(self)
        before(self, *args, **kwargs)

    monkeypatch.setattr(parallel.DataParallel, "__init__", remember)
    yield made
    for made_here in opened:
        made_here.close()
    os.close(write)
    process.wait(10)
    os.close(read)


def alone(body: Callable[..., Any], optimizer: Any, *batch: Any) -> Any:
    """The step on one process."""
    optimizer.zero_grad()
    result = body(*batch)
    optimizer.step()
    optimizer.zero_grad()
    return result


def pair(make: Callable[[], nn.Module], seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """Two models with the same weights."""
    made = []
    for _ in range(2):
        wf.manual_seed(seed)
        made.append(make())
    return made[0], made[1]


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def same_weights(a: nn.Module, b: nn.Module) -> None:
    theirs = b.state_dict()
    for name, value in a.state_dict().items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=2e-5, atol=2e-6, err_msg=name)


# Losses -----------------------------------------------------------------------------------------------------------------

LABELS = np.array([0, 1, -100, 2, -100, -100, -100, 1, 2, 2, 0, -100, 1, 0], np.int64)  # no label in the second shard
WEIGHTS = np.array([0.2, 1.0, 3.0], np.float32)


def _inputs(n: int = 14) -> wf.Tensor:
    return wf.asarray(np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32))


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "plain mean": lambda out, y: F.mse_loss(out, wf.ones_like(out)),
    "ignored labels": F.cross_entropy,
    "class weights": lambda out, y: F.cross_entropy(out, y, wf.asarray(WEIGHTS)),
    "smoothed with class weights": lambda out, y: F.cross_entropy(out, y, wf.asarray(WEIGHTS), label_smoothing=0.1),
    "negative log likelihood": lambda out, y: F.nll_loss(F.log_softmax(out, 1), y),
    "with a penalty": lambda out, y: F.cross_entropy(out, y) + 0.1 * (out * out).mean(),
    "two denominators": lambda out, y: F.cross_entropy(out, y, wf.asarray(WEIGHTS)) + F.cross_entropy(2 * out, y),
    "masked mean": lambda out, y: wf.distributed.weighted_mean((out - 1.0).square().sum(1), (y >= 0).float()),
    "another scale": lambda out, y: F.cross_entropy(out, y) * 0.25,
}


def test_mean_losses_are_weighted_by_their_own_denominator(worker: Context) -> None:
    def check(loss_fn: Callable[[Any, Any], Any]) -> None:
        one, many = pair(lambda: nn.Linear(5, 3))
        optimizers = [optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (one, many)]

        def body(model: nn.Module) -> Callable[..., Any]:
            def step(x: Any, y: Any) -> Any:
                loss = loss_fn(model(x), y)
                loss.backward()
                return loss

            return step

        step = wf.distributed.step(optimizers[1], [many])(body(many))
        for n in (14, 14, 3):
            x, y = _inputs(n), wf.asarray(LABELS[:n])
            close(step(x, y).item(), alone(body(one), optimizers[0], x, y).item())
            same_weights(one, many)

    each(check, {name: (loss,) for name, loss in LOSSES.items()})
