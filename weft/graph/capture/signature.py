"""Signatures: what a call must have in common with an earlier one to run the same program."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf, grad_mode
from ...autograd.tree import is_container
from ...errors import describe
from ...runtime import epoch
from ...tensor import Tensor, wrap
from .tracing import CaptureError

ndarray = np.ndarray


def is_flat(args: tuple[Any, ...]) -> bool:
    """Whether no argument is a container."""
    for a in args:
        if a.__class__ is not Tensor and a is not None and is_container(a):
            return False
    return True


def signature_of(leaves: list[Any], structure: Any) -> tuple[Any, list[Tensor]]:
    """The key of a trace, and the tensors among the arguments."""
    parts: list[Any] = [structure, grad_mode.enabled, epoch.current(), dtypes._default_float]
    tensors: list[Tensor] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            data = leaf._data
            if data.__class__ is not ndarray:
                return None, tensors
            node = leaf._node
            parts.append((data.shape, data.dtype, None if node is None else node.__class__ is Leaf))
            tensors.append(leaf)
        elif isinstance(leaf, ndarray):
            parts.append((leaf.shape, leaf.dtype, None))
            tensors.append(wrap(leaf))
        else:
            try:
                hash(leaf)
            except TypeError:
                raise CaptureError(
                    f"function: an argument of type {type(leaf).__name__} is neither a tensor nor hashable. "
                    "Pass tensors, numbers, strings, or lists, tuples and dicts of them."
                ) from None
            parts.append((leaf.__class__, leaf))
    return tuple(parts), tensors


def describe_leaves(leaves: list[Any]) -> str:
    """The arguments of a call as a line for the user."""
    return "(" + ", ".join(describe(x) for x in leaves) + ")"
