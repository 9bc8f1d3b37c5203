"""Which of oneDNN's batch normalisations is used."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.onednn.capi import NormFlags
from weft.backends.onednn.eager.staging import channels_last_desc
from weft.backends.onednn.primitives.normalization import batch_norm_backward, batch_norm_forward

AFFINE = NormFlags.USE_SCALE | NormFlags.USE_SHIFT


@pytest.mark.parametrize("shape", [(8, 16, 28, 28), (4, 64, 7, 7), (32, 48)])
@pytest.mark.parametrize("flags", [AFFINE, AFFINE | NormFlags.FUSE_RELU], ids=["plain", "relu"])
def test_threads_do_not_spin_for_each_other(shape, flags):
    """The kernel with barriers inside collapses beside busy processes."""
    x = channels_last_desc(shape, np.dtype(np.float32)) if len(shape) > 2 else None
    if x is None:
        from weft.backends.onednn.descriptors import MemoryDesc

        x = MemoryDesc.strided(shape, np.dtype(np.float32))
    for primitive in (batch_norm_forward(x, 1e-5, flags), batch_norm_backward(x, 1e-5, flags)):
        assert not primitive.implementation.startswith("bnorm_jit:avx512"), primitive.implementation
