"""Blocked attention that never stores the full score matrix: a block of queries by a block of keys at a time.

    forward, for a block of queries:  for every block of keys: scores, running maximum and sum, out = out · correction + p v
    backward, for a head:             recompute a block's probabilities from the log-sum-exp, then its five products

Scores are kept *transposed*, a row per key, so that a vector holds several queries: maxima and sums need no horizontal
operations, and neither keys nor values are ever transposed; only the block of queries is, once. Blocks of keys that a
causal mask hides completely are skipped. A task is a block of queries (forward) or a whole head (backward) with a fixed
order of additions: the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....ops.core import scalar as s
from ....ops.core.scalar import FLOAT32, Expr
from ....ops.nn.attention_call import Backward, Forward
from ...program.layout import Layout
from ...target import Target
from .. import ir as loops
from ..ir import Accumulator, Buffer, Kernel, Let, Local, Statement
from .layout import unflatten
from .tiles import accumulators
from .tiles import product as product_of_tiles

BLOCK = 32  # queries, and keys, at a time: the operands of a block stay in L1
MAX_HEAD_SIZE = 128  # elements of a query or a value: four local blocks of this width fit in L2


def suits(query: Any, key: Any, value: Any) -> bool:
    """Whether there is a kernel for these shapes: whole vectors everywhere."""
    if any(not all(isinstance(d, int) for d in x.shape) for x in (query, key, value)):
        return False
    (rows, width), (keys, wide) = query.shape[-2:], value.shape[-2:]
    lead = tuple(query.shape[:-2])
    return (
        query.dtype == key.dtype == value.dtype == np.float32
        and lead == tuple(key.shape[:-2]) == tuple(value.shape[:-2])
        and 0 not in lead
        and all(n > 0 and n % 16 == 0 for n in (rows, keys, width, wide))
        and max(width, wide) <= MAX_HEAD_SIZE
    )


def serves_forward(call: Forward) -> bool:
    """Whether `attention_forward` supports a call. Takes tensors, values or arrays."""
    mask = call.mask
    return (
        not call.attention.dropout_p
        and suits(call.query, call.key, call.value)
        and (mask is None or mask.dtype in (np.bool_, np.float32))
    )


def serves_backward(call: Backward) -> bool:
    """Whether `attention_backward` supports a call."""
    return serves_forward(call.forward) and not call.mask_grad


def _block(size: int) -> int:
    return BLOCK if size % BLOCK == 0 else 16


def _product(target: Target) -> Callable[..., list[Statement]]:
    """Products in tiles of two vectors of columns and up to eight rows."""
    return partial(product_of_tiles, target=target, tile=(min(8, accumulators(target) // 2), 2 * target.lanes))


class _Operand:
    """A layout of shape (lead..., rows, columns) seen from one task: `at(row, column)` inside the current head."""

    def __init__(self, name: str, layout: Layout, lead: list[Expr]) -> None:
        self.layout = layout
        self.buffer = Buffer.of(name, layout.dtype, (1 << 40,))
        start = loops.as_index(layout.offset)
        for i, stride in zip(lead, layout.strides, strict=False):
            if stride:
                start = start + i * stride
        self.start = Let(f"{name}_at", start)

    def at(self, row: Any, column: Any) -> Expr:
        r, c = self.layout.strides[-2:]
        return self.buffer[self.start.var + loops.as_index(row) * r + loops.as_index(column) * c]

    def one(self, row: Any) -> Expr:
        """For statistics of rows: shape (lead..., rows)."""
        return self.buffer[self.start.var + loops.as_index(row) * self.layout.strides[-1]]


def _visible(score: Expr, mask: _Operand | None, row: Expr, key: Expr, diagonal: bool) -> Expr:
    """The score of a pair, minus infinity where it is hidden."""
    hidden = s.const(float("-inf"), FLOAT32)
    if mask is not None:
        m = mask.at(row, key)
        score = s.where(m, score, hidden) if m.dtype == s.BOOL else score + s.cast(m, FLOAT32)
    if diagonal:
        score = s.where(s.le(key, row), score, hidden)
    return score


def _transpose(tag: str, target: Buffer, source: Callable[[Expr, Expr], Expr], rows: int, columns: int) -> Statement:
    """target[column, row] = source(row, column)."""
    r, c = s.index(tag + "r"), s.index(tag + "c")
    store = loops.store(target[c, r], source(r, c))
    return loops.loop(tag + "c", columns, [loops.loop(tag + "r", rows, [store], "vector")])


def _rows(name: str, size: int, make: Callable[[Expr], list[Statement]]) -> Statement:
    return loops.loop(name, size, make(s.index(name)), "vector")


def _over_keys(
    tag: str, first_row: Expr, rows: int, keys: int, block: int, causal: bool,
    body: Callable[[str, Expr, bool], list[Statement]],
) -> list[Statement]:  # fmt: skip
    """The loop over blocks of keys that a block of queries can see; only those on the diagonal compare positions."""
    if not causal:
        j = s.index(tag + "j")
        return [loops.loop(tag + "j", keys // block, body(tag + "j", j * block, False))]
    blocks = loops.as_index(keys // block)
    full = Let(tag + "full", s.minimum(s.floor_divide(first_row + 1, block), blocks))
    seen = Let(tag + "seen", s.minimum(s.floor_divide(first_row + (rows + block - 1), block), blocks))
    j, d = s.index(tag + "j"), s.index(tag + "d")
    return [
        full,
        seen,
        loops.loop(tag + "j", full.var, body(tag + "j", j * block, False)),
        loops.loop(tag + "d", seen.var - full.var, body(tag + "d", (full.var + d) * block, True)),
    ]


def attention_forward(call: Forward, out: Layout, lse: Layout, target: Target) -> Kernel:
    """out = softmax(query keyᵀ · scale + mask) value and the log-sum-exp of every row of scores.

    Buffers in the order of the operands of `call` (without `state`) and of the results. A row whose keys are all hidden
    gives zeros.
    """
    query, key, value, mask = call[:4]
    causal, scale = call.attention.is_causal, call.attention.scale
    product = _product(target)
    lead = query.shape[:-2]
    (length, width), (keys, wide) = query.shape[-2:], value.shape[-2:]
    rows, block = _block(length), _block(keys)
    lets, places = unflatten(s.index("task"), [loops.as_index(d) for d in (*lead, length // rows)], "o")
    named = {"q": query, "k": key, "v": value, "m": mask, "out": out, "lse": lse}
    ops = {n: _Operand(n, x, places[:-1]) for n, x in named.items() if x is not None}
    q, k, v, m, o, stat = (ops.get(n) for n in named)
    assert q is not None and k is not None and v is not None and o is not None and stat is not None
    first = Let("first", places[-1] * rows)
    transposed = Buffer.of("turned", FLOAT32, (width, rows))
    scores = Buffer.of("scores", FLOAT32, (block, rows))
    top, total, factor, sum_ = (Buffer.of(n, FLOAT32, (rows,)) for n in ("top", "total", "factor", "added"))
    result = Buffer.of("result", FLOAT32, (rows, wide))
    zero, low = s.const(0.0, FLOAT32), s.const(float("-inf"), FLOAT32)

    def finite(x: Expr) -> Expr:
        return s.where(s.eq(x, low), zero, x)

    def over_block(tag: str, key0: Expr, diagonal: bool) -> list[Statement]:
        def scored(c: Expr, r: Expr, x: Expr) -> Statement:
            return loops.store(scores[c, r], _visible(x, m, first.var + r, key0 + c, diagonal))

        c = s.index(tag + "c")
        e = s.index(tag + "e")

        def raise_top(r: Expr) -> list[Statement]:
            return [loops.store(factor[r], s.maximum(factor[r], scores[c, r]))]

        def correct(r: Expr) -> list[Statement]:
            new = Let(tag + "new", factor[r])
            old = Let(tag + "old", top[r])
            change = s.exp(old.var - finite(new.var))
            return [
                new, old, loops.store(top[r], new.var), loops.store(factor[r], change), loops.store(sum_[r], zero),
            ]  # fmt: skip

        def weigh(r: Expr) -> list[Statement]:
            p = Let(tag + "p", s.exp(scores[e, r] - finite(top[r])))
            return [p, loops.store(scores[e, r], p.var), loops.store(sum_[r], sum_[r] + p.var)]

        return [
            *product(tag + "s", (block, rows, width), lambda c, e: k.at(key0 + c, e), lambda e, r: transposed[e, r], scored),
            _rows(tag + "r0", rows, lambda r: [loops.store(factor[r], top[r])]),
            loops.loop(tag + "c", block, [_rows(tag + "r1", rows, raise_top)]),
            _rows(tag + "r2", rows, correct),
            loops.loop(tag + "e", block, [_rows(tag + "r3", rows, weigh)]),
            _rows(tag + "r4", rows, lambda r: [loops.store(total[r], s.fma(total[r], factor[r], sum_[r]))]),
            *product(tag + "o", (rows, wide, block), lambda r, c: scores[c, r], lambda c, x: v.at(key0 + c, x),
                     lambda r, x, y: loops.store(result[r, x], y), lambda r, x: result[r, x] * factor[r]),
        ]  # fmt: skip

    i, x = s.index("i"), s.index("x")
    weight = s.where(s.eq(total[i], zero), s.const(1.0, FLOAT32), total[i])
    body: list[Statement] = [
        *lets, first, *[p.start for p in ops.values()],
        *[Local(b) for b in (transposed, scores, top, total, factor, sum_, result)],
        _transpose("t", transposed, lambda r, c: q.at(first.var + r, c) * s.const(scale, FLOAT32), rows, width),
        _rows("z", rows, lambda r: [loops.store(top[r], low), loops.store(total[r], zero)]),
        loops.loop("y", rows, [loops.loop("yx", wide, [loops.store(result[s.index("y"), s.index("yx")], zero)], "vector")]),
        *_over_keys("b", first.var, rows, keys, block, causal, over_block),
        _rows("l", rows, lambda r: [loops.store(stat.one(first.var + r), s.log(total[r]) + finite(top[r]))]),
        loops.loop("i", rows, [
            weighted := Let("weight", s.const(1.0, FLOAT32) / weight),
            loops.loop("x", wide, [loops.store(o.at(first.var + i, x), result[i, x] * weighted.var)], "vector"),
        ]),
    ]  # fmt: skip
    count = length // rows
    for d in lead:
        count *= d
    task = loops.loop("task", count, body, parallel=True)
    return Kernel("attention", tuple([p.buffer for p in ops.values()]), (), (task,))


def attention_backward(call: Backward, g_query: Layout, g_key: Layout, g_value: Layout, target: Target) -> Kernel:
    """The gradients of attention in query, key and value. Buffers as in `attention_forward`."""
    query, value = call.query, call.value
    causal, scale = call.attention.is_causal, call.attention.scale
    product = _product(target)
    lead = query.shape[:-2]
    (length, width), (keys, wide) = query.shape[-2:], value.shape[-2:]
    rows, block = _block(length), _block(keys)
    lets, places = unflatten(s.index("task"), [loops.as_index(d) for d in lead], "o") if lead else ([], [])
    named = {
        "g": call.grad, "gl": call.grad_lse, "q": query, "k": call.key, "v": value, "m": call.mask, "out": call.result,
        "lse": call.lse, "gq": g_query, "gk": g_key, "gv": g_value,
    }  # fmt: skip
    ops = {n: _Operand(n, x, places) for n, x in named.items() if x is not None}
    g, gl, q, k, v, m, o, stat, gq, gk, gv = (ops.get(n) for n in named)
    assert g and q and k and v and o and stat and gq and gk and gv
    turned_q = Buffer.of("turned_q", FLOAT32, (width, rows))
    turned_g = Buffer.of("turned_g", FLOAT32, (wide, rows))
    weights, slopes = (Buffer.of(n, FLOAT32, (block, rows)) for n in ("weights", "slopes"))
    level, delta = (Buffer.of(n, FLOAT32, (rows,)) for n in ("level", "delta"))
    result = Buffer.of("result", FLOAT32, (rows, width))
    zero, low = s.const(0.0, FLOAT32), s.const(float("-inf"), FLOAT32)
    factor = s.const(scale, FLOAT32)
    first = Let("first", s.index("i") * rows)

    def over_block(tag: str, key0: Expr, diagonal: bool) -> list[Statement]:
        def weigh(c: Expr, r: Expr, x: Expr) -> Statement:
            return loops.store(weights[c, r], s.exp(_visible(x, m, first.var + r, key0 + c, diagonal) - level[r]))

        def slope(c: Expr, r: Expr, x: Expr) -> Statement:
            return loops.store(slopes[c, r], weights[c, r] * (x - delta[r]) * factor)

        return [
            *product(tag + "s", (block, rows, width), lambda c, e: k.at(key0 + c, e), lambda e, r: turned_q[e, r], weigh),
            *product(tag + "d", (block, rows, wide), lambda c, e: v.at(key0 + c, e), lambda e, r: turned_g[e, r], slope),
            *product(tag + "v", (block, wide, rows), lambda c, r: weights[c, r], lambda r, x: g.at(first.var + r, x),
                     lambda c, x, y: loops.store(gv.at(key0 + c, x), y), lambda c, x: gv.at(key0 + c, x)),
            *product(tag + "k", (block, width, rows), lambda c, r: slopes[c, r], lambda r, x: q.at(first.var + r, x),
                     lambda c, x, y: loops.store(gk.at(key0 + c, x), y), lambda c, x: gk.at(key0 + c, x)),
            *product(tag + "q", (rows, width, block), lambda r, c: slopes[c, r], lambda c, x: k.at(key0 + c, x),
                     lambda r, x, y: loops.store(result[r, x], y), lambda r, x: result[r, x]),
        ]  # fmt: skip

    def clear(tag: str, operand: _Operand, size: tuple[int, int]) -> Statement:
        r, c = s.index(tag), s.index(tag + "c")
        return loops.loop(
            tag, size[0], [loops.loop(tag + "c", size[1], [loops.store(operand.at(r, c), zero)], "vector")]
        )

    r, x = s.index("dr"), s.index("dx")
    dot = Accumulator("dot", "sum", FLOAT32)
    mean = dot.value if gl is None else dot.value - gl.one(first.var + r)
    y, yx, w, wx = (s.index(n) for n in ("y", "yx", "w", "wx"))
    of_block: list[Statement] = [
        first,
        *[Local(b) for b in (turned_q, turned_g, weights, slopes, level, delta, result)],
        _transpose("tq", turned_q, lambda r, c: q.at(first.var + r, c) * factor, rows, width),
        _transpose("tg", turned_g, lambda r, c: g.at(first.var + r, c), rows, wide),
        loops.loop("dr", rows, [
            dot,
            loops.loop("dx", wide, [loops.update(dot, g.at(first.var + r, x) * o.at(first.var + r, x))], "vector"),
            loops.store(delta[r], mean),
        ]),
        _rows("lr", rows, lambda r: [
            loops.store(level[r], s.where(s.eq(stat.one(first.var + r), low), zero, stat.one(first.var + r)))
        ]),
        loops.loop("y", rows, [loops.loop("yx", width, [loops.store(result[y, yx], zero)], "vector")]),
        *_over_keys("b", first.var, rows, keys, block, causal, over_block),
        loops.loop("w", rows, [loops.loop("wx", width, [loops.store(gq.at(first.var + w, wx), result[w, wx])], "vector")]),
    ]  # fmt: skip
    body: list[Statement] = [
        *lets, *[p.start for p in ops.values()],
        clear("ck", gk, (keys, width)), clear("cv", gv, (keys, wide)),
        loops.loop("i", length // rows, of_block),
    ]  # fmt: skip
    count = 1
    for d in lead:
        count *= d
    task = loops.loop("task", count, body, parallel=True)
    return Kernel("attention_backward", tuple([p.buffer for p in ops.values()]), (), (task,))
