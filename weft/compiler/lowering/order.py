"""Step scheduling: moves variable updates up to the earliest legal point.

A training step ends with its updates, so every gradient would stay alive until the end of the backward pass. An update
whose result no other step reads moves up to right behind the last step that it depends on, that still reads the old value,
or that may fail (a failed step leaves all variables unchanged). This ends the gradient's lifetime, and the gradient is
still in cache when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.graph import Value
from ..fusion import Unit, is_view, members


def updates_early(units: Sequence[Unit], overwritten: dict[Value, Value], barrier: int) -> list[Unit]:
    """`units` with updates moved up. `overwritten` maps an output to the input whose memory it is stored into;
    `barrier` is the position of the last unit that may fail."""
    position = {node: i for i, unit in enumerate(units) for node in members(unit)}
    reads = [_bases(unit) for unit in units]  # what each unit reads from others
    readers: dict[Value, list[int]] = {}
    used: set[int] = set()
    for i, values in enumerate(reads):
        for v in values:
            readers.setdefault(v, []).append(i)
            made = position.get(v.node, i)
            if made != i:
                used.add(made)
    ends: dict[int, list[Value]] = {}  # unit whose results are only outputs -> what it overwrites
    for output, old in overwritten.items():
        i = position.get(output.node, -1)
        if i > barrier and i not in used:
            ends.setdefault(i, []).append(old)
    keys = [(i, 0) for i in range(len(units))]
    for i, olds in ends.items():
        waits = [position[v.node] for v in reads[i] if v.node in position and position[v.node] != i]
        for old in olds:
            waits += [r for r in readers.get(old, ()) if r != i]
        if all(w < i and w not in ends for w in waits):
            keys[i] = (max([barrier, *waits]), 1)
    return [unit for _, unit in sorted(zip(keys, units, strict=True), key=lambda pair: pair[0])]


def _bases(unit: Unit) -> set[Value]:
    """The values a unit reads, seen through views (and through checked indices, which are the indices themselves)."""
    found = set()
    for n in members(unit):
        for v in n.inputs:
            while isinstance(v, Value) and (is_view(v.node) or v.node.op.identity == "always"):
                found.add(v)
                v = v.node.inputs[0]
            if isinstance(v, Value):
                found.add(v)
    return found
