"""Data that come with Weft, for trying things out without a download. Origins and licences: ATTRIBUTION.txt."""

from __future__ import annotations

from .digits import digits as digits
from .synthetic import CLASSES as SYNTHETIC_CLASSES
from .synthetic import synthetic_images as synthetic_images
from .text import CharacterDataset as CharacterDataset
from .text import text_corpus as text_corpus

__all__ = ["SYNTHETIC_CLASSES", "CharacterDataset", "digits", "synthetic_images", "text_corpus"]
