"""Cost estimates of op calls: floating-point operations and bytes of memory traffic.

A record states its cost in one of three ways. `cost="move"` names a family below, for ops that differ only in sizes.
`cost=rule` is a function of the op's parameters (specs for tensors) that returns the operations; the bytes are then those
of all inputs and outputs, each once, unless the rule returns a `Cost`. Elementwise ops need neither: their expression
is counted. Composite ops cost the sum of their parts. An op from outside the package without a cost counts one
operation per element of its largest operand.

These are estimates for placement and reports: unknown sizes count as zero, a function such as exp counts as the
arithmetic of its approximation, and caches are ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import log2
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from . import scalar as s
from .registry import Op
from .spec import Spec, num_elements


class Cost(NamedTuple):
    flops: int
    bytes: int


def size(x: Any) -> int:
    """The number of elements of a spec; 0 if unknown."""
    if x is None:
        return 0
    found = num_elements(getattr(x, "shape", ()))
    return found if isinstance(found, int) else 0


def nbytes(*specs: Any) -> int:
    return sum([size(x) * x.dtype.itemsize for x in specs if hasattr(x, "dtype")])


Family = Callable[[Sequence[Any], Sequence[Any]], Cost]

FAMILIES: dict[str, Family] = {
    # a view of the same memory
    "view": lambda inputs, outputs: Cost(0, 0),
    # writes only
    "fill": lambda inputs, outputs: Cost(0, nbytes(*outputs)),
    # one operation per output element
    "each": lambda inputs, outputs: Cost(sum(map(size, outputs)), nbytes(*inputs, *outputs)),
    # one read per write
    "move": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs)),
    # a copy of elements of the first input, selected by the others
    "gather": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs) + nbytes(*inputs[1:])),
    # a gather whose table is the last input
    "look up": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs) + nbytes(*inputs[:-1])),
    # a copy of the first input into which the others are scattered (or scatter-added)
    "scatter": lambda inputs, outputs: Cost(size(inputs[-1]), nbytes(*inputs, *outputs)),
    # zeros into which the first input is written
    "put": lambda inputs, outputs: Cost(0, nbytes(inputs[0], *outputs)),
    # one operation per input element
    "reduce": lambda inputs, outputs: Cost(size(inputs[0]), nbytes(inputs[0], *outputs)),
    # a multiply-add per output element
    "scan": lambda inputs, outputs: Cost(2 * sum(map(size, outputs)), nbytes(*inputs, *outputs)),
    # about two weighted neighbours per element of the larger side
    "interpolate": lambda inputs, outputs: Cost(
        4 * max(size(inputs[0]), size(outputs[0])), nbytes(inputs[0], *outputs)
    ),
    # an optimiser update per output element: means, a root, a quotient
    "update": lambda inputs, outputs: Cost(15 * sum(map(size, outputs)), 2 * nbytes(*outputs)),
    # a binary search in the first input per output element
    "search": lambda inputs, outputs: Cost(
        size(outputs[0]) * _depth(inputs[0]), nbytes(*inputs[1:], *outputs) + size(outputs[0]) * 8 * _depth(inputs[0])
    ),
    # the comparisons of sorting the first input
    "sort": lambda inputs, outputs: Cost(size(inputs[0]) * _depth(inputs[0]), nbytes(*inputs, *outputs)),
}


def _depth(x: Any) -> int:
    """The depth of a binary search over a vector."""
    return max(int(log2(max(size(x), 1))), 1)


# Operations per scalar function: approximately the length of its polynomial.
WEIGHTS = {
    "div": 4, "sqrt": 4, "rsqrt": 5, "reciprocal": 4, "floor_divide": 5, "remainder": 6, "fmod": 6, "pow": 40,
    "exp": 15, "exp2": 15, "expm1": 18, "log": 18, "log1p": 20, "log2": 18, "log10": 18, "sigmoid": 20, "tanh": 22,
    "sinh": 22, "cosh": 22, "erf": 25, "erfc": 30, "erfinv": 40, "lgamma": 60, "digamma": 40, "sin": 20, "cos": 20, "tan": 25,
    "asin": 25, "acos": 25, "atan": 22, "atan2": 28, "asinh": 25, "acosh": 25, "atanh": 25, "logaddexp": 35, "hypot": 8,
    "cast": 1, "const": 0, "arg": 0,
}  # fmt: skip
EXPENSIVE_WEIGHT = 8
"""Operations from which computing a function again costs more than reading its result from memory."""


def is_expensive(expressions: Iterable[s.Expr]) -> bool:
    """Whether one of these expressions calls an expensive function."""
    return any(WEIGHTS.get(e.fn, 1) >= EXPENSIVE_WEIGHT for e in s.topological(expressions))


@functools.lru_cache(maxsize=4096)
def _per_element(op: Op, operands: tuple[np.dtype, ...]) -> int:
    """The operations of an elementwise op's expression."""
    assert op.expression is not None
    # The expression language has no complex numbers: count real ones, four operations each.
    factor = 4 if any(d.kind == "c" for d in operands) else 1
    real = [np.dtype(f"f{d.itemsize // 2}") if d.kind == "c" else d for d in operands]
    nodes = s.topological([s.trace(op.expression, real)])
    return factor * max(sum([WEIGHTS.get(node.fn, 1) for node in nodes]), 1)


def _elementwise(op: Op, inputs: Sequence[Any], outputs: Sequence[Any]) -> Cost:
    from .slow_path import elementwise_dtypes

    return Cost(
        _per_element(op, elementwise_dtypes(op, inputs)) * size(outputs[0]),
        nbytes(*[x for x in inputs if isinstance(x, Spec)], *outputs),
    )


def cost(op: Op, values: Sequence[Any], outputs: Any = None) -> Cost:
    """What `op` costs for `values`, its parameters in order, with specs (or anything with a shape and a dtype) for tensors.

    `outputs` are the specs of the results, if the caller has them; the shape rule finds them otherwise. A composed op
    costs nothing by itself: its parts are ops too.
    """
    if op.composite:
        return Cost(0, 0)
    inputs = op.tensors(values)
    if op.expression is None and any(isinstance(x, (bool, int, float, complex)) for x in inputs):
        inputs = [x if x is None or hasattr(x, "dtype") else Spec((), dtypes.python_scalar_dtype(x)) for x in inputs]
        values = op.merge(inputs, op.attrs(values))
    if outputs is None:
        outputs = op.run(op.infer, values) if op.infer is not None else ()
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    if op.cost is None and op.expression is not None:
        return _elementwise(op, inputs, outputs)
    if isinstance(op.cost, str):
        return FAMILIES[op.cost](inputs, outputs)
    if op.cost is not None:
        found = op.run(op.cost, values)
        return found if isinstance(found, Cost) else Cost(int(found), nbytes(*inputs, *outputs))
    largest = max([size(x) for x in (*inputs, *outputs)], default=0)
    return Cost(largest, nbytes(*inputs, *outputs))
