"""Draws the figures of the documentation: `python -m tools.figures` writes docs/figures/*.svg.

Benchmark charts are drawn from the tables of docs/performance.md, the profile from the trace in docs/figures/profile.json.
The loss curve and the graph are those of the programs on the pages that show them; both are deterministic up to rounding.
`--record` measures the profile's trace again: one training step of the benchmarks' MLP, the quickest of many.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import weft as wf
from benchmarks.harness.chart import bars, ratios
from benchmarks.table import CHARTS
from weft import nn, optim
from weft.data import DataLoader, digits
from weft.nn import functional as F
from weft.train.picture import draw_curves
from weft.waterfall import waterfall

from . import step_figure

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"
TRACE = FIGURES / "profile.json"


def charts() -> None:
    """The ratios of the performance page as bars."""
    page = PAGE.read_text(encoding="utf-8")
    for name, section in CHARTS.items():
        block = page.partition(f"<!-- {name} -->")[2].partition(f"<!-- end {name} -->")[0]
        (FIGURES / f"{name}.svg").write_text(bars(ratios(block), section.claim), encoding="utf-8")


def profile() -> None:
    spans = json.loads(TRACE.read_text(encoding="utf-8"))
    (FIGURES / "profile.svg").write_text(waterfall(spans, limit=12), encoding="utf-8")


def record() -> None:
    """Measure the trace that `profile` draws."""
    wf.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @wf.function
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = wf.randn(128, 784), wf.randint(0, 10, (128,))
    traces = []
    for _ in range(500):
        with wf.profile() as found:
            step(x, y)
        traces.append(found.spans)
    best = min(traces[10:], key=lambda spans: spans[-1]["ts"] + spans[-1]["dur"] - spans[0]["ts"])
    start = best[0]["ts"]
    spans = [
        {
            "name": s["name"],
            "cat": s["cat"],
            "ts": round(s["ts"] - start, 3),
            "dur": round(s["dur"], 3),
            "args": s["args"],
        }
        for s in best
    ]
    TRACE.write_text("[\n" + ",\n".join(json.dumps(span) for span in spans) + "\n]\n", encoding="utf-8")


def loss_curve() -> None:
    """The first epochs of docs/index.md's network, with the losses of a test set."""
    wf.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 16, 10)
    )
    trainer = wf.Trainer(model, optim.AdamW(model.parameters(), lr=3e-3), nn.CrossEntropyLoss(), progress=False)
    test = digits("test")
    train = DataLoader(digits("train"), batch_size=64, shuffle=True, seed=0)
    rows = trainer.fit(train, DataLoader(test, batch_size=len(test)), epochs=12)
    shown = [{name: row[name] for name in ("step", "loss", "val_loss")} for row in rows]
    draw_curves(FIGURES / "loss.svg", [], shown)


def graph() -> None:
    """The graph of the training step in docs/architecture.md."""
    w = wf.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)

    def step(x: Any) -> Any:
        loss = wf.sum(wf.exp(x @ w) * 0.5)
        w.grad = None
        loss.backward()
        with wf.no_grad():
            w.sub_(0.1 * w.grad)
        return loss

    captured = wf.function(step)
    captured(wf.tensor([[1.0, 2.0]]))
    captured.graph.draw(FIGURES / "graph.svg")


def distributed_step() -> None:
    (FIGURES / "step.svg").write_text(step_figure.step(), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="measure the profile's trace again")
    FIGURES.mkdir(exist_ok=True)
    if parser.parse_args(argv).record:
        record()
    for draw in (charts, profile, loss_curve, graph, distributed_step):
        draw()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
