"""Train the same model with PyTorch: `worker_torch.py MODEL eager|channels_last|compile`. Written out here: no torchvision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models.configurations import CONFIGURATIONS, batch
from benchmarks.models.protocol import serve


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.down = None
        if stride != 1 or channels != 4 * width:
            self.down = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + (x if self.down is None else self.down(x)), inplace=True)


def resnet50() -> nn.Module:
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for i, (width, count) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True)):
        for j in range(count):
            layers.append(Bottleneck(channels, width, 2 if i and not j else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def _conv(i: int, o: int, k: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU6(True))


class Inverted(nn.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
        super().__init__()
        h = i * expand
        layers: list[Any] = [] if expand == 1 else [_conv(i, h, 1)]
        self.conv = nn.Sequential(*layers, _conv(h, h, 3, stride, h), nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
        self.residual = stride == 1 and i == o

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.residual else self.conv(x)


def mobilenet_v2() -> nn.Module:
    layers: list[Any] = [_conv(3, 32, 3, 2)]
    channels = 32
    for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(n):
            layers.append(Inverted(channels, c, s if i == 0 else 1, t))
            channels = c
    return nn.Sequential(*layers, _conv(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def alexnet() -> nn.Module:
    r = lambda: nn.ReLU(True)
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), r(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, 1, 2), r(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, 1, 1), r(), nn.Conv2d(384, 256, 3, 1, 1),
        r(), nn.Conv2d(256, 256, 3, 1, 1), r(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Linear(9216, 4096), r(), nn.Linear(4096, 4096), r(), nn.Linear(4096, 1000),
    )  # fmt: skip


def vgg19() -> nn.Module:
    layers: list[Any] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, 1, 1), nn.ReLU(True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(25088, 4096),
        nn.ReLU(True),
        nn.Linear(4096, 4096),
        nn.ReLU(True),
        nn.Linear(4096, 1000),
    )


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, t, w = x.shape
        q, k, v = (a.view(n, t, self.heads, -1).transpose(1, 2) for a in self.qkv(self.ln_1(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x: Any) -> Any:
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        return self.head(self.ln_f(self.blocks(x)))


class GNMT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        lstm = lambda i, **k: nn.LSTM(i, width, batch_first=True, **k)
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.bi = lstm(width, bidirectional=True)
        self.encoder = nn.ModuleList([lstm(i) for i in [2 * width] + [width] * (layers - 2)])
        self.first = lstm(width)
        self.q, self.k, self.s = (nn.Linear(width, o, bias=False) for o in (width, width, 1))
        self.decoder = nn.ModuleList([lstm(2 * width) for _ in range(layers - 1)])
        self.output = nn.Linear(width, vocabulary)

    def forward(self, source: Any, target: Any) -> Any:
        x, _ = self.bi(self.source(source))
        for i, layer in enumerate(self.encoder):
            y, _ = layer(x)
            x = y + x if i else y
        states = x
        x, _ = self.first(self.target(target))
        hidden = torch.tanh(self.q(x).unsqueeze(2) + self.k(states).unsqueeze(1))
        context = F.softmax(self.s(hidden).squeeze(-1), -1) @ states
        for i, layer in enumerate(self.decoder):
            y, _ = layer(torch.cat([x, context], -1))
            x = y + x if i else y
        return self.output(x)


class NCF(nn.Module):
    def __init__(self, users: int, items: int, mf: int, layers: Any) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, w) for w in (mf, layers[0] // 2) for n in (users, items)])
        for t in self.tables:
            nn.init.normal_(t.weight, 0.0, 0.01)
        self.mlp = nn.ModuleList([nn.Linear(i, o) for i, o in zip(layers, layers[1:], strict=False)])
        self.final = nn.Linear(layers[-1] + mf, 1)

    def forward(self, users: Any, items: Any) -> Any:
        factors = self.tables[0](users) * self.tables[1](items)
        hidden = torch.cat([self.tables[2](users), self.tables[3](items)], -1)
        for layer in self.mlp:
            hidden = F.relu(layer(hidden))
        return self.final(torch.cat([factors, hidden], -1)).squeeze(-1)


def build(name: str) -> Any:
    c = CONFIGURATIONS[name]
    a = c.arguments
    if c.kind == "mlp":
        layers: list[Any] = []
        for i, o in zip(a["sizes"], a["sizes"][1:], strict=False):
            layers += [nn.Linear(i, o), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
    if c.kind == "image":
        return {"alexnet": alexnet, "vgg19": vgg19, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2}[a["name"]]()
    if c.kind == "gpt":
        return GPT(a["vocabulary"], a["length"], a["layers"], a["heads"], a["width"])
    if c.kind == "gnmt":
        return GNMT(a["vocabulary"], a["width"], a["layers"])
    return NCF(a["users"], a["items"], a["mf"], a["layers"])


def main() -> None:
    name, mode = sys.argv[1:3]
    torch.set_num_threads(2)
    torch.manual_seed(0)
    c = CONFIGURATIONS[name]
    model = build(name)
    data = [torch.from_numpy(d) for d in batch(name)]
    if c.kind == "image" and mode != "eager":
        model = model.to(memory_format=torch.channels_last)
        data[0] = data[0].to(memory_format=torch.channels_last)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    }  # fmt: skip
    opt = make[c.optimizer](model.parameters())
    run = torch.compile(model) if mode == "compile" else model

    def step() -> float:
        *inputs, target = data
        out = run(*inputs)
        if c.kind == "ncf":
            loss = F.binary_cross_entropy_with_logits(out, target)
        else:
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    serve(step, f"torch {torch.__version__} {mode}")


if __name__ == "__main__":
    main()
