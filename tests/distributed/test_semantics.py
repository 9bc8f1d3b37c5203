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
from tests.distributed.launched import SECONDS, TIMEOUT, Launched
from tests.each import each
from weft import data, nn, optim
from weft.distributed import communicator, context, failpoints, keeper, parallel
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
    monkeypatch.setattr(communicator, "_communicator", None)  # restored after the test: later tests are alone again
    yield made
    for part in parallel.open_parts():
        part.close()
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
    def check(loss_fn: Callable[[Any, Any], Any], capture: bool) -> None:
        one, many = pair(lambda: nn.Linear(5, 3))
        optimizers = [optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (one, many)]

        def body(model: nn.Module) -> Callable[..., Any]:
            def step(x: Any, y: Any) -> Any:
                loss = loss_fn(model(x), y)
                loss.backward()
                return loss

            return step

        step = wf.distributed.step(optimizers[1], [many], capture=capture)(body(many))
        for n in (14, 14, 3):
            x, y = _inputs(n), wf.asarray(LABELS[:n])
            close(step(x, y).item(), alone(body(one), optimizers[0], x, y).item())
            same_weights(one, many)

    captured = ("ignored labels", "two denominators")
    each(check, {name: (loss, name in captured) for name, loss in LOSSES.items()})


# Parameters, gradients, buffers ---------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """Three layers of which the second is used by samples with a positive first feature, and the third by none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 3), nn.Linear(5, 3, bias=False), nn.Linear(5, 3)
        self.use_c = False

    def forward(self, x: Any) -> Any:
        out = self.a(x)
        if bool((x[:, 0] > 0).any()):
            out = out + self.b(x * (x[:, :1] > 0).float())
        return out + self.c(x) if self.use_c else out


def test_a_parameter_without_gradient_counts_zero_or_is_skipped(worker: Context) -> None:
    def check(make: Callable[[Any], Any]) -> None:
        one, many = pair(Branches)
        optimizers = [make(m.parameters()) for m in (one, many)]
        averages = [optim.EMA(m, 0.5) for m in (one, many)]

        def body(model: nn.Module) -> Callable[..., Any]:
            def step(x: Any) -> Any:
                loss = model(x).square().mean()
                loss.backward()
                return loss

            return step

        step = wf.distributed.step(optimizers[1], [many], ema=averages[1], capture=False)(body(many))
        x = _inputs(12)
        x[:9, 0] = -1.0  # only the last shard uses b
        for number, batch in enumerate((x, x.abs() * -1.0, x, x)):  # and none at all in the second step
            one.use_c = many.use_c = number == 2
            alone(body(one), optimizers[0], batch)
            averages[0].update()
            step(batch)
            same_weights(one, many)
            for a, b in zip(averages[0].averages, averages[1].averages, strict=True):
                close(a.numpy(), b.numpy())
        counts = [[float(o.state[p].get("step", -1)) for p in m.parameters()] for o, m in zip(optimizers, (one, many))]
        assert counts[0] == counts[1]

    cases = {
        "SGD": (lambda params: optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),),
        "AdamW": (lambda params: optim.AdamW(params, lr=0.1, weight_decay=0.1),),
    }
    each(check, cases)


