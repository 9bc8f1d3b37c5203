"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import library
from ..capi import Arg, Unsupported
from ..descriptors import MemoryDesc
from .base import PostOp, Primitive, PrimitiveDesc

_FLOAT32 = np.dtype(np.float32)


def matmul(
    a: MemoryDesc,
    b: MemoryDesc,
    out: MemoryDesc,
    bias: MemoryDesc | None = None,
    post_ops: Sequence[PostOp] = (),
    gemm: bool | None = None,
) -> Primitive:
    """`DST = SRC @ WEIGHTS + BIAS`, then the post-ops.

    Args:
        a: (..., M, K), argument SRC. Any strides; batch axes of size 1 broadcast.
        b: (..., K, N), argument WEIGHTS, with as many axes as `a`. `MemoryDesc.any` lets oneDNN choose.
        out: (..., M, N), argument DST.
        bias: same number of axes as `out`, every size 1 or that of `out`. Argument BIAS.
        gemm: whether to take the classic gemm; by default where `gemm_is_faster`.
    """

    def what() -> str:
        return f"a {a}, b {b}, out {out}, bias {bias}, post-ops {list(post_ops)}"

    def describe() -> PrimitiveDesc:
        engine = library.require().engine
        return PrimitiveDesc("matmul_primitive_desc_create", engine, a, b, bias, out, what=what, post_ops=post_ops)

    desc = describe()
    if gemm_is_faster(a, b) if gemm is None else gemm:
        try:
            while "gemm" not in desc.implementation:
                desc.next_implementation()
        except Unsupported:  # there is none for these layouts: back to the first choice
            desc = describe()
    return Primitive("matmul", desc, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS), (Arg.DST,), post_ops)


def gemm_is_faster(a: MemoryDesc, b: MemoryDesc) -> bool:
    """Whether oneDNN's classic gemm beats the "brg" kernel that it prefers, as measured with AVX-512.

    A fixed rule, not a trial run, so that the same shapes give the same bits in every process. Processor time of gemm relative
    to brg over some fifty shapes: vectors 0.35 to 0.85; outer products of 32 columns 0.55 to 0.65; row-major matrices
    0.6 to 0.98; many rows times a transposed matrix of 1024 columns and more 0.77 to 0.86, of fewer columns 1.03 to 1.08;
    many rows times a row-major matrix of 384 columns 0.71 to 0.96, few rows times one of 9216 and more 0.55 to 0.7; a
    transposed left operand 1.0 to 1.6.
    """
    if len(a.shape) != 2 or a.dtype != _FLOAT32 or b.strides is None:
        return False
    (m, k), n = a.shape, b.shape[1]
    if min(m, n) <= 2 or (k <= 48 and min(m, n) >= 512):
        return True
    if a.strides is None or a.strides[1] != 1 or k < 256:
        return False
    if b.strides[1] == 1:
        few_rows = m <= 64 and n >= 8192
        return few_rows or n >= 1024 and m >= 256 or m >= 1024 and n >= 256 and k >= 384
    return m >= 1024 and n >= 1024
