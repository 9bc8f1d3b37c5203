"""A small text corpus, and text as windows of characters for language models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..collate import Leaf
from ..dataset import Dataset, check_indices

_FOLDER = Path(__file__).parent
_WORKS = {"alice": "alice.txt", "as_you_like_it": "as_you_like_it.txt"}


def text_corpus(name: str = "all") -> str:
    """English text in the public domain, about 270,000 characters of plain ASCII.

    Args:
        name: "alice" (Lewis Carroll, prose, 146,000 characters), "as_you_like_it" (Shakespeare, a play, 122,000),
            or "all", the two one after the other.
    """
    if name == "all":
        return "\n\n".join(text_corpus(work) for work in _WORKS)
    if name not in _WORKS:
        raise ValueError(f"text_corpus: unknown text. Got {name!r}; expected 'all' or one of {sorted(_WORKS)}.")
    return (_FOLDER / _WORKS[name]).read_text(encoding="ascii")


class CharacterDataset(Dataset):
    """A text as (characters, the same one further), the training pairs of a character language model.

    Args:
        text: the text.
        length: characters per sample.
        stride: how far apart samples start.
        vocabulary: the known characters; by default those of the text, sorted. Give the training text's to a test
            text so that numbers mean the same.

    Example:
        >>> text = data.CharacterDataset("hello", length=3)
        >>> x, y = text[0]
        >>> text.decode(x), text.decode(y), len(text)
        ('hel', 'ell', 2)
    """

    def __init__(self, text: str, length: int, stride: int = 1, vocabulary: Iterable[str] | None = None) -> None:
        if length < 1 or stride < 1:
            raise ValueError(f"CharacterDataset: length and stride must be positive. Got {length} and {stride}.")
        if len(text) <= length:
            raise ValueError(
                f"CharacterDataset: the text is too short. Got {len(text)} characters; expected more than "
                f"length={length}."
            )
        self.vocabulary = "".join(sorted(set(text)) if vocabulary is None else vocabulary)
        self.length, self.stride = length, stride
        self._numbers = {character: number for number, character in enumerate(self.vocabulary)}
        self.ids = self.encode(text).astype(np.int32)

    def encode(self, text: str) -> np.ndarray:
        """The numbers of the characters of a text (int64)."""
        try:
            return np.array([self._numbers[character] for character in text], np.int64)
        except KeyError as error:
            raise ValueError(
                f"CharacterDataset: character {error.args[0]!r} is not in the vocabulary {self.vocabulary!r}."
            ) from None

    def decode(self, ids: Any) -> str:
        """The text that numbers stand for."""
        return "".join(self.vocabulary[int(i)] for i in np.asarray(ids).reshape(-1))

    def __len__(self) -> int:
        return (len(self.ids) - self.length - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start = int(check_indices("CharacterDataset", np.asarray([index]), len(self))[0]) * self.stride
        window = self.ids[start : start + self.length + 1].astype(np.int64)
        return window[:-1], window[1:]

    def gather(self, indices: np.ndarray) -> Any:
        starts = check_indices("CharacterDataset", indices, len(self)) * self.stride
        shape, dtype = (len(starts), self.length), np.dtype(np.int64)
        return (
            Leaf([self.ids[s : s + self.length] for s in starts], shape, dtype),
            Leaf([self.ids[s + 1 : s + 1 + self.length] for s in starts], shape, dtype),
        )
