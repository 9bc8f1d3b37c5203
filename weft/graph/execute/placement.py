"""Placement: choose the device of every node of a step.

In order: the devices that have a kernel for the op (feasible) → colocation groups (`colocate_with`, a variable with its
reads and writes) → the user's constraints (`wf.device`, hard or soft, whole or partial names) → the cheapest remaining
device, by the time the node takes there (`weft.graph.execute.costs`: measured or estimated), the load of the device, and
the bytes to transfer. `graph.placement_report()` prints the outcome with its reasons.

Devices are those of the process, `configure_devices(cpu=2, ref=1)` (or WEFT_CPU_DEVICES=2), or of a session. `cpu:N` are
virtual: the same processors and memory, with separate threads and values. `ref` runs NumPy kernels only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ... import settings
from ...ops.core.registry import Op
from ...runtime.device import KINDS, Device, as_device
from ..capture.control_flow import ControlOp
from ..declared.building import NO_OP, DeclaredGraph, GraphOp
from ..declared.deferred_nodes import DeferredOp
from ..declared.variables import ReadOp, WriteOp
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from .costs import node_seconds

# Seconds of a crossing: rough estimates, only their ratio to the costs of nodes matters.
SECONDS_PER_TRANSFER, SECONDS_PER_BYTE = 2e-5, 1e-10


class Constraint(NamedTuple):
    """A device name of which parts may be missing; missing parts match anything."""

    kind: str | None
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    job: str | None
    task: int | None
    soft: bool

    def allows(self, device: Device) -> bool:
        return all(
            want is None or want == have
            for want, have in zip(self[:4], (device.kind, device.index, device.job, device.task), strict=True)
        )

    def __str__(self) -> str:
        parts = [f"/job:{self.job}" if self.job else "", f"/task:{self.task}" if self.task is not None else ""]
        name = "" if self.kind is None else self.kind if self.index is None else f"{self.kind}:{self.index}"
        return "".join(parts) + ("/" if any(parts) and name else "") + name + (" (soft)" if self.soft else "")


def constraint(name: Any, soft: bool = False) -> Constraint:
    """A Constraint from a device or text: `cpu:1`, `cpu`, `/job:worker`, `/job:worker/task:1/cpu:0`."""
    if isinstance(name, Device):
        return Constraint(name.kind, name.index, name.job, name.task, soft)
    if not isinstance(name, str) or not name.strip("/"):
        raise TypeError(f"device: expected a name such as 'cpu:1'. Got {name!r}.")
    kind = index = job = task = None
    try:
        for part in name.strip("/").split("/"):
            key, _, value = part.partition(":")
            if key == "job" and value:
                job = value
            elif key == "task":
                task = int(value)
            elif key in KINDS:
                kind, index = key, int(value) if value and value != "*" else None
            else:
                raise ValueError(part)
        if (index or 0) < 0 or (task or 0) < 0:
            raise ValueError(name)
    except ValueError:
        raise ValueError(
            f"device: cannot read {name!r}. Expected a kind of {KINDS}, alone or with an index, such as 'cpu' or 'cpu:1', "
            "or '/job:worker/task:0/cpu:0'."
        ) from None
    return Constraint(kind, index, job, task, soft)


_configured: list[Device] = [Device("cpu", i) for i in range(settings.CPU_DEVICES())]


def devices() -> list[Device]:
    """Return the devices of this process.

    >>> wf.devices()[0].kind
    'cpu'
    """
    return list(_configured)


MAX_DEVICES = 1024  # per kind; each has a separate engine and threads while a step runs


def configure_devices(cpu: int = 1, ref: int = 0) -> list[Device]:
    """Set the number of virtual CPU devices and reference devices of this process; existing steps keep theirs."""
    if not isinstance(cpu, int) or not isinstance(ref, int) or cpu < 1 or ref < 0:
        raise ValueError(
            f"configure_devices: expected at least one cpu and no negative number. Got cpu={cpu!r}, ref={ref!r}."
        )
    if cpu > MAX_DEVICES or ref > MAX_DEVICES:
        raise ValueError(
            f"configure_devices: expected at most {MAX_DEVICES} devices of a kind. Got cpu={cpu}, ref={ref}."
        )
    _configured[:] = [*[Device("cpu", i) for i in range(cpu)], *[Device("ref", i) for i in range(ref)]]
    return devices()


def as_devices(given: Any) -> list[Device]:
    if given is None:
        return devices()
    if isinstance(given, (str, Device)) or not given:
        raise ValueError(f"devices: expected a list such as ['cpu:0', 'cpu:1']. Got {given!r}.")
    return [as_device(d) for d in given]


def has_kernel(op: Any, kind: str) -> bool:
    """Whether a device of `kind` can run `op`."""
    if kind == "cpu" or op in (NO_OP, PLACEHOLDER, CONSTANT):
        return True
    if isinstance(op, (ReadOp, WriteOp, DeferredOp)):
        return True
    if isinstance(op, (GraphOp, ControlOp)):
        return False  # queues and control flow live where the host's threads are
    return isinstance(op, Op) and not op.effects


class Placement:
    """Where every node goes. `of[node]` is its device, `why[node]` the reason in words."""

    def __init__(self, nodes: Sequence[Node], available: Sequence[Device]) -> None:
        if not available:
            raise ValueError("placement: expected at least one device. Got none.")
        self.nodes = [n for n in nodes if n.op is not CONSTANT and n.op is not PLACEHOLDER]
        self.available = list(available)
        self.of: dict[Node, Device] = {}
        self.why: dict[Node, str] = {}
        self.measured: dict[Node, bool] = {}  # whether its cost was measured
        self.load: dict[Device, float] = dict.fromkeys(self.available, 0.0)
        self._parents: dict[Any, Any] = {}
        self._group()
        self._choose()

    def _root(self, x: Any) -> Any:
        while self._parents.get(x, x) is not x:
            x = self._parents[x]
        return x

    def _group(self) -> None:
        here = set(self.nodes)
        for node in self.nodes:
            if isinstance(node.op, (ReadOp, WriteOp)):
                self._join(node, node.op.state)
            if node.op.routes:
                self._join(node, self._frame_key(node))
            for key in self._keys(node):
                self._join(node, key)
            other = getattr(node.graph, "colocated", {}).get(node)
            if other is not None:
                self._join(
                    node, other if other in here or not isinstance(other.op, (ReadOp, WriteOp)) else other.op.state
                )
        self.groups: dict[Any, list[Node]] = {}
        for node in self.nodes:
            self.groups.setdefault(self._root(node), []).append(node)

    def _keys(self, node: Node) -> Iterable[Any]:
        """Further things that a node must be together with."""
        return ()

    def _candidates(self, group: Sequence[Node]) -> list[Device]:
        """The devices that a group may go to if no constraint says otherwise."""
        return self.available

    def _frame_key(self, node: Node) -> Any:
        """The colocation key of the routing ops of one loop: its tokens are counted in one place."""
        frame = getattr(node.graph, "frames", {}).get(node, ())
        if node.op.routes == "exit":
            inside: Any = node.inputs[0]
            frame = node.graph.frames.get(inside.node, ())  # type: ignore[attr-defined]
        return ("frame", *frame) if frame else node

    def _join(self, a: Any, b: Any) -> None:
        a, b = self._root(a), self._root(b)
        if a is not b:
            self._parents[a] = b

    def _allowed(self, group: Sequence[Node]) -> tuple[list[Device], str]:
        """The devices that a group may go to, and what decided."""
        candidates = self._candidates(group)
        allowed = [d for d in candidates if all(has_kernel(n.op, d.kind) for n in group)]
        if not allowed:
            node = next(n for n in group if not any(has_kernel(n.op, d.kind) for d in self.available)) if any(
                not any(has_kernel(n.op, d.kind) for d in self.available) for n in group
            ) else group[0]  # fmt: skip
            raise ValueError(
                f"placement: no device has kernels for node {node.name!r} ({node.op.name}) and what is colocated with it. Got "
                f"{[str(d) for d in self.available]}. Made at {node.where}."
            )
        reason = "feasible" if len(allowed) < len(candidates) else ""
        for soft in (False, True):
            for node in group:
                for wish in node.device or ():
                    if (wish.soft or bool(node.op.routes)) is not soft:
                        continue  # what routes the tokens of one loop must be together: its wishes are soft
                    narrowed = [d for d in allowed if wish.allows(d)]
                    if narrowed:
                        allowed, reason = narrowed, f"device({wish})" + ("" if len(group) == 1 else f" of {node.name}")
                    elif not soft:
                        raise ValueError(
                            f"placement: no device can satisfy device({str(wish)!r}) of node {node.name!r} ({node.op.name}). "
                            f"Possible: {[str(d) for d in allowed]}; a kernel, a colocated node or another constraint rules "
                            f"out the rest. Made at {node.where}. Use `wf.device(name, soft=True)` to allow other devices."
                        )
        return allowed, reason

    def _choose(self) -> None:
        done: set[Any] = set()
        for first in self.nodes:
            root = self._root(first)
            if root in done:
                continue
            done.add(root)
            group = self.groups[root]
            allowed, reason = self._allowed(group)
            costs = {d: self._cost(group, d) for d in allowed}
            best = min(allowed, key=lambda d: (costs[d], self.available.index(d)))
            for node in group:
                self.of[node] = best
                seconds, self.measured[node] = node_seconds(node, best.kind)
                self.load[best] += seconds
                if len(allowed) > 1:
                    text = ", ".join(f"{d} {costs[d] * 1e6:.1f} µs" for d in allowed)
                    how = "measured" if all(node_seconds(n, d.kind)[1] for n in group for d in allowed) else "estimated"
                    self.why[node] = f"{reason + '; ' if reason else ''}cheapest ({how}): {text}"
                else:
                    self.why[node] = reason or "the only device"
                if len(group) > 1:
                    self.why[node] += f"; together with {group[0].name if node is not group[0] else group[1].name}"

    def _cost(self, group: Iterable[Node], device: Device) -> float:
        total = self.load[device] if any(n.op is not NO_OP for n in group) else 0.0  # what does nothing only waits
        for node in group:
            total += node_seconds(node, device.kind)[0]
            for v in node.inputs:
                if isinstance(v, Value) and self.of.get(v.node, device) != device:
                    total += self._transfer(self.of[v.node], device, v.nbytes)
            for other in node.control:
                if self.of.get(other, device) != device:
                    total += self._transfer(self.of[other], device, 0)
        return total

    def _transfer(self, source: Device, destination: Device, nbytes: int) -> float:
        """How long a value takes from one device to another, in seconds."""
        return SECONDS_PER_TRANSFER + nbytes * SECONDS_PER_BYTE

    def report(self) -> str:
        width = max([len(n.name) for n in self.nodes], default=4)
        lines = [f"placement on {', '.join(str(d) for d in self.available)}:"]
        lines += [f"  {n.name:{width}}  {self.of[n]!s:8}  {self.why[n]}" for n in self.nodes]
        lines += [f"  load of {d}: {s * 1e6:.1f} µs" for d, s in self.load.items()]
        count = sum(self.measured.values())
        lines.append(
            f"  costs: {count} of {len(self.nodes)} nodes measured, the others estimated from sizes"
            + ("" if count else "; `sess.measure(fetches, feeds)` measures them")
        )
        return "\n".join(lines)


def placement_report(graph: DeclaredGraph, available: Any = None) -> str:
    """Where every node of `graph` would run on `available` devices (default: those of the process), and why."""
    return Placement(graph.nodes, as_devices(available)).report()
