"""Places the boxes and edges of a layered graph drawing (Sugiyama's method).

Nodes are put in layers so that edges point down. An edge that spans several layers gets a *bend*, an invisible node, in each
layer between, so that it is routed around boxes. Layers are then ordered by the barycentres of their neighbours, which
removes most crossings, and every layer takes the positions nearest to those of its neighbours that keep the order.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SWEEPS = 12
_MAX_BENDS = 8000  # some seconds of layout; the longest edges of larger graphs are drawn straight
_BEND_WEIGHT = 8.0  # relative to a box: long edges become straight
_GAP, _BEND_GAP = 22.0, 12.0  # between a box and its neighbour, between two bends


@dataclass
class _Place:
    """A box or a bend."""

    width: float
    layer: int
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0  # of the middle
    rank: int = 0  # in its layer

    def gap(self, right: _Place) -> float:
        """The distance between the middles of this place and its right neighbour."""
        between = _GAP if self.width and right.width else _BEND_GAP
        return (self.width + right.width) / 2 + between


@dataclass(frozen=True)
class Layout:
    """Where everything is: x is a middle, y a number of layers from the top."""

    width: float
    layers: int
    boxes: Mapping[Hashable, tuple[float, int]]
    edges: Sequence[tuple[tuple[float, int], ...]]  # the points of each edge from top to bottom


def layered(widths: Mapping[Any, float], edges: Sequence[tuple[Hashable, Hashable]]) -> Layout:
    """Lay out the nodes of `widths` and the distinct edges (from, to), whose points are returned from top to bottom.

    Nodes are in topological order, except for the edges that close a loop: these go from a later node up to an earlier one.
    """
    number = {key: i for i, key in enumerate(widths)}
    edges = [(a, b) if number[a] < number[b] else (b, a) for a, b in edges if a != b]
    layer = _layers(list(widths), edges)
    boxes = {key: _Place(width, layer[key]) for key, width in widths.items()}
    rows: list[list[_Place]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for place in boxes.values():
        rows[place.layer].append(place)
    chains = []
    routed = _routed([layer[target] - layer[source] for source, target in edges])
    for source, target in edges:
        chain = [boxes[source]]
        for between in range(layer[source] + 1, layer[target] if layer[target] - layer[source] <= routed else 0):
            bend = _Place(0.0, between)
            rows[between].append(bend)
            chain.append(bend)
        chain.append(boxes[target])
        chains.append(chain)
        if layer[target] - layer[source] > routed:
            continue
        for upper, lower in zip(chain, chain[1:]):
            upper.below.append(lower)
            lower.above.append(upper)
    _order(rows)
    left, right = _positions(rows)
    return Layout(
        right - left,
        len(rows),
        {key: (place.x - left, place.layer) for key, place in boxes.items()},
        [tuple((place.x - left, place.layer) for place in chain) for chain in chains],
    )


def _routed(spans: list[int]) -> int:
    """The number of layers up to which edges get bends: all, unless there would be more than `_MAX_BENDS`."""
    total = 0
    for span in sorted(spans):
        total += span - 1
        if total > _MAX_BENDS:
            return span - 1
    return max(spans, default=0)


def _layers(nodes: list[Hashable], edges: list[tuple[Hashable, Hashable]]) -> dict[Hashable, int]:
    """Longest paths from the inputs; then nodes sink towards their users where that shortens no fewer edges than it stretches."""
    inputs: dict[Hashable, list[Hashable]] = {n: [] for n in nodes}
    users: dict[Hashable, list[Hashable]] = {n: [] for n in nodes}
    for source, target in edges:
        inputs[target].append(source)
        users[source].append(target)
    layer: dict[Hashable, int] = {}
    for n in nodes:
        layer[n] = max((layer[i] for i in inputs[n]), default=-1) + 1
    for n in reversed(nodes):
        if users[n] and len(inputs[n]) <= len(users[n]):
            layer[n] = min(layer[u] for u in users[n]) - 1
    return layer


def _order(rows: list[list[_Place]]) -> None:
    """Sort each layer by the barycentre of its neighbours, downwards and upwards in turn; keep the best order found."""
    best, fewest = [list(row) for row in rows], None
    for sweep in range(_SWEEPS):
        for row in rows:
            _rank(row)
        crossings = sum(_crossings(row) for row in rows)
        if fewest is None or crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            row.sort(key=lambda p: _mean([q.rank for q in (p.above if down else p.below)], p.rank))
            _rank(row)
    for row, found in zip(rows, best):
        row[:] = found
        _rank(row)


def _rank(row: list[_Place]) -> None:
    for i, place in enumerate(row):
        place.rank = i


def _crossings(row: list[_Place]) -> int:
    """Crossings between `row` and the layer below: inversions among the lower ends of edges sorted by their upper ends."""
    seen: list[int] = []
    count = 0
    for place in row:
        lower = sorted(p.rank for p in place.below)
        count += sum(len(seen) - bisect_right(seen, rank) for rank in lower)
        for rank in lower:
            insort(seen, rank)
    return count


def _positions(rows: list[list[_Place]]) -> tuple[float, float]:
    """Set the x of every place; the left and right end of the drawing."""
    for row in rows:
        _spread(row, [0.0] * len(row))
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            both = sweep >= _SWEEPS
            wanted = [
                _mean([q.x for q in (p.above + p.below if both else p.above if sweep % 2 == 0 else p.below)], p.x)
                for p in row
            ]
            _spread(row, wanted)
    ends = [(p.x - p.width / 2, p.x + p.width / 2) for row in rows for p in row] or [(0.0, 0.0)]
    return min(left for left, _ in ends), max(right for _, right in ends)


def _spread(row: list[_Place], wanted: list[float]) -> None:
    """Move the places of `row` as near as possible (least squares) to `wanted`, in order and without overlap.

    With the gaps subtracted this is isotonic regression, solved by pooling neighbours that are out of order.
    """
    offsets = [0.0]
    for left, right in zip(row, row[1:]):
        offsets.append(offsets[-1] + left.gap(right))
    pools: list[tuple[float, float, int]] = []  # mean position, weight and number of places
    for place, target, offset in zip(row, wanted, offsets):
        mean, weight, count = target - offset, 1.0 if place.width else _BEND_WEIGHT, 1
        while pools and pools[-1][0] > mean:
            before, w, n = pools.pop()
            mean, weight, count = (before * w + mean * weight) / (w + weight), w + weight, n + count
        pools.append((mean, weight, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    for place, position, offset in zip(row, flat, offsets):
        place.x = position + offset


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
