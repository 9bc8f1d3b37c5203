"""Fuses a matmul into the elementwise cluster that consumes it: a weight gradient into its optimiser step, for example.

    %g = matmul(%grad.T, %x); %m' = gather_speed(%m, %g); %w' = descend(%w, %m')          two steps, %g in memory
    %w', %m' = (one kernel, see `kernels/blocked_matmul.py`)                                 one step, %g in registers

    %y = matmul(%x, %w.T); %z = add(%y, %b); %r = relu(%z)                                      likewise for other epilogues
    %r = (one kernel)

A product is deferred (`defer_product`) when its one reader is an elementwise cluster of the same shape, and computed inside
that cluster's loops (`lower_update`), unless it is deep and oneDNN's matmul is faster on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.graph import CONSTANT, Node, Value
from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...fusion import Cluster, is_view
from ...layout import Layout, Storage, row_major
from ...loop_ir import ir as loops
from ...loop_ir.ir import Buffer, Kernel, Let, Statement
from ...loop_ir.kernels.blocked_matmul import blocked_product, blocks, scratch
from ..lower import Step

if TYPE_CHECKING:
    from ..lower import Lowering

MIN_RESULT_ELEMENTS = 1 << 17  # elements of a product that are worth a fused kernel
MAX_SHALLOW_DEPTH = 128  # depth up to which a weight gradient and its update are memory-bound: always fused


def defer_product(lowering: Lowering, node: Node, a: Layout, b: Layout, own: Callable[[], bool]) -> bool:
    """Whether the product `a @ b` waits for the cluster that reads it. `own()`: whether our kernel for blocks suits it."""
    out = node.outputs[0]
    shape = tuple(out.shape)
    if (
        len(shape) != 2
        or len(a.shape) != 2
        or len(b.shape) != 2
        or out.dtype != np.float32
        or out in lowering.wanted
        or any(x.storage.kind == "cursor" for x in (a, b))  # moves on before it is read
    ):
        return False
    unit = _reader(lowering, node)
    if unit is None or not _simple(unit, shape) or not (_shallow(a, b) or own()):
        return False
    if any(_reader(lowering, v.node) is unit for v in lowering.deferred_products):
        return False  # one product per sweep
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


def lower_update(lowering: Lowering, cluster: Cluster) -> bool:
    """Lower a cluster together with the product it was waiting for, if there is one."""
    grad = next((v for n in cluster.members for v in n.inputs if v in lowering.deferred_products), None)
    if grad is None:
        return False
    left, right = lowering.deferred_products.pop(grad)
    size = blocks(left, right.shape[1])
    private, shared = scratch(left, right, size)
    workspace, packed = lowering.scratch(private, right.dtype), lowering.temporary((shared,), right.dtype)
    members = sorted(cluster.members, key=lambda n: n.order)
    buffers: dict[int, tuple[Buffer, Storage]] = {}

    def buffer(layout: Layout) -> Buffer:
        key = id(layout.storage)
        if key not in buffers:
            buffers[key] = (Buffer.of(f"b{len(buffers)}", layout.dtype, (1 << 40,)), layout.storage)
        return buffers[key][0]

    read: dict[Value, tuple[Layout, tuple[int, int]]] = {}
    for n in members:
        for v in n.inputs:
            outside = v is not grad and v.node not in cluster.axes
            if outside and not (v.node.op is CONSTANT and v.node.attrs[0].size == 1):
                layout = lowering.layout_of(v)
                rows, columns = (
                    [0, 0] + [0 if d == 1 else st for d, st in zip(layout.shape, layout.strides, strict=True)]
                )[-2:]
                read[v] = (layout, (rows, columns))
    ways: dict[int, list[Any]] = {id(x.storage): [None] for x in (left, right, workspace, packed)}
    for layout, strides in read.values():
        ways.setdefault(id(layout.storage), []).append((layout.offset, strides, cluster.space))
    stored = [n for n in members if lowering._used_outside(n, cluster)]
    places = {n: lowering.place(n, 0, row_major(cluster.space), cluster, ways, joins=True) for n in stored}

    def at(layout: Layout, strides: Any, i: Expr, j: Expr) -> Expr:
        return buffer(layout)[i * strides[0] + j * strides[1] + layout.offset]

    def update(i: Expr, j: Expr, value: Expr, tag: str) -> list[Statement]:
        known: dict[Value, Expr] = {grad: value}
        statements: list[Statement] = []

        def operand(v: Value) -> Expr:
            if v not in known:
                if v in read:
                    known[v] = at(*read[v], i, j)
                else:
                    known[v] = s.const(v.node.attrs[0].item(), v.dtype)
            return known[v]

        for number, n in enumerate(members):
            made = Let(f"{tag}v{number}", s.cast(n.op.expression(*[operand(v) for v in n.inputs]), s.FLOAT32))
            statements.append(made)
            known[n.outputs[0]] = made.var
        for n in stored:
            target = places[n]
            statements.append(loops.store(at(target, target.strides, i, j), known[n.outputs[0]]))
        return statements

    written = {id(x.storage) for x in places.values()}
    touched = [(x, x.strides, True) for x in places.values()]
    touched += [(x, st, False) for x, st in read.values() if st[0] and st[1] == 1 and id(x.storage) not in written]

    def near(i: Expr, j: Expr) -> list[Statement]:
        return [loops.prefetch(at(layout, strides, i, j), write) for layout, strides, write in touched]

    own = [(x, x.strides) for x in (left, right, workspace, packed, *places.values())]
    operands = [*own, *read.values()]
    lie = {id(layout): (buffer(layout).name, layout.offset, tuple(strides)) for layout, strides in operands}

    def reference(v: Value) -> Any:
        if v in read:
            return lie[id(read[v][0])]
        if v is grad or v.node in cluster.axes:
            return None if v is grad else members.index(v.node)
        return v.node.attrs[0].tobytes()

    # layers repeat, and an equal kernel that is another object costs time to compare
    key = (
        left.shape, right.shape[1], lie[id(left)], lie[id(right)], lie[id(workspace)], lie[id(packed)],
        tuple([(n.op, *map(reference, n.inputs), lie[id(places[n])] if n in places else None) for n in members]),
    )  # fmt: skip
    kernel = lowering.kernels.get(key)
    if kernel is None:
        a, b = (buffer(left), left), (buffer(right), right)
        body = blocked_product(a, b, buffer(workspace), buffer(packed), size, update, near)
        kernel = lowering.kernels[key] = Kernel("update", tuple([x for x, _ in buffers.values()]), (), tuple(body))
    storages = [st for _, st in buffers.values()]
    writes = [workspace.storage, packed.storage, *[x.storage for x in places.values()]]
    reads = [left.storage, right.storage, *[layout.storage for layout, _ in read.values()]]
    label = "matmul+" + "+".join(dict.fromkeys(n.op.name for n in members))
    lowering.steps.append(Step("kernel", label, [grad.node, *members], reads, writes, kernel, storages))
    return True
