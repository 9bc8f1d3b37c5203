"""Optimiser updates as graphs: declared by a worker, sent as a graph file, run by a parameter server.

The update of a key is a graph `(value, gradient, state…, step) -> (value, state…)`. Its settings (`lr`, `betas.0`)
are variables of the graph, so a schedule changes them without a new graph. An elementwise optimiser needs one graph
per dtype, for vectors of any length; any other one needs a graph per shape. Whatever `Optimizer.update` computes with
ops can travel; nothing is pickled.

A class of the user's may instead be named by an import path, `"my_module:MyOptimizer"`: then the server declares the
graph.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import no_grad
from ..graph.declared.building import DeclaredGraph, placeholder
from ..graph.declared.graph_files import graph_files
from ..graph.declared.loading import load_graph
from ..graph.declared.python_calls import Declaring
from ..graph.declared.serialize import save_graph
from ..graph.declared.variables import state_of
from ..graph.execute.session import Session
from ..nn.parameter import Parameter
from ..optim.group import ParamGroup, update_dtype
from ..optim.optimizer import Optimizer
from ..tensor import Tensor, wrap
from . import rows as row_sums
from .rows import Rows

PROBE_ROWS = 2  # of the table that stands for a larger one when its state is described
MIN_BUCKET = 8  # row updates are padded to powers of two, each of which is compiled once
_DTYPES = {d.name: d for d in dtypes.ALL}


@dataclasses.dataclass(frozen=True)
class UpdateProgram:
    """An update as it travels.

    Attributes:
        facts: JSON: dtype, shape (None for vectors of any length), the description of the state, what rows need.
        program, weights: the two files of the graph, as bytes.
    """

    facts: dict[str, Any]
    program: bytes
    weights: bytes

    @property
    def digest(self) -> str:
        text = json.dumps(self.facts, sort_keys=True).encode()
        return hashlib.sha256(text + self.program + self.weights).hexdigest()[:32]

    def arrays(self) -> list[np.ndarray]:
        return [np.frombuffer(self.program, np.uint8), np.frombuffer(self.weights, np.uint8)]


def optimizer_class(path: str) -> type[Optimizer]:
    """The optimiser that an import path names.

    Raises:
        ValueError: the path names no optimiser.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name) if name else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"set_optimizer: {path!r} cannot be imported on this task: {error}.") from error
    if not isinstance(found, type) or not issubclass(found, Optimizer):
        raise ValueError(
            f"set_optimizer: {path!r} is no optimiser. Expected 'module:Class', a subclass of weft.optim.Optimizer."
        )
    return found


def make_optimizer(kind: type[Optimizer], settings: Mapping[str, Any]) -> Optimizer:
    """An optimiser of a stand-in parameter, for its settings."""
    return kind([Parameter(wrap(np.zeros(1, np.float32)))], **settings)


def declare_update(
    optimizer: Optimizer, group: int, shape: Sequence[int], dtype: np.dtype, table: bool
) -> UpdateProgram:
    """The update of a key of this shape by one group of an optimiser.

    Raises:
        TypeError: the optimiser evaluates the loss again, or does not support the dtype.
    """
    if type(optimizer).update is Optimizer.update:
        raise TypeError(
            f"{type(optimizer).__name__}: this optimiser defines no `update` of single parameters, so a parameter server "
            "cannot run it. Use one that does, such as optim.SGD or optim.Adam."
        )
    if dtypes.is_complex(dtype) or not dtypes.is_floating(dtype):
        raise TypeError(f"parameter server: optimisers update floating-point keys. Got {dtype.name}.")
    shape = tuple(shape)
    settings = {k: v for k, v in optimizer.param_groups[group].items() if k != "params"}
    if settings.get("deferred"):
        settings["deferred"] = False  # a server updates whole tables, or rows if `lazy`, with the same results
    kind = update_dtype(dtype)
    probe = Parameter(wrap(np.zeros((PROBE_ROWS, *shape[1:]) if table else shape, dtype)))
    own = ParamGroup([probe], settings, optimizer.defaults).settings(kind)
    by_rows = table and optimizer.updates_rows(own)
    general: tuple[Any, ...] = shape
    if optimizer.elementwise:
        general = (None,)
    elif by_rows:
        general = (None, *shape[1:])
    begin = optimizer.init_state(probe, own)
    described = {name: _describe(name, value, probe, table) for name, value in begin.items()}
    graph = DeclaredGraph()
    with graph.as_default():
        p = placeholder(dtype, general, name="value")
        g = placeholder(dtype, general, name="gradient")
        state: dict[str, Any] = {}
        for name, value in begin.items():
            like = value.shape == probe.shape
            state[name] = placeholder(value.dtype, general if like else value.shape, name=f"state.{name}")
        step = placeholder(dtypes.float32, (), name="step") if optimizer.counts_steps else None
        if step is not None:
            state["step"] = step
        named = _name_settings(own)
        with Declaring(graph) as mode, no_grad():
            optimizer.update(p, g, state, {**own, **optimizer.prepare(step, own)})
            results = [p, *[state[name] for name in begin]]
        mode.forget()
        outputs = [_output(r) for r in results]
    with tempfile.TemporaryDirectory(prefix="weft-update-") as directory:
        save_graph(graph, os.path.join(directory, "update"))
        program, weights = [file.read_bytes() for file in graph_files(os.path.join(directory, "update"))]
    del named
    facts = {
        "optimizer": type(optimizer).__name__, "dtype": dtype.name, "shape": [*general], "state": described, "rows": by_rows,
        "counts": step is not None, "outputs": outputs, "table": table,
    }  # fmt: skip
    return UpdateProgram(facts, program, weights)


