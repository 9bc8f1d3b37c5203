"""Super-resolution with sub-pixel convolution."""

import math

import torch
import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim

torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 8, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight)


model = Net(2)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=1e-2)
x = torch.linspace(0, 6.28, 16)
psnr = []
for step in range(60):
    phase = torch.rand(8, 1, 1, 1) * 6.28
    target = torch.sin(x.view(1, 1, -1, 1) + phase) * torch.cos(x.view(1, 1, 1, -1))
    small = torch.nn.functional.interpolate(target, scale_factor=0.5, mode="bilinear", align_corners=False)
    optimizer.zero_grad()
    loss = criterion(model(small), target)
    loss.backward()
    optimizer.step()
    psnr.append(10 * math.log10(1 / loss.item()))
assert psnr[-1] > psnr[0] + 5, (psnr[0], psnr[-1])
