"""Nested lists, tuples and dicts of tensors, see `weft.autograd.tree`."""

from ..autograd.tree import flatten as flatten
from ..autograd.tree import map_tree as map_tree
from ..autograd.tree import unflatten as unflatten
