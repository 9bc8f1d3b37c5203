"""The logical shard of a distributed step that this thread computes, for the few places that must know of it.

A distributed step (`weft.distributed`) runs the user's function once per shard of a global batch. What is defined over the
whole batch asks `current.shard`, which is None everywhere else: mean losses, whose denominators differ from shard to shard;
`backward`, which weights the shard; synchronised batch statistics; and `optimizer.step`, which has no place there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from ..tensor import Tensor


class Shard(Protocol):
    """A shard, as seen by the code that runs in it."""

    def mean(self, total: Tensor, count: Tensor) -> Tensor:
        """`total / count` for a loss that is a mean over the global batch; `total` and `count` are those of the shard."""
        ...

    def seeds(self, roots: Sequence[Tensor], gradients: list[Any]) -> list[Any]:
        """The gradients that a backward pass from `roots` begins with."""
        ...

    def gather(self, values: np.ndarray) -> np.ndarray:
        """`values` of all shards of the global batch, one row each; every shard calls it."""
        ...


class _Current(threading.local):
    shard: Shard | None = None


current = _Current()


def mean(total: Tensor, count: Tensor) -> Tensor:
    """`total / count`; in a shard of a distributed step, such that the loss is the mean over the global batch."""
    shard = current.shard
    return total / count if shard is None else shard.mean(total, count)
