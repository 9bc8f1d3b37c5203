"""User errors, which end a command with one line instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot be carried out; the message says why, and what to type instead."""
