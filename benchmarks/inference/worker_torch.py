"""Run a trained model with PyTorch: `python -m benchmarks.inference.worker_torch CASE eager|channels_last|compile`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmarks.harness.protocol import serve, threads
from benchmarks.inference.configurations import CASES, PROMPT, images, some
from benchmarks.models.configurations import weights
from benchmarks.models.torch_models import build


class Tokens:
    """GPT token by token; starts over when the block is full."""

    def __init__(self, model: Any, compiled: bool) -> None:
        heads, block = model.h[0].attn.heads, model.wpe.weight.shape[0]
        shape = (1, heads, block, model.wte.weight.shape[1] // heads)
        self.keys, self.values = ([torch.zeros(shape) for _ in model.h] for _ in range(2))
        self.run = torch.compile(model.cached) if compiled else model.cached
        self.positions = [torch.tensor([i]) for i in range(block)]
        self.token = torch.tensor([[7]])
        self.at = 0

    def __call__(self) -> Any:
        out = self.run(self.token, self.keys, self.values, self.positions[self.at])
        self.at = (self.at + 1) % len(self.positions)
        return out

    def check(self) -> list[float]:
        self.at = len(PROMPT)
        for i, token in enumerate(PROMPT):
            out = self.run(torch.tensor([[token]]), self.keys, self.values, self.positions[i])
        return some(out.numpy())


def main() -> None:
    name, mode = sys.argv[1:3]
    case = CASES[name]
    torch.set_num_threads(threads())
    torch.set_grad_enabled(False)
    if mode == "compile":
        from torch._inductor import config

        config.freezing = True
    model = build(case.model, weights()).eval()
    note = f"torch {torch.__version__} {mode}{', frozen' if mode == 'compile' else ''}"
    if case.model == "gpt":
        tokens = Tokens(model, mode == "compile")
        serve(tokens, note, tokens.check)
        return
    x = torch.from_numpy(images(case))
    if mode != "eager":
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    run = torch.compile(model) if mode == "compile" else model
    serve(lambda: run(x), note, lambda: some(run(x).numpy()))


if __name__ == "__main__":
    main()
