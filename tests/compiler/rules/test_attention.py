"""Attention in blocks against float64, against the plain path, and bit for bit between numbers of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.compiler.passes.decompositions import general as decompositions
from weft.nn import functional as F

CASES = {
    "causal": ((2, 3), 64, 64, 32, 32, True, None),
    "causal, more keys": ((2,), 48, 80, 16, 16, True, None),
    "causal, fewer keys": ((2, 2), 96, 32, 16, 16, True, None),
    "plain": ((1, 2), 32, 96, 32, 16, False, None),
    "no leading axes": ((), 32, 48, 16, 16, True, None),
    "bool mask": ((3, 2), 32, 64, 16, 48, False, "bool"),
    "float mask": ((3, 2), 48, 32, 16, 16, False, "float"),
    "keys of each example": ((2, 2), 32, 32, 16, 16, False, "keys"),
}


def _mask(kind: str | None, lead: tuple[int, ...], rows: int, keys: int, rng: Any) -> Any:
    if kind == "bool":
        mask = rng.random((lead[0], 1, rows, keys)) > 0.3
        mask[0, 0, 3] = False  # a query that sees nothing
        return mask
    if kind == "float":
        return rng.standard_normal((rows, keys)).astype(np.float32)
    return None if kind is None else rng.random((lead[0], 1, 1, keys)) > 0.4


def _problem(name: str) -> tuple[list[np.ndarray], Any, bool]:
    lead, rows, keys, width, wide, causal, kind = CASES[name]
    rng = np.random.default_rng(0)
    shapes = ((rows, width), (keys, width), (keys, wide), (rows, wide))
    arrays = [rng.standard_normal((*lead, *shape)).astype(np.float32) for shape in shapes]
    return arrays, _mask(kind, lead, rows, keys, rng), causal


def _captured(mask: Any, causal: bool) -> Any:
    @wf.function
    def step(q: Any, k: Any, v: Any, g: Any) -> Any:
        seen = None if mask is None else wf.tensor(mask)
        out = F.scaled_dot_product_attention(q, k, v, seen, is_causal=causal)
        return out, *wf.grad((out * g).sum(), [q, k, v])

    return step


def _tensors(arrays: list[np.ndarray], dtype: Any = np.float32) -> list[Any]:
    return [wf.tensor(a.astype(dtype), requires_grad=i < 3) for i, a in enumerate(arrays)]


def _run(step: Any, tensors: list[Any]) -> list[np.ndarray]:
    return [t.detach().numpy() for t in step(*tensors)]


@pytest.mark.parametrize("name", CASES)
def test_attention_agrees_with_float64(name: str) -> None:
    arrays, mask, causal = _problem(name)
    step = _captured(mask, causal)
    found = _run(step, _tensors(arrays))
    assert "host" not in {s.kind for s in step.traces[0].compiled.program.steps}
    assert {"attention", "attention backward"} <= {s.label for s in step.traces[0].compiled.program.steps}
    wide = mask.astype(np.float64) if mask is not None and mask.dtype != bool else mask
    exact = _run(_captured(wide, causal), _tensors(arrays, np.float64))
    for got, expected in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("name", ["causal", "bool mask"])
def test_attention_agrees_with_the_plain_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, mask, causal = _problem(name)
    found = _run(_captured(mask, causal), _tensors(arrays))
    monkeypatch.setattr(decompositions, "serves_forward", lambda *_: False)
    monkeypatch.setattr(decompositions, "serves_backward", lambda *_: False)
    plain = _captured(mask, causal)
    expected = _run(plain, _tensors(arrays))
    assert "matmul" in {s.label for s in plain.traces[0].compiled.program.steps}
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-6)


def test_strided_heads_are_read_and_written_in_place() -> None:
    """Heads split from one projection are views; so is their join."""
    x = wf.tensor(np.random.default_rng(1).standard_normal((2, 32, 3, 4, 16)).astype(np.float32))

    @wf.function
    def step(x: Any) -> Any:
        q, k, v = (x[:, :, i].permute_dims((0, 2, 1, 3)) for i in range(3))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.permute_dims((0, 2, 1, 3)).reshape(2, 32, 64) * 2.0

    got = step(x)
    assert [s.label for s in step.traces[0].compiled.program.steps] == ["attention", "multiply"]
    q, k, v = (x[:, :, i].permute_dims((0, 2, 1, 3)) for i in range(3))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = out.permute_dims((0, 2, 1, 3)).reshape(2, 32, 64) * 2.0
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_gradient_through_the_log_sum_exp() -> None:
    from weft.ops.nn.attention import attention_forward
    from weft.ops.nn.attention_call import Attention

    arrays, _, _ = _problem("plain")
    tensors = _tensors(arrays)

    def step(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, lse = attention_forward(q, k, v, None, None, Attention(0.0, False, 0.3))
        return wf.grad((out * g).sum() + (lse * lse).sum(), [q, k, v])

    for got, want in zip(_run(wf.function(step), tensors), _run(step, tensors), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_bits_do_not_depend_on_the_number_of_threads(at_widths) -> None:
    arrays, mask, causal = _problem("causal")
    step = _captured(mask, causal)
    tensors = _tensors(arrays)
    results = at_widths(lambda: _run(step, tensors))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
