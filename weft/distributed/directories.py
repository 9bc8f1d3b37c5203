"""Temporary directories of runs and clusters: private, and with names that are short enough for the sockets in them."""

from __future__ import annotations

import os
import tempfile

LONGEST = 56  # bytes of the parent's name: the name of a socket has at most 107 on Linux, 103 on macOS


def parent() -> str:
    """Where such directories are made: the usual place for temporary files, or /tmp if its name is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST else "/tmp"


def make(prefix: str) -> str:
    """A new directory that only this user can enter."""
    return tempfile.mkdtemp(prefix=prefix, dir=parent())  # mode 0700
