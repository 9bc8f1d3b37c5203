"""LSTM and GRU over a whole sequence, forward and backward.

Layouts are oneDNN's: activations (T, N, C); states (L, D, N, H); weights (L, D, C, gates, H), best given as
`MemoryDesc.any`; bias (L, D, gates, H) with one bias where PyTorch has two (their sum). L layers, D directions.
Gates: LSTM i, f, g, o as in PyTorch; GRU (linear before reset, which is PyTorch's) u, r, o where PyTorch has r, z, n:
u = z, o = n, and the bias has a fourth row for the recurrent bias of n.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import library
from ..capi import Arg, Direction, Prop
from ..descriptors import MemoryDesc
from .base import Primitive, PrimitiveDesc


@dataclass(frozen=True, slots=True)
class RecurrentDescs:
    """Descriptors of all arguments of one recurrent layer; `c` states exist for LSTM only."""

    src_layer: MemoryDesc
    src_iter: MemoryDesc
    src_iter_c: MemoryDesc | None
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    bias: MemoryDesc
    dst_layer: MemoryDesc
    dst_iter: MemoryDesc
    dst_iter_c: MemoryDesc | None

    @property
    def is_lstm(self) -> bool:
        return self.src_iter_c is not None

    def native(self) -> tuple[MemoryDesc | None, ...]:
        if self.is_lstm:
            # The two empty places are peephole and projection weights.
            return (self.src_layer, self.src_iter, self.src_iter_c, self.weights_layer, self.weights_iter, None, None,
                    self.bias, self.dst_layer, self.dst_iter, self.dst_iter_c)  # fmt: skip
        return (self.src_layer, self.src_iter, self.weights_layer, self.weights_iter, self.bias, self.dst_layer,
                self.dst_iter)  # fmt: skip


_INPUTS = (Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.WEIGHTS, Arg.WEIGHTS_1, Arg.BIAS)
_OUTPUTS = (Arg.DST, Arg.DST_1, Arg.DST_2)


def _forward_desc(descs: RecurrentDescs, direction: Direction, prop: Prop) -> PrimitiveDesc:
    kind = "lstm" if descs.is_lstm else "lbr_gru"
    return PrimitiveDesc(f"{kind}_forward_primitive_desc_create", library.require().engine, prop, direction,
                         *descs.native(), 0, what=descs)  # fmt: skip


def recurrent_forward(descs: RecurrentDescs, direction: Direction, training: bool = True) -> Primitive:
    """SRC = layer input, SRC_1 = h, SRC_2 = c, WEIGHTS, WEIGHTS_1 = recurrent, BIAS -> DST, DST_1 = h, DST_2 = c.

    For training also writes WORKSPACE, which the backward reads.
    """
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _forward_desc(descs, direction, prop)
    return Primitive("lstm" if descs.is_lstm else "gru", desc, _INPUTS, (*_OUTPUTS, Arg.WORKSPACE))


def recurrent_backward(descs: RecurrentDescs, diffs: RecurrentDescs, direction: Direction) -> Primitive:
    """Everything the forward saw, plus DIFF_DST, DIFF_DST_1, DIFF_DST_2 and WORKSPACE -> DIFF_SRC (_1, _2),
    DIFF_WEIGHTS, DIFF_WEIGHTS_1, DIFF_BIAS. The weight gradients are *added* to what their memory holds.

    `descs` carries the layouts of this primitive (its weights want another layout than the forward's).
    """
    hint = _forward_desc(descs, direction, Prop.FORWARD_TRAINING)
    kind = "lstm" if descs.is_lstm else "lbr_gru"
    desc = PrimitiveDesc(f"{kind}_backward_primitive_desc_create", library.require().engine, Prop.BACKWARD, direction,
                         *descs.native(), *diffs.native(), 0, hint, what=descs)  # fmt: skip
    inputs = (*_INPUTS, *_OUTPUTS, Arg.DIFF_DST, Arg.DIFF_DST_1, Arg.DIFF_DST_2, Arg.WORKSPACE)
    outputs = (Arg.DIFF_SRC, Arg.DIFF_SRC_1, Arg.DIFF_SRC_2, Arg.DIFF_WEIGHTS, Arg.DIFF_WEIGHTS_1, Arg.DIFF_BIAS)
    return Primitive(f"{kind}_backward", desc, inputs, outputs)
