"""Sample and error inputs of op records, created on demand, from which the table is tested."""

from __future__ import annotations

from typing import Any

import numpy as np


class Sample:
    """One call of an op: `op(*args, **kwargs)`. NumPy arrays among the arguments become tensors in the test."""

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __repr__(self) -> str:
        def show(v: Any) -> str:
            return f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else repr(v)

        parts = [show(a) for a in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return f"({', '.join(parts)})"


class Bad(Sample):
    """A call that must raise `error` with a message that matches the regular expression `match`."""

    __slots__ = ("error", "match")

    def __init__(self, error: type[Exception], match: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.error, self.match = error, match


class Maker:
    """Makes sample arrays. Float arrays are float64; the tests cast them to the dtype under test."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape))

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        return np.asarray(self.rng.uniform(low, high, shape))

    def positive(self, *shape: int) -> np.ndarray:
        return np.asarray(self.rng.uniform(0.25, 4.0, shape))

    def distinct(self, *shape: int) -> np.ndarray:
        """Well-separated values without ties: safe for max, sort and their gradients."""
        n = int(np.prod(shape))
        return np.asarray((self.rng.permutation(n) + 0.5).reshape(shape) / max(n, 1) * 4 - 2)

    def ints(self, *shape: int, low: int = -5, high: int = 6) -> np.ndarray:
        return np.asarray(self.rng.integers(low, high, shape))

    def bools(self, *shape: int) -> np.ndarray:
        return np.asarray(self.rng.random(shape) < 0.5)


def unary(low: float = -3.0, high: float = 3.0) -> Any:
    """Samples for an elementwise function of one tensor whose domain is [low, high]."""

    def make(m: Maker) -> list[Sample]:
        return [Sample(m.uniform(*shape, low=low, high=high)) for shape in ((), (0,), (7,), (2, 3), (2, 0, 3))]

    return make


def binary(low: float = -3.0, high: float = 3.0) -> Any:
    """Samples for an elementwise function of two tensors, with and without broadcasting."""

    def make(m: Maker) -> list[Sample]:
        pairs = (((), ()), ((5,), (5,)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((3,), ()))
        return [Sample(m.uniform(*a, low=low, high=high), m.uniform(*b, low=low, high=high)) for a, b in pairs]

    return make
