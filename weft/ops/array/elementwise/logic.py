"""Comparisons, bitwise and logical ops, and selection by a condition (`where`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import scalar as s
from ...core.define import elementwise
from ...core.registry import NOT_DIFFERENTIABLE
from ...core.samples import Bad, Maker, Sample
from ...core.samples import binary as pairs
from ...core.scalar import Term


def _comparison(name: str, expression: Any, ufunc: Any, symbol: str, kind: str = "real") -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, f"`x1 {symbol} x2`, elementwise."
    facts: dict[str, Any] = {"vjp": NOT_DIFFERENTIABLE, "kind": kind, "reference": ufunc, "samples": pairs()}
    return elementwise(accumulate="exact", numpy=ufunc, **facts)(body)


equal = _comparison("equal", s.eq, np.equal, "==", "numeric")
not_equal = _comparison("not_equal", s.ne, np.not_equal, "!=", "numeric")
less = _comparison("less", s.lt, np.less, "<")
less_equal = _comparison("less_equal", s.le, np.less_equal, "<=")
greater = _comparison("greater", s.gt, np.greater, ">")
greater_equal = _comparison("greater_equal", s.ge, np.greater_equal, ">=")


def _bit_samples(m: Maker) -> list[Sample]:
    return [Sample(m.ints(3), m.ints(3)), Sample(m.bools(2, 3), m.bools(3)), Sample(m.ints(0), m.ints(1))]


def _shift_samples(m: Maker) -> list[Sample]:
    return [Sample(m.ints(3, low=0), m.ints(3, low=0)), Sample(m.ints(2, 3), m.ints(3, low=0))]


def _bitwise(
    name: str, expression: Any, ufunc: Any, doc: str, kind: str = "bitwise", samples: Any = _bit_samples
) -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        numpy=ufunc, vjp=NOT_DIFFERENTIABLE, kind=kind, reference=ufunc, samples=samples,
        errors=lambda m: [Bad(TypeError, f"{name}: expected integer", m.normal(2), m.normal(2))],
    )(body)  # fmt: skip


bitwise_and = _bitwise("bitwise_and", s.bitwise_and, np.bitwise_and, "Bitwise and.")
bitwise_or = _bitwise("bitwise_or", s.bitwise_or, np.bitwise_or, "Bitwise or.")
bitwise_xor = _bitwise("bitwise_xor", s.bitwise_xor, np.bitwise_xor, "Bitwise exclusive or.")
bitwise_left_shift = _bitwise(
    "bitwise_left_shift", s.left_shift, np.left_shift, "x1 shifted left by x2 bits.", "integer", _shift_samples
)
bitwise_right_shift = _bitwise(
    "bitwise_right_shift", s.right_shift, np.right_shift, "x1 shifted right by x2 bits.", "integer", _shift_samples
)


@elementwise(
    numpy=np.invert, kind="bitwise", vjp=NOT_DIFFERENTIABLE, reference=np.invert,
    samples=lambda m: [Sample(m.ints(4)), Sample(m.bools(3))],
)  # fmt: skip
def bitwise_invert(x: Term) -> Term:
    """Bitwise not; logical not for bools."""
    return s.bitwise_not(x)


def _logic(name: str, expression: Any, ufunc: Any, doc: str) -> Any:
    def body(x1: Term, x2: Term) -> Term:
        return expression(x1, x2)

    body.__name__, body.__doc__ = name, doc
    return elementwise(
        vjp=NOT_DIFFERENTIABLE, kind="logical", reference=ufunc,
        samples=lambda m: [Sample(m.bools(4), m.bools(4)), Sample(m.ints(2, 3, low=0, high=2), m.bools(3))],
    )(body)  # fmt: skip


logical_and = _logic("logical_and", s.bitwise_and, np.logical_and, "Logical and of truth values (non-zero is true).")
logical_or = _logic("logical_or", s.bitwise_or, np.logical_or, "Logical or of truth values (non-zero is true).")
logical_xor = _logic(
    "logical_xor", s.bitwise_xor, np.logical_xor, "Logical exclusive or of truth values (non-zero is true)."
)


@elementwise(
    kind="logical", vjp=NOT_DIFFERENTIABLE, reference=np.logical_not,
    samples=lambda m: [Sample(m.bools(4)), Sample(m.ints(3, low=0, high=2))],
)  # fmt: skip
def logical_not(x: Term) -> Term:
    """Logical not of truth values (non-zero is true).

    >>> wf.logical_not(wf.tensor([True, False]))
    tensor([False,  True])
    """
    return s.bitwise_not(x)


@elementwise(
    accumulate="exact",
    kind="select",
    vjp=(None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)),
    reference=np.where,
    samples=lambda m: [
        Sample(m.bools(2, 3), m.normal(2, 3), m.normal(2, 3)),
        Sample(m.bools(3), m.normal(2, 3), m.normal(1)),
        Sample(m.bools(2, 1), m.normal(), m.normal(3)),
    ],
)
def where(condition: Term, x1: Term, x2: Term) -> Term:
    """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast.

    >>> x = wf.tensor([-1.0, 2.0])
    >>> wf.where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    return s.where(condition, x1, x2)
