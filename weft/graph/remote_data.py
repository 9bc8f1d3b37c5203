"""The data of a tensor whose memory is in another process: a variable on a task of a cluster.

Reading it copies the value from there, writing sends it there, and an op on it computes with a copy. What would share its
memory is refused: there is nothing here to share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import format_shape
from ..ops.core.registry import Op
from ..ops.core.spec import num_elements
from ..tensor import Tensor, wrap

# What a tensor does with the array of its values without sharing its memory; other actions are refused.
_COPYING = {"item()", "tolist()", "format", "float()", "int()", "complex()", "use as an index"}


class Home(Protocol):
    """Where the memory of a variable is. `text` names the place for people."""

    text: str

    def read(self) -> np.ndarray:
        """A copy of the value, which belongs to the caller."""

    def assign(self, value: np.ndarray) -> None:
        """Store a value of the right shape and dtype."""


class RemoteData:
    """Stands for the memory of a tensor that lives elsewhere."""

    __slots__ = ("shape", "dtype", "home", "name", "__weakref__")
    priority = 0  # a symbolic operand comes first: then the op becomes a node that reads the variable
    holds_memory = True
    dynamic = False
    __array_ufunc__ = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, home: Home, name: str) -> None:
        self.shape, self.dtype, self.home, self.name = shape, dtype, home, name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return num_elements(self.shape) or 0

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Any:
        return getattr(self.home, "device", None)

    def no_array(self, action: str) -> np.ndarray:
        """A copy of the value for an action that only looks at it; raises for one that would share the memory."""
        if action in _COPYING or action == "conversion to a NumPy array":
            value = self.home.read()
            value.flags.writeable = False
            return value
        raise RuntimeError(
            f"{action}: the memory of variable {self.name!r} is {self.home.text}, not in this process, and cannot be shared. "
            "Take a copy with `v.numpy()` of the Variable or `sess.run(v)`; write with `v.assign(...)` in a step."
        )

    def truth(self, tensor: Tensor) -> bool:
        return bool(wrap(self.home.read()))

    def describe(self, tensor: Tensor) -> str:
        return f"tensor(<{self.name} {self.home.text}>, shape={format_shape(self.shape)}, dtype={self.dtype.name})"

    def apply(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """An eager op on the value of now."""
        return op.run(op.call, op.merge([_here(t) for t in tensors], attrs))

    def assign(self, x: Tensor, value: Tensor) -> None:
        self.home.assign(np.asarray(_here(value)._data, self.dtype))

    def deferred_call(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        return None


def holds_memory(tensor: Tensor) -> bool:
    """Whether `tensor` is one with values, here or on a task, rather than a symbolic or a batched one."""
    data = tensor._data
    return type(data) is np.ndarray or data.__class__ is RemoteData


def _here(tensor: Any) -> Any:
    if isinstance(tensor, Tensor) and isinstance(tensor._data, RemoteData):
        value = tensor._data.home.read()
        value.flags.writeable = False  # a view of it is none of the variable: writing to it must not seem to work
        return wrap(value, tensor._node)
    return tensor
