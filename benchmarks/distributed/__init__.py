"""Benchmarks of runs on several worker processes."""
