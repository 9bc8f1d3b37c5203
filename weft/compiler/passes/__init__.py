"""Passes: functions from Flow to Flow, in the order in which `optimise` runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from ... import settings
from ..check_flow import check_flow
from ..flow import Flow
from ..target import Target
from .assemble import assemble
from .catch_up_once import catch_up_once
from .decompose import decompose, decompose_late
from .depthwise_blocks import depthwise_blocks
from .duplicate import duplicate
from .empty import drop_empty
from .epilogues import epilogues
from .fold_scales import fold_scales
from .merge import merge
from .narrow import narrow
from .simplify import simplify
from .split_reductions import split_reductions
from .thin_products import thin_products
from .widen import widen

PASSES: tuple[Callable[..., Flow], ...] = (
    drop_empty, widen, decompose, simplify, merge, simplify, catch_up_once, narrow, assemble, thin_products, epilogues,
    depthwise_blocks, decompose_late, split_reductions, duplicate,
)  # fmt: skip
FOR_TARGET = (thin_products, depthwise_blocks, decompose_late)
"""Passes that take the target."""


def optimise(flow: Flow, target: Target, constant_inputs: Sequence[int] = ()) -> Flow:
    """Run all passes for a target. WEFT_DEBUG=2 prints the flow after each; WEFT_VALIDATE=1 checks it after each.

    `constant_inputs` are the numbers of inputs that are constant between calls: the weights of a frozen function.
    """
    verbose = settings.DEBUG() >= 2
    checked = settings.VALIDATE()
    if checked:
        check_flow(flow, "capture")
    for name, run in _passes(target, constant_inputs):
        flow = run(flow)
        if checked:
            check_flow(flow, name)
        if verbose:
            print(f"-- after {name} ({len(flow.nodes)} nodes)\n{flow}")
    return flow


def _passes(target: Target, constant_inputs: Sequence[int]) -> list[tuple[str, Callable[[Flow], Flow]]]:
    """The passes by name. Those of frozen functions run before epilogue fusion."""
    found: list[tuple[str, Callable[[Flow], Flow]]] = [
        (run.__name__, partial(run, target=target) if run in FOR_TARGET else run) for run in PASSES
    ]
    if constant_inputs:
        at = PASSES.index(epilogues)
        found[at : at + 1] = [
            ("fold_scales", partial(fold_scales, constant_inputs=constant_inputs)),
            ("epilogues", partial(epilogues, frozen=True)),
        ]
    return found
