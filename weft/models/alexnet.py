"""AlexNet (Krizhevsky 2014, "One weird trick"): five convolutions and three large fully connected layers."""

from __future__ import annotations

from .. import nn
from ..ops.array.shaping import flatten
from ..tensor import Tensor
from .registry import constructor


class AlexNet(nn.Module):
    """Images (N, 3, 224, 224) to class scores (N, num_classes); `hidden` is the width of the fully connected layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, hidden: int = 4096) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, hidden), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


@constructor
def alexnet(num_classes: int = 1000, dropout: float = 0.5) -> AlexNet:
    """AlexNet with 61.1 million parameters (for 1,000 classes)."""
    return AlexNet(num_classes, dropout)
