"""LogicalShard: what is defined over the whole batch, while the user's function runs on one shard of it.

Note [Denominators]. The mean loss of a batch is sum(total_s) / sum(count_s) over the shards s, and its gradient likewise. Most
losses have a fixed number of elements per sample: then count_s is proportional to the samples of a shard, and shards weighted by
their samples give that mean. Losses that leave elements out or weight them (`cross_entropy` with `ignore_index` or `weight`,
`weighted_mean`) have a count that only the shard knows. Three cases:

* The loss that `backward` begins with is no such mean: the weight of the shard is its share of the samples.
* It is one: the weight of the shard is its count. `backward` begins with it, so weighting costs nothing.
* It is a sum or another function of such means, perhaps of several, or several batches make one update: one weight cannot be
  right for all of them. The step is void: it changes nothing, and is repeated after one that only sums the counts of all
  shards (`collects`). Each mean then divides by its count in the whole batch, and the shard's weight is its share.

A shard without any element that counts contributes 0 and not 0 / 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import shards
from ..autograd.engine import parents
from ..autograd.tape import no_grad
from ..ops.array.creation import full
from ..ops.array.elementwise import astype, where
from ..ops.array.shaping import broadcast_to, stack
from ..tensor import Tensor, wrap

MAX_MEANS = 8
"""means with a count of their own in one batch"""

WEIGHT, VOID, COUNTS = 0, 1, 2  # of the report of a shard
_SHARE, _UNIT, _GIVEN = 0, 1, 2  # of its scales


@dataclasses.dataclass
class Report:
    """What a shard says beside its loss and statistics.

    Attributes:
        weight: of its loss and gradients.
        void: whether the step must be repeated with the counts of the whole batch.
        counts: of the means with a count of their own.
    """

    weight: float
    void: bool
    counts: list[float]

    @staticmethod
    def read(values: Tensor) -> Report:
        weight, void, *counts = values._data.tolist()
        return Report(weight, bool(void), counts)


def scales(share: float, unit: float, counts: Sequence[float] | None = None) -> Tensor:
    """The numbers that `LogicalShard` gets as an argument of the captured function.

    Args:
        share: the samples of the shard, relative to the mean over the shards.
        unit: shards per sample of the batch.
        counts: what each mean divides by, if the counts of the whole batch are known.
    """
    return wrap(np.array([share, unit, *(counts or ())], np.float64))


class LogicalShard:
    """See Note [Denominators]. Part of a captured function: everything it decides depends on the program, not on values.

    Args:
        given: from `scales`.
        several: whether several batches make one update.
        gather: shows values to the other shards and returns those of all.
    """

    def __init__(
        self, given: Tensor, several: bool = False, gather: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> None:
        self._given, self._several, self._gather = given, several, gather
        self._known = given.shape[0] - _GIVEN  # counts of the whole batch
        self._means: list[tuple[Tensor, Tensor]] = []  # (loss, count)
        self._choices: dict[int, Tensor] = {}  # number of the mean that weights the shard, or -1 -> the weight
        self._void = False

    @contextmanager
    def running(self) -> Iterator[LogicalShard]:
        """A context for the user's function."""
        before, shards.current.shard = shards.current.shard, self
        try:
            yield self
        finally:
            shards.current.shard = before

    # What code in the shard calls ---------------------------------------------------------------------------------------

    def mean(self, total: Tensor, count: Tensor) -> Tensor:
        number, count = len(self._means), count.detach()
        if number >= MAX_MEANS:
            raise RuntimeError(
                f"distributed: a step has more than {MAX_MEANS} mean losses with ignored or weighted elements. Use "
                "reduction='sum' for some of them and divide by a number that does not depend on the data."
            )
        if self._known > number:
            loss = total / astype(self._given[_GIVEN + number], total.dtype)
        else:
            loss = total / where(count == 0, 1.0, count)
        self._means.append((loss, count))
        return loss

    def seeds(self, roots: Sequence[Tensor], gradients: list[Any]) -> list[Any]:
        with no_grad():
            return [
                g * astype(self._weight_of(root, g.dtype), g.dtype) for root, g in zip(roots, gradients, strict=True)
            ]

    def gather(self, values: np.ndarray) -> np.ndarray:
        assert self._gather is not None
        return self._gather(values)

    # Weights ------------------------------------------------------------------------------------------------------------

    def _weight_of(self, root: Tensor, dtype: np.dtype) -> Tensor:
        """The weight for gradients, or a value, of `root`."""
        number = -1
        if self._means and not self._known:
            number = next((i for i, (loss, _) in enumerate(self._means) if _same(root, loss)), -1)
            if self._several and number >= 0 or number < 0 and self._depends(root):
                self._void = True
        found = self._choices.get(number)
        if found is None:
            if number < 0:
                found = astype(self._given[_SHARE], dtypes.float64)
            else:
                count = self._means[number][1]
                found = astype(count * astype(self._given[_UNIT], count.dtype), dtypes.float64)
            self._choices[number] = found
        return found

    def _depends(self, root: Tensor) -> bool:
        """Whether `root` was computed from a mean; yes if there is no tape to tell."""
        if root._node is None:
            return True
        wanted = {id(loss._node) for loss, _ in self._means}
        seen: set[int] = set()
        stack: list[Any] = [root._node]
        while stack:
            node = stack.pop()
            if id(node) in wanted:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                stack.extend(p for p in parents(node) if p is not None)
        return False

    def report(self, loss: Tensor | None = None) -> Tensor:
        """The `Report` of this shard as a tensor.

        Args:
            loss: the loss, if there was no backward pass.
        """
        with no_grad():
            if loss is not None and not self._choices:
                self._weight_of(loss, loss.dtype)
            weights = list(self._choices.values()) or [astype(self._given[_SHARE], dtypes.float64)]
            void = self._void or len(weights) > 1
            counts = [astype(count, dtypes.float64) for _, count in self._means]
            return stack([weights[0], full((), float(void), dtype=dtypes.float64), *counts])


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one value."""
    return a is b or a._node is not None and a._node is b._node or a._data is b._data


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of `values` weighted by `weights`, such as a mask: ``(values * weights).sum() / weights.sum()``.

    Use it for a loss that leaves out elements, in a distributed step or a `Trainer`: the result is the mean over the whole
    batch, also if its shards have different numbers of elements. `nn.functional.cross_entropy` and `nll_loss` do the same.

    >>> wf.distributed.weighted_mean(wf.tensor([1.0, 5.0, 3.0]), wf.tensor([1.0, 0.0, 1.0])).item()
    2.0
    """
    weights = broadcast_to(astype(weights, values.dtype), values.shape)
    return shards.mean((values * weights).sum(), weights.sum())


__all__ = ["MAX_MEANS", "LogicalShard", "Report", "scales", "weighted_mean"]
