"""Attention beyond its records: blocks, masks, dropout, memory, the multi-head helper."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F
from weft.ops.core.registry import get
from weft.ops.nn import attention_reference
from weft.ops.nn.attention_call import Attention, Backward, Forward


def _inputs(lead, rows, columns, width, seed=0, grad=False, dtype=wf.float64):
    g = wf.Generator(seed)
    tensors = [wf.randn((*lead, n, width), dtype=dtype, generator=g) for n in (rows, columns, columns)]
    return [t.requires_grad_() for t in tensors] if grad else tensors


def _plain(q, k, v, mask=None, causal=False):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = wf.where(mask, scores, -wf.inf) if mask.dtype == wf.bool else scores + mask
    if causal:
        scores = wf.where(wf.asarray(np.tri(*scores.shape[-2:], dtype=bool)), scores, -wf.inf)
    return F.softmax(scores, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_rows_give_the_same_result_and_gradients(monkeypatch, causal):
    monkeypatch.setattr(attention_reference, "BLOCK", 64)  # 8 rows at a time instead of all
    mask = None if causal else wf.randn(20, 8, dtype=wf.float64, generator=wf.Generator(3)).requires_grad_()
    q, k, v = _inputs((2, 3), 20, 8, 4, grad=True)
    leaves = [q, k, v] + ([] if mask is None else [mask])
    weights = wf.randn(2, 3, 20, 4, dtype=wf.float64, generator=wf.Generator(4))
    out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    expected = _plain(q, k, v, mask, causal)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=1e-12)
    for a, b in zip(wf.grad((out * weights).sum(), leaves), wf.grad((expected * weights).sum(), leaves), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)


def test_fully_masked_rows_are_zero_with_zero_gradients():
    q, k, v = _inputs((2,), 3, 4, 5, grad=True)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    out = F.scaled_dot_product_attention(q, k, v, wf.asarray(mask))
    assert np.isfinite(out.detach().numpy()).all() and (out.detach().numpy()[:, 1] == 0).all()
    out.sum().backward()
    for t in (q, k, v):
        assert np.isfinite(t.grad.numpy()).all()
    assert (q.grad.numpy()[:, 1] == 0).all()


def test_bool_and_additive_masks_agree_and_broadcast():
    q, k, v = _inputs((2, 3), 4, 5, 6)
    keep = wf.asarray(np.random.default_rng(0).random((2, 1, 1, 5)) < 0.7)
    added = wf.where(keep, 0.0, -wf.inf).astype(wf.float64)
    a, b = (F.scaled_dot_product_attention(q, k, v, m) for m in (keep, added))
    np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-14)


def test_dropout_is_reproducible_scaled_and_differentiable():
    q, k, v = _inputs((1,), 6, 7, 4, grad=True)

    def run():
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, generator=wf.Generator(5))

    np.testing.assert_array_equal(run().detach().numpy(), run().detach().numpy())
    ones = wf.ones(1, 7, 4, dtype=wf.float64)
    g = wf.Generator(6)
    sums = [F.scaled_dot_product_attention(q, k, ones, dropout_p=0.5, generator=g).mean().item() for _ in range(200)]
    assert abs(np.mean(sums) - 1) < 0.05 and np.std(sums) > 0.01
    (grad,) = wf.grad(run().sum(), q)
    eps, direction = 1e-6, np.random.default_rng(0).standard_normal((1, 6, 4))
    with wf.no_grad():
        old = q.numpy().copy() if not q.requires_grad else q.detach().numpy().copy()
        values = []
        for sign in (1, -1):
            q.detach().numpy()[...] = old + sign * eps * direction
            values.append(run().sum().item())
        q.detach().numpy()[...] = old
    assert abs((values[0] - values[1]) / (2 * eps) - (grad.numpy() * direction).sum()) < 1e-6
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).detach().numpy().any() == False  # noqa: E712


def test_the_default_generator_advances_only_with_dropout():
    q, k, v = _inputs((), 2, 2, 2)
    before = wf.get_rng_state().tolist()
    F.scaled_dot_product_attention(q, k, v)
    assert wf.get_rng_state().tolist() == before
    F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    assert wf.get_rng_state().tolist() == [before[0], before[1] + 1]


@pytest.mark.parametrize("dtype", [wf.float16, wf.bfloat16, wf.float32])
def test_low_precision_stays_close(dtype):
    q, k, v = _inputs((2,), 9, 9, 8)
    expected = _plain(q, k, v).numpy()
    out = F.scaled_dot_product_attention(*[t.astype(dtype) for t in (q, k, v)])
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy().astype(np.float64), expected, atol=1e-5 if dtype == wf.float32 else 0.05)


def test_the_tape_keeps_no_scores():
    q, k, v = _inputs((1,), 300, 300, 4, grad=True)
    out = F.scaled_dot_product_attention(q, k, v)
    node = out.grad_fn.parent
    kept = sum(s.nbytes for s in node.saved if isinstance(s, np.ndarray))
    assert kept < 300 * 300 * 8 / 4


def test_grouped_queries_share_heads():
    g = wf.Generator(0)
    q, k, v = (wf.randn(2, 6, 3, 4, generator=g), wf.randn(2, 2, 5, 4, generator=g), wf.randn(2, 2, 5, 4, generator=g))
    out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    np.testing.assert_allclose(
        out[:, 4].numpy(), F.scaled_dot_product_attention(q[:, 4], k[:, 1], v[:, 1]).numpy(), atol=1e-6
    )
    with pytest.raises(ValueError, match="multiple"):
        F.scaled_dot_product_attention(wf.ones(1, 3, 2, 2), wf.ones(1, 2, 2, 2), wf.ones(1, 2, 2, 2), enable_gqa=True)


def test_empty_sequences():
    assert F.scaled_dot_product_attention(wf.ones(2, 0, 3), wf.ones(2, 4, 3), wf.ones(2, 4, 5)).shape == (2, 0, 5)
    out = F.scaled_dot_product_attention(wf.ones(2, 3, 3), wf.ones(2, 0, 3), wf.ones(2, 0, 5))
    assert out.shape == (2, 3, 5) and not out.numpy().any()


def test_vmap_over_heads_equals_the_batched_call():
    q, k, v = _inputs((3,), 4, 5, 2, grad=True)
    mask = wf.randn(4, 5, dtype=wf.float64, generator=wf.Generator(1))
    mapped = wf.vmap(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, mask))(q, k, v)
    np.testing.assert_allclose(mapped.detach().numpy(), _plain(q, k, v, mask).detach().numpy(), atol=1e-12)
    grads = wf.vmap(lambda a, b, c: wf.grad_fn(lambda t: F.scaled_dot_product_attention(t, b, c).sum())(a))(
        q.detach(), k.detach(), v.detach()
    )
    (expected,) = wf.grad(_plain(q, k, v).sum(), q)
    np.testing.assert_allclose(grads.numpy(), expected.numpy(), atol=1e-12)


def _heads(embed=8, seed=0):
    g = wf.Generator(seed)
    return [
        wf.randn(shape, dtype=wf.float64, generator=g) * 0.3
        for shape in ((3 * embed, embed), (3 * embed,), (embed, embed), (embed,))
    ]


def test_multi_head_attention_equals_its_definition():
    weight, bias, out_weight, out_bias = _heads()
    x = wf.randn(2, 5, 8, dtype=wf.float64, generator=wf.Generator(1))
    out, weights = F.multi_head_attention_forward(x, x, x, 2, weight, bias, out_weight, out_bias, need_weights=True)
    joined = x @ weight.mT + bias
    heads = []
    for h in range(2):
        q, k, v = (joined[..., 8 * i + 4 * h : 8 * i + 4 * h + 4] for i in range(3))
        heads.append(_plain(q, k, v))
    expected = wf.concat(heads, axis=-1) @ out_weight.mT + out_bias
    np.testing.assert_allclose(out.numpy(), expected.numpy(), atol=1e-12)
    assert weights.shape == (2, 5, 5)
    np.testing.assert_allclose(weights.sum(-1).numpy(), 1, atol=1e-12)
    fast, none = F.multi_head_attention_forward(x, x, x, 2, weight, bias, out_weight, out_bias)
    assert none is None
    np.testing.assert_allclose(fast.numpy(), out.numpy(), atol=1e-12)
    turned, _ = F.multi_head_attention_forward(
        *[x.permute_dims((1, 0, 2))] * 3, 2, weight, bias, out_weight, out_bias, batch_first=False
    )
    np.testing.assert_allclose(turned.permute_dims((1, 0, 2)).numpy(), out.numpy(), atol=1e-12)
    single, _ = F.multi_head_attention_forward(x[0], x[0], x[0], 2, weight, bias, out_weight, out_bias)
    np.testing.assert_allclose(single.numpy(), out[0].numpy(), atol=1e-12)
    split = tuple(weight[8 * i : 8 * i + 8] for i in range(3))
    apart, _ = F.multi_head_attention_forward(x, x, x, 2, split, bias, out_weight, out_bias)
    np.testing.assert_allclose(apart.numpy(), out.numpy(), atol=1e-12)


def test_multi_head_masks():
    weights = _heads()
    x = wf.randn(2, 5, 8, dtype=wf.float64, generator=wf.Generator(1))
    padding = wf.asarray(np.array([[False] * 3 + [True] * 2, [False] * 5]))
    out, _ = F.multi_head_attention_forward(x, x, x, 2, *weights, key_padding_mask=padding)
    short, _ = F.multi_head_attention_forward(x[:1], x[:1, :3], x[:1, :3], 2, *weights)
    np.testing.assert_allclose(out[0].numpy(), short[0].numpy(), atol=1e-12)
    causal, _ = F.multi_head_attention_forward(x, x, x, 2, *weights, is_causal=True)
    above = wf.asarray(~np.tri(5, dtype=bool))
    masked, _ = F.multi_head_attention_forward(x, x, x, 2, *weights, attn_mask=above)
    both, _ = F.multi_head_attention_forward(
        x, x, x, 2, *weights, is_causal=True, key_padding_mask=wf.zeros(2, 5, dtype=wf.bool)
    )
    np.testing.assert_allclose(causal.numpy(), masked.numpy(), atol=1e-12)
    np.testing.assert_allclose(both.numpy(), masked.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_heads": 3}, "does not divide into 3 heads"),
        ({"key_padding_mask": wf.zeros(2, 4, dtype=wf.bool)}, "key_padding_mask has shape"),
        ({"in_proj_weight": wf.zeros(8, 8, dtype=wf.float64)}, "in_proj_weight has shape"),
        ({"query": wf.zeros(1, 2, 5, 8)}, "2 or all have 3 axes"),
    ],
)
def test_multi_head_refuses_wrong_arguments(change, match):
    names = ("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias")
    x = wf.zeros(2, 5, 8, dtype=wf.float64)
    arguments = {"query": x, "key": x, "value": x, "num_heads": 2, **dict(zip(names, _heads(), strict=True)), **change}
    with pytest.raises(ValueError, match=match):
        F.multi_head_attention_forward(**arguments)


# The records of a call ------------------------------------------------------------------------------------------------


def test_records_list_the_parameters_of_their_ops():
    assert Forward._fields == get("attention_forward").parameters
    assert Backward._fields == get("attention_backward").parameters


@pytest.mark.parametrize(
    ("fields", "error"),
    [((0, False, 1.0), ValueError), ((1.5, False, 1.0), ValueError), ((float("nan"), False, 1.0), ValueError),
     ((0.0, 1, 1.0), TypeError), ((0.0, False, None), TypeError)],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused_when_the_value_is_made(fields, error):
    with pytest.raises(error, match="attention: "):
        Attention(*fields)
    with pytest.raises(TypeError, match="expected an Attention value"):
        get("attention_forward").call(*[wf.ones(1, 2, 4)] * 3, None, None, fields)
