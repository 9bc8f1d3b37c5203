"""Train a model with MLX: `python -m benchmarks.models.worker_mlx MODEL compile`."""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

from benchmarks.harness.protocol import serve
from benchmarks.models import functional
from benchmarks.models.configurations import CONFIGURATIONS, batches, weights


class Ops:
    """What the models are made of, in MLX; images are (N, H, W, C), filters (O, H, W, I)."""

    def __init__(self) -> None:
        self.running: dict[str, Any] = {}

    relu, relu6, gelu = staticmethod(nn.relu), staticmethod(nn.relu6), staticmethod(nn.gelu_approx)
    tanh, matmul = staticmethod(mx.tanh), staticmethod(mx.matmul)

    def softmax(self, x: Any) -> Any:
        return mx.softmax(x, -1)

    def image(self, x: Any) -> Any:
        return x  # `main` has converted it to channels-last

    def concat(self, parts: list[Any]) -> Any:
        return mx.concatenate(parts, -1)

    def embedding(self, table: Any, index: Any) -> Any:
        return table[index]

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T if b is None else mx.addmm(b, x, w.T)

    def conv(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        y = mx.conv2d(x, w, stride, padding, 1, groups)
        return y if b is None else y + b

    def batch_norm(self, x: Any, p: Any, name: str) -> Any:
        axes = (0, 1, 2)
        mean, var = mx.mean(x, axes), mx.var(x, axes)
        for key, new in ((f"{name}.running_mean", mean), (f"{name}.running_var", mx.var(x, axes, ddof=1))):
            self.running[key] = 0.9 * p[key] + 0.1 * new
        return p[f"{name}.weight"] * ((x - mean) * mx.rsqrt(var + 1e-5)) + p[f"{name}.bias"]

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2d(size, stride, padding)(x)

    def mean_pool(self, x: Any) -> Any:
        return mx.mean(x, (1, 2))

    def flatten(self, x: Any) -> Any:
        return mx.flatten(mx.transpose(x, (0, 3, 1, 2)), 1)  # the order of the weights

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return mx.fast.layer_norm(x, w, b, 1e-5)

    def causal_attention(self, qkv: Any, heads: int) -> Any:
        n, t, w = qkv.shape
        size = w // 3 // heads
        q, k, v = (mx.swapaxes(a.reshape(n, t, heads, size), 1, 2) for a in mx.split(qkv, 3, -1))
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=size**-0.5, mask="causal")
        return mx.swapaxes(y, 1, 2).reshape(n, t, w // 3)

    def lstm(self, x: Any, w: Any, u: Any, b: Any, c: Any, reverse: bool) -> Any:
        layer = nn.LSTM(1, 1)  # as small as can be: what it is made with is replaced
        layer.Wx, layer.Wh, layer.bias = w, u, b + c
        hs, _ = layer(x[:, ::-1] if reverse else x)
        return hs[:, ::-1] if reverse else hs

    def cross_entropy(self, scores: Any, target: Any) -> Any:
        return nn.losses.cross_entropy(scores, target, reduction="mean")

    def binary_cross_entropy(self, scores: Any, target: Any) -> Any:
        return nn.losses.binary_cross_entropy(scores, target)


OPTIMIZERS = {
    "sgd": lambda rate: optimizers.SGD(rate, 0.9),
    "adam": lambda rate: optimizers.Adam(rate, bias_correction=True),
    "adamw": lambda rate: optimizers.AdamW(rate, weight_decay=1e-2, bias_correction=True),
}


def main() -> None:
    name = sys.argv[1]
    c = CONFIGURATIONS[name]
    mx.set_default_device(mx.cpu)
    channels_last = lambda a: mx.array(np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if a.ndim == 4 else a)
    loaded = {
        k: channels_last(a) for k, a in weights().items() if not k.endswith(("num_batches_tracked", "lm_head.weight"))
    }
    statistics = {k: a for k, a in loaded.items() if "running_" in k}
    params = {k: a for k, a in loaded.items() if k not in statistics}
    optimizer = OPTIMIZERS[c.optimizer](c.rate)
    optimizer.init(params)
    data = itertools.cycle([[channels_last(d) for d in b] for b in batches(name)])
    state = [params, statistics, optimizer.state]

    def loss_of(params: Any, *data: Any) -> Any:
        ops = Ops()
        return functional.loss(name, ops, params | statistics, data), ops.running

    @partial(mx.compile, inputs=state, outputs=state)
    def step(*data: Any) -> Any:
        (loss, running), g = mx.value_and_grad(loss_of)(params, *data)
        params.update(optimizer.apply_gradients(g, params))
        statistics.update(running)
        return loss

    def run() -> float:
        loss = step(*next(data))
        mx.eval(state, loss)
        return loss.item()

    serve(run, f"mlx {importlib.metadata.version('mlx')} compile")


if __name__ == "__main__":
    main()
