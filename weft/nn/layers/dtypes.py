"""The dtype of a layer's input must be that of its parameters.

Functions of arrays promote: one float64 array as input would silently make a whole model compute in float64.
"""

from __future__ import annotations

from typing import Any

from ...autocast import is_autocast_enabled
from ...dtypes import float32, is_floating


def check_dtype(layer: Any, x: Any, weight: Any, short: bool = False) -> None:
    """Raise unless `x` has the dtype of `weight`, or autocast converts both.

    Args:
        short: also accept 16-bit floats with parameters of float32, as norms do in PyTorch.

    Raises:
        TypeError: names the layer, both dtypes and the two ways out.
    """
    if weight is None or x.dtype == weight.dtype or is_autocast_enabled():
        return
    if short and x.dtype.itemsize == 2 and is_floating(x.dtype) and weight.dtype == float32:
        return
    name = type(layer).__name__
    wanted = weight.dtype.name
    other = f", or convert the model, `model.to(wf.{x.dtype.name})`" if is_floating(x.dtype) else ""
    raise TypeError(
        f"{name}: the input is {x.dtype.name} but the parameters are {wanted}. Convert the input, `x.to(wf.{wanted})`{other}."
    )
