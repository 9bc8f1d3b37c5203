"""Ops and functions of models: activations, losses, attention, embeddings."""
