"""Actor-critic: walkers on a grid learn the way to the goal around a wall. The environment is thirty lines of NumPy.

python examples/actor_critic.py              # every walker finds the goal, in seconds
python examples/actor_critic.py --steps 20   # a quick look
"""

import argparse

import numpy as np

import weft as wf
from weft import models, nn, optim
from weft.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--walkers", type=int, default=64, help="environments that run side by side")
parser.add_argument("--horizon", type=int, default=8, help="moves between two updates")
parser.add_argument("--discount", type=float, default=0.95)
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()

SIZE, GOAL, PATIENCE = 6, (5, 5), 50
WALL = {(3, column) for column in range(1, SIZE)}  # one gap, at the left
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Grid:
    """Many walkers at once. A move costs 0.02, the goal gives 1; who reaches it, or is tired, starts again anywhere."""

    def __init__(self, walkers, rng):
        self.rng = rng
        self.free = np.array(
            [(r, c) for r in range(SIZE) for c in range(SIZE) if (r, c) not in WALL and (r, c) != GOAL]
        )
        self.places = self.free[rng.integers(0, len(self.free), walkers)]
        self.age = np.zeros(walkers, int)

    def seen(self):
        """What a walker sees: its place, as one of SIZE * SIZE."""
        return np.eye(SIZE * SIZE, dtype=np.float32)[self.places[:, 0] * SIZE + self.places[:, 1]]

    def move(self, actions):
        """Returns (reward, whether the walk is over)."""
        wanted = np.clip(self.places + MOVES[actions], 0, SIZE - 1)
        blocked = np.array([tuple(place) in WALL for place in wanted.tolist()])
        self.places = np.where(blocked[:, None], self.places, wanted)
        self.age += 1
        arrived = (self.places == GOAL).all(axis=1)
        over = arrived | (self.age >= PATIENCE)
        self.places[over] = self.free[self.rng.integers(0, len(self.free), over.sum())]
        self.age[over] = 0
        return np.where(arrived, 1.0, -0.02).astype(np.float32), over


wf.manual_seed(0)
rng = np.random.default_rng(0)
model = models.mlp(SIZE * SIZE, len(MOVES) + 1, hidden=(64,))  # scores of the moves, and the value of the place
optimizer = optim.Adam(model.parameters(), lr=options.lr)


@wf.function
def judge(seen):
    with wf.no_grad():
        out = model(seen)
        return F.softmax(out[:, :-1], axis=-1), out[:, -1]


@wf.function
def learn(seen, actions, returns):
    out = model(seen)
    logits, values = out[:, :-1], out[:, -1]
    chances = F.log_softmax(logits, axis=-1)
    chosen = wf.take_along_axis(chances, actions.reshape(-1, 1), axis=1).reshape(-1)
    advantage = (returns - values).detach()
    entropy = -(chances.exp() * chances).sum(axis=-1).mean()
    loss = -(advantage * chosen).mean() + 0.5 * F.mse_loss(values, returns) - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def draw(chances):
    """One move per walker, by its chances."""
    return (chances.cumsum(axis=1) < rng.random((len(chances), 1))).sum(axis=1).clip(max=len(MOVES) - 1)


def evaluate(walkers=200):
    """The share of walkers that reach the goal within PATIENCE moves when each takes the likeliest move."""
    grid = Grid(walkers, np.random.default_rng(1))
    reached, moves = np.zeros(walkers, bool), np.zeros(walkers)
    for _ in range(PATIENCE):
        chances, _ = judge(wf.asarray(grid.seen()))
        reward, _ = grid.move(chances.numpy().argmax(axis=1))
        moves += ~reached
        reached |= reward > 0
    return reached.mean(), moves[reached].mean() if reached.any() else float("nan")


grid = Grid(options.walkers, rng)
for number in range(1, options.steps + 1):
    steps = []
    for _ in range(options.horizon):
        seen = grid.seen()
        actions = draw(judge(wf.asarray(seen))[0].numpy())
        steps.append((seen, actions, *grid.move(actions)))
    _, future = judge(wf.asarray(grid.seen()))
    total, returns = future.numpy(), []
    for _, _, reward, over in reversed(steps):
        total = reward + options.discount * np.where(over, 0.0, total).astype(np.float32)
        returns.insert(0, total)
    loss = learn(
        wf.asarray(np.concatenate([seen for seen, *_ in steps])),
        wf.asarray(np.concatenate([actions for _, actions, *_ in steps])),
        wf.asarray(np.concatenate(returns)),
    )
    if number % 100 == 0 or number == options.steps:
        rewards = np.mean([reward for _, _, reward, _ in steps])
        print(f"step {number:4d}  loss {float(loss):+.4f}  reward per move {rewards:+.4f}")

reached, moves = evaluate()
print(f"goal reached {reached:.2%}, in {moves:.1f} moves on average")
