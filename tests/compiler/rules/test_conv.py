"""Lowerings of convolutions other than oneDNN's: results, and when they are offered. Winograd is in another file."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.compiler.lowering.rules import conv, winograd
from weft.compiler.target import describe

AVX512 = describe("x86_64-unknown-linux-gnu", "skylake-avx512", {"avx512f": True, "fma": True})
pytestmark = pytest.mark.skipif(not library.available(), reason="all ways need oneDNN")


@pytest.mark.parametrize(("c", "k"), [(16, 48), (48, 16), (5, 3), (64, 64)])
def test_pointwise_weight_gradient_as_a_product(c: int, k: int) -> None:
    rng = np.random.default_rng(c)
    x, g = (rng.standard_normal((2, 9, 7, n), np.float32).transpose(0, 3, 1, 2) for n in (c, k))
    w = rng.standard_normal((k, c, 1, 1), np.float32)

    @wf.function
    def f(x: wf.Tensor, w: wf.Tensor, g: wf.Tensor) -> wf.Tensor:
        w = w.detach().requires_grad_()
        return wf.grad((F.conv2d(x, w) * g).sum(), [w])[0]

    with tuning.forced("matmul"):
        made = f(*map(wf.asarray, (x, w, g))).numpy()
    assert f"conv grad weight 1x1 {c}->{k} @9x7 batch 2: matmul (forced)" in f.explain()
    wanted = np.einsum("nchw,nkhw->kc", x.astype(np.float64), g.astype(np.float64))[:, :, None, None]
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_pointwise_gradient_is_written_into_a_parameter() -> None:
    """The target is a parameter's own memory, updated in place."""
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.standard_normal((2, 8, 5, 5), np.float32))
    start = rng.standard_normal((24, 8, 1, 1), np.float32)

    def train(way: str) -> np.ndarray:
        w = wf.tensor(start, requires_grad=True)

        def step(x: wf.Tensor) -> None:
            w.grad = None
            (F.conv2d(x, w) ** 2).sum().backward()
            with wf.no_grad():
                w.sub_(0.001 * w.grad)

        with tuning.forced(way):
            captured = wf.function(step)
            captured(x), captured(x)
        return w.detach().numpy()

    np.testing.assert_allclose(train("matmul"), train("direct"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        ((64, 64, 16, 56, 56), "winograd_f4"),
        ((512, 512, 16, 7, 7), "winograd_f4"),
        ((512, 512, 1, 7, 7), "direct"),  # transforming the weights would take longest
        ((3, 64, 8, 224, 224), "direct"),
    ],
    ids=str,
)
def test_the_rule_knows_the_models(shape: tuple[int, int, int, int, int], way: str) -> None:
    assert winograd.preferred(*shape, AVX512) == way


@pytest.mark.parametrize("op", ["convolution", "convolution_backward_input", "convolution_backward_weight"])
@pytest.mark.parametrize(("n", "size"), [(64, 14), (2, 224)])
def test_samples_do_the_same_in_small(op: str, n: int, size: int) -> None:
    from weft.compiler.flow import Flow
    from weft.ops.core.spec import Spec
    from weft.ops.nn.conv import convolution as ops
    from weft.ops.nn.window import Window

    flow, dtype = Flow("test"), np.dtype(np.float32)
    x, y, w = (flow.placeholder(s, dtype) for s in ((n, 64, size, size), (n, 96, size, size), (96, 64, 3, 3)))
    attrs = (Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), 1)
    inputs, result, first = {
        "convolution": ((x, w, None), y, ()),
        "convolution_backward_input": ((y, w, None), x, ((size, size),)),
        "convolution_backward_weight": ((x, y), w, ()),
    }[op]
    node = flow.add(getattr(ops, op).op, inputs, (*first, *attrs), [Spec(result.shape, dtype)])
    places = tuple(i for i, v in enumerate(inputs) if v is x or v is y)
    images = [node.outputs[0] if v is result else v for v in (x, y)]
    sample = conv._sample(node, conv.Images("", *images, places))
    assert sample is not None and sample.scale > 1
    small = dict(zip((id(v) for v in inputs if v is not None), (s for s in sample.inputs if s), strict=True))
    small[id(result)] = sample.outputs[0]
    assert small[id(x)][2:] == small[id(y)][2:] and small[id(w)] == w.shape
    pixels = n * size * size / (small[id(x)][0] * small[id(x)][2] * small[id(x)][3])
    assert pixels == pytest.approx(sample.scale)
    # what the sample says is what the op's own shape rule says
    again = flow.emit(node.op, [None if s is None else flow.placeholder(s, dtype) for s in sample.inputs], sample.attrs)
    assert tuple(again.outputs[0].shape) == sample.outputs[0]
