"""Fused in-place update formulas shared by the optimisers.

Composed of ordinary ops, a formula costs one pass over memory per operation; as one elementwise op that stores its result
in its first argument it is one native loop, and one node instead of five in a captured step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.tape import note_mutation
from ..ops.core import define as dispatch
from ..ops.core import inplace
from ..ops.core import scalar as s
from ..ops.core.define import elementwise
from ..ops.core.registry import NOT_DIFFERENTIABLE
from ..ops.core.samples import Maker, Sample
from ..ops.core.scalar import Term
from ..tensor import Tensor


def step(
    arrays: int, settings: int, reference: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make `f(x, …)`, which stores the value of the formula in `x`, from a formula in the scalar language.

    Args:
        arrays: how many operands have the shape of `x`; the `settings` that follow are 0-d.
        reference: the formula for NumPy arrays.
    """

    def samples(m: Maker) -> list[Sample]:
        shapes: list[tuple[int, ...]] = [(), (5,), (2, 3), (0, 2)]
        return [
            Sample(*[m.positive(*shape) for _ in range(arrays)], *[m.positive() for _ in range(settings)])
            for shape in shapes
        ]

    def define(formula: Callable[..., Any]) -> Callable[..., Any]:
        public = elementwise(
            namespace="internal", kind="float", vjp=NOT_DIFFERENTIABLE, reference=reference, samples=samples
        )(formula)
        op = public.op  # type: ignore[attr-defined]

        def in_place(x: Tensor, *operands: Any) -> Tensor:
            if not _small(formula, x, operands):
                inplace.apply_inplace(op, x, (x, *operands))
            return x

        in_place.__name__, in_place.__doc__ = formula.__name__, formula.__doc__
        return in_place

    return define


def _small(formula: Callable[..., Any], x: Tensor, operands: tuple[Any, ...]) -> bool:
    """Shortcut for small arrays of one dtype outside any mode; returns False if it does not apply."""
    data = x._data
    if (
        dispatch.modes.active
        or type(data) is not np.ndarray
        or data.size >= dispatch.NATIVE_MIN_ELEMENTS
        or not data.flags.writeable
    ):
        return False
    datas = [o._data for o in operands]
    dtype = data.dtype
    for d in datas:
        if type(d) is not np.ndarray or d.dtype is not dtype or d.ndim and d.shape != data.shape:
            return False
    with np.errstate(all="ignore"):  # inf and nan are valid results
        data[...] = formula(data, *datas)
    note_mutation(data, formula.__name__)
    return True


@step(2, 1, lambda p, g, lr: p - lr * g)
def descend(p: Term, g: Term, lr: Term) -> Term:
    """p ← p - lr · g."""
    return p - g * lr


@step(2, 1, lambda v, g, momentum: momentum * v + g)
def gather_speed(v: Term, g: Term, momentum: Term) -> Term:
    """v ← momentum · v + g."""
    return v * momentum + g


@step(2, 1, lambda mean, x, rate: mean + rate * (x - mean))
def running_mean(mean: Term, x: Term, rate: Term) -> Term:
    """mean ← (1 - rate) · mean + rate · x."""
    return mean + (x - mean) * rate


@step(2, 1, lambda mean, x, rate: mean + rate * (x * x - mean))
def running_square(mean: Term, x: Term, rate: Term) -> Term:
    """mean ← (1 - rate) · mean + rate · x²."""
    return mean + (x * x - mean) * rate


@step(3, 3, lambda p, m, v, step_size, scale, eps: p - step_size * m / (np.sqrt(v) * scale + eps))
def descend_scaled(p: Term, m: Term, v: Term, step_size: Term, scale: Term, eps: Term) -> Term:
    """p ← p - step_size · m / (scale · √v + eps)."""
    return p - m * step_size / (s.sqrt(v) * scale + eps)


@step(3, 4, lambda p, m, v, step_size, scale, eps, plain: p - step_size * m * (scale / (np.sqrt(v) + eps) + plain))
def descend_rectified(p: Term, m: Term, v: Term, step_size: Term, scale: Term, eps: Term, plain: Term) -> Term:
    """p ← p - step_size · m · (scale / (√v + eps) + plain)."""
    return p - m * step_size * (scale / (s.sqrt(v) + eps) + plain)


@step(4, 4, lambda p, g, m, v, now, ahead, scale, eps: p - (now * g + ahead * m) / (np.sqrt(v) * scale + eps))
def descend_ahead(p: Term, g: Term, m: Term, v: Term, now: Term, ahead: Term, scale: Term, eps: Term) -> Term:
    """p ← p - (now · g + ahead · m) / (scale · √v + eps)."""
    return p - (g * now + m * ahead) / (s.sqrt(v) * scale + eps)