def test_row_sparse_gradients_update_their_rows_only(worker: Context) -> None:
    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(40, 4, sparse=True), nn.Embedding(3000, 8, sparse=True)
            self.out = nn.Linear(12, 1)

        def forward(self, users: Any, items: Any) -> Any:
            return self.out(wf.concat([self.users(users), self.items(items)], 1))[:, 0]

    def check(make: Callable[[Any], Any], ema: bool, clip: float | None) -> None:
        one, many = pair(Recommender)
        optimizers = [make(m.parameters()) for m in (one, many)]
        averages = [optim.EMA(m, 0.5) if ema else None for m in (one, many)]
        steps = []
        for model, optimizer, average in zip((one, many), optimizers, averages):

            def body(users: Any, items: Any, y: Any, model: nn.Module = model) -> Any:
                loss = F.mse_loss(model(users, items), y)
                loss.backward()
                return loss

            steps.append(wf.distributed.step(optimizer, [model], clip_grad_norm=clip, ema=average)(body))
        rng = np.random.default_rng(0)
        for _ in range(4):
            users, items = (wf.asarray(rng.integers(0, n, 16)) for n in (40, 3000))
            users[:5] = 7  # often, within a shard and in several
            y = wf.asarray(rng.normal(size=16).astype(np.float32))
            steps[0]._alone(users, items, y)
            steps[1](users, items, y)
            same_weights(one, many)
            if ema:
                close(averages[0].averages[1].numpy(), averages[1].averages[1].numpy())
        for a, b in zip(*(o.state_dict()["state"] for o in optimizers), strict=True):
            for key, value in a.items():
                close(value.numpy(), b[key].numpy())
        made = steps[1]._parallel
        assert made is not None
        if (
            "changed",
            1,
        ) in made.shelf.small.fields and not ema:  # the rows of the last gradient were written, no others
            slices = [s for s in made.shelf.slices if s.family == 1]
            log = made.shelf.memory[made.board.committed()[1]]["changed", 1]
            assert 0 < sum(int(log[s.start // 8 + 2 * s.number]) for s in slices) <= 16

    cases = {
        "SGD": (lambda params: optim.SGD(params, lr=0.5, weight_decay=0.01), False, None),
        "SGD with averages": (lambda params: optim.SGD(params, lr=0.5), True, None),
        "Adagrad": (lambda params: optim.Adagrad(params, lr=0.1), False, 0.05),
        "lazy Adam": (lambda params: optim.Adam(params, lr=0.1, lazy=True), False, None),
        "dense Adam": (lambda params: optim.Adam(params, lr=0.1), False, None),
        "deferred Adam": (lambda params: optim.Adam(params, lr=0.1, deferred=True), False, None),
    }
    each(check, cases)


def test_buffers_are_reduced_as_they_were_registered(worker: Context) -> None:
    class Watch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(wf.ones(1))
            self.register_buffer("mean", wf.zeros(2))
            self.register_buffer("seen", wf.zeros(1, dtype=wf.int64), reduce="sum")
            self.register_buffer("largest", wf.full((1,), -9.0), reduce="max")
            self.register_buffer("smallest", wf.full((1,), 9.0), reduce="min")
            self.register_buffer("first", wf.zeros(1), reduce="first")
            self.register_buffer("steps", wf.zeros((), dtype=wf.int64))

        def forward(self, x: Any) -> Any:
            with wf.no_grad():
                self.mean.copy_(wf.stack([x.mean(), x.mean() * 2.0]))
                self.seen += x.shape[0]
                self.largest.copy_(wf.maximum(self.largest, x.max()))
                self.smallest.copy_(wf.minimum(self.smallest, x.min()))
                self.first.copy_(x[:1])
                self.steps += 1
            return (x * self.weight).mean()

    model = Watch()
    x = np.arange(14, dtype=np.float32) - 3

    @wf.distributed.step(optim.SGD(model.parameters(), lr=0.1))
    def step(x: Any) -> Any:
        loss = model(x)
        loss.backward()
        return loss

    for number in (1, 2):
        step(wf.asarray(x * number))
    close(model.mean.numpy(), [2 * x.mean(), 4 * x.mean()])  # by samples: shards have 3 and 4
    assert int(model.seen) == 28 and int(model.steps) == 2
    assert (float(model.largest), float(model.smallest), float(model.first)) == (20.0, -6.0, -6.0)


def test_shards_that_disagree_about_an_integer_are_told_what_to_type(worker: Context) -> None:
    model = nn.Linear(1, 1)
    model.register_buffer("last", wf.zeros(2, dtype=wf.int64))

    @wf.distributed.step(optim.SGD(model.parameters(), lr=0.1))
    def step(x: Any) -> Any:
        model.last[1] = x[0, 0].long()
        loss = model(x).mean()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match=r"different values in the buffer 'last' \(int64\): 0 and 3.*reduce='sum'"):
        step(wf.arange(12.0).reshape(12, 1))
    with pytest.raises(ValueError, match="reduce must be one of mean, same, sum, max, min, first. Got 'avg'"):
        model.register_buffer("other", wf.zeros(1), reduce="avg")


def test_synchronised_batch_norm_has_the_statistics_of_the_global_batch(worker: Context) -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Linear(5, 6), nn.SyncBatchNorm(6), nn.Tanh(), nn.Linear(6, 4), nn.SyncBatchNorm(4, momentum=None), nn.Linear(4, 3)
        )  # fmt: skip

    one, many = pair(make)
    optimizers = [optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (one, many)]

    def body(model: nn.Module) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return step

    step = wf.distributed.step(optimizers[1], [many])(body(many))
    for n in (14, 13, 3):  # three samples: one shard has none, and the others one each
        x, y = _inputs(n), wf.asarray(LABELS[:n])
        close(step(x, y).item(), alone(body(one), optimizers[0], x, y).item())
        same_weights(one, many)
    for model in (one, many):
        model.eval()
    close(*(model(_inputs(4)).detach().numpy() for model in (one, many)))


def test_batch_norms_are_converted_with_what_they_have_learned() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4, eps=0.1), nn.ReLU()))
    model(wf.randn(8, 3))
    model.eval()
    x = wf.randn(2, 3)
    before, weight = model(x).detach().numpy(), model[1][0].weight
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(converted[1][0]) is nn.SyncBatchNorm and converted[1][0].weight is weight
    np.testing.assert_array_equal(converted(x).detach().numpy(), before)
    with pytest.raises(ValueError, match="there are no process groups"):
        nn.SyncBatchNorm(3, process_group=1)


