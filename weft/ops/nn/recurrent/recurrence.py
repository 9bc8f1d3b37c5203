"""Helpers of the recurrent ops: recurrences composed of ordinary ops, their gradients, and iteration over time.

Note [Masks]. Sequences of different lengths are padded to one; `mask`, (T, N, 1), marks the real steps. Padding
steps keep the state unchanged, so the last state is that of the last real step, in either direction of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import dtypes
from ....autograd.tape import enable_grad, is_grad_enabled
from ....errors import format_shape
from ....tensor import Tensor, as_leaf
from ...array.elementwise import sigmoid, tanh, where
from ...array.indexing import slice_axis
from ...array.products import matmul
from ...array.shaping import broadcast_to, clone, concat, flatten, matrix_transpose, moveaxis, reshape, stack, unstack
from ...core.spec import same_size
from ..linear import add_bias
from ..window_arrays import compute_dtype

# The recurrences, one step, with ordinary ops ------------------------------------------------------------------------


def split_gates(a: Tensor, count: int) -> list[Tensor]:
    """The `count` equal parts of the last axis."""
    size = a.shape[-1] // count
    return [slice_axis(a, -1, i * size, (i + 1) * size) for i in range(count)]


def lstm_step(a: Tensor, h: Tensor, c: Tensor, weight_hh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """i, f, o = σ, g = tanh of a + h Wᵀ; c' = f c + i g; h' = o tanh(c'). Returns h', c' and the gates."""
    i, f, g, o = split_gates(a + matmul(h, matrix_transpose(weight_hh)), 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    return o * tanh(c), c, concat([i, f, g, o], axis=-1)


def gru_step(a: Tensor, h: Tensor, weight_hh: Tensor, bias_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    """u = h Wᵀ + b; r, z = σ(a + u); n = tanh(a + r u); h' = (1 - z) n + z h. Returns h' and the gates."""
    u = add_bias(matmul(h, matrix_transpose(weight_hh)), bias_hh)
    (ar, az, an), (ur, uz, un) = split_gates(a, 3), split_gates(u, 3)
    r, z = sigmoid(ar + ur), sigmoid(az + uz)
    n = tanh(an + r * un)
    return n + z * (h - n), concat([r, z, n, un], axis=-1)


def rnn_step(a: Tensor, h: Tensor, weight_hh: Tensor, nonlinearity: str) -> Tensor:
    """h' = tanh(a + h Wᵀ), or relu."""
    from ..activations import relu

    a = a + matmul(h, matrix_transpose(weight_hh))
    return tanh(a) if nonlinearity == "tanh" else relu(a)


def walk(
    step: Callable[..., tuple[Tensor, ...]], gates: Tensor, states: tuple[Tensor, ...], mask: Any, reverse: bool
) -> tuple[Tensor, ...]:
    """All results of a recurrence, each (T, N, …), from `step(gates of one time, *states)`, which returns the new states
    and what else it found."""
    length = gates.shape[0]
    if not isinstance(length, int):
        raise RuntimeError(
            f"recurrent layers: differentiating twice needs a known number of time steps. Got gates of "
            f"shape {format_shape(gates.shape)}."
        )
    count = len(states)
    steps = unstack(gates)
    masks = None if mask is None else unstack(mask)
    found: list[Any] = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        new = step(steps[t], *states)
        kept = new[:count] if masks is None else [where(masks[t], n, s) for n, s in zip(new, states, strict=False)]
        states = tuple(kept)
        found[t] = (*states, *new[count:])
    return tuple([stack([f[i] for f in found]) for i in range(len(found[0]))])


def through_composition(
    run: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Any]:
    """Gradients of `run(*inputs)`, the layer written with ordinary ops, that can be differentiated again.

    The clones are on the tape behind the inputs: the derivative stops at them (an input may depend on another one) and
    still leads back to what the inputs were computed from.
    """
    from ....autograd.functional import grad

    again = is_grad_enabled()
    with enable_grad():
        watched = [
            x if x is None or not dtypes.is_inexact(x.dtype) else clone(x) if again else as_leaf(x.detach())
            for x in inputs
        ]
        outputs = run(*watched)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        wanted = [i for i, x in enumerate(watched) if x is not None and x.requires_grad]
        results: list[Any] = [None] * len(inputs)
        if pairs and wanted:
            found = grad(
                [o for o, _ in pairs], [watched[i] for i in wanted], [g for _, g in pairs],
                create_graph=again, allow_unused=True,
            )  # fmt: skip
            for i, g in zip(wanted, found, strict=True):
                results[i] = g
    return results


# Shared helpers ------------------------------------------------------------------------------------------------------


def product_of(a: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The best kernel there is for products of such arrays, chosen once instead of in every step."""
    for kernel in matmul.op.kernels:  # type: ignore[attr-defined]
        if kernel.device == "cpu" and (kernel.when is None or kernel.when(a, b)):
            return kernel.fn
    return np.matmul


def flat_rows(steps: np.ndarray) -> np.ndarray:
    """The rows of one step, or none if there is no step."""
    return steps[0] if len(steps) else steps.reshape(0, steps.shape[-1])


def sigmoid_inplace(a: np.ndarray) -> None:
    """σ(a) = (tanh(a/2) + 1) / 2, in place; exact at both ends."""
    a *= 0.5
    np.tanh(a, out=a)
    a += 1.0
    a *= 0.5


def times(length: int, reverse: bool) -> range:
    return range(length - 1, -1, -1) if reverse else range(length)


def before(states: np.ndarray, start: np.ndarray, t: int, reverse: bool) -> np.ndarray:
    """The state that step `t` started from."""
    last = len(states) - 1
    if reverse:
        return start if t == last else states[t + 1]
    return start if t == 0 else states[t - 1]


def all_before(states: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """The states that all steps started from, (T·N, H)."""
    first = reshape(start, (1, *start.shape))
    if reverse:
        joined = concat([slice_axis(states, 0, 1, None), first], axis=0)
    else:
        joined = concat([first, slice_axis(states, 0, None, -1)], axis=0)
    return flatten(joined, 0, -2)


def flat(x: Tensor) -> Tensor:
    return flatten(x, 0, -2)


def check_sequence(
    op: str, count: int, gates: Any, weight_hh: Any, states: dict[str, Any], mask: Any
) -> tuple[Any, ...]:
    """The shape of the hidden states, (T, N, H)."""
    if not dtypes.is_floating(gates.dtype):
        raise TypeError(f"{op}: expected real floating tensors. Got {gates.dtype.name}; use `x.astype(wf.float32)`.")
    if len(gates.shape) != 3 or len(weight_hh.shape) != 2:
        raise ValueError(
            f"{op}: expected gates (T, N, {count}·H) and weight_hh ({count}·H, H). Got "
            f"{format_shape(gates.shape)} and {format_shape(weight_hh.shape)}."
        )
    steps, batch, width = gates.shape
    hidden = weight_hh.shape[1]
    if isinstance(hidden, int) and not (
        same_size(weight_hh.shape[0], count * hidden) and same_size(width, count * hidden)
    ):
        raise ValueError(
            f"{op}: expected gates (T, N, {count}·H) and weight_hh ({count}·H, H). Got "
            f"{format_shape(gates.shape)} and {format_shape(weight_hh.shape)}."
        )
    for name, state in states.items():
        if len(state.shape) != 2 or not same_size(state.shape[0], batch) or not same_size(state.shape[1], hidden):
            raise ValueError(
                f"{op}: {name} must be (N, H). Got {format_shape(state.shape)}; expected {format_shape((batch, hidden))}."
            )
    if mask is not None and (mask.dtype != dtypes.bool_ or len(mask.shape) != 3):
        raise ValueError(f"{op}: mask must be bool (T, N, 1). Got {mask.dtype.name} {format_shape(mask.shape)}.")
    return steps, batch, hidden


def batch_walk(op: Any, stepwise: tuple[bool, ...], shared: tuple[bool, ...]) -> Any:
    """A batching rule: with one set of weights the new axis joins N; with many, each is walked on its own.

    `stepwise[i]`: tensor i is (T, N, …), else (N, …); `shared[i]`: it is a weight.
    """

    def rule(axes: Any, tensors: Any, attrs: Any) -> Any:
        function = op()
        size = next(t.shape[0] for t, a in zip(tensors, axes, strict=True) if a is not None)
        if any(a is not None and s for a, s in zip(axes, shared, strict=True)):
            each = [
                function(
                    *function.op.merge(
                        [t if a is None or t is None else t[i] for t, a in zip(tensors, axes, strict=True)], attrs
                    )
                )
                for i in range(size)
            ]
            if isinstance(each[0], Tensor):
                return stack(each)
            return tuple([stack([e[k] for e in each]) for k in range(len(each[0]))])
        folded, count = [], 0
        for t, a, with_time, weight in zip(tensors, axes, stepwise, shared, strict=True):
            if t is not None and not weight:
                t = t if a is not None else broadcast_to(t, (size, *t.shape))
                if with_time:
                    t = moveaxis(t, 0, 1)
                count = t.shape[1 + with_time]
                t = reshape(t, (*t.shape[:with_time], size * count, *t.shape[2 + with_time :]))
            folded.append(t)

        def unfold(r: Tensor) -> Tensor:
            if r.ndim == 3:
                return moveaxis(reshape(r, (r.shape[0], size, count, r.shape[2])), 1, 0)
            return reshape(r, (size, count, r.shape[1]))

        results = function(*function.op.merge(folded, attrs))
        return unfold(results) if isinstance(results, Tensor) else tuple([unfold(r) for r in results])

    return rule


def work(*arrays: Any) -> list[Any]:
    """Contiguous arrays in the dtype of the computation."""
    return [None if a is None else np.ascontiguousarray(a, compute_dtype(a.dtype)) for a in arrays]


def cast(dtype: np.dtype, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple([a.astype(dtype, copy=False) for a in arrays])
