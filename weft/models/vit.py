"""Vision Transformer (Dosovitskiy et al. 2020): an image as a sequence of patches. Parameters have torchvision's names."""

from __future__ import annotations

from .. import nn
from ..ops.array.creation import zeros
from ..ops.array.shaping import broadcast_to, concat, flatten, swapaxes
from ..ops.core.spec import MAX_LAYERS, check_size
from ..tensor import Tensor
from .registry import constructor


class Block(nn.Module):
    """Pre-norm transformer block, (N, T, width) to the same: attention and an MLP, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        attended, _ = self.self_attention(normed, normed, normed, need_weights=False)
        x = x + self.dropout(attended)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Position embedding, transformer blocks and a final norm over `tokens` vectors."""

    def __init__(self, tokens: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        depth = check_size("vit", depth, "depth", 0, MAX_LAYERS)
        self.pos_embedding = nn.Parameter(zeros(1, tokens, width))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential({f"encoder_layer_{i}": Block(width, heads, dropout) for i in range(depth)})
        self.ln = nn.LayerNorm(width, eps=1e-6)
        nn.init.normal_(self.pos_embedding, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class ViT(nn.Module):
    """Images (N, 3, size, size) to class scores (N, num_classes)."""

    def __init__(
        self, size: int = 32, patch: int = 4, width: int = 192, depth: int = 6, heads: int = 3, num_classes: int = 10,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if size % patch:
            raise ValueError(f"ViT: size must be a multiple of patch. Got {size} and {patch}.")
        self.class_token = nn.Parameter(zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, stride=patch)
        self.encoder = Encoder((size // patch) ** 2 + 1, width, depth, heads, dropout)
        self.heads = nn.Sequential({"head": nn.Linear(width, num_classes)})
        nn.init.trunc_normal_(self.conv_proj.weight, std=(3 * patch * patch) ** -0.5)
        if self.conv_proj.bias is not None:
            nn.init.zeros_(self.conv_proj.bias)

    def forward(self, x: Tensor) -> Tensor:
        sequence = swapaxes(flatten(self.conv_proj(x), 2), 1, 2)
        token = broadcast_to(self.class_token, (sequence.shape[0], 1, sequence.shape[2]))
        return self.heads(self.encoder(concat([token, sequence], axis=1))[:, 0])


@constructor
def vit_tiny(size: int = 32, patch: int = 4, num_classes: int = 10, dropout: float = 0.0) -> ViT:
    """A ViT with 6 layers of width 192: 2.7 million parameters for 32×32 images."""
    return ViT(size, patch, num_classes=num_classes, dropout=dropout)


@constructor
def vit_b_16(size: int = 224, num_classes: int = 1000, dropout: float = 0.0) -> ViT:
    """ViT-B/16: 12 layers of width 768, patches of 16×16 pixels; 86.6 million parameters."""
    return ViT(size, 16, 768, 12, 12, num_classes, dropout)
