"""Implementations of the `weft` commands, called by `weft.cli`."""
