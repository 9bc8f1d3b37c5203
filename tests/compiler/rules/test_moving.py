"""unfold and fold inside a program."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.program.steps import HostCall
from weft.nn import functional as F


def host_calls(f):
    return [step.label for step in f.traces[-1].compiled.program.steps if isinstance(step, HostCall)]


@pytest.mark.parametrize(
    ("kernel", "dilation", "padding", "stride"), [(3, 1, 1, 1), ((2, 3), (2, 1), (0, 2), (1, 2)), (1, 1, 0, 1)]
)
@pytest.mark.parametrize("last", [False, True])
def test_unfold_and_its_gradient(kernel, dilation, padding, stride, last):
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 8)).astype("float32")
    image = wf.tensor(x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2) if last else x, requires_grad=True)

    def both(t):
        columns = F.unfold(t, kernel, dilation, padding, stride)
        return columns, wf.grad(columns.square().sum(), [t])[0]

    f = wf.function(both)
    for got, expected in zip(f(image), both(image), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    assert host_calls(f) == []
