"""A multilayer perceptron: linear layers with an activation between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .. import nn
from ..tensor import Tensor
from .registry import constructor

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "silu": nn.SiLU}


class MLP(nn.Module):
    """Multilayer perceptron; all but the first axis of the input is flattened to `in_features`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden: Sequence[int] = (128, 128),
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"mlp: unknown activation {activation!r}. Expected one of {', '.join(ACTIVATIONS)}.")
        layers: list[nn.Module] = [nn.Flatten()]
        for n_in, n_out in pairwise((in_features, *hidden)):
            layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear((in_features, *hidden)[-1], out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@constructor
def mlp(
    in_features: int = 64,
    out_features: int = 10,
    hidden: Sequence[int] = (128, 128),
    activation: str = "relu",
    dropout: float = 0.0,
) -> MLP:
    """A multilayer perceptron, by default for the digits that ship with Weft (8 x 8 pixels, ten classes).

    >>> wf.models.mlp(hidden=(32,))(wf.zeros((5, 1, 8, 8))).shape
    (5, 10)
    """
    return MLP(in_features, out_features, hidden, activation, dropout)
