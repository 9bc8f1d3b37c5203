"""Gradient accumulation over several batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .optimizer import Optimizer, parameters_of


class GradientAccumulator:
    """Runs an optimiser once per `every` batches, on the mean of their gradients.

        accumulate = GradientAccumulator(optimizer, every=4, max_norm=1.0)
        for x, y in loader:
            accumulate.backward(loss_fn(model(x), y))
            if accumulate.step():
                scheduler.step()

    Args:
        optimizer: the optimiser to step.
        every: batches per update.
        max_norm: clip the norm of the mean gradient to this before the update.

    The count is plain Python, so capture `backward` and the update as separate functions, not this loop.

    >>> p = nn.Parameter(wf.ones(1))
    >>> accumulate = optim.GradientAccumulator(optim.SGD([p], lr=1.0), every=2)
    >>> accumulate.backward(p.sum()); accumulate.step()
    False
    >>> accumulate.backward(p.sum()); accumulate.step()
    True
    >>> p.tolist()
    [0.0]
    """

    def __init__(self, optimizer: Optimizer, every: int, *, max_norm: float | None = None) -> None:
        if every < 1:
            raise ValueError(f"GradientAccumulator: every must be at least 1. Got {every}.")
        self.optimizer, self.every, self.max_norm = optimizer, every, max_norm
        self.batches = 0

    def scale(self, loss: Tensor) -> Tensor:
        """`loss` divided so that the gradients of `every` batches add up to their mean."""
        return loss if self.every == 1 else loss * (1.0 / self.every)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of one batch."""
        self.scale(loss).backward()

    def step(self, closure: Callable[[], Any] | None = None) -> bool:
        """Count one batch; after `every` batches, update, reset the gradients and return True."""
        if closure is not None:
            self.backward(closure())
        self.batches += 1
        if self.batches < self.every:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Update with the gradients accumulated so far, for example at the end of an epoch."""
        if not self.batches:
            return
        tensors = parameters_of(self.optimizer.param_groups)
        if self.batches < self.every:  # fewer batches than `every`: rescale to their mean
            for p in tensors:
                if p.grad is not None:
                    p.grad = p.grad * (self.every / self.batches)
        if self.max_norm is not None:
            from ..nn.utils import clip_grad_norm_

            clip_grad_norm_(tensors, self.max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.batches = 0

    def state_dict(self) -> dict[str, Any]:
        """The number of batches since the last update."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.batches = int(state["batches"])
