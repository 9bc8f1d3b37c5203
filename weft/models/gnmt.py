"""GNMT v2 (Wu et al. 2016, in the form of the MLPerf reference): an LSTM encoder and decoder with attention."""

from __future__ import annotations

from .. import nn
from ..nn import functional as F
from ..ops.array.elementwise import tanh
from ..ops.array.shaping import concat, expand_dims, squeeze
from ..ops.core.spec import MAX_LAYERS, check_size
from ..tensor import Tensor
from .registry import constructor


class Encoder(nn.Module):
    """Tokens (N, T) to states (N, T, width): a bidirectional first layer, residual connections from the third on."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.bidirectional = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        sizes = [2 * width] + [width] * (layers - 2)
        self.layers = nn.ModuleList([nn.LSTM(i, width, batch_first=True) for i in sizes])
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        x, _ = self.bidirectional(self.dropout(self.embedding(tokens)))
        for i, layer in enumerate(self.layers):
            y, _ = layer(self.dropout(x))
            x = y + x if i > 0 else y
        return x


class Attention(nn.Module):
    """Additive (Bahdanau) attention: queries (N, T, w) over keys (N, S, w) give contexts (N, T, w)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = tanh(expand_dims(self.query(queries), 2) + expand_dims(self.key(keys), 1))
        weights = F.softmax(squeeze(self.score(hidden), -1), axis=-1)
        return weights @ keys


class Decoder(nn.Module):
    """Tokens (N, T) and encoder states (N, S, width) to logits (N, T, vocabulary).

    The first layer's outputs are the attention's queries; the context is part of the input of all further layers.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        layers = check_size("gnmt", layers, "layers", 1, MAX_LAYERS)
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.LSTM(width, width, batch_first=True)
        self.attention = Attention(width)
        self.layers = nn.ModuleList([nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1)])
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:
        x, _ = self.first(self.dropout(self.embedding(tokens)))
        context = self.attention(x, states)
        for i, layer in enumerate(self.layers):
            y, _ = layer(self.dropout(concat([x, context], axis=-1)))
            x = y + x if i > 0 else y
        return self.output(x)


class GNMT(nn.Module):
    """Source tokens (N, S) and target tokens (N, T) to logits (N, T, vocabulary)."""

    def __init__(self, vocabulary: int = 32_000, width: int = 1024, layers: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(f"GNMT: expected at least 2 layers. Got {layers}.")
        self.encoder = Encoder(vocabulary, width, layers, dropout)
        self.decoder = Decoder(vocabulary, width, layers, dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decoder(target, self.encoder(source))


@constructor
def gnmt_v2(vocabulary: int = 32_000, width: int = 1024, layers: int = 4, dropout: float = 0.2) -> GNMT:
    """GNMT v2 with 4 encoder and 4 decoder layers."""
    return GNMT(vocabulary, width, layers, dropout)
