"""Passes: functions from Flow to Flow, in the order in which `optimise` runs them."""

from __future__ import annotations

import os

from ..check_flow import check_flow
from ..flow import Flow
from .assemble import assemble
from .decompose import decompose
from .duplicate import duplicate
from .empty import drop_empty
from .epilogues import epilogues
from .merge import merge
from .simplify import simplify
from .split_reductions import split_reductions

PASSES = (drop_empty, decompose, simplify, merge, simplify, assemble, epilogues, split_reductions, duplicate)


def optimise(flow: Flow) -> Flow:
    """Run all passes. WEFT_DEBUG=2 prints the flow after each; WEFT_VALIDATE=1 checks it after each."""
    verbose = os.environ.get("WEFT_DEBUG", "0") >= "2"
    checked = os.environ.get("WEFT_VALIDATE", "0") not in ("", "0")
    if checked:
        check_flow(flow, "capture")
    for run in PASSES:
        flow = run(flow)
        if checked:
            check_flow(flow, run.__name__)
        if verbose:
            print(f"-- after {run.__name__} ({len(flow.nodes)} nodes)\n{flow}")
    return flow
