"""The library of primitives that rules may lower to.

The compiler imports no backend. A backend that wraps a library registers it with `use`, and the rules of ops that only the
library computes (pooling) with `weft.compiler.lowering.registry.lowers`. A rule that knows a native kernel asks `library()`
for the other way; `weft.compiler.tuning` chooses between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ...graph.graph import Node
from ...ops.internal.epilogue import Epilogue
from ..program.layout import Layout

if TYPE_CHECKING:
    from .lower import Lowering

Matrices = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape and strides of a matrix, or of a batch of matrices."""
Product = Callable[["Lowering", Node, Layout, Layout, Layout, str], None]
"""`product(lowering, node, a, b, c, label)` adds the step c = a @ b."""


class Library:
    """What a library of primitives computes, as steps of a program. This base class stands for no library at all.

    A method that returns a bool adds the steps for a node, or returns False where the library cannot compute it.
    """

    unary_epilogue_ops: Collection[str] = ()
    """Names of the ops of one operand that an epilogue may have."""
    binary_epilogue_ops: Collection[str] = ()
    """Names of the ops of two operands, the first of them the previous result, that an epilogue may have."""
    epilogue_ops_losing_nan: Collection[str] = ()
    """Those of them that map NaN to a number."""

    def available(self) -> bool:
        """Whether the library can be used in this process."""
        return False

    def matmul(self, lowering: Lowering, node: Node) -> bool:
        """A `matmul` node."""
        return False

    def matmul_epilogue(
        self, lowering: Lowering, node: Node, a: Layout, b: Layout, epilogue: Epilogue, operands: Sequence[Layout]
    ) -> bool:
        """A `matmul_epilogue` node, with the operands of its epilogue as matrices."""
        return False

    def product(self, a: Matrices, b: Matrices, c: Matrices, accumulate: bool = False) -> Product:
        """Float32 products of matrices with these shapes and strides; with `accumulate` they are added to `c`."""
        raise NotImplementedError("product: no library is registered. Ask `available()` first.")

    def convolution(self, lowering: Lowering, node: Node, isa: str = "") -> bool:
        """A `convolution` or `convolution_epilogue` node. `isa` limits the instruction set."""
        return False

    def convolution_backward_input(self, lowering: Lowering, node: Node) -> bool:
        """A `convolution_backward_input` node."""
        return False

    def convolution_backward_weight(self, lowering: Lowering, node: Node) -> bool:
        """A `convolution_backward_weight` node."""
        return False


_library = Library()


def use(library: Library) -> None:
    """Register the library that programs are lowered to from now on."""
    global _library
    _library = library


def library() -> Library:
    """The registered library."""
    return _library
