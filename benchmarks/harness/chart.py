"""Horizontal bars of speed relative to the best peer, drawn from the table that the page shows.

The chart is made of the markdown table, not of the measurements, so it can be drawn again from a page, and picture and
table cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft import svg

_ROW, _BAR, _TOP = 40, 16, 62
_LEFT, _PLOT, _RIGHT = 172, 180, 132  # labels, bars, names of peers


class Ratio(NamedTuple):
    """One configuration: how many times as fast Weft is as the best peer as shipped, and with kept memory."""

    title: str
    detail: str
    peer: str
    shipped: float
    kept: float | None


def ratios(table: str) -> list[Ratio]:
    """The rows of the first table of `Section.markdown`."""
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 7 or not cells[3].startswith("**"):
            continue
        title, _, detail = cells[0].rpartition(", ")
        kept = _times(cells[5]) if cells[5].startswith("**") else None
        found.append(Ratio(title, detail, cells[2].split(", ")[0], _times(cells[3]), kept))
    return found


def _times(cell: str) -> float:
    return float(cell.strip("*×"))


def bars(rows: Sequence[Ratio], title: str) -> str:
    """The chart as SVG text: a bar per row, a tick for the ratio with kept memory, and a line at equal speed."""
    largest = max((max(r.shipped, r.kept or 0.0) for r in rows), default=1.0)
    unit = _PLOT / max(largest, 1.0)
    bottom = _TOP + _ROW * len(rows) - (_ROW - _BAR) // 2
    equal = _LEFT + unit
    parts = [svg.text(0, 16, title, "strong")]
    for i, r in enumerate(rows):
        y = _TOP + i * _ROW
        end = _LEFT + r.shipped * unit
        parts += [
            svg.text(_LEFT - 10, y + 9 if r.detail else y + 13, r.title, "", "end"),
            svg.text(_LEFT - 10, y + 24, r.detail, "small muted", "end") if r.detail else "",
            svg.rectangle(_LEFT, y, end - _LEFT, _BAR, "blue" if r.shipped >= 1 else "orange"),
        ]
        label = end
        if r.kept is not None:
            x = _LEFT + r.kept * unit
            parts.append(svg.line(x, y - 3, x, y + _BAR + 3, "tick"))
            label = max(end, x)
        parts.append(svg.text(label + 8, y + 13, f"{r.shipped:.2f}×", "strong", aside=r.peer))
    parts += [
        svg.line(equal, _TOP - 12, equal, bottom, "rule"),
        svg.text(equal, _TOP - 18, "equal speed", "small muted", "middle"),
    ]
    height = bottom + 10
    if any(r.kept is not None for r in rows):
        height += 18
        parts.append(svg.text(_LEFT, height - 6, "tick: against peers with kept memory", "small muted"))
    return svg.document(_LEFT + _PLOT + _RIGHT, height, parts, title)