# What is refused, and what goes through a commit -----------------------------------------------------------------------------


def _trained(**given: Any) -> tuple[nn.Module, Any, Any]:
    """A model, its optimiser and its step, after the first call."""
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.1)

    @wf.distributed.step(optimizer, [model], **given)
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step(_inputs(12))
    return model, optimizer, step


def test_what_a_body_must_not_do_is_refused_with_what_to_do(worker: Context) -> None:
    model = nn.Linear(5, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def check(action: Callable[[], Any], message: str) -> None:
        @wf.distributed.step(optimizer, [model], capture=False)
        def step(x: Any) -> Any:
            loss = model(x).mean()
            loss.backward()
            action()
            return loss

        with pytest.raises(RuntimeError, match=message):
            step(_inputs(8))
        step._parallel.close()
        optimizer.zero_grad()

    cases = {
        "step": (
            optimizer.step,
            r"SGD.step\(\): the body of a distributed step only computes gradients.*Leave optimizer.step",
        ),
        "closure": (lambda: optimizer.step(lambda: 0.0), "Leave optimizer.step.. and its closure out"),
        "clip": (
            lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
            r"distributed.step\(optimizer, clip_grad_norm=",
        ),
        "writing": (lambda: wf.distributed.writing().__enter__(), "runs once per shard"),
    }
    each(check, cases)


def test_what_cannot_be_distributed_is_refused_before_the_first_step(worker: Context) -> None:
    def check(make: Callable[[], tuple[Any, Any]], message: str) -> None:
        model, optimizer = make()

        @wf.distributed.step(optimizer, [model])
        def step(x: Any) -> Any:
            return model(x).mean()

        with pytest.raises((RuntimeError, TypeError), match=message):
            step(_inputs(8))

    def closures() -> tuple[Any, Any]:
        model = nn.Linear(5, 3)
        return model, optim.LBFGS(model.parameters(), lr=0.1)

    def hooked() -> tuple[Any, Any]:
        model = nn.Linear(5, 3)
        model.weight.register_post_accumulate_grad_hook(lambda p: None)
        return model, optim.SGD(model.parameters(), lr=0.1)

    def tied() -> tuple[Any, Any]:
        model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
        model[1].weight = nn.Parameter(model[0].weight.detach())
        return model, optim.SGD(model.parameters(), lr=0.1)

    trained, optimizer, _ = _trained()
    cases = {
        "closure": (closures, "LBFGS has a step.. of its own.*evaluate the loss again"),
        "hook": (hooked, "register_post_accumulate_grad_hook. It would see the gradient of one shard"),
        "shared memory": (tied, "share memory, and would be updated apart. Tie weights by using one Parameter"),
        "two steps": (lambda: (trained, optimizer), "is trained by two steps"),
    }
    each(check, cases)


def test_the_state_is_read_only_outside_of_steps_and_writing(worker: Context) -> None:
    model, optimizer, step = _trained()
    p, saved = model[0].weight, {k: v.clone() for k, v in model.state_dict().items()}
    x = _inputs(12)

    def refused(action: Callable[[], Any]) -> None:
        with pytest.raises(ValueError, match="change by its steps alone.*with wf.distributed.writing"), wf.no_grad():
            action()

    actions = {
        "clamp_": (lambda: p.clamp_(-0.1, 0.1),),
        "data": (lambda: p.data.mul_(2.0),),
        "item": (lambda: p.__setitem__(0, 1.0),),
        "init": (lambda: nn.init.zeros_(p),),
        "load_state_dict": (lambda: model.load_state_dict(saved),),
        "buffers": (lambda: model[1].reset_running_stats(),),
        "optimizer state": (lambda: optimizer.state[p]["exp_avg"].zero_(),),
        "optimizer.step": (lambda: (setattr(p, "grad", wf.ones(4, 5)), optimizer.step()),),
    }
    each(refused, actions)
    p.grad = None
    with pytest.raises(ValueError, match="read-only"):
        p.detach().numpy()[0] = 1.0

    with wf.distributed.writing(), wf.no_grad():
        p.clamp_(-0.1, 0.1)
        optimizer.state[p]["exp_avg"].zero_()
        model[1].reset_running_stats()
    assert float(p.abs().max()) < 0.11 and float(model[1].running_mean.abs().max()) == 0.0
    assert float(optimizer.state[p]["exp_avg"].abs().max()) == 0.0
    step(x)
    assert int(model[1].num_batches_tracked) == 1
    with wf.distributed.writing():
        model.load_state_dict(saved)
    np.testing.assert_array_equal(p.detach().numpy(), saved["0.weight"].numpy())
    step(x)

    model.double()
    with pytest.raises(RuntimeError, match="was given other memory .by `model.to.dtype.`"):
        step(x)


def test_frozen_functions_and_averages_follow_the_steps(worker: Context) -> None:
    model = nn.Linear(5, 3)
    average = optim.EMA(model, 0.5)

    @wf.distributed.step(optim.SGD(model.parameters(), lr=0.5), ema=average)
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        return loss

    x = _inputs(8)
    frozen = wf.function(lambda x: model(x), freeze=True)
    for steps in (1, 2, 2, 1):
        for _ in range(steps):
            step(x)
        close(frozen(x).detach().numpy(), model(x).detach().numpy())
    weight = model.weight.detach().numpy().copy()
    with average.applied():
        np.testing.assert_array_equal(model.weight.detach().numpy(), average.averages[0].numpy())
    np.testing.assert_array_equal(model.weight.detach().numpy(), weight)
    step(x)
    with pytest.raises(
        RuntimeError, match=r"EMA.update\(\): in a distributed run.*distributed.step\(optimizer, ema=ema\)"
    ):
        average.update()


def test_evaluation_by_one_worker_has_the_bits_of_the_run(worker: Context) -> None:
    x, y = _inputs(32).numpy(), np.resize(LABELS, 32)
    loader = data.DataLoader(data.TensorDataset(x, y), 12)  # shards of 3 samples, and of 2 in the last batch
    found: dict[str, Any] = {}

    class Evaluates(wf.train.Callback):
        def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
            found["lead"] = trainer.evaluate(loader)
            found["outputs"] = trainer.predict(loader).numpy()

    def loss(output: Any, target: Any) -> Any:
        return F.cross_entropy(output, target) + F.cross_entropy(output, target, wf.asarray(WEIGHTS))

    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    trainer = wf.Trainer(
        model, optim.Adam(model.parameters(), lr=0.1), loss, progress=False, metrics=["mse"], ema=0.5,
        callbacks=[Evaluates()],
    )  # fmt: skip
    trainer.metrics = wf.train.metrics.as_metrics({"size": lambda output, target: output.square().mean()})
    history = trainer.fit(loader, loader, epochs=2)
    assert (
        found["lead"] == {"loss": history[-1]["val_loss"], "size": history[-1]["val_size"]} == trainer.evaluate(loader)
    )
    np.testing.assert_array_equal(found["outputs"], trainer.predict(loader).numpy())
    close(trainer.predict(x).numpy(), found["outputs"])


def test_callbacks_that_no_worker_waits_for_cannot_change_the_run(worker: Context) -> None:
    model = nn.Linear(5, 3)
    own = optim.SGD([nn.Parameter(wf.ones(5))], lr=0.1)

    @wf.distributed.step(own)
    def step(x: Any) -> Any:
        loss = (x * own.param_groups[0].params[0]).mean()
        loss.backward()
        return loss

    step(_inputs(8))

    class Trains(wf.train.Callback):
        def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
            step(_inputs(8))

    class Observes(wf.train.Callback):
        scope = "observer"

        def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
            with wf.distributed.writing():
                pass

    def check(callback: Any, message: str) -> None:
        trainer = wf.Trainer(
            model, optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), callbacks=[callback], progress=False
        )
        x = _inputs(12).numpy()
        with pytest.raises(RuntimeError, match=message):
            trainer.fit(data.DataLoader(data.TensorDataset(x, x[:, :3]), 12), epochs=1)

    cases = {
        "observer": (Observes(), "has the scope 'observer', so the other workers do not wait"),
        "lead": (Trains(), "a step in a callback that runs on the lead alone"),
    }
    each(check, cases)


