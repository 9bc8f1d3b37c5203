"""Checks of data: eager calls check at once, a compiled program checks when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor
from ..core import modes
from ..core.define import primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Bad, Sample
from ..core.spec import Spec
from .elementwise import where

ndarray = np.ndarray


@primitive(
    check_error=ValueError,
    namespace="internal",
    cost="reduce",
    infer=lambda condition, message: Spec((), dtypes.bool_),
    vjp=NOT_DIFFERENTIABLE,
    effects=("check",),
    reference=lambda condition, message: np.all(condition),
    samples=lambda m: [Sample(np.array([True, True]), "norm: all right")],
    errors=lambda m: [Bad(ValueError, "norm: not all right", np.array([True, False]), "norm: not all right")],
)
def check_values(condition: Tensor, message: str) -> Any:
    """Raise ValueError with `message` unless every element of `condition` is true."""
    if not np.all(condition):
        raise ValueError(message)
    return np.asarray(True)


def require(
    x: Tensor, holds: Callable[[Any], Any], message: str, found: Callable[[ndarray], Any] | None = None
) -> Tensor:
    """`x`; raises ValueError with `message` unless `holds(x)`, which takes arrays and tensors, is true of every element.

    Where the values are known, `found` says what was found: the message ends with "Got found(array).". Batched values (vmap)
    are not checked. Use the result in place of `x`: a session runs only what its fetches depend on.
    """
    recording = modes.active and any(mode.takes_writes for mode in modes.current_modes())
    if type(x._data) is ndarray and not recording:
        if not np.all(holds(x._data)):
            raise ValueError(message if found is None else f"{message} Got {found(x._data)}.")
    elif type(x._data) is ndarray or hasattr(x._data, "node"):
        passed = check_values(holds(x.detach()), message)
        if not passed._data.node.graph.separates:  # a declared graph; a captured function runs all of its checks
            return where(passed, x, x)
    return x
