"""`step`: makes a hand-written training loop distributed.

The loop runs on every worker; the decorated function is called once per shard of the batch it is given, on any worker. A
worker that starts late runs the loop from its beginning: steps that are committed return their result at once, from the log.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..autograd.tree import flatten, unflatten
from ..graph.capture.function import function
from ..graph.capture.tracing import capturing
from ..nn.module import Module
from ..nn.utils import clip_grad_norm_
from ..optim.optimizer import parameters_of
from ..random import default_generator
from ..tensor import Tensor, wrap
from . import context, ledger
from .parallel import Computed, DataParallel, Report, share
from .programs import Program

ALONE = object()  # the structure of a result that is one tensor


class DistributedStep:
    """A function of a batch that computes gradients, and the update that follows. See `step`."""

    def __init__(self, fn: Callable[..., Any], settings: Settings) -> None:
        functools.update_wrapper(self, fn)
        self.__name__: str = getattr(fn, "__name__", type(fn).__name__)
        self.fn, self.settings, self.optimizer = fn, settings, settings.optimizer
        found = [*_modules_of(fn), *settings.modules]
        self.modules = list({id(m): m for m in found}.values())
        self._parallel: DataParallel | None = None
        self._structure: Any = None
        self._calls = 0
        self._alone: Callable[..., Any] = function(self._whole, fullgraph=True) if settings.capture else self._whole
        self._leaf: Any = None  # programs, once the step has joined the run
        self._counter: Any = None

    def __call__(self, *batch: Any) -> Any:
        if capturing() is not None:
            raise RuntimeError(
                f"{self.__name__}: a distributed step inside a captured function would end in the middle of it: gradients are "
                "summed over workers before the update. Call it from the loop; it is captured by itself."
            )
        run = context.current()
        return self._alone(*batch) if run is None else self._distributed(run, batch)

    def _whole(self, *batch: Any) -> Any:
        self.optimizer.zero_grad()
        result = self.fn(*batch)
        if self.settings.clip_grad_norm is not None:
            clip_grad_norm_(parameters_of(self.optimizer.param_groups), self.settings.clip_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.settings.ema is not None:
            self.settings.ema.update()
        return _detached(result)

    def _body(self, scales: Tensor, batch: tuple[Any, ...]) -> tuple[Any, list[Any], Tensor]:
        """The user's function on a shard: its result, row-sparse gradients, and its report."""
        assert self._parallel is not None
        self._clear()  # gradients that a step of another optimiser left
        with self._parallel.computing(scales) as shard:
            result = self.fn(*batch)
        rows = self._parallel.store_gradients()
        self._clear()
        return result, rows, shard.report()

    def _shard(self, scales: Tensor, *batch: Any) -> Any:
        result, rows, report = self._body(scales, batch)
        return _detached(result), rows, report

    def _count(self, scales: Tensor, *batch: Any) -> Any:
        return self._body(scales, batch)[2]

    def _clear(self) -> None:
        self.optimizer.zero_grad()
        for module in self.modules:
            for p in module.parameters():
                p.grad = None

    def _distributed(self, run: context.Context, arguments: tuple[Any, ...]) -> Any:
        if self._parallel is None:
            seed, given = default_generator.random_seed(), self.settings
            self._parallel = DataParallel(run, self.modules, self.optimizer, seed, given.clip_grad_norm, given.ema)
            self._leaf, self._counter = (
                Program(fn, run.directory, self.__name__, given.capture and not self._parallel.synchronised)
                for fn in (self._shard, self._count)
            )
        parallel = self._parallel
        batch = ledger.WholeBatch(arguments)
        position, self._calls = self._calls, self._calls + 1

        def compute(shard: int, counts: np.ndarray | None, collects: bool) -> Computed:
            part = batch.shard(shard, run.shards)
            parallel.begin_batch(0, batch.samples)
            if collects:
                report = Report.read(self._counter(parallel.scales(batch.samples, shard), *part))
                return Computed(0.0, [], 0.0, False, [report.counts])
            scales = parallel.scales(batch.samples, shard, None if counts is None else counts[0])
            result, rows, values = self._leaf(scales, *part)
            parallel.store_rows(rows)
            report = Report.read(values)
            loss, *rest = self._numbers(result)
            size = share(batch.samples, run.shards, shard)
            return Computed(loss, [size * v for v in rest], report.weight, report.void, [report.counts])

        row = parallel.run(compute, [batch.samples], True, (position,))
        return self._result([row.loss, *(row.numbers / run.shards)])

    def _numbers(self, result: Any) -> list[float]:
        """The returned scalars; each becomes the mean over shards, the others than the loss weighted by their samples."""
        if result.__class__ is Tensor and result._data.size == 1:
            self._structure = ALONE
            return [float(result._data.reshape(()))]
        leaves, self._structure = flatten(result)
        if not leaves or not all(isinstance(v, (Tensor, int, float)) and np.size(v) == 1 for v in leaves):
            raise TypeError(
                f"{self.__name__}: a distributed step returns a loss, or a tuple or dict of numbers, which are averaged over the "
                f"shards. Got {[getattr(v, 'shape', type(v).__name__) for v in leaves]}."
            )
        return [float(v) for v in leaves]

    def _result(self, values: list[float]) -> Any:
        tensors = [wrap(np.array(v, np.float32)) for v in values]
        if self._structure is ALONE:
            return tensors[0]
        if self._structure is None:  # this worker has computed no shard yet
            return tensors[0] if len(tensors) == 1 else tuple(tensors)
        return unflatten(self._structure, tensors)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `step` was given."""

    optimizer: Any
    modules: tuple[Module, ...]
    clip_grad_norm: float | None
    ema: Any
    capture: bool


def step(
    optimizer: Any,
    modules: Iterable[Module] | None = None,
    *,
    clip_grad_norm: float | None = None,
    ema: Any = None,
    capture: bool = True,
) -> Callable[[Callable[..., Any]], DistributedStep]:
    """Make a function that computes gradients a distributed training step: `@wf.distributed.step(optimizer)`.

    The function gets a batch, calls `backward` and returns the loss (or a tuple or dict of numbers, the loss first). Under
    `weft run` a call with a global batch runs the function once per shard, on any worker, perhaps again; then the gradients
    are averaged, the optimiser updates the weights, and the mean of what the shards returned comes back. Without `weft run` it
    is an ordinary captured training step.

    Args:
        optimizer: updates the weights after each call; two optimisers, as in a GAN, are two steps.
        modules: modules that the function uses but does not refer to by name; their buffers (such as batch statistics) are part
            of the state.
        clip_grad_norm: the maximum global norm of the gradients.
        ema: an `optim.EMA` that is updated after the weights.
        capture: compile the function; False runs it eagerly, for control flow that depends on data.

    >>> model = nn.Linear(2, 1); optimizer = optim.SGD(model.parameters(), lr=0.1)
    >>> @wf.distributed.step(optimizer)
    ... def train(x, y):
    ...     loss = ((model(x) - y) ** 2).mean()
    ...     loss.backward()
    ...     return loss
    >>> x = wf.ones(4, 2); first = train(x, wf.zeros(4, 1)); bool(train(x, wf.zeros(4, 1)) < first)
    True
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"step: expected an optimizer of weft.optim. Got {type(optimizer).__name__}.")
    if clip_grad_norm is not None and not clip_grad_norm > 0:
        raise ValueError(f"step: clip_grad_norm must be positive. Got {clip_grad_norm!r}.")
    settings = Settings(optimizer, tuple(modules or ()), clip_grad_norm, ema, capture)

    def decorate(fn: Callable[..., Any]) -> DistributedStep:
        return DistributedStep(fn, settings)

    return decorate


def _modules_of(fn: Callable[..., Any]) -> list[Module]:
    """The modules that a function refers to by name."""
    names = inspect.getclosurevars(inspect.unwrap(fn))
    found = [v for v in (*names.nonlocals.values(), *names.globals.values()) if isinstance(v, Module)]
    owner = getattr(fn, "__self__", None)
    return [*found, owner] if isinstance(owner, Module) else found


def _detached(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    return unflatten(structure, [v.detach() if isinstance(v, Tensor) else v for v in leaves])
