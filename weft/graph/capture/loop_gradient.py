"""The gradient of a captured loop with an unknown number of iterations, in memory of fixed size.

The loop is run again to count its n iterations, and once more to store every s-th state in SLOTS slots, s being n / SLOTS
rounded up. Then the stretches between the stored states are taken from the last to the first: a stretch is divided in the
same way, and what is still longer than one iteration after LEVELS divisions is run from its start for each of its iterations.
So up to SLOTS ** LEVELS iterations cost a fixed number of runs of the body each; more are slower, but never wrong.

All of it is made of `while_loop`, `scan` and `cond`, which have gradients: so has the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import dtypes
from ...ops.core.spec import num_elements
from ...tensor import Tensor

LEVELS = 2
SLOTS, FEWEST_SLOTS = 128, 8
SLOT_BYTES = 1 << 26
"""Large states get fewer slots, to stay within this memory (down to a minimum)."""

State = Sequence[Tensor]


def while_backward(
    test: Callable[..., Any], body: Callable[..., State], start: list[Tensor], outer: list[Tensor], g: list[Any]
) -> list[Any]:
    """Gradients with respect to `start` and `outer` of `state = start; while test(*state): state = body(*state)`.

    `outer` are the surrounding tensors that the two functions use, `g` the gradients of the last state (None where it has none).
    """
    from ...ops.array.creation import zeros_like
    from .control_flow import while_loop

    reverse = _Reverse(body, start, outer)
    first = [t.detach() for t in start]
    total = while_loop(lambda n, *s: test(*s), lambda n, *s: (n + 1, *body(*s)), (Tensor(0), *first))[0]
    seeds = [zeros_like(start[i]) if g[i] is None else g[i] for i in reverse.live]
    sums = [zeros_like(outer[i]) for i in reverse.live_outer]
    found = iter(reverse.stretch(start, total, [*seeds, *sums], LEVELS))
    live, live_outer = set(reverse.live), set(reverse.live_outer)
    gradients = [next(found) if i in live else None for i in range(len(start))]
    return [*gradients, *[next(found) if i in live_outer else None for i in range(len(outer))]]


class _Reverse:
    """Iterations of one loop, backwards. Gradients are those of the state, then the sums of those of surrounding tensors."""

    def __init__(self, body: Callable[..., State], start: list[Tensor], outer: list[Tensor]) -> None:
        self.body, self.outer = body, outer
        self.live = [i for i, t in enumerate(start) if dtypes.is_inexact(t.dtype)]
        self.live_outer = [i for i, t in enumerate(outer) if dtypes.is_inexact(t.dtype)]
        size = sum((num_elements(t.shape) or 0) * t.dtype.itemsize for t in start)
        self.slots = min(SLOTS, max(FEWEST_SLOTS, SLOT_BYTES // max(size, 1)))

    def forward(self, state: State, count: Any) -> State:
        """The state `count` iterations later."""
        from .control_flow import while_loop

        return while_loop(lambda n, *s: n < count, lambda n, *s: (n + 1, *self.body(*s)), (Tensor(0), *state))[1:]

    def iteration(self, state: State, gradients: State) -> tuple[Tensor, ...]:
        """Through one iteration that begins with `state`."""
        from .control_flow import _partial_gradients

        count = len(self.live)
        seeds: list[Any] = [None] * len(state)
        for i, g in zip(self.live, gradients[:count], strict=True):
            seeds[i] = g
        found = _partial_gradients(self.body, list(state), self.outer, seeds)
        own = [found[i] for i in self.live]
        new = [found[len(state) + i] for i in self.live_outer]
        return (*own, *[a + b for a, b in zip(gradients[count:], new, strict=True)])

    def stretch(self, state: State, length: Any, gradients: State, levels: int) -> State:
        """Through `length` iterations that begin with `state`; `levels` says how often they may be divided."""
        from ...ops.array.creation import arange
        from ...ops.array.elementwise import clip, floor_divide, minimum
        from ...ops.array.gathering import take
        from .control_flow import cond, scan

        if not levels:
            return self._downwards(length, gradients, lambda n, g: self.iteration(self.forward(state, n), g))
        part = clip(floor_divide(length + (self.slots - 1), self.slots), 1, None)
        _, stored = scan(
            lambda s, k: (tuple(self.forward(s, clip(length - k * part, 0, part))), tuple(s)),
            tuple(state),
            arange(self.slots),
        )

        def one(k: Any, g: State) -> State:
            begin = [take(rows, k, axis=0) for rows in stored]
            size = minimum(part, length - k * part)
            return cond(
                part == 1,
                lambda *v: tuple(self.iteration(v[: len(begin)], v[len(begin) :])),
                lambda *v: tuple(self.stretch(v[: len(begin)], size, v[len(begin) :], levels - 1)),
                *begin,
                *g,
            )

        return self._downwards(floor_divide(length + (part - 1), part), gradients, one)

    @staticmethod
    def _downwards(count: Any, gradients: State, step: Callable[[Any, State], State]) -> State:
        """`gradients = step(k, gradients)` for k from count - 1 to 0."""
        from .control_flow import while_loop

        return while_loop(lambda k, *g: k > 0, lambda k, *g: (k - 1, *step(k - 1, g)), (count, *gradients))[1:]
