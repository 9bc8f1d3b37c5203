"""Seconds until the first step is done: tracing, compiling and running it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .context import Context, Row

TITLE = "First call of a captured training step (trace, compile, run)"
# torch.compile needs minutes for the larger ones
PEER_MODELS = ("mlp",)


def measure(context: Context) -> list[Row]:
    """Weft with an empty and with a warm cache on disk; torch.compile for small models."""
    rows = []
    for model in (*context.small, "gpt", *context.large):
        figures = {}
        with context.weights(model) as weights, tempfile.TemporaryDirectory() as folder:
            for runner, variable, where in (
                ("weft", "WEFT_CACHE_DIR", "Weft"),
                ("torch-compile", "TORCHINDUCTOR_CACHE_DIR", "torch.compile"),
            ):
                if runner != "weft" and model not in PEER_MODELS:
                    continue
                for state in ("cold", "warm"):
                    worker = context.worker(runner, model, weights, env={variable: str(Path(folder) / runner)})
                    if worker is None:
                        continue
                    with worker:
                        once = worker.hello["step_seconds"]
                        figures[f"{where}, {state}"] = f"{worker.hello['first_seconds']:.2f} s"
                        if runner == "weft":
                            figures["a later step"] = f"{once:.3g} s"
        rows.append(Row(model, figures))
    return rows
