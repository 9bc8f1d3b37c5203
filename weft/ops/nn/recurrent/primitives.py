"""Recurrent layers over whole sequences: one op per layer and direction, with its own backward op.

The input projections of all time steps are one matrix product; the ops here (`lstm_sequence`, `gru_sequence`,
`rnn_sequence`) run the recurrence and also return the gate activations, which the backward op reads. Gradients that are
differentiated again (`create_graph=True`) use the same recurrence composed of ordinary ops, see `through_composition`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....autograd.tape import is_grad_enabled
from ....runtime import memory
from ....tensor import Tensor
from ...array.products import matmul
from ...array.shaping import matrix_transpose
from ...core.define import primitive
from ...core.registry import NOT_DIFFERENTIABLE, joint
from ...core.samples import Bad, Sample
from ...core.spec import Spec
from .recurrence import (
    all_before,
    batch_walk,
    before,
    cast,
    check_sequence,
    flat,
    flat_rows,
    gru_step,
    lstm_step,
    product_of,
    rnn_step,
    sigmoid_inplace,
    through_composition,
    times,
    walk,
    work,
)

# LSTM ----------------------------------------------------------------------------------------------------------------


def _infer_lstm(gates: Any, h0: Any, c0: Any, weight_hh: Any, mask: Any, reverse: bool) -> tuple[Spec, ...]:
    t, n, h = check_sequence("lstm", 4, gates, weight_hh, {"h0": h0, "c0": c0}, mask)
    return Spec((t, n, h), gates.dtype), Spec((t, n, h), gates.dtype), Spec(gates.shape, gates.dtype)


def _lstm_rule(
    g: Any, gates: Tensor, h0: Tensor, c0: Tensor, weight_hh: Tensor, mask: Any, outs: Any, reverse: bool, needs: Any
) -> list[Any]:
    if is_grad_enabled() or g[2] is not None:

        def run(a: Tensor, h: Tensor, c: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            return walk(lambda step, h, c: lstm_step(step, h, c, w), a, (h, c), mask, reverse)

        return [*through_composition(run, (gates, h0, c0, weight_hh), g), None]
    hidden, cells, acts = outs
    g_hidden = g[0] if g[0] is not None else hidden * 0.0
    g_gates, g_h0, g_c0 = lstm_sequence_backward(g_hidden, g[1], c0, weight_hh, cells, acts, mask, reverse)
    g_weight = None
    if needs[3]:
        g_weight = matmul(matrix_transpose(flat(g_gates)), all_before(hidden, h0, reverse))
    return [g_gates, g_h0, g_c0, g_weight, None]


def _sigma(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def _lstm_reference(gates: Any, h0: Any, c0: Any, weight_hh: Any, mask: Any, reverse: bool) -> Any:
    size, h, c = h0.shape[-1], h0, c0
    outs: Any = {}
    for t in sorted(range(len(gates)), reverse=reverse):
        a = gates[t] + h @ weight_hh.T
        i, f, o = (_sigma(a[:, k * size : (k + 1) * size]) for k in (0, 1, 3))
        g = np.tanh(a[:, 2 * size : 3 * size])
        c_new = f * c + i * g
        h_new = o * np.tanh(c_new)
        keep = np.ones((len(h0), 1), bool) if mask is None else mask[t]
        h, c = np.where(keep, h_new, h), np.where(keep, c_new, c)
        outs[t] = (h, c, np.concatenate([i, f, g, o], 1))
    return tuple(np.stack([outs[t][k] for t in range(len(gates))]) for k in range(3))


def _mask(m: Any) -> np.ndarray:
    return np.array([[[1], [1]], [[1], [1]], [[0], [1]]], bool)


@primitive(
    autocast="low",
    checks_once=True,
    outputs=3,
    infer=_infer_lstm,
    vjp=joint(_lstm_rule, fill=False),
    batch=batch_walk(lambda: lstm_sequence, (True, False, False, False, True), (False, False, False, True, False)),
    cost=lambda gates, h0, c0, w, mask, reverse: 2 * gates.shape[0] * gates.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_lstm_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 12), m.normal(2, 3), m.normal(2, 3), m.normal(12, 3), None, False),
        Sample(m.normal(3, 2, 12), m.normal(2, 3), m.normal(2, 3), m.normal(12, 3), None, True),
        Sample(m.normal(3, 2, 8), m.normal(2, 2), m.normal(2, 2), m.normal(8, 2), _mask(m), False),
        Sample(m.normal(3, 2, 8), m.normal(2, 2), m.normal(2, 2), m.normal(8, 2), _mask(m), True),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "lstm: expected gates",
            m.normal(3, 2, 11),
            m.normal(2, 3),
            m.normal(2, 3),
            m.normal(12, 3),
            None,
            False,
        ),
        Bad(
            ValueError,
            r"lstm: h0 must be \(N, H\)",
            m.normal(3, 2, 12),
            m.normal(4, 3),
            m.normal(2, 3),
            m.normal(12, 3),
            None,
            False,
        ),
    ],
)
def lstm_sequence(gates: Tensor, h0: Tensor, c0: Tensor, weight_hh: Tensor, mask: Tensor | None, reverse: bool) -> Any:
    """One LSTM layer over time: (hidden states, cells, activated gates), each (T, N, …).

    Args:
        gates: (T, N, 4·H): the projected inputs with all biases, gates in the order i, f, g, o.
        h0, c0: (N, H).
        weight_hh: (4·H, H).
        mask: (T, N, 1) or None, see Note [Masks].
        reverse: whether time runs backwards.
    """
    a_all, h, c, w = work(gates, h0, c0, weight_hh)
    steps, n, size = len(a_all), len(h), w.shape[1]
    w = w.T
    product = product_of(h, w)
    hidden, cells = memory.empty((steps, n, size), a_all.dtype), memory.empty((steps, n, size), a_all.dtype)
    acts = memory.empty(a_all.shape, a_all.dtype)
    for t in times(steps, reverse):
        a = acts[t]
        np.add(a_all[t], product(h, w), out=a)
        g = np.tanh(a[:, 2 * size : 3 * size])
        sigmoid_inplace(a)
        a[:, 2 * size : 3 * size] = g
        new = cells[t]
        np.multiply(a[:, size : 2 * size], c, out=new)
        g *= a[:, :size]
        new += g
        np.tanh(new, out=g)
        np.multiply(a[:, 3 * size :], g, out=hidden[t])
        if mask is not None:
            rest = ~mask[t]
            np.copyto(new, c, where=rest)
            np.copyto(hidden[t], h, where=rest)
        h, c = hidden[t], new
    return cast(gates.dtype, hidden, cells, acts)


def _lstm_backward_reference(
    g_hidden: Any, g_cells: Any, c0: Any, weight_hh: Any, cells: Any, acts: Any, mask: Any, reverse: bool
) -> Any:
    steps, n, size = cells.shape
    dh, dc = np.zeros((n, size)), np.zeros((n, size))
    out = np.zeros(acts.shape)
    for t in sorted(range(steps), reverse=not reverse):
        dh = dh + g_hidden[t]
        dc = dc + (0 if g_cells is None else g_cells[t])
        keep = np.ones((n, 1)) if mask is None else mask[t].astype(float)
        i, f, g, o = np.split(acts[t], 4, axis=1)
        c_before = before(cells, c0, t, reverse)
        tc = np.tanh(cells[t])
        d = (dc + dh * o * (1 - tc**2)) * keep
        out[t] = np.concatenate(
            [d * g * i * (1 - i), d * c_before * f * (1 - f), d * i * (1 - g**2), keep * dh * tc * o * (1 - o)], 1
        )
        dh, dc = out[t] @ weight_hh + dh * (1 - keep), d * f + dc * (1 - keep)
    return out, dh, dc


def _lstm_saved(m: Any, mask: Any, reverse: bool) -> tuple[Any, ...]:
    c0, w = m.normal(2, 2), m.normal(8, 2)
    _, cells, acts = _lstm_reference(m.normal(3, 2, 8), m.normal(2, 2), c0, w, mask, reverse)
    return c0, w, cells, acts, mask, reverse


@primitive(
    autocast="low",
    checks_once=True,
    outputs=3,
    infer=lambda g_hidden, g_cells, c0, weight_hh, cells, acts, mask, reverse: (
        Spec(acts.shape, acts.dtype), Spec(c0.shape, acts.dtype), Spec(c0.shape, acts.dtype)
    ),
    vjp=NOT_DIFFERENTIABLE,  # higher derivatives use `through_composition` instead
    batch=batch_walk(
        lambda: lstm_sequence_backward, (True, True, False, False, True, True, True),
        (False, False, False, True, False, False, False),
    ),
    cost=lambda g, gc, c0, w, cells, acts, mask, reverse: 2 * acts.shape[0] * acts.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_lstm_backward_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 2), None, *_lstm_saved(m, None, False)),
        Sample(m.normal(3, 2, 2), m.normal(3, 2, 2), *_lstm_saved(m, _mask(m), True)),
    ],
)  # fmt: skip
def lstm_sequence_backward(
    g_hidden: Tensor, g_cells: Tensor | None, c0: Tensor, weight_hh: Tensor, cells: Tensor, acts: Tensor,
    mask: Tensor | None, reverse: bool,
) -> Any:  # fmt: skip
    """The gradients of `lstm_sequence` in gates, h0 and c0."""
    gh, gc, first, w, c_all, a_all = work(g_hidden, g_cells, c0, weight_hh, cells, acts)
    steps, n, size = c_all.shape
    out = memory.empty(a_all.shape, a_all.dtype)
    product = product_of(flat_rows(a_all), w)
    dh, dc = np.zeros((n, size), a_all.dtype), np.zeros((n, size), a_all.dtype)
    for t in times(steps, not reverse):
        dh = dh + gh[t]
        if gc is not None:
            dc = dc + gc[t]
        a, d_a = a_all[t], out[t]
        i, f, g, o = (a[:, k * size : (k + 1) * size] for k in range(4))
        tc = np.tanh(c_all[t])
        d = 1.0 - tc * tc
        d *= dh
        d *= o
        d += dc
        np.multiply(d, g, out=d_a[:, :size])
        np.multiply(d, before(c_all, first, t, reverse), out=d_a[:, size : 2 * size])
        np.multiply(d, i, out=d_a[:, 2 * size : 3 * size])
        np.multiply(dh, tc, out=d_a[:, 3 * size :])
        slope = a * (1.0 - a)  # σ' = σ (1 - σ), and for g: tanh' = 1 - tanh²
        slope[:, 2 * size : 3 * size] = 1.0 - g * g
        d_a *= slope
        if mask is not None:
            keep = mask[t]
            np.copyto(d_a, 0, where=~keep)
            dh, dc = product(d_a, w) + np.where(keep, 0, dh), np.where(keep, d * f, dc)
        else:
            dh, dc = product(d_a, w), d * f
    return cast(acts.dtype, out, np.asarray(dh), np.asarray(dc))


# GRU -----------------------------------------------------------------------------------------------------------------


def _infer_gru(gates: Any, h0: Any, weight_hh: Any, bias_hh: Any, mask: Any, reverse: bool) -> tuple[Spec, Spec]:
    t, n, h = check_sequence("gru", 3, gates, weight_hh, {"h0": h0}, mask)
    return Spec((t, n, h), gates.dtype), Spec((t, n, 4 * h if isinstance(h, int) else None), gates.dtype)


def _gru_rule(
    g: Any, gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Any, mask: Any, outs: Any, reverse: bool, needs: Any
) -> list[Any]:
    if is_grad_enabled() or g[1] is not None:

        def run(a: Tensor, h: Tensor, w: Tensor, b: Any) -> tuple[Tensor, ...]:
            return walk(lambda step, s: gru_step(step, s, w, b), a, (h,), mask, reverse)

        return [*through_composition(run, (gates, h0, weight_hh, bias_hh), g), None]
    from ...array.reduction import reduce_sum

    hidden, acts = outs
    g_gates, g_units, g_h0 = gru_sequence_backward(g[0], h0, weight_hh, hidden, acts, mask, reverse)
    g_weight = g_bias = None
    if needs[2]:
        g_weight = matmul(matrix_transpose(flat(g_units)), all_before(hidden, h0, reverse))
    if needs[3]:
        g_bias = reduce_sum(g_units, (0, 1), False)
    return [g_gates, g_h0, g_weight, g_bias, None]


def _gru_reference(gates: Any, h0: Any, weight_hh: Any, bias_hh: Any, mask: Any, reverse: bool) -> Any:
    h, outs = h0, {}
    for t in sorted(range(len(gates)), reverse=reverse):
        u = h @ weight_hh.T + (0 if bias_hh is None else bias_hh)
        (ar, az, an), (ur, uz, un) = np.split(gates[t], 3, 1), np.split(u, 3, 1)
        r, z = _sigma(ar + ur), _sigma(az + uz)
        n = np.tanh(an + r * un)
        new = (1 - z) * n + z * h
        h = new if mask is None else np.where(mask[t], new, h)
        outs[t] = (h, np.concatenate([r, z, n, un], 1))
    return tuple(np.stack([outs[t][k] for t in range(len(gates))]) for k in range(2))


@primitive(
    autocast="low",
    checks_once=True,
    outputs=2,
    infer=_infer_gru,
    vjp=joint(_gru_rule, fill=False),
    batch=batch_walk(lambda: gru_sequence, (True, False, False, False, True), (False, False, True, True, False)),
    cost=lambda gates, h0, w, b, mask, reverse: 2 * gates.shape[0] * gates.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_gru_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 9), m.normal(2, 3), m.normal(9, 3), m.normal(9), None, False),
        Sample(m.normal(3, 2, 6), m.normal(2, 2), m.normal(6, 2), None, None, True),
        Sample(m.normal(3, 2, 6), m.normal(2, 2), m.normal(6, 2), m.normal(6), _mask(m), False),
        Sample(m.normal(3, 2, 6), m.normal(2, 2), m.normal(6, 2), m.normal(6), _mask(m), True),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "gru: expected gates",
            m.normal(3, 2, 8),
            m.normal(2, 3),
            m.normal(9, 3),
            m.normal(9),
            None,
            False,
        )
    ],
)
def gru_sequence(
    gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Tensor | None, mask: Tensor | None, reverse: bool
) -> Any:
    """One GRU layer over time: (hidden states, (T, N, 4·H) of r, z, n and the recurrent part of n).

    Args:
        gates: (T, N, 3·H): the projected inputs with their bias, gates in the order r, z, n.
        h0: (N, H).
        weight_hh: (3·H, H).
        bias_hh: (3·H,) or None; its part for n is inside the product with r.
        mask: (T, N, 1) or None, see Note [Masks].
        reverse: whether time runs backwards.
    """
    a_all, h, w, b = work(gates, h0, weight_hh, bias_hh)
    steps, n, size = len(a_all), len(h), w.shape[1]
    w = w.T
    product = product_of(h, w)
    hidden = memory.empty((steps, n, size), a_all.dtype)
    acts = memory.empty((steps, n, 4 * size), a_all.dtype)
    for t in times(steps, reverse):
        u = product(h, w)
        if b is not None:
            u += b
        a, new = acts[t], a_all[t]
        both = a[:, : 2 * size]
        np.add(new[:, : 2 * size], u[:, : 2 * size], out=both)
        sigmoid_inplace(both)
        a[:, 3 * size :] = u[:, 2 * size :]
        out = a[:, 2 * size : 3 * size]
        np.multiply(a[:, :size], a[:, 3 * size :], out=out)
        out += new[:, 2 * size :]
        np.tanh(out, out=out)
        np.subtract(h, out, out=hidden[t])
        hidden[t] *= a[:, size : 2 * size]
        hidden[t] += out
        if mask is not None:
            np.copyto(hidden[t], h, where=~mask[t])
        h = hidden[t]
    return cast(gates.dtype, hidden, acts)


def _gru_backward_reference(
    g_hidden: Any, h0: Any, weight_hh: Any, hidden: Any, acts: Any, mask: Any, reverse: bool
) -> Any:
    steps, n, size = hidden.shape
    dh = np.zeros((n, size))
    inner, units = np.zeros((steps, n, 3 * size)), np.zeros((steps, n, 3 * size))
    for t in sorted(range(steps), reverse=not reverse):
        dh = dh + g_hidden[t]
        keep = np.ones((n, 1)) if mask is None else mask[t].astype(float)
        r, z, c, u = np.split(acts[t], 4, axis=1)
        d_c = dh * (1 - z) * (1 - c**2)
        d_z = dh * (before(hidden, h0, t, reverse) - c) * z * (1 - z)
        d_r = d_c * u * r * (1 - r)
        inner[t] = keep * np.concatenate([d_r, d_z, d_c], 1)
        units[t] = keep * np.concatenate([d_r, d_z, d_c * r], 1)
        dh = units[t] @ weight_hh + dh * (keep * z + 1 - keep)
    return inner, units, dh


def _gru_saved(m: Any, mask: Any, reverse: bool) -> tuple[Any, ...]:
    h0, w = m.normal(2, 2), m.normal(6, 2)
    hidden, acts = _gru_reference(m.normal(3, 2, 6), h0, w, m.normal(6), mask, reverse)
    return h0, w, hidden, acts, mask, reverse


@primitive(
    autocast="low",
    checks_once=True,
    outputs=3,
    infer=lambda g_hidden, h0, weight_hh, hidden, acts, mask, reverse: (
        Spec((*hidden.shape[:2], weight_hh.shape[0]), acts.dtype), Spec((*hidden.shape[:2], weight_hh.shape[0]), acts.dtype),
        Spec(h0.shape, acts.dtype),
    ),
    vjp=NOT_DIFFERENTIABLE,  # higher derivatives use `through_composition` instead
    batch=batch_walk(
        lambda: gru_sequence_backward, (True, False, False, True, True, True), (False, False, True, False, False, False)
    ),
    cost=lambda g, h0, w, hidden, acts, mask, reverse: 2 * acts.shape[0] * acts.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_gru_backward_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 2), *_gru_saved(m, None, False)),
        Sample(m.normal(3, 2, 2), *_gru_saved(m, _mask(m), True)),
    ],
)  # fmt: skip
def gru_sequence_backward(
    g_hidden: Tensor, h0: Tensor, weight_hh: Tensor, hidden: Tensor, acts: Tensor, mask: Tensor | None, reverse: bool
) -> Any:
    """The gradients of `gru_sequence` in gates, in the recurrent units before the gates, and in h0."""
    gh, first, w, h_all, a_all = work(g_hidden, h0, weight_hh, hidden, acts)
    steps, n, size = h_all.shape
    inner, units = (memory.empty((steps, n, 3 * size), a_all.dtype) for _ in range(2))
    dh = np.zeros((n, size), a_all.dtype)
    product = product_of(flat_rows(inner), w)
    for t in times(steps, not reverse):
        dh = dh + gh[t]
        r, z, c, u = (a_all[t][:, k * size : (k + 1) * size] for k in range(4))
        d = inner[t]
        d_c = dh * (1.0 - z)
        d_c *= 1.0 - c * c
        d[:, 2 * size :] = d_c
        np.multiply(d_c, u, out=d[:, :size])
        np.multiply(dh, before(h_all, first, t, reverse) - c, out=d[:, size : 2 * size])
        both = a_all[t][:, : 2 * size]
        d[:, : 2 * size] *= both * (1.0 - both)
        keep = None if mask is None else mask[t]
        if keep is not None:
            np.copyto(d, 0, where=~keep)
        units[t] = d
        units[t][:, 2 * size :] *= r
        carried = dh * z if keep is None else np.where(keep, dh * z, dh)
        dh = product(units[t], w)
        dh += carried
    return cast(acts.dtype, inner, units, np.asarray(dh))


# The plain recurrent layer -------------------------------------------------------------------------------------------


def _infer_rnn(gates: Any, h0: Any, weight_hh: Any, mask: Any, nonlinearity: str, reverse: bool) -> Spec:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"rnn: nonlinearity must be 'tanh' or 'relu'. Got {nonlinearity!r}.")
    return Spec(check_sequence("rnn", 1, gates, weight_hh, {"h0": h0}, mask), gates.dtype)


def _rnn_rule(
    g: Any,
    gates: Tensor,
    h0: Tensor,
    weight_hh: Tensor,
    mask: Any,
    out: Tensor,
    nonlinearity: str,
    reverse: bool,
    needs: Any,
) -> list[Any]:
    if is_grad_enabled():

        def run(a: Tensor, h: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            return walk(lambda step, s: (rnn_step(step, s, w, nonlinearity),), a, (h,), mask, reverse)

        return [*through_composition(run, (gates, h0, weight_hh), (g,)), None]
    g_gates, g_h0 = rnn_sequence_backward(g, weight_hh, out, mask, nonlinearity, reverse)
    g_weight = None
    if needs[2]:
        g_weight = matmul(matrix_transpose(flat(g_gates)), all_before(out, h0, reverse))
    return [g_gates, g_h0, g_weight, None]


def _rnn_reference(gates: Any, h0: Any, weight_hh: Any, mask: Any, nonlinearity: str, reverse: bool) -> Any:
    h, outs = h0, {}
    for t in sorted(range(len(gates)), reverse=reverse):
        a = gates[t] + h @ weight_hh.T
        new = np.tanh(a) if nonlinearity == "tanh" else np.maximum(a, 0)
        h = new if mask is None else np.where(mask[t], new, h)
        outs[t] = h
    return np.stack([outs[t] for t in range(len(gates))])


@primitive(
    autocast="low",
    checks_once=True,
    infer=_infer_rnn,
    vjp=joint(_rnn_rule),
    batch=batch_walk(lambda: rnn_sequence, (True, False, False, True), (False, False, True, False)),
    cost=lambda gates, h0, w, mask, kind, reverse: 2 * gates.shape[0] * gates.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_rnn_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 3), m.normal(2, 3), m.normal(3, 3), None, "tanh", False),
        Sample(m.normal(3, 2, 3), m.normal(2, 3), m.normal(3, 3), None, "relu", True),
        Sample(m.normal(3, 2, 2), m.normal(2, 2), m.normal(2, 2), _mask(m), "tanh", True),
        Sample(m.normal(3, 2, 2), m.normal(2, 2), m.normal(2, 2), _mask(m), "relu", False),
    ],
    errors=lambda m: [
        Bad(
            ValueError,
            "rnn: nonlinearity must be",
            m.normal(3, 2, 3),
            m.normal(2, 3),
            m.normal(3, 3),
            None,
            "gelu",
            False,
        ),
        Bad(ValueError, "rnn: expected gates", m.normal(3, 2, 4), m.normal(2, 3), m.normal(3, 3), None, "tanh", False),
    ],
)
def rnn_sequence(
    gates: Tensor, h0: Tensor, weight_hh: Tensor, mask: Tensor | None, nonlinearity: str, reverse: bool
) -> Any:
    """One plain recurrent layer over time: the hidden states, (T, N, H).

    Args:
        gates: (T, N, H): the projected inputs with all biases.
        h0: (N, H).
        weight_hh: (H, H).
        mask: (T, N, 1) or None, see Note [Masks].
        nonlinearity: "tanh" or "relu".
        reverse: whether time runs backwards.
    """
    a_all, h, w = work(gates, h0, weight_hh)
    w = w.T
    product = product_of(h, w)
    hidden = memory.empty(a_all.shape, a_all.dtype)
    for t in times(len(a_all), reverse):
        new = hidden[t]
        np.add(a_all[t], product(h, w), out=new)
        if nonlinearity == "tanh":
            np.tanh(new, out=new)
        else:
            np.maximum(new, 0, out=new)
        if mask is not None:
            np.copyto(new, h, where=~mask[t])
        h = new
    return cast(gates.dtype, hidden)[0]


def _rnn_backward_reference(
    g_hidden: Any, weight_hh: Any, hidden: Any, mask: Any, nonlinearity: str, reverse: bool
) -> Any:
    steps, n, size = hidden.shape
    dh, out = np.zeros((n, size)), np.zeros(hidden.shape)
    for t in sorted(range(steps), reverse=not reverse):
        dh = dh + g_hidden[t]
        keep = np.ones((n, 1)) if mask is None else mask[t].astype(float)
        slope = 1 - hidden[t] ** 2 if nonlinearity == "tanh" else (hidden[t] > 0) * 1.0
        out[t] = dh * slope * keep
        dh = out[t] @ weight_hh + dh * (1 - keep)
    return out, dh


@primitive(
    autocast="low",
    checks_once=True,
    outputs=2,
    infer=lambda g_hidden, weight_hh, hidden, mask, nonlinearity, reverse: (
        Spec(hidden.shape, hidden.dtype), Spec(hidden.shape[1:], hidden.dtype)
    ),
    vjp=NOT_DIFFERENTIABLE,  # higher derivatives use `through_composition` instead
    batch=batch_walk(lambda: rnn_sequence_backward, (True, False, True, True), (False, True, False, False)),
    cost=lambda g, w, hidden, mask, kind, reverse: 2 * hidden.shape[0] * hidden.shape[1] * w.shape[0] * w.shape[1],
    namespace="internal",
    reference=_rnn_backward_reference,
    samples=lambda m: [
        Sample(m.normal(3, 2, 2), m.normal(2, 2), m.uniform(3, 2, 2), None, "tanh", False),
        Sample(m.normal(3, 2, 2), m.normal(2, 2), m.uniform(3, 2, 2), _mask(m), "relu", True),
    ],
)  # fmt: skip
def rnn_sequence_backward(
    g_hidden: Tensor, weight_hh: Tensor, hidden: Tensor, mask: Tensor | None, nonlinearity: str, reverse: bool
) -> Any:
    """The gradients of `rnn_sequence` in gates and h0."""
    gh, w, h_all = work(g_hidden, weight_hh, hidden)
    out = memory.empty(h_all.shape, h_all.dtype)
    dh = np.zeros(h_all.shape[1:], h_all.dtype)
    product = product_of(dh, w)
    for t in times(len(h_all), not reverse):
        dh = dh + gh[t]
        slope = 1.0 - h_all[t] * h_all[t] if nonlinearity == "tanh" else h_all[t] > 0
        np.multiply(dh, slope, out=out[t])
        if mask is None:
            dh = product(out[t], w)
        else:
            keep = mask[t]
            np.copyto(out[t], 0, where=~keep)
            dh = product(out[t], w) + np.where(keep, 0, dh)
    return cast(hidden.dtype, out, np.asarray(dh))
