"""Convolutions by Winograd's products in captured functions: numbers against float64, and which nodes qualify."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.llvm.target import host
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.compiler.lowering.rules import winograd

pytestmark = pytest.mark.skipif(not library.available(), reason="the products are oneDNN's")

ROOT = Path(__file__).resolve().parents[3]
TOLERANCE = {"winograd_f2": 2e-6, "winograd_f4": 1e-5}
"""Largest error relative to the largest result. Measured: 7e-7 and 5e-6."""
CASES = [
    # images, channels, out, height, width, padding (top, bottom), (left, right)
    (2, 16, 32, 8, 8, ((1, 1), (1, 1))),
    (2, 32, 16, 7, 7, ((1, 1), (1, 1))),
    (1, 20, 35, 9, 14, ((0, 0), (0, 0))),
    (2, 48, 16, 10, 5, ((2, 0), (1, 3))),
    (1, 5, 3, 5, 6, ((1, 1), (1, 1))),
    (3, 64, 64, 14, 14, ((1, 1), (1, 1))),
]


def arrays(n: int, c: int, k: int, height: int, width: int, padding: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(c * k)
    (top, bottom), (left, right) = padding
    out = (n, height + top + bottom - 2, width + left + right - 2, k)
    x = np.maximum(rng.standard_normal((n, height, width, c), np.float32), 0).transpose(0, 3, 1, 2)
    w = rng.standard_normal((k, c, 3, 3), np.float32) * np.float32((2 / (9 * c)) ** 0.5)
    return [x, w, rng.standard_normal(k, np.float32), rng.standard_normal(out, np.float32).transpose(0, 3, 1, 2)]


def exact(x: np.ndarray, w: np.ndarray, b: np.ndarray, g: np.ndarray, padding: Any) -> list[np.ndarray]:
    """Result, gradient of x and gradient of w, in float64."""
    x, w, b, g = (a.astype(np.float64) for a in (x, w, b, g))
    (top, _), (left, _) = padding
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    y, dx, dw = np.zeros(g.shape), np.zeros(padded.shape), np.zeros(w.shape)
    for i in range(3):
        for j in range(3):
            window = np.s_[:, :, i : i + g.shape[2], j : j + g.shape[3]]
            y += np.einsum("nchw,kc->nkhw", padded[window], w[:, :, i, j], optimize=True)
            dx[window] += np.einsum("nkhw,kc->nchw", g, w[:, :, i, j], optimize=True)
            dw[:, :, i, j] = np.einsum("nchw,nkhw->kc", padded[window], g, optimize=True)
    height, width = x.shape[2:]
    return [y + b[:, None, None], dx[:, :, top : top + height, left : left + width], dw]


def captured(padding: Any, way: str, *inputs: np.ndarray) -> tuple[list[np.ndarray], str]:
    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor, b: wf.Tensor, g: wf.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = F.conv2d(x, w, b, padding=padding)
        return (y, *wf.grad((y * g).sum(), [x, w]))

    with tuning.forced(way):
        results = f(*map(wf.asarray, inputs))
        return [r.numpy() for r in results], f.explain()


def worst(made: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(made - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("way", sorted(TOLERANCE))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_gradients_against_float64(way: str, case: Any) -> None:
    inputs, padding = arrays(*case), case[-1]
    results, report = captured(padding, way, *inputs)
    m = int(way[-1])
    for step in ("input", "product", "output", "gradient", "weight gradient"):
        assert f"winograd {m}x{m} {step}" in report
    for made, wanted in zip(results, exact(*inputs, padding), strict=True):
        assert made.shape == wanted.shape
        assert worst(made, wanted) < TOLERANCE[way]


@pytest.mark.parametrize(("way", "limit"), [("direct", 2e-6), ("winograd_f2", 2e-6), ("winograd_f4", 5e-6)])
def test_error_with_many_channels(way: str, limit: float) -> None:
    """512 channels, as in the last layers of VGG and ResNet; the documentation quotes these limits."""
    case = (1, 512, 64, 14, 14, ((1, 1), (1, 1)))
    inputs = arrays(*case)
    results, _ = captured(case[-1], way, *inputs)
    for made, wanted in zip(results, exact(*inputs, case[-1]), strict=True):
        assert worst(made, wanted) < limit


def test_blocks_give_the_same_as_one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    case = (4, 32, 32, 12, 12, ((1, 1), (1, 1)))
    inputs = arrays(*case)
    whole, _ = captured(case[-1], "winograd_f4", *inputs)
    monkeypatch.setattr(winograd, "block_bytes", lambda target: 1)
    monkeypatch.setattr(winograd, "MIN_TILES", 7)
    assert winograd.Tiling(4, (4, 32, 12, 12), 64, host()).blocks == 6
    parts, _ = captured(case[-1], "winograd_f4", *inputs)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())
    assert worst(parts[2], exact(*inputs, case[-1])[2]) < TOLERANCE["winograd_f4"]


def test_plain_images_and_strided_weights() -> None:
    """Images with channels outside, and weights whose filters lie the other way round."""
    n, c, k = 2, 16, 24
    rng = np.random.default_rng(5)
    x = rng.standard_normal((n, c, 9, 9), np.float32)
    w = rng.standard_normal((c, k, 3, 3), np.float32).transpose(1, 0, 2, 3)
    b, g = rng.standard_normal(k, np.float32), rng.standard_normal((n, k, 9, 9), np.float32)
    padding = ((1, 1), (1, 1))
    results, _ = captured(padding, "winograd_f4", x, w, b, g)
    for made, wanted in zip(results, exact(x, w, b, g, padding), strict=True):
        assert worst(made, wanted) < TOLERANCE["winograd_f4"]


def test_the_same_bits_every_time() -> None:
    case = CASES[-1]
    inputs = arrays(*case)
    first, _ = captured(case[-1], "winograd_f4", *inputs)
    second, _ = captured(case[-1], "winograd_f4", *inputs)
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


PROGRAM = """
import hashlib
import numpy as np
import weft as wf
import weft.nn.functional as F
from weft.compiler import tuning
from weft.compiler.lowering.rules import winograd

