"""Execution of declared graphs: sessions, executors, placement and devices."""
