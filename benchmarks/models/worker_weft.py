"""Train a model with Weft: `python -m benchmarks.models.worker_weft MODEL captured|eager|dense`.

`dense` is captured with the plain Adam where `captured` uses the one whose rows catch up when they are read.

With `MODEL export FILE` it writes the initial weights that all frameworks start from; with `MODEL settle FILE` those weights
with running statistics of batch norm that belong to them, for inference.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

import weft as wf
from benchmarks.harness.protocol import serve, threads
from benchmarks.models.configurations import CONFIGURATIONS, SMALL, batches
from weft import models, nn, optim
from weft.nn import functional as F


def defers(name: str, mode: str) -> bool:
    """Whether Adam's exact update of the embeddings is deferred: the same bits, without a sweep over the tables."""
    return mode == "captured" and CONFIGURATIONS[name].kind == "ncf" and CONFIGURATIONS[name].optimizer == "adam"


def build(name: str, mode: str = "captured") -> Any:
    """The model of a configuration, with weights that depend on nothing but the seed."""
    wf.manual_seed(0)
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
    return models.ncf(a["users"], a["items"], a["mf"], a["layers"], sparse=a["sparse"] or defers(name, mode))


def optimizer(name: str, model: Any, mode: str = "captured") -> Any:
    """The optimiser of a configuration, over all parameters."""
    c = CONFIGURATIONS[name]
    make = {
        "sgd": lambda p: optim.SGD(p, lr=c.rate, momentum=0.9),
        "adam": lambda p: optim.Adam(p, lr=c.rate, deferred=defers(name, mode)),
        "adamw": lambda p: optim.AdamW(p, lr=c.rate),
        "sparse_adam": lambda p: optim.SparseAdam(p, lr=c.rate, eps=SMALL),
    }
    return make[c.optimizer](list(model.parameters()))


def training_step(name: str, model: Any, mode: str = "captured") -> Any:
    """One step of training: (*inputs, target) to the loss."""
    kind = CONFIGURATIONS[name].kind
    opt = optimizer(name, model, mode)

    def step(*args: Any) -> Any:
        *inputs, target = args
        out = model(*inputs)
        if kind == "ncf":
            loss = F.binary_cross_entropy_with_logits(out, target)
        else:
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step


def settle(name: str, model: Any) -> None:
    """Running statistics of a few images, as after training: with the initial ones activations vanish."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if not norms:
        return
    before = [m.momentum for m in norms]
    for m in norms:
        m.momentum = 1.0
    with wf.no_grad():
        model(wf.tensor(batches(name)[0][0][:4]))
    for m, momentum in zip(norms, before, strict=True):
        m.momentum = momentum


def main() -> None:
    name, mode = sys.argv[1:3]
    wf.set_num_threads(threads())
    if mode in ("export", "settle"):
        model = build(name)
        if mode == "settle":
            settle(name, model)
        np.savez(sys.argv[3], **{key: value.numpy() for key, value in model.state_dict().items()})
        return
    step = training_step(name, build(name, mode), mode)
    data = itertools.cycle([[wf.tensor(d) for d in b] for b in batches(name)])
    run = step if mode == "eager" else wf.function(step)
    serve(lambda: run(*next(data)).item(), f"weft {wf.__version__} {mode}")


if __name__ == "__main__":
    main()
