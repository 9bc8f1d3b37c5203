"""Recurrent layers and cells: primitive ops, and the functions users call."""