winograd.block_bytes, winograd.MIN_TILES = lambda target: 1, 40  # several blocks, whose products add up
rng = np.random.default_rng(0)
x, w, g = (wf.asarray(rng.standard_normal(s, np.float32)) for s in ((4, 48, 20, 20), (64, 48, 3, 3), (4, 64, 20, 20)))

@wf.function
def f(x, w, g):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = F.conv2d(x, w, padding=1)
    return (y, *wf.grad((y * g).sum(), [x, w]))

with tuning.forced("winograd_f4"):
    print(hashlib.sha256(b"".join(r.numpy().tobytes() for r in f(x, w, g))).hexdigest())
"""


@pytest.mark.timeout(200)
@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_the_same_bits_on_one_core_and_on_all() -> None:
    def run(*prefix: str) -> str:
        environment = os.environ | {"WEFT_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
        command = [*prefix, sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first = run()
    assert len(first) == 64
    assert run("taskset", "-c", str(min(os.sched_getaffinity(0)))) == first


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"kernel": 5}, {"kernel": 1}], ids=str
)
def test_other_convolutions_stay_direct(options: dict[str, int]) -> None:
    kernel = options.get("kernel", 3)
    rest = {name: value for name, value in options.items() if name != "kernel"}
    x = wf.ones(1, 8, 12, 12)
    w = wf.ones(8, 8 // options.get("groups", 1), kernel, kernel)
    f = wf.function(lambda x, w: F.conv2d(x, w, **rest))
    with tuning.forced("winograd_f4"):
        made = f(x, w)
    assert "winograd 4x4" not in f.explain()
    np.testing.assert_allclose(made.numpy(), F.conv2d(x, w, **rest).numpy(), rtol=1e-5)
