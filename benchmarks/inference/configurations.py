"""What is run: a trained model (a configuration of `benchmarks.models`) and a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    """`model` is a name in `benchmarks.models.configurations`; a step is one batch, or one token."""

    model: str
    batch: int
    title: str


CASES = {
    "resnet50_1": Case("resnet50", 1, "ResNet-50, batch 1"),
    "resnet50_16": Case("resnet50", 16, "ResNet-50, batch 16"),
    "mobilenet_v2_1": Case("mobilenet_v2", 1, "MobileNetV2, batch 1"),
    "gpt_token": Case("gpt", 1, "GPT, one token, cache of 256"),
}
PROMPT = (11, 222, 3333, 4444, 555)  # the tokens after which scores are compared


def images(case: Case) -> np.ndarray:
    """The input of an image model; the same numbers in every process."""
    return np.random.default_rng(0).standard_normal((case.batch, 3, 224, 224), np.float32)


def some(scores: np.ndarray) -> list[float]:
    """What of the scores is compared: some of them as shares of the largest, and how large that is."""
    flat = scores.reshape(-1).astype(np.float64)
    largest = np.abs(flat).max()
    return [*(flat[:16] / largest).tolist(), float(np.log(largest))]
