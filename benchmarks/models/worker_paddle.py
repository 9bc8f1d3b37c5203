"""Train a model with PaddlePaddle: `python -m benchmarks.models.worker_paddle MODEL static`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import paddle
from paddle.nn import functional as F

from benchmarks.harness.protocol import serve
from benchmarks.models import functional
from benchmarks.models.configurations import CONFIGURATIONS, batches, weights


class Ops:
    """What the models are made of, in Paddle; images are (N, C, H, W)."""

    relu, relu6, tanh = staticmethod(F.relu), staticmethod(F.relu6), staticmethod(paddle.tanh)
    softmax, matmul = staticmethod(F.softmax), staticmethod(paddle.matmul)

    def gelu(self, x: Any) -> Any:
        return F.gelu(x, approximate=True)

    def image(self, x: Any) -> Any:
        return x

    def concat(self, parts: list[Any]) -> Any:
        return paddle.concat(parts, -1)

    def embedding(self, table: Any, index: Any) -> Any:
        return F.embedding(index, table)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        y = paddle.matmul(x, w, transpose_y=True)
        return y if b is None else y + b

    def conv(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        return F.conv2d(x, w, b, stride, padding, 1, groups)

    def batch_norm(self, x: Any, p: Any, name: str) -> Any:
        mean, var = p[f"{name}.running_mean"], p[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, p[f"{name}.weight"], p[f"{name}.bias"], True, 0.9, 1e-5)

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return F.max_pool2d(x, size, stride, padding)

    def mean_pool(self, x: Any) -> Any:
        return x.mean((2, 3))

    def flatten(self, x: Any) -> Any:
        return paddle.flatten(x, 1)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)

    def causal_attention(self, qkv: Any, heads: int) -> Any:
        n, t, w = qkv.shape
        q, k, v = (a.reshape((n, t, heads, -1)) for a in paddle.split(qkv, 3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).reshape((n, t, w // 3))

    def lstm(self, x: Any, w: Any, u: Any, b: Any, c: Any, reverse: bool) -> Any:
        projected = paddle.unbind(self.linear(x, w, b + c), 1)
        h = s = paddle.zeros((x.shape[0], u.shape[1]))
        hs = []
        for z in projected[::-1] if reverse else projected:
            i, f, g, o = paddle.split(z + paddle.matmul(h, u, transpose_y=True), 4, -1)
            s = F.sigmoid(f) * s + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(s)
            hs.append(h)
        return paddle.stack(hs[::-1] if reverse else hs, 1)

    def cross_entropy(self, scores: Any, target: Any) -> Any:
        return F.cross_entropy(scores.reshape((-1, scores.shape[-1])), target.reshape((-1,)))

    def binary_cross_entropy(self, scores: Any, target: Any) -> Any:
        return F.binary_cross_entropy_with_logits(scores, target)


class Loss(paddle.nn.Layer):
    """A model and its loss; parameters keep Weft's names in `named`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model, self.named = name, {}
        for k, a in weights().items():
            if k.endswith(("num_batches_tracked", "lm_head.weight")):
                continue
            safe = k.replace(".", "_")
            if "running_" in k:
                self.register_buffer(safe, paddle.to_tensor(a))
            else:
                initial = paddle.nn.initializer.Assign(a)
                self.add_parameter(safe, self.create_parameter(a.shape, default_initializer=initial))
            self.named[k] = getattr(self, safe)

    def forward(self, first: Any, second: Any, third: Any = None) -> Any:  # no *data: `to_static` cannot take it
        data = (first, second) if third is None else (first, second, third)
        return functional.loss(self.model, Ops(), self.named, data)


def main() -> None:
    name, mode = sys.argv[1:3]
    c = CONFIGURATIONS[name]
    paddle.set_device("cpu")
    layer = Loss(name)
    make = {
        "sgd": lambda p: paddle.optimizer.Momentum(c.rate, 0.9, p),
        "adam": lambda p: paddle.optimizer.Adam(c.rate, parameters=p),
        "adamw": lambda p: paddle.optimizer.AdamW(c.rate, parameters=p, weight_decay=1e-2),
    }
    opt = make[c.optimizer](layer.parameters())
    data = itertools.cycle([[paddle.to_tensor(d) for d in b] for b in batches(name)])
    run = paddle.jit.to_static(layer, full_graph=True, backend=None) if mode == "static" else layer

    def step() -> float:
        loss = run(*next(data))
        opt.clear_grad()
        loss.backward()
        opt.step()
        return float(loss)

    serve(step, f"paddle {paddle.__version__} {mode}")


if __name__ == "__main__":
    main()
