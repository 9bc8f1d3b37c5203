"""Draw a graph as SVG, in layers, without external tools."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from ...errors import format_shape
from ..graph import CONSTANT, PLACEHOLDER, Graph, Value

_BOX, _ROW, _GAP = (150, 34), 62, 18
_COLOURS = {
    "placeholder": "#d7e8fa",
    "constant": "#eeeeee",
    "reduce": "#fde6c8",
    "heavy": "#f9d3d3",
    "other": "#ffffff",
}


def draw(graph: Graph, path: str | Path, limit: int = 600) -> Path:
    """Write a picture of `graph` to `path` (.svg). Nodes are drawn in layers, inputs at the top; hovering shows details.

    Raises ValueError for a graph with more than `limit` nodes, whose drawing would be unreadable.
    """
    target = Path(path)
    if target.suffix != ".svg":
        raise ValueError(f"draw: expected a file name ending in .svg. Got {target.name!r}.")
    nodes = [n for n in graph.nodes if n.op is not CONSTANT]
    if len(nodes) > limit:
        raise ValueError(
            f"draw: the graph has {len(nodes)} nodes, more than the limit of {limit}. Pass a larger `limit`."
        )
    layer: dict[Any, int] = {}
    rows: list[list[Any]] = []
    for n in nodes:
        below = [layer[v.node] for v in n.inputs if isinstance(v, Value) and v.node in layer]
        layer[n] = max(below, default=-1) + 1
        while len(rows) <= layer[n]:
            rows.append([])
        rows[layer[n]].append(n)
    place: dict[Any, tuple[int, int]] = {}
    width = max((len(r) for r in rows), default=1) * (_BOX[0] + _GAP) + _GAP
    for y, row in enumerate(rows):
        row.sort(
            key=lambda n: (
                sum(place[v.node][0] for v in n.inputs if isinstance(v, Value) and v.node in place)
                / max(len(n.inputs), 1)
            )
        )
        start = (width - len(row) * (_BOX[0] + _GAP)) // 2
        for x, n in enumerate(row):
            place[n] = (start + x * (_BOX[0] + _GAP), _GAP + y * _ROW)
    parts = []
    for n in nodes:
        for v in n.inputs:
            if isinstance(v, Value) and v.node in place:
                (x1, y1), (x2, y2) = place[v.node], place[n]
                x1, y1, x2 = x1 + _BOX[0] // 2, y1 + _BOX[1], x2 + _BOX[0] // 2
                middle = (y1 + y2) // 2
                parts.append(f'<path d="M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}" fill="none" stroke="#888"/>')
    for n in nodes:
        x, y = place[n]
        shape = f"{n.outputs[0].dtype.name}{format_shape(n.outputs[0].shape)}" if n.outputs else ""
        title = html.escape(f"{n.name} = {n.op.name}\n{shape}\n{n.where or ''}")
        parts.append(
            f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="5" '
            f'fill="{_colour(n)}" stroke="#555"/><text x="{x + _BOX[0] // 2}" y="{y + 14}" text-anchor="middle" '
            f'font-weight="bold">{html.escape(n.op.name[:20])}</text><text x="{x + _BOX[0] // 2}" y="{y + 28}" '
            f'text-anchor="middle" fill="#555">{html.escape(shape[:26])}</text></g>'
        )
    height = len(rows) * _ROW + _GAP
    target.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
    return target


def _colour(n: Any) -> str:
    if n.op is PLACEHOLDER:
        return _COLOURS["placeholder"]
    if n.op.name.startswith("reduce") or n.op.name in ("max", "min"):
        return _COLOURS["reduce"]
    return _COLOURS["heavy"] if getattr(n.op, "cost", None) is not None else _COLOURS["other"]
