"""Ops on arrays large enough to be shared out have the same bits for any number of threads: results and gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F
from weft.runtime import threads

WIDTHS = {"eager": (1, 2, 3, 4), "captured": (1, 4)}


@pytest.fixture(autouse=True)
def restore_width() -> Iterator[None]:
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def _conv(stride: int = 1, padding: int = 0, groups: int = 1, dilation: int = 1) -> Callable[..., Any]:
    return lambda x, w: F.conv2d(x, w, None, stride, padding, dilation, groups)


def _draw(*_: Any) -> Any:
    wf.manual_seed(7)
    return wf.randn(300, 401), wf.rand(123_457), F.dropout(wf.ones(300, 400), 0.3)


@functools.cache
def _layer(kind: Any) -> Any:
    wf.manual_seed(3)
    return kind(64, 96)


def _recurrent(kind: Any) -> Callable[..., Any]:
    return lambda x: _layer(kind)(x)[0]


_LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
INDICES = np.random.default_rng(1).integers(0, 50, 6000)

# name: the function, and the shapes of its arguments
OPS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    # convolutions: every way to cut one (images, bands of rows, partial weight gradients), and generated kernels
    "conv 3->16 3x3": (_conv(padding=1), [(8, 3, 32, 32), (16, 3, 3, 3)]),
    "conv 16->32 3x3": (_conv(padding=1), [(16, 16, 16, 16), (32, 16, 3, 3)]),
    "conv 64->128 1x1": (_conv(), [(8, 64, 14, 14), (128, 64, 1, 1)]),
    "conv 24->144 1x1": (_conv(), [(1, 24, 56, 56), (144, 24, 1, 1)]),
    "conv strided": (_conv(2, 1), [(4, 64, 28, 28), (128, 64, 3, 3)]),
    "conv of one image": (_conv(2, 3), [(1, 3, 112, 112), (64, 3, 7, 7)]),
    "conv of few pixels": (_conv(padding=1), [(2, 256, 7, 7), (256, 256, 3, 3)]),
    "conv of an odd batch": (_conv(padding=1, dilation=2), [(17, 20, 15, 15), (40, 20, 3, 3)]),
    "conv in groups": (_conv(padding=1, groups=4), [(8, 32, 28, 28), (32, 8, 3, 3)]),
    "conv depthwise": (_conv(padding=1, groups=32), [(8, 32, 28, 28), (32, 1, 3, 3)]),
    "conv 5x5": (_conv(padding=2), [(3, 32, 27, 27), (48, 32, 5, 5)]),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=2), [(8, 32, 200), (48, 32, 5)]),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), [(3, 8, 12, 12, 12), (16, 8, 3, 3, 3)]),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), [(4, 32, 16, 16), (32, 24, 4, 4)]),
    "max_pool": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), [(3, 17, 61, 61)]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, stride=1, padding=1), [(3, 17, 61, 61)]),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x, 5), [(4, 40, 33, 33)]),
    # products: blocks of rows and columns, batches, a depth, vectors
    "matmul": (wf.matmul, [(300, 700), (700, 500)]),
    "matmul, transposed": (lambda a, b: a.T @ b.T, [(384, 500), (300, 384)]),
    "matmul, deep": (wf.matmul, [(64, 9000), (9000, 48)]),
    "matmul, few rows": (wf.matmul, [(7, 1024), (1024, 900)]),
    "matmul, batched": (wf.matmul, [(12, 60, 100), (12, 100, 70)]),
    "matmul, vector": (wf.matmul, [(1500, 900), (900,)]),
    "einsum": (lambda a, b: wf.einsum("bij,bkj->bik", a, b), [(6, 80, 64), (6, 90, 64)]),
    # norms, softmax, losses
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [(8, 24, 31, 31), (24,), (24,)]),
    "batch_norm, few channels": (lambda x: F.batch_norm(x, None, None, training=True), [(5, 3, 50, 50)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (300,), w, b), [(700, 300), (300,), (300,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (300,), w), [(700, 300), (300,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b), [(6, 24, 30, 30), (24,), (24,)]),
    "softmax": (lambda x: F.softmax(x, -1), [(500, 700)]),
    "softmax, first axis": (lambda x: F.softmax(x, 0), [(500, 700)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, wf.tensor(INDICES[:900])), [(900, 300)]),
    "attention": (F.scaled_dot_product_attention, [(4, 4, 100, 32)] * 3),
    # reductions and scans
    "sum": (lambda x: x.sum(), [(401, 1003)]),
    "sum, first axis": (lambda x: x.sum(axis=0), [(4001, 103)]),
    "sum, middle axis": (lambda x: x.sum(axis=1), [(40, 101, 103)]),
    "mean, std": (lambda x: (x.mean(axis=1), x.std(axis=0)), [(401, 1003)]),
    "logsumexp": (lambda x: wf.logsumexp(x, axis=1), [(401, 1003)]),
    "norm": (lambda x: wf.linalg.vector_norm(x), [(401, 1003)]),
    "prod, max": (lambda x: (wf.prod(x * 0.01 + 1, axis=0), wf.max(x, axis=1)), [(301, 803)]),
    "cumulative_sum": (lambda x: wf.cumulative_sum(x, axis=1), [(301, 803)]),
    "sort": (lambda x: wf.sort(x, axis=1), [(200, 600)]),
    # moving and gathering
    "elementwise": (lambda x, y: wf.exp(-(x * x)) * wf.tanh(y) + x / (1 + y * y), [(401, 1003), (1003,)]),
    "embedding": (lambda w: F.embedding(wf.tensor(INDICES), w), [(50, 96)]),
    "gather": (lambda x: wf.take(x, wf.tensor(INDICES), axis=0), [(50, 96)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(4, 16, 30, 30)]),
    "unfold": (lambda x: F.unfold(x, 3), [(4, 16, 30, 30)]),
    "pad, transpose": (lambda x: wf.pad(x.mT, 3) * 2, [(401, 903)]),
    "random": (_draw, [(2,)]),
    # recurrent
    **{name: (_recurrent(kind), [(12, 32, 64)]) for name, kind in _LAYERS.items()},
}


def _bits(name: str, captured: bool, dtype: Any = np.float32) -> bytes:
    fn, shapes = OPS[name]
    rng = np.random.default_rng(0)
    arguments = [wf.tensor(rng.standard_normal(shape).astype(np.float32)).to(dtype) for shape in shapes]

    def run(*xs: Any) -> Any:
        xs = tuple([x.detach().requires_grad_() for x in xs])
        found = fn(*xs)
        outs = found if isinstance(found, tuple) else (found,)
        live = [o for o in outs if o.requires_grad]
        if not live:
            return outs
        total = sum((o * o).sum() for o in live)
        return (*[o.detach() for o in outs], *wf.grad(total, xs))

    outs = (wf.function(run) if captured else run)(*arguments)
    return b"".join(np.ascontiguousarray(o.detach().to(wf.float32).numpy()).tobytes() for o in outs)


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.timeout(120)
def test_results_and_gradients_have_the_same_bits_for_any_number_of_threads(name: str, mode: str) -> None:
    if name in _LAYERS:
        _layer(_LAYERS[name])  # parameters cannot be made while a function is captured
    found = {}
    for width in WIDTHS[mode]:
        threads.set_num_threads(width)
        found[width] = hash(_bits(name, mode == "captured"))
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("name", ["conv 16->32 3x3", "conv of one image", "matmul", "matmul, deep", "batch_norm"])
def test_bfloat16_too(name: str) -> None:
    found = set()
    for width in (1, 2, 4):
        threads.set_num_threads(width)
        found.add(_bits(name, False, wf.bfloat16))
    assert len(found) == 1
