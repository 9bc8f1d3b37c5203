"""Capture: trace eager functions and their control flow into graphs."""
