"""Variable-length sequences for recurrent layers: `nn.utils.rnn`, where PyTorch has these.

See `weft.nn.packed` for how a packed sequence is stored.

>>> from weft.nn.utils.rnn import pad_sequence, unpad_sequence
>>> padded = pad_sequence([wf.ones(2), wf.ones(3)])
>>> [x.shape for x in unpad_sequence(padded, [2, 3])]
[(2,), (3,)]
"""

from __future__ import annotations

from typing import Any

from ...ops.core.error_names import guard_functions
from ...tensor import Tensor, to_array
from ..packed import PackedSequence as PackedSequence
from ..packed import pack_padded_sequence as pack_padded_sequence
from ..packed import pack_sequence as pack_sequence
from ..packed import pad_packed_sequence as pad_packed_sequence
from ..packed import pad_sequence as pad_sequence


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, each with its length: the inverse of `pad_sequence`.

    Args:
        padded_sequences: (T, N, …), or (N, T, …) if batch_first.
        lengths: N integers. They decide shapes, so in a captured function they must be constants.
        batch_first: whether the first axis of the sequences is the batch.

    >>> [x.tolist() for x in nn.utils.rnn.unpad_sequence(wf.tensor([[1.0, 2.0], [0.0, 3.0]]), [1, 2])]
    [[1.0], [2.0, 3.0]]
    """
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    counts = lengths.tolist() if isinstance(lengths, Tensor) else to_array(lengths).tolist()
    if len(counts) != padded.shape[0]:
        raise ValueError(f"unpad_sequence: expected {padded.shape[0]} lengths, one per sequence. Got {len(counts)}.")
    return [padded[i, : int(n)] for i, n in enumerate(counts)]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed sequence: the inverse of `pack_sequence`.

    >>> packed = nn.utils.rnn.pack_sequence([wf.ones(3), wf.ones(2)])
    >>> [x.shape for x in nn.utils.rnn.unpack_sequence(packed)]
    [(3,), (2,)]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


guard_functions(globals())
