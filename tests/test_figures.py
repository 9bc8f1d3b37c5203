"""Drawings: the figures of the documentation are those of their data, layouts are readable, files are well formed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import weft as wf
from tools import figures
from weft.graph.declared.layout import layered
from weft.train.callbacks import LossCurve
from weft.train.picture import draw_curves
from weft.waterfall import waterfall


def test_charts_and_profile_of_the_docs_are_those_of_their_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = figures.FIGURES
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    figures.charts()
    figures.profile()
    figures.distributed_step()
    for path in tmp_path.iterdir():
        assert path.read_text() == (drawn / path.name).read_text(), f"{path.name} is stale: `python -m tools.figures`"
    assert {path.name for path in tmp_path.iterdir()} == {"training.svg", "inference.svg", "profile.svg", "step.svg"}


def test_layered_boxes_do_not_overlap_and_edges_point_down() -> None:
    widths = {name: 40.0 + 10 * i for i, name in enumerate("abcdefgh")}
    edges = [tuple(e) for e in ("ac", "bc", "cd", "ad", "de", "df", "eg", "fg", "bh", "gh")]
    layout = layered(widths, edges)
    for start, end in zip(widths, list(widths)[1:]):
        assert layout.boxes[start] != layout.boxes[end]
    for layer in range(layout.layers):
        row = sorted(
            (x - widths[str(n)] / 2, x + widths[str(n)] / 2) for n, (x, y) in layout.boxes.items() if y == layer
        )
        assert all(left[1] < right[0] for left, right in zip(row, row[1:]))
        assert row[0][0] >= -1e-6 and row[-1][1] <= layout.width + 1e-6
    for (source, target), points in zip(edges, layout.edges, strict=True):
        assert points[0] == layout.boxes[source] and points[-1] == layout.boxes[target]
        assert [y for _, y in points] == list(range(points[0][1], points[-1][1] + 1))
        for x, y in points[1:-1]:  # a long edge passes beside the boxes of the layers between
            assert all(abs(x - at) > widths[str(n)] / 2 for n, (at, layer) in layout.boxes.items() if layer == y)


def test_two_edges_that_cross_are_untangled() -> None:
    layout = layered(dict.fromkeys("abcd", 30.0), [("a", "d"), ("b", "c")])
    (a, _), (b, _), (c, _), (d, _) = (layout.boxes[n] for n in "abcd")
    assert (a - b) * (d - c) > 0


def test_a_graph_drawing_names_inputs_constants_and_results(tmp_path: Path) -> None:
    f = wf.function(lambda x: wf.exp(x @ x) * 0.5)
    f(wf.ones(3, 3))
    text = f.graph.draw(tmp_path / "g.svg").read_text()
    ElementTree.fromstring(text)
    for word in ("argument0", "matmul", "multiply 0.5", "(3, 3)", "orange-tint", "test_figures.py:"):
        assert word in text
    assert str(Path(__file__).parent) not in text  # a drawing is shared: no paths of this machine
    declared = wf.Graph("declared")
    with declared.as_default():
        value, _ = wf.merge(wf.enter(wf.placeholder(wf.float32, (), name="start"), "loop"))
        _, body = wf.switch(value, value < 10.0)
        wf.next_iteration(body * 2.0, value)  # an edge back to `merge`
        w = wf.Variable(wf.zeros(2), name="w")
        wf.group(w.assign_add(1.0), w.assign_sub(1.0))
    text = declared.draw(tmp_path / "declared.svg").read_text()
    ElementTree.fromstring(text)
    assert text.count("marker-start=") == 1 and text.count("edge control") == 2
    empty = wf.Graph()
    ElementTree.fromstring(empty.draw(tmp_path / "empty.svg").read_text())


def test_a_profile_is_drawn_with_its_longest_spans(tmp_path: Path) -> None:
    with wf.profile(tmp_path / "trace.json") as p:
        for _ in range(6):
            wf.ones(8).exp()
    ElementTree.fromstring(p.draw(tmp_path / "p.svg").read_text())
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == p.spans
    spans = [
        {"name": f"k<{i}>", "cat": "kernel", "ts": 10.0 * i, "dur": 1.0 + i, "args": {"lines": []}} for i in range(5)
    ]
    text = waterfall(spans, limit=2)
    ElementTree.fromstring(text)
    assert "k&lt;4&gt;" in text and "k&lt;0&gt;" not in text and "and 3 shorter ones, 6 µs" in text
    ElementTree.fromstring(waterfall([]))
    with pytest.raises(ValueError, match=r"ending in \.svg. Got 'p.png'"):
        p.draw(tmp_path / "p.png")


def test_a_loss_curve_is_labelled_at_its_ends(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [{"epoch": i, "step": 10 * i, "loss": 1.0 / i, "val_loss": 1.0 / i + 0.001} for i in (1, 2, 3)]
    assert draw_curves(tmp_path / "loss.svg", [(1, 2.0), (30, float("nan"))], rows)
    text = (tmp_path / "loss.svg").read_text()
    ElementTree.fromstring(text)
    assert "train 0.333" in text and "validation 0.334" in text and "prefers-color-scheme: dark" in text
    assert draw_curves(tmp_path / "loss.png", [], [{"step": 1, "loss": float("nan")}])
    assert LossCurve(tmp_path / "x.svg").place().suffix == ".svg"
