"""What transforms have in common, and transforms made of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..seeds import transform_rng


class Transform:
    """Base class of transforms: implement `__call__(image)`."""

    def __call__(self, image: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: implement __call__(image).")

    def __repr__(self) -> str:
        """The settings that differ from their defaults."""
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        shown = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        given = [f"{k}={v!r}" for k, v in shown.items() if k not in defaults or not _same(v, defaults[k])]
        return f"{type(self).__name__}({', '.join(given)})"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, np.ndarray) and bool(value == default)


def check_probability(what: str, p: float) -> float:
    if not 0 <= p <= 1:
        raise ValueError(f"{what}: p must be between 0 and 1. Got {p!r}.")
    return p


class Compose(Transform):
    """Applies transforms in order: `Compose([a, b])`, or `Compose(a, b)`.

    Example:
        >>> transform = data.transforms.Compose([data.transforms.ToTensor(), data.transforms.CenterCrop(4)])
        >>> transform(np.zeros((8, 8, 3), np.uint8)).shape
        (3, 4, 4)
    """

    def __init__(self, *transforms: Callable[[Any], Any] | Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = chain("Compose", transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(repr, self.transforms))}])"


def chain(what: str, given: Sequence[Any]) -> tuple[Callable[[Any], Any], ...]:
    """Transforms that are given one by one, or in one list."""
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else tuple(given)
    for transform in found:
        if not callable(transform):
            raise TypeError(f"{what}: expected functions of an image. Got {type(transform).__name__}.")
    return found


class Lambda(Transform):
    """Applies any function; one that a loader's processes import by name, if there are such processes."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: expected a function. Got {type(lambd).__name__}.")
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


class RandomApply(Compose):
    """Applies all of its transforms, with probability `p`, or none."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        super().__init__(list(transforms))
        self.p = check_probability("RandomApply", p)

    def __call__(self, image: Any) -> Any:
        return super().__call__(image) if transform_rng().random() < self.p else image


class RandomChoice(Compose):
    """Applies one of its transforms, chosen at random; `p` are their probabilities, equal by default."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None) -> None:
        super().__init__(list(transforms))
        if p is not None and len(p) != len(self.transforms):
            raise ValueError(f"RandomChoice: expected one probability per transform. Got {len(p)}.")
        self.p = p

    def __call__(self, image: Any) -> Any:
        weights = None if self.p is None else np.asarray(self.p, np.float64) / np.sum(self.p)
        return self.transforms[int(transform_rng().choice(len(self.transforms), p=weights))](image)


class RandomOrder(Compose):
    """Applies its transforms in a random order."""

    def __call__(self, image: Any) -> Any:
        for number in transform_rng().permutation(len(self.transforms)):
            image = self.transforms[int(number)](image)
        return image


class Maybe(Transform):
    """Base of transforms that are applied with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(type(self).__name__, p)

    def __call__(self, image: Any) -> Any:
        return self.change(image) if transform_rng().random() < self.p else image

    def change(self, image: Any) -> Any:
        raise NotImplementedError
