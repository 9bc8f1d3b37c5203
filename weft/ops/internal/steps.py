"""A few elementwise ops as data: what one op does to the numbers it reads, or to those it makes, while it has them.

    (("subtract", (0, 1)), ("multiply", (~0, 2)), ("relu6", (~1,)))        relu6((x - a) * b) of the inputs (x, a, b)

A step is the name of an op and its operands: `i` is input i, `~i` the result of step i, and a float stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.registry import table

Steps = tuple[tuple[str, tuple[int | float, ...]], ...]
"""Steps in order. They are hashable: attributes of ops, and keys of kernels."""


def run_steps(steps: Steps, inputs: Sequence[Any], results: Sequence[int]) -> list[Any]:
    """The `results`, named as operands are, of the steps on arrays or scalar expressions."""
    made: list[Any] = []

    def operand(o: int | float) -> Any:
        return o if isinstance(o, float) else inputs[o] if o >= 0 else made[~o]

    for name, operands in steps:
        made.append(table[name].expression(*map(operand, operands)))  # type: ignore[misc]
    return [operand(i) for i in results]


def last_of(steps: Steps, inputs: Sequence[Any]) -> Any:
    """The result of the last step, or the first input if there are no steps."""
    return run_steps(steps, inputs, (~(len(steps) - 1) if steps else 0,))[0]


def count_inputs(steps: Steps) -> int:
    """How many inputs the steps have."""
    return max([o + 1 for _, operands in steps for o in operands if isinstance(o, int)], default=0)
