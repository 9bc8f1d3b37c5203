"""Draws the spans of a profile as a waterfall chart: one row per span, from its start to its end, in order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import svg

_ROW, _BAR, _TOP = 24, 14, 40
_PLOT, _VALUE = 210, 64  # width of the time axis, and of the last label to its right
_MAX_NAME = 20  # characters
_NOTABLE = 0.1  # share of the total time from which a span is highlighted


def waterfall(spans: Sequence[Mapping[str, Any]], limit: int = 30) -> str:
    """The chart as SVG text. Spans (as `wf.profile` records them) of a tenth of the total time or more are orange.

    Of more than `limit` spans the longest are drawn, and a last line has the number and the time of the others.
    """
    total = sum(s["dur"] for s in spans)
    longest = sorted(spans, key=lambda s: -s["dur"])[:limit]
    shown = sorted(longest, key=lambda s: s["ts"])
    start = min((s["ts"] for s in spans), default=0.0)
    end = max((s["ts"] + s["dur"] for s in spans), default=1.0)
    per_us = _PLOT / max(end - start, 1e-9)
    names = [_short(str(s["name"])) for s in shown]
    left = max((svg.text_width(name) for name in names), default=0.0) + 12
    parts = [
        svg.text(left, 16, f"{_duration(end - start)}, {len(spans)} spans", "strong"),
        svg.line(left, _TOP - 8, left, _TOP + _ROW * len(shown)),
    ]
    for i, (s, name) in enumerate(zip(shown, names)):
        y = _TOP + i * _ROW
        x, width = left + (s["ts"] - start) * per_us, max(s["dur"] * per_us, 1.5)
        style = "orange" if s["dur"] >= _NOTABLE * total else "blue"
        row = [
            svg.text(left - 8, y + 12, name, "", "end"),
            svg.rectangle(x, y, width, _BAR, style, 2),
            svg.text(x + width + 6, y + 12, _duration(s["dur"]), "small muted"),
        ]
        lines = ", ".join(s["args"]["lines"])
        parts.append(
            svg.titled(row, f"{s['cat']}: {s['name']}\n{_duration(s['dur'])}, {s['dur'] / total:.0%}\n{lines}")
        )
    height = _TOP + _ROW * len(shown)
    if len(spans) > len(shown):
        rest = total - sum(s["dur"] for s in shown)
        height += _ROW
        parts.append(
            svg.text(left, height - 12, f"and {len(spans) - len(shown)} shorter ones, {_duration(rest)}", "small muted")
        )
    label = (
        f"{len(spans)} spans in {_duration(end - start)}, the longest {names[shown.index(longest[0])] if shown else ''}"
    )
    return svg.document(left + _PLOT + _VALUE, height, parts, label)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def _duration(us: float) -> str:
    return f"{us:.3g} µs" if us < 999.5 else f"{us / 1e3:.3g} ms" if us < 999.5e3 else f"{us / 1e6:.3g} s"
