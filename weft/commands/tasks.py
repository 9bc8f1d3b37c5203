"""Tasks of `weft train`: a dataset with its loss, metrics and kind of prediction.

A task is created by a function whose arguments are the keys of `[data]`; a new kind of data is a new function in `TASKS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf

from .. import data
from ..data import transforms
from ..nn import functional as F
from ..tensor import Tensor


@dataclasses.dataclass
class Task:
    """Data for training, validation and the final test, with loss and metrics."""

    train: Any
    validation: Any
    test: Any
    loss: Callable[[Tensor, Tensor], Tensor]
    metrics: list[Any]
    arguments: dict[str, Any]
    """arguments of a model's constructor that follow from the data; used where the constructor has them"""
    kind: str
    """"classes" or "text": what a prediction is"""
    classes: Sequence[str] = ()
    vocabulary: str = ""
    example_shape: tuple[int, ...] = ()


def classification(train: Any, test: Any, classes: Sequence[str], augment: Any = None) -> Task:
    """Images with class labels. A tenth of the training data is held out for validation."""
    train, validation = data.random_split(train, [0.9, 0.1])
    shape = tuple(int(n) for n in np.shape(train[0][0]))
    if augment is not None:
        train = train.map(augment, element=0)
    arguments = {"num_classes": len(classes), "out_features": len(classes), "in_features": int(np.prod(shape))}
    if len(shape) == 3:
        arguments.update(in_channels=shape[0], image_size=shape[-1])
    return Task(
        train, validation, test, F.cross_entropy, ["accuracy"], arguments, "classes", classes, example_shape=shape
    )


def digits(augment: bool = False) -> Task:
    """The handwritten digits that ship with Weft."""
    shift = transforms.RandomCrop(8, padding=1) if augment else None
    return classification(data.digits("train"), data.digits("test"), [str(n) for n in range(10)], shift)


def cifar_like(n: int = 5000, augment: bool = False) -> Task:
    """Synthetic coloured images."""
    from ..data.builtin.synthetic import CLASSES

    shift = transforms.RandomCrop(32, padding=2) if augment else None
    return classification(data.synthetic_images("train", n), data.synthetic_images("test"), CLASSES, shift)


def mnist(path: str) -> Task:
    """MNIST's files in a directory."""
    train, test = data.mnist(path, "train"), data.mnist(path, "test")
    return classification(_floats(train), _floats(test), [str(n) for n in range(10)])


def cifar10(path: str, augment: bool = False) -> Task:
    """CIFAR-10's files in a directory."""
    train, test = _floats(data.cifar10(path, "train")), _floats(data.cifar10(path, "test"))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    change = transforms.Compose(transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip())
    return classification(train, test, names, change if augment else None)


def images(path: str, size: int = 32, grey: bool = False, test_fraction: float = 0.2) -> Task:
    """Pictures in folders, one folder per class."""
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1. Got {test_fraction}.")
    everything = data.ImageFolder(path, transform=transforms.ToFloat(), size=size, mode="L" if grey else "RGB")
    train, test = data.random_split(everything, [1 - test_fraction, test_fraction])
    return classification(train, test, everything.classes)


def text(path: str = "", corpus: str = "all", test_fraction: float = 0.05, length: int = 0) -> Task:
    """A text as characters, by default one that ships with Weft. Its last parts are for validation and testing."""
    if not 0 < test_fraction < 0.5:
        raise ValueError(f"test_fraction must be between 0 and 0.5. Got {test_fraction}.")
    content = Path(path).read_text(encoding="utf-8") if path else data.text_corpus(corpus)
    vocabulary = "".join(sorted(set(content)))
    first, second = (int(len(content) * (1 - share * test_fraction)) for share in (2, 1))
    # Windows overlap, so each character is seen with different contexts, while an epoch stays short.
    train = data.CharacterDataset(content[:first], length, stride=max(1, length // 2), vocabulary=vocabulary)
    validation = data.CharacterDataset(content[first:second], length, stride=length, vocabulary=vocabulary)
    test = data.CharacterDataset(content[second:], length, stride=length, vocabulary=vocabulary)
    arguments = {"vocab_size": len(vocabulary), "block_size": length}
    parts = (train, validation, test)
    return Task(*parts, token_loss, ["accuracy"], arguments, "text", vocabulary=vocabulary, example_shape=(length,))


def token_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of the next token at every position."""
    return F.cross_entropy(wf.reshape(scores, (-1, scores.shape[-1])), wf.reshape(target, (-1,)))


TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "cifar-like": cifar_like,
    "mnist": mnist,
    "cifar10": cifar10,
    "images": images,
    "text": text,
}


def _floats(dataset: Any) -> Any:
    sample = np.asarray(dataset[0][0])
    return dataset.map(transforms.ToFloat(), element=0) if sample.dtype == np.uint8 else dataset
