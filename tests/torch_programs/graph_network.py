"""A graph convolutional network with message passing by scatter, and saving and loading of its weights."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)


class GraphConv(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edge_index):
        row, col = edge_index
        deg = torch.zeros(x.size(0)).scatter_add_(0, col, torch.ones(col.size(0)))
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt.masked_fill_(deg_inv_sqrt == float("inf"), 0)
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        messages = norm.unsqueeze(-1) * (x @ self.weight).index_select(0, row)
        out = torch.zeros(x.size(0), self.weight.size(1)).index_add_(0, col, messages)
        return out + self.bias

    def extra_repr(self):
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GraphConv(8, 16)
        self.conv2 = GraphConv(16, 3)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.2, training=self.training)
        return self.conv2(x, edge_index)


n = 60
y = torch.arange(n) % 3
source = torch.randint(0, n, (600,))
target = torch.where(
    torch.rand(600) < 0.8, (source + 3 * torch.randint(0, 20, (600,))) % n, torch.randint(0, n, (600,))
)
loops = torch.arange(n)
edge_index = torch.stack([torch.cat([source, target, loops]), torch.cat([target, source, loops])], dim=0)
x = torch.randn(n, 8) + F.one_hot(y, num_classes=8).float()
train_mask = torch.zeros(n, dtype=torch.bool)
train_mask[torch.randperm(n)[:30]] = True
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for epoch in range(60):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
model.eval()
pred = model(x, edge_index).argmax(dim=-1)
acc = int((pred[~train_mask] == y[~train_mask]).sum()) / int((~train_mask).sum())
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.pt")
    torch.save(model.state_dict(), path)
    again = GCN()
    again.load_state_dict(torch.load(path))
again.eval()
assert torch.allclose(again(x, edge_index), model(x, edge_index)) and acc > 0.8, acc
