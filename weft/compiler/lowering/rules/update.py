"""Fuses a matmul into the elementwise cluster that consumes it: a weight gradient into its optimiser step, for example.

    %g = matmul(%grad.T, %x); %m' = gather_speed(%m, %g); %w' = descend(%w, %m')          two steps, %g in memory
    %w', %m' = (one kernel, see `kernels/blocked_matmul.py`)                                 one step, %g in registers

    %y = matmul(%x, %w.T); %z = add(%y, %b); %r = relu(%z)                                      likewise for other clusters
    %r = (one kernel)

A product is deferred (`defer_product`) when its one reader is an elementwise cluster of the same shape, and computed inside
that cluster's loops (`lower_update`), unless it is deep and the library's matmul is faster on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....graph.graph import CONSTANT, Node, Value
from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ....ops.internal.epilogue import PRODUCT, Apply, Constant, Epilogue, Input, Operand, Result, expression
from ...fusion import Cluster, is_view
from ...loop_ir import ir as loops
from ...loop_ir.ir import Buffer, Kernel, Let, Statement
from ...loop_ir.kernels.blocked_matmul import blocked_product, blocks, scratch
from ...loop_ir.kernels.epilogue import MatrixOperand
from ...program.layout import Layout, Storage, row_major
from ...program.steps import KernelCall

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_RESULT_ELEMENTS = 1 << 17  # elements of a product that are worth a fused kernel
MAX_SHALLOW_DEPTH = 128  # depth up to which a weight gradient and its update are memory-bound: always fused


def defer_product(lowering: Lowering, node: Node, a: Layout, b: Layout, suits: Callable[[], bool]) -> bool:
    """Whether the product `a @ b` is deferred to the cluster that reads it. `suits()`: whether it suits the blocked kernel."""
    out = node.outputs[0]
    shape = tuple(out.shape)
    if (
        len(shape) != 2
        or len(a.shape) != 2
        or len(b.shape) != 2
        or out.dtype != np.float32
        or out in lowering.wanted
        or any(x.storage.kind == "cursor" for x in (a, b))  # its address advances before the product is computed
    ):
        return False
    unit = _reader(lowering, node)
    if unit is None or not _simple(unit, shape) or not (_shallow(a, b) or suits()):
        return False
    if any(_reader(lowering, v.node) is unit for v in lowering.deferred_products):
        return False  # one product per loop nest
    lowering.deferred_products[out] = (a, b)
    return True


def _shallow(a: Layout, b: Layout) -> bool:
    return a.shape[0] * b.shape[1] >= MIN_RESULT_ELEMENTS and a.shape[1] <= MAX_SHALLOW_DEPTH and b.strides[1] == 1


def _reader(lowering: Lowering, node: Node) -> Cluster | None:
    """The one cluster that reads the node's result, never through a view."""
    users = lowering._direct_users(node)
    numbers = {lowering.fuser.unit_of.get(u) for u in users}
    number = numbers.pop() if len(numbers) == 1 else None
    if number is None or any(is_view(u) for u in users):
        return None
    unit = lowering.fuser.units.get(number)
    return unit if isinstance(unit, Cluster) else None


def _simple(cluster: Cluster, shape: tuple[int, ...]) -> bool:
    """Every member computes one float32 per element of the shape, from elements at the same place."""
    if cluster.reduced or cluster.space != shape:
        return False
    for n in cluster.members:
        if n.op.expression is None or not cluster.full(n) or n.outputs[0].dtype != np.float32:
            return False
        for v in n.inputs:
            if v.dtype != np.float32 or cluster.member_of(v) not in (None, v.node):
                return False
    return True


def _epilogue_of(
    cluster: Cluster, members: list[Node], product: Value, stored: list[Node]
) -> tuple[Epilogue, list[Value]]:
    """The cluster as the epilogue of the product, whose results are those of `stored`, and its operands."""
    inputs: dict[Value, Input] = {product: PRODUCT}
    made: dict[Node, Result] = {}

    def operand(v: Value) -> Operand:
        if v.node in cluster.axes:
            return made[v.node]
        if v.node.op is CONSTANT and v.node.attrs[0].size == 1:
            return Constant(float(v.node.attrs[0].item()))
        return inputs.setdefault(v, Input(len(inputs)))

    steps = []
    for n in members:
        steps.append(Apply(n.op.name, tuple([operand(v) for v in n.inputs])))
        made[n] = Result(len(made))
    return Epilogue(tuple(steps), tuple([made[n] for n in stored])), list(inputs)[1:]


