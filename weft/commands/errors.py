"""Mistakes of the user that end a command with one line instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """Something the user asked for cannot be done; the message says what, and what to type instead."""
