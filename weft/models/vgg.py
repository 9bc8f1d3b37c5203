"""VGG (Simonyan and Zisserman 2014): stacks of 3×3 convolutions between max pools."""

from __future__ import annotations

from .. import nn
from ..ops.array.shaping import flatten
from ..tensor import Tensor
from .registry import constructor

# channels of the convolutions; "M" is a max pool
LAYERS: dict[int, tuple[int | str, ...]] = {
    11: (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    16: (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"),
    19: (64, 64, "M", 128, 128, "M", *(256,) * 4, "M", *(512,) * 4, "M", *(512,) * 4, "M"),
}


class VGG(nn.Module):
    """Images (N, 3, 224, 224) to class scores (N, num_classes); `hidden` is the width of the fully connected layers."""

    def __init__(
        self, layers: tuple[int | str, ...], num_classes: int = 1000, dropout: float = 0.5, hidden: int = 4096
    ) -> None:
        super().__init__()
        features: list[nn.Module] = []
        channels = 3
        for width in layers:
            if isinstance(width, str):
                features.append(nn.MaxPool2d(2, stride=2))
            else:
                features += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


@constructor
def vgg11(num_classes: int = 1000, dropout: float = 0.5) -> VGG:
    """VGG with 11 layers: 132.9 million parameters."""
    return VGG(LAYERS[11], num_classes, dropout)


@constructor
def vgg16(num_classes: int = 1000, dropout: float = 0.5) -> VGG:
    """VGG with 16 layers: 138.4 million parameters."""
    return VGG(LAYERS[16], num_classes, dropout)


@constructor
def vgg19(num_classes: int = 1000, dropout: float = 0.5) -> VGG:
    """VGG with 19 layers: 143.7 million parameters."""
    return VGG(LAYERS[19], num_classes, dropout)
