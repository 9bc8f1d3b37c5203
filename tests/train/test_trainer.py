"""Trainer: the loop, its numbers, and what goes wrong."""

from __future__ import annotations

import csv
import io
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.data import DataLoader, IterableDataset, TensorDataset
from weft.io import (
    CheckpointError,
    CheckpointWarning,
    latest,
    list_checkpoints,
    load,
    open_checkpoint,
    write_checkpoint,
)
from weft.io import checkpoint as checkpoint_module
from weft.io.tensorboard.records import read_records
from weft.runtime import threads
from weft.train import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LossCurve,
    LRLogger,
    ModelCheckpoint,
    Progress,
    StopOnNaN,
    TensorBoard,
    Trainer,
)
from weft.train.progress import epoch_line

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)


def loader(n: int = 60, batch_size: int = 10, **options: Any) -> DataLoader:
    return DataLoader(TensorDataset(X[:n], Y[:n]), batch_size=batch_size, seed=0, **options)


def make(model: Any = None, lr: float = 0.1, **options: Any) -> Trainer:
    wf.manual_seed(1)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    options.setdefault("progress", False)
    options.setdefault("capture", False)
    return Trainer(model, optim.SGD(model.parameters(), lr=lr, momentum=0.9), nn.CrossEntropyLoss(), **options)


def weights(trainer: Trainer) -> bytes:
    return b"".join(t.numpy().tobytes() for t in trainer.model.state_dict().values())


# What it computes --------------------------------------------------------------------------------------------------------


def test_it_does_what_the_loop_by_hand_does() -> None:
    trainer = make(metrics="accuracy")
    history = trainer.fit(loader(), loader(), epochs=3)
    wf.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer, criterion = optim.SGD(model.parameters(), lr=0.1, momentum=0.9), nn.CrossEntropyLoss()
    losses = []
    for _ in range(3):
        for x, y in loader():
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    assert b"".join(t.numpy().tobytes() for t in model.state_dict().values()) == weights(trainer)
    assert history[-1]["loss"] == pytest.approx(np.mean(losses[-6:]))
    assert [row["epoch"] for row in history] == [1, 2, 3] and trainer.step == 18 == history[-1]["step"]
    with wf.no_grad():
        right = model(wf.asarray(X)).argmax(axis=1).numpy() == Y
    assert history[-1]["val_accuracy"] == pytest.approx(right.mean()) and right.mean() > 0.9
    assert trainer.evaluate(loader())["accuracy"] == pytest.approx(right.mean())


