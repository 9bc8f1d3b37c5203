"""Pictures and sounds as the bytes that TensorBoard shows: PNG and WAV, without other libraries."""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib
from typing import Any

import numpy as np

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's colour types by the number of channels


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of bytes (height, width, channels)."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row starts with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def picture(what: str, image: np.ndarray, layout: str) -> np.ndarray:
    """An image as bytes (height, width, channels). Floats are in [0, 1].

    Args:
        layout: the meaning of the axes: a permutation of "CHW", or "HW"; with "N", several images, which are put in a grid.
    """
    letters = layout.upper()
    if len(letters) != image.ndim or sorted(letters) not in (
        sorted("CHW"),
        sorted("HW"),
        sorted("NCHW"),
        sorted("NHW"),
    ):
        raise ValueError(
            f"{what}: the image has shape {image.shape}, which does not fit dataformats={layout!r}. Say what its axes are, such "
            "as 'CHW', 'HWC', 'HW' or 'NCHW'."
        )
    if "C" not in letters:
        image, letters = image[..., None], letters + "C"
    if "N" in letters:
        image = grid(np.transpose(image, [letters.index(axis) for axis in "NHWC"]))
    else:
        image = np.transpose(image, [letters.index(axis) for axis in "HWC"])
    if image.shape[-1] not in _COLOURS:
        raise ValueError(f"{what}: an image has 1 to 4 channels. Got {image.shape[-1]}.")
    if image.dtype.kind == "f":
        image = np.clip(np.nan_to_num(image), 0, 1) * 255
    elif image.dtype == np.bool_:
        image = image * np.uint8(255)
    return np.ascontiguousarray(image).astype(np.uint8)


def grid(images: np.ndarray, columns: int = 8) -> np.ndarray:
    """Images (number, height, width, channels) side by side, at most `columns` in a row."""
    count, height, width, channels = images.shape
    across = min(columns, max(count, 1))
    down = math.ceil(count / across)
    canvas = np.zeros((down * height, across * width, channels), images.dtype)
    for i, image in enumerate(images):
        y, x = divmod(i, across)
        canvas[y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return canvas


def wav(sound: np.ndarray, rate: int) -> bytes:
    """A WAV file of 16 bits from one channel of samples in [-1, 1]."""
    samples = (np.clip(np.nan_to_num(sound), -1, 1) * 32767).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def figure_pixels(figure: Any) -> np.ndarray:
    """A figure of matplotlib as bytes (height, width, 4)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def precision_recall(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray | None, thresholds: int) -> np.ndarray:
    """True and false positives, true and false negatives, precision and recall at each of `thresholds`, (6, thresholds)."""
    truth = labels.reshape(-1).astype(bool)
    scores = scores.reshape(-1).astype(np.float64)
    weight = np.ones(len(scores)) if weights is None else weights.reshape(-1).astype(np.float64)
    place = np.clip(np.floor(scores * (thresholds - 1)), 0, thresholds - 1).astype(np.int64)
    positive = np.bincount(place, weight * truth, thresholds)[::-1].cumsum()[::-1]
    false = np.bincount(place, weight * ~truth, thresholds)[::-1].cumsum()[::-1]
    total, wrong = positive[0], false[0]
    tiny = 1e-7  # where nothing is predicted, precision is 0
    precision = positive / np.maximum(tiny, positive + false)
    recall = positive / max(tiny, total)
    return np.stack([positive, false, wrong - false, total - positive, precision, recall])
