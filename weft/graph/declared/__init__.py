"""Declared graphs: building, variables, queues, gradients and files."""
