"""Short elementwise programs as data: the prologue or epilogue that a fused op applies in registers.

    (("subtract", (0, 1)), ("multiply", (~0, 2)), ("relu6", (~1,)))        relu6((x - a) * b) of the inputs (x, a, b)

A step is an op name and its operands: `i` is input i, `~i` the result of step i, a float a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.registry import table

Steps = tuple[tuple[str, tuple[int | float, ...]], ...]
"""Steps in order; hashable, so they serve as op attributes and kernel cache keys."""


def run_steps(steps: Steps, inputs: Sequence[Any], results: Sequence[int]) -> list[Any]:
    """Run the steps on arrays or scalar expressions; returns `results`, given in the notation of operands."""
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
    """The number of inputs that the steps read."""
    return max([o + 1 for _, operands in steps for o in operands if isinstance(o, int)], default=0)
