"""What a call of attention consists of: its static parameters as one value, its operands as one record per direction.

A record lists the parameters of its op, in their order. Rules, kernels and lowerings of the op take `*values` and make the
record: `Forward(*values)` of arrays, specs or tensors, `Forward(*node.inputs, *node.attrs)` of a graph's values, and with
`map` one of layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core.attributes import attribute_value


@attribute_value("attention")
@dataclass(frozen=True, slots=True)
class Attention:
    """The static parameters of attention, valid by construction.

    Args:
        dropout_p: the probability with which a weight is set to zero.
        is_causal: whether position i attends to keys 0 to i only.
        scale: factor on the scores.
    """

    dropout_p: float
    is_causal: bool
    scale: float

    def __post_init__(self) -> None:
        if self.dropout_p.__class__ is not float or not 0 <= self.dropout_p <= 1:
            raise ValueError(f"attention: dropout_p must be a float between 0 and 1. Got {self.dropout_p!r}.")
        if self.is_causal.__class__ is not bool:
            raise TypeError(f"attention: is_causal must be a bool. Got {self.is_causal!r}.")
        if self.scale.__class__ is not float:
            raise TypeError(f"attention: scale must be a float. Got {self.scale!r}.")


def attention_of(dropout_p: Any, is_causal: Any, scale: Any) -> Attention:
    """From three attributes, as graph files held them before version 2 of the ops."""
    return Attention(float(dropout_p), bool(is_causal), float(scale))


class Forward(NamedTuple):
    """A call of `attention_forward`: query (..., L, E), key (..., S, E), value (..., S, V); `state` draws the dropout."""

    query: Any
    key: Any
    value: Any
    mask: Any
    state: Any
    attention: Attention

    def map(self, change: Callable[[Any], Any]) -> Forward:
        """The record with `change` applied to every operand that is there."""
        return Forward._make([*[None if x is None else change(x) for x in self[:-1]], self.attention])


class Backward(NamedTuple):
    """A call of `attention_backward`: the operands of the forward pass, its results and their gradients."""

    grad: Any
    grad_lse: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    state: Any
    result: Any
    lse: Any
    attention: Attention
    mask_grad: bool

    @property
    def forward(self) -> Forward:
        return Forward(self.query, self.key, self.value, self.mask, self.state, self.attention)

    def map(self, change: Callable[[Any], Any]) -> Backward:
        """The record with `change` applied to every operand that is there."""
        return Backward._make([*[None if x is None else change(x) for x in self[:-2]], *self[-2:]])
