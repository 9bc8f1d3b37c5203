"""The op files whose functions appear in `weft.nn.functional`; importing them completes the op table."""

from __future__ import annotations

from types import ModuleType

from ..array import padding, sparse_ops
from ..internal import depthwise as depthwise  # fused forms, created by compiler passes
from ..internal import fused_products as fused_products
from . import (
    activations,
    attention,
    class_losses,
    ctc,
    dropout,
    embedding,
    grid_sample,
    interpolate,
    linear,
    losses,
    multi_head,
    softmax,
    unfold,
)
from .conv import functions as convolution
from .conv import transposed
from .norm import batch_norm, group_norm, layer_norm
from .pool import functions as pooling
from .recurrent import functions as recurrent

MODULES: list[ModuleType] = [
    activations, linear, softmax, layer_norm, batch_norm, group_norm, class_losses, losses, ctc, embedding, dropout,
    attention, multi_head, convolution, transposed, pooling, recurrent, interpolate, grid_sample, padding, unfold, sparse_ops,
]  # fmt: skip