def _output(result: Tensor) -> list[Any]:
    value: Any = result._data
    return [value.node.name, value.index]


def _name_settings(settings: Mapping[str, Any]) -> list[Any]:
    """Give the variables that stand for settings their names, which hold while the result is kept."""
    found = []
    for name, value in settings.items():
        for number, part in enumerate(value if isinstance(value, tuple) else [value]):
            if isinstance(part, Tensor):
                found.append(state_of(part, f"{name}.{number}" if isinstance(value, tuple) else name))
    return found


def flat_settings(group: Mapping[str, Any]) -> dict[str, float]:
    """The floating settings of a group by the names that they have in graphs."""
    found: dict[str, float] = {}
    for name, value in group.items():
        if isinstance(value, float):
            found[name] = value
        elif isinstance(value, tuple):
            found.update({f"{name}.{i}": v for i, v in enumerate(value) if isinstance(v, float)})
    return found


def _describe(name: str, value: Tensor, probe: Tensor, table: bool) -> dict[str, Any]:
    """How a server makes this tensor of the state before the first update."""
    array = value._array("init_state")
    first = array.reshape(-1)[0] if array.size else array.dtype.type(0)
    if array.size and not bool((array == first).all()):
        raise TypeError(
            f"parameter server: the state {name!r} does not begin with one number, so it cannot be made on a server. Let "
            "`init_state` return zeros or another constant."
        )
    like = array.shape == probe.shape
    if table and not like and array.ndim:
        raise TypeError(
            f"parameter server: the state {name!r} of a table of rows must have a row for each of its rows."
        )
    return {"dtype": array.dtype.name, "shape": None if like else list(array.shape), "fill": float(first)}


class Update:
    """An update that this process can run."""

    def __init__(self, program: UpdateProgram) -> None:
        facts = program.facts
        with tempfile.TemporaryDirectory(prefix="weft-update-") as directory:
            files = graph_files(os.path.join(directory, "update"))
            for file, data in zip(files, (program.program, program.weights), strict=True):
                file.write_bytes(data)
            graph = load_graph(os.path.join(directory, "update"))
        self.program = program
        self.state = dict(facts["state"])
        self.by_rows, self.counts, self.vector = bool(facts["rows"]), bool(facts["counts"]), facts["shape"] == [None]
        self._settings: dict[str, Tensor] = graph.variables()
        used = {node.name: node for node in graph.nodes}
        feeds = ["value", "gradient", *[f"state.{name}" for name in self.state], *(["step"] if self.counts else [])]
        self._fed = [i for i, name in enumerate(feeds) if name in used]
        outputs = [used[str(name)].outputs[int(index)] for name, index in facts["outputs"]]
        self._session = Session(graph)
        self._call = self._session.make_callable(
            [wrap(v) for v in outputs], [wrap(used[feeds[i]].outputs[0]) for i in self._fed]
        )

    def set(self, settings: Mapping[str, float]) -> None:
        """Change settings by name; those that the update does not use are ignored."""
        for name, value in settings.items():
            variable = self._settings.get(name)
            if variable is not None:
                variable._data[...] = value

    def begin(self, shape: Sequence[int]) -> dict[str, np.ndarray]:
        """The state of a key before its first update."""
        return {
            name: np.full(
                tuple(shape) if entry["shape"] is None else entry["shape"], entry["fill"], _DTYPES[entry["dtype"]]
            )
            for name, entry in self.state.items()
        }

    def dense(
        self, value: np.ndarray, gradient: np.ndarray, state: Mapping[str, np.ndarray], step: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The new value and state; the arrays that were given are not changed."""
        shape = value.shape
        given = [value, gradient, *state.values()]
        if self.vector:
            given = [a.reshape(-1) if a.shape == shape else a for a in given]
        given.append(np.asarray(step, np.float32))
        found = [np.asarray(t._data) for t in self._call(*[given[i] for i in self._fed])]
        made = [a.reshape(b.shape) for a, b in zip(found, [value, *state.values()], strict=True)]
        return made[0], dict(zip(state, made[1:], strict=True))

    def rows(self, value: np.ndarray, gradient: Rows, state: dict[str, np.ndarray], step: int) -> np.ndarray | None:
        """Update the rows of a table in place, or return a new table if every row changes."""
        indices, values = gradient
        if not self.by_rows:
            whole = np.zeros_like(value)
            whole[indices] = values
            made, new = self.dense(value, whole, state, step)
            state.update(new)
            return made
        count = len(indices)
        if not count:
            return None
        bucket = max(MIN_BUCKET, 1 << (count - 1).bit_length())
        padded = np.zeros((bucket, *value.shape[1:]), value.dtype)
        padded[:count] = values
        own = [name for name, entry in self.state.items() if entry["shape"] is None]
        part = {name: _padded(a, indices, bucket) if name in own else a for name, a in state.items()}
        made, new = self.dense(_padded(value, indices, bucket), padded, part, step)
        value[indices] = made[:count]
        for name in state:
            if name in own:
                state[name][indices] = new[name][:count]
            else:
                state[name] = new[name]
        return None


def _padded(table: np.ndarray, indices: np.ndarray, bucket: int) -> np.ndarray:
    found = np.zeros((bucket, *table.shape[1:]), table.dtype)
    np.take(table, indices, axis=0, out=found[: len(indices)], mode="clip")
    return found


def summed_rows(parts: Sequence[Rows]) -> Rows:
    """The sum of row-sparse gradients, in their order."""
    found = parts[0]
    for part in parts[1:]:
        found = row_sums.merge(found, part)
    return found


__all__ = [
    "Update",
    "UpdateProgram",
    "declare_update",
    "flat_settings",
    "make_optimizer",
    "optimizer_class",
    "summed_rows",
]
