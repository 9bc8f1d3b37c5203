"""Draws a graph as SVG, in layers, without external tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ... import svg
from ...errors import format_shape
from ..graph import CONSTANT, PLACEHOLDER, Graph, Value
from .layout import layered

_HEIGHT, _LAYER, _MARGIN, _BACK = 42, 74, 10, 18
_MAX_NAME = 24  # characters of a label; the tooltip has all of them
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    '<path d="M0 0.5L8 4L0 7.5Z" class="arrow"/></marker></defs>'
)


def draw(graph: Graph, path: str | Path, limit: int = 600) -> Path:
    """Write a picture of `graph` to `path` (.svg): edges point down, inputs are blue, products (also convolutions) orange.

    A box shows the op (elementwise ones with their scalar constants) and the shape of its result; a node that was named, or is
    in a name scope, shows that name first, and a node of a variable the variable's. Hovering shows name, dtype and source
    line. Arrows point from a value to its user; dashed ones are control dependencies.

    Raises:
        ValueError: the graph has more than `limit` nodes, and the drawing would be unreadable.
    """
    target = Path(path)
    if target.suffix != ".svg":
        raise ValueError(f"draw: expected a file name ending in .svg. Got {target.name!r}.")
    nodes = [n for n in graph.nodes if n.op is not CONSTANT]
    if len(nodes) > limit:
        raise ValueError(
            f"draw: the graph has {len(nodes)} nodes, more than the limit of {limit}. Pass a larger `limit`."
        )
    labels = {n: _label(n) for n in nodes}
    known = set(nodes)
    edges = [(v.node, n) for n in nodes for v in n.inputs if isinstance(v, Value) and v.node in known]
    control = {(before, n) for n in nodes for before in n.control if before in known} - set(edges)
    widths = {n: max(svg.text_width(labels[n][0]), svg.text_width(labels[n][1], 12)) + 22 for n in nodes}
    every = [*dict.fromkeys(edges), *sorted(control, key=lambda e: (e[0].order, e[1].order))]
    plan = layered(widths, every)
    parts = [_ARROW]
    for (source, sink), points in zip(every, plan.edges, strict=True):
        parts.append(_edge(points, (source, sink) in control, back=source.order > sink.order))
    for n in nodes:
        x, y = _at(plan.boxes[n])
        name, shape = labels[n]
        box = svg.rectangle(
            x - widths[n] / 2, y, widths[n], _HEIGHT, _style(n), radius=16 if n.op is PLACEHOLDER else 4
        )
        lines = [svg.text(x, y + (18 if shape else 26), name, "strong", "middle")]
        if shape:
            lines.append(svg.text(x, y + 34, shape, "small muted", "middle"))
        parts.append(svg.titled([box, *lines], _details(n)))
    width = plan.width + 2 * _MARGIN
    height = (plan.layers - 1) * _LAYER + _HEIGHT + 2 * _MARGIN
    target.write_text(svg.document(width, height, parts, f"Graph {graph.name} with {len(nodes)} nodes"))
    return target


def _at(point: tuple[float, int]) -> tuple[float, float]:
    """The top of a box in the picture."""
    return point[0] + _MARGIN, point[1] * _LAYER + _MARGIN


def _edge(points: tuple[tuple[float, int], ...], control: bool, back: bool) -> str:
    """A curve from the bottom of a box through its bends, beside the boxes of their layers, to the top of another.

    With `back` it points up, beside the other edges of both boxes: the edge that closes a loop.
    """
    if back:
        points = ((points[0][0] + _BACK, points[0][1]), *points[1:-1], (points[-1][0] + _BACK, points[-1][1]))
    x, y = _at(points[0])
    y += _HEIGHT
    path = [f"M{svg.number(x)} {svg.number(y)}"]
    for point in points[1:]:
        x2, y2 = _at(point)
        middle = svg.number((y + y2) / 2)
        path.append(f"C{svg.number(x)} {middle} {svg.number(x2)} {middle} {svg.number(x2)} {svg.number(y2)}")
        x, y = x2, y2
        if point is not points[-1]:
            y += _HEIGHT
            path.append(f"V{svg.number(y)}")
    style = "edge control" if control else "edge"
    return f'<path d="{"".join(path)}" class="{style}" marker-{"start" if back else "end"}="url(#arrow)"/>'


def _label(n: Any) -> tuple[str, str]:
    """What a box says: the user's name or the op with its scalar constants, and below the shape, with the op after a name."""
    scalars = _scalars(n) if getattr(n.op, "expression", None) is not None else []
    op = " ".join([n.op.name, *scalars])
    name = _given_name(n)
    shape = format_shape(n.outputs[0].shape) if n.outputs else ""
    shape = "scalar" if shape == "()" else shape
    if name is None:
        return _short(op), shape
    return _short(name, end=True), shape if n.op is PLACEHOLDER else " ".join(filter(None, (_short(op), shape)))


def _given_name(n: Any) -> str | None:
    """The name that the user gave a node, its scope or its variable; None if it is only numbered after its op."""
    if n.op is PLACEHOLDER:
        return n.name
    variable = getattr(getattr(n.op, "state", None), "name", None)
    if isinstance(variable, str):
        return variable
    return None if re.fullmatch(re.escape(n.op.name) + r"(_\d+)?", n.name) else n.name


def _short(name: str, end: bool = False) -> str:
    """A label that fits into a box; of a long name in scopes the `end` says more."""
    if len(name) <= _MAX_NAME:
        return name
    return "…" + name[1 - _MAX_NAME :] if end else name[: _MAX_NAME - 1] + "…"


def _scalars(n: Any) -> list[str]:
    found = []
    for v in n.inputs:
        if isinstance(v, Value) and v.node.op is CONSTANT and v.shape == ():
            value = np.asarray(v.node.attrs[0])
            found.append(f"{value.item():.4g}" if value.dtype.kind in "iuf" else str(value))
    return found


def _details(n: Any) -> str:
    made = f"{n.outputs[0].dtype.name}{format_shape(n.outputs[0].shape)}" if n.outputs else ""
    return f"{n.name} = {n.op.name}\n{made}\n{n.where.place if n.where is not None else ''}"


def _style(n: Any) -> str:
    if n.op is PLACEHOLDER:
        return "blue-tint"
    return "orange-tint" if n.op.autocast == "low" else "plain"  # products, which cost most
