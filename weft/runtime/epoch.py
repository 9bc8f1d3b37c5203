"""A version number of the static state that captured functions depend on.

Modules bump it (attributes, parameters, hooks); a captured function whose last call saw another number re-checks its
guards. Bumping is cheap; a spurious bump is harmless, a missing one is a bug. A reversible change, such as train/eval,
goes through `change`: once it is undone the old number is back, and the captured programs are valid again.
"""

from __future__ import annotations

from typing import Any

_MASK = (1 << 64) - 1
_bumps = 0
_changes = 0  # sum of a hash per fact that differs from where it started, modulo 2**64
_epoch = 0


def bump() -> None:
    """Record an irreversible change of the static state of a module."""
    global _bumps, _epoch
    _bumps += 1
    _epoch = _bumps << 64 | _changes


def change(owner: object, name: str, old: Any, new: Any) -> None:
    """Record that `name` of the live object `owner` changed from `old` to `new`, both hashable."""
    global _changes, _epoch
    key = id(owner)
    _changes = (_changes + hash((key, name, new)) - hash((key, name, old))) & _MASK
    _epoch = _bumps << 64 | _changes


def current() -> int:
    """The version number of the recorded static state."""
    return _epoch