def test_captured_and_eager_agree_and_capture_happens_once() -> None:
    results = []
    for capture in (False, True):
        wf.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        trainer = make(model, capture=capture, metrics="accuracy")
        results.append(trainer.fit(loader(), loader(), epochs=4))
    for eager, captured in zip(*results):
        assert captured == pytest.approx(eager, rel=1e-4)
    assert len(trainer._steps.train.captured.signatures) == 1  # train and eval in turns do not capture again
    assert trainer.captured_graph().nodes


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    for capture in (False, True):
        small, large = make(grad_accumulation=3, capture=capture), make(capture=capture)
        small.fit(loader(batch_size=5), epochs=2)
        large.fit(loader(batch_size=15), epochs=2)
        assert small.step == large.step == 8
        for a, b in zip(small.model.parameters(), large.model.parameters()):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_last_group_that_is_not_full_is_still_a_mean() -> None:
    small, large = make(grad_accumulation=4), make()
    small.fit(loader(30, batch_size=5), epochs=1)  # 4 + 2 batches
    large.fit([(wf.asarray(X[a:b]), wf.asarray(Y[a:b])) for a, b in ((0, 20), (20, 30))], epochs=1)
    assert small.step == 2
    for a, b in zip(small.model.parameters(), large.model.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_clipping_ema_and_schedules() -> None:
    trainer = make(lr=10.0, clip_grad_norm=1e-3)
    before = [p.detach().numpy().copy() for p in trainer.parameters]
    trainer.fit([(wf.asarray(X), wf.asarray(Y))], epochs=1)
    moved = sum(((p.detach().numpy() - b) ** 2).sum() for p, b in zip(trainer.parameters, before)) ** 0.5
    assert moved == pytest.approx(10.0 * 1e-3, rel=1e-3)

    trainer = make(ema=0.5, metrics="accuracy")
    trainer.fit(loader(), loader(), epochs=2)
    own = trainer.model.state_dict()["0.weight"].numpy().copy()
    averaged = trainer.weights()["0.weight"].numpy()
    assert not np.array_equal(own, averaged) and np.array_equal(own, trainer.model.state_dict()["0.weight"].numpy())

    for every, rate in (("epoch", 0.1 * 0.5**2), ("step", 0.1 * 0.5**12)):
        trainer = make(callbacks=[LRLogger()], schedule_every=every)
        trainer.scheduler = optim.lr_scheduler.ExponentialLR(trainer.optimizer, 0.5)
        history = trainer.fit(loader(), epochs=2)
        assert history[-1]["lr"] == pytest.approx(rate)
    trainer = make(callbacks=[LRLogger()])
    trainer.scheduler = optim.lr_scheduler.ReduceLROnPlateau(trainer.optimizer, patience=0, threshold=1e9)
    assert trainer.fit(loader(), loader(), epochs=3)[-1]["lr"] < 0.1


def test_predict_for_loaders_and_arrays() -> None:
    trainer = make()
    outputs = trainer.predict(loader(batch_size=7))
    assert outputs.shape == (60, 2) and trainer.model.training
    np.testing.assert_allclose(outputs.numpy(), trainer.predict(X).numpy(), rtol=1e-5)
    inputs_only = DataLoader(TensorDataset(X), batch_size=30)
    np.testing.assert_allclose(outputs.numpy(), trainer.predict(inputs_only).numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="nothing to predict"):
        trainer.predict([])


def test_other_batches_by_overriding_forward() -> None:
    class ForDicts(Trainer):
        def forward(self, batch: Any) -> tuple[Any, Any, Any]:
            output = self.model(batch["x"])
            return self.loss(output, batch["y"]), output, batch["y"]

    model = nn.Linear(4, 2)
    trainer = ForDicts(
        model, optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss(), metrics="accuracy", progress=False
    )
    batches = [{"x": wf.asarray(X), "y": wf.asarray(Y)}]
    assert trainer.fit(batches, batches, epochs=3)[-1]["val_accuracy"] > 0.5
    with pytest.raises(
        TypeError, match=r"expected batches of \(input, target\). Got dict of 2. Override Trainer.forward"
    ):
        make(model).fit(batches)


def test_a_step_that_needs_a_value_is_cut_after_one_warning() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            h = self.linear(x)
            return h * float(h.sum().item() * 0 + 1)

    trainer = make(Branching(), capture=True)
    with pytest.warns(UserWarning, match="Trainer: the step: cut at .*test_trainer.py") as caught:
        trainer.fit(loader(), epochs=2)
    assert len(caught) == 1 and trainer.step == 12 and trainer.captured_graph() is None


# Callbacks ---------------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order() -> None:
    calls: list[str] = []

    class Spy(Callback):
        def on_fit_start(self, trainer: Trainer) -> None:
            calls.append("fit")

        def on_epoch_start(self, trainer: Trainer) -> None:
            calls.append("epoch")

        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            calls.append("step")

        def on_epoch_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            logs["extra"] = 1.0
            calls.append("end")

        def on_fit_end(self, trainer: Trainer) -> None:
            calls.append("done")

    history = make(callbacks=[Spy()]).fit(loader(batch_size=30), epochs=2)
    assert calls == ["fit", *["epoch", "step", "step", "end"] * 2, "done"] and history[0]["extra"] == 1.0


def test_early_stopping_and_the_best_weights() -> None:
    stopping = EarlyStopping("loss", patience=2, restore_best=True)
    trainer = make(lr=0.0, callbacks=[stopping])  # it never improves on the first epoch
    first = weights(trainer)
    assert len(trainer.fit(loader(), epochs=50)) == 3
    assert trainer.stopped is not None and "has not improved" in trainer.stopped and weights(trainer) == first
    with pytest.warns(UserWarning, match="EarlyStopping: there is no 'val_loss'. There are loss"):
        make(callbacks=[EarlyStopping()]).fit(loader(), epochs=1)
    with pytest.raises(ValueError, match="'min', 'max' or None"):
        EarlyStopping(mode="most")


def test_files_of_a_run(tmp_path: Path) -> None:
    trainer = make(
        metrics="accuracy", log_dir=tmp_path, callbacks=[ModelCheckpoint(tmp_path / "weights")], capture=True
    )
    trainer.fit(loader(), loader(), epochs=3)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "history.csv").read_text())))
    assert [float(r["val_loss"]) for r in rows] == [r["val_loss"] for r in trainer.history] and rows[2]["epoch"] == "3"
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    (events,) = (tmp_path / "tensorboard").iterdir()
    text = b"".join(read_records(events.read_bytes()))
    for tag in (b"loss/step", b"loss/validation", b"accuracy/train", b"learning_rate/lr", b"0/weight", b"matmul"):
        assert tag in text, tag
    best = load(tmp_path / "weights" / "best.safetensors")
    assert best.keys() == trainer.model.state_dict().keys()
    assert sorted(p.name for p in (tmp_path / "weights").iterdir()) == ["best.safetensors", "last.safetensors"]


