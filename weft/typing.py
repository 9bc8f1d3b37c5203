"""Types that many signatures share. Use them to annotate functions that pass arguments on to Weft.

>>> import weft as wf
>>> from weft.typing import ArrayLike, Axis
>>> def spread(x: ArrayLike, axis: Axis = None) -> wf.Tensor:
...     return wf.max(x, axis=axis) - wf.min(x, axis=axis)
>>> spread(wf.tensor([1.0, 4.0])).item()
3.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, Union

import numpy as np

if TYPE_CHECKING:
    from .runtime.device import Device
    from .tensor import Tensor

P = ParamSpec("P")  # the parameters of a function that another one wraps
R = TypeVar("R")  # and its result
F = TypeVar("F", bound=Callable[..., Any])


class SupportsTensor(Protocol):
    """An object that calls accept as a tensor: a `Variable` of a declared graph."""

    def __weft_tensor__(self) -> Tensor: ...


Scalar: TypeAlias = bool | int | float | complex
"""A Python number. Beside a tensor it takes the tensor's dtype where that can hold it."""

ArrayLike: TypeAlias = Union["Tensor", "np.ndarray[Any, Any]", SupportsTensor]
"""What a tensor argument accepts: a tensor, or a NumPy array, which is used without a copy."""

Operand: TypeAlias = Union["Tensor", "np.ndarray[Any, Any]", "np.generic[Any]", SupportsTensor, Scalar]
"""What operators and elementwise functions accept: tensors, arrays and numbers."""

Axis: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or None for all of them. Negative numbers count from the end."""

Shape: TypeAlias = tuple[int, ...]
"""The sizes of a tensor's axes."""

ShapeLike: TypeAlias = int | Sequence[int]
"""A shape as users write it: `3`, `(2, 3)` or `[2, 3]`."""

OutputSize: TypeAlias = int | Sequence[int | None] | None
"""The size that adaptive pooling gives: one number for all axes or one per axis; None keeps the size of the input."""

Params: TypeAlias = Iterable["Tensor"] | Iterable[tuple[str, "Tensor"]] | Iterable[Mapping[str, Any]]
"""What an optimiser trains: tensors (`model.parameters()`), names and tensors (`model.named_parameters()`), or groups of them:
`{"params": tensors, "lr": 0.1}`."""

DTypeLike: TypeAlias = Union["np.dtype[Any]", type, str]
"""A dtype as users write it: `wf.float32`, `np.float32`, `float` or `"float32"`."""

Index: TypeAlias = Union[
    "Tensor", "np.ndarray[Any, Any]", int, slice, EllipsisType, None, bool, Sequence[Any], "np.generic[Any]"
]
"""What stands between the brackets of `x[...]`: an integer, a slice, `...`, None, an index or mask tensor, or a tuple
of these."""

DeviceLike: TypeAlias = Union["Device", str]
"""A device as users write it: `"cpu"`, `"cpu:0"` or a tensor's `device`."""
