"""The fact `reduction` of an op record: what the op combines elements with, and the identity of that operation.

An op with this fact has the parameters (x, axis, keepdims). Everything else follows from the record: its loops fuse with the
elementwise ops before and after it, several lanes and threads hold partial results, large reductions are split in two
steps, axes of size 1 cost nothing, an empty input gives the identity, and large eager calls run in native code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape
from . import scalar as s
from .spec import Spec, normalize_axes, reduced_shape

Number = bool | int | float
table: dict[str, Reduction] = {}
"""All reductions by name. Loop IR names them, so that kernels can be printed and compared."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """An associative and commutative operation, with its identity: `combine(identity, x)` is `x`.

    Args:
        name: unique; names the operation in loop IR.
        combine: a scalar expression of two operands, written with `weft.ops.core.scalar`.
        identity: a number, or a function from the dtype to one.
        boolean: elements are tested for zero first, and the result is a bool.
        floating: only defined for floating-point numbers.
        needs_elements: reducing an empty axis is an error instead of the identity.
        accumulates_error: float32 is accumulated in float64 where thousands of elements are combined one after another.
    """

    name: str
    combine: Callable[[Any, Any], Any]
    identity: Number | Callable[[np.dtype], Number]
    boolean: bool = False
    floating: bool = False
    needs_elements: bool = False
    accumulates_error: bool = False

    def __post_init__(self) -> None:
        if self.name in table:
            raise ValueError(f"reduction {self.name!r} is defined already; choose another name.")
        table[self.name] = self

    def identity_of(self, dtype: np.dtype) -> Number:
        """The identity as a number of `dtype`."""
        return self.identity(dtype) if callable(self.identity) else self.identity


def infer_reduction(title: str, reduction: Reduction) -> Callable[..., Spec]:
    """The shape rule of an op with the parameters (x, axis, keepdims)."""

    def infer(x: Any, axis: Any, keepdims: bool) -> Spec:
        if reduction.floating and not dtypes.is_floating(x.dtype):
            raise TypeError(
                f"{title}: expected floating-point numbers. Got {x.dtype.name}; convert with `x.astype(wf.float32)`."
            )
        axes = normalize_axes(title, axis, x.ndim)
        if reduction.needs_elements and x.shape is not None:
            for a in axes:
                if x.shape[a] == 0:
                    raise ValueError(
                        f"{title}: cannot reduce axis {a} of size 0: there is no value to return. "
                        f"Got shape {format_shape(x.shape)}."
                    )
        shape = None if x.shape is None else reduced_shape(x.shape, axes, keepdims)
        return Spec(shape, dtypes.bool_ if reduction.boolean else x.dtype)

    return infer


def _lowest(dtype: np.dtype) -> Number:
    kind = s.kind(dtype)
    return float("-inf") if kind == "f" else False if kind == "b" else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype) -> Number:
    kind = s.kind(dtype)
    return float("inf") if kind == "f" else True if kind == "b" else int(np.iinfo(dtype).max)


SUM = Reduction("sum", s.add, 0, accumulates_error=True)
PROD = Reduction("prod", s.mul, 1)
MAX = Reduction("max", s.maximum, _lowest, needs_elements=True)
MIN = Reduction("min", s.minimum, _highest, needs_elements=True)
ANY = Reduction("any", s.bitwise_or, False, boolean=True)
ALL = Reduction("all", s.bitwise_and, True, boolean=True)
