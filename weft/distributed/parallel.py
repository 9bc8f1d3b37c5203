"""DataParallel: synchronous training of one model by all members of a run.

A step is two programs: `shard -> gradients` in a slot of the member that computes it, and `slice -> update` of a range of the
weights. The sum of the shards' gradients is part of the second program and follows the fixed tree.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..autograd.tape import no_grad
from ..multiprocessing import Segment
from ..nn.layers.sync_norm import SyncBatchNorm
from ..ops.array.creation import arange
from ..ops.array.row_sparse import RowSparse
from ..ops.array.shaping import reshape
from ..optim.optimizer import Optimizer, parameters_of
from ..tensor import Tensor, wrap
from . import join, rows, same_bits, tree
from .board import INITIALISED, PERMIT, Board, Shape
from .buffers import named_buffers
from .checks import Checks
from .communicator import begin_step
from .context import Context
from .failpoints import reach
from .gathering import ShardThread, Together, Values
from .memory import Memory
from .randomness import Randomness
from .shard import MAX_MEANS, LogicalShard, Report, scales
from .shelf import PRESENT, Shelf
from .team import Team
from .updates import Updates


@dataclasses.dataclass
class Computed:
    """What a shard gave: the mean loss, other numbers that are summed over the shards, and its report.

    `counts` has a list per batch of the group, of the counts of its means.
    """

    loss: float
    numbers: Sequence[float]
    weight: float
    void: bool
    counts: Sequence[Sequence[float]]


Compute = Callable[[int, "np.ndarray | None", bool], Computed]
"""(shard, counts, collects) -> what it gave. `counts` are those of the whole batch, one row per batch of the group, if they are
known. With `collects` nothing but the counts of the shard is asked for"""

_parts = 0  # of the run that this process has joined; all workers join them in the same order


_open: list[DataParallel] = []


def open_parts() -> list[DataParallel]:
    """The parts of the run that this process trains now."""
    return list(_open)


def next_part() -> int:
    """The number of the part that will be made next."""
    return _parts


class DataParallel:
    """The state of one model and optimiser in a run, and the steps that change it.

    Args:
        context: the run.
        model: a module or several; their buffers and frozen parameters are shared, too.
        optimizer: an optimiser of `weft.optim`.
        seed: of the random numbers drawn inside of shards.
        clip_grad_norm: the maximum global norm of the gradients.
        ema: an `optim.EMA` of the model.
        batches: how many batches make one update.
    """

    def __init__(
        self,
        context: Context,
        model: Any,
        optimizer: Any,
        seed: int,
        clip_grad_norm: float | None = None,
        ema: Any = None,
        batches: int = 1,
    ) -> None:
        global _parts
        self.number = _parts
        """tells the parts of a run apart: what different steps, or calls of `Trainer.fit`, train"""
        _parts += 1
        _refuse(optimizer)
        if self.number == 0:
            same_bits.check(context)
        self.context, self.optimizer, self.ema, self.batches = context, optimizer, ema, batches
        self.randomness = Randomness(seed)
        trained = {id(p) for group in optimizer.param_groups for p in group.params if p.requires_grad}
        models = model if isinstance(model, (list, tuple)) else [model]
        named = [(f"{i}.{name}", p) for i, m in enumerate(models) for name, p in m.named_parameters()]
        frozen = [(name, p) for name, p in named if id(p) not in trained]
        self._known = list(
            {id(p): p for p in (*parameters_of(optimizer.param_groups), *(p for _, p in named))}.values()
        )
        lean = context.memory == "lean"
        if lean and context.hosts > 1:
            raise RuntimeError(
                "distributed: lean memory is for one host: others take over the state of a host from its second copy. Got "
                f"--hosts {context.hosts}."
            )
        self.shelf = Shelf(optimizer, named_buffers(models), frozen, context.shards, ema, copies=1 if lean else 2)
        slices = len(self.shelf.slices)
        self.memory = Memory(context.socket)

        def segment(part: str, nbytes: int) -> Segment:
            return self.memory.open(f"{self.number}-{part}", nbytes)

        relayed = context.hosts > 1
        shape = Shape(context.shards, slices, context.members + relayed, relayed)
        self.board = Board(segment("board", Board.nbytes(shape)), shape)
        self.shelf.attach(segment("state", self.shelf.nbytes))
        gradients = segment("gradients", Team.gradient_bytes(self.shelf, shape))
        self._updates = Updates(self.shelf, optimizer, ema)
        self.team = Team(
            self.board, self.shelf, gradients, self._updates.update, segment, context.log,
            self._updates.norm if clip_grad_norm is not None else None, _clip(clip_grad_norm), self._look_after_keeper,
        )  # fmt: skip
        if context.check_every:
            self.team.checks = Checks(self.team, context.check_every, segment, self._updates.order)
        atexit.register(self.team.close)
        join(self.team)
        self._initialise()
        self._slot_tensors = [wrap(a) for a in self.shelf.slot_tensors(self.team.slot(self.team.row, 0))]
        self._slot_arrays: dict[int, list[np.ndarray]] = {}
        self._lifeline = context.lifeline
        self._slot: Any = None  # of the shard that is computed
        self._target: Any = None  # where its gradients go: the slot, or the spare one
        self._spare: dict[Any, np.ndarray] | None = None
        self._batch: tuple[int, Sequence[int]] = (0, ())  # that is computed: its number in the group, the shards it has
        self._gathered = 0  # how often the shard has gathered values in this batch
        self._thread: ShardThread | None = None  # of the shard that is computed, if shards gather values
        self.synchronised = any(isinstance(m, SyncBatchNorm) for top in models for m in top.modules())
        if self.synchronised:
            self._prepare_gathering(segment)
        self.on_write: Callable[[dict[Any, np.ndarray]], None] | None = None
        """called with what was written, on a worker that writes alone; None if all do"""
        self.pending: dict[Any, np.ndarray] | None = None
        """what `on_write` was called with last, if it is not committed yet"""
        self.write_refused: str | None = None
        """why the state may not be written now"""
        _open.append(self)
        self._collects = {
            True: False,
            False: False,
        }  # whether steps that train, or do not, need the counts of all shards

    def _initialise(self) -> None:
        """The first member writes its weights into buffer 0; the others wait and take them over."""
        board, me = self.board, self.team.member
        while True:
            found = board.load("header", INITIALISED)
            if found >> 32:
                break
            if found == 0 and board.swap("header", INITIALISED, 0, me):
                reach("initialising")
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

    def _prepare_gathering(self, segment: Callable[[str, int], Segment]) -> None:
        if self.context.hosts > 1:
            raise RuntimeError(
                "distributed: SyncBatchNorm needs all shards of a batch on one host, and this run has "
                f"{self.context.hosts}. Use --hosts 1, or BatchNorm, which normalises each shard by itself."
            )
        self._values = Values(segment, self.board, self.team.row)

        def together(step: Any) -> None:
            def running(thread: ShardThread | None) -> None:
                self._thread = thread

            Together(step, self._values, self, running).run()

        self.team.together = together

    def begin_batch(self, number: int, samples: int) -> None:
        """Before a shard of batch `number` of the step is computed."""
        self._batch, self._gathered = (number, tree.present(samples, self.context.shards)), 0

    def gather(self, values: np.ndarray) -> np.ndarray:
        """The values of all shards of the batch, one row each; called in each of them."""
        thread, (batch, present) = self._thread, self._batch
        if thread is None:
            raise RuntimeError(
                "distributed: a module with SyncBatchNorm is not known to the step. Name it: `distributed.step(optimizer, "
                "modules=[model])`."
            )
        number, self._gathered = self._gathered, self._gathered + 1
        step = self.team.version + 1
        self._values.publish(step, batch, number, thread.shard, values)
        if not self._values.ready(step, batch, number, present):
            thread.wait_for(batch, number, present)
        return self._values.read(step, batch, number, present, len(values))

    def take(self) -> Any:
        """What belongs to the shard that is computed now, beside its thread; see `gathering.Switch`."""
        gradients = [(p, p.grad) for p in self._known]
        for p in self._known:
            p.grad = None
        own = (self._slot, self._target, self._batch, self._gathered)
        return self.randomness.take(), self.shelf.buffers.take_values(), gradients, own

    def put(self, taken: Any) -> None:
        random, buffers, gradients, own = taken
        self.randomness.put(random)
        self.shelf.buffers.put_values(buffers)
        for p, gradient in gradients:
            p.grad = gradient
        self._slot, target, self._batch, self._gathered = own
        self._use_slot(target)

    # Steps ----------------------------------------------------------------------------------------------------------

    def run(self, compute: Compute, samples: Sequence[int], trains: bool, position: tuple[int, ...]) -> Row:
        """One global step.

        Args:
            compute: computes a shard. When training it calls `store_gradients` and `store_rows`, once for each batch that
                has samples in this shard, within `accumulating`.
            samples: of each batch that contributes to the step.
            trains: whether the weights are updated.
            position: of the step in the whole training, on which its random numbers depend.
        """
        begin_step(type(self.optimizer).__name__, list(samples), trains)
        if any(part.writes_alone for part in _open):
            raise RuntimeError(
                "distributed: a step in a callback that runs on the lead alone: the other workers would take it for the next "
                'step of the training. Give the callback `scope = "everywhere"`, or use Trainer.evaluate or predict.'
            )
        if trains:
            self.shelf.check_bound()
        shards = self.context.shards
        weights = dict.fromkeys(range(shards), 0.0)
        for n in samples:
            for s in tree.present(n, shards):
                weights[s] += share(n, shards, s)
        weights = {s: w for s, w in weights.items() if w}
        room = self.batches * MAX_MEANS

        def collect(shard: int, slot: Any) -> Sequence[float]:
            with self.randomness.shard(position, shard):
                found = compute(shard, None, True)
            return [1.0, 0.0, *[0.0] * self._numbers(room), *_padded(found.counts, self.batches), 0.0]

        def step(leaf: Callable[[int, Any], Sequence[float]], trains: bool) -> np.ndarray:
            self.shelf.buffers.take()
            return self.team.step(leaf, list(weights), list(weights.values()), trains)

        stop = 0.0
        while True:
            counts = None
            if self._collects[trains]:
                row = step(collect, False)
                counts, stop = row[-2 - room : -2].reshape(self.batches, MAX_MEANS).copy(), stop or row[-1]

            def leaf(shard: int, slot: Any, counts: np.ndarray | None = counts) -> Sequence[float]:
                self._slot = slot
                self._use_slot(slot)
                with self.randomness.shard(position, shard):
                    found = compute(shard, counts, False)
                return [found.weight, found.loss, *found.numbers, *[0.0] * room, float(found.void)]

            row = step(leaf, trains)
            stop = stop or row[-1]
            if not row[-2]:
                return Row(row, room, int(stop))
            self._collects[trains] = True

    def _numbers(self, room: int) -> int:
        """How many numbers the shards of this run report beside their loss."""
        return self.team.log().width - room - 4

    def scales(self, samples: int, shard: int, counts: np.ndarray | None = None) -> Tensor:
        """The argument of `computing` for a shard of a batch; `counts` are those of the whole batch, if known."""
        return shard_scales(samples, self.context.shards, shard, counts)

    @contextlib.contextmanager
    def computing(self, given: Tensor) -> Iterator[LogicalShard]:
        """A context for the user's function on a shard. Part of a captured function."""
        with self.randomness.python(), LogicalShard(given, self.batches > 1, self.gather).running() as shard:
            yield shard

    @contextlib.contextmanager
    def accumulating(self, more: bool) -> Iterator[None]:
        """A context for computing gradients of the current shard; with `more` they are added to those already there."""
        if not more:
            yield
            return
        if self._spare is None:
            self._spare = self.shelf.slot.allocate()
        self._use_slot(self._spare)
        yield
        self.shelf.add_gradients(self._slot, self._spare)

    @property
    def writes_alone(self) -> bool:
        """Whether this worker runs code that the others do not run now."""
        return self.on_write is not None or self.write_refused is not None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See `writes.writing`."""
        if self.write_refused is not None:
            raise RuntimeError(self.write_refused)
        self.team.settle()
        values = self.shelf.open(self.pending or self.shelf.memory[self.board.committed()[1]])
        try:
            yield
        finally:
            self.shelf.rebind(self.board.committed()[1])
        (self.write if self.on_write is None else self.on_write)(values)

    def write(self, values: dict[Any, np.ndarray]) -> None:
        """Commit a state that all workers have."""
        self.team.write(lambda index, new: self._updates.write(index, values, new))

    @contextlib.contextmanager
    def showing_averages(self) -> Iterator[None]:
        """A context in which the model has the moving averages as weights, in memory of this process."""
        # If the others are ahead, this worker has not bound the newest state yet, and a later step would do so in here.
        self.team.settle()
        shown = []
        buffers = {id(tensor): view for tensor, view in self.shelf.buffers.views}
        for source, average in zip(self.ema.sources, self.ema.averages, strict=True):
            value = average._data.astype(source.dtype)
            if id(source) in buffers:
                self.shelf.buffers.shown.append((buffers[id(source)], value))
            else:
                shown.append((source, source._data))
                source._data = value
        try:
            yield
        finally:
            self.shelf.buffers.shown.clear()
            for source, array in shown:
                source._data = array
            self.shelf.rebind(self.board.committed()[1])

    def _use_slot(self, slot: dict[Any, np.ndarray] | None) -> None:
        """Let gradients be stored in a slot."""
        self._target = slot
        if slot is None:
            return
        arrays = self._slot_arrays.get(id(slot))
        if arrays is None:
            arrays = self._slot_arrays[id(slot)] = self.shelf.slot_tensors(slot)
        for tensor, array in zip(self._slot_tensors, arrays):
            tensor._data = array

    def store_gradients(self) -> list[Any]:
        """Move the parameters' gradients into the slot of this shard. Part of a captured function.

        Returns the row-sparse gradients, as (indices, values) or None, which `store_rows` is called with after it.
        """
        found: list[Any] = []
        with no_grad():
            *targets, presence = self._slot_tensors
            number, present = 0, np.zeros(presence.shape, np.float32)
            for family in self.shelf.families:
                for p in family.params:
                    gradient, p.grad = p.grad, None
                    present[number] = gradient is not None
                    if family.rows is not None:
                        found.append(_as_rows(gradient, family.rows.rows, family.rows.width))
                    elif gradient is None:
                        targets[number].zero_()
                    elif isinstance(gradient, RowSparse):
                        targets[number].copy_(self._dense(gradient, p))
                    else:
                        targets[number].copy_(gradient)
                    number += 1
            presence.copy_(wrap(present))
        return found

    def _dense(self, gradient: RowSparse, p: Tensor) -> Tensor:
        group = next(g for g in self.optimizer.param_groups if any(p is q for q in g.params))
        if self.optimizer.updates_rows(group.settings(p.dtype)):
            raise RuntimeError(
                f"distributed: a parameter of shape {tuple(p.shape)} got a row-sparse gradient that was not expected. Make it "
                "with `nn.Parameter(…, sparse_grad=True)`, as nn.Embedding(sparse=True) does."
            )
        return gradient.to_dense()

    def store_rows(self, found: list[Any]) -> None:
        """Put the row-sparse gradients that `store_gradients` returned into the slot of this shard."""
        fields = [f.rows for f in self.shelf.families if f.rows is not None]
        for field, gradient in zip(fields, found, strict=True):
            if gradient is None:
                self._target[field.indices][0] = 0
            else:
                indices, values = (v.numpy() for v in gradient)
                field.write(self._target, rows.coalesce(indices, values))

    def close(self) -> None:
        """Leave the run; the tensors keep the committed values in memory of their own."""
        if self in _open:
            _open.remove(self)
        self.team.settle()
        self.shelf.release()
        self.team.close()
        self.memory.close()


class Row:
    """The result of a step: a row of the log.

    Attributes:
        loss: the mean over the batch.
        numbers: the sums of the other numbers that the shards gave.
        weight: the sum of the weights of the shards.
        stop: the signal at which the run ends after this step, or 0.
    """

    def __init__(self, values: np.ndarray, room: int, stop: int) -> None:
        self.weight = float(values[0])
        self.loss = float(values[1] / values[0]) if values[0] else math.nan
        self.numbers: np.ndarray = values[2 : -2 - room]
        self.stop = stop


def _refuse(optimizer: Any) -> None:
    """Raise for what cannot be distributed."""
    name = type(optimizer).__name__
    if getattr(type(optimizer), "step", None) is not Optimizer.step:
        raise TypeError(
            f"distributed: {name} has a step() of its own. A distributed step computes the gradients of all shards once and then "
            "updates each parameter by `update`, so methods that evaluate the loss again (closures, LBFGS) are not possible. "
            "Expected an optimiser that defines `update` (see weft.optim.Optimizer), such as SGD or Adam."
        )
    for p in parameters_of(optimizer.param_groups):
        if getattr(p._node, "after", None):
            raise RuntimeError(
                f"distributed: a parameter of shape {tuple(p.shape)} has a hook from register_post_accumulate_grad_hook. It "
                "would see the gradient of one shard and not of the batch. Remove it; use `distributed.step(optimizer, "
                "clip_grad_norm=…)` for clipping, and let the step update and clear gradients."
            )


def _clip(limit: float | None) -> Callable[[float], float]:
    """The factor by which gradients are scaled, from the square of their norm; as `clip_grad_norm_` does it."""
    if limit is None:
        return lambda square: 1.0
    return lambda square: min(1.0, limit / (math.sqrt(square) + 1e-6)) if square == square else math.nan


def share(samples: int, shards: int, shard: int) -> float:
    """The samples of a shard, relative to the mean over all shards: exactly 1 if all have the same.

    >>> [share(6, 4, s) for s in range(4)]
    [0.6666666666666666, 1.3333333333333333, 0.6666666666666666, 1.3333333333333333]
    """
    start, stop = tree.bounds(samples, shards, shard)
    return (stop - start) * shards / samples


def shard_scales(samples: int, shards: int, shard: int, counts: np.ndarray | None = None) -> Tensor:
    """The scales of a `LogicalShard`; `counts` are those of the whole batch, if known."""
    part = share(samples, shards, shard)
    return scales(part, shards / samples, None if counts is None else list(counts * (part / shards)))


def _padded(counts: Sequence[Sequence[float]], batches: int) -> list[float]:
    """The counts of each batch, in a fixed number of places."""
    made = np.zeros((batches, MAX_MEANS))
    for row, given in zip(made, counts):
        row[: len(given)] = given
    return [float(v) for v in made.reshape(-1)]


def _as_rows(gradient: Any, count: int, width: int) -> Any:
    """A gradient of a table as (indices, values); None if there is none."""
    if gradient is None:
        return None
    if isinstance(gradient, RowSparse):
        return gradient.indices, reshape(gradient.values, (gradient.indices.shape[0], width))
    return arange(count), reshape(gradient, (count, width))


__all__ = ["Computed", "DataParallel", "Report", "Row", "share", "PRESENT"]
