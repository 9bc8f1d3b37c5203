"""Frozen programs: hoists the steps that depend only on constant tensors into a prologue that runs once.

A captured function that is frozen (`wf.function(freeze=True)`) promises that the outside tensors it only reads do not
change. Steps that read nothing but such tensors and constants (weights reordered for a kernel, transformed for Winograd,
scaled by a batch normalisation) become the *prologue*: it runs before the first call, and again when one of the tensors
has changed.

steps:    reorder(w) -> t0;  convolution(x, t0) -> t1;  multiply(g, s) -> t2;  scale(t1, t2) -> y
prologue: reorder(w) -> t0;  multiply(g, s) -> t2        main: convolution(x, t0) -> t1;  scale(t1, t2) -> y
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph.graph import CONSTANT, PLACEHOLDER, Value
from ..flow import Flow
from ..program.layout import Storage
from ..program.steps import KernelCall, LibraryCall, Step, all_steps
from .memory_plan import ALIGNMENT

MOVABLE = KernelCall, LibraryCall
"""Steps that may be hoisted: native ones without effects. Host calls and checks stay in place."""


def constant_values(flow: Flow, constant_inputs: Sequence[int]) -> frozenset[Value]:
    """The values of a flow that depend only on constants and the inputs numbered in `constant_inputs`."""
    if not constant_inputs:
        return frozenset()
    found = {flow.inputs[i] for i in constant_inputs}
    for node in flow.nodes:
        if (
            node.op is CONSTANT
            or node.op is not PLACEHOLDER
            and not node.op.effects
            and all(v in found for v in node.inputs if isinstance(v, Value))
        ):
            found.update(node.outputs)
    return frozenset(found)


def split(steps: Sequence[Step], fixed: Iterable[Storage]) -> tuple[list[Step], list[Step], int]:
    """(the prologue, the other steps, bytes to keep between calls).

    `fixed` are the storages of constant variables. Storages that the prologue writes for other steps become
    "kept" and get an offset; the rest of its temporaries stay in the arena.
    """
    constant = {id(storage) for storage in fixed}
    writers: dict[int, list[Step]] = {}
    for step in all_steps(steps):
        for storage in step.writes:
            writers.setdefault(id(storage), []).append(step)
    once = {id(step): step for step in steps if isinstance(step, MOVABLE) and not _effects(step)}

    def ready(storage: Storage) -> bool:
        """Whether a storage is known to hold the same values at every call."""
        if storage.kind == "arena":
            return all(id(writer) in once for writer in writers.get(id(storage), ()))
        return storage.kind == "constant" or id(storage) in constant and id(storage) not in writers

    changed = True
    while changed:  # dropping a step also drops its readers, and other writers of its storages
        late = [
            step for step in once.values()
            if not all(st.kind == "arena" and ready(st) for st in step.writes) or not all(map(ready, step.reads))
        ]  # fmt: skip
        changed = bool(late)
        for step in late:
            del once[id(step)]
    prologue = [step for step in steps if id(step) in once]
    main = [step for step in steps if id(step) not in once]
    read = {id(storage) for step in all_steps(main) for storage in step.reads}
    kept = 0
    for step in prologue:
        for storage in step.writes:
            if id(storage) in read and storage.kind == "arena":
                storage.kind, storage.offset = "kept", kept
                kept += -(-storage.nbytes // ALIGNMENT) * ALIGNMENT
    return prologue, main, kept


def _effects(step: Step) -> bool:
    return any(node.op.effects for node in step.nodes)