# Whole runs ---------------------------------------------------------------------------------------------------------------

MEANING = str(Path(__file__).with_name("meaning.py"))
LEAN = "from weft.distributed.launch import Run; import sys; sys.exit(Run(sys.argv[1:], 2, 4, threads=1, memory='lean').run())"


def results(workers: int, *scenarios: str, **given: Any) -> set[str]:
    """What a run of `meaning.py` prints: a line per training. A worker that was started again may print one twice."""
    status, out, err = Launched(workers, *scenarios, script=MEANING, **given).wait()
    assert status == 0, f"{out}\n{err}"
    return {line for line in out.splitlines() if line.startswith("RESULT")}


@pytest.fixture(scope="module")
def one_worker() -> set[str]:
    return results(1)


@pytest.mark.timeout(TIMEOUT, method="signal")
def test_every_kind_of_step_gives_the_same_bits_on_any_number_of_workers(one_worker: set[str]) -> None:
    assert len(one_worker) == 10
    assert results(4) == one_worker


@pytest.mark.timeout(TIMEOUT, method="signal")
def test_a_killed_worker_changes_nothing_and_each_sample_of_a_stream_counts_once(
    one_worker: set[str], tmp_path: Path
) -> None:
    for point, scenario in (("shard won:9", "stream"), ("values written:9", "synchronised")):
        marker = tmp_path / scenario
        found = results(2, scenario, environment={failpoints.VARIABLE: f"{point}:{marker}"})
        assert marker.exists(), "no worker came to this point"
        assert len(found) == 1
        assert scenario == "stream" or found <= one_worker


