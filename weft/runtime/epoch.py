"""One integer that changes whenever something a captured function may have looked at changes.

Modules bump it (attributes, parameters, hooks); a captured function that sees another number than at its last call checks
its assumptions again. Bumping is cheap and may happen too often, never too rarely. A change that may be undone, such as
train/eval, goes through `change`: once it is undone the number is the old one again, and so are the captured programs.
"""

from __future__ import annotations

from typing import Any

_MASK = (1 << 64) - 1
_bumps = 0
_changes = 0  # sum of a hash per fact that differs from where it started, modulo 2**64
_epoch = 0


def bump() -> None:
    """Say that the static state of some module changed for good."""
    global _bumps, _epoch
    _bumps += 1
    _epoch = _bumps << 64 | _changes


def change(owner: object, name: str, old: Any, new: Any) -> None:
    """Say that the fact `name` of `owner`, which is alive, went from `old` to `new`; both are hashable."""
    global _changes, _epoch
    key = id(owner)
    _changes = (_changes + hash((key, name, new)) - hash((key, name, old))) & _MASK
    _epoch = _bumps << 64 | _changes


def current() -> int:
    """A number that stands for the static state as far as it was told."""
    return _epoch
