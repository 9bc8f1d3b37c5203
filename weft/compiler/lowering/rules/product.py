"""Lowers matmuls to the blocked kernel (`kernels/blocked_matmul.py`) where it is faster than the library on this machine.

It leads by a few per cent where packed panels are reused often enough (`suits`), and its epilogue is free. One such
product is timed once per machine, instead of every product of every program: a trial costs more time than most programs
would gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....graph.graph import Node
from ....ops.core.registry import table
from ....ops.core.spec import Spec
from ....ops.internal.epilogue import IDENTITY, Epilogue
from ...flow import Flow
from ...loop_ir.kernels import deep_matmul
from ...loop_ir.kernels.blocked_matmul import product_kernel
from ...loop_ir.kernels.deep_matmul import deep_kernel
from ...loop_ir.kernels.tiles import tile_columns
from ...program.layout import Layout, row_major
from ...program.steps import KernelCall
from ...target import Target
from ...tuning import Sample, Way, choose
from ..library import library
from .labels import label_with

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_ROWS, MIN_COLUMNS, MIN_DEPTH = 96, 48, 32
"""Minimum sizes for blocking: with few rows packing dominates."""
FLOAT = np.dtype(np.float32)
TRIAL_SHAPE = (4096, 256, 256)


def suits(a: Layout, b: Layout) -> bool:
    """Whether `a @ b` suits the blocked kernel, on machines where it leads.

    The right operand is packed, which pays off if it is reused for many rows. So is a left one without contiguous rows; for
    a large depth that costs more than it gains.
    """
    if len(a.shape) != 2 or len(b.shape) != 2:
        return False
    (rows, depth), columns = a.shape, b.shape[1]
    return (
        a.dtype == b.dtype == FLOAT
        and rows >= MIN_ROWS
        and columns >= MIN_COLUMNS
        and depth >= MIN_DEPTH
        and 1 in b.strides
        and (a.strides[1] == 1 or a.strides[0] == 1 and depth <= 4 * min(rows, columns))
    )


def suits_deep(a: Layout, b: Layout, target: Target) -> bool:
    """Whether `a @ b` suits `multiply_deep`, on machines where the native kernel leads."""
    return (
        len(a.shape) == len(b.shape) == 2
        and a.dtype == b.dtype == FLOAT
        and 1 in a.strides
        and 1 in b.strides
        and deep_matmul.suits(a.shape[0], b.shape[1], a.shape[1], target)
    )


def leads(target: Target) -> bool:
    """Whether the native kernel is faster than the library, if there is one."""
    if not library().available():
        return True
    flow = Flow("ordinary")
    m, k, n = TRIAL_SHAPE
    inputs = [flow.placeholder(shape, FLOAT) for shape in ((m, k), (k, n))]
    node = flow.add(table["matmul"], inputs, (), (Spec((m, n), FLOAT),))
    sample = Sample(((m, k), (k, n)), ((m, n),), (), 1.0, lambda label: False)
    ways: dict[str, Way] = {"library": library().matmul, "blocks": lower_blocks}
    # with shorter vectors only a trial may choose it
    preferred = "blocks" if target.vector_bytes >= 64 else "library"
    return choose(node, ways, preferred, "products", lambda: sample, variant="product").way == "blocks"


def lower_blocks(lowering: Lowering, node: Node) -> bool:
    """A `matmul` node."""
    a, b = (lowering.layout_of(v) for v in node.inputs)
    return multiply(lowering, node, a, b)


def multiply(
    lowering: Lowering, node: Node, a: Layout, b: Layout, epilogue: Epilogue = IDENTITY, operands: Sequence[Layout] = ()
) -> bool:
    """A step that computes the node as `a @ b` with an epilogue."""
    c = lowering.place(node, 0, row_major(tuple(node.outputs[0].shape)), node, None)
    target = c if c.strides[1] == 1 else lowering.temporary(c.shape, c.dtype)
    kernel, (private, shared) = product_kernel(a, b, target, lowering.target, epilogue, operands, lowering.open_sizes)
    storages = [
        x.storage
        for x in (a, b, lowering.scratch(private, FLOAT), lowering.temporary((shared,), FLOAT), target, *operands)
    ]
    reads = [storages[0], storages[1], *storages[5:]]
    label = label_with("matmul", epilogue)
    lowering.steps.append(KernelCall(label, [node], reads, storages[2:5], kernel, storages))
    if target is not c:
        lowering.copy(target, node, c)
    return True


def multiply_deep(lowering: Lowering, node: Node, a: Layout, b: Layout, out: Layout, label: str = "matmul") -> None:
    """A step for `out = a @ b` with a large depth."""
    # either side could provide the columns: operands are read unpacked. The choice is kept because it affects rounding
    short, long = sorted((a.shape[0], b.shape[1]))
    if b.shape[1] != (short if short <= tile_columns(lowering.target) else long):
        a, b, out = _transposed(b), _transposed(a), _transposed(out)
    kernel, (sums, private) = deep_kernel(a, b, out, lowering.target)
    storages = [x.storage for x in (a, b, lowering.temporary((sums,), FLOAT), lowering.scratch(private, FLOAT), out)]
    lowering.steps.append(KernelCall(label, [node], storages[:2], storages[2:], kernel, storages))


def _transposed(x: Layout) -> Layout:
    return Layout(x.storage, x.dtype, x.shape[::-1], x.strides[::-1], x.offset)
