"""A recommender whose tables are spread over server processes, which hold and update the rows.

python examples/sharded_embedding.py              # about half a minute
python examples/sharded_embedding.py --steps 20   # a quick look
"""

import argparse
from functools import partial

import numpy as np

import weft as wf
from weft import nn, optim
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1500)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--users", type=int, default=2000)
parser.add_argument("--items", type=int, default=1000)
parser.add_argument("--servers", type=int, default=2)
options = parser.parse_args()

# Synthetic ratings from tastes that the model does not see: a user likes an item if their hidden vectors agree.
rng = np.random.default_rng(0)
tastes, traits = rng.normal(size=(options.users, 3)), rng.normal(size=(options.items, 3))


def make_ratings(n):
    users, items = rng.integers(0, options.users, n), rng.integers(0, options.items, n)
    liked = (tastes[users] * traits[items]).sum(axis=1) > 0
    return wf.tensor(users), wf.tensor(items), wf.tensor(liked.astype(np.float32))


with wf.distributed.Cluster(ps=options.servers) as cluster:
    make = partial(wf.distributed.Embedding, optimizer=partial(optim.Adagrad, lr=0.1), cluster=cluster)
    users = make(options.users, 8, init=nn.init.normal(0.1, seed=1))
    items = make(options.items, 8, init=nn.init.normal(0.1, seed=2), cache_rows=options.items, staleness=2)
    bias = nn.Parameter(wf.zeros(1))  # what is not a table stays here
    optimizer = optim.Adam([bias], lr=1e-3)

    def score(user, item):
        return (users(user) * items(item)).sum(axis=1) + bias

    for step in range(1, options.steps + 1):
        user, item, liked = make_ratings(options.batch)
        loss = F.binary_cross_entropy_with_logits(score(user, item), liked)
        loss.backward()
        for each in (users, items, optimizer):
            each.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step:5}  loss {loss.item():.4f}")

    users.eval(), items.eval()
    user, item, liked = make_ratings(5000)
    with wf.no_grad():
        right = ((score(user, item) > 0) == (liked > 0.5)).astype(wf.float32).mean().item()
    print(f"test accuracy {100 * right:.2f}%")
    print(f"rows that were updated: {users.info()['rows']} users, {items.info()['rows']} items")