def test_without_matplotlib_there_is_one_warning_and_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    monkeypatch.setattr("weft.train.picture._warned", False)
    with pytest.warns(UserWarning, match=r"pip install matplotlib") as caught:
        make(callbacks=[LossCurve(tmp_path / "loss.png")]).fit(loader(), epochs=3)
    assert len(caught) == 1 and not (tmp_path / "loss.png").exists()


def test_a_long_loss_curve_stays_small() -> None:
    curve = LossCurve("unused.png", points=50)
    trainer = make()
    for trainer.step in range(1, 1001):
        curve.on_step_end(trainer, {"loss": float(trainer.step)})
    assert 20 <= len(curve._losses) <= 50 and all(step == loss for step, loss in curve._losses)
    other = LossCurve("unused.png", points=50)
    other.load_state_dict(curve.state_dict())
    assert other._losses == curve._losses and other._stride == curve._stride


class _LogOfDifference(nn.Module):
    """Makes NaN in its second line when an input is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.linear(wf.log(x))


@pytest.mark.parametrize("options", [{}, {"capture": True}, {"capture": True, "grad_accumulation": 2}], ids=str)
def test_a_nan_loss_stops_before_the_update_and_names_its_origin(options: dict[str, Any]) -> None:
    good, labels = wf.full((4, 4), 1.0), wf.zeros(4, dtype=wf.int64)
    bad = wf.tensor([[1.0] * 4, [1.0] * 4, [1.0, float("nan"), 1.0, 1.0], [1.0] * 4])
    trainer = make(_LogOfDifference(), **options)
    before = weights(trainer)
    with pytest.raises(
        FloatingPointError, match=r"nan at step 1 \(epoch 1\). It was made here: log: made NaN .*test_train"
    ):
        trainer.fit([(good - 2.0, labels)])
    assert weights(trainer) == before
    with pytest.raises(FloatingPointError, match="Tensor 0 of the batch holds NaN or infinities, first in sample 2 of"):
        make(_LogOfDifference(), **options).fit([(bad, labels)])
    trainer = make(_LogOfDifference(), **options)
    with wf.no_grad():
        trainer.model.linear.weight[0, 0] = float("inf")
    with pytest.raises(
        FloatingPointError, match=r"made weights NaN or infinite \(linear.weight\), so its gradients were"
    ):
        trainer.fit([(good * 0 + 1, labels)])


def test_a_nan_loss_may_go_on() -> None:
    bad = [(wf.full((4, 4), float("nan")), wf.zeros(4, dtype=wf.int64))]
    assert np.isnan(make(stop_on_nan=False).fit(bad)[0]["loss"])
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 1 \(epoch 1\). Lower the learning rate"):
        make(callbacks=[StopOnNaN()], stop_on_nan=False).fit(bad)


# What it trains on -------------------------------------------------------------------------------------------------------


class _Plain:
    """A dataset that derives from nothing."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return X[i], Y[i]


