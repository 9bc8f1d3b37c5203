"""Stopping loops from outside: who may interrupt the loops that a thread runs.

A native loop runs without Python, perhaps for ever. It looks at a flag in every iteration; whoever is in charge of the
thread (a step of a session, with its deadline) is told of the flag when the loop begins and may set it.
"""

from __future__ import annotations

import threading
from typing import Any


class Interrupted(RuntimeError):
    """A loop was asked to stop. Variables are as they were, or hold values that were assigned as a whole."""


class _Watched(threading.local):
    by: Any = None  # an object with `begin(flag)`, `end(flag)` and `check()`, or None


watched = _Watched()
