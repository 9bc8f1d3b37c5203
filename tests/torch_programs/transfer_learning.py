"""Transfer learning: frozen layers, a new head, forward hooks, a step schedule, the best weights kept."""

import copy

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler

torch.manual_seed(7)
backbone = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(),
    nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(8, 10),
)  # fmt: skip
backbone.load_state_dict(copy.deepcopy(backbone.state_dict()))
for param in backbone.parameters():
    param.requires_grad = False
num_ftrs = backbone[-1].in_features
backbone[-1] = nn.Linear(num_ftrs, 2)

features = {}


def keep(name):
    def hook(module, inputs, output):
        features[name] = output.detach()

    return hook


handle = backbone[6].register_forward_hook(keep("pool"))
optimizer = optim.SGD(filter(lambda p: p.requires_grad, backbone.parameters()), lr=0.5, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
criterion = nn.CrossEntropyLoss()
labels = torch.randint(0, 2, (64,))
images = torch.randn(64, 3, 8, 8) + labels.float()[:, None, None, None] * 1.5
frozen = backbone[0].weight.clone()
best_acc, best_model_wts = 0.0, copy.deepcopy(backbone.state_dict())
for epoch in range(10):
    for phase in ["train", "val"]:
        backbone.train() if phase == "train" else backbone.eval()
        running_loss, running_corrects = 0.0, 0
        for inputs, targets in zip(images.split(16), labels.split(16)):
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = backbone(inputs)
                _, preds = torch.max(outputs, dim=1)
                loss = criterion(outputs, targets)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            running_loss += loss.item() * inputs.size(0)
            running_corrects += torch.sum(preds == targets.data)
        if phase == "train":
            exp_lr_scheduler.step()
        epoch_acc = running_corrects.double() / 64
        if phase == "val" and epoch_acc > best_acc:
            best_acc = epoch_acc
            best_model_wts = copy.deepcopy(backbone.state_dict())
handle.remove()
backbone.load_state_dict(best_model_wts)
assert torch.equal(frozen, backbone[0].weight) if torch.__name__ == "torch" else (frozen == backbone[0].weight).all()
assert float(best_acc) > 0.8 and features["pool"].shape == (16, 8, 1, 1), float(best_acc)
