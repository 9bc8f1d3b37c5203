"""Plots the loss and the metrics of a training run with matplotlib."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_warned = False
_INK, _MUTED, _RULE = "#1f2328", "#59636e", "#d1d9e0"
_BLUE, _ORANGE, _LIGHT_BLUE = (
    "#0072b2",
    "#d55e00",
    "#a6cee3",
)  # after Okabe and Ito: colour-blind readers tell them apart
# In an SVG every colour has a counterpart for pages with a dark background.
_DARK = {
    _INK: "#e6edf3", _MUTED: "#9aa4af", _RULE: "#3d444d", _BLUE: "#56b4e9", _ORANGE: "#e69f00", _LIGHT_BLUE: "#33607d",
}  # fmt: skip
_NOT_DRAWN = ("epoch", "step", "loss", "seconds", "samples_per_second", "lr")


def draw_curves(
    path: str | os.PathLike[str], losses: Sequence[tuple[int, float]], rows: Sequence[dict[str, Any]], title: str = ""
) -> bool:
    """Write a plot (.png or .svg) of step losses and epoch rows; False (and one warning) without matplotlib."""
    global _warned
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        if not _warned:
            _warned = True
            warnings.warn(
                "LossCurve: matplotlib is not installed, so there is no picture. `pip install matplotlib`.",
                stacklevel=4,
            )
        return False
    names = [
        n for n in dict.fromkeys(k for row in rows for k in row) if n not in _NOT_DRAWN and not n.startswith("val_")
    ]
    path = Path(path)
    vector = path.suffix == ".svg"
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "weft", "font.family": "sans-serif", "font.size": 10.5}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(4.6 * (1 + len(names)), 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, 1 + len(names), squeeze=False)[0]
        if losses:
            steps, values = np.array(losses, np.float64).T
            axes[0].plot(steps, values, color=_LIGHT_BLUE, linewidth=0.8)
        if _spread(losses, rows) > 20:
            axes[0].set_yscale("log")
        for axis, name in zip(axes, ["loss", *names]):
            _curves(axis, name, rows)
        if title:
            figure.suptitle(title, color=_INK)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tmp-{path.name}")
        figure.savefig(
            temporary, format="svg" if vector else "png", dpi=110, transparent=vector,
            metadata={"Date": None} if vector else None,
        )  # fmt: skip
    if vector:
        temporary.write_text(_with_dark_colors(temporary.read_text(encoding="utf-8")), encoding="utf-8")
    os.replace(temporary, path)  # atomic, so a viewer never sees a partial file
    return True


def _curves(axis: Any, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """The training and validation values of one metric, each labelled at its right end."""
    ends = []
    for key, label, color in ((name, "train", _BLUE), (f"val_{name}", "validation", _ORANGE)):
        points = [(row["step"], row[key]) for row in rows if key in row and np.isfinite(row[key])]
        if points:
            marker = "o" if len(points) < 40 else None
            axis.plot(*zip(*points), color=color, linewidth=1.8, marker=marker, markersize=3.5)
            ends.append((points[-1], label, color))
    # Labels of curves that end close together move apart, the higher one up.
    axis.get_ylim()  # matplotlib sets the limits only when they are asked for
    heights = [axis.transData.transform(point)[1] / axis.figure.dpi * 72 for point, _, _ in ends]
    close = len(ends) == 2 and abs(heights[0] - heights[1]) < 12
    for i, (point, label, color) in enumerate(ends):
        upper = heights[i] > heights[1 - i] or (heights[0] == heights[1] and i == 0) if close else False
        shift = (7 if upper else -7) if close else 0
        axis.annotate(
            f"{label} {point[1]:.3g}", point, (8, shift), textcoords="offset points", color=color, va="center",
            annotation_clip=False,
        )  # fmt: skip
    axis.set_title(name, loc="left", color=_INK, fontsize="large", fontweight="bold")
    axis.set_xlabel("step", color=_MUTED)
    axis.tick_params(color=_RULE, labelcolor=_MUTED)
    if axis.get_yscale() == "linear":
        axis.locator_params(axis="y", nbins=5)
    axis.locator_params(axis="x", nbins=5)
    axis.grid(axis="y", color=_RULE, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(_RULE)


def _with_dark_colors(text: str) -> str:
    """An SVG of matplotlib's with a style sheet that replaces its colours where the page is dark."""
    rules = [
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
    ]
    sheet = ":root { color-scheme: light dark }\n@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}"
    return text.replace("<defs>", f"<style>{sheet}</style>\n<defs>", 1)


def _spread(losses: Sequence[tuple[int, float]], rows: Sequence[dict[str, Any]]) -> float:
    """The ratio of the largest to the smallest loss, which decides for a logarithmic axis."""
    values = [v for _, v in losses] + [row[k] for row in rows for k in ("loss", "val_loss") if k in row]
    values = [v for v in values if np.isfinite(v)]
    return max(values) / min(values) if values and min(values) > 0 else 0.0
