"""DataParallel: synchronous training of one model by all members of a run.

A step is two programs: `shard -> gradients` in a slot of the member that computes it, and `slice -> update` of a range of the
weights. The sum of the shards' gradients is part of the second program and follows the fixed tree.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import weft as wf

from ..autograd.tape import no_grad
from ..graph.capture.function import CapturedFunction, function
from ..multiprocessing import Segment
from ..optim.group import update_dtype
from ..random import Generator, default_generator
from ..tensor import Tensor, wrap
from . import join, tree
from .board import INITIALISED, PERMIT, Board, Shape
from .context import Context
from .failpoints import reach
from .memory import Memory
from .shelf import AVERAGE, Shelf, disagreement, gradient_into
from .team import Team


class DataParallel:
    """The state of one model and optimiser in a run, and the steps that change it.

    Args:
        context: the run.
        model: a module or several; their buffers and frozen parameters are shared, too.
        optimizer: an optimiser of `weft.optim`.
        seed: of the random numbers drawn inside of shards.
        clip_grad_norm: the maximum global norm of the gradients.
        ema: an `optim.EMA` of the model.
        name: tells the parts of a run apart that are trained by different steps.
    """

    def __init__(
        self,
        context: Context,
        model: Any,
        optimizer: Any,
        seed: int,
        clip_grad_norm: float | None = None,
        ema: Any = None,
        name: str = "",
    ) -> None:
        self.context, self.optimizer, self.seed, self.ema = context, optimizer, seed, ema
        trained = {id(p) for group in optimizer.param_groups for p in group.params if p.requires_grad}
        models = model if isinstance(model, (list, tuple)) else [model]
        named = [(f"{i}.{name}", p) for i, m in enumerate(models) for name, p in m.named_parameters()]
        frozen = [(name, p) for name, p in named if id(p) not in trained]
        buffers = [(f"{i}.{name}", b) for i, m in enumerate(models) for name, b in m.named_buffers()]
        self.shelf = Shelf(optimizer, buffers, frozen, context.shards, ema)
        slices = len(self.shelf.slices)
        self.memory = Memory(context.socket)

        def segment(part: str, nbytes: int) -> Segment:
            return self.memory.open(name + part, nbytes)

        relayed = context.hosts > 1
        shape = Shape(context.shards, slices, context.members + relayed, relayed)
        self.board = Board(segment("board", Board.nbytes(shape)), shape)
        self.shelf.attach(segment("state", self.shelf.nbytes))
        gradients = segment("gradients", Team.gradient_bytes(self.shelf, shape))
        self._order = [slices - 1, *range(slices - 1)]  # counters and buffers first: unit 0 also writes the log
        self.team = Team(
            self.board, self.shelf, gradients, self._update, segment, context.log,
            self._norm if clip_grad_norm is not None else None, _clip(clip_grad_norm), self._look_after_keeper,
        )  # fmt: skip
        atexit.register(self.team.close)
        join(self.team)
        self._initialise()
        self._slot_tensors = [wrap(a) for a in self.shelf.slot_tensors(self.team.slot(self.team.row, 0))]
        self._slot_arrays: dict[int, list[np.ndarray]] = {}
        self._programs: dict[Any, CapturedFunction[..., Any]] = {}
        self._lifeline = context.lifeline
        self._random = [default_generator]
        self._slot: Any = None
        self._spare: dict[Any, np.ndarray] | None = None

    def _initialise(self) -> None:
        """The first member writes its weights into buffer 0; the others wait and take them over."""
        board, me = self.board, self.team.member
        while True:
            found = board.load("header", INITIALISED)
            if found >> 32:
                break
            if found == 0 and board.swap("header", INITIALISED, 0, me):
                board.format((self.shelf.state.nbytes, self.shelf.slot.nbytes, self.shelf.shared.nbytes))
                board.ring()
                self._await_permission()
                if board.load("header", INITIALISED) != me:
                    continue  # the relay has brought the state of another host
                self.shelf.initialise()
                reach("initialised")
                board.store("header", INITIALISED, 1 << 32 | me)
                board.ring()
                break
            if found and not self.team.peers.present(found):
                board.swap("header", INITIALISED, found, 0)  # it died while it wrote
            threading.Event().wait(0.001)
            self.team.nap()
        board.check()
        self.shelf.adopt()
        self.team.settle()

    def _await_permission(self) -> None:
        """With several hosts: wait until the relay knows whether this host begins, or gets its state from another one."""
        board = self.board
        while (
            board.shape.relayed
            and not board.load("header", PERMIT)
            and board.load("header", INITIALISED) == self.team.member
        ):
            self.team.nap()
            threading.Event().wait(0.001)

    def _look_after_keeper(self) -> None:
        self.memory.check()

    # Steps ----------------------------------------------------------------------------------------------------------

    def run(
        self,
        compute: Callable[[int, float], Sequence[float]],
        samples: Sequence[int],
        trains: bool,
        position: tuple[int, ...],
    ) -> np.ndarray:
        """One global step.

        Args:
            compute: (shard, weight) -> statistics; the first is the loss. When training it calls `store_gradients`, once for each
                batch that has samples in this shard, within `accumulating`.
            samples: of each batch that contributes to the step.
            trains: whether the weights are updated.
            position: of the step in the whole training, on which its random numbers depend.
        """
        shards = self.context.shards
        weights = dict.fromkeys(range(shards), 0.0)
        for n in samples:
            for s in tree.present(n, shards):
                weights[s] += relative_size(n, shards, s)
        weights = {s: w for s, w in weights.items() if w}

        def leaf(shard: int, slot: Any) -> Sequence[float]:
            self._slot = slot
            if slot is not None:
                self._use_slot(slot)
            states = [g.state._data.copy() for g in self._random]
            for number, generator in enumerate(self._random):
                generator._write(mix(self.seed, *position, shard, number), 0)
            try:
                return compute(shard, weights[shard])
            finally:
                for generator, state in zip(self._random, states):
                    generator.state._data[...] = state

        self.shelf.take_buffers()
        return self.team.step(leaf, list(weights), list(weights.values()), trains)

    @contextlib.contextmanager
    def accumulating(self, more: bool) -> Iterator[None]:
        """A context for computing gradients of the current shard; with `more` they are added to those already there."""
        if not more:
            yield
            return
        if self._spare is None:
            self._spare = {name: np.zeros(n, d) for name, (d, n, _) in self.shelf.slot.fields.items()}
        self._use_slot(self._spare)
        yield
        for name, value in self._spare.items():
            if name[0] != "buffers":
                np.add(self._slot[name], value, out=self._slot[name])

    @contextlib.contextmanager
    def showing_averages(self) -> Iterator[None]:
        """A context in which the model has the moving averages as weights, in memory of this process."""
        shown = []
        for source, average in zip(self.ema.sources, self.ema.averages, strict=True):
            shown.append((source, source._data))
            source._data = average._data.astype(source.dtype)
        try:
            yield
        finally:
            for source, array in shown:
                source._data = array
            self.shelf._bound = None
            self.team.settle()

    def _use_slot(self, slot: dict[Any, np.ndarray]) -> None:
        arrays = self._slot_arrays.get(id(slot))
        if arrays is None:
            arrays = self._slot_arrays[id(slot)] = self.shelf.slot_tensors(slot)
        for tensor, array in zip(self._slot_tensors, arrays):
            tensor._data = array

    def store_gradients(self, weight: Tensor | None = None) -> None:
        """Move the parameters' gradients, times `weight`, into the slot of this shard. Part of a captured function."""
        with no_grad():
            for p, target in zip(self.shelf.parameters, self._slot_tensors):
                gradient = p.grad
                if weight is not None and gradient is not None:
                    gradient = gradient * wf.astype(weight, gradient.dtype)
                gradient_into(target, gradient)
                p.grad = None

    # Updates --------------------------------------------------------------------------------------------------------

    def _norm(self, index: int, places: dict[tuple[int, int], Any], plan: Any, scale: float) -> float:
        """The sum of the squares of a slice's gradient."""
        part = self.shelf.slices[self._order[index]]
        if part.family < 0:
            return 0.0
        key = ("norm", plan)
        program = self._programs.get(key)
        if program is None:

            def norm(factor: Tensor, *roots: Tensor) -> Tensor:
                gradient = _sum(plan, dict(zip(nodes_of(plan), roots, strict=True))) * factor
                return (gradient * gradient).sum()

            program = self._programs[key] = function(norm)
        roots = [wrap(places[node][part.family, ""][part.start : part.stop]) for node in nodes_of(plan)]
        return float(program(wrap(np.array(scale, roots[0].dtype)), *roots))

    def _update(
        self, index: int, places: dict[tuple[int, int], Any], plan: Any, scale: float, weight: float, old: int, new: int
    ) -> None:
        part = self.shelf.slices[self._order[index]]
        if part.family < 0:
            self._update_rest(places, plan, weight, old, new)
            return
        family = self.shelf.families[part.family]
        key = (part.family, plan)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = function(self._updater(part.family, plan))
        cut = slice(part.start, part.stop)
        shape = family.params[0].shape if family.whole else None

        def at(memory: dict[Any, np.ndarray], state: str) -> Tensor:
            array = memory[part.family, state][cut]
            return wrap(array if shape is None else array[: family.params[0].size].reshape(shape))

        before, after = self.shelf.memory[old], self.shelf.memory[new]
        counts = [self._count(before, c) for c in (family.counter, self._averages_of(family)) if c is not None]
        olds = [at(before, key) for key in ("", *family.keys)]
        news = [at(after, key) for key in ("", *family.keys)]
        roots = [at(places[node], "") for node in nodes_of(plan)]
        factor = wrap(np.array(scale, update_dtype(family.params[0].dtype)))
        program(factor, *counts, *olds, *news, *roots)

    def _averages_of(self, family: Any) -> Tensor | None:
        """The count of updates of the moving averages, if this family has any."""
        return self.shelf.average_steps if AVERAGE in family.keys else None

    def _count(self, memory: dict[Any, np.ndarray], counter: Tensor) -> Tensor:
        number = next(i for i, c in enumerate(self.shelf.counters) if c is counter)
        return wrap(memory["counters"][number : number + 1].reshape(()))

    def _updater(self, number: int, plan: Any) -> Callable[..., None]:
        """The update of any range of a family, from the old buffer to the new one."""
        family, optimizer = self.shelf.families[number], self.optimizer
        group = optimizer.param_groups[family.group]
        count = 1 + len(family.keys)
        nodes = nodes_of(plan)
        dtype = update_dtype(family.params[0].dtype)
        ema = self.ema

        def update(scale: Tensor, *tensors: Tensor) -> None:
            with no_grad():
                rest = list(tensors)
                step = rest.pop(0) + 1.0 if family.counter is not None else None
                averaged = rest.pop(0) + 1.0 if AVERAGE in family.keys else None
                olds, news, roots = rest[:count], rest[count : 2 * count], rest[2 * count :]
                for a, b in zip(olds, news, strict=True):
                    b.copy_(a)
                by_node = dict(zip(nodes, roots, strict=True))
                gradient = _sum(plan, by_node) * scale
                base = group.settings(dtype)
                settings = {**base, **optimizer.prepare(step, base)}
                state: dict[str, Any] = dict(zip(family.keys, news[1:], strict=True))
                if step is not None:
                    state["step"] = step
                average = state.pop(AVERAGE, None)
                optimizer.update(news[0], gradient, state, settings)
                if average is not None:
                    average += (news[0] - average) * ema.rate(averaged)

        update.__name__ = f"update_{number}"
        return update

    def _update_rest(self, places: dict[tuple[int, int], Any], plan: Any, weight: float, old: int, new: int) -> None:
        """Counters, and the averages of the model's buffers."""
        before, after = self.shelf.memory[old], self.shelf.memory[new]
        after["counters"][...] = before["counters"] + np.float32(1)
        for name in self.shelf.scratch:
            values = {node: slot[name] for node, slot in places.items()}
            if after[name].dtype.kind in "fc":
                np.multiply(_sum(plan, values), after[name].dtype.type(1.0 / weight), out=after[name])
            else:
                first = values[nodes_of(plan)[0]]
                for other in values.values():
                    if not np.array_equal(first, other):
                        raise disagreement(self.shelf, first.dtype)
                np.copyto(after[name], first)
            self._average_buffers(("averages", name[1]), after[name], before, after)

    def _average_buffers(self, name: Any, value: np.ndarray, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        """The moving average of buffers, as `EMA.update` does it."""
        if name not in after:
            return
        if value.dtype.kind not in "fc":
            np.copyto(after[name], value)
            return
        assert self.shelf.average_steps is not None
        with no_grad():
            old = wrap(before[name])
            rate = self.ema.rate(wrap(self._count(after, self.shelf.average_steps)._data))
            after[name][...] = (old + (wrap(value) - old) * rate).numpy()

    def close(self) -> None:
        """Leave the run; the tensors keep the committed values in memory of their own."""
        self.team.settle()
        for tensor, *_ in self.shelf._tensors:
            tensor._data = tensor._data.copy()
        for buffer, _ in self.shelf._buffer_views:
            buffer._data = buffer._data.copy()
        self.team.close()
        self.memory.close()


def _clip(limit: float | None) -> Callable[[float], float]:
    """The factor by which gradients are scaled, from the square of their norm; as `clip_grad_norm_` does it."""
    if limit is None:
        return lambda square: 1.0
    return lambda square: min(1.0, limit / (math.sqrt(square) + 1e-6)) if square == square else math.nan


def nodes_of(plan: Any) -> list[tuple[int, int]]:
    """The partial sums of a plan, from left to right."""
    if isinstance(plan[0], int):
        return [plan]
    return [node for part in plan for node in nodes_of(part)]


def _sum(plan: Any, values: dict[Any, Any]) -> Any:
    if isinstance(plan[0], int):
        return values[plan]
    return _sum(plan[0], values) + _sum(plan[1], values)


def relative_size(samples: int, shards: int, shard: int) -> float:
    """The size of a shard relative to the mean of those that have samples: exactly 1 if all have the same."""
    start, stop = tree.bounds(samples, shards, shard)
    if samples % shards == 0 or samples < shards:
        return 1.0 if stop > start else 0.0
    return (stop - start) * shards / samples


def mix(seed: int, *position: int) -> int:
    """A 63-bit seed for the random numbers at one position of a run, such as (epoch, batch, shard)."""
    value = seed & 0xFFFFFFFFFFFFFFFF
    for part in position:
        value = (value ^ (part + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 31
    return value >> 1


__all__ = ["DataParallel", "Generator", "mix", "wf"]
