"""A GAN in two dimensions: a generator learns to place points on a ring of eight clusters.

python examples/gan.py              # about half a minute
python examples/gan.py --steps 20   # a quick look
"""

import argparse
import math

import numpy as np

import weft as wf
from weft import models, optim
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3000)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--noise", type=int, default=8, help="numbers the generator starts from")
parser.add_argument("--lr", type=float, default=1e-3)
options = parser.parse_args()

CLUSTERS, SPREAD = 8, 0.05
angles = 2 * math.pi * np.arange(CLUSTERS) / CLUSTERS
centres = np.stack([np.cos(angles), np.sin(angles)], axis=1)

wf.manual_seed(0)
rng = np.random.default_rng(0)
generator = models.mlp(options.noise, 2, hidden=(64, 64))
critic = models.mlp(2, 1, hidden=(64, 64))
generator_optimizer = optim.Adam(generator.parameters(), lr=options.lr, betas=(0.5, 0.999))
critic_optimizer = optim.Adam(critic.parameters(), lr=options.lr, betas=(0.5, 0.999))


def real_points(n):
    points = centres[rng.integers(0, CLUSTERS, n)] + SPREAD * rng.normal(size=(n, 2))
    return wf.asarray(points.astype(np.float32))


@wf.function
def step(real):
    """One step of the critic (which points are real?), one of the generator (which points pass as real?)."""
    fake = generator(wf.randn(len(real), options.noise))
    critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    generator_loss = F.softplus(-critic(fake)).mean()
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()
    return critic_loss, generator_loss


for number in range(1, options.steps + 1):
    critic_loss, generator_loss = step(real_points(options.batch))
    if number % 500 == 0 or number == options.steps:
        print(f"step {number:4d}  critic {float(critic_loss):.4f}  generator {float(generator_loss):.4f}")

with wf.no_grad():
    points = generator(wf.randn(2000, options.noise)).numpy()
distances = np.linalg.norm(points[:, None] - centres, axis=2)
close = distances.min(axis=1) < 4 * SPREAD
covered = len(set(distances.argmin(axis=1)[close].tolist()))
print(f"{close.mean():.2%} of the points lie in a cluster; {covered} of {CLUSTERS} clusters are covered")
