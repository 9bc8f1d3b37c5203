"""Lowers random draws: element i of a draw is a function of the generator's state and i, in any order and on any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import Node
from ....ops.array import philox
from ....ops.array.random_ops import _threshold
from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...loop_ir import ir as loops
from ...loop_ir.ir import Let
from ...loop_ir.kernels.random import words
from ...program.layout import Layout, row_major
from ..registry import lowers
from ..routines import Routine, native, over_rows
from .sorting import order_into

if TYPE_CHECKING:
    from ..lower import Lowering

_DRAW_COST = 16  # of a draw, in additions


def draw_into(
    lowering: Lowering, node: Node, state: Layout, out: Layout, make: Callable[[Any, list[Expr]], Expr], *beside: Layout
) -> None:
    """A step that stores `make(words, elements of beside)` for every element of `out`, counted in row-major order."""
    r = Routine(lowering, node, "draw")
    source, target = r.reads(state), r.writes(out)
    others = [r.reads(x) for x in beside]
    flat = all(x.contiguous for x in (out, *beside))
    seed, offset = Let("seed", source.at(0)), Let("offset", source.at(1))
    if flat:
        size = max(int(np.prod(out.shape)), 1)
        views = [Layout(o.layout.storage, o.layout.dtype, (size,), (1,), o.layout.offset) for o in (target, *others)]
        for operand, view in zip((target, *others), views, strict=True):
            operand.layout = view
    shape = target.layout.shape
    strides = row_major(shape)

    def point(at: list[Any]) -> list[Any]:
        place = loops.as_index(0)
        for i, stride in zip(at, strides, strict=True):
            place = place + i * stride
        value = make(words((seed.var, offset.var), place), [o.at(*at) for o in others])
        return [loops.store(target.at(*at), s.cast(value, out.dtype))]

    r.add([seed, offset, *over_rows(shape, point, vector=True, work=_DRAW_COST)])


def _out(lowering: Lowering, node: Node) -> Layout:
    return lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)


@lowers("random_uniform", "random_normal", "random_uniform_like", "random_normal_like")
def lower_draw(lowering: Lowering, node: Node) -> bool:
    if not native(*node.outputs):
        return False
    function = philox.uniform if "uniform" in node.op.name else philox.normal
    dtype = node.outputs[0].dtype
    state = lowering.layout_of(node.inputs[-1])
    draw_into(lowering, node, state, _out(lowering, node), lambda w, _: function(w, dtype))
    return True


@lowers("random_bits")
def lower_bits(lowering: Lowering, node: Node) -> bool:
    if not native(*node.outputs):
        return False
    state = lowering.layout_of(node.inputs[0])
    one = node.outputs[0].dtype.itemsize == 4
    draw_into(lowering, node, state, _out(lowering, node), lambda w, _: w[0] if one else philox.join(w[1], w[0]))
    return True


@lowers("random_integers")
def lower_integers(lowering: Lowering, node: Node) -> bool:
    if not native(*node.outputs):
        return False
    low, high = node.attrs[:2]
    start = s.const(low & 0xFFFFFFFFFFFFFFFF, np.uint64)

    def make(w: Any, _: list[Expr]) -> Expr:
        return s.add(philox.below(philox.join(w[1], w[0]), high - low), start)

    draw_into(lowering, node, lowering.layout_of(node.inputs[0]), _out(lowering, node), make)
    return True


@lowers("random_permutation")
def lower_permutation(lowering: Lowering, node: Node) -> bool:
    """The argsort of random words."""
    if not native(*node.outputs):
        return False
    bits = lowering.temporary(tuple(node.outputs[0].shape), np.dtype(np.uint64))
    draw_into(lowering, node, lowering.layout_of(node.inputs[0]), bits, lambda w, _: philox.join(w[1], w[0]))
    order_into(lowering, node, bits, _out(lowering, node), False)
    return True


@lowers("random_dropout")
def lower_dropout(lowering: Lowering, node: Node) -> bool:
    x_value, state_value = node.inputs
    if not native(x_value):
        return False
    (p,) = node.attrs
    threshold = _threshold(p)
    if threshold > philox.MASK32:
        lowering.fill(_out(lowering, node), 0, node)
        return True
    scale = s.const(1 / (1 - p), x_value.dtype)

    def make(w: Any, beside: list[Expr]) -> Expr:
        return s.where(s.ge(w[0], s.const(threshold, np.uint32)), s.mul(beside[0], scale), 0)

    x, state = lowering.layout_of(x_value), lowering.layout_of(state_value)
    draw_into(lowering, node, state, _out(lowering, node), make, x)
    return True
