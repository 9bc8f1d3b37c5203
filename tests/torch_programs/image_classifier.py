"""A convolutional classifier, as in PyTorch's quickstart."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.bn(self.conv2(x)), inplace=True), (2, 2))
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


labels = torch.randint(0, 4, (256,))
images = torch.randn(256, 1, 8, 8) * 0.3
for i in range(256):
    row, column = divmod(int(labels[i].item()), 2)
    images[i, 0, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 1.0
loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)

model = Net().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()

model.eval()
test_loss, correct = 0, 0
with torch.no_grad():
    for data, target in loader:
        output = model(data.to(device))
        test_loss += F.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(target.view_as(pred)).sum().item()
accuracy = correct / len(loader.dataset)
_, predicted = torch.max(output.data, dim=1)
assert accuracy > 0.9 and predicted.shape == (32,), accuracy
