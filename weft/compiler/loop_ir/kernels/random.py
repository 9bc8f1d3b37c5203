"""Counter-based random numbers as a loop: element i depends only on the generator's state and on i."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.array import philox
from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from .. import ir as loops
from ..ir import Buffer, Kernel, Let


def word_pair(value: Expr) -> tuple[Expr, Expr]:
    """A 64-bit integer as (low, high) words."""
    return s.cast(value, s.UINT32), s.cast(s.right_shift(s.bitcast(value, np.uint64), 32), s.UINT32)


def words(state: tuple[Expr, Expr], index: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The four words of element `index`, for a state of (seed, offset): see Note [Random numbers]."""
    seed, offset = state
    return philox.philox((*word_pair(index), *word_pair(offset)), word_pair(seed))


def draw(make: Callable[[tuple[Expr, Expr, Expr, Expr]], Any], dtype: np.dtype) -> Kernel:
    """draw(state, y): y[i] = make(words of element start + i); integers n, start. `state` is int64 [seed, offset]."""
    n, start = s.param("n"), s.param("start")
    state, y = Buffer.of("state", s.INT64, (2,)), Buffer.of("y", dtype, (n,))
    seed, offset = Let("seed", state[0]), Let("offset", state[1])
    value = make(words((seed.var, offset.var), start + s.index("i")))
    loop = loops.loop("i", n, [loops.store(y[s.index("i")], value)], "vector", parallel=True, grain=2048)
    return Kernel("draw", (state, y), ("n", "start"), (seed, offset, loop))
