"""Train a perceptron (or the GPT, slowly) with MLX: `python -m benchmarks.models.worker_mlx MODEL compile`."""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
from typing import Any

import mlx.core as mx

from benchmarks.harness.protocol import serve
from benchmarks.models import functional
from benchmarks.models.configurations import CONFIGURATIONS, batches, weights


class Ops:
    """What perceptrons and the GPT are made of, in MLX."""

    def relu(self, x: Any) -> Any:
        return mx.maximum(x, 0)

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def embedding(self, table: Any, index: Any) -> Any:
        return table[index]

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T if b is None else mx.addmm(b, x, w.T)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return mx.fast.layer_norm(x, w, b, 1e-5)

    def causal_attention(self, qkv: Any, heads: int) -> Any:
        n, t, w = qkv.shape
        size = w // 3 // heads
        q, k, v = (mx.swapaxes(a.reshape(n, t, heads, size), 1, 2) for a in mx.split(qkv, 3, -1))
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=size**-0.5, mask="causal")
        return mx.swapaxes(y, 1, 2).reshape(n, t, w // 3)

    def cross_entropy(self, scores: Any, target: Any) -> Any:
        score = mx.take_along_axis(scores, target[..., None], -1)[..., 0]
        return (mx.logsumexp(scores, -1) - score).mean()


def update(kind: str, rate: float, p: Any, g: Any, state: Any) -> Any:
    """(parameters, state) after one step of the optimiser."""
    if kind == "sgd":
        speed = {k: 0.9 * state["m"][k] + g[k] for k in p}
        return {k: p[k] - rate * speed[k] for k in p}, {"m": speed}
    t = state["t"] + 1
    m = {k: 0.9 * state["m"][k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * state["v"][k] + 0.001 * g[k] * g[k] for k in p}
    size, scale = rate / (1 - 0.9**t), 1 / mx.sqrt(1 - 0.999**t)
    kept = 1 - rate * 1e-2
    return {k: kept * p[k] - size * m[k] / (mx.sqrt(v[k]) * scale + 1e-8) for k in p}, {"m": m, "v": v, "t": t}


def main() -> None:
    name = sys.argv[1]
    c = CONFIGURATIONS[name]
    mx.set_default_device(mx.cpu)
    params = {k: mx.array(a) for k, a in weights().items() if k != "lm_head.weight"}
    zeros = lambda: {k: mx.zeros_like(a) for k, a in params.items()}
    state = {"m": zeros()} if c.optimizer == "sgd" else {"m": zeros(), "v": zeros(), "t": mx.array(0.0)}
    data = itertools.cycle([[mx.array(d) for d in b] for b in batches(name)])
    loss_of = lambda params, *data: functional.loss(name, Ops(), params, data)

    def step(params: Any, state: Any, *data: Any) -> Any:
        loss, g = mx.value_and_grad(loss_of)(params, *data)
        params, state = update(c.optimizer, c.rate, params, g, state)
        return params, state, loss

    compiled = mx.compile(step)
    now = [params, state]

    def run() -> float:
        *now[:], loss = compiled(*now, *next(data))
        mx.eval(now, loss)
        return loss.item()

    serve(run, f"mlx {importlib.metadata.version('mlx')} compile")


if __name__ == "__main__":
    main()
