"""Parts of steps, as clients of a cluster send them to its tasks: seeds and reader for `targets`."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
from weft.distributed.remote_partition import Cut
from weft.distributed.remote_parts import Written, read_part, write_part
from weft.distributed.remote_task_steps import TaskPart
from weft.graph.execute.control_lowering import Lowered
from weft.graph.graph import CONSTANT, PLACEHOLDER
from weft.runtime.device import Device


class _Names:
    """State by its name, on both sides."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.queues: dict[str, Any] = {}
        self.barriers: dict[str, Any] = {}

    def of(self, what: Any) -> str:
        kind = self.queues if isinstance(what, wf.FIFOQueue) else self.states
        kind[what.name] = what
        return str(what.name)


@functools.cache
def _made() -> tuple[list[Written], _Names]:
    """The parts of a step with state, a queue and a branch, and of one with a loop of routing ops; and what they use."""
    graph = wf.Graph("parts")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (None, 3), name="x")
        w = wf.Variable(np.ones((3, 2), np.float32), name="w")
        queue = wf.FIFOQueue(4, wf.float32, (), name="jobs")
        y = wf.relu(x @ w) * queue.dequeue() + wf.constant(np.arange(2, dtype=np.float32))
        z = wf.cond(wf.sum(y) > 0, lambda: y * 2.0, lambda: y - 1.0)
        update = w.assign_fn(lambda old: old - wf.mean(z))
        _, power = wf.while_loop(lambda i, p: i < 3, lambda i, p: (i + 1, p * 2.0), (wf.constant(0), wf.sum(x)))
    names, found = _Names(), []
    for mode, fetches in (("dataflow", [z, update]), ("tokens", [power])):
        nodes, fed, fetched = list(graph.nodes), x._data, [t._data for t in fetches]
        if mode == "tokens":
            lowered = Lowered(nodes, True)
            nodes, fed = lowered.graph.nodes, lowered.values[fed]
            fetched = [lowered.values[v] for v in fetched]
        turns = itertools.cycle((0, 1))
        place = {n: Device("cpu", 0, "worker", next(turns)) for n in nodes if n.op not in (CONSTANT, PLACEHOLDER)}
        cut = Cut(nodes, {fed}, fetched, place, lambda device: device.task, "step")
        found += [write_part(part, names, mode) for part in cut.parts.values()]
    return found, names


def seeds() -> list[bytes]:
    """The texts, each with its number in the name of its graph."""
    made = []
    for i, part in enumerate(_made()[0]):
        program = json.loads(part.text)
        program["graph"]["name"] = f"part-{i}"
        made.append(json.dumps(program).encode())
    return made


def read(folder: Path, content: bytes) -> Any:
    """Read and plan a part as a task does when it is registered."""
    parts, names = _made()
    number = next((i for i in range(len(parts)) if f'"part-{i}"'.encode() in content), 0)
    arrays = dict(zip(parts[number].names, parts[number].arrays, strict=True))
    return TaskPart(read_part(content, arrays, names))
