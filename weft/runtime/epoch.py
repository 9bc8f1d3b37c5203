"""One integer that changes whenever something a captured function may have looked at changes.

Modules bump it (train/eval, attributes, parameters, requires_grad); a captured function that sees another number than at
its last call checks its assumptions again. Bumping is cheap and may happen too often, never too rarely.
"""

from __future__ import annotations

_epoch = 0


def bump() -> None:
    """Say that the static state of some module changed."""
    global _epoch
    _epoch += 1


def current() -> int:
    """The number of changes so far."""
    return _epoch
