"""Public recurrent functions: multi-layer, bidirectional, variable-length RNN, GRU and LSTM, and their cells.

Weights are PyTorch's: weight_ih (gates·H, inputs), weight_hh (gates·H, H), bias_ih and bias_hh (gates·H), gates of an
LSTM in the order i, f, g, o and of a GRU r, z, n; all layers in one flat sequence, layer after layer, in each layer
forward then backward in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import format_shape
from ....tensor import Tensor
from ...array.check_values import require
from ...array.creation import arange, asarray, zeros
from ...array.elementwise import astype, where
from ...array.indexing import getitem
from ...array.products import matmul
from ...array.reduction import reduce_sum
from ...array.shaping import concat, expand_dims, flatten, matrix_transpose, reshape, squeeze, stack
from ...core.define import composite
from ...core.samples import Bad, Sample
from ...core.spec import check_size, is_known, same_size
from ..linear import add_bias
from .primitives import _gru_reference, _lstm_reference, _rnn_reference, gru_sequence, lstm_sequence, rnn_sequence
from .recurrence import gru_step, lstm_step, rnn_step, split_gates

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b for all time steps in one product."""
    y = add_bias(matmul(flatten(x, 0, -2), matrix_transpose(weight)), bias)
    return (
        reshape(y, (*x.shape[:-1], weight.shape[0]))
        if is_known(x.shape)
        else reshape(y, (x.shape[0], -1, weight.shape[0]))
    )


def _length_mask(op: str, lengths: Any, x: Tensor) -> Tensor | None:
    """(T, N, 1): which steps are real."""
    if lengths is None:
        return None
    steps, batch = x.shape[:2]
    if not isinstance(lengths, Tensor):
        lengths = Tensor(np.asarray(lengths))
    if not dtypes.is_integral(lengths.dtype) or lengths.ndim != 1 or not same_size(lengths.shape[0], batch):
        raise ValueError(
            f"{op}: lengths must be one integer per sequence. Got {lengths.dtype.name} "
            f"{format_shape(lengths.shape)}; expected ({batch},)."
        )
    lengths = require(
        lengths,
        lambda n: (n >= 0) & (n <= steps),
        f"{op}: lengths must be 0 to {steps}, the number of time steps.",
        lambda n: n[(n < 0) | (n > steps)][0],
    )
    times = reshape(arange(steps, dtype=dtypes.int64), (steps, 1, 1))
    return times < reshape(lengths, (1, -1, 1))


