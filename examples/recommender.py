"""A recommender: NCF judges whether a user likes an item. A step touches only the embedding rows of its batch.

python examples/recommender.py              # about half a minute
python examples/recommender.py --steps 20   # a quick look
"""

import argparse

import numpy as np

import weft as wf
from weft import models, optim
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1500)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--users", type=int, default=2000)
parser.add_argument("--items", type=int, default=1000)
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()

# Synthetic ratings from tastes that the model does not see: a user likes an item if their hidden vectors agree.
rng = np.random.default_rng(0)
tastes, traits = rng.normal(size=(options.users, 3)), rng.normal(size=(options.items, 3))


def make_ratings(n):
    users, items = rng.integers(0, options.users, n), rng.integers(0, options.items, n)
    liked = (tastes[users] * traits[items]).sum(axis=1) + 0.3 * rng.normal(size=n) > 0
    return users, items, liked.astype(np.float32)


train, test = make_ratings(200_000), make_ratings(20_000)

wf.manual_seed(0)
model = models.ncf(options.users, options.items, mf=8, layers=(32, 32, 16), sparse=True)
tables = [p for name, p in model.named_parameters() if name.startswith(("mf_", "mlp_"))]
others = [p for name, p in model.named_parameters() if not name.startswith(("mf_", "mlp_"))]
optimizers = [optim.SparseAdam(tables, lr=options.lr), optim.Adam(others, lr=options.lr)]


@wf.function
def step(users, items, liked):
    loss = F.binary_cross_entropy_with_logits(model(users, items), liked)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss


for number in range(1, options.steps + 1):
    rows = rng.integers(0, len(train[0]), options.batch)
    loss = step(*(wf.asarray(column[rows]) for column in train))
    if number % 250 == 0 or number == options.steps:
        print(f"step {number:4d}  loss {float(loss):.4f}")

users, items, liked = (wf.asarray(column) for column in test)
with wf.no_grad():
    scores = model(users, items).numpy()
right = ((scores > 0) == (test[2] > 0)).mean()
print(f"test accuracy {right:.2%} (a guess: {max(test[2].mean(), 1 - test[2].mean()):.2%})")
