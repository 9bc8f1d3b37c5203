"""Transformer encoder and decoder layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.core.spec import MAX_LAYERS, check_size
from ...tensor import Tensor, wrap
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..containers import ModuleList
from ..module import Layer, Module
from .attention import MultiheadAttention
from .dropout import Dropout
from .linear import Linear
from .norm import LayerNorm


def _activation(activation: Any) -> Callable[[Tensor], Tensor]:
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    if callable(activation):
        return activation
    raise ValueError(f"Transformer: activation must be 'relu', 'gelu' or a function. Got {activation!r}.")


def _clones(module: Module, n: int) -> ModuleList:
    n = check_size("Transformer", n, "num_layers", 0, MAX_LAYERS)
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


class _Layer(Layer):
    """Base of encoder and decoder layers. Parts are created in PyTorch's order, which optimiser states depend on."""

    _cross_attention = False  # whether the layer also attends to the encoder's output

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        if self._cross_attention:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        parts = 3 if self._cross_attention else 2
        for i in range(1, parts + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for i in range(1, parts + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _through(self, x: Tensor, *parts: Callable[[Tensor], Tensor]) -> Tensor:
        """Each part with its dropout, its residual connection and its norm, one after the other."""
        for i, part in enumerate(parts, 1):
            norm, drop = self.__dict__[f"norm{i}"], self.__dict__[f"dropout{i}"]
            x = x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))
        return x

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


def _attend(
    attention: Module, memory: Tensor | None, mask: Any, padding: Any, causal: bool
) -> Callable[[Tensor], Tensor]:
    """Attention of x to `memory`, or to itself, as a function of x."""

    def part(x: Tensor) -> Tensor:
        seen = x if memory is None else memory
        y, _ = attention(x, seen, seen, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=causal)
        return y

    return part


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward net, each with a residual connection and a layer norm.

    Args:
        d_model, nhead: length of the vectors and number of heads.
        dim_feedforward: width of the feed-forward net.
        dropout: probability, used in attention, feed-forward net and residuals.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: eps of the norms.
        batch_first: inputs are (batch, sequence, features); by default (sequence, batch, features).
        norm_first: normalise before each part rather than after.
        bias: whether linear maps and norms have biases.

    >>> layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    >>> layer(wf.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`src` (L, N, E), or (N, L, E) if batch_first; masks as in `MultiheadAttention`."""
        attend = _attend(self.self_attn, None, src_mask, src_key_padding_mask, is_causal)
        return self._through(src, attend, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, cross-attention to the encoder's output and a feed-forward net. Arguments as for the encoder layer.

    >>> layer = nn.TransformerDecoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    >>> layer(wf.ones(1, 3, 8), wf.ones(1, 5, 8)).shape
    (1, 3, 8)
    """

    _cross_attention = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """`tgt` (T, N, E) attends to itself and to `memory` (S, N, E), the encoder's result."""
        attend = _attend(self.self_attn, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        look = _attend(self.multihead_attn, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self._through(tgt, attend, look, self._feed_forward)


class TransformerEncoder(Layer):
    """A stack of `num_layers` copies of `encoder_layer`, followed by `norm` if given.

    >>> layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    >>> nn.TransformerEncoder(layer, num_layers=2)(wf.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Layer):
    """A stack of `num_layers` copies of `decoder_layer`, followed by `norm` if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(
                x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
                memory_is_causal,
            )  # fmt: skip
        return x if self.norm is None else self.norm(x)


class Transformer(Layer):
    """Encoder and decoder together.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias: as for
            `TransformerEncoderLayer`.
        num_encoder_layers, num_decoder_layers: layers of each.
        custom_encoder, custom_decoder: modules to use instead.

    >>> model = nn.Transformer(8, 2, 1, 1, dim_feedforward=16, batch_first=True)
    >>> model(wf.ones(1, 5, 8), wf.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            layer = TransformerEncoderLayer(*settings, dtype=dtype)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            decoder_layer = TransformerDecoderLayer(*settings, dtype=dtype)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise all matrices."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(size: int, dtype: Any = np.float32) -> Tensor:
        """The (size, size) mask with 0 at and before each position and -inf after it."""
        return wrap(np.triu(np.full((size, size), -math.inf, dtype), 1))
