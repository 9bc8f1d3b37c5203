"""Random draws: the same numbers as the definition in NumPy."""

import numpy as np
import pytest

from weft.backends.llvm import eager
from weft.ops.array import philox

STATE = np.array([7, 3], np.int64)


def test_words_match_the_definition():
    for seed, offset in ((0, 0), (7, 3), (-1, 2**40), (2**63 - 1, 5)):
        state = np.array([seed, offset], np.int64)
        want = philox.words(state, 0, 1000)[0]
        np.testing.assert_array_equal(eager.random_bits((10, 100), seed, offset), want.reshape(10, 100))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_uniform_is_exact_and_normal_close(dtype):
    dtype = np.dtype(dtype)
    words = philox.words(STATE, 0, 5000)
    np.testing.assert_array_equal(eager.random_uniform((5000,), dtype, 7, 3), philox.uniform(words, dtype))
    tolerance = {2: 2e-3, 4: 1e-5, 8: 1e-12}[dtype.itemsize]
    got = eager.random_normal((5000,), dtype, 7, 3)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, philox.normal(words, dtype), rtol=tolerance, atol=tolerance)


def test_a_draw_may_start_anywhere():
    def first(w):
        return w[0]

    whole = eager.draw(first, STATE, (1000,), np.dtype(np.uint32))
    part = eager.draw(first, STATE, (100,), np.dtype(np.uint32), start=450)
    np.testing.assert_array_equal(part, whole[450:550])
    far = eager.draw(first, STATE, (8,), np.dtype(np.uint32), start=2**32 - 4)
    np.testing.assert_array_equal(far, philox.words(STATE, 2**32 - 4, 8)[0])


def test_moments():
    x = eager.random_normal((1 << 20,), np.dtype(np.float32), 1, 0)
    assert abs(x.mean()) < 5e-3
    assert abs(x.std() - 1) < 5e-3
    u = eager.random_uniform((1 << 20,), np.dtype(np.float32), 1, 0)
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert abs(u.mean() - 0.5) < 2e-3


def test_bad_arguments():
    with pytest.raises(ValueError, match="state must be"):
        eager.draw(lambda w: w[0], np.zeros(3, np.int64), (2,), np.dtype(np.uint32))
    with pytest.raises(ValueError, match="out does not fit"):
        eager.random_uniform((4,), np.dtype(np.float32), 0, 0, out=np.zeros(5, np.float32))
    assert eager.random_uniform((4,), np.dtype(np.complex64), 0, 0) is None
    assert eager.random_uniform((0, 3), np.dtype(np.float32), 0, 0).shape == (0, 3)
