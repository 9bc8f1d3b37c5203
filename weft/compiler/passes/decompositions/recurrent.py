"""Decompositions of recurrent layers into native loops over time; the elementwise part of a step is one kernel.

A step masked out by `mask` (T, N, 1) keeps the states unchanged, and its gates get no gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.capture.control_flow import scan
from ....ops.array import elementwise as e
from ....ops.array import indexing, shaping
from ....tensor import wrap
from ...lowering.rules.recurrent import serves
from ..decompose import decomposition


def _parts(a: Any, count: int) -> list[Any]:
    """The gates of a layer, as views."""
    size = a.shape[-1] // count
    return [indexing.slice_axis(a, -1, k * size, (k + 1) * size) for k in range(count)]


def _walk(step: Any, carry: Any, xs: list[Any], reverse: bool) -> Any:
    """`scan` over the tensors among `xs`; `step` gets None for those that are None."""
    present = [x for x in xs if x is not None]

    def run(carry: Any, given: Any) -> Any:
        rest = iter(given)
        return step(carry, [None if x is None else next(rest) for x in xs])

    return scan(run, carry, present, reverse=reverse)


def _keep(mask: Any, new: Any, old: Any) -> Any:
    return new if mask is None else e.where(mask, new, old)


def _before(states: Any, first: Any, reverse: bool) -> Any:
    """The state before every step."""
    steps = states.shape[0]
    first = shaping.expand_dims(first, 0)
    if steps == 1:
        return first
    if reverse:
        return shaping.concat([indexing.slice_axis(states, 0, 1, steps), first])
    return shaping.concat([first, indexing.slice_axis(states, 0, 0, steps - 1)])


@decomposition("lstm_sequence")
def lstm_sequence(gates: Any, h0: Any, c0: Any, weight_hh: Any, mask: Any, reverse: bool) -> Any:
    if gates.dtype.itemsize == 2 or serves(gates, weight_hh, mask):
        return NotImplemented
    size = h0.shape[-1]
    across = shaping.matrix_transpose(weight_hh)
    column = np.arange(4 * size)[None]
    is_cell = (column >= 2 * size) & (column < 3 * size)

    def step(carry: Any, x: Any) -> Any:
        (h, c), (a, kept) = carry, x
        a = a + h @ across
        chosen = wrap(a._data.node.graph.constant(is_cell))
        acts = e.where(chosen, e.tanh(a), e.sigmoid(a))
        i, f, g, o = _parts(acts, 4)
        new = f * c + i * g
        h, c = _keep(kept, o * e.tanh(new), h), _keep(kept, new, c)
        return (h, c), (h, c, acts)

    _, (hidden, cells, acts) = _walk(step, (h0, c0), [gates, mask], reverse)
    return hidden, cells, acts


@decomposition("lstm_sequence_backward")
def lstm_sequence_backward(
    g_hidden: Any, g_cells: Any, c0: Any, weight_hh: Any, cells: Any, acts: Any, mask: Any, reverse: bool
) -> Any:
    if acts.dtype.itemsize == 2 or serves(acts, weight_hh, mask):
        return NotImplemented

    def step(carry: Any, x: Any) -> Any:
        dh, dc = carry
        gh, gc, a, c, c_before, kept = x
        dh = dh + gh
        dc = dc if gc is None else dc + gc
        i, f, g, o = _parts(a, 4)
        tc = e.tanh(c)
        d = (1.0 - tc * tc) * dh * o + dc
        d_a = shaping.concat(
            [d * g * i * (1.0 - i), d * c_before * f * (1.0 - f), d * i * (1.0 - g * g), dh * tc * o * (1.0 - o)],
            axis=-1,
        )
        d_a = _keep(kept, d_a, 0.0)
        before = d_a @ weight_hh
        if kept is not None:
            before = before + e.where(kept, 0.0, dh)
        return (before, _keep(kept, d * f, dc)), d_a

    zeros = c0 * 0.0
    xs = [g_hidden, g_cells, acts, cells, _before(cells, c0, reverse), mask]
    (dh, dc), d_a = _walk(step, (zeros, zeros), xs, not reverse)
    return d_a, dh, dc


@decomposition("gru_sequence")
def gru_sequence(gates: Any, h0: Any, weight_hh: Any, bias_hh: Any, mask: Any, reverse: bool) -> Any:
    if gates.dtype.itemsize == 2:
        return NotImplemented
    across = shaping.matrix_transpose(weight_hh)

    def step(carry: Any, x: Any) -> Any:
        (h,), (a, kept) = carry, x
        units = h @ across
        if bias_hh is not None:
            units = units + bias_hh
        (ar, az, an), (ur, uz, un) = _parts(a, 3), _parts(units, 3)
        r, z = e.sigmoid(ar + ur), e.sigmoid(az + uz)
        n = e.tanh(an + r * un)
        h = _keep(kept, (1.0 - z) * n + z * h, h)
        return (h,), (h, shaping.concat([r, z, n, un], axis=-1))

    _, (hidden, acts) = _walk(step, (h0,), [gates, mask], reverse)
    return hidden, acts


@decomposition("gru_sequence_backward")
def gru_sequence_backward(
    g_hidden: Any, h0: Any, weight_hh: Any, hidden: Any, acts: Any, mask: Any, reverse: bool
) -> Any:
    if acts.dtype.itemsize == 2:
        return NotImplemented

    def step(carry: Any, x: Any) -> Any:
        (dh,), (gh, a, h_before, kept) = carry, x
        dh = dh + gh
        r, z, c, u = _parts(a, 4)
        d_c = dh * (1.0 - z) * (1.0 - c * c)
        d_z = dh * (h_before - c) * z * (1.0 - z)
        d_r = d_c * u * r * (1.0 - r)
        inner = _keep(kept, shaping.concat([d_r, d_z, d_c], axis=-1), 0.0)
        units = _keep(kept, shaping.concat([d_r, d_z, d_c * r], axis=-1), 0.0)
        return (units @ weight_hh + _keep(kept, dh * z, dh),), (inner, units)

    xs = [g_hidden, acts, _before(hidden, h0, reverse), mask]
    (dh,), (inner, units) = _walk(step, (h0 * 0.0,), xs, not reverse)
    return inner, units, dh


@decomposition("rnn_sequence")
def rnn_sequence(gates: Any, h0: Any, weight_hh: Any, mask: Any, nonlinearity: str, reverse: bool) -> Any:
    if gates.dtype.itemsize == 2:
        return NotImplemented
    across = shaping.matrix_transpose(weight_hh)

    def step(carry: Any, x: Any) -> Any:
        (h,), (a, kept) = carry, x
        a = a + h @ across
        h = _keep(kept, e.tanh(a) if nonlinearity == "tanh" else e.maximum(a, 0.0), h)
        return (h,), h

    _, hidden = _walk(step, (h0,), [gates, mask], reverse)
    return hidden


@decomposition("rnn_sequence_backward")
def rnn_sequence_backward(
    g_hidden: Any, weight_hh: Any, hidden: Any, mask: Any, nonlinearity: str, reverse: bool
) -> Any:
    if hidden.dtype.itemsize == 2:
        return NotImplemented

    def step(carry: Any, x: Any) -> Any:
        (dh,), (gh, h, kept) = carry, x
        dh = dh + gh
        d = dh * (1.0 - h * h) if nonlinearity == "tanh" else e.where(h > 0.0, dh, 0.0)
        d = _keep(kept, d, 0.0)
        before = d @ weight_hh
        if kept is not None:
            before = before + e.where(kept, 0.0, dh)
        return (before,), d

    start = indexing.slice_axis(hidden, 0, 0, 1) * 0.0
    (dh,), out = _walk(step, (shaping.reshape(start, tuple(hidden.shape[1:])),), [g_hidden, hidden, mask], not reverse)
    return out, dh
