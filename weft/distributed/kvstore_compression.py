"""Gradient compression with error feedback: 2 or 8 bits per number, and what was rounded off is added to the next gradient.

* "2bit": every number becomes -t, 0 or +t. A number counts if its magnitude is above half of the mean magnitude of
the gradient's
  larger numbers, or above `threshold`; t is the mean magnitude of those that count, or `threshold`. Four numbers are
  one byte.
* "8bit": 255 equal steps between -m and +m, where m is the largest magnitude.

The residual stays with the worker. It is lost if the worker is killed: its next gradient is then as if it were its
first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes

KINDS = ("2bit", "8bit")
_DTYPES = {d.name: d for d in dtypes.ALL}


class Compressor:
    """Compresses the gradients of one worker, key by key.

    Args:
        kind: "2bit" or "8bit".
        threshold: of "2bit"; by default it follows each gradient.
    """

    def __init__(self, kind: str, threshold: float | None = None) -> None:
        if kind not in KINDS:
            raise ValueError(f"compression must be '2bit' or '8bit'. Got {kind!r}.")
        if threshold is not None and (kind != "2bit" or not threshold > 0):
            raise ValueError(f"compression: a threshold is a positive number, for '2bit'. Got {threshold!r}.")
        self.kind, self.threshold = kind, threshold
        self._residuals: dict[str, np.ndarray] = {}

    def compress(self, key: str, gradient: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """The gradient as JSON and bytes; the rest is kept for the next one."""
        given = np.asarray(gradient, np.float32)
        residual = self._residuals.get(key)
        wanted = given if residual is None or residual.shape != given.shape else given + residual
        facts, codes = self._two_bits(wanted) if self.kind == "2bit" else _eight_bits(wanted)
        facts = {**facts, "kind": self.kind, "shape": list(gradient.shape), "dtype": gradient.dtype.name}
        self._residuals[key] = wanted - expand(facts, codes).astype(np.float32)
        return facts, codes

    def _two_bits(self, wanted: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        size = np.abs(wanted)
        if self.threshold is not None:
            least = level = float(self.threshold)
        else:
            mean = float(size.mean()) if size.size else 0.0
            large = size[size >= mean]
            least = 0.5 * float(large.mean()) if large.size else 0.0
            counted = size[size >= least]
            level = float(counted.mean()) if counted.size else 0.0
        codes = (
            np.where(size >= least, np.where(wanted > 0, 1, np.where(wanted < 0, 2, 0)), 0).astype(np.uint8).reshape(-1)
        )
        padded = np.zeros(-(-codes.size // 4) * 4, np.uint8)
        padded[: codes.size] = codes
        four = padded.reshape(-1, 4)
        return {"level": level}, four[:, 0] | four[:, 1] << 2 | four[:, 2] << 4 | four[:, 3] << 6


def _eight_bits(wanted: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    largest = float(np.abs(wanted).max()) if wanted.size else 0.0
    step = largest / 127
    codes = np.zeros(wanted.size, np.int8) if not step else np.rint(wanted.reshape(-1) / step).astype(np.int8)
    return {"level": step}, codes.view(np.uint8)


def expand(facts: dict[str, Any], codes: np.ndarray) -> np.ndarray:
    """The gradient that `compress` stands for.

    Raises:
        ValueError: the bytes do not fit the shape.
    """
    shape = tuple([int(d) for d in facts["shape"]])
    count, level = int(np.prod(shape, dtype=np.int64)), np.float32(facts["level"])
    expected = -(-count // 4) if facts["kind"] == "2bit" else count
    if codes.dtype != np.uint8 or codes.shape != (expected,):
        raise ValueError(f"push: expected {expected} bytes for a compressed gradient of {shape}. Got {codes.shape}.")
    if facts["kind"] == "8bit":
        return (codes.view(np.int8).astype(np.float32) * level).reshape(shape).astype(_DTYPES[facts["dtype"]])
    signs = np.array([0, 1, -1, 0], np.float32)
    four = np.stack([codes >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)[:count]
    return (signs[four] * level).reshape(shape).astype(_DTYPES[facts["dtype"]])
