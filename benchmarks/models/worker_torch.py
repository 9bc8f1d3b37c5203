"""Train a model with PyTorch: `python -m benchmarks.models.worker_torch MODEL eager|channels_last|compile`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.harness.protocol import serve, threads
from benchmarks.models.configurations import CONFIGURATIONS, SMALL, batches, weights
from benchmarks.models.torch_models import build


class Both:
    """Row-sparse Adam for the embeddings, plain Adam for the rest: torch's optimisers take one kind of gradient each."""

    def __init__(self, model: Any, rate: float) -> None:
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        known = {id(t) for t in tables}
        others = [p for p in model.parameters() if id(p) not in known]
        self.parts = torch.optim.SparseAdam(tables, lr=rate, eps=SMALL), torch.optim.Adam(others, lr=rate, eps=SMALL)

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        for part in self.parts:
            part.step()


def main() -> None:
    name, mode = sys.argv[1:3]
    torch.set_num_threads(threads())
    c = CONFIGURATIONS[name]
    model = build(name, weights())
    tensors = [[torch.from_numpy(d) for d in b] for b in batches(name)]
    if c.kind == "image" and mode != "eager":
        model = model.to(memory_format=torch.channels_last)
        for b in tensors:
            b[0] = b[0].to(memory_format=torch.channels_last)
    data = itertools.cycle(tensors)
    make = {
        "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=c.rate, momentum=0.9),
        "adam": lambda m: torch.optim.Adam(m.parameters(), lr=c.rate),
        "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=c.rate),
        "sparse_adam": lambda m: Both(m, c.rate),
    }
    opt: Any = make[c.optimizer](model)
    run: Any = torch.compile(model) if mode == "compile" else model

    def step() -> float:
        *inputs, target = next(data)
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