def test_fit_takes_arrays_tensors_datasets_and_loaders() -> None:
    pairs = {
        "arrays": lambda t, **k: t.fit(X, Y, **k),
        "float64": lambda t, **k: t.fit(X.astype(np.float64), Y, **k),
        "lists": lambda t, **k: t.fit(X.tolist(), Y.tolist(), **k),
        "tensors": lambda t, **k: t.fit(wf.asarray(X), wf.asarray(Y), **k),
        "dataset": lambda t, **k: t.fit(TensorDataset(X, Y), **k),
        "plain": lambda t, **k: t.fit(_Plain(), **k),
    }
    ends = {}
    for name, fit in pairs.items():
        trainer = make(metrics="accuracy")
        wf.manual_seed(3)
        history = fit(trainer, epochs=2, batch_size=10, validation_data=(X, Y))
        assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= history[-1].keys() and trainer.step == 12
        ends[name] = weights(trainer)
    trainer = make()
    wf.manual_seed(3)
    trainer.fit(DataLoader(TensorDataset(X, Y), 10, shuffle=True), epochs=2)
    assert set(ends.values()) == {weights(trainer)}
    assert trainer.evaluate(X, Y) == pytest.approx(trainer.evaluate(loader()), rel=1e-5)
    assert (
        trainer.predict(X.astype(np.float64), batch_size=7).shape == trainer.predict(TensorDataset(X)).shape == (60, 2)
    )


def test_the_last_samples_are_split_off_for_validation() -> None:
    trainer = make()
    history = trainer.fit(X, Y, validation_split=0.2, shuffle=False)
    assert trainer.step == 2 and history[-1]["val_loss"] == pytest.approx(trainer.evaluate(X[48:], Y[48:])["loss"])
    again = make()
    assert again.fit(_Plain(), validation_split=0.2, shuffle=False)[-1] == history[-1]
    assert weights(again) == weights(trainer)


def test_a_model_of_two_inputs_takes_a_tuple_of_arrays() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, a: Any, b: Any) -> Any:
            return self.linear(a) + self.linear(b)

    trainer = make(Two())
    assert "val_loss" in trainer.fit((X, X), Y, validation_data=(X, X, Y))[-1]
    assert trainer.step == 2


def test_what_fit_refuses() -> None:
    def refused(kind: type[Exception], words: str, *args: Any, **options: Any) -> None:
        with pytest.raises(kind, match=words):
            make().fit(*args, **options)

    refused(TypeError, "must be arrays .*Got NoneType")
    refused(ValueError, "batch_size belongs to arrays and datasets. Got it with a DataLoader", loader(), batch_size=3)
    for options, words in (
        ({"validation_split": 1.5}, "validation_split must be a fraction between 0 and 1. Got 1.5"),
        ({"validation_split": 0.1, "validation_data": (X, Y)}, "either validation_split or validation_data"),
    ):
        refused(ValueError, words, X, Y, **options)
    refused(ValueError, "of 1 samples leaves one of the two parts empty", X[:1], Y[:1], validation_split=0.5)
    refused(TypeError, "val_loader was given twice", loader(), loader(), val_loader=loader())


def test_lines_of_epochs_fit_in_80_columns() -> None:
    logs = {"loss": 0.5, "accuracy": 0.9, "val_loss": 0.6, "val_accuracy": 0.8}
    speed = {"samples_per_second": 12345.0, "seconds": 1.25}
    assert epoch_line("epoch 1/2", {"loss": 0.5, **speed}) == "epoch 1/2  loss 0.5000  12,345 samples/s  1.2 s"
    assert (
        epoch_line("epoch 1/2", logs) == "epoch 1/2  loss 0.5000  accuracy 0.9000  val_loss 0.6000  val_accuracy 0.8000"
    )
    grouped = "loss 0.5000 val 0.6000  accuracy 0.9000 val 0.8000"
    assert epoch_line("epoch 1/2", {**logs, **speed}) == f"epoch 1/2  {grouped}  12,345/s  1.2 s"
    assert epoch_line("epoch  1/20", {**logs, **speed}) == f"epoch  1/20  {grouped}  1.2 s"
    many = {**logs, **{f"metric_{i}": i / 7 for i in range(9)}, **speed}
    lines = epoch_line("epoch 1/2", many).splitlines()
    assert len(lines) > 1 and all(len(line) < 80 for line in lines) and lines[1].startswith(" " * 11)
    assert all(f"metric_{i} {i / 7:.4f}" in "".join(lines) for i in range(9)) and "12,345 samples/s" in lines[-1]


# Progress ----------------------------------------------------------------------------------------------------------------


