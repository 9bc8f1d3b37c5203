"""The op files whose functions appear in `weft.nn.functional`; importing them completes the op table."""

from __future__ import annotations

from types import ModuleType

from . import (
    activations,
    attention,
    channel_norms,
    class_losses,
    conv,
    conv_transpose,
    ctc,
    dropout,
    embedding,
    grid_sample,
    group_norms,
    interpolate,
    linear,
    losses,
    multi_head,
    normalization,
    padding,
    pooling,
    recurrent,
    softmax,
    sparse_ops,
    unfold,
)
from . import depthwise as depthwise  # what the compiler makes of some of them, here and in `fused`
from . import fused as fused

MODULES: list[ModuleType] = [
    activations, linear, softmax, normalization, channel_norms, group_norms, class_losses, losses, ctc, embedding, dropout,
    attention, multi_head, conv, conv_transpose, pooling, recurrent, interpolate, grid_sample, padding, unfold, sparse_ops,
]  # fmt: skip
