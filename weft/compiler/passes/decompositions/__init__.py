"""Ops written with smaller ops, which fuse with their neighbours."""
