"""Running declared graphs: sessions, placement, partition, executors."""
