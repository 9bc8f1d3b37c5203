"""Vector loop schedules: lane count, unroll factor, and whether the loop is fully unrolled."""

from __future__ import annotations

from typing import NamedTuple

from ...compiler.loop_ir import ir as loops
from ...compiler.loop_ir.ir import Accumulator, Loop, Store, Update
from ...compiler.target import Target
from ...ops.core import scalar as s

CHEAP = frozenset(
    "add sub mul fma neg abs minimum maximum lt le eq ne gt ge logical_and logical_or logical_xor logical_not "
    "bitwise_and bitwise_or bitwise_xor bitwise_not left_shift right_shift where cast bitcast square sqrt floor ceil "
    "round trunc isnan isinf isfinite signbit copysign mulhi load sign div reciprocal".split()
)
HEAVY_WEIGHT = 15
"""Approximate number of instructions of a function that is a polynomial."""

STATIC_VECTORS = 8
STATIC_WEIGHT = 400
MASKED_ONLY_WEIGHT = 400


class Schedule(NamedTuple):
    """`static`: constant extent, fully unrolled. `masked_only`: one copy of the code, always masked (large bodies).

    Note [Order of a reduction]. Vector v of a reducing loop is added to partial result v modulo `unroll`, and the partial
    results are combined by a tree over `unroll` of them. `unroll` follows from the body alone, and fewer lanes for a
    short constant extent leave out lanes that would hold the identity. So the extent's being a constant or a parameter
    never changes a bit of the result: a kernel for all sizes gives what the kernel for one size gives.
    """

    lanes: int
    unroll: int
    static: bool
    masked_only: bool


def weight(statement: Loop) -> int:
    """Rough number of instructions of one iteration; each expression node counts once."""
    seen: set[s.Expr] = set()
    total = 0
    for inner in loops.walk(statement.body):
        for expr in loops.expressions(inner):
            for node in s.topological([expr]):
                if node not in seen and node.args:
                    seen.add(node)
                    if not _is_parameter(node):
                        total += _weight(node)
        if isinstance(inner, Store):
            total += 1
        elif isinstance(inner, Update):
            a = inner.accumulator
            combined = s.trace(a.reduction.combine, (a.dtype, a.dtype))
            total += sum([_weight(node) for node in s.topological([combined]) if node.args])
    return total


def _is_parameter(node: s.Expr) -> bool:
    """Whether a node only reads a run-time parameter as another type: as cheap as the constant it stands for."""
    return node.fn in ("cast", "bitcast") and (node.args[0].fn == "param" or _is_parameter(node.args[0]))


def _weight(node: s.Expr) -> int:
    return 1 if node.fn in CHEAP or s.kind(node.dtype) != "f" else HEAVY_WEIGHT


def _element_size(statement: Loop) -> int:
    """Bytes of the widest element computed with. Index arithmetic does not count: its vectors are simply split."""
    sizes: set[int] = set()
    wide_integers = False
    for inner in loops.walk(statement.body):
        dtypes = [node.dtype for e in loops.expressions(inner) for node in s.topological([e]) if node.fn != "const"]
        if isinstance(inner, Store):
            dtypes.append(inner.buffer.dtype)
        elif isinstance(inner, Accumulator):
            dtypes.append(inner.dtype)
        for dtype in dtypes:
            if s.kind(dtype) == "f":
                sizes.add(max(dtype.itemsize, 4))  # half precision is computed in float32
            elif dtype.itemsize < 8:
                sizes.add(dtype.itemsize)
            else:
                wide_integers = True
    return max(sizes, default=8 if wide_integers else 4)


def schedule_loop(statement: Loop, target: Target) -> Schedule:
    """Decide from the body alone, never from run-time sizes: equal kernels give equal code."""
    lanes = max(1, target.vector_bytes // _element_size(statement))
    cost = weight(statement)
    extent = loops.constant(statement.extent)
    static = False
    if extent is not None:
        while lanes > 1 and lanes // 2 >= extent:
            lanes //= 2
        vectors = -(-extent // lanes)
        static = vectors <= STATIC_VECTORS and cost * vectors <= STATIC_WEIGHT
    masked_only = cost > MASKED_ONLY_WEIGHT and not static
    if any(isinstance(x, Loop) for x in statement.body):
        return Schedule(lanes, 1, static, masked_only)
    limits = ((40, target.chains), (120, target.fma_ports)) if reduces(statement) else ((8, 4), (48, 2))
    unroll = next((u for limit, u in limits if cost <= limit), 1)
    return Schedule(lanes, unroll, static, masked_only)


def reduces(statement: Loop) -> bool:
    """Whether the loop itself updates accumulators."""
    return any(isinstance(x, Update) for x in statement.body)
