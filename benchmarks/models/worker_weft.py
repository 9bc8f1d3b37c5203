"""Train a model with Weft: `worker_weft.py MODEL captured|eager`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import weft as wf
from benchmarks.models.configurations import CONFIGURATIONS, batch
from benchmarks.models.protocol import serve
from weft import models, nn, optim
from weft.nn import functional as F


def build(name: str) -> Any:
    c = CONFIGURATIONS[name]
    a = c.arguments
    if c.kind == "mlp":
        sizes = a["sizes"]
        layers: list[Any] = []
        for i, o in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(i, o), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
    if c.kind == "image":
        kwargs = {"dropout": 0.0} if a["name"] in ("alexnet", "vgg19", "mobilenet_v2") else {}
        return getattr(models, a["name"])(**kwargs)
    if c.kind == "gpt":
        return models.gpt(a["vocabulary"], a["length"], a["layers"], a["heads"], a["width"])
    if c.kind == "gnmt":
        return models.gnmt_v2(a["vocabulary"], a["width"], a["layers"], 0.0)
    return models.ncf(a["users"], a["items"], a["mf"], a["layers"])


def main() -> None:
    name, mode = sys.argv[1:3]
    wf.set_num_threads(2)
    wf.manual_seed(0)
    c = CONFIGURATIONS[name]
    model = build(name)
    make = {
        "sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
        "adam": lambda p: optim.Adam(p, lr=1e-3),
        "adamw": lambda p: optim.AdamW(p, lr=1e-3),
    }
    opt = make[c.optimizer](list(model.parameters()))
    data = [wf.tensor(d) for d in batch(name)]

    def loss_of(*args: Any) -> Any:
        *inputs, target = args
        out = model(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        if c.kind == "ncf":
            return F.binary_cross_entropy_with_logits(out, target)
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))

    def step(*args: Any) -> Any:
        loss = loss_of(*args)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = wf.function(step) if mode == "captured" else step
    serve(lambda: run(*data).item(), f"weft {wf.__version__} {mode}")


if __name__ == "__main__":
    main()
