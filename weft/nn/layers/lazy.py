"""Layers that infer their input size from the first input.

    model = nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten(), nn.LazyLinear(10))
    model(images)        # now they are a Conv2d and a Linear

The parameters exist from the start, so an optimiser made before the first call trains them; until then they are empty.
Loading a state dict gives them their size as well.
"""

from __future__ import annotations

from typing import Any

from ...graph.capture.tracing import outside
from ...runtime import epoch
from ...tensor import Tensor
from ...typing import DTypeLike, ShapeLike
from .. import init
from ..module import Module
from ..parameter import UninitializedParameter
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear


class _Lazy(Module):
    """Mixed into a layer: `weight` waits for the first input, which tells the attribute `_size`."""

    _becomes: type[Module]
    _size: str  # name of the attribute that holds the input size
    _axis: int  # the input's axis of that size
    weight: Any

    def _wait(self, dtype: Any) -> None:
        self.weight = UninitializedParameter(dtype=dtype)
        if self.bias is not None:
            init.zeros_(self.bias)

    def reset_parameters(self) -> None:
        """Nothing to draw before there is a size."""
        if getattr(self, self._size):
            super().reset_parameters()  # type: ignore[misc]  # the layer that this is mixed into has it

    def _shape(self, size: int) -> tuple[int, ...]:
        raise NotImplementedError

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Take the size of `x`, become the ordinary layer, and compute."""
        name = type(self).__name__
        least = -self._axis
        if x.ndim < least or not isinstance(x.shape[self._axis], int):
            raise ValueError(f"{name}: expected an input of at least {least} axes of known size. Got shape {x.shape}.")
        size = x.shape[self._axis]
        with outside():
            drawn = isinstance(self.weight, UninitializedParameter)
            if drawn:
                self.weight.materialize(self._shape(size))
            else:  # a state dict was loaded
                size = self._loaded_size()
            setattr(self, self._size, size)
            object.__setattr__(self, "__class__", self._becomes)
            if drawn:
                self.reset_parameters()
            epoch.bump()
        return self.forward(x, *args, **kwargs)

    def _loaded_size(self) -> int:
        raise NotImplementedError


class LazyLinear(_Lazy, Linear):
    """A `Linear` whose `in_features` is inferred from the first input.

    >>> layer = nn.LazyLinear(3)
    >>> layer(wf.ones(2, 5)).shape, layer.weight.shape
    ((2, 3), (3, 5))
    """

    _becomes, _size, _axis = Linear, "in_features", -1

    def __init__(self, out_features: int, bias: bool = True, *, dtype: DTypeLike | None = None) -> None:
        super().__init__(0, out_features, bias, dtype=dtype)
        self._wait(dtype)

    def _shape(self, size: int) -> tuple[int, ...]:
        return self.out_features, size

    def _loaded_size(self) -> int:
        return self.weight.shape[1]


class _LazyConv(_Lazy):
    _size = "in_channels"
    _min_in_channels = 0  # unknown until the first input

    def __init__(
        self, out_channels: int, kernel_size: ShapeLike, *args: Any, dtype: DTypeLike | None = None, **settings: Any
    ) -> None:
        super().__init__(0, out_channels, kernel_size, *args, dtype=dtype, **settings)  # type: ignore[call-arg]
        self._wait(dtype)

    def _shape(self, size: int) -> tuple[int, ...]:
        if size % self.groups:
            raise ValueError(
                f"{type(self).__name__}: groups={self.groups} does not divide the {size} channels of the input."
            )
        channels = (size, self.out_channels) if self._transposed else (self.out_channels, size)
        return channels[0], channels[1] // self.groups, *self.kernel_size

    def _loaded_size(self) -> int:
        return self.weight.shape[0] if self._transposed else self.weight.shape[1] * self.groups


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = Conv1d, -2


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = Conv2d, -3


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = Conv3d, -4


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A `ConvTranspose1d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = ConvTranspose1d, -2


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A `ConvTranspose2d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = ConvTranspose2d, -3


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A `ConvTranspose3d` whose in_channels follow from the first input. Other arguments as there."""

    _becomes, _axis = ConvTranspose3d, -4
