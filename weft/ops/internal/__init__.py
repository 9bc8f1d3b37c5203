"""Ops created only by compiler passes and optimisers."""