def test_progress_in_a_file_is_one_line_per_epoch() -> None:
    out = io.StringIO()
    make(metrics="accuracy", progress=Progress(file=out)).fit(loader(), loader(), epochs=2)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 and lines[0].startswith("epoch 1/2  loss ") and "/s  " in lines[1]
    assert all(len(line) < 80 for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_a_bar() -> None:
    out = Terminal()
    progress = Progress(file=out)
    progress.start_epoch(1, 3, 10, 0)
    progress.advance(5, 0.25, 1234.0)
    progress._bar.refresh()
    shown = out.getvalue()
    progress.end_epoch(1, 3, {"loss": 0.125, "seconds": 2.0})
    progress.close()
    assert "epoch 1/3" in shown and "5/10" in shown and "loss 0.2500" in shown and "1,234 samples/s" in shown
    assert "epoch 1/3  loss 0.1250  2.0 s" in out.getvalue()


# Checkpoints -------------------------------------------------------------------------------------------------------------


def test_going_on_in_another_trainer(tmp_path: Path) -> None:
    whole = make(metrics="accuracy")
    expected = whole.fit(loader(shuffle=True), loader(), epochs=4)
    make(metrics="accuracy", checkpoint_dir=tmp_path).fit(loader(shuffle=True), loader(), epochs=2)
    rest = make(metrics="accuracy", checkpoint_dir=tmp_path, resume="auto")
    assert rest.fit(loader(shuffle=True), loader(), epochs=4) == expected and weights(rest) == weights(whole)
    done = make(metrics="accuracy", checkpoint_dir=tmp_path, resume="auto")
    assert done.fit(loader(shuffle=True), loader(), epochs=4) == expected and weights(done) == weights(whole)
    assert len(list_checkpoints(tmp_path)) <= 4
    facts = latest(tmp_path).facts
    assert facts["monitor"] == {"name": "val_loss", "mode": "min"} and facts["weft"] == wf.__version__


@pytest.mark.skipif(not library.available(), reason="both ways need oneDNN")
def test_going_on_with_the_kernels_that_were_chosen_before(tmp_path: Path) -> None:
    """A convolution that is computed another way than the rule says, as a trial may have found, stays so."""
    images = np.random.default_rng(3).normal(size=(8, 64, 16, 16)).astype(np.float32)
    data = [(wf.asarray(images[i : i + 4]), wf.asarray(Y[i : i + 4])) for i in (0, 4)]

    def run(epochs: int, **options: Any) -> Trainer:
        wf.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 256, 2))
        trainer = make(model, lr=0.001, capture=True, **options)
        trainer.fit(data, epochs=epochs)
        return trainer

    try:
        tuning.forget()
        by_rule = run(1)
        ways = tuning.export()["ways"]
        assert set(ways.values()) == {"winograd_f4"}
        tuning.adopt({"format": 1, "ways": dict.fromkeys(ways, "direct")})
        whole = run(3)
        run(1, checkpoint_dir=tmp_path)
        assert weights(by_rule) != weights(run(1))
        tuning.forget()  # as in a new process
        rest = run(3, checkpoint_dir=tmp_path, resume="auto")
        assert set(tuning.export()["ways"].values()) == {"direct"}
        assert weights(rest) == weights(whole)
    finally:
        tuning.forget()


