"""Every Python block in the documentation runs.

The ```python blocks of one file run in order, in one namespace and in an empty directory, as a reader would type them.
A block is left out only if the line before its fence is `<!-- no-run -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIP = "<!-- no-run -->"
SECONDS_PER_FILE = 100
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)")


def documents() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md") if (ROOT / name).exists()]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(number of its first line, code) of each block that runs."""
    blocks = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != "```":
            number += 1
        before = next((line.strip() for line in reversed(lines[: start - 1]) if line.strip()), "")
        if fence["language"] == "python" and before != SKIP:
            indent = len(fence["indent"])
            blocks.append((start + 1, "\n".join(line[indent:] for line in lines[start:number])))
        number += 1
    return blocks


def script_of(path: Path) -> str:
    """One program of all blocks, each on the line it has in the document, so that tracebacks point there."""
    lines: list[str] = []
    for start, code in python_blocks(path.read_text()):
        lines += [""] * (start - 1 - len(lines))
        lines += code.splitlines()
    return "\n".join(lines)


def run(path: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the document's blocks in a new process."""
    program = (
        "import sys\n"
        "path, source = sys.argv[1], sys.stdin.read()\n"
        "exec(compile(source, path, 'exec'), {'__name__': '__main__', '__file__': path})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(path)],
        input=script_of(path),
        cwd=directory,
        env=environment,
        text=True,
        capture_output=True,
        timeout=SECONDS_PER_FILE,
        check=False,
    )


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_documents_code_runs(path: Path, tmp_path: Path) -> None:
    done = run(path, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_blocks_are_found_skipped_and_numbered() -> None:
    text = (
        "# Title\n\n```python\na = 1\n```\ntext\n<!-- no-run -->\n```python\nfail()\n```\n"
        "```sh\nls\n```\n  ```python\n  b = 2\n  ```\n"
    )
    assert python_blocks(text) == [(4, "a = 1"), (15, "b = 2")]


def test_a_failing_block_is_reported_at_its_line(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("intro\n\n```python\nx = 1\n```\n\nmore\n\n```python\nassert x == 2\n```\n")
    done = run(document, tmp_path)
    assert done.returncode == 1
    assert f'{document}", line 10' in done.stderr and "AssertionError" in done.stderr


def test_links_to_files_of_the_project_lead_somewhere() -> None:
    missing = []
    for path in documents():
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
            generated = target.startswith("reference/") or target == "changelog.md"  # tests/test_site.py checks those
            outside = "://" in target or target.startswith("mailto:")
            if not outside and not generated and not (path.parent / target).exists():
                missing.append(f"{path.relative_to(ROOT)}: {target}")
    assert missing == []
