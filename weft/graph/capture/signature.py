"""Signatures: what a call must have in common with an earlier one to run the same program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
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


_FIXED_PARTS = 4  # of a key, before those of the arguments


def what_varies(fn: Callable[..., Any], before: Any, now: Any) -> str:
    """What differs between the keys of two calls, and what to do about it, in a sentence or two for the user."""
    if len(now) < _FIXED_PARTS:  # the same arguments, once more
        return "Values that it reads from outside, or gradients of its tensors, vary between calls."
    if before is None or before[0] != now[0]:
        return "The structure of its arguments varies: pass the same number of arguments, in the same containers."
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        names = []
    flat = isinstance(now[0], int)
    pairs = zip(before[_FIXED_PARTS:], now[_FIXED_PARTS:], strict=True)
    found = [
        (f"`{names[i]}`" if flat and i < len(names) else f"leaf {i} of its arguments", a, b)
        for i, (a, b) in enumerate(pairs)
        if a != b
    ]
    if not found:
        return "The gradient mode, a default dtype or a setting varies between calls."
    name, a, b = found[0]
    if isinstance(b[0], tuple):
        if a[:1] != b[:1]:
            return (
                f"The shape of {name} varies: {a[0]}, then {b[0]}. Sizes share machine code, but each is traced and planned: pad "
                "to fewer sizes if that takes long."
            )
        return f"The dtype or the tape entry of {name} varies: pass tensors of one dtype, and detach them all or none."
    return (
        f"The value of {name} varies: {a[1]!r}, then {b[1]!r}. Each value is a program of its own: pass a tensor, "
        f"`wf.tensor({b[1]!r})`, unless the code needs it as a Python value."
    )


def describe_leaves(leaves: list[Any]) -> str:
    """The arguments of a call as a line for the user."""
    return "(" + ", ".join(describe(x) for x in leaves) + ")"
