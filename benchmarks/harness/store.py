"""Results in one JSON document per machine, collected in pieces: sections of entries of rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import machine
from .report import Section


def add_arguments(parser: argparse.ArgumentParser, section: str) -> None:
    """Where results go."""
    parser.add_argument("--out", type=Path, default=Path("benchmark-results"), help="folder for JSON, table and chart")
    parser.add_argument("--merge", action="store_true", help="add to what the folder holds instead of starting over")
    parser.set_defaults(section=section)


def names(text: str, known: Iterable[str], what: str) -> list[str]:
    """Names with commas between them, each of which must be known."""
    found = [name for name in text.split(",") if name]
    choices = list(known)
    for name in found:
        if name not in choices:
            raise SystemExit(f"{name}: there is no such {what}. Known are {', '.join(choices)}.")
    return found


def path(args: argparse.Namespace) -> Path:
    return args.out / "results.json"


def load(args: argparse.Namespace) -> dict[str, Any]:
    """The document to add to: what was there with `--merge`; without it the other sections only."""
    document: dict[str, Any] = {"machine": machine.describe(), "sections": {}}
    if path(args).exists():
        found = json.loads(path(args).read_text())
        document["sections"] = found["sections"]
        if not args.merge:
            document["sections"].pop(args.section, None)
    return document


def put(document: dict[str, Any], section: str, name: str, result: dict[str, Any]) -> None:
    """Add a result. Rows that are measured again replace the earlier ones; rows of other runners stay."""
    entries = document["sections"].setdefault(section, {})
    old = entries.get(name)
    if old is None:
        entries[name] = result
        return
    for key in ("rows", "skipped", "failed"):
        for row in list(result.get(key, {})):
            for other in ("rows", "skipped", "failed"):
                old.get(other, {}).pop(row, None)
        old.setdefault(key, {}).update(result.get(key, {}))
    old["machine"] = old.get("machine", []) + result.get("machine", [])


def save(args: argparse.Namespace, document: dict[str, Any]) -> None:
    """Write the document, whole or not at all."""
    args.out.mkdir(parents=True, exist_ok=True)
    partial = path(args).with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(path(args))


def write_outputs(args: argparse.Namespace, document: dict[str, Any], section: Section) -> None:
    """The markdown table and its chart."""
    table, chart = args.out / f"{section.name}.md", args.out / f"{section.name}.svg"
    table.write_text(section.markdown(document))
    section.chart(document, chart)
    print(f"wrote {path(args)}, {table} and {chart}")


def command(
    argv: list[str] | None,
    about: str,
    arguments: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    section: Section,
    module: str,
) -> int:
    """`python -m benchmarks.<module>`: measure what the arguments say, write it unless only agreement was checked."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=about)
    arguments(parser)
    args = parser.parse_args(argv)
    document = measure(args)
    if args.rounds:
        write_outputs(args, document, section)
    return report_failures(document, section.name)


def report_failures(document: dict[str, Any], section: str) -> int:
    """Say what failed; the exit status."""
    failed = [
        f"{name}, {runner}: {why}"
        for name, result in document["sections"].get(section, {}).items()
        for runner, why in result["failed"].items()
    ]
    for line in failed:
        print(f"FAILED {line}")
    return 1 if failed else 0


def replace_block(text: str, name: str, block: str) -> str:
    """`text` with what stands between `<!-- name -->` and `<!-- end name -->` replaced."""
    start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no block {start} … {end}")
    return f"{before}{start}\n{block.strip()}\n{end}{after}"
