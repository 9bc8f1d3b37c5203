"""Steps taken into products and convolutions, by comparing the graphs before and after the pass."""

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.backends.onednn import library
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.epilogues import epilogues
from weft.compiler.program.steps import LibraryCall
from weft.graph.graph import CONSTANT, PLACEHOLDER
from weft.nn import functional as F

pytestmark = pytest.mark.skipif(not library.available(), reason="post-ops are oneDNN's")


def captured(fn, *args):
    f = wf.function(fn)
    with wf.no_grad():
        got, expected = f(*args), fn(*args)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=2e-4, atol=2e-5)
    return f


def products(flow):
    return [
        (n.op.name, n.attrs[0].names if n.op.name.endswith("_epilogue") else ())
        for n in flow.nodes
        if n.op is not PLACEHOLDER and n.op is not CONSTANT and n.op.name.startswith(("matmul", "conv"))
    ]


def test_bias_and_activation_follow_the_product():
    model = nn.Sequential(nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 128))
    f = captured(lambda x: model(x), wf.randn(64, 128))
    before = f.traces[0].flow
    assert products(before) == [("matmul", ())] * 3
    assert products(check_flow(epilogues(before))) == [
        ("matmul_epilogue", ("add", "silu")),
        ("matmul_epilogue", ("add", "gelu_exact")),
        ("matmul_epilogue", ("add",)),
    ]
    labels = [s.label for s in f.traces[0].compiled.program.steps]
    assert labels == ["matmul + add + silu", "matmul + add + gelu_exact", "matmul + add"]


def test_a_nest_that_reads_the_product_adds_the_bias_itself():
    w, b = wf.randn(128, 256), wf.randn(256)
    f = captured(lambda x: F.softmax(x @ w + b, axis=-1), wf.randn(64, 128))
    assert products(epilogues(decompose(f.traces[0].flow))) == [("matmul", ())]
    assert len(f.traces[0].compiled.program.steps) == 2


def test_small_products_and_results_read_twice_stay():
    w, b = wf.randn(8, 8), wf.randn(8)
    assert products(epilogues(captured(lambda x: x @ w + b, wf.randn(4, 8)).traces[0].flow)) == [("matmul", ())]
    v, c = wf.randn(128, 128), wf.randn(128)

    def twice(x):
        y = x @ v
        return (y + c) @ v + y

    assert products(epilogues(captured(twice, wf.randn(64, 128)).traces[0].flow)) == [("matmul", ())] * 2


class Block(nn.Module):
    """A residual block of inference: convolution, batch normalisation, addition, activation."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(16)
        with wf.no_grad():
            self.norm.running_mean.copy_(wf.randn(16))
            self.norm.running_var.copy_(wf.rand(16) + 0.5)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)) + x)


@pytest.mark.parametrize("groups", [1, 16])
def test_convolution_norm_residual_and_activation_are_one_primitive(groups):
    block = Block(groups).eval()
    f = captured(lambda x: block(x), wf.randn(2, 16, 6, 6))
    after = check_flow(epilogues(decompose(f.traces[0].flow)))
    assert products(after) == [("convolution_epilogue", ("multiply", "add", "add", "silu"))]
    labels = [s.label for s in f.traces[0].compiled.program.steps if isinstance(s, LibraryCall)]
    assert labels[-1] == "convolution + multiply + add + add + silu"


def test_training_keeps_batch_statistics_apart():
    block = Block().train()
    f = wf.function(lambda x: block(x))
    f(wf.randn(2, 16, 6, 6))
    assert "convolution_epilogue" not in str(f.traces[0].compiled.flow)


@pytest.mark.parametrize("name", ["relu6", "silu", "hardswish", "sigmoid", "tanh", "gelu"])
def test_activations_agree_with_the_eager_ones(name):
    w, b = wf.randn(128, 128), wf.randn(128)
    options = {"approximate": "tanh"} if name == "gelu" else {}
    f = captured(lambda x: getattr(F, name)(x @ w * 0.1 + b, **options), wf.randn(64, 128))
    assert len(f.traces[0].compiled.program.steps) <= 2


@pytest.mark.parametrize("activation", [F.relu, F.relu6])
def test_activations_that_lose_a_nan_follow_products_of_frozen_functions_only(activation):
    w, b = wf.randn(128, 256), wf.randn(256)
    x = wf.randn(64, 128)
    x[3, 5] = float("nan")
    name = activation.__name__
    f = captured(lambda x: activation(x @ w + b), x)  # NaN where eager code has NaN
    assert [s.label for s in f.traces[0].compiled.program.steps] == ["matmul", f"add+{name}"]
    image, kernel = wf.randn(2, 16, 8, 8), wf.randn(32, 16, 1, 1)
    image[1, 2, 3, 4] = float("nan")
    captured(lambda x: activation(F.conv2d(x, kernel)), image)
    frozen = wf.function(lambda x: activation(x @ w + b), freeze=True)
    frozen(x)
    assert f"matmul + add + {name}" in [s.label for s in frozen.traces[0].compiled.program.steps]
