"""Work split into shares of any size gives the results of plain loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from weft.backends.onednn import eager, library, shares
from weft.ops.core import registry
from weft.ops.nn.conv import convolution  # noqa: F401  (for its records)
from weft.ops.nn.window import Window

pytestmark = pytest.mark.skipif(not library.available(), reason="needs oneDNN")


@pytest.fixture(autouse=True)
def tiny_shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    eager.cache.clear()
    monkeypatch.setattr(shares, "MIN_WORK", 1)
    yield
    eager.cache.clear()


@pytest.mark.parametrize(("n", "parts"), [(1, 4), (7, 3), (8, 3), (17, 16), (37, 16), (100, 16)])
def test_parts_cover_the_whole_and_are_balanced(n: int, parts: int) -> None:
    sizes = shares.cut(n, parts)
    assert sum(sizes) == n and max(sizes) - min(sizes) <= 1 and len(sizes) <= 2 * parts


def _image(rng: np.random.Generator, n: int, c: int, size: int) -> np.ndarray:
    return np.moveaxis(rng.standard_normal((n, size, size, c)).astype(np.float32), -1, 1)


@pytest.mark.parametrize("n", [1, 3, 17])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "pad"),
    [(13, 3, 1, 1, 1), (14, 3, 2, 1, 1), (20, 5, 3, 1, 2), (12, 3, 1, 2, 2), (9, 1, 2, 1, 0), (7, 2, 3, 1, 0)],
)
def test_convolutions_in_groups_of_images_and_bands_of_rows(
    n: int, size: int, kernel: int, stride: int, dilation: int, pad: int, rng: np.random.Generator
) -> None:
    x, w = _image(rng, n, 16, size), rng.standard_normal((32, 16, kernel, kernel)).astype(np.float32)
    window = Window((kernel, kernel), (stride, stride), ((pad, pad), (pad, pad)), (dilation, dilation)), 1
    y = eager.conv_forward(x, w, None, *window)
    g = _image(rng, n, 32, y.shape[2])
    dx, dw = eager.conv_backward_data(g, w, x.shape, *window), eager.conv_backward_weights(x, g, w.shape, *window)[0]
    plain = [registry.get(f"convolution{part}").fn for part in ("", "_backward_input", "_backward_weight")]
    np.testing.assert_allclose(y, plain[0](x, w, None, *window), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(dx, plain[1](g, w, None, x.shape[2:], *window), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(dw, plain[2](x, g, *window), rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize(("m", "k", "n"), [(300, 40, 500), (70, 2000, 30), (130, 33, 65), (20, 1100, 17)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_products_in_blocks_and_in_shares_of_the_depth(
    m: int, k: int, n: int, transposed: tuple[bool, bool], rng: np.random.Generator
) -> None:
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    if transposed[0]:
        a = np.ascontiguousarray(a.T).T
    if transposed[1]:
        b = np.ascontiguousarray(b.T).T
    out = np.empty((n, m), np.float32).T
    expected = a.astype(np.float64) @ b
    np.testing.assert_allclose(eager.matmul(a, b), expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(eager.matmul(a, b, out), expected, rtol=1e-4, atol=1e-3)


def test_work_is_cut_by_shape_alone() -> None:
    from weft.backends.onednn.descriptors import MemoryDesc
    from weft.runtime import threads

    f32 = np.dtype(np.float32)
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    before = threads.get_num_threads()
    found = set()
    try:
        for width in (1, 2, 4):
            threads.set_num_threads(width)
            weight = MemoryDesc.any((32, 16, 3, 3), f32)
            made = shares.conv_backward_weights((8, 16, 20, 20), weight, None, (8, 32, 20, 20), f32, window)
            found.add((made.partial, made.implementation, tuple([tuple(s.offsets.items()) for s in made.shares])))
    finally:
        threads.set_num_threads(before)
    ((partial, _, _),) = found
    assert partial > 1
