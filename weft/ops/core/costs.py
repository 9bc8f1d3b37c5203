"""What a call of an op costs: floating-point operations, and bytes that go between memory and processor.

A record says it in one of three ways. `cost="move"` names a family below, for ops that differ in nothing but their sizes.
`cost=rule` is a function of the op's parameters (specs for tensors) that returns the operations; bytes are then those of
all inputs and outputs, each once, unless the rule returns a `Cost`. Elementwise ops need neither: their expression is
counted. Composed ops cost what their parts cost. An op from outside the package that says nothing counts one
operation per element of its largest operand.

Estimates for placing and reporting, not promises: sizes that are not known yet count as nothing, a function such as exp
counts as the arithmetic that it is made of, and caches are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
    """How many elements a spec has; nothing where that is not known."""
    if x is None:
        return 0
    found = num_elements(getattr(x, "shape", ()))
    return found if isinstance(found, int) else 0


def nbytes(*specs: Any) -> int:
    return sum([size(x) * x.dtype.itemsize for x in specs if hasattr(x, "dtype")])


Family = Callable[[Sequence[Any], Sequence[Any]], Cost]

FAMILIES: dict[str, Family] = {
    # another look at the same memory
    "view": lambda inputs, outputs: Cost(0, 0),
    # every element that is written was made from nothing
    "fill": lambda inputs, outputs: Cost(0, nbytes(*outputs)),
    # one operation for each element that comes out
    "each": lambda inputs, outputs: Cost(sum(map(size, outputs)), nbytes(*inputs, *outputs)),
    # every element that is written was read somewhere
    "move": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs)),
    # a copy of some elements of the first input; the others say which
    "gather": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs) + nbytes(*inputs[1:])),
    # as above, and the table is the last input
    "look up": lambda inputs, outputs: Cost(0, 2 * nbytes(*outputs) + nbytes(*inputs[:-1])),
    # a copy of the first input into which the others are put; what is put may be added
    "scatter": lambda inputs, outputs: Cost(size(inputs[-1]), nbytes(*inputs, *outputs)),
    # zeros into which the first input is put
    "put": lambda inputs, outputs: Cost(0, nbytes(inputs[0], *outputs)),
    # one operation for each element that goes in
    "reduce": lambda inputs, outputs: Cost(size(inputs[0]), nbytes(inputs[0], *outputs)),
    # a multiplication and an addition for each element that comes out
    "scan": lambda inputs, outputs: Cost(2 * sum(map(size, outputs)), nbytes(*inputs, *outputs)),
    # about two neighbours, with weights, for each element of the larger side
    "interpolate": lambda inputs, outputs: Cost(
        4 * max(size(inputs[0]), size(outputs[0])), nbytes(inputs[0], *outputs)
    ),
    # an optimiser's formula for each element that comes out: means, a root, a quotient
    "update": lambda inputs, outputs: Cost(15 * sum(map(size, outputs)), 2 * nbytes(*outputs)),
    # a walk down a sorted vector (the first input) for each element that comes out
    "search": lambda inputs, outputs: Cost(
        size(outputs[0]) * _depth(inputs[0]), nbytes(*inputs[1:], *outputs) + size(outputs[0]) * 8 * _depth(inputs[0])
    ),
    # as many comparisons as sorting the first input takes
    "sort": lambda inputs, outputs: Cost(size(inputs[0]) * _depth(inputs[0]), nbytes(*inputs, *outputs)),
}


def _depth(x: Any) -> int:
    """How often a vector can be halved."""
    return max(int(log2(max(size(x), 1))), 1)


# What a function of the scalar language takes beside a plain operation: the length of its polynomial, about.
WEIGHTS = {
    "div": 4, "sqrt": 4, "rsqrt": 5, "reciprocal": 4, "floor_divide": 5, "remainder": 6, "fmod": 6, "pow": 40,
    "exp": 15, "exp2": 15, "expm1": 18, "log": 18, "log1p": 20, "log2": 18, "log10": 18, "sigmoid": 20, "tanh": 22,
    "sinh": 22, "cosh": 22, "erf": 25, "erfc": 30, "erfinv": 40, "lgamma": 60, "digamma": 40, "sin": 20, "cos": 20, "tan": 25,
    "asin": 25, "acos": 25, "atan": 22, "atan2": 28, "asinh": 25, "acosh": 25, "atanh": 25, "logaddexp": 35, "hypot": 8,
    "cast": 1, "const": 0, "arg": 0,
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _per_element(op: Op, operands: tuple[np.dtype, ...]) -> int:
    """The operations of an elementwise op's expression."""
    assert op.expression is not None
    # Complex numbers, of which the expression language has none: counted as real ones, four operations for one.
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
