"""ResNet (He et al. 2015): convolutional networks with residual connections.

Submodules have torchvision's names and order, so `nn.Sequential(*list(model.children())[:-1])` is the feature extractor.
"""

from __future__ import annotations

from .. import nn
from ..ops.array.shaping import flatten
from ..tensor import Tensor
from .registry import constructor


class BasicBlock(nn.Module):
    """Residual block of two 3×3 convolutions."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


class Bottleneck(nn.Module):
    """Residual bottleneck block: 1×1 reduction, 3×3 convolution (with the stride), 1×1 expansion."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet(nn.Module):
    """Images (N, 3, H, W) to class scores (N, num_classes)."""

    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], layers: tuple[int, ...], num_classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for i, (width, count) in enumerate(zip((64, 128, 256, 512), layers, strict=True)):
            blocks = []
            for j in range(count):
                stride = 2 if i > 0 and j == 0 else 1
                out = width * block.expansion
                downsample = None
                if stride != 1 or channels != out:
                    downsample = nn.Sequential(
                        nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
                    )
                blocks.append(block(channels, width, stride, downsample))
                channels = out
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flatten(self.avgpool(x), 1))


@constructor
def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet with 18 layers: 11.7 million parameters."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


@constructor
def resnet34(num_classes: int = 1000) -> ResNet:
    """ResNet with 34 layers: 21.8 million parameters."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes)


@constructor
def resnet50(num_classes: int = 1000) -> ResNet:
    """ResNet with 50 layers: 25.6 million parameters."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)
