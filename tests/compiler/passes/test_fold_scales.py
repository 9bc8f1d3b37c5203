"""Batch normalisation of inference folded into convolutions, by comparing the graphs before and after the pass."""

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.backends.onednn import library
from weft.compiler import tuning
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.epilogues import epilogues
from weft.compiler.passes.fold_scales import fold_scales
from weft.compiler.program.steps import LibraryCall
from weft.graph.graph import CONSTANT, PLACEHOLDER


def norm(channels: int) -> nn.Module:
    made = nn.BatchNorm2d(channels)
    with wf.no_grad():
        made.running_mean.copy_(wf.randn(channels))
        made.running_var.copy_(wf.rand(channels) + 0.5)
        made.weight.copy_(wf.randn(channels))
        made.bias.copy_(wf.randn(channels))
    return made


def frozen(fn, *args):
    """The function captured and frozen; it must agree with the eager one."""
    f = wf.function(fn, freeze=True)
    with wf.no_grad():
        got, expected = f(*args), fn(*args)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
    return f


def still(f, arguments: int = 1) -> list[int]:
    return list(range(arguments, len(f.traces[0].flow.inputs)))


def names(flow):
    return [n.op.name for n in flow.nodes if n.op is not PLACEHOLDER and n.op is not CONSTANT]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("groups", [1, 8])
def test_the_norm_becomes_part_of_weights_and_bias(bias, kernel, groups):
    wf.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 32, kernel, padding=kernel // 2, bias=bias, groups=groups), norm(32)).eval()
    f = frozen(lambda x: model(x), wf.randn(2, 16, 9, 9))
    before = decompose(f.traces[0].flow)
    assert names(before).count("scale_shift") == 1
    after = check_flow(fold_scales(before, still(f)))
    assert "scale_shift" not in names(after) and names(after).count("convolution") == 1
    made = next(n for n in after.nodes if n.op.name == "convolution")
    assert made.inputs[2] is not None and tuple(made.inputs[2].shape) == (32,)


def test_results_with_other_readers_stay():
    conv, bn = nn.Conv2d(4, 8, 3), norm(8).eval()

    def forward(x):
        y = conv(x)
        return bn(y) + wf.sum(y)

    f = frozen(forward, wf.randn(1, 4, 8, 8))
    before = decompose(f.traces[0].flow)
    assert names(fold_scales(before, still(f))) == names(before)


def test_a_scale_that_is_computed_from_an_argument_stays():
    conv, bn = nn.Conv2d(4, 8, 3), norm(8).eval()

    def forward(x, variance):
        y = conv(x)
        return wf.nn.functional.batch_norm(y, bn.running_mean, variance, bn.weight, bn.bias)

    f = frozen(forward, wf.randn(1, 4, 8, 8), wf.rand(8) + 0.5)
    before = decompose(f.traces[0].flow)
    assert "scale_shift" in names(fold_scales(before, still(f, 2)))


class Residual(nn.Module):
    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), norm(channels)
        self.act = {"relu": nn.ReLU(), "relu6": nn.ReLU6(), "gelu": nn.GELU()}[act]

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)


@pytest.mark.skipif(not library.available(), reason="post-ops are oneDNN's")
@pytest.mark.parametrize("act", ["relu", "relu6", "gelu"])
@pytest.mark.parametrize("way", ["direct", "winograd_f2", "winograd_f4"])
def test_every_way_of_a_convolution_does_the_steps_after_it(way, act):
    wf.manual_seed(1)
    model = Residual(32, act).eval()
    with tuning.forced(way):
        f = frozen(lambda x: model(x), wf.randn(2, 32, 13, 14))
    steps = f.traces[0].compiled.program.steps
    labels = [s.label for s in steps]
    assert any("winograd" in label for label in labels) == (way != "direct")
    if act != "gelu":  # the last transform has no steps but sums and these
        assert all(label.startswith(("winograd", "convolution", "copy")) for label in labels), labels


@pytest.mark.skipif(not library.available(), reason="post-ops are oneDNN's")
def test_what_follows_a_convolution_with_bias_is_taken_in_when_frozen():
    conv = nn.Conv2d(8, 16, 5)
    f = frozen(lambda x: wf.nn.functional.relu(conv(x)), wf.randn(2, 8, 9, 9))
    flow = decompose(f.traces[0].flow)
    assert "convolution_epilogue" not in names(epilogues(flow))
    assert "convolution_epilogue" in names(check_flow(epilogues(flow, frozen=True)))
    assert any(s.label == "convolution + add + relu" for s in f.traces[0].compiled.program.steps)


@pytest.mark.skipif(not library.available(), reason="the kernels are oneDNN's")
@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_with_shorter_vectors_gives_the_same_numbers(groups):
    wf.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(24, 96, 1, bias=False, groups=groups), norm(96), nn.ReLU6()).eval()
    with tuning.forced("narrow"):
        f = frozen(lambda x: model(x), wf.randn(2, 24, 13, 14))
        other = wf.function(lambda x: model(x))
        with wf.no_grad():
            other(wf.randn(2, 24, 13, 14))

    def ways(fn):
        return [choice.way for choice in fn.traces[0].compiled.choices]

    assert ways(f) == (["narrow"] if groups == 1 else [])
    assert ways(other) == []  # only where weights are brought into a layout once
    if groups == 1:
        made = [s.primitive.implementation for s in f.traces[0].compiled.program.steps if isinstance(s, LibraryCall)]
        assert any(name.endswith("avx2") for name in made) or not any("avx512" in name for name in made)
