"""Declared graphs: placeholders, variables, queues, gradients, files."""
