"""The models in PyTorch, written out (no torchvision), with the names of Weft's so that its weights load as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models.configurations import CONFIGURATIONS


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for i, (width, count) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True)):
            blocks = []
            for j in range(count):
                blocks.append(Bottleneck(channels, width, 2 if i and not j else 1))
                channels = 4 * width
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        for i in range(4):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def _conv(i: int, o: int, k: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU6(True)
    )


class Inverted(nn.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
        super().__init__()
        h = i * expand
        layers: list[Any] = [] if expand == 1 else [_conv(i, h, 1)]
        self.conv = nn.Sequential(*layers, _conv(h, h, 3, stride, h), nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
        self.residual = stride == 1 and i == o

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self) -> None:
        super().__init__()
        layers: list[Any] = [_conv(3, 32, 3, 2)]
        channels = 32
        for t, c, n, s in self.BLOCKS:
            for i in range(n):
                layers.append(Inverted(channels, c, s if i == 0 else 1, t))
                channels = c
        self.features = nn.Sequential(*layers, _conv(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, 1000))

    def forward(self, x: Any) -> Any:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Classic(nn.Module):
    """Features, then fully connected layers: AlexNet and VGG-19."""

    def __init__(self, features: list[nn.Module], classifier: list[nn.Module]) -> None:
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x).flatten(1))


def alexnet() -> nn.Module:
    r = lambda: nn.ReLU(True)
    return Classic(
        [
            nn.Conv2d(3, 64, 11, 4, 2), r(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, 1, 2), r(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, 1, 1), r(), nn.Conv2d(384, 256, 3, 1, 1),
            r(), nn.Conv2d(256, 256, 3, 1, 1), r(), nn.MaxPool2d(3, 2),
        ],
        [nn.Identity(), nn.Linear(9216, 4096), r(), nn.Identity(), nn.Linear(4096, 4096), r(), nn.Linear(4096, 1000)],
    )  # fmt: skip


def vgg19() -> nn.Module:
    layers: list[Any] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, 1, 1), nn.ReLU(True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    r = lambda: nn.ReLU(True)
    last = [
        nn.Linear(25088, 4096),
        r(),
        nn.Identity(),
        nn.Linear(4096, 4096),
        r(),
        nn.Identity(),
        nn.Linear(4096, 1000),
    ]
    return Classic(layers, last)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x: Any) -> Any:
        n, t, w = x.shape
        return (a.view(n, t, self.heads, -1).transpose(1, 2) for a in self.c_attn(x).split(w, 2))

    def forward(self, x: Any) -> Any:
        q, k, v = self.split(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))

    def cached(self, x: Any, keys: Any, values: Any, position: Any) -> Any:
        """One token; its key and value join the cache (batch, heads, block, size) in place."""
        q, k, v = self.split(x)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        seen = torch.arange(keys.shape[2]) <= position
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[None, None, None, :])
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def perceptron(self, x: Any) -> Any:
        return self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.perceptron(x)

    def cached(self, x: Any, keys: Any, values: Any, position: Any) -> Any:
        x = x + self.attn.cached(self.ln_1(x), keys, values, position)
        return x + self.perceptron(x)


class GPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, x: Any) -> Any:
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def cached(self, token: Any, keys: Any, values: Any, position: Any) -> Any:
        """Scores after one token (batch, 1) at `position` (1,)."""
        x = self.wte(token) + self.wpe(position)
        for block, k, v in zip(self.h, keys, values, strict=True):
            x = block.cached(x, k, v, position)
        return self.lm_head(self.ln_f(x[:, -1]))


def _lstm(i: int, width: int, **options: Any) -> nn.LSTM:
    return nn.LSTM(i, width, batch_first=True, **options)


class Encoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.bidirectional = _lstm(width, width, bidirectional=True)
        self.layers = nn.ModuleList([_lstm(i, width) for i in [2 * width] + [width] * (layers - 2)])

    def forward(self, tokens: Any) -> Any:
        x, _ = self.bidirectional(self.embedding(tokens))
        for i, layer in enumerate(self.layers):
            y, _ = layer(x)
            x = y + x if i else y
        return x


class Additive(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.score = (nn.Linear(width, o, bias=False) for o in (width, width, 1))

    def forward(self, queries: Any, keys: Any) -> Any:
        hidden = torch.tanh(self.query(queries).unsqueeze(2) + self.key(keys).unsqueeze(1))
        return F.softmax(self.score(hidden).squeeze(-1), -1) @ keys


class Decoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = _lstm(width, width)
        self.attention = Additive(width)
        self.layers = nn.ModuleList([_lstm(2 * width, width) for _ in range(layers - 1)])
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Any, states: Any) -> Any:
        x, _ = self.first(self.embedding(tokens))
        context = self.attention(x, states)
        for i, layer in enumerate(self.layers):
            y, _ = layer(torch.cat([x, context], -1))
            x = y + x if i else y
        return self.output(x)


class GNMT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(vocabulary, width, layers), Decoder(vocabulary, width, layers)

    def forward(self, source: Any, target: Any) -> Any:
        return self.decoder(target, self.encoder(source))


class NCF(nn.Module):
    def __init__(self, users: int, items: int, mf: int, layers: Any, sparse: bool) -> None:
        super().__init__()
        table = lambda rows, width: nn.Embedding(rows, width, sparse=sparse)
        self.mf_user, self.mf_item = table(users, mf), table(items, mf)
        self.mlp_user, self.mlp_item = table(users, layers[0] // 2), table(items, layers[0] // 2)
        self.mlp = nn.ModuleList([nn.Linear(i, o) for i, o in zip(layers, layers[1:], strict=False)])
        self.final = nn.Linear(layers[-1] + mf, 1)

    def forward(self, users: Any, items: Any) -> Any:
        factors = self.mf_user(users) * self.mf_item(items)
        hidden = torch.cat([self.mlp_user(users), self.mlp_item(items)], -1)
        for layer in self.mlp:
            hidden = F.relu(layer(hidden))
        return self.final(torch.cat([factors, hidden], -1)).squeeze(-1)


def build(name: str, weights: dict[str, Any]) -> nn.Module:
    """The model of a configuration with the given weights (NumPy arrays by name)."""
    c = CONFIGURATIONS[name]
    a = c.arguments
    if c.kind == "mlp":
        layers: list[Any] = []
        for i, o in zip(a["sizes"], a["sizes"][1:], strict=False):
            layers += [nn.Linear(i, o), nn.ReLU()]
        model: nn.Module = nn.Sequential(*layers[:-1])
    elif c.kind == "image":
        images = {"alexnet": alexnet, "vgg19": vgg19, "resnet50": ResNet50, "mobilenet_v2": MobileNetV2}
        model = images[a["name"]]()
    elif c.kind == "gpt":
        model = GPT(a["vocabulary"], a["length"], a["layers"], a["heads"], a["width"])
    elif c.kind == "gnmt":
        model = GNMT(a["vocabulary"], a["width"], a["layers"])
    else:
        model = NCF(a["users"], a["items"], a["mf"], a["layers"], a["sparse"])
    model.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
    return model
