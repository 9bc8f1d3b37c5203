"""Elementwise functions of one or two arrays, and softmax. Mostly for comparison: Weft generates these itself."""

from __future__ import annotations

from collections.abc import Sequence

from .. import library
from ..capi import Alg, Arg, Prop
from ..descriptors import MemoryDesc
from .base import PostOp, Primitive, PrimitiveDesc


def eltwise(
    alg: Alg, x: MemoryDesc, alpha: float = 0.0, beta: float = 0.0, post_ops: Sequence[PostOp] = ()
) -> Primitive:
    """`DST = f(SRC)`; the meaning of `alpha` and `beta` depends on the function (leaky slope, clip bounds, ...)."""
    desc = PrimitiveDesc("eltwise_forward_primitive_desc_create", library.require().engine, Prop.FORWARD_TRAINING, alg,
                         x, x, alpha, beta, what=f"{alg.name}, x {x}", post_ops=post_ops)  # fmt: skip
    return Primitive("eltwise", desc, (Arg.SRC,), (Arg.DST,), post_ops)


def eltwise_backward(alg: Alg, x: MemoryDesc, alpha: float = 0.0, beta: float = 0.0) -> Primitive:
    """(SRC, DIFF_DST) -> DIFF_SRC."""
    engine = library.require().engine
    what = f"{alg.name}, x {x}"
    hint = PrimitiveDesc("eltwise_forward_primitive_desc_create", engine, Prop.FORWARD_TRAINING, alg, x, x, alpha, beta,
                         what=what)  # fmt: skip
    desc = PrimitiveDesc("eltwise_backward_primitive_desc_create", engine, alg, x, x, x, alpha, beta, hint, what=what)
    return Primitive("eltwise_backward", desc, (Arg.SRC, Arg.DIFF_DST), (Arg.DIFF_SRC,))


def binary(alg: Alg, a: MemoryDesc, b: MemoryDesc, out: MemoryDesc, post_ops: Sequence[PostOp] = ()) -> Primitive:
    """`DST = f(SRC, SRC_1)`; axes of size 1 broadcast, the number of axes must agree."""
    desc = PrimitiveDesc("binary_primitive_desc_create", library.require().engine, alg, a, b, out,
                         what=f"{alg.name}, a {a}, b {b}", post_ops=post_ops, exact=not post_ops)  # fmt: skip
    return Primitive("binary", desc, (Arg.SRC, Arg.SRC_1), (Arg.DST,), post_ops)


def softmax(x: MemoryDesc, axis: int, log: bool = False) -> Primitive:
    """`DST = softmax(SRC)` along `axis`, or its logarithm."""
    desc = _softmax_desc(x, axis, log)
    return Primitive("softmax", desc, (Arg.SRC,), (Arg.DST,))


def softmax_backward(x: MemoryDesc, axis: int, log: bool = False) -> Primitive:
    """(DST of the forward, DIFF_DST) -> DIFF_SRC."""
    hint = _softmax_desc(x, axis, log)
    desc = PrimitiveDesc("softmax_backward_primitive_desc_create", library.require().engine, _softmax_alg(log), x, x, x,
                         axis, hint, what=f"x {x}, axis {axis}")  # fmt: skip
    return Primitive("softmax_backward", desc, (Arg.DST, Arg.DIFF_DST), (Arg.DIFF_SRC,))


def _softmax_alg(log: bool) -> Alg:
    return Alg.SOFTMAX_LOG if log else Alg.SOFTMAX_ACCURATE


def _softmax_desc(x: MemoryDesc, axis: int, log: bool) -> PrimitiveDesc:
    return PrimitiveDesc("softmax_forward_primitive_desc_create", library.require().engine, Prop.FORWARD_TRAINING,
                         _softmax_alg(log), x, x, axis, what=f"x {x}, axis {axis}")  # fmt: skip
