"""docs/papers.md: every row has a verdict, names tests and modules that exist, and quotes figures that are recorded."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
VERDICTS = {"works", "partly", "measured", "not yet"}


class Row(NamedTuple):
    number: int
    idea: str
    place: str
    verdict: str
    shown: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0].isdigit():
            assert len(cells) == 5, line
            found.append(Row(int(cells[0]), cells[1], cells[2], cells[3].strip("*"), cells[4].rstrip("| ")))
    return found


@cache
def functions_of(path: str) -> set[str]:
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}


def headings(path: Path) -> set[str]:
    toc = pytest.importorskip("markdown.extensions.toc")
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {toc.slugify(title.replace("`", ""), "-") for title in titles}


def test_there_are_ninety_rows_and_each_has_a_verdict() -> None:
    found = rows()
    assert [row.number for row in found] == list(range(1, len(found) + 1)) and len(found) >= 90
    assert {row.verdict for row in found} == VERDICTS
    assert all(row.idea and row.place for row in found)
    assert len({row.idea for row in found}) == len(found)


def test_what_works_names_tests_that_exist_and_what_does_not_says_what_is_missing() -> None:
    wrong = []
    for row in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.shown)
        missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]
        if missing or bool(named) != (row.verdict in ("works", "partly")):
            wrong.append((row.number, row.idea, missing))
        said = re.sub(r"`tests/[^`]*`[,.]?", "", row.shown).strip()
        if row.verdict in ("partly", "not yet") and not said:
            wrong.append((row.number, row.idea, "does not say what is missing"))
    assert not wrong


def test_every_test_of_the_papers_is_in_a_row() -> None:
    text = PAGE.read_text()
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_page.py"]
    assert len(files) == 6
    for path in files:
        name = str(path.relative_to(ROOT))
        assert [t for t in functions_of(name) if t.startswith("test_") and f"`{name}::{t}`" not in text] == []


def test_figures_are_those_of_the_page_that_records_them() -> None:
    measured = [row for row in rows() if row.verdict == "measured"]
    assert len(measured) >= 4
    for row in measured:
        (target,) = re.findall(r"\]\((\w+\.md)#", row.place)
        recorded = (PAGE.parent / target).read_text()
        figures = re.findall(r"\*\*([^*]+)\*\*", row.place)
        assert figures, row
        stale = [figure for figure in figures if figure not in recorded]
        assert not stale, f"row {row.number}: {stale} are not in docs/{target}; copy the new figures"
        (script,) = re.findall(r"`(benchmarks/[\w/]+\.py)`", row.shown)
        assert (ROOT / script).is_file()


def test_links_and_modules_resolve() -> None:
    text = PAGE.read_text()
    wrong = []
    for target, anchor in re.findall(r"\]\(([\w/-]+\.md)(?:#([\w-]+))?\)", text):
        path = PAGE.parent / target
        if not path.is_file() or (anchor and anchor not in headings(path)):
            wrong.append(f"{target}#{anchor}")
    for module in re.findall(r"`(weft(?:\.\w+)+)`", text):
        path = ROOT / module.replace(".", "/")
        if not path.with_suffix(".py").is_file() and not path.is_dir():
            wrong.append(module)
    assert not wrong