def _layers(
    op: str,
    x: Tensor,
    states: Sequence[Tensor] | None,
    weights: Any,
    num_layers: int,
    bias: bool,
    bidirectional: bool,
    projected: bool = False,
) -> tuple[list[list[Any]], int]:
    """The checked weights, per layer and direction five of them (the last is the projection), and the size of the cells."""
    if not isinstance(x, Tensor) or x.ndim != 3:
        raise ValueError(
            f"{op}: expected x of shape (time, batch, inputs) or (time, inputs). Got {format_shape(getattr(x, 'shape', ()))}."
        )
    weights, num_layers = tuple(weights), check_size(op, num_layers, "num_layers", 1)
    count, per = num_layers * (2 if bidirectional else 1), (4 if bias else 2) + projected
    if len(weights) != count * per:
        raise ValueError(
            f"{op}: expected {count * per} weights, {per} per layer and direction. Got {len(weights)}; is bias={bias}, "
            f"num_layers={num_layers}, bidirectional={bidirectional} right?"
        )
    groups = []
    for i in range(count):
        w_ih, w_hh, *more = weights[i * per : (i + 1) * per]
        w_hr = more.pop() if projected else None
        groups.append([w_ih, w_hh, *(more or (None, None)), w_hr])
    shown = groups[0][1].shape[-1]  # the features of the output; those of the cells, unless they are projected
    hidden = groups[0][4].shape[-1] if projected else shown
    width = x.shape[2]
    for i, (w_ih, w_hh, b_ih, b_hh, w_hr) in enumerate(groups):
        expected = GATES[op] * hidden
        if i >= (2 if bidirectional else 1):
            width = shown * (2 if bidirectional else 1)
        if w_ih.ndim != 2 or w_ih.shape[0] != expected or not same_size(w_ih.shape[1], width):
            raise ValueError(
                f"{op}: weight_ih {i} does not fit. Got {format_shape(w_ih.shape)}; expected ({expected}, {width})."
            )
        if tuple(w_hh.shape) != (expected, shown):
            raise ValueError(
                f"{op}: weight_hh {i} does not fit. Got {format_shape(w_hh.shape)}; expected ({expected}, {shown})."
            )
        if w_hr is not None and tuple(w_hr.shape) != (shown, hidden):
            raise ValueError(
                f"{op}: weight_hr {i} does not fit. Got {format_shape(w_hr.shape)}; expected ({shown}, {hidden})."
            )
        for b in (b_ih, b_hh):
            if b is not None and tuple(b.shape) != (expected,):
                raise ValueError(f"{op}: bias {i} does not fit. Got {format_shape(b.shape)}; expected ({expected},).")
    for state, size in zip(states or (), (shown, hidden), strict=False):
        fits = (
            state.ndim == 3
            and state.shape[0] == count
            and same_size(state.shape[1], x.shape[1])
            and state.shape[2] == size
        )
        if not fits:
            raise ValueError(
                f"{op}: the initial state does not fit. Got {format_shape(state.shape)}; expected "
                f"({count}, {x.shape[1]}, {size})."
            )
    return groups, hidden


