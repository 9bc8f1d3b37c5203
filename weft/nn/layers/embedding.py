"""Embedding layers."""

from __future__ import annotations

from typing import Any

from ...ops.array.creation import empty
from ...ops.core.spec import check_size
from ...tensor import Tensor
from ...typing import DTypeLike
from .. import functional as F
from .. import init
from ..module import Layer
from ..parameter import Parameter


class Embedding(Layer):
    """Lookup table of vectors by integer index.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: length of each vector.
        padding_idx: a row that starts as zeros and gets no gradient.
        max_norm, norm_type: scale the rows looked up, in place, to at most this p-norm.
        scale_grad_by_freq: divide the gradient of a row by its count in the batch.
        sparse: keep the gradient as a `wf.RowSparse` of the rows looked up; SGD, Adagrad and Adam(lazy=True)
            then touch only those rows.

    Shapes: x of integers (…) → (…, embedding_dim); `weight` is (num_embeddings, embedding_dim), standard normal.

    >>> nn.Embedding(10, 4)(wf.tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        num_embeddings = check_size("Embedding", num_embeddings, "num_embeddings")
        embedding_dim = check_size("Embedding", embedding_dim, "embedding_dim")
        if padding_idx is not None:
            if isinstance(padding_idx, bool):
                raise TypeError(f"Embedding: padding_idx must be an integer. Got {padding_idx!r}.")
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"Embedding: padding_idx {padding_idx} is out of range for {num_embeddings} rows.")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type, self.sparse = max_norm, norm_type, sparse
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight = Parameter(empty((num_embeddings, embedding_dim), dtype=dtype), sparse_grad=sparse)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> Embedding:
        """Create an embedding from the table `embeddings` (memory is shared); frozen by default."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a table of two axes. Got shape {embeddings.shape}.")
        made = cls(embeddings.shape[0], embeddings.shape[1], dtype=embeddings.dtype, **settings)
        made.weight = Parameter(embeddings.detach(), not freeze, sparse_grad=made.sparse)
        return made

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(
            x, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.sparse, self.scale_grad_by_freq
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        return text + (", sparse=True" if self.sparse else "")


class EmbeddingBag(Layer):
    """Sum, mean or maximum of bags of embeddings, without materialising the rows.

    Args:
        num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse, padding_idx: as for `Embedding`.
        mode: "sum", "mean" or "max".
        include_last_offset: `offsets` has a last entry, the number of indices.

    Shapes: x (B, L), one bag per row, or x (N,) with `offsets` (B,) where each bag starts → (B, embedding_dim).

    >>> bag = nn.EmbeddingBag(10, 4, mode="sum")
    >>> bag(wf.tensor([1, 2, 4, 5, 4]), offsets=wf.tensor([0, 2])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        num_embeddings = check_size("EmbeddingBag", num_embeddings, "num_embeddings")
        embedding_dim = check_size("EmbeddingBag", embedding_dim, "embedding_dim")
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: mode must be 'sum', 'mean' or 'max'. Got {mode!r}.")
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.sparse, self.include_last_offset, self.padding_idx = sparse, include_last_offset, padding_idx
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.weight = Parameter(empty((num_embeddings, embedding_dim), dtype=dtype), sparse_grad=sparse)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the parameters."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, x: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            x, self.weight, offsets, self.mode, per_sample_weights, self.padding_idx, self.include_last_offset, self.sparse,
            self.max_norm, self.norm_type, self.scale_grad_by_freq,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
