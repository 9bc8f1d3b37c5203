"""The cost of nodes: measured where a measurement exists, else estimated from sizes.

`Session.measure(fetches, feeds)` runs one step node by node and records how long each took, on every kind of device that has
a kernel for it. The placer then uses the time of the node itself; for other nodes the time of the same op on about as many
elements (a bucket is a power of two); else an estimate from sizes. `graph.placement_report()` says which it was.

Threads may measure and place at the same time. Times are of single nodes: a compiled region is faster than their sum.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...ops.core.costs import cost
from ...ops.core.registry import Op
from ...ops.core.spec import num_elements
from ..declared.deferred_nodes import DeferredOp
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .interpret import run_alone, run_node
from .naive import Interpreter

# Seconds: rough estimates for nodes without a measurement; only their ratios matter.
SECONDS_PER_START, SECONDS_PER_ELEMENT, SECONDS_PER_BYTE, SECONDS_PER_FLOP = 1e-6, 4e-10, 5e-11, 5e-11
REFERENCE_FACTOR = 8.0  # time of NumPy kernels relative to native ones
REPEATS = 3

_lock = threading.Lock()
_of_node: weakref.WeakKeyDictionary[Node, dict[str, float]] = weakref.WeakKeyDictionary()
_of_bucket: dict[tuple[Any, ...], float] = {}


def _bucket(op: Any, sizes: Iterable[int | None], dtype: Any, kind: str) -> tuple[Any, ...] | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return (op.name, total.bit_length(), dtype, kind)


def _bucket_of(node: Node, kind: str) -> tuple[Any, ...] | None:
    values = [v for v in (*node.inputs, *node.outputs) if isinstance(v, Value)]
    sizes = [num_elements(v.shape) for v in values]
    dtype = node.outputs[0].dtype if node.outputs else None
    known = [s if isinstance(s, int) else None for s in sizes]
    return _bucket(node.op, known, dtype, kind)


def record(node: Node, inputs: Sequence[Any], outputs: Sequence[Any], kind: str, seconds: float) -> None:
    """Note that `node` took `seconds` on a device of this kind, for inputs and outputs like these."""
    sizes = [np.size(a) for a in (*inputs, *outputs) if isinstance(a, np.ndarray)]
    key = _bucket(node.op, sizes, node.outputs[0].dtype if node.outputs else None, kind)
    with _lock:
        _of_node.setdefault(node, {})[kind] = seconds
        if key is not None:
            _of_bucket[key] = min(seconds, _of_bucket.get(key, seconds))


def forget() -> None:
    """Drop all measurements."""
    with _lock:
        _of_node.clear()
        _of_bucket.clear()


def node_seconds(node: Node, kind: str) -> tuple[float, bool]:
    """How long a node takes on a device of this kind, and whether that was measured."""
    with _lock:
        found = _of_node.get(node, {}).get(kind)
        if found is None and _of_bucket:
            key = _bucket_of(node, kind)
            found = _of_bucket.get(key) if key is not None else None
    return (found, True) if found is not None else (_estimate(node, kind), False)


def _estimate(node: Node, kind: str) -> float:
    flops = moved = 0
    if isinstance(node.op, Op):
        try:
            flops, moved = cost(node.op, node.op.merge(node.inputs, node.attrs), node.outputs)
        except (TypeError, ValueError, IndexError):
            moved = 0  # a size is not known yet
    elements = sum([num_elements(v.shape) or 1 for v in node.outputs])
    seconds = (
        SECONDS_PER_START + max(elements * SECONDS_PER_ELEMENT, moved * SECONDS_PER_BYTE) + flops * SECONDS_PER_FLOP
    )
    return seconds * (REFERENCE_FACTOR if kind == "ref" else 1.0)


class Measuring(Interpreter):
    """A run of a step that records the cost of every node. Nodes with effects run once, pure ones several times."""

    kinds: tuple[str, ...] = ("cpu",)

    def compute(self, node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        pure = isinstance(node.op, (Op, DeferredOp)) and not node.op.effects
        outputs: Sequence[Any] = ()
        best = float("inf")
        for _ in range(REPEATS if pure else 1):
            start = time.perf_counter()
            outputs = run_alone(node, inputs)
            best = min(best, time.perf_counter() - start)
        record(node, inputs, outputs, "cpu", best)
        if "ref" in self.kinds:
            if pure:
                start = time.perf_counter()
                run_node(node, inputs, True)
                best = time.perf_counter() - start
            record(node, inputs, outputs, "ref", best)  # reads and writes of state are the same everywhere
        return outputs


def report(nodes: Sequence[Node], kinds: Sequence[str]) -> str:
    """One line per node that was measured, the slowest first."""
    rows = []
    for node in nodes:
        times = {k: s for k, (s, measured) in [(k, node_seconds(node, k)) for k in kinds] if measured}
        if times and node.op is not CONSTANT and node.op is not PLACEHOLDER:
            rows.append((max(times.values()), node, times))
    width = max([len(n.name) for _, n, _ in rows], default=4)
    lines = ["measured:"]
    for _, node, times in sorted(rows, key=lambda r: -r[0]):
        lines.append(f"  {node.name:{width}}  " + ", ".join([f"{k} {s * 1e6:.1f} µs" for k, s in times.items()]))
    return "\n".join(lines)
