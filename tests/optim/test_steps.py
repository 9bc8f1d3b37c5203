"""The formulas that optimisers repeat: small and large, mixed dtypes, views, captured, against NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.ops.core.registry import get
from weft.optim import steps

# the number of arrays and of 0-d settings that each takes
FORMULAS = {
    "descend": (2, 1), "gather_speed": (2, 1), "running_mean": (2, 1), "running_square": (2, 1), "descend_scaled": (3, 3),
    "descend_rectified": (3, 4), "descend_ahead": (4, 4),
}  # fmt: skip


def operands(name: str, shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays, count = FORMULAS[name]
    settings = [0.1, 0.7, 1e-3, 0.5][:count]
    return [rng.random(shape).astype(dtype) for _ in range(arrays)] + [np.array(v, dtype) for v in settings]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("shape", [(), (3, 4), (200, 300)])
@pytest.mark.parametrize("name", FORMULAS)
def test_the_result_replaces_the_first_operand(name: str, shape: tuple[int, ...], captured: bool) -> None:
    given = operands(name, shape, np.float32)
    expected = get(name).reference(*given)
    tensors = [wf.asarray(a.copy()) for a in given]
    alias = tensors[0].numpy()
    run = getattr(steps, name)

    def call() -> None:
        with wf.no_grad():
            run(*tensors)

    (wf.function(call) if captured else call)()
    np.testing.assert_allclose(alias, expected, rtol=2e-6, atol=1e-6)
    for tensor, before in zip(tensors[1:], given[1:], strict=True):
        np.testing.assert_array_equal(tensor.numpy(), before)


@pytest.mark.parametrize("name", FORMULAS)
def test_half_precision_parameters_take_wider_operands(name: str) -> None:
    given = operands(name, (3, 4), np.float32)
    target = wf.asarray(given[0]).astype(wf.bfloat16)
    expected = get(name).reference(target.astype(wf.float32).numpy(), *given[1:])
    getattr(steps, name)(target, *[wf.asarray(a) for a in given[1:]])
    assert target.dtype == wf.bfloat16
    np.testing.assert_allclose(target.astype(wf.float32).numpy(), expected, rtol=1e-2)


def test_strided_targets_are_written_through_the_view() -> None:
    base = wf.zeros(4, 6)
    steps.descend(base[:, ::2], wf.ones(4, 3), wf.tensor(2.0))
    assert base.tolist() == [[-2.0, 0.0] * 3] * 4


def test_a_shape_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="descend"):
        steps.descend(wf.ones(3), wf.ones(2, 3), wf.tensor(1.0))
    with pytest.raises(ValueError, match="read-only"):
        steps.descend(wf.asarray(np.broadcast_to(np.float32(1), 3)), wf.ones(3), wf.tensor(1.0))


def test_overflow_in_a_small_step_is_an_answer_not_a_warning() -> None:
    p = nn.Parameter(wf.full((3,), 3e38))
    opt = optim.SGD([p], lr=1e10)
    p.grad = wf.full((3,), -3e38)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.step()
    assert np.isinf(p.detach().numpy()).all()
