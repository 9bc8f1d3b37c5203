"""`weft predict`: classify an image or a sample of the data, or continue a text, with a trained model."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf

from .. import models
from ..data.readers.images import read_picture
from ..errors import FileError
from ..io.checked import Checked
from ..io.numpy_file import read_npy
from ..models.registry import find_checkpoint
from ..nn import functional as F
from .config import Config
from .errors import CommandError

SHOWN = 3  # classes listed with their probabilities
MAX_SIDE = 1 << 14  # pixels of a picture's side


def run(arguments: argparse.Namespace) -> int:
    """`weft predict …`"""
    checkpoint = find_checkpoint(arguments.checkpoint)
    task = checkpoint.facts.get("task")
    if task is None:  # a run started from Python
        raise CommandError(
            f"{checkpoint.path}: the checkpoint does not say what its model was trained for; `weft train` writes that down. "
            "Use `wf.models.load` from Python."
        )
    task = _checked(checkpoint.path, task)
    model = models.load(checkpoint.path)
    if task["kind"] == "text":
        return _continue_text(arguments, model, task)
    return _classify(arguments, checkpoint, model, task)


def _checked(path: Any, task: Any) -> dict[str, Any]:
    """The validated task description of a checkpoint, which is untrusted."""
    facts = Checked(task, lambda reason, place: CommandError(f"{path}: facts.task.{place}: {reason}"))
    if facts["kind"].text(("text", "classes")) == "text":
        return {"kind": "text", "vocabulary": facts["vocabulary"].text()}
    shape = tuple([n.integer(1, MAX_SIDE) for n in facts["shape"].items(3)])
    return {"kind": "classes", "shape": shape, "classes": [c.text() for c in facts["classes"].items()]}


# Classes -----------------------------------------------------------------------------------------------------------------


def _classify(arguments: argparse.Namespace, checkpoint: Any, model: Any, task: dict[str, Any]) -> int:
    if arguments.prompt is not None:
        raise CommandError("--prompt: this model tells classes of images; give a file or --index.")
    truth = None
    if arguments.index is not None:
        image, truth = _sample(checkpoint, arguments.index)
    elif arguments.file is not None:
        image = read_image(Path(arguments.file), tuple(task["shape"]))
    else:
        raise CommandError("give an image file, or --index N for sample N of the test data.")
    try:
        with wf.no_grad():
            scores = model(wf.asarray(image[None]))
            probabilities = F.softmax(scores, axis=-1).numpy()[0]
    except (ValueError, TypeError, IndexError) as error:
        raise CommandError(
            f"{checkpoint.path}: the model does not take images of shape {image.shape}: {error}"
        ) from None
    if probabilities.shape != (len(task["classes"]),):
        raise CommandError(f"{checkpoint.path}: the model does not tell {len(task['classes'])} classes apart.")
    print(picture(image))
    for place in np.argsort(-probabilities)[:SHOWN]:
        print(f"{task['classes'][place]:<20} {probabilities[place]:7.2%}")
    if truth is not None:
        print(f"{'true class':<20} {task['classes'][truth]}")
    return 0


def _sample(checkpoint: Any, index: int) -> tuple[np.ndarray, int]:
    """Sample `index` of the test data of the model's task."""
    from .train import make_task

    config = Config("checkpoint", str(checkpoint.path), checkpoint.facts["config"], {})
    _, task = make_task(config)
    if not -len(task.test) <= index < len(task.test):
        raise CommandError(
            f"--index: there is no sample {index}. The test data have {len(task.test)}, numbered from 0."
        )
    image, label = task.test[index]
    return np.asarray(image), int(label)


def read_image(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A picture, or an array in a .npy file, as float32 of `shape` (channels, height, width) in [0, 1]."""
    if not path.is_file():
        raise CommandError(f"{path}: there is no such file.")
    if path.suffix == ".npy":
        try:
            array = read_npy("predict", path)
        except FileError as error:
            raise CommandError(f"{path}: is not a complete .npy file. {error.reason}") from None
        if array.dtype.kind not in "biuf":
            raise CommandError(f"{path}: expected numbers. Got dtype {array.dtype}.")
        array = array.astype(np.float32) / (255 if array.dtype == np.uint8 else 1)
        if array.size != int(np.prod(shape)):
            raise CommandError(f"{path}: expected an array of shape {shape}. Got {array.shape}.")
        return array.reshape(shape)
    try:
        from PIL import Image
    except ImportError:
        raise CommandError("reading pictures needs Pillow: `pip install pillow`. Or give a .npy file.") from None
    try:
        grey = read_picture("predict", path, "L" if shape[0] == 1 else "RGB", shape[1:], Image.Resampling.BOX)  # type: ignore[arg-type]
    except FileError as error:
        raise CommandError(f"{path}: cannot be read as a picture. {error.reason}") from None
    pixels = grey.astype(np.float32) / 255
    return pixels[None] if shape[0] == 1 else pixels.transpose(2, 0, 1)


def picture(image: np.ndarray) -> str:
    """An image as text, for the terminal."""
    grey = image.mean(axis=0) if image.ndim == 3 else image
    shades = " .:-=+*#%@"
    low, high = float(grey.min()), float(grey.max())
    levels = ((grey - low) / ((high - low) or 1.0) * (len(shades) - 1)).round().astype(int)
    return "\n".join("".join(shades[level] * 2 for level in row) for row in levels)


# Text --------------------------------------------------------------------------------------------------------------------


def _continue_text(arguments: argparse.Namespace, model: Any, task: dict[str, Any]) -> int:
    if arguments.index is not None:
        raise CommandError("--index: this model continues texts; give a file or --prompt.")
    prompt = arguments.prompt
    if prompt is None:
        if arguments.file is None:
            raise CommandError("give a text file, or --prompt 'some text' to continue.")
        path = Path(arguments.file)
        try:
            prompt = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: cannot be read as text: {error}.") from None
    numbers = {character: i for i, character in enumerate(task["vocabulary"])}
    unknown = sorted(set(prompt) - set(numbers))
    if not prompt or unknown:
        what = f"characters that the model does not know: {''.join(unknown)!r}" if unknown else "an empty text"
        raise CommandError(f"cannot continue {what}. It knows {task['vocabulary']!r}.")
    if arguments.seed is not None:
        wf.manual_seed(arguments.seed)
    ids = [[numbers[character] for character in prompt]]
    out = model.generate(ids, arguments.length, temperature=arguments.temperature, top_k=arguments.top_k)
    print("".join(task["vocabulary"][i] for i in out.tolist()[0]).rstrip("\n") + os.linesep, end="")
    return 0
