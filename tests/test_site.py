"""The documentation site: it builds without a warning, every public name has an entry, links between pages resolve."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tools import reference
from tools.stubs import record_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `strict: true` in mkdocs.yml makes an error of a link or anchor that leads nowhere."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(target)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_public_name_has_an_entry(site: Path) -> None:
    anchors = set()
    for page in (site / "reference").glob("*.html"):
        anchors |= set(re.findall(r'id="(weft[\w.]*)"', page.read_text()))
    missing = [f"weft.{name}" for name in weft.__all__ if not _is_module(name) and f"weft.{name}" not in anchors]
    for name in reference.MODULES:
        module = reference.module_of(name)
        missing += [f"weft.{name}.{n}" for n in reference.exports(module) if f"weft.{name}.{n}" not in anchors]
    assert missing == []


def test_every_op_is_on_the_page_of_its_family() -> None:
    pages = list(reference.pages())
    others = next(page for page in pages if page.path == "reference/rest.md")
    assert [path for path, value in others.entries if record_of(value) is not None] == []
    titles = [page.title for page in pages]
    assert len(titles) == len(set(titles))
    assert [name for name in weft.__all__ if _is_module(name) and name not in reference.MODULES] == []


def test_types_are_shown_as_they_are_defined() -> None:
    types = next(reference.render(page) for page in reference.pages() if page.path == "reference/weft.typing.md")
    assert "ShapeLike = int | Sequence[int]\n```\n\nA shape as users write it" in types


def test_examples_keep_the_layout_of_their_output() -> None:
    text = reference.markdown("One.\n\n    >>> f(2)\n    tensor([[1, 2],\n            [1, 2]])\n\nMore.")
    assert ">>> f(2)\ntensor([[1, 2],\n        [1, 2]])\n```" in text


def _is_module(name: str) -> bool:
    return type(getattr(weft, name)).__name__ == "module"


def test_pages_need_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert not [url for url in loaded if "canonical" not in url], f"{page.name} loads {loaded}"


def test_search_finds_a_function(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert "cross_entropy" in index and "while_loop" in index
