"""Names that people type: PyTorch's and NumPy's names for what Weft calls otherwise, or can compose from its ops.

`ALIASES` lists second names of functions; the modules hold functions that are compositions of ops. All of them are in
`weft`, and those whose first argument is a tensor are methods of Tensor.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ... import dtypes
from . import arithmetic, creation, indexing, products, shapes, statistics

MODULES: list[ModuleType] = [shapes, indexing, products, arithmetic, statistics, creation]

ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "array": "tensor", "bitwise_not": "bitwise_invert", "cat": "concat",
    "clamp": "clip", "concatenate": "concat", "eq": "equal", "fix": "trunc", "ge": "greater_equal", "gt": "greater",
    "le": "less_equal", "lt": "less", "mul": "multiply", "ne": "not_equal",
    "neg": "negative", "power": "pow", "sub": "subtract", "swapdims": "swapaxes",
}  # fmt: skip
"""alias -> the name in `weft`"""

ACTIVATIONS = ("relu", "softmax", "log_softmax", "celu", "selu", "prelu", "rrelu", "dropout", "layer_norm", "batch_norm",
               "group_norm", "instance_norm", "embedding", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
               "conv_transpose3d", "pixel_shuffle", "pixel_unshuffle", "ctc_loss", "embedding_bag", "bilinear")  # fmt: skip
"""functions of `weft.nn.functional` that PyTorch also has in `torch`"""


DTYPES = {
    "half": dtypes.float16, "float": dtypes.float32, "double": dtypes.float64, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}  # fmt: skip
"""PyTorch's short names of dtypes"""


def functions(methods: bool = False) -> dict[str, Any]:
    """The functions of the modules, by name; with `methods` those that are methods of Tensor, too."""
    modules = [module for module in MODULES if not methods or module is not creation]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def in_place() -> dict[str, Any]:
    """The functions that have an in-place form, by the name of the function."""
    return {name: getattr(module, name) for module in MODULES for name in getattr(module, "IN_PLACE", ())}
