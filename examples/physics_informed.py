"""Second-order gradients: a network learns the solution of y'' = -y, y(0) = 0, y'(0) = 1 from the equation alone.

python examples/physics_informed.py              # finds sin(x) to about two decimals
python examples/physics_informed.py --steps 20   # a quick look
"""

import argparse
import math

import numpy as np

import weft as wf
from weft import models, optim

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--points", type=int, default=128, help="places where the equation is checked, per step")
parser.add_argument("--end", type=float, default=math.pi, help="the solution is wanted from 0 to here")
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()

wf.manual_seed(0)
network = models.mlp(1, 1, hidden=(32, 32), activation="tanh")
optimizer = optim.Adam(network.parameters(), lr=options.lr)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)


def derivative(y, x):
    """dy/dx at each of many independent places; it can be differentiated again."""
    (slope,) = wf.grad(y.sum(), [x], create_graph=True)
    return slope


@wf.function
def step():
    x = (options.end * wf.rand(options.points, 1)).requires_grad_()
    y = network(x)
    equation = derivative(derivative(y, x), x) + y  # zero where y'' = -y

    zero = wf.zeros(1, 1).requires_grad_()
    start = network(zero)
    loss = (equation**2).mean() + (start**2).sum() + ((derivative(start, zero) - 1) ** 2).sum()

    optimizer.zero_grad()
    loss.backward()  # the third derivative of the network, by its weights
    optimizer.step()
    return loss


for number in range(1, options.steps + 1):
    loss = step()
    schedule.step()
    if number % 500 == 0 or number == options.steps:
        print(f"step {number:4d}  loss {float(loss):.6f}")

x = np.linspace(0, options.end, 200, dtype=np.float32).reshape(-1, 1)
with wf.no_grad():
    error = np.abs(network(wf.asarray(x)).numpy() - np.sin(x)).max()
print(f"largest difference from sin(x): {error:.4f}")
