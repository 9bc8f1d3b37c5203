"""Ops that only compiler passes and optimisers make."""
