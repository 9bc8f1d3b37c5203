"""Placement over a cluster: which task, or the client's own process, every node of a step goes to.

What was declared inside of `wf.device("/job:…")` goes to a task that fits; a variable stays on the first one that was
chosen. Variables, queues and barriers declared outside of it are in the client's process, with what reads and writes them,
and so is what prints, or cannot be sent. Everything else goes to a task, the cheapest by work, load and bytes to move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..graph.capture.control_flow import ControlOp
from ..graph.declared.building import NO_OP, IterationNumbers
from ..graph.declared.callables import stored_name
from ..graph.declared.deferred_nodes import DeferredCall, DeferredGradient, DeferredOp
from ..graph.declared.queues import Barrier, Queue, _BarrierOp, _QueueOp
from ..graph.declared.routing import RoutingOp
from ..graph.declared.serialize import RestoreOp, SaveOp
from ..graph.declared.variables import ReadOp, State, WriteOp
from ..graph.execute.control_lowering import STEP_OPS
from ..graph.execute.placement import Placement
from ..graph.graph import Node, Value
from ..ops.core.registry import Op
from ..runtime.device import Device

HERE = Device()  # the client's process
# Seconds of a crossing between processes of one host, before anything is measured.
SECONDS_PER_MESSAGE, SECONDS_PER_BYTE = 5e-5, 2e-10


def state_in(op: Any) -> Iterable[State | Queue | Barrier]:
    """What lives across steps and is used by an op."""
    if isinstance(op, (ReadOp, WriteOp)):
        yield op.state
    elif isinstance(op, _QueueOp):
        yield op.queue
    elif isinstance(op, _BarrierOp):
        yield op.barrier
    elif isinstance(op, (SaveOp, RestoreOp)):
        yield from op.states.values()


def is_portable(node: Node, modules: Sequence[str]) -> bool:
    """Whether a task can run the node: its op is one of Weft, or of `modules`, which tasks import."""
    op = node.op
    if isinstance(op, Op):
        home = op.fn.__module__.split(".")[0]
        return not op.effects & {"print"} and (home == "weft" or any(_within(op.fn.__module__, m) for m in modules))
    if isinstance(op, ControlOp):
        return all(is_portable(n, modules) for sub in op.subs for n in sub.graph.nodes)
    if isinstance(op, DeferredOp):
        while isinstance(op, DeferredGradient):
            op = op.of
        if op.modes:
            return False
        function = op.function if isinstance(op, DeferredCall) else None
        return function is None or getattr(function, "op", None) is not None or stored_name(function) is not None
    if isinstance(op, WriteOp) and op.sub is not None:
        return all(is_portable(n, modules) for n in op.sub.graph.nodes)
    known = (ReadOp, WriteOp, RoutingOp, _QueueOp, _BarrierOp, SaveOp, RestoreOp, IterationNumbers)
    return op is NO_OP or isinstance(op, known) or op.name in STEP_OPS or op.name in ("placeholder", "constant")


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


class ClusterPlacement(Placement):
    """Where every node goes: `of[node]` is a device of a task, or HERE.

    Args:
        nodes: of the step.
        available: the devices of the tasks.
        link: seconds per message and per byte between two devices.
        modules: what the tasks import.
    """

    def __init__(
        self, nodes: Sequence[Node], available: Sequence[Device], link: Callable[[Device, Device], tuple[float, float]],
        modules: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._link, self._modules = link, modules
        self._tasks = list(available)
        self._buffers = _buffer_values(nodes)
        super().__init__(nodes, [*available, HERE])

    def _keys(self, node: Node) -> Iterable[Any]:
        if isinstance(node.op, _QueueOp):
            yield node.op.queue
        elif isinstance(node.op, _BarrierOp):
            yield node.op.barrier
        if self._buffers and any(v in self._buffers for v in (*node.inputs, *node.outputs) if isinstance(v, Value)):
            yield "buffers"  # a buffer is no array and stays in its process

    def _state_with(self, group: Sequence[Node]) -> list[Any]:
        """The state that the nodes of a group use, or are placed with by `colocate_with`."""
        root = self._root(group[0])
        found = [x for x in (*self._parents, root) if isinstance(x, (State, Queue, Barrier)) and self._root(x) is root]
        return list(dict.fromkeys([*found, *[s for n in group for s in state_in(n.op)]]))

    def _candidates(self, group: Sequence[Node]) -> list[Device]:
        state = self._state_with(group)
        homes = {s.home.device for s in state if s.home is not None and _is_made(s)}
        if len(homes) == 1:
            (home,) = homes
            return [d for d in self._tasks if (d.job, d.task) == (home.job, home.task)]
        kept = next((s for s in state if s.device is None), None)
        here = next((n for n in group if self._stays(n)), None)
        if here is None and kept is None:
            return self.available if all(n.op is NO_OP for n in group) else self._tasks
        for node in group:
            for wish in node.device or ():
                if not wish.soft and not wish.allows(HERE):
                    raise ValueError(
                        f"placement: node {node.name!r} ({node.op.name}) cannot be on device({str(wish)!r}): "
                        f"{self._reason(here, kept)} Made at {node.where}."
                    )
        return [HERE]

    def _stays(self, node: Node) -> bool:
        """Whether a node must be in the client's process."""
        return isinstance(node.op, (SaveOp, RestoreOp)) or not is_portable(node, self._modules)

    def _reason(self, node: Node | None, used: Any) -> str:
        if used is not None or node is None:
            return (
                f'{used.name!r} is in this process, because it was not declared inside of `with wf.device("/job:…")`, and '
                "what uses it stays with it."
            )
        return (
            f"{node.op.name!r} is not known to the tasks. Define it in a module and make the cluster with "
            '`wf.distributed.Cluster(…, modules=["that.module"])`.'
        )

    def _transfer(self, source: Device, destination: Device, nbytes: int) -> float:
        if (source.job, source.task) == (destination.job, destination.task):
            return super()._transfer(source, destination, nbytes)
        message, byte = self._link(source, destination)
        return message + byte * nbytes


def _is_made(state: Any) -> bool:
    return getattr(state.home, "device", None) is not None


def _buffer_values(nodes: Sequence[Node]) -> set[Value]:
    """The values that are buffers of a lowered scan rather than arrays."""
    found: set[Value] = set()
    before = -1
    while len(found) != before:  # loops close backwards
        before = len(found)
        for node in nodes:
            if getattr(node.op, "buffers", False) or (node.op.routes and any(v in found for v in node.inputs)):
                found.update(node.outputs[:1] if node.op.routes == "merge" else node.outputs)
    return found
