"""Train a model with TensorFlow: `python -m benchmarks.models.worker_tf MODEL function`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.protocol import serve, threads
from benchmarks.models import functional
from benchmarks.models.configurations import CONFIGURATIONS, batches, weights


class Ops:
    """What the models are made of, in TensorFlow; images are (N, H, W, C), filters (H, W, I, O)."""

    def __init__(self) -> None:
        self.running: dict[str, Any] = {}

    relu, relu6, tanh = staticmethod(tf.nn.relu), staticmethod(tf.nn.relu6), staticmethod(tf.tanh)
    softmax, matmul = staticmethod(tf.nn.softmax), staticmethod(tf.matmul)

    def gelu(self, x: Any) -> Any:
        return tf.nn.gelu(x, approximate=True)

    def image(self, x: Any) -> Any:
        return x  # `main` has converted it to channels-last

    def concat(self, parts: list[Any]) -> Any:
        return tf.concat(parts, -1)

    def embedding(self, table: Any, index: Any) -> Any:
        return tf.gather(table, index)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        rows = tf.reshape(x, (-1, x.shape[-1]))
        y = tf.matmul(rows, w, transpose_b=True)
        y = y if b is None else tf.nn.bias_add(y, b)
        return tf.reshape(y, (*x.shape[:-1], w.shape[0]))

    def conv(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        if padding:
            x = tf.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
        if groups > 1:
            # (H, W, 1, C) here, (H, W, C, 1) there: the same numbers in the same order
            filters = tf.reshape(w, (*w.shape[:2], groups, 1))
            return tf.nn.depthwise_conv2d(x, filters, (1, stride, stride, 1), "VALID")
        y = tf.nn.conv2d(x, w, stride, "VALID")
        return y if b is None else tf.nn.bias_add(y, b)

    def batch_norm(self, x: Any, p: Any, name: str) -> Any:
        # with `exponential_avg_factor` it returns the running statistics to be
        y, mean, var = tf.compat.v1.nn.fused_batch_norm(
            x, p[f"{name}.weight"], p[f"{name}.bias"], p[f"{name}.running_mean"], p[f"{name}.running_var"],
            epsilon=1e-5, exponential_avg_factor=0.1,
        )  # fmt: skip
        self.running[f"{name}.running_mean"], self.running[f"{name}.running_var"] = mean, var
        return y

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        if padding:  # what is pooled here is not negative
            x = tf.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
        return tf.nn.max_pool2d(x, size, stride, "VALID")

    def mean_pool(self, x: Any) -> Any:
        return tf.reduce_mean(x, (1, 2))

    def flatten(self, x: Any) -> Any:
        return tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (x.shape[0], -1))  # the order of the weights

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        mean, var = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, var, b, w, 1e-5)

    def causal_attention(self, qkv: Any, heads: int) -> Any:
        n, t, w = qkv.shape
        size = w // 3 // heads
        q, k, v = tf.unstack(tf.transpose(tf.reshape(qkv, (n, t, 3, heads, size)), (2, 0, 3, 1, 4)))
        scores = tf.matmul(q, k, transpose_b=True) * size**-0.5
        scores = tf.where(np.tri(t, dtype=bool), scores, -np.inf)
        y = tf.matmul(tf.nn.softmax(scores), v)
        return tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (n, t, w // 3))

    def lstm(self, x: Any, w: Any, u: Any, b: Any, c: Any, reverse: bool) -> Any:
        projected = tf.unstack(self.linear(x, w, b + c), axis=1)
        h = s = tf.zeros((x.shape[0], u.shape[1]))
        hs = []
        for z in reversed(projected) if reverse else projected:
            i, f, g, o = tf.split(z + tf.matmul(h, u, transpose_b=True), 4, -1)
            s = tf.sigmoid(f) * s + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(s)
            hs.append(h)
        return tf.stack(hs[::-1] if reverse else hs, axis=1)

    def cross_entropy(self, scores: Any, target: Any) -> Any:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, scores))

    def binary_cross_entropy(self, scores: Any, target: Any) -> Any:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(target, scores))


class Momentum:
    """TensorFlow's own fused update."""

    def __init__(self, params: dict[str, Any], rate: float) -> None:
        self.rate = rate
        self.speed = {k: tf.Variable(tf.zeros_like(p)) for k, p in params.items()}

    def apply(self, params: dict[str, Any], grads: dict[str, Any]) -> None:
        for k, p in params.items():
            tf.raw_ops.ResourceApplyMomentum(
                var=p.handle,
                accum=self.speed[k].handle,
                lr=self.rate,
                grad=tf.convert_to_tensor(grads[k]),
                momentum=0.9,
            )


class Adam:
    """TensorFlow's own fused update; its epsilon is that of the corrected mean square, ours that of the plain one."""

    def __init__(self, params: dict[str, Any], rate: float, decay: float = 0.0) -> None:
        self.rate, self.decay = rate, decay
        self.m, self.v = ({k: tf.Variable(tf.zeros_like(p)) for k, p in params.items()} for _ in range(2))
        self.power1, self.power2 = tf.Variable(1.0), tf.Variable(1.0)

    def apply(self, params: dict[str, Any], grads: dict[str, Any]) -> None:
        self.power1.assign(self.power1 * 0.9)
        self.power2.assign(self.power2 * 0.999)
        power1, power2 = self.power1.read_value(), self.power2.read_value()
        for k, p in params.items():
            if self.decay:
                p.assign_sub(self.rate * self.decay * p)
            tf.raw_ops.ResourceApplyAdam(
                var=p.handle, m=self.m[k].handle, v=self.v[k].handle, beta1_power=power1, beta2_power=power2, lr=self.rate,
                beta1=0.9, beta2=0.999, epsilon=1e-8 * tf.sqrt(1 - power2), grad=tf.convert_to_tensor(grads[k]),
            )  # fmt: skip


def main() -> None:
    name = sys.argv[1]
    c = CONFIGURATIONS[name]
    tf.config.threading.set_intra_op_parallelism_threads(threads())
    tf.config.threading.set_inter_op_parallelism_threads(threads())
    hwio = lambda a: np.ascontiguousarray(a.transpose(2, 3, 1, 0)) if a.ndim == 4 else a
    loaded = {
        k: tf.Variable(hwio(a))
        for k, a in weights().items()
        if not k.endswith(("num_batches_tracked", "lm_head.weight"))
    }
    params = {k: v for k, v in loaded.items() if "running_" not in k}
    make = {"sgd": Momentum, "adam": Adam, "adamw": lambda p, rate: Adam(p, rate, 1e-2)}
    opt: Any = make[c.optimizer](params, c.rate)
    data = batches(name)
    for b in data:
        if c.kind == "image":
            b[0] = np.ascontiguousarray(b[0].transpose(0, 2, 3, 1))
    tensors = itertools.cycle([[tf.constant(d) for d in b] for b in data])

    @tf.function
    def step(*data: Any) -> Any:
        ops = Ops()
        with tf.GradientTape() as tape:
            loss = functional.loss(name, ops, loaded, data)
        opt.apply(params, tape.gradient(loss, params))
        for key, value in ops.running.items():
            loaded[key].assign(value)
        return loss

    serve(lambda: float(step(*next(tensors))), f"tensorflow {tf.__version__} function")


if __name__ == "__main__":
    main()
