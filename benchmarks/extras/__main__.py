"""Measure the rest: see `python -m benchmarks.extras --help`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.harness import machine, peers, store

from . import beside, chain, compiling, dispatching, installing, roofline, scaling
from .context import Context, Row

PARTS: dict[str, Any] = {
    "dispatch": dispatching, "compile": compiling, "chain": chain, "install": installing, "threads": scaling,
    "busy": beside, "roofline": roofline,
}  # fmt: skip


def table(title: str, rows: list[dict[str, Any]]) -> str:
    """A markdown table with all columns that a row has."""
    columns = list(dict.fromkeys(c for row in rows for c in row["figures"]))
    lines = [f"{title}:", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        lines.append(f"| {row['what']} | " + " | ".join(row["figures"].get(c, "–") for c in columns) + " |")
    return "\n".join(lines) + "\n"


def markdown(document: dict[str, Any]) -> str:
    """All parts that were measured."""
    found = document["sections"].get("extras", {})
    return "\n".join(table(PARTS[name].TITLE, found[name]["table"]) for name in PARTS if name in found)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--parts", default=",".join(PARTS), help="names, with commas (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each timing")
    parser.add_argument("--small", default="mlp", help="models for quick measurements, with commas")
    parser.add_argument("--large", default="resnet50", help="image models for long ones, with commas")
    store.add_arguments(parser, "extras")
    peers.add_arguments(parser)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The chosen parts; results are saved after each."""
    split = lambda text: tuple([name for name in text.split(",") if name])
    context = Context(peers.interpreters(args), split(args.small), split(args.large), args.seconds)
    document = store.load(args)
    for name in store.names(args.parts, PARTS, "part"):
        load, before = os.getloadavg()[0], machine.sample([])
        failed = {}
        rows: list[Row] = []
        try:
            if name == "roofline":
                rows = roofline.measure(context, document["sections"].get("training"))
            else:
                rows = PARTS[name].measure(context)
        except RuntimeError as error:  # a worker or a child: said, and the other parts go on
            failed = {name: str(error)}
            print(f"{name}: FAILED, {error}", file=sys.stderr, flush=True)
        business = machine.between(before, machine.sample([]), load)
        result = {"rows": {}, "skipped": {}, "failed": failed, "machine": [business.facts()]}
        document["sections"].setdefault("extras", {})[name] = {**result, "table": [asdict(row) for row in rows]}
        store.save(args, document)
        print(table(PARTS[name].TITLE, [asdict(row) for row in rows]) + f"  {business}\n", flush=True)
    return document


def main(argv: list[str] | None = None) -> int:
    about = "Dispatch, compile time, size, threads, busy machines, roofline."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extras", description=about)
    arguments(parser)
    args = parser.parse_args(argv)
    document = measure(args)
    (args.out / "extras.md").write_text(markdown(document))
    print(f"wrote {store.path(args)} and {args.out / 'extras.md'}")
    return store.report_failures(document, "extras")


if __name__ == "__main__":
    raise SystemExit(main())
