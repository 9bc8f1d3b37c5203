"""Random numbers of a shard: they depend on the seed, the position of the step and the shard, on nothing else.

While a shard is computed every generator of the process has a state of its own, and afterwards the one it had before: the
default generator, other `wf.Generator` objects, NumPy's global one and Python's. So shards may be computed by any worker, in
any order, again, or not at all.

Python code runs when a function is captured, too, once per worker and at any step. What it draws from NumPy or Python is then a
constant of the program, so these generators get the same state in every worker.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import random as weft_random
from ..graph.capture.tracing import capturing
from ..random import default_generator

COMPUTING, READING = 1, 2
"""what Python code runs for: the user's function, or the samples of a shard"""


class Randomness:
    """The random numbers of a run.

    Args:
        seed: the same in all workers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._shard_seed = seed

    def shard(self, position: tuple[int, ...], shard: int) -> _OfShard:
        """A context for computing a shard of the step at `position`."""
        return _OfShard(self, position, shard)

    @contextlib.contextmanager
    def python(self, purpose: int = COMPUTING) -> Iterator[None]:
        """A context for Python code in a shard: sets the global generators of Python and NumPy."""
        seed = mix(self.seed if capturing() is not None else self._shard_seed, purpose)
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)

    def take(self) -> Any:
        """The state of all generators."""
        states = [(g, g.state._data.copy()) for g in weft_random.live]
        return self._shard_seed, states, random.getstate(), np.random.get_state()

    def put(self, taken: Any) -> None:
        """Restore what `take` returned."""
        self._shard_seed, states, python, numpy = taken
        for generator, state in states:
            generator.state._data[...] = state
        random.setstate(python)
        np.random.set_state(numpy)


class _OfShard:
    """See `Randomness.shard`; a class, because it is entered for every shard of every step."""

    __slots__ = ("_owner", "_position", "_shard", "_before", "_states")

    def __init__(self, owner: Randomness, position: tuple[int, ...], shard: int) -> None:
        self._owner, self._position, self._shard = owner, position, shard

    def __enter__(self) -> None:
        owner, position, shard = self._owner, self._position, self._shard
        self._before = owner._shard_seed
        seed = owner._shard_seed = mix(owner.seed, *position, shard, 0)
        own = default_generator.state._data
        self._states = [(own, own.copy())]
        if len(weft_random.live) > 1:
            others = [g.state._data for g in weft_random.live if g is not default_generator]
            self._states += [(state, state.copy()) for state in others]
        for state, (first, offset) in self._states[1:]:
            state[...] = mix(int(first), int(offset), *position, shard), 0
        own[0], own[1] = seed, 0

    def __exit__(self, *error: object) -> None:
        self._owner._shard_seed = self._before
        for state, value in self._states:
            state[...] = value


def mix(seed: int, *position: int) -> int:
    """A 63-bit seed for the random numbers at one position of a run, such as (epoch, batch, shard)."""
    value = seed & 0xFFFFFFFFFFFFFFFF
    for part in position:
        value = (value ^ (part + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 31
    return value >> 1
