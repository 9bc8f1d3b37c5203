"""Concatenations whose parts are computed in place: the results, and which copies remain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def check(fn: Any, *arrays: Any, copies: int) -> None:
    """Captured and eager, in float64, agree; so many parts are copied."""
    step = wf.function(fn)
    found = step(*[wf.tensor(a) for a in arrays])
    wide = [wf.tensor(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arrays]
    expected = fn(*wide)
    for x, y in zip(_list(found), _list(expected), strict=True):
        scale = max(1.0, float(np.abs(y.numpy()).max(initial=0.0)))  # sums of large terms that cancel lose digits
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-5, atol=2e-5 * scale)
    steps = step._latest().compiled.program.steps
    assert sum(1 for st in steps if st.label == "copy" and st.nodes[0].op.name == "concat_axis") == copies


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_elementwise_parts_write_into_the_whole(axis: int) -> None:
    def fn(x: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        return wf.concat([x * 2, wf.exp(y)], axis=axis).sum(axis=0)

    check(fn, array(5, 40, 36), array(5, 40, 36), copies=0)


def test_rows_that_are_looked_up_write_into_the_whole() -> None:
    def fn(t: wf.Tensor, u: wf.Tensor, i: wf.Tensor, w: wf.Tensor) -> wf.Tensor:
        return wf.concat([wf.take(t, i, axis=0), wf.take(u, i + 1, axis=0)], axis=-1) @ w

    check(fn, array(20, 40), array(21, 64), np.array([3, 0, 3, 19]), array(104, 7), copies=0)


def test_narrow_parts_and_parts_that_others_want_are_copied() -> None:
    check(lambda x, y: wf.concat([x + 1, y + 2], axis=1) @ wf.ones(12, 3), array(50, 4), array(50, 8), copies=2)

    def kept(x: wf.Tensor, y: wf.Tensor) -> Any:
        a = x + 1
        return a, wf.concat([a, y + 2], axis=1).sum(axis=1)

    check(kept, array(50, 40), array(50, 40), copies=1)


def test_a_part_that_a_product_reads_too_stays_dense() -> None:
    def fn(x: wf.Tensor, w: wf.Tensor) -> Any:
        a = wf.tanh(x)
        return (wf.concat([a, x * 3], axis=1) ** 2).sum(axis=1), a @ w

    check(fn, array(50, 40), array(40, 300), copies=1)


def test_one_value_twice_in_a_whole_is_computed_once() -> None:
    def fn(x: wf.Tensor) -> wf.Tensor:
        a = wf.tanh(x)
        return wf.concat([a, a], axis=1).sum(axis=0)

    check(fn, array(50, 40), copies=1)


def test_a_part_may_be_computed_from_another_part() -> None:
    def fn(x: wf.Tensor) -> wf.Tensor:
        a = wf.cumsum(x, axis=0) + 1
        return wf.concat([a, wf.flip(a, axis=0) * 2, a[:, ::-1] - 1], axis=1).sum(axis=0)

    check(fn, array(50, 40), copies=0)


def test_wholes_may_be_parts_of_others() -> None:
    def fn(x: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        inner = wf.concat([x * 2, y * 3], axis=1)
        return wf.concat([y - 1, inner, x + 1], axis=1).sum(axis=0)

    check(fn, array(50, 40), array(50, 33), copies=0)


def test_images_that_lie_channels_last_are_joined_by_channels() -> None:
    def fn(x: wf.Tensor, w: wf.Tensor) -> wf.Tensor:
        a, b = F.relu(F.conv2d(x, w)), wf.sigmoid(F.conv2d(x, w * 2))
        return wf.concat([a, b], axis=1).sum(axis=(2, 3))

    check(fn, array(2, 3, 12, 12), array(32, 3, 3, 3), copies=0)


def test_a_part_that_never_changes_is_not_computed_with_those_that_do() -> None:
    weight = wf.tensor(array(50, 40))

    def fn(x: wf.Tensor) -> wf.Tensor:
        return wf.concat([wf.tanh(weight), x * 2], axis=1) @ wf.ones(80, 200)

    x = wf.tensor(array(50, 40))
    step = wf.function(freeze=True)(fn)
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), fn(x).numpy(), rtol=2e-5, atol=1e-5)


def test_gradients_of_joined_parts_agree() -> None:
    def fn(x: wf.Tensor, y: wf.Tensor, w: wf.Tensor) -> Any:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        a, b = F.relu(x * y), wf.tanh(y)
        loss = (wf.concat([a, b], axis=1) @ w).square().sum()
        return wf.grad(loss, [x, y])

    check(fn, array(50, 40), array(50, 40), array(80, 30), copies=0)
