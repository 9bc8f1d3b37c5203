"""Pooling: primitive ops, and the functions users call."""
