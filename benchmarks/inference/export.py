"""Write a case as ONNX, with PyTorch: `python -m benchmarks.inference.export CASE FILE`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.inference.configurations import CASES, images
from benchmarks.models.configurations import weights
from benchmarks.models.torch_models import build


class Step(torch.nn.Module):
    """One token of the GPT as a function: caches in, caches out (ONNX has no memory to write to)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Any, position: Any, caches: list[Any]) -> Any:
        m = self.model
        x = m.wte(token) + m.wpe(position)
        places = torch.arange(m.wpe.weight.shape[0])
        here = (places == position)[None, None, :, None]
        seen = (places <= position)[None, None, None, :]
        new = []
        for i, block in enumerate(m.h):
            q, k, v = block.attn.split(block.ln_1(x))
            k, v = torch.where(here, k, caches[2 * i]), torch.where(here, v, caches[2 * i + 1])
            new += [k, v]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
            x = x + block.attn.c_proj(y.transpose(1, 2).reshape(x.shape))
            x = x + block.perceptron(x)
        return m.lm_head(m.ln_f(x[:, -1])), *new


def main() -> None:
    name, path = sys.argv[1:3]
    case = CASES[name]
    model = build(case.model, weights()).eval()
    with torch.no_grad():
        if case.model == "gpt":
            heads, block = model.h[0].attn.heads, model.wpe.weight.shape[0]
            caches = [torch.zeros(1, heads, block, model.wte.weight.shape[1] // heads) for _ in range(2 * len(model.h))]
            inputs: tuple[Any, ...] = (torch.tensor([[7]]), torch.tensor([0]), caches)
            model = Step(model)
        else:
            inputs = (torch.from_numpy(images(case)),)
        torch.onnx.export(model, inputs, path, dynamo=True, external_data=False)


if __name__ == "__main__":
    main()
