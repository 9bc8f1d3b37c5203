"""The `weft` command."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import cli
from weft.io import checkpoint

CONFIG = """\
[model]
name = "mlp"
hidden = [16]
[data]
name = "digits"
batch_size = 256
[optimizer]
name = "adam"
lr = 0.01
[schedule]
name = "cosine"
[train]
epochs = 2
"""

TEXT = """\
[model]
name = "gpt"
block_size = 8
n_layer = 1
n_head = 2
n_embd = 8
[data]
name = "text"
path = "tiny.txt"
batch_size = 64
test_fraction = 0.2
[train]
epochs = 1
capture = false
"""


def run(*arguments: str) -> int:
    return cli.main([str(a) for a in arguments])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which a small model was trained."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "small.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("train", "small.toml") == 0
    return folder


def test_info_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    assert weft.__version__ in capsys.readouterr().out
    assert cli.main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weft"]["version"] == weft.__version__


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0 and weft.__version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["no-such-command"], ["info", "--no-such-option"], ["train"], ["train", "digits", "--epochs", "0"],
        ["train", "digits", "--workers", "-1"], ["predict", "x", "--temperature", "nan"], ["summary"],
        ["predict", "x", "--length", "many"],
    ],
)  # fmt: skip
def test_a_wrong_command_line_ends_with_status_2_and_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(arguments)
    assert done.value.code == 2 and "usage: weft" in capsys.readouterr().err


def test_train_leaves_a_run_and_two_lines_that_work(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained / "runs" / "small"
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG") and (folder / "history.csv").exists()
    assert len(list((folder / "checkpoints").glob("step-*"))) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(trained)
        assert run("train", "small.toml", "--out", "runs/small") == 0  # finished: says so again, trains nothing
        assert run("train", "small.toml", "--epochs", "1") == 0  # a new run gets a new folder
    out = capsys.readouterr().out
    assert "test accuracy" in out and (trained / "runs" / "small-2").is_dir()
    lines = out.partition("use it from Python:\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) == 2
    program = "\n".join(line.removeprefix("    ") for line in lines)
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=trained, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("tensor(["), done.stderr


def test_an_interrupted_run_says_what_to_type_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(CONFIG)
    step, calls = weft.Trainer._after_step, itertools.count(1)

    def press_ctrl_c(self: Any, loss: float) -> None:
        step(self, loss)
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(weft.Trainer, "_after_step", press_ctrl_c)
    assert run("train", "small.toml", "--epochs", "3", "--eager") == 130
    said = capsys.readouterr().err
    assert "interrupted; `weft train small.toml --out runs/small --epochs 3 --eager` resumes" in said
    # as it says, but that the number of loader processes changes nothing in the batches
    assert run("train", "small.toml", "--out", "runs/small", "--epochs", "3", "--eager", "--loaders", "1") == 0
    assert "going on from runs/small/checkpoints/step-00000003" in "".join(capsys.readouterr())


def test_a_terminated_run_keeps_its_checkpoint_and_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(CONFIG)
    step, calls = weft.Trainer._after_step, itertools.count(1)

    def preempt(self: Any, loss: float) -> None:
        step(self, loss)
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(weft.Trainer, "_after_step", preempt)
    assert run("train", "small.toml", "--epochs", "3", "--eager") == 143
    said = capsys.readouterr().err
    assert "weft: terminated (SIGTERM) after step 3" in said
    assert "`weft train small.toml --out runs/small --epochs 3 --eager` resumes" in said
    assert (tmp_path / "runs" / "small" / "checkpoints" / "step-00000003").exists()


def test_train_with_other_settings_does_not_go_on(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", trained / "small.toml", "--out", trained / "runs" / "small", "--lr", "0.5") == 2
    assert "a finished run with other settings (optimizer.lr)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lr", "-1"], "weft: --lr: Adam: lr must not be negative. Got -1.0."),
        (["--out", "small.toml"], "weft: [Errno 20] Not a directory: 'small.toml/checkpoints'"),
    ],
)
def test_train_ends_in_one_line(
    trained: Path, options: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert run("train", "small.toml", "--eager", *([] if "--out" in options else ["--out", "bad"]), *options) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(words)


def test_a_full_disk_is_reported_with_status_1(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = checkpoint.write_packed, itertools.count()

    def full(*arguments: Any) -> int:
        if next(calls) > 6:  # the files of the first checkpoint fit
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.chdir(trained)
    monkeypatch.setattr(checkpoint, "write_packed", full)
    monkeypatch.setattr("warnings.filters", [("default", None, Warning, None, 0)])
    assert run("train", "small.toml", "--eager", "--out", "full") == 1
    captured = capsys.readouterr()
    assert "weft: checkpoint: full/checkpoints/step-00000012 could not be written: the disk is full" in captured.err
    assert (
        "the last checkpoint could not be written" in captured.err and "full/checkpoints/step-00000006" in captured.out
    )


def test_train_shows_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "digits", "--show") == 0
    assert '[model]\nname = "lenet"' in capsys.readouterr().out


def test_predict_a_sample_a_picture_and_an_array(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image_module = pytest.importorskip("PIL.Image")
    place = trained / "runs" / "small"
    assert run("predict", place, "--index", "3") == 0
    out = capsys.readouterr().out
    assert "true class           2" in out and out.count("%\n") == 3 and len(out.splitlines()) == 8 + 4
    image = np.asarray(weft.data.digits("test")[3][0])
    np.save(tmp_path / "image.npy", image)
    assert run("predict", place / "checkpoints", tmp_path / "image.npy") == 0
    assert capsys.readouterr().out.splitlines() == out.splitlines()[:-1]
    image_module.fromarray((image[0] * 255).astype(np.uint8)).resize((64, 64)).save(tmp_path / "image.png")
    assert run("predict", place, tmp_path / "image.png") == 0
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_predict_says_what_is_wrong(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = trained / "runs" / "small"
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "large.npy", np.zeros((9, 9)))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    for arguments, words in (
        (["nowhere", "--index", "0"], "there is no nowhere"),
        ([tmp_path, "--index", "0"], "is no checkpoint and holds none"),
        ([place], "give an image file, or --index"),
        ([place, "--index", "999"], "there is no sample 999. The test data have 359"),
        ([place, "--prompt", "x"], "tells classes of images"),
        ([place, tmp_path / "gone.png"], "there is no such file"),
        ([place, tmp_path / "text.png"], "cannot be read as a picture"),
        ([place, tmp_path / "cut.npy"], "is not a complete .npy file"),
        ([place, tmp_path / "large.npy"], "expected an array of shape (1, 8, 8). Got (9, 9)"),
        ([place, tmp_path / "words.npy"], "expected numbers"),
    ):
        assert run("predict", *arguments) == 2, arguments
        captured = capsys.readouterr()
        assert words in captured.err and captured.err.startswith("weft: ") and captured.out == "", arguments


def test_a_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.txt").write_text("the cat sat on the mat. " * 20)
    (tmp_path / "lm.toml").write_text(TEXT)
    assert run("train", "lm.toml") == 0
    assert "test loss" in capsys.readouterr().out
    for _ in range(2):
        assert run("predict", "runs/lm", "--prompt", "the c", "--length", "20", "--seed", "1") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.startswith("the c") and len(first) <= 25
    assert run("predict", "runs/lm", "--prompt", "Zebra") == 2
    assert "characters that the model does not know: 'Z" in capsys.readouterr().err
    assert run("predict", "runs/lm", "--index", "0") == 2
    assert run("predict", "runs/lm", "nowhere.txt") == 2
    assert run("predict", "runs/lm") == 2
    assert run("predict", "runs/lm", "tiny.txt", "--length", "5", "--temperature", "0", "--top-k", "3") == 0


def test_summary(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("summary", "lenet") == 0
    assert "61,706" in capsys.readouterr().out
    assert run("summary", trained / "runs" / "small") == 0 == run("summary", "mlp", "--input", "2,64", "--depth", "1")
    assert "1,210" in capsys.readouterr().out  # 64 x 16 + 16 + 16 x 10 + 10
    assert run("summary", "vit_tiny", "--depth", "1") == 0
    assert "input (1, 3, 32, 32)" in capsys.readouterr().out
    for arguments, words in (
        (["lennet"], "Did you mean 'lenet'?"),
        (["lenet", "--input", "1,3,28,28"], "does not take an input of shape (1, 3, 28, 28): conv1: "),
        (["lenet", "--input", "1;3"], "expected sizes such as"),
        (["lenet", "--input", "0,3"], "expected positive sizes"),
    ):
        assert run("summary", *arguments) == 2
        assert words in capsys.readouterr().err


def test_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "tiny.py").write_text(
        '"""Measures nothing.\n\nMore."""\nimport sys\nprint("ran", *sys.argv[1:])\n'
    )
    monkeypatch.chdir(tmp_path)
    assert run("bench") == 0
    assert "tiny  Measures nothing." in capfd.readouterr().out
    assert run("bench", "tiny", "--size", "3") == 0
    assert capfd.readouterr().out == "ran --size 3\n"
    assert run("bench", "tinny") == 2
    assert "Did you mean 'tiny'?" in capfd.readouterr().err
    monkeypatch.setattr("weft.commands.bench.find", lambda: None)
    assert run("bench") == 0 and run("bench", "tiny") == 1
    assert "microseconds per eager op" in capfd.readouterr().out
