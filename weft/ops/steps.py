"""A few elementwise ops as data: what one op does to the numbers it reads, or to those it makes, while it has them.

    (("subtract", (0, 1)), ("multiply", (~0, 2)), ("relu6", (~1,)))        relu6((x - a) * b) of the inputs (x, a, b)

A step is the name of an op and its operands: `i` is input i, `~i` the result of step i, and a float stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .registry import table

Steps = tuple[tuple[str, tuple[int | float, ...]], ...]
"""Steps in order. They are hashable: attributes of ops, and keys of kernels."""


def run_steps(steps: Steps, inputs: Sequence[Any], apply: Callable[[Any, list[Any]], Any]) -> list[Any]:
    """The result of every step; `apply(op, operands)` computes one."""
    results: list[Any] = []
    for name, operands in steps:
        given = [o if isinstance(o, float) else inputs[o] if o >= 0 else results[~o] for o in operands]
        results.append(apply(table[name], given))
    return results


def expression_of(op: Any, operands: list[Any]) -> Any:
    """`apply` for scalar expressions."""
    return op.expression(*operands)


def count_inputs(steps: Steps) -> int:
    """How many inputs the steps have."""
    return max([o + 1 for _, operands in steps for o in operands if isinstance(o, int)], default=0)
