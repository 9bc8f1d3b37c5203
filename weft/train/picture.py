"""Plots the loss curve with matplotlib."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_warned = False
_COLORS = {"train": "#2a6f97", "validation": "#d1495b", "step": "#a9c4d6"}


def draw_curves(
    path: str | os.PathLike[str], losses: Sequence[tuple[int, float]], rows: Sequence[dict[str, Any]], title: str = ""
) -> bool:
    """Write a PNG of step losses and epoch rows; False (and one warning) without matplotlib."""
    global _warned
    try:
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
    figure = Figure(figsize=(5.2 * (1 + len(names)), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 1 + len(names), squeeze=False)[0]
    if losses:
        steps, values = np.array(losses, np.float64).T
        axes[0].plot(steps, values, color=_COLORS["step"], linewidth=0.8, label="each step")
    _curves(axes[0], "loss", rows)
    if _spread(losses, rows) > 20:
        axes[0].set_yscale("log")
    for axis, name in zip(axes[1:], names):
        _curves(axis, name, rows)
    figure.suptitle(title)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}")
    figure.savefig(temporary, format="png", dpi=110)
    os.replace(temporary, path)  # atomic, so a viewer never sees a partial file
    return True


_NOT_DRAWN = ("epoch", "step", "loss", "seconds", "samples_per_second", "lr")


def _curves(axis: Any, name: str, rows: Sequence[dict[str, Any]]) -> None:
    for key, label in ((name, "train"), (f"val_{name}", "validation")):
        points = [(row["step"], row[key]) for row in rows if key in row]
        if points:
            marker = "o" if len(points) < 40 else None
            axis.plot(*zip(*points), label=label, color=_COLORS[label], marker=marker, markersize=3)
    axis.set_xlabel("step")
    axis.set_title(name)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)


def _spread(losses: Sequence[tuple[int, float]], rows: Sequence[dict[str, Any]]) -> float:
    """The ratio of the largest to the smallest loss, which decides for a logarithmic axis."""
    values = [v for _, v in losses] + [row[k] for row in rows for k in ("loss", "val_loss") if k in row]
    values = [v for v in values if np.isfinite(v)]
    return max(values) / min(values) if values and min(values) > 0 else 0.0
