"""MobileNet v1 (Howard et al. 2017) and v2 (Sandler et al. 2018): depthwise separable convolutions."""

from __future__ import annotations

from .. import nn
from ..nn import functional as F
from ..ops.array.shaping import flatten
from ..tensor import Tensor
from .registry import constructor


def _conv(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, six: bool = True) -> nn.Sequential:
    """Convolution, batch norm and activation."""
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU6() if six else nn.ReLU(),
    )


class MobileNetV1(nn.Module):
    """Images (N, 3, H, W) to class scores: thirteen depthwise separable convolutions."""

    PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))

    def __init__(self, num_classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = int(32 * width)
        layers: list[nn.Module] = [_conv(3, channels, 3, 2, six=False)]
        for out, stride in self.PAIRS:
            out = int(out * width)
            layers += [_conv(channels, channels, 3, stride, channels, six=False), _conv(channels, out, 1, six=False)]
            channels = out
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


class InvertedResidual(nn.Module):
    """Inverted residual block: 1×1 expansion, depthwise 3×3, linear 1×1 projection; residual where shapes match."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = channels * expand
        layers: list[nn.Module] = [] if expand == 1 else [_conv(channels, hidden, 1)]
        layers += [_conv(hidden, hidden, 3, stride, hidden), nn.Conv2d(hidden, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """Images (N, 3, H, W) to class scores."""

    # expansion, channels, repeats, stride of the first
    BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        channels = 32
        for expand, out, repeats, stride in self.BLOCKS:
            for i in range(repeats):
                layers.append(InvertedResidual(channels, out, stride if i == 0 else 1, expand))
                channels = out
        layers.append(_conv(channels, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


@constructor
def mobilenet_v1(num_classes: int = 1000, width: float = 1.0) -> MobileNetV1:
    """MobileNet v1: 4.2 million parameters."""
    return MobileNetV1(num_classes, width)


@constructor
def mobilenet_v2(num_classes: int = 1000, dropout: float = 0.2) -> MobileNetV2:
    """MobileNet v2: 3.5 million parameters."""
    return MobileNetV2(num_classes, dropout)