def test_going_on_from_the_middle_of_an_epoch_without_a_loader_that_knows_its_place(tmp_path: Path) -> None:
    batches = list(loader())
    whole = make()
    whole.fit(batches, epochs=2)

    class Bomb(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            if trainer.step == 9:
                raise RuntimeError("bang")

    with pytest.raises(RuntimeError, match="bang"):
        make(checkpoint_dir=tmp_path, checkpoint_every=4, callbacks=[Bomb()]).fit(batches, epochs=2)
    assert latest(tmp_path).step == 8
    rest = make(checkpoint_dir=tmp_path, resume=tmp_path / "step-00000008")
    rest.fit(batches, epochs=2)
    assert weights(rest) == weights(whole) and rest.history == whole.history


def test_a_run_that_goes_back_is_a_branch_that_auto_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_every": 2, "keep": 3}
    make(**{**options, "keep": 5}).fit(loader(), epochs=3)  # 18 steps
    there = list_checkpoints(tmp_path)
    assert [path.name[-2:] for path in there] == ["10", "12", "14", "16", "18"]
    old = {path.name: (path / "manifest.sha256").read_text() for path in there}
    capsys.readouterr()
    back = make(**options, resume=there[0], progress=True)
    back.fit(loader(), epochs=2)
    said = capsys.readouterr()
    assert f"a new branch: {there[1].name}" in said.out + said.err
    newest = latest(tmp_path)
    assert newest is not None and newest.step == back.step < int(there[-1].name[-8:])
    again = make(**options, resume="auto")
    again.fit(loader(), epochs=4)
    assert again.history[: len(back.history)] == back.history and latest(tmp_path).step == again.step
    # The last one of what was abandoned is still there, under its own name or beside a new one of its step.
    kept = [(path / "manifest.sha256").read_text() for path in list_checkpoints(tmp_path)]
    assert old[there[-1].name] in kept


def test_auto_follows_a_branch_that_ended_before_its_first_checkpoint(tmp_path: Path) -> None:
    class Bomb(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            raise RuntimeError("bang")

    options: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_every": 2, "keep": 5}
    make(**options).fit(loader(), epochs=3)
    older = list_checkpoints(tmp_path)[0]
    with pytest.raises(RuntimeError, match="bang"):
        make(**options, resume=older, callbacks=[Bomb()]).fit(loader(), epochs=3)
    found = latest(tmp_path)
    assert found is not None and found.path == older


def test_an_old_run_is_not_overwritten(tmp_path: Path) -> None:
    make(checkpoint_dir=tmp_path).fit(loader(), epochs=1)
    with pytest.raises(CheckpointError, match="holds checkpoints of an earlier run. Go on with resume='auto'"):
        make(checkpoint_dir=tmp_path).fit(loader(), epochs=1)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("trainer", "epoch", "1"),
        ("trainer", "step", None),
        ("trainer", "history", {}),
        ("trainer", "tuning", {"ways": [1]}),
        ("random", "python", {}),
        ("random", "numpy", {"kind": "MT19937", "keys": np.zeros(3), "rest": ()}),
        ("callbacks", "0-EarlyStopping", {"best": [], "waited": 0, "weights": None}),
        ("callbacks", "0-EarlyStopping", {"best": 1.0, "waited": 0, "weights": 3}),
    ],
)
def test_a_part_of_another_form_is_a_checkpoint_error(tmp_path: Path, part: str, key: str, value: Any) -> None:
    options: dict[str, Any] = {"callbacks": [EarlyStopping("loss")]}
    make(checkpoint_dir=tmp_path / "a", **options).fit(loader(), epochs=1)
    found = open_checkpoint(tmp_path / "a")
    parts = found.load()
    parts[part][key] = value
    write_checkpoint(tmp_path / "b", found.step, parts, scores=found.scores, facts=found.facts)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        make(checkpoint_dir=tmp_path / "b", resume="auto", **options).fit(loader(), epochs=2)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    make(checkpoint_dir=tmp_path).fit(loader(), epochs=1)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        make(nn.Linear(4, 2), checkpoint_dir=tmp_path, resume="auto").fit(loader(), epochs=2)
    with pytest.raises(CheckpointError, match="belongs to another run.*batch_size was 10 and is 5"):
        make(checkpoint_dir=tmp_path, resume="auto").fit(loader(batch_size=5), epochs=2)
    with pytest.raises(CheckpointError, match="was written without ema, this trainer is with"):
        make(checkpoint_dir=tmp_path, resume="auto", ema=0.9).fit(loader(), epochs=2)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    whole = make(checkpoint_dir=tmp_path, checkpoint_every=3)
    whole.fit(loader(), epochs=2)
    last = list_checkpoints(tmp_path)[-1]
    os.truncate(last / "model.safetensors", 30)
    rest = make(checkpoint_dir=tmp_path, checkpoint_every=3, resume="auto")
    with pytest.warns(CheckpointWarning, match=f"{last.name} is damaged: model.safetensors has 30 bytes"):
        rest.fit(loader(), epochs=2)
    assert weights(rest) == weights(whole) and latest(tmp_path).step == 12


def test_a_full_disk_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    trainer = make(checkpoint_dir=tmp_path)
    trainer.fit(loader(), epochs=1)
    monkeypatch.setattr(checkpoint_module, "write_packed", full)
    with pytest.warns(
        CheckpointWarning, match=r"step-00000012 could not be written: the disk is full.*00000006, is intact"
    ):
        trainer.fit(loader(), epochs=2)
    assert trainer.checkpoint_failed and latest(tmp_path).step == 6 and len(trainer.history) == 2


