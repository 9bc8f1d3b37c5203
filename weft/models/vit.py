"""A small Vision Transformer (Dosovitskiy et al. 2020): an image as a sequence of patches."""

from __future__ import annotations

from .. import nn
from ..ops.creation import zeros
from ..ops.shaping import broadcast_to, concat, flatten, swapaxes
from ..tensor import Tensor
from .registry import constructor


class ViT(nn.Module):
    """Images (N, 3, size, size) to class scores (N, num_classes)."""

    def __init__(
        self, size: int = 32, patch: int = 4, width: int = 192, depth: int = 6, heads: int = 3, num_classes: int = 10,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if size % patch:
            raise ValueError(f"ViT: size must be a multiple of patch. Got {size} and {patch}.")
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(zeros(1, 1, width))
        self.positions = nn.Parameter(zeros(1, (size // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        sequence = swapaxes(flatten(self.patches(x), 2), 1, 2)
        token = broadcast_to(self.token, (sequence.shape[0], 1, sequence.shape[2]))
        sequence = concat([token, sequence], axis=1) + self.positions
        return self.head(self.norm(self.encoder(sequence))[:, 0])


@constructor
def vit_tiny(size: int = 32, patch: int = 4, num_classes: int = 10, dropout: float = 0.0) -> ViT:
    """A ViT with 6 layers of width 192: 2.7 million parameters for 32×32 images."""
    return ViT(size, patch, num_classes=num_classes, dropout=dropout)
