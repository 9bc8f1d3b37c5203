"""Programs written for PyTorch run with their import lines changed and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).with_name("torch_programs").glob("*.py"))
IMPORTS = [
    (r"^import torch$", "import weft as torch"),
    (r"^(import|from) torch\.", r"\1 weft."),
    (r"^from torch ", "from weft "),
]


def translated(text: str) -> str:
    """A program with the import lines of Weft."""
    for pattern, replacement in IMPORTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_for_pytorch_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = translated(path.read_text())
    assert "weft" in text and not re.search(r"^(import|from) torch", text, re.MULTILINE)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of the real one raises
    exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
