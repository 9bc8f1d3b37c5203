"""NCF, in the form NeuMF (He et al. 2017): matrix factorisation and an MLP combined for recommendation."""

from __future__ import annotations

from .. import nn
from ..nn import functional as F
from ..ops.array.shaping import concat
from ..tensor import Tensor
from .registry import constructor


class NeuMF(nn.Module):
    """User and item numbers (N,) to logits (N,) of "this user likes this item".

    `layers[0]` is the width of the perceptron's input: half from the user, half from the item. With `sparse` the
    embeddings have row-sparse gradients.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        mf: int = 64,
        layers: tuple[int, ...] = (256, 256, 128, 64),
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.mf_user = nn.Embedding(num_users, mf, sparse=sparse)
        self.mf_item = nn.Embedding(num_items, mf, sparse=sparse)
        self.mlp_user = nn.Embedding(num_users, layers[0] // 2, sparse=sparse)
        self.mlp_item = nn.Embedding(num_items, layers[0] // 2, sparse=sparse)
        self.mlp = nn.ModuleList([nn.Linear(i, o) for i, o in zip(layers, layers[1:], strict=False)])
        self.final = nn.Linear(layers[-1] + mf, 1)
        for table in (self.mf_user, self.mf_item, self.mlp_user, self.mlp_item):
            nn.init.normal_(table.weight, 0.0, 0.01)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        factors = self.mf_user(users) * self.mf_item(items)
        hidden = concat([self.mlp_user(users), self.mlp_item(items)], axis=-1)
        for layer in self.mlp:
            hidden = F.relu(layer(hidden))
        return self.final(concat([factors, hidden], axis=-1)).squeeze(-1)


@constructor
def ncf(
    num_users: int = 138_493, num_items: int = 26_744, mf: int = 64, layers: tuple[int, ...] = (256, 256, 128, 64),
    sparse: bool = False,
) -> NeuMF:  # fmt: skip
    """NeuMF for the sizes of MovieLens-20M."""
    return NeuMF(num_users, num_items, mf, layers, sparse)
