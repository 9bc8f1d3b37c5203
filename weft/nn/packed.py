"""Variable-length sequences for recurrent layers, with PyTorch's packing functions.

A packed sequence is stored padded, with its lengths: recurrent layers stop each sequence at its own end, and nothing has
to be sorted. Unpacking keeps the padded length (PyTorch truncates to the longest sequence): shapes do not depend on
values, so captured and eager functions have the same shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import format_shape
from ..ops.array.check_values import require
from ..ops.array.shaping import stack
from ..ops.core.error_names import guard_functions
from ..tensor import Tensor, to_array, wrap


class PackedSequence(NamedTuple):
    """`data` (T, N, …), padded, and `lengths` (N,): sequence n has `lengths[n]` real steps."""

    data: Tensor
    lengths: Tensor


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = False
) -> PackedSequence:
    """Attach the lengths of padded sequences, for recurrent layers.

    Args:
        input: (T, N, …), or (N, T, …) if batch_first.
        lengths: N integers from 1 to T.
        batch_first: whether the first axis of `input` is the batch.
        enforce_sorted: raise unless the lengths are non-increasing; nothing else depends on their order.

    >>> packed = nn.utils.pack_padded_sequence(wf.ones(5, 2, 4), [5, 3])
    >>> y, h = nn.GRU(4, 8)(packed)
    >>> nn.utils.pad_packed_sequence(y)[0].shape
    (5, 2, 8)
    """
    if input.ndim < 2:
        raise ValueError(f"pack_padded_sequence: expected (T, N, …). Got shape {format_shape(input.shape)}.")
    data = input.transpose(0, 1) if batch_first else input
    counts = lengths if isinstance(lengths, Tensor) else wrap(to_array(lengths, dtype=np.int64))
    steps, n = data.shape[:2]
    if counts.shape != (n,) or counts.dtype.kind not in "iu":
        raise ValueError(
            f"pack_padded_sequence: lengths must be {n} integers, one per sequence. "
            f"Got {counts.dtype.name} {format_shape(counts.shape)}."
        )
    op = "pack_padded_sequence"
    counts = require(
        counts, lambda c: (c >= 1) & (c <= steps), f"{op}: lengths must be from 1 to {steps}.", lambda c: c.tolist()
    )
    if enforce_sorted and n > 1:
        counts = require(
            counts, lambda c: c[1:] <= c[:-1], f"{op}: lengths must fall with enforce_sorted.", lambda c: c.tolist()
        )
    return PackedSequence(data, counts)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the padded tensor and the lengths of packed sequences.

    Args:
        sequence: what `pack_padded_sequence` or a recurrent layer returned.
        batch_first: return (N, T, …) instead of (T, N, …).
        padding_value: value of the steps after a sequence's end.
        total_length: pad to this length.
    """
    from ..ops.array.creation import arange, full
    from ..ops.array.elementwise import where
    from ..ops.array.shaping import concat

    data, lengths = sequence
    steps = data.shape[0]
    live = arange(steps).reshape(-1, 1) < lengths.reshape(1, -1)
    live = live.reshape((*live.shape, *(1,) * (data.ndim - 2)))
    data = where(live, data, full((), padding_value, dtype=data.dtype))
    if total_length is not None:
        if total_length < steps:
            raise ValueError(f"pad_packed_sequence: total_length must be at least {steps}. Got {total_length}.")
        data = concat([data, full((total_length - steps, *data.shape[1:]), padding_value, dtype=data.dtype)], axis=0)
    return (data.transpose(0, 1) if batch_first else data), lengths


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0) -> Tensor:
    """Stack tensors (Tᵢ, …) into one padded tensor (T, N, …), or (N, T, …) if batch_first.

    >>> nn.utils.pad_sequence([wf.ones(2), wf.ones(3)], batch_first=True).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    from ..ops.array.padding import pad

    if not sequences:
        raise ValueError("pad_sequence: there are no sequences.")
    longest = max(s.shape[0] for s in sequences)
    padded = [pad(s, ((0, longest - s.shape[0]), *((0, 0),) * (s.ndim - 1)), value=padding_value) for s in sequences]
    return stack(padded, axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = False) -> PackedSequence:
    """Pack tensors (Tᵢ, …): `pack_padded_sequence` of `pad_sequence`."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], False, enforce_sorted)


guard_functions(globals())
