"""Initialisers as values: a rule and its numbers, for tensors that are made elsewhere or in pieces.

The functions of `weft.nn.init` with an underscore fill a tensor that exists. The ones here, of the same names without it,
return an `Initializer`, which `wf.Variable.remote(shape, init=…)` sends to the task that holds the variable. Element i of a
random tensor depends on the seed and on i alone, so any rows of it can be made anywhere, and together they are the tensor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import random
from ..errors import format_shape
from ..ops.array import philox, random_ops
from ..runtime import memory
from .init import calculate_gain

BLOCK_ELEMENTS = (
    1 << 16
)  # drawn at once; blocks begin at multiples of it, so that every element is always drawn in the same way


@dataclasses.dataclass(frozen=True)
class Initializer:
    """A rule that says what a new tensor holds.

    Attributes:
        name: one of the functions of this module.
        arguments: its numbers.
        seed: of random rules.

    >>> nn.init.normal(0.02, seed=1).values((2, 3), wf.float32).shape
    (2, 3)
    """

    name: str
    arguments: Mapping[str, float | str] = dataclasses.field(default_factory=dict)
    seed: int = 0

    def values(self, shape: tuple[int, ...], dtype: np.dtype, first: int = 0, rows: int | None = None) -> np.ndarray:
        """The tensor of `shape`, or `rows` rows of it from row `first` on.

        >>> whole = nn.init.uniform(-1, 1, seed=3).values((10, 4), wf.float32)
        >>> part = nn.init.uniform(-1, 1, seed=3).values((10, 4), wf.float32, first=6, rows=2)
        >>> bool((whole[6:8] == part).all())
        True
        """
        dtype = np.dtype(dtype)
        wanted = shape if rows is None else (rows, *shape[1:])
        rule = _RULES[self.name]
        return rule(self, shape, wanted, dtype, first * math.prod(shape[1:]) if shape else 0)

    def dump(self) -> dict[str, Any]:
        """What `load` reads, ready for JSON."""
        return {"name": self.name, "arguments": dict(self.arguments), "seed": self.seed}

    @staticmethod
    def load(data: Mapping[str, Any]) -> Initializer:
        """The initialiser that `dump` described; ValueError if there is no such rule."""
        name, arguments, seed = data.get("name"), data.get("arguments", {}), data.get("seed", 0)
        if name not in _RULES or not isinstance(arguments, dict) or not isinstance(seed, int):
            raise ValueError(f"Initializer: expected one of {', '.join(_RULES)} with its numbers. Got {data!r}.")
        known = _ARGUMENTS[name]
        if set(arguments) != set(known) or not all(isinstance(arguments[k], known[k]) for k in known):
            raise ValueError(f"Initializer: {name} has the numbers {', '.join(known) or 'none'}. Got {arguments!r}.")
        return Initializer(name, arguments, seed)


def _seed(seed: int | None) -> int:
    return random.default_generator.random_seed() if seed is None else int(seed)


def constant(value: float) -> Initializer:
    """Every element is `value`.

    >>> nn.init.constant(3.0).values((2,), wf.float32).tolist()
    [3.0, 3.0]
    """
    return Initializer("constant", {"value": float(value)})


def zeros() -> Initializer:
    """Every element is 0."""
    return constant(0.0)


def ones() -> Initializer:
    """Every element is 1."""
    return constant(1.0)


def uniform(a: float = 0.0, b: float = 1.0, seed: int | None = None) -> Initializer:
    """Samples uniform in [a, b); without a `seed` one is drawn from the default generator."""
    return Initializer("uniform", {"a": float(a), "b": float(b)}, _seed(seed))


def normal(std: float = 1.0, mean: float = 0.0, seed: int | None = None) -> Initializer:
    """Samples of a normal distribution."""
    return Initializer("normal", {"std": float(std), "mean": float(mean)}, _seed(seed))


def xavier_uniform(gain: float = 1.0, seed: int | None = None) -> Initializer:
    """Glorot uniform: variance gain² · 2 / (fan_in + fan_out), for a tensor (out, in, *kernel)."""
    return Initializer("xavier_uniform", {"gain": float(gain)}, _seed(seed))


def xavier_normal(gain: float = 1.0, seed: int | None = None) -> Initializer:
    """Glorot normal: variance gain² · 2 / (fan_in + fan_out), for a tensor (out, in, *kernel)."""
    return Initializer("xavier_normal", {"gain": float(gain)}, _seed(seed))


def kaiming_uniform(nonlinearity: str = "leaky_relu", a: float = 0.0, seed: int | None = None) -> Initializer:
    """He uniform: variance gain² / fan_in, for a tensor (out, in, *kernel)."""
    calculate_gain(nonlinearity, a)  # raises for unknown names now, not on a task
    return Initializer("kaiming_uniform", {"nonlinearity": nonlinearity, "a": float(a)}, _seed(seed))


def kaiming_normal(nonlinearity: str = "leaky_relu", a: float = 0.0, seed: int | None = None) -> Initializer:
    """He normal: variance gain² / fan_in, for a tensor (out, in, *kernel)."""
    calculate_gain(nonlinearity, a)
    return Initializer("kaiming_normal", {"nonlinearity": nonlinearity, "a": float(a)}, _seed(seed))


# Rules: (initialiser, shape of the tensor, shape of the wanted rows, dtype, number of their first element) ---------------------

_NUMBER = (int, float)
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "constant": {"value": _NUMBER}, "uniform": {"a": _NUMBER, "b": _NUMBER}, "normal": {"std": _NUMBER, "mean": _NUMBER},
    "xavier_uniform": {"gain": _NUMBER}, "xavier_normal": {"gain": _NUMBER},
    "kaiming_uniform": {"nonlinearity": str, "a": _NUMBER}, "kaiming_normal": {"nonlinearity": str, "a": _NUMBER},
}  # fmt: skip


def _drawn(
    kind: Any, seed: int, shape: tuple[int, ...], wanted: tuple[int, ...], dtype: np.dtype, first: int
) -> np.ndarray:
    """Random numbers for the elements from number `first` on, drawn in the blocks of the whole tensor."""
    state = np.array([seed, 0], np.int64)
    make = random_ops._maker(kind, dtype)
    out = memory.empty(wanted, dtype)
    flat, last, total = out.reshape(-1), first + out.size, math.prod(shape)
    for start in range(first // BLOCK_ELEMENTS * BLOCK_ELEMENTS, last, BLOCK_ELEMENTS):
        block = random_ops.draw(state, (min(BLOCK_ELEMENTS, total - start),), dtype, make, start)
        low, high = max(start, first), min(start + block.size, last)
        flat[low - first : high - first] = block[low - start : high - start]
    return out


def _between(
    i: Initializer, low: float, high: float, shape: Any, wanted: Any, dtype: np.dtype, first: int
) -> np.ndarray:
    out = _drawn(philox.uniform, i.seed, shape, wanted, dtype, first)
    out *= high - low
    out += low
    return out


def _gaussian(
    i: Initializer, mean: float, std: float, shape: Any, wanted: Any, dtype: np.dtype, first: int
) -> np.ndarray:
    out = _drawn(philox.normal, i.seed, shape, wanted, dtype, first)
    out *= std
    if mean:
        out += mean
    return out


def _fans(i: Initializer, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) < 2:
        raise ValueError(f"{i.name}: needs a tensor with at least two axes. Got shape {format_shape(shape)}.")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _constant(i: Initializer, shape: Any, wanted: tuple[int, ...], dtype: np.dtype, first: int) -> np.ndarray:
    value = i.arguments["value"]
    return memory.zeros(wanted, dtype) if not value else np.full(wanted, value, dtype)


def _uniform(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    return _between(i, float(i.arguments["a"]), float(i.arguments["b"]), shape, wanted, dtype, first)


def _normal(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    return _gaussian(i, float(i.arguments["mean"]), float(i.arguments["std"]), shape, wanted, dtype, first)


def _xavier_uniform(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    bound = float(i.arguments["gain"]) * math.sqrt(6.0 / sum(_fans(i, shape)))
    return _between(i, -bound, bound, shape, wanted, dtype, first)


def _xavier_normal(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    return _gaussian(
        i, 0.0, float(i.arguments["gain"]) * math.sqrt(2.0 / sum(_fans(i, shape))), shape, wanted, dtype, first
    )


def _kaiming_std(i: Initializer, shape: tuple[int, ...]) -> float:
    gain = calculate_gain(str(i.arguments["nonlinearity"]), float(i.arguments["a"]))
    return gain / math.sqrt(max(_fans(i, shape)[0], 1))


def _kaiming_uniform(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    bound = math.sqrt(3.0) * _kaiming_std(i, shape)
    return _between(i, -bound, bound, shape, wanted, dtype, first)


def _kaiming_normal(i: Initializer, shape: Any, wanted: Any, dtype: np.dtype, first: int) -> np.ndarray:
    return _gaussian(i, 0.0, _kaiming_std(i, shape), shape, wanted, dtype, first)


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "constant": _constant, "uniform": _uniform, "normal": _normal, "xavier_uniform": _xavier_uniform,
    "xavier_normal": _xavier_normal, "kaiming_uniform": _kaiming_uniform, "kaiming_normal": _kaiming_normal,
}  # fmt: skip
