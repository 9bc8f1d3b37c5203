"""LeNet-5: two convolutions with pooling, three linear layers.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", 1998; with rectified
linear units and max pooling, as it is taught today.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import nn
from ..nn import functional as F
from ..tensor import Tensor
from .registry import constructor


class LeNet(nn.Module):
    """Square images of `image_size` pixels with `in_channels` channels to scores of `num_classes` classes."""

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int = 28,
        channels: Sequence[int] = (6, 16),
        hidden: Sequence[int] = (120, 84),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"lenet: image_size must be at least 4. Got {image_size}.")
        # The original's second convolution has no padding, which would leave nothing of small images.
        padding = 0 if image_size >= 16 else 2
        side = (image_size // 2 - 4 + 2 * padding) // 2
        self.conv1 = nn.Conv2d(in_channels, channels[0], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=padding)
        self.fc1 = nn.Linear(channels[1] * side * side, hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.dropout = nn.Dropout(dropout)
        self.fc3 = nn.Linear(hidden[1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.reshape(x.shape[0], -1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(self.dropout(x))


@constructor
def lenet(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int = 28,
    channels: Sequence[int] = (6, 16),
    hidden: Sequence[int] = (120, 84),
    dropout: float = 0.0,
) -> LeNet:
    """LeNet-5 for images of 28 x 28 pixels, or of another size.

    >>> sum(p.size for p in wf.models.lenet().parameters())
    61706
    >>> wf.models.lenet(image_size=8)(wf.zeros((2, 1, 8, 8))).shape
    (2, 10)
    """
    return LeNet(num_classes, in_channels, image_size, channels, hidden, dropout)
