"""Weft tensors in einops (`einops.rearrange(t, "b c h w -> b (c h w)")`), and its layers for Weft's modules.

The functions of einops take tensors whenever both packages are imported, in either order: einops asks the subclasses of its
`AbstractBackend`, and `register` makes one when einops is imported. The layers `Rearrange`, `Reduce` and `EinMix` are those of
`einops.layers.torch`:

    from weft.einops import Rearrange

    model = nn.Sequential(nn.Conv2d(3, 8, 3), Rearrange("b c h w -> b (c h w)"))
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import weft as wf

from . import dtypes, nn

LAYERS = ("EinMix", "Rearrange", "Reduce")


@functools.cache
def register() -> Any:
    """Let einops take Weft tensors; returns its backend class. Called when einops is imported."""
    from einops._backends import AbstractBackend

    class WeftBackend(AbstractBackend):
        framework_name = "weft"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, wf.Tensor)

        def from_numpy(self, x: np.ndarray) -> Any:
            tensor = wf.asarray(x)
            return tensor.requires_grad_() if self.is_float_type(tensor) else tensor

        def to_numpy(self, x: Any) -> np.ndarray:
            return x.detach().numpy()

        def arange(self, start: int, stop: int) -> Any:
            return wf.arange(start, stop)

        def reshape(self, x: Any, shape: Any) -> Any:
            return wf.reshape(x, tuple(shape))

        def transpose(self, x: Any, axes: Any) -> Any:
            return wf.permute_dims(x, tuple(axes))

        def reduce(self, x: Any, operation: str, axes: Any) -> Any:
            return getattr(wf, operation)(x, axis=tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return wf.stack(tensors)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return wf.expand_dims(x, axis=new_position)

        def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Any:
            for position in pos2len:
                x = self.add_axis(x, position)
            return wf.broadcast_to(x, tuple([pos2len.get(i, x.shape[i]) for i in range(n_axes)]))

        def tile(self, x: Any, repeats: Any) -> Any:
            return wf.tile(x, tuple(repeats))

        def concat(self, tensors: list[Any], axis: int) -> Any:
            return wf.concat(tensors, axis=axis)

        def is_float_type(self, x: Any) -> bool:
            return dtypes.is_floating(x.dtype)

        def layers(self) -> Any:
            import weft.einops as layers

            return layers

        def einsum(self, pattern: str, *x: Any) -> Any:
            return wf.einsum(pattern, *x)

    return WeftBackend


@functools.cache
def _layers() -> dict[str, Any]:
    """The layers, made at their first use because their base classes are einops'."""
    from einops.layers import RearrangeMixin, ReduceMixin
    from einops.layers._einmix import _EinmixMixin

    class Rearrange(RearrangeMixin, nn.Module):
        """`einops.rearrange` as a layer: `Rearrange("b c h w -> b (c h w)")`."""

        def forward(self, input: Any) -> Any:
            return self._apply_recipe(input)

    class Reduce(ReduceMixin, nn.Module):
        """`einops.reduce` as a layer: `Reduce("b c h w -> b c", "mean")`."""

        def forward(self, input: Any) -> Any:
            return self._apply_recipe(input)

    class EinMix(_EinmixMixin, nn.Module):
        """A product with a weight, as a pattern: `EinMix("b i -> b o", weight_shape="i o", bias_shape="o", i=3, o=4)`."""

        def _create_parameters(
            self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
        ) -> None:
            self.weight = nn.Parameter(wf.uniform(-weight_bound, weight_bound, tuple(weight_shape)))
            self.bias = None
            if bias_shape is not None:
                self.bias = nn.Parameter(wf.uniform(-bias_bound, bias_bound, tuple(bias_shape)))

        def _create_rearrange_layers(self, before: Any, before_lengths: Any, after: Any, after_lengths: Any) -> None:
            layer: Any = Rearrange
            self.pre_rearrange = None if before is None else layer(before, **before_lengths)
            self.post_rearrange = None if after is None else layer(after, **after_lengths)

        def forward(self, input: Any) -> Any:
            x = input if self.pre_rearrange is None else self.pre_rearrange(input)
            result = wf.einsum(self.einsum_pattern, x, self.weight)
            if self.bias is not None:
                result = result + self.bias
            return result if self.post_rearrange is None else self.post_rearrange(result)

    found = {cls.__name__: cls for cls in (Rearrange, Reduce, EinMix)}
    for name, cls in found.items():
        cls.__module__, cls.__qualname__ = __name__, name  # pickle finds them here
    return found


def __getattr__(name: str) -> Any:
    if name in LAYERS:
        register()
        return _layers()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has {', '.join(LAYERS)}.")
