"""A program that uses the public API widely. `tests/typing/test_checkers.py` has type checkers read it; it also runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import weft as wf
from weft import data, nn, optim
from weft.nn import functional as F
from weft.typing import ArrayLike, Axis, DTypeLike, ShapeLike


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(wf.ones(width))

    def forward(self, x: wf.Tensor) -> wf.Tensor:
        h = F.gelu(self.expand(self.norm(x)))
        return x + self.scale * self.dropout(self.shrink(h))


class Classifier(nn.Module):
    """A few blocks between two projections."""

    def __init__(self, features: int, width: int, classes: int, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.leave = nn.Linear(width, classes)

    def forward(self, x: wf.Tensor) -> wf.Tensor:
        y: wf.Tensor = self.blocks(F.relu(self.enter(x)))
        return F.log_softmax(self.leave(y), axis=-1)


def standardize(x: ArrayLike, axis: Axis = 0, eps: float = 1e-6) -> wf.Tensor:
    """Zero mean and unit variance along `axis`."""
    t = wf.asarray(x)
    return (t - t.mean(axis, keepdims=True)) / (t.std(axis=axis, keepdims=True) + eps)


def make(shape: ShapeLike, dtype: DTypeLike = wf.float32) -> wf.Tensor:
    """A tensor of `shape` with random elements."""
    return wf.zeros(shape, dtype=dtype) + wf.randn(shape, dtype=dtype)


def array_functions() -> wf.Tensor:
    """Functions and methods of every family."""
    x = make((4, 3))
    y = wf.concat([x, x * 2.0, wf.stack([x, x])[0]], axis=0).reshape(-1, 3)
    y = wf.where(y > 0, wf.sqrt(wf.abs(y)), -wf.exp(y)).clip(-1.0, 1.0)
    values, indices = wf.topk(y.flatten(), 3)
    order = wf.argsort(y, axis=1, descending=True)
    gathered = wf.take_along_axis(y, order, axis=1)
    total = gathered.sum() + values.max() + indices.astype(wf.float32).mean()
    matrix = y.T @ y + wf.eye(3)
    total += wf.linalg.solve(matrix, wf.ones(3)).sum() + wf.linalg.det(matrix)
    decomposition = wf.linalg.svd(matrix, full_matrices=False)
    total += decomposition.S.sum() + wf.fft.rfft(y[:, 0]).real.sum()
    total += wf.einsum("ij,jk->ik", y, matrix).trace() + y[1:3, ..., None].squeeze(-1).sum()
    return total


def derivatives() -> tuple[wf.Tensor, wf.Tensor]:
    """Gradients by tape and by transformation."""
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    y = (x**2).sum()
    y.backward()
    (again,) = wf.grad((x**3).sum(), [x])
    slope = wf.grad_fn(lambda t: wf.sin(t).sum())(x.detach())
    assert isinstance(slope, wf.Tensor)
    with wf.no_grad():
        x -= 0.1 * again
    return slope, wf.vmap(lambda row: row * 2.0)(wf.ones((2, 3)))


def batches(images: wf.Tensor, labels: wf.Tensor, size: int) -> Iterator[tuple[wf.Tensor, wf.Tensor]]:
    """Pairs of images and labels, shuffled."""
    loader = data.DataLoader(data.TensorDataset(images, labels), batch_size=size, shuffle=True)
    yield from loader


def train(steps: int = 3) -> float:
    """A captured training step, a scheduler and an evaluation."""
    wf.manual_seed(0)
    model = Classifier(features=8, width=16, classes=3)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    @wf.function
    def step(x: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    images = standardize(np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32))
    labels = wf.randint(0, 3, (32,))
    last = 0.0
    for _ in range(steps):
        for x, y in batches(images, labels, 16):
            last = step(x, y).item()
        scheduler.step()
    model.eval()
    right: wf.Tensor = wf.argmax(model(images), axis=1) == labels
    return last + float(right.astype(wf.float32).mean())


def convolutions() -> wf.Tensor:
    """Image layers and functions, also those whose result depends on a flag."""
    image = wf.randn(2, 3, 16, 16)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    features: wf.Tensor = net(image)
    pooled, places = F.max_pool2d(features, 2, return_indices=True)
    smooth = F.interpolate(F.avg_pool2d(features, 2), scale_factor=2.0, mode="nearest")
    return F.max_unpool2d(pooled, places, 2).sum() + smooth.sum() + F.max_pool2d(features, 2).sum()


def graph() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """A declared graph and a session."""
    g = wf.Graph()
    with g.as_default():
        x = wf.placeholder(wf.float32, (None, 2), name="x")
        w = wf.Variable(wf.ones((2, 1)), name="w")
        y = wf.tanh(x @ w)
    with wf.Session(g) as session:
        result = session.run(y, {x: np.ones((3, 2), np.float32)})
    return np.asarray(result)


if __name__ == "__main__":
    print(float(array_functions()), derivatives(), train(), float(convolutions()), graph())