def test_records_that_find_no_room_are_named_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("weft.train.callbacks.write_file", full)
    monkeypatch.setattr("weft.train.picture.draw_curves", full)
    monkeypatch.setattr("weft.io.SummaryWriter.scalars", full)
    trainer = make(log_dir=tmp_path / "log")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(loader(), epochs=3)
    assert trainer.step == 18
    said = sorted(str(w.message).partition(":")[0] for w in caught)
    assert said == ["CSVLogger", "LossCurve", "TensorBoard"]
    assert all("No space left on device. Training continues without it." in str(w.message) for w in caught)


def test_a_run_goes_on_with_another_number_of_threads_as_if_nothing_had_changed(tmp_path: Path) -> None:
    """Bits do not depend on it (`tests/models/test_thread_counts.py`), so there is nothing to warn about."""
    straight = make()
    straight.fit(loader(), epochs=2)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(3)
        make(checkpoint_dir=tmp_path).fit(loader(), epochs=1)
        assert latest(tmp_path).facts["threads"] == 3
        threads.set_num_threads(1)
        trainer = make(checkpoint_dir=tmp_path, resume="auto")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trainer.fit(loader(), epochs=2)
    finally:
        threads.set_num_threads(before)
    assert trainer.step == straight.step and weights(trainer) == weights(straight)


