"""Type checkers see the whole public API: a correct program passes, and each kind of mistake in it is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")

# A line of the program, the mistaken form of it, and a word of what both checkers must say about it.
MISTAKES = {
    "wrong_function": ("wf.sqrt(wf.abs(y))", "wf.sqroot(wf.abs(y))", "sqroot"),
    "wrong_method": ("y.flatten()", "y.flaten()", "flaten"),
    "wrong_keyword": ("F.log_softmax(self.leave(y), axis=-1)", "F.log_softmax(self.leave(y), axes=-1)", "axes"),
    "wrong_type": ('wf.einsum("ij,jk->ik", y, matrix)', "wf.einsum(3, y, matrix)", "einsum"),
    "wrong_tensor": ("wf.argsort(y, axis=1", 'wf.argsort("y", axis=1', "argsort"),
    "wrong_result": ("features: wf.Tensor = net(image)", "features: str = F.relu(image)", "Tensor"),
    "wrong_operand": ("wf.no_grad():\n        x -= 0.1 * again", 'wf.no_grad():\n        x -= "0.1"', "Tensor"),
    "wrong_layer_size": ("nn.Conv2d(3, 8, 3, padding=1)", "nn.Conv2d(3, 8, 3.5, padding=1)", "float"),
    "wrong_parameters": ("optim.AdamW(model.parameters(),", "optim.AdamW(model.parameters,", "Iterable"),
    "wrong_module": ("nn.LayerNorm(width)", "nn.LayerNrom(width)", "LayerNrom"),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with the program and one copy of it per mistake."""
    folder = tmp_path_factory.mktemp("typing")
    text = PROGRAM.read_text()
    (folder / "correct.py").write_text(text)
    for name, (right, wrong, _) in MISTAKES.items():
        assert text.count(right) == 1, f"the program must contain {right!r} once"
        (folder / f"{name}.py").write_text(text.replace(right, wrong))
    return folder


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT)}


@pytest.fixture(scope="module")
def reported(request, programs):
    """What a checker says, by file name."""
    found = {path.stem: [] for path in programs.glob("*.py")}
    if request.param == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
        command += ["--config-file=", f"--cache-dir={programs / 'cache'}", "--scripts-are-modules", str(programs)]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=110)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        for line in done.stdout.splitlines():
            if ": error:" in line:
                found[Path(line.split(":")[0]).stem].append(line)
    else:
        settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "include": ["."]}
        (programs / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(
            [*command, "--project", str(programs)], env=_environment(), capture_output=True, text=True, timeout=110
        )
        for item in json.loads(done.stdout)["generalDiagnostics"]:
            if item["severity"] == "error":
                found[Path(item["file"]).stem].append(item["message"])
    return found


CHECKERS = pytest.mark.parametrize("reported", ["mypy", "basedpyright"], indirect=True)


@CHECKERS
def test_a_correct_program_passes(reported):
    assert reported["correct"] == []


@CHECKERS
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported(reported, mistake):
    assert any(MISTAKES[mistake][2] in message for message in reported[mistake]), reported[mistake]


def test_the_program_runs():
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=_environment(), capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
