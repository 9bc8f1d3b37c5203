"""Handwritten digits with the training loop written out: a model, a loss, an optimiser, and one captured step.

python examples/digits_by_hand.py              # about 99 % of the test digits, in seconds
python examples/digits_by_hand.py --steps 20   # a quick look
"""

import argparse
import time

import weft as wf
from weft import nn, optim
from weft.data import DataLoader, digits
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=700)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--eager", action="store_true", help="do not compile the training step")
options = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.linear = nn.Linear(64 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.linear(self.dropout(x.reshape(len(x), -1)))


wf.manual_seed(0)
model = Net()
optimizer = optim.AdamW(model.parameters(), lr=options.lr)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)
train = DataLoader(digits("train"), batch_size=64, shuffle=True, drop_last=True, seed=0)


def step(images, labels):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


if not options.eager:
    step = wf.function(step)  # leave this out: the same numbers, more slowly


def batches():
    while True:
        yield from train


started = time.perf_counter()
for number, (images, labels) in zip(range(1, options.steps + 1), batches()):
    loss = step(images, labels)
    schedule.step()
    if number % 100 == 0 or number == options.steps:
        print(
            f"step {number:4d}  loss {float(loss):.4f}  {64 * number / (time.perf_counter() - started):,.0f} samples/s"
        )

model.eval()
test = digits("test")
with wf.no_grad():
    scores = model(wf.asarray(test.arrays[0]))
accuracy = float((scores.argmax(axis=1) == wf.asarray(test.arrays[1])).astype(wf.float32).mean())
print(f"test accuracy {accuracy:.2%}")
