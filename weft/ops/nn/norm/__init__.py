"""Normalisation: layer and RMS norm, batch norm, group and instance norm."""
