"""Attention on NumPy arrays, a block of rows at a time: no more than `BLOCK` scores exist at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .random_ops import keep_mask

BLOCK = 1 << 18  # scores at a time: one megabyte in float32


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, min(rows, BLOCK // max(columns, 1)))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class Problem:
    """One call on arrays: leading axes joined, masks and dropout applied block by block."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        state: Any,
        dropout_p: float,
        is_causal: bool,
        scale: float,
    ) -> None:
        self.lead, self.rows, self.columns = query.shape[:-2], query.shape[-2], key.shape[-2]
        self.count = math.prod(self.lead)
        self.query, self.key, self.value = (a.reshape(self.count, *a.shape[-2:]) for a in (query, key, value))
        self.state, self.dropout_p, self.is_causal, self.scale = (
            state,
            dropout_p,
            is_causal,
            query.dtype.type(scale),
        )
        self.mask = None if mask is None else np.broadcast_to(mask, (*self.lead, self.rows, self.columns))
        self.index = list(np.ndindex(*self.lead))

    def scores(self, i: int, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of the scores of matrix i, masked."""
        scores = self.query[i, start:stop] @ self.key[i].T
        scores *= self.scale
        if self.mask is not None:
            mask = self.mask[self.index[i]][start:stop]
            if mask.dtype == np.bool_:
                scores[~mask] = -np.inf
            else:
                scores += mask
        if self.is_causal:
            scores[np.arange(self.columns) > np.arange(start, stop)[:, None]] = -np.inf
        return scores

    def keep(self, i: int, start: int, stop: int) -> np.ndarray | None:
        """What dropout multiplies the probabilities of these rows by."""
        if self.dropout_p <= 0:
            return None
        first = (i * self.rows + start) * self.columns
        keep = keep_mask(self.state, (stop - start, self.columns), self.dropout_p, first)
        return keep * self.query.dtype.type(1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0)


def forward(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    dtype = p.query.dtype
    out = np.empty((p.count, p.rows, p.value.shape[-1]), dtype)
    lse = np.empty((p.count, p.rows), dtype)
    for i in range(p.count):
        for start, stop in _blocks(p.rows, p.columns):
            scores = p.scores(i, start, stop)
            top = scores.max(-1, keepdims=True, initial=-np.inf)
            top = np.where(np.isfinite(top), top, dtype.type(0))
            weights = np.exp(scores - top)
            total = weights.sum(-1, keepdims=True)
            lse[i, start:stop] = (np.log(total) + top)[:, 0]
            # a row whose keys are all masked attends to nothing: zeros, not nan
            weights *= 1 / np.where(total == 0, dtype.type(1), total)
            keep = p.keep(i, start, stop)
            out[i, start:stop] = (weights if keep is None else weights * keep) @ p.value[i]
    return out, lse


def backward(
    p: Problem, grad: Any, grad_lse: Any, out: Any, lse: Any, mask_grad: np.ndarray | None
) -> tuple[Any, Any, Any]:
    gq, gk, gv = (np.zeros_like(a) for a in (p.query, p.key, p.value))
    for i in range(p.count):
        for start, stop in _blocks(p.rows, p.columns):
            rows = slice(start, stop)
            g = grad[i, rows]
            log_total = lse[i, rows, None]
            weights = np.exp(p.scores(i, start, stop) - np.where(np.isfinite(log_total), log_total, 0))
            keep = p.keep(i, start, stop)
            gv[i] += (weights if keep is None else weights * keep).T @ g
            gp = g @ p.value[i].T
            if keep is not None:
                gp *= keep
            gp -= (g * out[i, rows]).sum(-1, keepdims=True)
            if grad_lse is not None:
                gp += grad_lse[i, rows, None]
            gs = np.multiply(weights, gp, out=gp)
            if mask_grad is not None:
                mask_grad[i, rows] = gs
            gs = gs * p.scale
            gq[i, rows] = gs @ p.key[i]
            gk[i] += gs.T @ p.query[i, rows]
    return gq, gk, gv
