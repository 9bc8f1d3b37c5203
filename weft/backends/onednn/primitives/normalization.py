"""Batch and layer normalisation, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

from .. import library
from ..capi import Arg, NormFlags, Prop, Unsupported
from ..descriptors import MemoryDesc
from .base import Primitive, PrimitiveDesc


def _without_barriers(describe: Callable[[], PrimitiveDesc]) -> PrimitiveDesc:
    """The variant of batch normalisation without thread barriers inside a kernel, if there is one.

    oneDNN's first choice synchronises its threads by spinning, several times per call. On an idle machine both take the
    same time; on a busy machine a spinning thread waits for one that is descheduled: 0.3 ms become 30 ms.
    """
    desc = describe()
    try:
        while desc.implementation.startswith("bnorm_jit"):
            desc.next_implementation()
    except Unsupported:
        return describe()
    return desc if desc.implementation.startswith("bnorm_tbb_jit") else describe()


def _batch_forward_desc(x: MemoryDesc, epsilon: float, flags: NormFlags, prop: Prop) -> PrimitiveDesc:
    return _without_barriers(
        lambda: PrimitiveDesc("batch_normalization_forward_primitive_desc_create", library.require().engine, prop, x, x,
                              epsilon, flags, what=f"x {x}, {flags!r}")
    )  # fmt: skip


def batch_norm_forward(x: MemoryDesc, epsilon: float, flags: NormFlags, training: bool = True) -> Primitive:
    """`DST = SCALE * (SRC - MEAN) / sqrt(VARIANCE + epsilon) + SHIFT`, per channel (axis 1).

    In training MEAN and VARIANCE (biased, float32) are outputs unless `USE_GLOBAL_STATS`; otherwise they are inputs.
    `FUSE_RELU` in training adds WORKSPACE, which the backward reads.
    """
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _batch_forward_desc(x, epsilon, flags, prop)
    statistics = (Arg.MEAN, Arg.VARIANCE)
    given = not training or NormFlags.USE_GLOBAL_STATS in flags
    return Primitive(
        "batch_normalization", desc, (Arg.SRC, Arg.SCALE, Arg.SHIFT, *(statistics if given else ())),
        (Arg.DST, *(() if given else statistics), Arg.WORKSPACE),
    )  # fmt: skip


def batch_norm_backward(x: MemoryDesc, epsilon: float, flags: NormFlags) -> Primitive:
    """(SRC, MEAN, VARIANCE, DIFF_DST, SCALE[, WORKSPACE]) -> DIFF_SRC, DIFF_SCALE, DIFF_SHIFT."""
    hint = _batch_forward_desc(x, epsilon, flags, Prop.FORWARD_TRAINING)
    desc = _without_barriers(
        lambda: PrimitiveDesc("batch_normalization_backward_primitive_desc_create", library.require().engine, Prop.BACKWARD,
                              x, x, x, epsilon, flags, hint, what=f"x {x}, {flags!r}")
    )  # fmt: skip
    return Primitive(
        "batch_normalization_backward", desc,
        (Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.DIFF_DST, Arg.SCALE, Arg.WORKSPACE),
        (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT),
    )  # fmt: skip


def _layer_forward_desc(
    x: MemoryDesc, statistics: MemoryDesc, epsilon: float, flags: NormFlags, prop: Prop
) -> PrimitiveDesc:
    return PrimitiveDesc("layer_normalization_forward_primitive_desc_create", library.require().engine, prop, x, x,
                         statistics, epsilon, flags, what=f"x {x}, {flags!r}")  # fmt: skip


def layer_norm_forward(
    x: MemoryDesc, statistics: MemoryDesc, epsilon: float, flags: NormFlags, training: bool = True
) -> Primitive:
    """Normalises over the last axis. `statistics` describes MEAN and VARIANCE: x's shape without the last axis, float32."""
    prop = Prop.FORWARD_TRAINING if training else Prop.FORWARD_INFERENCE
    desc = _layer_forward_desc(x, statistics, epsilon, flags, prop)
    outputs = (Arg.DST, Arg.MEAN, Arg.VARIANCE) if training else (Arg.DST,)
    return Primitive("layer_normalization", desc, (Arg.SRC, Arg.SCALE, Arg.SHIFT), outputs)


def layer_norm_backward(x: MemoryDesc, statistics: MemoryDesc, epsilon: float, flags: NormFlags) -> Primitive:
    """(SRC, MEAN, VARIANCE, DIFF_DST, SCALE, SHIFT) -> DIFF_SRC, DIFF_SCALE, DIFF_SHIFT. SHIFT is required, but not read."""
    hint = _layer_forward_desc(x, statistics, epsilon, flags, Prop.FORWARD_TRAINING)
    desc = PrimitiveDesc("layer_normalization_backward_primitive_desc_create", library.require().engine, Prop.BACKWARD,
                         x, x, x, statistics, epsilon, flags, hint, what=f"x {x}, {flags!r}")  # fmt: skip
    return Primitive(
        "layer_normalization_backward", desc, (Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.DIFF_DST, Arg.SCALE, Arg.SHIFT),
        (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT),
    )  # fmt: skip
