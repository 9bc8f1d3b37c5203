"""What the rows of a sharded table hold before their first update: a function of the seed and the number of the row.

Element j of row r is made of `philox(counter=(j, r), key=seed)`, see Note [Random numbers] in `weft.ops.array.philox`. So any
server makes any row when it needs it, a row that was evicted comes back as it began, and the contents of a table depend
neither on the number of servers nor on its number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..nn.initializers import Initializer
from ..ops.array import philox
from ..ops.core import scalar as s
from ..ops.core.define import native_kernels

_KINDS = {"uniform": philox.uniform, "normal": philox.normal}


def check_init(init: Initializer) -> Initializer:
    """Raise unless rows can be made by this rule one by one."""
    if init.name not in ("constant", *_KINDS):
        raise ValueError(
            f"Embedding: init must be nn.init.normal, uniform, constant, zeros or ones. Got {init.name}, which depends on the "
            "number of rows; a table may grow."
        )
    return init


@functools.cache
def _expression(kind: str, dtype: np.dtype) -> Callable[..., Any]:
    def expression(column: Any, low: Any, high: Any, key0: Any, key1: Any) -> Any:
        zero = s.const(0, np.uint32) if isinstance(column, s.Expr) else np.uint32(0)
        return _KINDS[kind](philox.philox((column, zero, low, high), (key0, key1)), dtype)

    return expression


def first_rows(init: Initializer, rows: np.ndarray, dim: int, dtype: np.dtype) -> np.ndarray:
    """The initial values of rows, shape (len(rows), dim)."""
    arguments: dict[str, Any] = dict(init.arguments)
    if init.name == "constant":
        return np.full((len(rows), dim), arguments["value"], dtype)
    if not len(rows):
        return np.empty((0, dim), dtype)
    wide = rows.astype(np.uint64).reshape(-1, 1)
    low, high = (wide & np.uint64(philox.MASK32)).astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
    key0, key1 = philox.halves(init.seed)
    column = np.arange(dim, dtype=np.uint32).reshape(1, -1)
    expression = _expression(init.name, dtype)
    native = native_kernels()
    out = None
    if native:
        keys = [np.asarray(key0), np.asarray(key1)]
        out = native.elementwise(f"first_rows_{init.name}", expression, [column, low, high, *keys], (len(rows), dim))
    if out is None:
        out = np.ascontiguousarray(expression(column, low, high, key0, key1))
    if init.name == "normal":
        scale, shift = arguments["std"], arguments["mean"]
    else:
        scale, shift = arguments["b"] - arguments["a"], arguments["a"]
    out *= dtype.type(scale)
    if shift:
        out += dtype.type(shift)
    return out
