"""Train a model with JAX: `python -m benchmarks.models.worker_jax MODEL jit`."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.harness.protocol import serve
from benchmarks.models import functional
from benchmarks.models.configurations import CONFIGURATIONS, batches, weights


class Ops:
    """What the models are made of, in JAX; images are (N, H, W, C), filters (H, W, I, O)."""

    def __init__(self) -> None:
        self.running: dict[str, Any] = {}

    relu, relu6, tanh, softmax, matmul = jax.nn.relu, jax.nn.relu6, jnp.tanh, jax.nn.softmax, jnp.matmul
    relu, relu6, tanh = staticmethod(relu), staticmethod(relu6), staticmethod(tanh)
    softmax, matmul = staticmethod(softmax), staticmethod(matmul)

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)

    def image(self, x: Any) -> Any:
        return x  # `main` has converted it to channels-last

    def concat(self, parts: list[Any]) -> Any:
        return jnp.concatenate(parts, -1)

    def embedding(self, table: Any, index: Any) -> Any:
        return table[index]

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        y = x @ w.T
        return y if b is None else y + b

    def conv(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        y = lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        return y if b is None else y + b

    def batch_norm(self, x: Any, p: Any, name: str) -> Any:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        n = math.prod(x.shape[:3])
        for key, new in ((f"{name}.running_mean", mean), (f"{name}.running_var", var * (n / (n - 1)))):
            self.running[key] = 0.9 * p[key] + 0.1 * new
        return (x - mean) * (lax.rsqrt(var + 1e-5) * p[f"{name}.weight"]) + p[f"{name}.bias"]

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        pads = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), pads)

    def mean_pool(self, x: Any) -> Any:
        return x.mean((1, 2))

    def flatten(self, x: Any) -> Any:
        return jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)  # the order of the weights

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-5) * w + b

    def causal_attention(self, qkv: Any, heads: int) -> Any:
        n, t, w = qkv.shape
        q, k, v = jnp.moveaxis(qkv.reshape(n, t, 3, heads, w // 3 // heads), 2, 0)
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(n, t, w // 3)

    def lstm(self, x: Any, w: Any, u: Any, b: Any, c: Any, reverse: bool) -> Any:
        projected = jnp.swapaxes(x @ w.T + (b + c), 0, 1)

        def cell(carry: Any, z: Any) -> Any:
            h, s = carry
            i, f, g, o = jnp.split(z + h @ u.T, 4, -1)
            s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), h

        start = jnp.zeros((x.shape[0], u.shape[1]), x.dtype)
        _, hs = lax.scan(cell, (start, start), projected, reverse=reverse)
        return jnp.swapaxes(hs, 0, 1)

    def cross_entropy(self, scores: Any, target: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), target[..., None], -1).mean()

    def binary_cross_entropy(self, scores: Any, target: Any) -> Any:
        return (jnp.maximum(scores, 0) - scores * target + jnp.log1p(jnp.exp(-jnp.abs(scores)))).mean()


def is_statistic(key: str) -> bool:
    return "running_" in key


def update(kind: str, lr: float, p: Any, g: Any, state: Any) -> Any:
    """(parameters, state) after one step of the optimiser."""
    tree = jax.tree.map
    if kind == "sgd":
        speed = tree(lambda m, d: 0.9 * m + d, state["m"], g)
        return tree(lambda a, m: a - lr * m, p, speed), state | {"m": speed}
    t = state["t"] + 1
    m = tree(lambda a, d: 0.9 * a + 0.1 * d, state["m"], g)
    v = tree(lambda a, d: 0.999 * a + 0.001 * d * d, state["v"], g)
    rate, scale = lr / (1 - 0.9**t), 1 / jnp.sqrt(1 - 0.999**t)
    kept = 1 - lr * 1e-2 if kind == "adamw" else 1.0
    new = tree(lambda a, b, c: kept * a - rate * b / (jnp.sqrt(c) * scale + 1e-8), p, m, v)
    return new, {"m": m, "v": v, "t": t}


def main() -> None:
    name = sys.argv[1]
    c = CONFIGURATIONS[name]
    hwio = lambda a: jnp.array(np.ascontiguousarray(a.transpose(2, 3, 1, 0)) if a.ndim == 4 else a)
    loaded = {k: hwio(a) for k, a in weights().items() if not k.endswith(("num_batches_tracked", "lm_head.weight"))}
    statistics = {k: a for k, a in loaded.items() if is_statistic(k)}
    params = {k: a for k, a in loaded.items() if not is_statistic(k)}
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    state = {"m": zeros()} if c.optimizer == "sgd" else {"m": zeros(), "v": zeros(), "t": jnp.zeros(())}
    data = batches(name)
    for b in data:
        if c.kind == "image":
            b[0] = np.ascontiguousarray(b[0].transpose(0, 2, 3, 1))
    arrays = itertools.cycle([[jnp.array(d) for d in b] for b in data])

    def loss_of(params: Any, statistics: Any, *data: Any) -> Any:
        ops = Ops()
        return functional.loss(name, ops, params | statistics, data), ops.running

    def step(params: Any, statistics: Any, state: Any, *data: Any) -> Any:
        (loss, running), g = jax.value_and_grad(loss_of, has_aux=True)(params, statistics, *data)
        params, state = update(c.optimizer, c.rate, params, g, state)
        return params, running, state, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    now = [params, statistics, state]

    def run() -> float:
        *now[:], loss = compiled(*now, *next(arrays))
        return float(loss)

    serve(run, f"jax {jax.__version__} jit")


if __name__ == "__main__":
    main()