class _Place(NamedTuple):
    """Where an operand or a result of the kernel is."""

    buffer: Buffer
    operand: MatrixOperand

    @property
    def streamed(self) -> bool:
        """Whether every row is a contiguous piece of memory that other rows do not read."""
        return self.operand.row_stride != 0 and self.operand.column_stride == 1

    def at(self, row: Expr, column: Expr) -> Expr:
        return self.operand.at(self.buffer, row, column)


def _broadcast(layout: Layout) -> tuple[int, int]:
    """The strides of an operand as a matrix of the product's shape."""
    steps = [0 if d == 1 else st for d, st in zip(layout.shape, layout.strides, strict=True)]
    rows, columns = [0, 0, *steps][-2:]
    return rows, columns


def lower_update(lowering: Lowering, cluster: Cluster) -> bool:
    """Lower a cluster together with the product that was deferred to it, if there is one."""
    product = next((v for n in cluster.members for v in n.inputs if v in lowering.deferred_products), None)
    if product is None:
        return False
    left, right = lowering.deferred_products.pop(product)
    size = blocks(left, right.shape[1], lowering.target, lowering.open_sizes)
    private, shared = scratch(left, right, size, lowering.target)
    workspace, packed = lowering.scratch(private, right.dtype), lowering.temporary((shared,), right.dtype)
    own = (left, right, workspace, packed)
    members = sorted(cluster.members, key=lambda n: n.order)
    stored = [n for n in members if lowering._used_outside(n, cluster)]
    epilogue, values = _epilogue_of(cluster, members, product, stored)
    read = [(x, _broadcast(x)) for x in [lowering.layout_of(v) for v in values]]
    ways: dict[int, list[Any]] = {id(x.storage): [None] for x in own}
    for x, strides in read:
        ways.setdefault(id(x.storage), []).append((x.offset, strides, cluster.space))
    written = [lowering.place(n, 0, row_major(cluster.space), cluster, ways, joins=True) for n in stored]
    buffers: dict[int, tuple[Buffer, Storage]] = {}  # several layouts may share a storage

    def placed(layout: Layout, strides: tuple[int, ...]) -> _Place:
        key = id(layout.storage)
        if key not in buffers:
            buffers[key] = (Buffer.of(f"b{len(buffers)}", layout.dtype, (1 << 40,)), layout.storage)
        return _Place(buffers[key][0], MatrixOperand(strides[0], strides[1], layout.offset))

    factors = [placed(x, (*x.strides, 0)) for x in own]  # scratch buffers are vectors
    targets = [placed(x, x.strides) for x in written]
    operands = [placed(x, strides) for x, strides in read]

    def finish(i: Expr, j: Expr, value: Expr, tag: str) -> list[Statement]:
        lets: list[Let] = []

        def step(op: str, given: list[Any]) -> Expr:
            terms = [s.const(x, s.FLOAT32) if isinstance(x, float) else x for x in given]
            lets.append(Let(f"{tag}v{len(lets)}", s.cast(expression(op, terms), s.FLOAT32)))
            return lets[-1].var

        results = epilogue.apply_all(step, [value, *[x.at(i, j) for x in operands]])
        return [*lets, *[loops.store(x.at(i, j), result) for x, result in zip(targets, results, strict=True)]]

    changed = {x.buffer.name for x in targets}
    touched = [(x, True) for x in targets]
    touched += [
        (x, False)
        for x in operands
        if x.operand.row_stride and x.operand.column_stride == 1 and x.buffer.name not in changed
    ]

    def near(i: Expr, j: Expr) -> list[Statement]:
        return [loops.prefetch(x.at(i, j), write) for x, write in touched]

    # layers repeat, and an equal kernel that is another object costs time to compare
    places = tuple([(x.buffer.name, x.operand) for x in (*factors, *targets, *operands)])
    key = (left.shape, right.shape[1], epilogue, places)
    kernel = lowering.kernels.get(key)
    if kernel is None:
        a, b, temporary, panels = (x.buffer for x in factors)
        body = blocked_product((a, left), (b, right), temporary, panels, size, lowering.target, finish, near)
        kernel = lowering.kernels[key] = Kernel("update", tuple([x for x, _ in buffers.values()]), (), tuple(body))
    storages = [st for _, st in buffers.values()]
    writes = [x.storage for x in (workspace, packed, *written)]
    reads = [x.storage for x in (left, right, *[x for x, _ in read])]
    label = "matmul+" + "+".join(dict.fromkeys(epilogue.names))
    lowering.steps.append(KernelCall(label, [product.node, *members], reads, writes, kernel, storages))
    return True
