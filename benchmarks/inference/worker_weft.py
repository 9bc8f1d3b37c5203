"""Run a trained model with Weft: `python -m benchmarks.inference.worker_weft CASE frozen|captured|eager`.

A frozen function takes the weights as they are, as torch.compile does when it is told to freeze, and as ONNX Runtime and
OpenVINO do with every model they load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import weft as wf
from benchmarks.harness.protocol import serve, threads
from benchmarks.inference.configurations import CASES, PROMPT, images, some
from benchmarks.models.configurations import weights
from benchmarks.models.worker_weft import build
from weft.models.gpt import KeyValueCache


def prepared(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """The function as the mode runs it."""
    return function if mode == "eager" else wf.function(function, freeze=mode == "frozen")


class Tokens:
    """GPT token by token; starts over when the block is full."""

    def __init__(self, model: Any, mode: str) -> None:
        cache = KeyValueCache(model, 1)

        def step(token: Any, position: Any) -> Any:
            with wf.no_grad():
                return model.cached(token, cache, position)

        self.run = prepared(step, mode)
        self.positions = [wf.tensor([i]) for i in range(model.block_size)]
        self.token = wf.tensor([[7]])
        self.at = 0

    def __call__(self) -> Any:
        out = self.run(self.token, self.positions[self.at])
        self.at = (self.at + 1) % len(self.positions)
        return out

    def check(self) -> list[float]:
        self.at = len(PROMPT)
        for i, token in enumerate(PROMPT):
            out = self.run(wf.tensor([[token]]), self.positions[i])
        return some(out.numpy())


def main() -> None:
    name, mode = sys.argv[1:3]
    case = CASES[name]
    wf.set_num_threads(threads())
    model = build(case.model)
    model.load_state_dict({name: wf.tensor(array) for name, array in weights().items()})
    model.eval()
    note = f"weft {wf.__version__} {mode}"
    if case.model == "gpt":
        tokens = Tokens(model, mode)
        serve(tokens, note, tokens.check)
        return
    x = wf.tensor(images(case))

    def forward(x: Any) -> Any:
        with wf.no_grad():
            return model(x)

    run = prepared(forward, mode)
    serve(lambda: run(x), note, lambda: some(run(x).numpy()))


if __name__ == "__main__":
    main()
