"""Parts that cover a whole, by comparing the graphs before and after the pass."""

import numpy as np

import weft as wf
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.assemble import assemble
from weft.graph.graph import CONSTANT, PLACEHOLDER

X = wf.tensor(np.random.default_rng(0).normal(size=(4, 6, 5)).astype("float32"), requires_grad=True)


def gradient_of(parts):
    def fn(x):
        return wf.grad(sum((p * float(k + 1)).square().sum() for k, p in enumerate(parts(x))), [x])[0]

    f = wf.function(fn)
    np.testing.assert_allclose(f(X).numpy(), fn(X).numpy(), rtol=1e-5)
    return f.traces[0].flow


def ops(flow):
    return [n.op.name for n in flow.nodes if n.op is not PLACEHOLDER and n.op is not CONSTANT]


def zeros_and_joins(flow):
    names = ops(flow)
    return names.count("put_into_zeros"), names.count("concat_axis"), names.count("filled")


def test_parts_that_cover_an_axis_are_joined():
    before = gradient_of(lambda x: [x[:, i] for i in range(6)])
    assert zeros_and_joins(before)[:2] == (6, 0)
    assert zeros_and_joins(check_flow(assemble(before)))[:2] == (0, 1)


def test_slices_leave_zeros_where_there_is_nothing():
    before = gradient_of(lambda x: [x[..., 3:5], x[..., 0:1]])
    after = check_flow(assemble(before))
    assert zeros_and_joins(after)[:2] == (0, 1)
    (join,) = [n for n in after.nodes if n.op.name == "concat_axis"]
    assert [v.shape[-1] for v in join.inputs] == [1, 2, 2]


def test_parts_that_overlap_or_lie_along_different_axes_are_added():
    overlapping = gradient_of(lambda x: [x[0:3], x[2:4]])
    assert zeros_and_joins(assemble(overlapping)) == zeros_and_joins(overlapping)
    crossed = gradient_of(lambda x: [x[0], x[:, 0]])
    assert zeros_and_joins(assemble(crossed)) == zeros_and_joins(crossed)


def test_every_second_element_stays_as_it_is():
    strided = gradient_of(lambda x: [x[:, ::2], x[:, 1::2]])
    assert zeros_and_joins(assemble(strided)) == zeros_and_joins(strided)
