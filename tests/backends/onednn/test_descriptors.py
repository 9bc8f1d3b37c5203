"""Memory descriptors agree with NumPy about shapes, strides and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.onednn.capi import Arg, Unsupported
from weft.backends.onednn.descriptors import BFLOAT16, MemoryDesc, channels_last_strides, contiguous_strides
from weft.backends.onednn.primitives import convolution_forward
from weft.ops.nn.window import Window

F32 = np.dtype(np.float32)


def test_strided() -> None:
    desc = MemoryDesc.strided((2, 3, 4, 5), F32, channels_last_strides((2, 3, 4, 5)))
    assert desc.shape == (2, 3, 4, 5)
    assert desc.dtype == F32
    assert desc.strides == (60, 1, 15, 3)
    assert desc.nbytes == 480
    assert desc.format == "acdb"


def test_gaps_count_in_the_size() -> None:
    # oneDNN counts the gap behind the last row too; it never touches it.
    assert MemoryDesc.strided((3, 4), F32, (10, 1)).nbytes == 3 * 10 * 4


def test_default_is_row_major() -> None:
    assert MemoryDesc.strided((2, 3), BFLOAT16) == MemoryDesc.strided((2, 3), BFLOAT16, (3, 1))
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert channels_last_strides((2, 3, 4)) == (12, 1, 3)


def test_equality_and_hash() -> None:
    row_major, column_major = MemoryDesc.strided((2, 3), F32), MemoryDesc.strided((2, 3), F32, (1, 2))
    assert row_major != column_major
    assert row_major == MemoryDesc.strided((2, 3), F32)
    assert hash(row_major) == hash(MemoryDesc.strided((2, 3), F32))
    assert row_major != "something else"


def test_a_blocked_layout_has_no_strides() -> None:
    shape = (1, 32, 8, 8)
    image = MemoryDesc.strided(shape, F32, channels_last_strides(shape))
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    weights = convolution_forward(image, MemoryDesc.any((32, 32, 3, 3), F32), None, image, window).desc(Arg.WEIGHTS)
    assert weights.strides is None
    assert weights.nbytes >= 32 * 32 * 9 * 4
    assert any(letter.isupper() for letter in weights.format)


@pytest.mark.parametrize("shape", [(), (2, 0), (1,) * 13])
def test_shapes_that_cannot_be_described(shape: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported, match="cannot describe this shape"):
        MemoryDesc.strided(shape, F32)
    with pytest.raises(Unsupported, match="cannot describe this shape"):
        MemoryDesc.any(shape, F32)


def test_unknown_dtype() -> None:
    with pytest.raises(Unsupported, match="no such data type. Got complex64"):
        MemoryDesc.strided((2,), np.dtype(np.complex64))
