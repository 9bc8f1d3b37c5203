"""Parameter: a trainable tensor owned by a module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.tree import keep_whole
from ..runtime import epoch
from ..tensor import Tensor, as_leaf, to_array


@keep_whole
class Parameter(Tensor):
    """A tensor that requires gradients and is registered by the module it is assigned to.

    Args:
        data: a tensor or anything array-like; a tensor's memory is shared, not copied.
        requires_grad: whether gradients are wanted.
        sparse_grad: keep the gradients of look-ups (`embedding`, `take`) as rows (`RowSparse`) in `.grad`.

    >>> nn.Parameter(wf.zeros(2, 3)).requires_grad
    True
    """

    # no __slots__: users may set attributes on a parameter (`p.no_decay = True`)
    sparse_grad = False

    def __new__(cls, data: Any = None, requires_grad: bool = True, *, sparse_grad: bool = False) -> Parameter:
        array = data._array("making a parameter") if isinstance(data, Tensor) else to_array(data)
        self: Parameter = Tensor.__new__(cls, array)  # type: ignore[assignment]
        if requires_grad:
            as_leaf(self)
        if sparse_grad:
            self.sparse_grad = True
        return self

    def _relink(self, node: Any) -> None:
        before = self._node is not None
        super()._relink(node)
        if before != (node is not None):
            epoch.change(self, "requires_grad", before, not before)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = super().__deepcopy__(memo)
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (*super().__reduce_ex__(protocol), dict(self.__dict__))

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


class UninitializedParameter(Parameter):
    """A parameter that has no shape yet; `materialize` gives it one, and makes it an ordinary `Parameter`."""

    def __new__(cls, requires_grad: bool = True, *, dtype: Any = None) -> UninitializedParameter:
        return super().__new__(cls, np.empty((0,), dtype or np.float32), requires_grad)  # type: ignore[return-value]

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Allocate `shape` in place, so existing references (optimisers) stay valid."""
        self._data = np.zeros(shape, self._data.dtype)
        self.__class__ = Parameter  # type: ignore[assignment]
        epoch.bump()

    def __repr__(self) -> str:
        return "UninitializedParameter(its shape follows from the first input)"