@pytest.mark.timeout(TIMEOUT, method="signal")
def test_lean_memory_starts_again_after_a_death_in_an_update(one_worker: set[str], tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    environment = {**os.environ, failpoints.VARIABLE: f"update begun:4:{marker}"}  # only steps that train begin one
    program = [sys.executable, "-c", LEAN, MEANING, "synchronised"]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=SECONDS)
    assert done.returncode == 0 and marker.exists(), done.stderr
    assert "the run starts again from its last checkpoint" in done.stderr
    assert {line for line in done.stdout.splitlines() if line.startswith("RESULT")} <= one_worker


def test_a_trainer_means_the_same_as_on_one_process(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    x, y = _inputs(44).numpy(), np.resize(LABELS, 44)

    def train(given: dict[str, Any]) -> tuple[nn.Module, list[dict[str, float]], Any]:
        wf.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        model.register_module("unused", nn.Identity())
        model.unused.weight = nn.Parameter(wf.ones(2))  # never gets a gradient, so weight decay does not change it
        optimizer = optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
        scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.3)
        trainer = wf.Trainer(
            model, optimizer, nn.CrossEntropyLoss(), scheduler=scheduler, monitor="loss", progress=False,
            metrics={"size": lambda output, target: output.square().mean()}, **given,
        )  # fmt: skip
        loader = data.DataLoader(data.TensorDataset(x, y), 12, shuffle=True, seed=3)  # the last batch has 8 samples
        return model, trainer.fit(loader, data.DataLoader(data.TensorDataset(x, y), 16), epochs=3), trainer

    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "accumulation": {"grad_accumulation": 3, "clip_grad_norm": 0.2, "ema": 0.8, "capture": False},
    }
    alone = {name: train(given) for name, given in cases.items()}
    request.getfixturevalue("worker")
    for name, given in cases.items():
        model, history, trainer = train(given)
        same_weights(alone[name][0], model)
        for a, b in zip(alone[name][1], history, strict=True):
            close(
                [a[k] for k in ("loss", "size", "val_loss", "val_size")],
                [b[k] for k in ("loss", "size", "val_loss", "val_size")],
            )
        assert trainer.optimizer.param_groups[0]["lr"] == alone[name][2].optimizer.param_groups[0]["lr"]
        assert model.unused.weight.tolist() == [1.0, 1.0]
