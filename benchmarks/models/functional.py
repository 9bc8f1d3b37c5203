"""The models as functions of named weights, written once for frameworks whose users write functions (JAX, TensorFlow …).

A framework brings an `ops` object (see `worker_jax`): images are whatever memory format it prefers; `p` maps Weft's names
to its arrays. `ops.batch_norm` normalises with the batch's statistics and remembers the running ones it should become.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.models.configurations import CONFIGURATIONS

Weights = Mapping[str, Any]


def loss(name: str, ops: Any, p: Weights, data: Any) -> Any:
    """The loss of a configuration for (*inputs, target)."""
    c = CONFIGURATIONS[name]
    *inputs, target = data
    if c.kind == "ncf":
        return ops.binary_cross_entropy(ncf(ops, p, *inputs, len(c.arguments["layers"]) - 1), target)
    if c.kind == "mlp":
        out = mlp(ops, p, inputs[0], len(c.arguments["sizes"]) - 1)
    elif c.kind == "image":
        out = {"alexnet": alexnet, "vgg19": vgg19, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2}[
            c.arguments["name"]
        ](ops, p, ops.image(inputs[0]))
    elif c.kind == "gpt":
        out = gpt(ops, p, inputs[0], c.arguments["layers"], c.arguments["heads"])
    else:
        out = gnmt(ops, p, *inputs, c.arguments["layers"])
    return ops.cross_entropy(out, target)


def linear(ops: Any, p: Weights, name: str, x: Any) -> Any:
    return ops.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def conv(ops: Any, p: Weights, name: str, x: Any, stride: int, padding: int, groups: int = 1) -> Any:
    return ops.conv(x, p[f"{name}.weight"], p.get(f"{name}.bias"), stride, padding, groups)


def mlp(ops: Any, p: Weights, x: Any, layers: int) -> Any:
    for i in range(layers):
        x = linear(ops, p, str(2 * i), x)
        x = ops.relu(x) if i + 1 < layers else x
    return x


def ncf(ops: Any, p: Weights, users: Any, items: Any, layers: int) -> Any:
    rows = lambda name, index: ops.embedding(p[f"{name}.weight"], index)
    factors = rows("mf_user", users) * rows("mf_item", items)
    hidden = ops.concat([rows("mlp_user", users), rows("mlp_item", items)])
    for i in range(layers):
        hidden = ops.relu(linear(ops, p, f"mlp.{i}", hidden))
    return linear(ops, p, "final", ops.concat([factors, hidden]))[:, 0]


def gpt(ops: Any, p: Weights, tokens: Any, layers: int, heads: int) -> Any:
    norm = lambda name, x: ops.layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"])
    x = ops.embedding(p["wte.weight"], tokens) + p["wpe.weight"][: tokens.shape[1]]
    for i in range(layers):
        h = f"h.{i}"
        qkv = linear(ops, p, f"{h}.attn.c_attn", norm(f"{h}.ln_1", x))
        x = x + linear(ops, p, f"{h}.attn.c_proj", ops.causal_attention(qkv, heads))
        x = x + linear(ops, p, f"{h}.c_proj", ops.gelu(linear(ops, p, f"{h}.c_fc", norm(f"{h}.ln_2", x))))
    return ops.linear(norm("ln_f", x), p["wte.weight"], None)


def gnmt(ops: Any, p: Weights, source: Any, target: Any, layers: int) -> Any:
    def lstm(name: str, x: Any, suffix: str = "") -> Any:
        parts = [p[f"{name}.{part}_l0{suffix}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        return ops.lstm(x, *parts, reverse=bool(suffix))

    x = ops.embedding(p["encoder.embedding.weight"], source)
    first = "encoder.bidirectional"
    x = ops.concat([lstm(first, x), lstm(first, x, "_reverse")])
    for i in range(layers - 1):
        y = lstm(f"encoder.layers.{i}", x)
        x = y + x if i else y
    states = x
    x = lstm("decoder.first", ops.embedding(p["decoder.embedding.weight"], target))
    attention = "decoder.attention"
    queries, keys = linear(ops, p, f"{attention}.query", x), linear(ops, p, f"{attention}.key", states)
    hidden = ops.tanh(queries[:, :, None] + keys[:, None])
    context = ops.matmul(ops.softmax(linear(ops, p, f"{attention}.score", hidden)[..., 0]), states)
    for i in range(layers - 1):
        y = lstm(f"decoder.layers.{i}", ops.concat([x, context]))
        x = y + x if i else y
    return linear(ops, p, "decoder.output", x)


def alexnet(ops: Any, p: Weights, x: Any) -> Any:
    for i, stride, padding, pool in (
        (0, 4, 2, True),
        (3, 1, 2, True),
        (6, 1, 1, False),
        (8, 1, 1, False),
        (10, 1, 1, True),
    ):
        x = ops.relu(conv(ops, p, f"features.{i}", x, stride, padding))
        x = ops.max_pool(x, 3, 2, 0) if pool else x
    return _classify(ops, p, ops.flatten(x), (1, 4, 6))


def vgg19(ops: Any, p: Weights, x: Any) -> Any:
    at = 0
    for count in (2, 2, 4, 4, 4):
        for _ in range(count):
            x = ops.relu(conv(ops, p, f"features.{at}", x, 1, 1))
            at += 2
        x = ops.max_pool(x, 2, 2, 0)
        at += 1
    return _classify(ops, p, ops.flatten(x), (0, 3, 6))


def _classify(ops: Any, p: Weights, x: Any, places: tuple[int, int, int]) -> Any:
    for i in places[:2]:
        x = ops.relu(linear(ops, p, f"classifier.{i}", x))
    return linear(ops, p, f"classifier.{places[2]}", x)


def resnet50(ops: Any, p: Weights, x: Any) -> Any:
    norm = lambda name, x: ops.batch_norm(x, p, name)
    x = ops.max_pool(ops.relu(norm("bn1", conv(ops, p, "conv1", x, 2, 3))), 3, 2, 1)
    for i, count in enumerate((3, 4, 6, 3)):
        for j in range(count):
            b = f"layer{i + 1}.{j}"
            stride = 2 if i and not j else 1
            shortcut = x
            if not j:
                shortcut = norm(f"{b}.downsample.1", conv(ops, p, f"{b}.downsample.0", x, stride, 0))
            y = ops.relu(norm(f"{b}.bn1", conv(ops, p, f"{b}.conv1", x, 1, 0)))
            y = ops.relu(norm(f"{b}.bn2", conv(ops, p, f"{b}.conv2", y, stride, 1)))
            x = ops.relu(norm(f"{b}.bn3", conv(ops, p, f"{b}.conv3", y, 1, 0)) + shortcut)
    return linear(ops, p, "fc", ops.mean_pool(x))


def mobilenet_v2(ops: Any, p: Weights, x: Any) -> Any:
    def unit(name: str, x: Any, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        return ops.relu6(ops.batch_norm(conv(ops, p, f"{name}.0", x, stride, kernel // 2, groups), p, f"{name}.1"))

    x = unit("features.0", x, 3, 2)
    channels, at = 32, 1
    for expand, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            stride = first if i == 0 else 1
            b, hidden, k = f"features.{at}.conv", channels * expand, 0
            y = x
            if expand != 1:
                y, k = unit(f"{b}.0", y, 1), 1
            y = unit(f"{b}.{k}", y, 3, stride, hidden)
            y = ops.batch_norm(conv(ops, p, f"{b}.{k + 1}", y, 1, 0), p, f"{b}.{k + 2}")
            x = x + y if stride == 1 and channels == out else y
            channels, at = out, at + 1
    x = unit(f"features.{at}", x, 1)
    return linear(ops, p, "classifier.1", ops.mean_pool(x))