def test_ctrl_c_ends_after_the_step_with_a_checkpoint(tmp_path: Path) -> None:
    class Press(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            if trainer.step == 4:
                signal.raise_signal(signal.SIGINT)

    trainer = make(checkpoint_dir=tmp_path, callbacks=[Press()])
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(loader(), epochs=3)
    assert latest(tmp_path).step == 4 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    rest, whole = make(checkpoint_dir=tmp_path, resume="auto"), make()
    rest.fit(loader(), epochs=3)
    whole.fit(loader(), epochs=3)
    assert weights(rest) == weights(whole)


class Stream(IterableDataset):
    """Samples without a length, another order each epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.int64]]:
        for i in np.random.default_rng(self.epoch).permutation(60):
            yield X[i], Y[i]


def test_a_stream_trains_and_goes_on_from_the_middle_of_an_epoch(tmp_path: Path) -> None:
    class Break(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            if trainer.step == 9:
                raise RuntimeError("broken")

    out = Terminal()
    whole = make(progress=Progress(file=out))
    whole.fit(DataLoader(Stream(), batch_size=10), epochs=3)
    assert whole.step == 18 and "epoch 3/3" in out.getvalue()
    options = {"checkpoint_dir": tmp_path, "checkpoint_every": 4, "resume": "auto"}
    with pytest.raises(RuntimeError, match="broken"):
        make(callbacks=[Break()], **options).fit(DataLoader(Stream(), batch_size=10), epochs=3)
    rest = make(callbacks=[Callback()], **options)
    rest.fit(DataLoader(Stream(), batch_size=10), epochs=3)
    assert weights(rest) == weights(whole)


def test_in_another_thread() -> None:
    trainer = make()
    thread = threading.Thread(target=trainer.fit, args=(loader(),))
    thread.start()
    thread.join(60)
    assert trainer.step == 6


# Bad input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grad_accumulation": 0}, "grad_accumulation must be an integer of at least 1. Got 0"),
        ({"checkpoint_every": -1}, "checkpoint_every must be"),
        ({"schedule_every": "batch"}, "schedule_every must be 'epoch' or 'step'"),
        ({"clip_grad_norm": 0}, "clip_grad_norm must be positive"),
        ({"resume": "auto"}, "need a checkpoint_dir"),
        ({"metrics": ["nonsense"]}, "unknown metric"),
    ],
)
def test_bad_settings(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(**options)


def test_bad_arguments_of_fit() -> None:
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1. Got 0"):
        make().fit(loader(), epochs=0)
    with pytest.raises(ValueError, match="the training loader is empty"):
        make().fit([], epochs=1)
    with pytest.raises(ValueError, match="the loader to evaluate on is empty"):
        make().evaluate([])
    model = nn.Linear(4, 2)
    with pytest.raises(TypeError, match="loss must be a function"):
        Trainer(model, optim.SGD(model.parameters()), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be arrays .`fit.x, y.`., a Dataset or a DataLoader. Got NoneType"):
        make().fit(None)  # type: ignore[arg-type]


def test_parts_that_do_not_belong_together_are_refused() -> None:
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer, another = optim.SGD(model.parameters()), optim.SGD(other.parameters())
    with pytest.raises(ValueError, match="the optimizer has none of the model's parameters"):
        Trainer(model, another, nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="the scheduler belongs to another optimizer"):
        Trainer(model, optimizer, nn.CrossEntropyLoss(), scheduler=optim.lr_scheduler.StepLR(another, 1))
    with pytest.raises(TypeError, match="expected an optimizer of weft.optim. Got float"):
        Trainer(model, 0.1, nn.CrossEntropyLoss())
    with pytest.raises(TypeError, match="callbacks must be Callback objects. Got int"):
        make(callbacks=[3])


def test_a_number_to_monitor_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match="there is no 'val_los' to tell the best checkpoint by. There are loss, val_loss"
    ):
        make(checkpoint_dir=tmp_path, monitor="val_los").fit(loader(), loader(), epochs=1)


def test_tensorboard_of_a_resumed_run_hides_what_was_lost(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    make(checkpoint_dir=tmp_path / "c", callbacks=[TensorBoard(tmp_path / "t", every=1)]).fit(loader(), epochs=1)
    make(checkpoint_dir=tmp_path / "c", resume="auto", callbacks=[TensorBoard(tmp_path / "t", every=1)]).fit(
        loader(), epochs=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = reader.EventAccumulator(str(tmp_path / "t")).Reload().Scalars("loss/step")
    assert [s.step for s in found] == list(range(1, 13))


def test_csv_logger_makes_its_folder(tmp_path: Path) -> None:
    make(callbacks=[CSVLogger(tmp_path / "new" / "history.csv")]).fit(loader(), epochs=1)
    assert (tmp_path / "new" / "history.csv").read_text().startswith("epoch,step,loss\n1,6,")


@pytest.mark.parametrize("when", ["step", "validation", "last step"])
def test_sigterm_ends_with_a_checkpoint_that_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Preempt(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            if when == "step" and trainer.step == 5 or when == "last step" and trainer.step == len(loader()):
                signal.raise_signal(signal.SIGTERM)

    trainer = make(checkpoint_dir=tmp_path, callbacks=[Preempt()])
    if when == "validation":
        evaluate = trainer._steps.evaluate

        def preempted(batch: Any) -> Any:
            signal.raise_signal(signal.SIGTERM)
            return evaluate(batch)

        trainer._steps.evaluate = preempted
    with pytest.raises(SystemExit) as ended:
        trainer.fit(loader(), loader(), epochs=3)
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert "weft: terminated (SIGTERM) after step" in capsys.readouterr().err
    assert latest(tmp_path).step == (5 if when == "step" else len(loader()))
    rest, whole = make(checkpoint_dir=tmp_path, resume="auto"), make()
    rest.fit(loader(), loader(), epochs=3)
    whole.fit(loader(), loader(), epochs=3)
    assert weights(rest) == weights(whole)
    assert [row["val_loss"] for row in rest.history] == [row["val_loss"] for row in whole.history]


def test_sigterm_that_ended_the_loaders_workers_too_still_writes_a_checkpoint(tmp_path: Path) -> None:
    def batches() -> Any:
        for i, batch in enumerate(loader()):
            if i == 4:  # what a loader says whose worker the same signal has ended
                signal.raise_signal(signal.SIGTERM)
                raise RuntimeError("DataLoader: worker 0 was killed by signal 15 (SIGTERM).")
            yield batch

    class Batches:
        def __iter__(self) -> Any:
            return batches()

    trainer = make(checkpoint_dir=tmp_path)
    with pytest.raises(SystemExit) as ended:
        trainer.fit(Batches(), epochs=2)
    assert ended.value.code == 143 and latest(tmp_path).step == 4


def test_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    class Twice(Callback):
        def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
            if trainer.step == 2:
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)
                raise AssertionError("the second signal did not act")

    with pytest.raises(SystemExit):
        make(checkpoint_dir=tmp_path, callbacks=[Twice()]).fit(loader(), epochs=2)


def test_a_program_that_handles_sigterm_itself_keeps_its_handler(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:

        class Preempt(Callback):
            def on_step_end(self, trainer: Trainer, logs: dict[str, float]) -> None:
                if trainer.step == 2:
                    signal.raise_signal(signal.SIGTERM)

        make(checkpoint_dir=tmp_path, callbacks=[Preempt()]).fit(loader(), epochs=1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
