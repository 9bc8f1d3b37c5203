"""Graphs of ops: the graph IR, capture of eager functions, declared graphs and their executors."""
