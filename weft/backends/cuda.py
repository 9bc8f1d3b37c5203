"""`weft.backends.cuda`: the flags of PyTorch programs, which may be set and change nothing, because there is no GPU."""

from __future__ import annotations

from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False, allow_fp16_reduced_precision_reduction=False, allow_bf16_reduced_precision_reduction=False
)


def is_built() -> bool:
    """Whether Weft was built for CUDA: no."""
    return False