def _start(states: Any, which: int, layer: int, gates: Tensor, hidden: int) -> Tensor:
    if states is not None:
        return getitem(states[which], (layer,))
    if is_known(gates.shape):
        return zeros(gates.shape[1], hidden, dtype=gates.dtype)
    return split_gates(getitem(gates, (0,)), gates.shape[2] // hidden)[0] * 0.0


def _projected(
    gates: Tensor, states: Any, i: int, w_hh: Tensor, w_hr: Tensor, mask: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM whose state is a projection, h = P u: outputs, last cells and last state.

    The cells compute U h = (U P) u, so the recurrence over u is that of a plain LSTM, and all outputs are projected in
    one product. The initial h0 need not be a projection: its contribution is added to the first real step.
    """
    start = zeros(gates.shape[1], w_hr.shape[1], dtype=gates.dtype)
    c0 = start if states is None else getitem(states[1], (i,))
    h0 = None if states is None else getitem(states[0], (i,))
    if h0 is not None:
        steps = gates.shape[0]
        times = reshape(arange(steps, dtype=dtypes.int64), (steps, 1, 1))
        first = times == 0
        if reverse:
            count = steps if mask is None else reduce_sum(astype(mask, dtypes.int64), 0, False)
            first = times == count - 1
        gates = gates + where(first, matmul(h0, matrix_transpose(w_hh)), 0.0)
    u, c, _ = lstm_sequence(gates, start, c0, matmul(w_hh, w_hr), mask, reverse)
    h = _project(u, w_hr, None)
    place = (0 if reverse else -1,)
    end = getitem(h, place)
    if h0 is not None and mask is not None:  # a sequence of length 0 keeps its initial state
        end = where(getitem(mask, (0,)), end, h0)
    return h, getitem(c, place), end


def _check_pair(op: str, hx: Any, names: str) -> tuple[Tensor, Tensor]:
    if not isinstance(hx, (tuple, list)):
        raise TypeError(f"{op}: hx must be a pair of tensors {names}. Got {type(hx).__name__}.")
    if len(hx) != 2:
        raise ValueError(f"{op}: hx must be {names}. Got {len(hx)} states.")
    for s in hx:
        if not isinstance(s, (Tensor, np.ndarray)):
            raise TypeError(f"{op}: hx must be a pair of tensors {names}. It has a {type(s).__name__}.")
    return hx[0], hx[1]


def _network(
    op: str, x: Tensor, states: Sequence[Tensor] | None, weights: Any, num_layers: int, bias: bool, dropout: float,
    training: bool, bidirectional: bool, lengths: Any, nonlinearity: str = "tanh", projected: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """All layers: the outputs of the last one, and the last states of all."""
    for s in states or ():
        if not isinstance(s, (Tensor, np.ndarray)):
            raise TypeError(f"{op}: the initial state must be a tensor. Got {type(s).__name__}.")
    states = None if states is None else tuple([s if isinstance(s, Tensor) else asarray(s) for s in states])
    single = isinstance(x, Tensor) and x.ndim == 2
    if single:
        x = expand_dims(x, 1)
        states = None if states is None else tuple([expand_dims(s, 1) for s in states])
    groups, hidden = _layers(op, x, states, weights, num_layers, bias, bidirectional, projected)
    if x.shape[0] == 0:
        raise ValueError(f"{op}: expected at least one time step. Got x of shape {format_shape(x.shape)}.")
    mask = _length_mask(op, lengths, x)
    directions = 2 if bidirectional else 1
    last: list[list[Tensor]] = [[], []]
    for layer in range(num_layers):
        found = []
        for direction in range(directions):
            i = layer * directions + direction
            w_ih, w_hh, b_ih, b_hh, w_hr = groups[i]
            reverse = direction == 1
            if op != "gru" and b_ih is not None:  # one addition instead of one per step
                b_ih, b_hh = b_ih + b_hh, None
            gates = _project(x, w_ih, b_ih)
            if w_hr is not None:
                h, c, end = _projected(gates, states, i, w_hh, w_hr, mask, reverse)
                last[1].append(c)
                last[0].append(end)
                found.append(h if mask is None else where(mask, h, 0.0))
                continue
            h0 = _start(states, 0, i, gates, hidden)
            if op == "lstm":
                h, c, _ = lstm_sequence(gates, h0, _start(states, 1, i, gates, hidden), w_hh, mask, reverse)
                last[1].append(getitem(c, (0 if reverse else -1,)))
            elif op == "gru":
                h, _ = gru_sequence(gates, h0, w_hh, b_hh, mask, reverse)
            else:
                h = rnn_sequence(gates, h0, w_hh, mask, nonlinearity, reverse)
            last[0].append(getitem(h, (0 if reverse else -1,)))
            found.append(h if mask is None else where(mask, h, 0.0))
        x = found[0] if directions == 1 else concat(found, axis=2)
        if dropout > 0 and training and layer < num_layers - 1:
            from ..dropout import dropout as drop

            x = drop(x, dropout, True)
    results = [x, stack(last[0])] + ([stack(last[1])] if op == "lstm" else [])
    return tuple([squeeze(r, 1) for r in results] if single else results)


# References for the tests: one layer after the other, one step after the other ---------------------------------------


def _reference(op: str) -> Any:
    def reference(
        x: Any, hx: Any, weights: Any, *, num_layers: int = 1, bias: bool = True, dropout: float = 0.0,
        training: bool = False, bidirectional: bool = False, lengths: Any = None, nonlinearity: str = "tanh",
    ) -> Any:  # fmt: skip
        single = x.ndim == 2
        x = x[:, None] if single else x
        directions, per = 1 + bidirectional, 4 if bias else 2
        hidden = weights[1].shape[1]
        states = [np.zeros((num_layers * directions, x.shape[1], hidden))] * 2
        if hx is not None:
            states = [s[:, None] if single else s for s in (hx if op == "lstm" else (hx,))]
        mask = None if lengths is None else (np.arange(len(x))[:, None, None] < np.asarray(lengths)[None, :, None])
        last: Any = [[], []]
        for layer in range(num_layers):
            outs = []
            for d in range(directions):
                i = layer * directions + d
                w = weights[i * per : (i + 1) * per]
                b_ih, b_hh = w[2:] if bias else (np.zeros(len(w[0])),) * 2
                gates = x @ w[0].T + b_ih
                end = 0 if d else -1
                if op == "lstm":
                    h, c, _ = _lstm_reference(gates + b_hh, states[0][i], states[1][i], w[1], mask, d == 1)
                    last[1].append(c[end])
                elif op == "gru":
                    h, _ = _gru_reference(gates, states[0][i], w[1], b_hh, mask, d == 1)
                else:
                    h = _rnn_reference(gates + b_hh, states[0][i], w[1], mask, nonlinearity, d == 1)
                last[0].append(h[end])
                outs.append(h if mask is None else np.where(mask, h, 0))
            x = np.concatenate(outs, -1)
        results = [x, np.stack(last[0])] + ([np.stack(last[1])] if op == "lstm" else [])
        return tuple(r[:, 0] if single else r for r in results)

    return reference


def _weights(
    m: Any, op: str, inputs: int, hidden: int, layers: int = 1, directions: int = 1, bias: bool = True
) -> tuple[Any, ...]:
    found: list[Any] = []
    for layer in range(layers):
        for _ in range(directions):
            n = GATES[op] * hidden
            found += [m.normal(n, hidden * directions if layer else inputs), m.normal(n, hidden)]
            found += [m.normal(n), m.normal(n)] if bias else []
    return tuple(found)


def _states(m: Any, op: str, *shape: int) -> Any:
    return (m.normal(*shape), m.normal(*shape)) if op == "lstm" else m.normal(*shape)


def _samples(op: str) -> Any:
    return lambda m: [
        Sample(m.normal(4, 2, 3), _states(m, op, 1, 2, 2), _weights(m, op, 3, 2)),
        Sample(m.normal(3, 3), None, _weights(m, op, 3, 2, bias=False), bias=False),
        Sample(
            m.normal(2, 1, 2),
            _states(m, op, 4, 1, 2),
            _weights(m, op, 2, 2, 2, 2, False),
            num_layers=2,
            bias=False,
            bidirectional=True,
        ),
        Sample(m.normal(3, 3, 2), None, _weights(m, op, 2, 2, 1, 2), bidirectional=True, lengths=(3, 0, 2)),
    ]


def _bad(op: str) -> Any:
    n = GATES[op] * 2

    def errors(m: Any) -> list[Bad]:
        x, w = m.normal(4, 2, 3), _weights(m, op, 3, 2)
        return [
            Bad(ValueError, f"{op}: expected x of shape", m.normal(4), None, w),
            Bad(ValueError, f"{op}: expected 8 weights", x, None, w, num_layers=2),
            Bad(
                ValueError,
                rf"{op}: weight_ih 0 does not fit. Got \({n}, 3\); expected \({n}, 5\)",
                m.normal(4, 2, 5),
                None,
                w,
            ),
            Bad(ValueError, f"{op}: weight_hh 0 does not fit", x, None, (w[0], m.normal(n + 2, 2), w[2], w[3])),
            Bad(ValueError, f"{op}: bias 0 does not fit", x, None, (w[0], w[1], w[2], m.normal(3))),
            Bad(ValueError, f"{op}: the initial state does not fit", x, _states(m, op, 1, 3, 2), w),
            Bad(ValueError, f"{op}: lengths must be one integer per sequence", x, None, w, lengths=(4, 4, 4)),
            Bad(ValueError, f"{op}: lengths must be 0 to 4", x, None, w, lengths=(4, 5)),
            Bad(ValueError, f"{op}: expected at least one time step", m.normal(0, 2, 3), None, w),
        ]

    return errors


# Public functions ----------------------------------------------------------------------------------------------------


@composite(namespace="nn", reference=_reference("lstm"), samples=_samples("lstm"), errors=_bad("lstm"))
def lstm(
    x: Tensor, hx: Any, weights: Any, *, num_layers: int = 1, bias: bool = True, dropout: float = 0.0,
    training: bool = False, bidirectional: bool = False, lengths: Any = None, proj_size: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """A long short-term memory network over whole sequences.

    Args:
        x: (T, N, inputs), or (T, inputs) for one sequence.
        hx: (h0, c0), each (layers·directions, N, H), or None for zeros.
        weights: weight_ih, weight_hh, bias_ih, bias_hh of every layer and direction, one after the other.
        num_layers: how many layers are stacked.
        bias: whether `weights` holds biases.
        dropout: share of the outputs between layers that is dropped while `training`.
        bidirectional: whether each layer also reads backwards in time; outputs are joined.
        lengths: (N,) lengths of the sequences, or None if all are T; outputs beyond a length are zero, and the last
            state is that of the last real step.
        proj_size: above 0, `weights` holds after the others of each layer and direction weight_hr (proj_size, H), which
            projects outputs and h; h0 and h_n then have proj_size features.

    Returns:
        outputs (T, N, H·directions), h_n and c_n (layers·directions, N, H).
    """
    if hx is not None:
        _check_pair("lstm", hx, "(h0, c0)")
    return _network(
        "lstm", x, hx, weights, num_layers, bias, dropout, training, bidirectional, lengths, projected=proj_size > 0
    )  # type: ignore[return-value]


@composite(namespace="nn", reference=_reference("gru"), samples=_samples("gru"), errors=_bad("gru"))
def gru(
    x: Tensor, hx: Any, weights: Any, *, num_layers: int = 1, bias: bool = True, dropout: float = 0.0,
    training: bool = False, bidirectional: bool = False, lengths: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A network of gated recurrent units over whole sequences. Arguments as for `lstm`; `hx` is h0 or None.

    Returns:
        outputs (T, N, H·directions) and h_n (layers·directions, N, H).
    """
    states = None if hx is None else (hx,)
    return _network("gru", x, states, weights, num_layers, bias, dropout, training, bidirectional, lengths)  # type: ignore[return-value]


@composite(
    namespace="nn",
    reference=_reference("rnn"),
    samples=lambda m: [
        *_samples("rnn")(m),
        Sample(m.normal(4, 2, 3), None, _weights(m, "rnn", 3, 2), nonlinearity="relu"),
    ],
    errors=_bad("rnn"),
)
def rnn(
    x: Tensor, hx: Any, weights: Any, *, num_layers: int = 1, bias: bool = True, dropout: float = 0.0,
    training: bool = False, bidirectional: bool = False, lengths: Any = None, nonlinearity: str = "tanh",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A plain recurrent network over whole sequences, h' = tanh(W x + U h + b) (or relu). Arguments as for `lstm`.

    Returns:
        outputs (T, N, H·directions) and h_n (layers·directions, N, H).
    """
    states = None if hx is None else (hx,)
    return _network(
        "rnn", x, states, weights, num_layers, bias, dropout, training, bidirectional, lengths, nonlinearity
    )  # type: ignore[return-value]


# One step ------------------------------------------------------------------------------------------------------------


def _cell_gates(op: str, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Tensor:
    gates = GATES[op.split("_")[0]]
    if x.ndim not in (1, 2) or h.ndim != x.ndim:
        raise ValueError(
            f"{op}: expected x (N, inputs) and a state (N, H). Got {format_shape(x.shape)} and {format_shape(h.shape)}."
        )
    hidden = h.shape[-1]
    if tuple(w_ih.shape) != (gates * hidden, x.shape[-1]) or tuple(w_hh.shape) != (gates * hidden, hidden):
        raise ValueError(
            f"{op}: the weights do not fit x of shape {format_shape(x.shape)} and a state of shape {format_shape(h.shape)}. Got "
            f"weight_ih {format_shape(w_ih.shape)} and weight_hh {format_shape(w_hh.shape)}; expected "
            f"({gates * hidden}, {x.shape[-1]}) "
            f"and ({gates * hidden}, {hidden})."
        )
    a = matmul(x, matrix_transpose(w_ih))
    return add_bias(add_bias(a, b_ih), b_hh)


def _cell_reference(op: str) -> Any:
    def reference(
        x: Any,
        hx: Any,
        weight_ih: Any,
        weight_hh: Any,
        bias_ih: Any = None,
        bias_hh: Any = None,
        nonlinearity: str = "tanh",
    ) -> Any:
        n = len(weight_ih)
        weights = (weight_ih, weight_hh, *(np.zeros(n) if b is None else b for b in (bias_ih, bias_hh)))
        states = tuple(s[None] for s in hx) if op == "lstm" else hx[None]
        extra = {"nonlinearity": nonlinearity} if op == "rnn" else {}
        results = _reference(op)(x[None], states, weights, **extra)[1:]
        return tuple(r[0] for r in results) if op == "lstm" else results[0][0]

    return reference


def _cell_samples(op: str) -> Any:
    return lambda m: [
        Sample(m.normal(3, 2), _states(m, op, 3, 2), *_weights(m, op, 2, 2)),
        Sample(m.normal(3, 2), _states(m, op, 3, 2), *_weights(m, op, 2, 2, bias=False)),
    ]


def _cell_bad(op: str) -> Any:
    return lambda m: [
        Bad(
            ValueError,
            f"{op}_cell: the weights do not fit",
            m.normal(3, 2),
            _states(m, op, 3, 4),
            *_weights(m, op, 2, 2),
        ),
        Bad(ValueError, f"{op}_cell: expected x", m.normal(3, 2), _states(m, op, 2), *_weights(m, op, 2, 2)),
    ]


@composite(namespace="nn", reference=_cell_reference("lstm"), samples=_cell_samples("lstm"), errors=_cell_bad("lstm"))
def lstm_cell(
    x: Tensor,
    hx: Any,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: from x (N, inputs) and (h, c), each (N, H), to the next (h, c).

    >>> h, c = F.lstm_cell(wf.ones(2, 3), (wf.zeros(2, 4), wf.zeros(2, 4)), wf.ones(16, 3), wf.ones(16, 4))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """
    h, c = _check_pair("lstm_cell", hx, "(h, c)")
    return lstm_step(_cell_gates("lstm_cell", x, h, weight_ih, weight_hh, bias_ih, bias_hh), h, c, weight_hh)[:2]


@composite(namespace="nn", reference=_cell_reference("gru"), samples=_cell_samples("gru"), errors=_cell_bad("gru"))
def gru_cell(
    x: Tensor,
    hx: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """One step of a GRU: from x (N, inputs) and h (N, H) to the next h."""
    return gru_step(_cell_gates("gru_cell", x, hx, weight_ih, weight_hh, bias_ih, None), hx, weight_hh, bias_hh)[0]


@composite(
    namespace="nn",
    reference=_cell_reference("rnn"),
    samples=lambda m: [
        *_cell_samples("rnn")(m),
        Sample(m.normal(3, 2), m.normal(3, 2), *_weights(m, "rnn", 2, 2), nonlinearity="relu"),
    ],
    errors=_cell_bad("rnn"),
)
def rnn_cell(
    x: Tensor, hx: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None, nonlinearity: str = "tanh",
) -> Tensor:  # fmt: skip
    """One step of a plain recurrent network: from x (N, inputs) and h (N, H) to the next h."""
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"rnn_cell: nonlinearity must be 'tanh' or 'relu'. Got {nonlinearity!r}.")
    return rnn_step(_cell_gates("rnn_cell", x, hx, weight_ih, weight_hh, bias_ih, bias_hh), hx, weight_hh, nonlinearity)
