"""Lowers nodes to oneDNN's primitives, one file per family. `register` offers them to the compiler."""

from __future__ import annotations

from ....compiler.lowering.library import Library, use
from .. import library
from . import pool as pool  # registers its rules
from .conv import lower_backward_input, lower_backward_weight, lower_convolution
from .matmul import lower_matmul, lower_matmul_epilogue, prepare_product
from .post_ops import BINARY, LOSES_NAN, UNARY


class OneDNN(Library):
    """oneDNN as the compiler sees it."""

    unary_epilogue_ops = UNARY.keys()
    binary_epilogue_ops = BINARY.keys()
    epilogue_ops_losing_nan = LOSES_NAN
    available = staticmethod(library.available)
    matmul = staticmethod(lower_matmul)
    matmul_epilogue = staticmethod(lower_matmul_epilogue)
    product = staticmethod(prepare_product)
    convolution = staticmethod(lower_convolution)
    convolution_backward_input = staticmethod(lower_backward_input)
    convolution_backward_weight = staticmethod(lower_backward_weight)


def register() -> None:
    """Let programs compiled from now on use oneDNN where it is available. Loads nothing."""
    use(OneDNN())
