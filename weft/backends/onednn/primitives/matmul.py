"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence

from .. import library
from ..capi import Arg
from ..descriptors import MemoryDesc
from .base import PostOp, Primitive, PrimitiveDesc


def matmul(
    a: MemoryDesc,
    b: MemoryDesc,
    out: MemoryDesc,
    bias: MemoryDesc | None = None,
    post_ops: Sequence[PostOp] = (),
) -> Primitive:
    """`DST = SRC @ WEIGHTS + BIAS`, then the post-ops.

    Args:
        a: (..., M, K), argument SRC. Any strides; batch axes of size 1 broadcast.
        b: (..., K, N), argument WEIGHTS, with as many axes as `a`. `MemoryDesc.any` lets oneDNN choose.
        out: (..., M, N), argument DST.
        bias: same number of axes as `out`, every size 1 or that of `out`. Argument BIAS.
    """
    what = f"a {a}, b {b}, out {out}, bias {bias}, post-ops {list(post_ops)}"
    desc = PrimitiveDesc(
        "matmul_primitive_desc_create",
        library.require().engine,
        a,
        b,
        bias,
        out,
        what=what,
        post_ops=post_ops,
    )
    return Primitive("matmul", desc, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS), (Arg.DST,), post_ops)
