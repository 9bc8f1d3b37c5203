"""One integer that changes whenever something a captured function may have looked at changes.

Modules bump it (attributes, parameters, requires_grad) or toggle it (train/eval); a captured function that sees another
number than at its last call checks its assumptions again. Both are cheap and may happen too often, never too rarely.

A bump never comes back to an earlier number. A toggle does when it is undone: after `model.eval()` and `model.train()`
the number is what it was, so that a training loop that validates now and then finds its captured step again.
"""

from __future__ import annotations

_bumps = 0
_modes = 0  # the keys of everything that is not in its first mode, mixed and combined by exclusive or


def bump() -> None:
    """Say that the static state of some module changed."""
    global _bumps
    _bumps += 1


def toggle(key: int) -> None:
    """Say that the thing called `key` (its `id`) went to its other mode, or back from it."""
    global _modes
    _modes ^= hash((key, "mode"))


def current() -> int:
    """A number that is the same only while nothing has changed."""
    return _bumps ^ _modes
