"""Duplication: recomputes a cheap value in a second loop nest where that moves less memory than storing it.

%h = where(%mask, %g, 0); %s = sum(%h); …; %d = subtract(%h, f(%s))                               before
%h = where(%mask, %g, 0); %s = sum(%h); …; %i = where(%mask, %g, 0); %d = subtract(%i, f(%s))     after

The gradient of an activation before a normalisation is the typical case: two nests need it, and both can compute it from
operands they read anyway. Only arithmetic that is cheaper than memory traffic is duplicated, and only where fusion would
have stored the value: this pass inspects the clusters that fusion would make, and runs last.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...graph.graph import CONSTANT, PLACEHOLDER, Node, Value
from ...ops.core import scalar as s
from ...ops.core.costs import is_expensive
from ..flow import Flow, rebuild
from ..fusion import Cluster, Fuser, base_of, is_view, members

MIN_VALUE_BYTES = 1 << 16
NEGLIGIBLE_RATIO = 16  # an operand this many times smaller is free to read
MAX_DUPLICATED_OPS = 12  # for one value
WRITE_COST = 2  # relative to a read: the cache line is fetched before it is written


def duplicate(flow: Flow) -> Flow:
    """Recompute values at their readers if that saves memory traffic."""
    recomputed = _Recomputation(flow).find()
    if not recomputed:
        return flow
    place: dict[Value, Value] = {}  # old -> new value
    made: dict[int, dict[Any, Value]] = {}  # by cluster

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        place.update({v: w for v, w in zip(node.inputs, args, strict=True) if isinstance(v, Value)})
        if node not in recomputed:
            return None
        number, again = recomputed[node]
        own = made.setdefault(number, {})
        inputs = [
            new.second(v, again.__contains__, place, own) if isinstance(v, Value) and v in again else w
            for v, w in zip(node.inputs, args, strict=True)
        ]
        return new.again(node, tuple(inputs))

    return rebuild(rebuild(flow, rule))  # the second rebuild removes dead code


class _Recomputation:
    """Decides which readers recompute which values."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.units = Fuser(flow).run()
        self.number: dict[Node, int] = {}
        for i, unit in enumerate(self.units):
            for n in members(unit):
                self.number[n] = i
        self.readers: dict[Value, list[Node]] = {}
        self.reads: list[set[Value]] = [set() for _ in self.units]  # external reads of each unit
        for node in flow.nodes:
            for v in node.inputs:
                if isinstance(v, Value):
                    self.readers.setdefault(v, []).append(node)
                    if not is_view(node):
                        base = base_of(v)
                        if self.number.get(base.node) != self.number[node]:
                            self.reads[self.number[node]].add(base)
        self.outputs = {base_of(v) for v in flow.outputs}
        self.gone: set[Value] = set()  # no longer stored: recomputed by every reader

    def find(self) -> dict[Node, tuple[int, set[Value]]]:
        """Reader -> (number of its cluster, the values it recomputes)."""
        recomputed: dict[Node, tuple[int, set[Value]]] = {}
        for node in self.flow.nodes:  # in order: recomputed values change the reads of a unit for later candidates
            unit = self.units[self.number[node]] if node in self.number else None
            if (
                isinstance(unit, Cluster)
                and unit.full(node)
                and node.outputs[0].nbytes >= MIN_VALUE_BYTES
                and light(node)
            ):
                self._consider(node.outputs[0], recomputed)
        return recomputed

    def _consider(self, value: Value, recomputed: dict[Node, tuple[int, set[Value]]]) -> None:
        home = self.number[value.node]
        readers: dict[int, list[Node]] = {}
        kept = value in self.outputs
        for reader in self.readers.get(value, ()):
            if is_view(reader):
                kept = True
            elif self.number[reader] != home:
                readers.setdefault(self.number[reader], []).append(reader)
        found: list[tuple[int, int, set[Value]]] = []  # (bytes saved, unit, recomputed values)
        for number in readers:
            unit = self.units[number]
            again: set[Value] = set()
            extra = None
            if isinstance(unit, Cluster) and unit.space == tuple(value.shape):
                extra = self._expand(value, number, value.nbytes, again)
            if extra is None:
                kept = True
            else:
                found.append((value.nbytes - extra, number, again))
        if kept:
            found = [f for f in found if f[0] > 0]
        elif WRITE_COST * value.nbytes + sum(f[0] for f in found) <= 0:
            return
        else:
            self.gone.add(value)
        for _, number, again in found:
            self.reads[number].discard(value)
            self.reads[number] |= {base_of(v) for w in again for v in w.node.inputs if isinstance(v, Value)} - again
            for reader in readers[number]:
                known = recomputed.get(reader)
                recomputed[reader] = (number, again | known[1] if known else again)

    def _expand(self, value: Value, number: int, whole: int, again: set[Value]) -> int | None:
        """The additional bytes that unit `number` reads to recompute `value`; adds the recomputed values to `again`."""
        again.add(value)
        if len(again) > MAX_DUPLICATED_OPS:
            return None
        total = 0
        for v in value.node.inputs:
            if not isinstance(v, Value) or v in again:
                continue
            base = base_of(v)
            if base in self.reads[number] or base.nbytes * NEGLIGIBLE_RATIO <= whole:
                continue
            reading = base.nbytes if self._stored(base) else None
            expanding: set[Value] = set(again)
            cost = self._expand(v, number, whole, expanding) if v is base and light(v.node) else None
            if cost is not None and (reading is None or cost < reading):
                again |= expanding
                total += cost
            elif reading is not None:
                total += reading
            else:
                return None
        return total

    def _stored(self, value: Value) -> bool:
        """Whether a value is stored anyway."""
        node = value.node
        if node.op is PLACEHOLDER or node.op is CONSTANT or value in self.outputs:
            return True
        if value in self.gone:
            return False
        home = self.number.get(node)
        if home is None or not isinstance(self.units[home], Cluster):
            return True
        return any(is_view(r) or self.number[r] != home for r in self.readers.get(value, ()))


def light(node: Node) -> bool:
    """Whether computing the node costs less than reading its result from memory."""
    op = node.op
    if op is PLACEHOLDER or op is CONSTANT or len(node.outputs) != 1 or op.effects:
        return False
    if op.expression is None and op.element is None or any(v.dtype not in s.DTYPES for v in node.outputs):
        return False
    return _cheap_expression(op, tuple([v.dtype for v in node.inputs]), node.attrs)


@lru_cache(maxsize=4096)
def _cheap_expression(op: Any, dtypes: tuple[Any, ...], attrs: tuple[Any, ...]) -> bool:
    if any(d not in s.DTYPES for d in dtypes):
        return False
    operands = [s.var(f"x{i}", d) for i, d in enumerate(dtypes)]
    result = op.run(op.expression or op.element, op.merge(operands, attrs))
    return not isinstance(result, s.Expr) or not is_expensive([result])
