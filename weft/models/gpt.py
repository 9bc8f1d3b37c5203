"""GPT: a decoder-only transformer, with sampling and a key-value cache.

A. Radford et al., "Language models are unsupervised multitask learners", 2019. Names and sizes are those of GPT-2:
pre-norm blocks, learned positions, the output layer shares its weight with the token embedding.
"""

from __future__ import annotations

import math
from typing import Any

import weft as wf

from .. import nn
from ..nn import functional as F
from ..ops.array.gathering import checked_indices
from ..ops.core.spec import MAX_LAYERS, check_size
from ..tensor import Tensor
from .registry import constructor


class KeyValueCache:
    """Cached keys and values, one pair of tensors (batch, heads, block, head size) per layer.

    The tensors are preallocated and written in place, so a captured function has fixed shapes.
    """

    def __init__(self, model: GPT, batch: int) -> None:
        heads, size = model.n_head, model.n_embd // model.n_head
        shape = (batch, heads, model.block_size, size)
        dtype = model.wte.weight.dtype
        self.keys = [wf.zeros(shape, dtype=dtype) for _ in model.h]
        self.values = [wf.zeros(shape, dtype=dtype) for _ in model.h]
        self.length = 0


def put(cache: Tensor, positions: Tensor, new: Tensor) -> None:
    """Write `new` (batch, heads, tokens, head size) into `cache` at `positions` of the tokens, in place.

    A captured function writes only these rows, without copying the cache.
    """
    index = wf.broadcast_to(wf.reshape(positions, (1, 1, -1, 1)), new.shape)
    cache.copy_(wf.scatter(cache, index, new, axis=2))


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_head, self.dropout = n_head, dropout
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, heads, tokens, head size)."""
        b, t, c = x.shape
        qkv = self.c_attn(x).reshape(b, t, 3, self.n_head, c // self.n_head)
        q, k, v = (qkv[:, :, i].permute_dims((0, 2, 1, 3)) for i in range(3))
        return q, k, v

    def join(self, y: Tensor) -> Tensor:
        b, h, t, d = y.shape
        return self.c_proj(y.permute_dims((0, 2, 1, 3)).reshape(b, t, h * d))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        dropout = self.dropout if self.training else 0.0
        return self.join(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True))

    def cached(self, x: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
        """The same for tokens at `positions` (1-d), whose keys and values are added to the cache."""
        q, k, v = self.split(x)
        put(keys, positions, k)
        put(values, positions, v)
        seen = wf.arange(keys.shape[2]) <= wf.expand_dims(positions, 1)  # (tokens, block): each sees those before it
        return self.join(F.scaled_dot_product_attention(q, keys, values, attn_mask=seen))


class Block(nn.Module):
    """Pre-norm transformer block: attention and an MLP, each with a residual connection."""

    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.attn = Attention(n_embd, n_head, dropout, bias)
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)
        self.drop = nn.Dropout(dropout)

    def perceptron(self, x: Tensor) -> Tensor:
        return self.drop(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.perceptron(self.ln_2(x))

    def cached(self, x: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
        x = x + self.attn.cached(self.ln_1(x), keys, values, positions)
        return x + self.perceptron(self.ln_2(x))


class GPT(nn.Module):
    """Decoder-only transformer: token ids (batch, tokens) to next-token logits (batch, tokens, vocabulary)."""

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        n_layer = check_size("gpt", n_layer, "n_layer", 0, MAX_LAYERS)
        n_head = check_size("gpt", n_head, "n_head", 1)
        if n_embd % n_head:
            raise ValueError(f"gpt: n_embd must be a multiple of n_head. Got {n_embd} and {n_head}.")
        self.vocab_size, self.block_size, self.n_head, self.n_embd = vocab_size, block_size, n_head, n_embd
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(n_embd, n_head, dropout, bias) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd, bias=bias)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        self._initialize(n_layer)

    def _initialize(self, n_layer: int) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        # The residual stream sums 2 * n_layer branches; scale down the init of their last layers accordingly.
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layer))

    def forward(self, ids: Tensor) -> Tensor:
        tokens = ids.shape[-1]
        if tokens > self.block_size:
            raise ValueError(f"gpt: the text is too long. Got {tokens} tokens; expected at most {self.block_size}.")
        x = self.drop(self.wte(ids) + self.wpe(wf.arange(tokens)))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    # Generation ---------------------------------------------------------------------------------------------------------

    def cached(self, ids: Tensor, cache: KeyValueCache, positions: Tensor) -> Tensor:
        """Append tokens `ids` at `positions` to the cache; returns the logits of the next token, (batch, vocabulary)."""
        # checked once here, so that cache rows are written without further checks
        positions = checked_indices(positions, 0, self.block_size, None, "gpt: position")
        x = self.wte(ids) + self.wpe(positions)
        for block, keys, values in zip(self.h, cache.keys, cache.values):
            x = block.cached(x, keys, values, positions)
        return self.lm_head(self.ln_f(x[:, -1]))

    def generate(
        self,
        ids: Any,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        *,
        use_cache: bool = True,
        capture: bool = False,
        generator: Any = None,
    ) -> Tensor:
        """Sample continuations of token sequences.

        Args:
            ids: token ids (batch, tokens), at least one.
            max_new_tokens: number of tokens to sample.
            temperature: divides the logits; below 1 sharpens the distribution, 0 is greedy decoding.
            top_k: sample from the k most likely tokens only.
            use_cache: cache keys and values instead of recomputing them for each token. When the block is full, the
                later half of the sequence is kept; without the cache the last whole block is.
            capture: compile the decoding step; worthwhile for long sequences.
            generator: source of randomness; the default generator if None.

        Returns:
            The sequences with the sampled tokens, (batch, tokens + max_new_tokens).
        """
        ids = wf.asarray(ids)
        if ids.ndim != 2 or ids.shape[1] < 1:
            raise ValueError(f"generate: expected token numbers (batch, tokens). Got shape {tuple(ids.shape)}.")
        if max_new_tokens < 0:
            raise ValueError(f"generate: max_new_tokens must be at least 0. Got {max_new_tokens}.")
        if temperature < 0:
            raise ValueError(f"generate: temperature must be at least 0. Got {temperature}.")
        if top_k is not None and top_k < 1:
            raise ValueError(f"generate: top_k must be at least 1. Got {top_k}.")
        training = self.training
        self.eval()
        try:
            with wf.no_grad():
                decoder = self._decoder(ids.shape[0], capture) if use_cache else None
                for _ in range(max_new_tokens):
                    scores = self(ids[:, -self.block_size :])[:, -1] if decoder is None else decoder.scores(ids)
                    token = self._choose(scores, temperature, top_k, generator)
                    ids = wf.concat([ids, wf.astype(token, ids.dtype)], axis=1)
                if decoder is not None and capture:
                    self.__dict__["_decoders"][ids.shape[0]] = decoder
        finally:
            self.train(training)
        return ids

    def _decoder(self, batch: int, capture: bool) -> Decoder:
        """A decoder for this batch size: an idle one captured earlier, or a new one."""
        # not an attribute: compiled code is not part of the model, its copies or its pickle
        kept = self.__dict__.setdefault("_decoders", {})
        decoder = kept.pop(batch, None) if capture else None
        if decoder is None:
            return Decoder(self, batch, capture)
        decoder.cache.length = 0
        return decoder

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_decoders"}

    @staticmethod
    def _choose(scores: Tensor, temperature: float, top_k: int | None, generator: Any) -> Tensor:
        """Sample the next token of each sequence, (batch, 1)."""
        if temperature == 0:
            return wf.argmax(scores, axis=-1, keepdims=True)
        scores = scores / temperature
        if top_k is not None and top_k < scores.shape[-1]:
            least = wf.topk(scores, top_k)[0][:, -1:]
            scores = wf.where(scores < least, -math.inf, scores)
        return wf.multinomial(F.softmax(scores, axis=-1), 1, generator=generator)


class Decoder:
    """Incremental decoder: next-token logits with a key-value cache."""

    def __init__(self, model: GPT, batch: int, capture: bool) -> None:
        self.block_size = model.block_size
        self.cache = cache = KeyValueCache(model, batch)

        def step(ids: Tensor, positions: Tensor) -> Tensor:
            with wf.no_grad():
                return model.cached(ids, cache, positions)

        self.step = step
        self.next = wf.function(step) if capture else step

    def scores(self, ids: Tensor) -> Tensor:
        """Logits after `ids`, which extend the previous call's ids by one token."""
        cache, total = self.cache, ids.shape[1]
        if cache.length == 0 or cache.length >= self.block_size:
            # a prompt or a full block: refill the cache
            kept = total if cache.length == 0 else self.block_size // 2
            cache.length = max(1, min(kept, self.block_size))
            return self.step(ids[:, total - cache.length :], wf.arange(cache.length))
        cache.length += 1
        return self.next(ids[:, -1:], wf.asarray([cache.length - 1]))


@constructor
def gpt(
    vocab_size: int = 50257,
    block_size: int = 1024,
    n_layer: int = 12,
    n_head: int = 12,
    n_embd: int = 768,
    dropout: float = 0.0,
    bias: bool = True,
) -> GPT:
    """A GPT; without arguments the smallest GPT-2, with 124,439,808 parameters.

    >>> model = wf.models.gpt(vocab_size=65, block_size=32, n_layer=2, n_head=2, n_embd=16)
    >>> model(wf.zeros((1, 8), dtype=wf.int64)).shape
    (1, 8, 65)
    >>> model.generate([[1, 2, 3]], 5, temperature=0).shape
    (1, 8)
    """
    return GPT(vocab_size, block_size, n_layer, n_head, n_embd, dropout, bias)
