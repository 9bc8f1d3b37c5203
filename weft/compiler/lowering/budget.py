"""Memory budgets: the least recomputation that fits one, or an error that says how much memory is needed."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.memory import format_bytes
from ..flow import Flow
from ..passes.recompute import candidates, recompute
from .lower import Lowering
from .memory_plan import plan

TIERS = (0, 1, 3)  # matmul-like ops that may be recomputed for one value: cheap recomputation mostly suffices


def within_budget(flow: Flow, lowered: Callable[[Flow], Lowering], arena: int, budget: int) -> tuple[Lowering, int]:
    """Lower the flow with the least recomputation that fits `budget` bytes, or raise."""
    least = arena
    for expensive in TIERS:
        ranked = candidates(flow, expensive)
        fitting = None
        low, high, count = (
            0,
            len(ranked),
            len(ranked),
        )  # binary search: too few, enough if anything is, and the next to try
        while low < high:
            lowering = lowered(recompute(flow, ranked[:count]))
            size = plan(lowering.steps, lowering.storages)
            least = min(least, size)
            if size <= budget:
                fitting, high = (lowering, size), count
            elif fitting is None:
                break  # even full recomputation is not enough
            else:
                low = count
            if high - low <= max(1, len(ranked) // 16):
                break
            count = (low + high) // 2
        if fitting is not None:
            return fitting
    raise MemoryError(
        f"function {flow.name}: needs {format_bytes(arena)} for temporaries, and {format_bytes(least)} with "
        f"recomputation; the memory_budget is {format_bytes(budget)}. Use a smaller batch, or wf.checkpoint around "
        "parts of the model."
    )
