"""The whole comparison in one command: training, inference and the rest, with tables and charts.

    python -m benchmarks.table --peers FOLDER --minutes 120 --out RESULTS [--write docs/performance.md]

`FOLDER` holds a virtual environment per framework (torch, jax, tf, paddle, mlx, ort); those that are missing are skipped.
Results are collected in RESULTS/results.json. Pieces can be measured one after the other with `--merge`; with `--sections`
left empty only the tables are made. `--write` puts them between the marks `<!-- training -->` … `<!-- end training -->` of
a page (at its end, where it has none), and the charts in the folder `figures` beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.extras import __main__ as extras
from benchmarks.harness import peers, store
from benchmarks.inference import __main__ as inference
from benchmarks.models import __main__ as training
from benchmarks.models.runners import SECTION as TRAINING

CHARTS = {section.name: section for section in (TRAINING, inference.SECTION)}
HEADINGS = {"training": "Training", "inference": "Inference", "extras": "Everything else"}
# of the time given; the extras take as long as they need
SHARES = {"training": 0.7, "inference": 0.15, "extras": 0.15}


def arguments() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", default=",".join(SHARES), help="training,inference,extras (all)")
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="for everything, approximately; with fewer, fewer rounds"
    )
    parser.add_argument("--models", help="training: names, with commas (all)")
    parser.add_argument("--runners", help="training: names, with commas (all)")
    parser.add_argument("--cases", help="inference: names, with commas (all)")
    parser.add_argument("--parts", help="extras: names, with commas (all)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a markdown page to put the tables in")
    store.add_arguments(parser, "")
    peers.add_arguments(parser)
    return parser


def passed_on(args: argparse.Namespace, *names: str) -> list[str]:
    """Options in the form another command reads them."""
    shared = ("out", "peers", *peers.FRAMEWORKS)
    found = [f"--{name}={getattr(args, name)}" for name in (*shared, *names) if getattr(args, name) is not None]
    return [*found, *(["--merge"] if args.merge else [])]


def write_page(args: argparse.Namespace) -> None:
    """Put the tables in the page and the charts in the folder `figures` beside it."""
    args.section, args.merge = "", True
    document = store.load(args)
    tables = {
        "training": TRAINING.markdown(document), "inference": inference.SECTION.markdown(document),
        "extras": extras.markdown(document),
    }  # fmt: skip
    text = args.write.read_text(encoding="utf-8")
    for name, table in tables.items():
        if name not in document["sections"]:
            continue
        if name in CHARTS:
            figures = args.write.parent / "figures"
            figures.mkdir(exist_ok=True)
            CHARTS[name].chart(document, figures / f"{name}.svg")
            table = f"![{CHARTS[name].claim}](figures/{name}.svg)\n\n{table}"
        if f"<!-- {name} -->" not in text:
            text += f"\n## {HEADINGS[name]}\n\n<!-- {name} -->\n<!-- end {name} -->\n"
        text = store.replace_block(text, name, table)
    args.write.write_text(text, encoding="utf-8")
    print(f"wrote {args.write}")


def main(argv: list[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    sections = store.names(args.sections, SHARES, "section")
    total = sum(SHARES[name] for name in sections)
    status = 0
    for name in sections:
        minutes = f"--minutes={args.minutes * SHARES[name] / total}"
        if name == "training":
            status |= training.main([*passed_on(args, "models", "runners"), minutes])
        elif name == "inference":
            status |= inference.main([*passed_on(args, "cases"), minutes])
        else:
            status |= extras.main(passed_on(args, "parts"))
    if args.write:
        write_page(args)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
