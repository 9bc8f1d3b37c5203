"""Attention on NumPy arrays, blocked over heads and rows so that about `BLOCK` scores are live at once.

Products use the `matmul` op's best kernel, and the elementwise work on the scores between them uses native loops once a
block is large enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..array.products import matmul
from ..array.random_ops import keep_mask
from ..core import scalar as s
from ..core.define import NATIVE_MIN_ELEMENTS, compute, native_kernels
from .attention_call import Forward

BLOCK = 1 << 19  # scores per block: 2 MiB in float32
CAUSAL_ROWS = 256  # rows per block under a causal mask; keys after the block's last row are skipped


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return compute(matmul.op, (a, b), ())  # type: ignore[attr-defined]


def _native(size: int) -> Any:
    return native_kernels() or None if size >= NATIVE_MIN_ELEMENTS else None


def _apply(expression: Any, arrays: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    """`out[...] = expression(*arrays)`, with a native loop where that is faster."""
    native = _native(out.size)
    if native is None or native.elementwise("attention", expression, arrays, out.shape, out) is None:
        out[...] = expression(*arrays)
    return out


def _weights(scores: Any, lse: Any) -> Any:
    return s.exp(s.sub(scores, lse))


def _slope(weights: Any, g: Any, mean: Any) -> Any:
    return s.mul(weights, s.sub(g, mean))


def _visible(mask: Any, scores: Any) -> Any:
    return s.where(mask, scores, -math.inf)


def _log_sum_exp(scores: np.ndarray) -> np.ndarray:
    native = _native(scores.size)
    found = None if native is None else native.logsumexp(scores, (2,))
    if found is not None:
        return found
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, scores.dtype.type(0))
    return (np.log(np.exp(scores - top).sum(-1, keepdims=True)) + top)[..., 0]


@functools.lru_cache(16)
def _triangle(rows: int, columns: int) -> np.ndarray:
    return np.tri(rows, columns, dtype=np.bool_)


class Problem:
    """One call: leading axes joined, masks and dropout applied chunk by chunk."""

    def __init__(self, call: Forward) -> None:
        query, key, value, mask, self.state, attention = call
        self.lead, self.rows, self.columns = query.shape[:-2], query.shape[-2], key.shape[-2]
        self.count = math.prod(self.lead)
        self.query, self.key, self.value = (a.reshape(self.count, *a.shape[-2:]) for a in (query, key, value))
        self.scale = query.dtype.type(attention.scale)
        self.scaled = self.query * self.scale
        self.dropout_p, self.is_causal = attention.dropout_p, attention.is_causal
        self.mask = self.shared_mask = None
        if mask is not None:
            if math.prod(mask.shape[:-2]) == 1:  # the same for all heads
                flat = mask.reshape(mask.shape[-2:] if mask.ndim > 1 else (1, -1))
                self.shared_mask = np.broadcast_to(flat, (self.rows, self.columns))
            else:
                self.mask = np.broadcast_to(mask, (*self.lead, self.rows, self.columns))
        self.places = list(np.ndindex(*self.lead)) if self.mask is not None else []

    def chunks(self) -> Iterator[tuple[slice, slice, slice]]:
        """(heads, rows, keys that these rows can see)."""
        rows = max(1, min(self.rows, BLOCK // max(self.columns, 1)))
        if self.is_causal:
            rows = min(rows, CAUSAL_ROWS)
        heads = max(1, BLOCK // max(rows * self.columns, 1))
        for head in range(0, self.count, heads):
            for start in range(0, self.rows, rows):
                stop = min(start + rows, self.rows)
                seen = min(stop, self.columns) if self.is_causal else self.columns
                yield slice(head, min(head + heads, self.count)), slice(start, stop), slice(0, seen)

    def scores(self, heads: slice, rows: slice, keys: slice) -> np.ndarray:
        scores = product(self.scaled[heads, rows], self.key[heads, keys].swapaxes(1, 2))
        if self.shared_mask is not None:
            self._hide(scores, self.shared_mask[rows, keys])
        elif self.mask is not None:
            for i in range(heads.start, heads.stop):
                self._hide(scores[i - heads.start], self.mask[self.places[i]][rows, keys])
        if self.is_causal and rows.start < keys.stop:
            square = scores[:, :, rows.start :]
            _apply(_visible, [_triangle(*square.shape[1:]), square], square)
        return scores

    def _hide(self, scores: np.ndarray, mask: np.ndarray) -> None:
        if mask.dtype == np.bool_:
            _apply(_visible, [mask, scores], scores)
        else:
            _apply(s.add, [scores, mask.astype(scores.dtype, copy=False)], scores)

    def keep(self, heads: slice, rows: slice, keys: slice) -> np.ndarray | None:
        """What dropout multiplies the weights of this chunk by."""
        if self.dropout_p <= 0:
            return None
        size = (rows.stop - rows.start, self.columns)
        masks = [
            keep_mask(self.state, size, self.dropout_p, (i * self.rows + rows.start) * self.columns)
            for i in range(heads.start, heads.stop)
        ]
        scale = self.query.dtype.type(1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0)
        return np.stack(masks)[:, :, keys] * scale


def forward(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(out, log-sum-exp of the scores). A row whose keys are all masked attends to nothing: zeros."""
    out = np.empty((p.count, p.rows, p.value.shape[-1]), p.query.dtype)
    lse = np.empty((p.count, p.rows), p.query.dtype)
    for heads, rows, keys in p.chunks():
        weights = p.scores(heads, rows, keys)
        total = _log_sum_exp(weights)
        lse[heads, rows] = total
        _apply(_weights, [weights, _finite(total)], weights)
        keep = p.keep(heads, rows, keys)
        if keep is not None:
            weights *= keep
        out[heads, rows] = product(weights, p.value[heads, keys])
    return out, lse


def _finite(total: np.ndarray) -> np.ndarray:
    """The log-sum-exp of each row as a column, 0 for fully masked rows."""
    return np.where(np.isneginf(total), total.dtype.type(0), total)[..., None]


def backward(
    p: Problem, grad: Any, grad_lse: Any, out: Any, lse: Any, mask_grad: np.ndarray | None
) -> tuple[Any, Any, Any]:
    """Gradients of query, key and value; that of the (broadcast) mask is written to `mask_grad`."""
    gq, gk, gv = (np.zeros_like(a) for a in (p.query, p.key, p.value))
    mean = (grad * out).sum(-1)  # Σ over keys of weight times its gradient
    if grad_lse is not None:
        mean -= grad_lse
    if mask_grad is not None:
        mask_grad[...] = 0
    for heads, rows, keys in p.chunks():
        g = grad[heads, rows]
        weights = _apply(_weights, [scores := p.scores(heads, rows, keys), _finite(lse[heads, rows])], scores)
        gw = product(g, p.value[heads, keys].swapaxes(1, 2))
        keep = p.keep(heads, rows, keys)
        if keep is not None:
            gw *= keep
            gv[heads, keys] += product((weights * keep).swapaxes(1, 2), g)
        else:
            gv[heads, keys] += product(weights.swapaxes(1, 2), g)
        slope = _apply(_slope, [weights, gw, mean[heads, rows, None]], gw)
        if mask_grad is not None:
            mask_grad[heads, rows, keys] = slope
        gq[heads, rows] = product(slope, p.key[heads, keys])
        gk[heads, keys] += product(slope.swapaxes(1, 2), p.scaled[heads, rows])
    gq *= p.scale
    return gq, gk, gv
