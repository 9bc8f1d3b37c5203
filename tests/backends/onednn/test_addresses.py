"""The fast read of an array's address agrees with NumPy's."""

from __future__ import annotations

import numpy as np

from weft.backends.onednn import addresses
from weft.runtime import memory


def test_address_of_views_and_pooled_arrays() -> None:
    base = np.arange(60, dtype=np.float64).reshape(3, 4, 5)
    frozen = base.copy()
    frozen.flags.writeable = False
    pooled = memory.empty((256, 256))
    for array in (
        base,
        base[1:, ::2],
        base.T,
        base[..., ::-1],
        base[:0],
        frozen,
        pooled,
        pooled[3:].T,
        np.float32(1)[()],
    ):
        array = np.asarray(array)
        assert addresses.address(array) == array.__array_interface__["data"][0]
        assert addresses._slow(array) == array.__array_interface__["data"][0]


def test_the_quick_way_is_in_use() -> None:
    assert addresses.address is addresses._fast
