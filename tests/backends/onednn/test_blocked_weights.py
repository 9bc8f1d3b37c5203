"""Weights in oneDNN's blocked layouts: the same bytes as its reorder writes, and back again."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.onednn import library
from weft.backends.onednn.lowerings import blocked_weights
from weft.compiler import tuning

pytestmark = pytest.mark.skipif(not library.available(), reason="the blocks are oneDNN's")

SHAPES = [(48, 64), (128, 96), (100, 200), (520, 130), (17, 300), (30, 33), (256, 1024)]
"""Channels out and in: whole blocks, a rest, less than one block."""


def train(out: int, into: int, groups: int = 1) -> tuple[np.ndarray, ...]:
    """The result of a 1 x 1 convolution and both gradients, captured, by the library."""
    rng = np.random.default_rng(out)
    x = wf.tensor(rng.standard_normal((2, into * groups, 6, 5), np.float32), requires_grad=True)
    w = wf.tensor(rng.standard_normal((out * groups, into, 1, 1), np.float32), requires_grad=True)

    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor) -> tuple[wf.Tensor, ...]:
        y = F.conv2d(x, w, groups=groups)
        return y, *wf.grad((y * y).sum(), [x, w])

    with tuning.forced("direct"):
        return tuple(t.numpy() for t in f(x, w))


@pytest.mark.parametrize(("out", "into"), SHAPES)
def test_same_numbers_as_the_librarys_reorder(out: int, into: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = train(out, into)
    monkeypatch.setattr(blocked_weights, "_parts", lambda *_: None)
    for a, b in zip(own, train(out, into), strict=True):
        np.testing.assert_array_equal(a, b)


def test_groups() -> None:
    for a, b in zip(train(40, 24, groups=2), _grouped_reference(40, 24, 2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def _grouped_reference(out: int, into: int, groups: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(out)
    x = rng.standard_normal((2, into * groups, 6, 5), np.float32).reshape(2, groups, into, 6, 5).astype(float)
    w = rng.standard_normal((out * groups, into, 1, 1), np.float32).reshape(groups, out, into).astype(float)
    y = np.einsum("ngihw,goi->ngohw", x, w)
    gx, gw = np.einsum("ngohw,goi->ngihw", 2 * y, w), np.einsum("ngohw,ngihw->goi", 2 * y, x)
    return y.reshape(2, -1, 6, 5), gx.reshape(2, -1, 6, 5), gw.reshape(-1, into, 1, 1)


@pytest.mark.parametrize(("out", "into"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [16, 48])
def test_every_element_has_its_place(out: int, into: int, axis: int, block: int) -> None:
    """Parts cover the weights once, and lie where the descriptor says."""
    from weft.compiler.program.layout import Layout, Storage, row_major

    class Described:
        other = (out, into)[1 - axis]
        blocked = ((block, other * block)[:: 2 * axis - 1] + (block, block), ((axis, block),))

    shape = (out, into, 1, 1)
    count = -(-shape[axis] // block)
    plain = Layout(Storage("arena", 0), np.dtype(np.float32), shape, row_major(shape))
    room = Layout(Storage("arena", 0), np.dtype(np.float32), (count * block * Described.other,), (1,))
    parts = blocked_weights._parts(plain, Described, room)
    assert parts is not None
    found = np.full(room.shape, -1)
    numbers = np.arange(out * into)
    view = lambda x, at: np.lib.stride_tricks.as_strided(x[at.offset :], at.shape, [8 * st for st in at.strides])
    for of, to in parts:
        view(found, to)[...] = view(numbers, of)
    moved = np.moveaxis(numbers.reshape(out, into), axis, 0)
    padded = np.full((count * block, Described.other), -1)
    padded[: shape[axis]] = moved
    np.testing.assert_array_equal(found, padded.reshape(count, block, -1).swapaxes(1, 2).ravel())
