"""Compiles a flow to a program: optimise, lower, plan memory, generate code."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends import register_lowerings
from ..backends.llvm import choices
from ..backends.llvm.target import host
from ..ops.core.slow_path import check_memory
from ..runtime import memory
from ..runtime.program import Program
from . import trials, tuning
from .flow import Flow
from .lowering import frozen
from .lowering.budget import within_budget
from .lowering.lower import Lowering
from .lowering.memory_plan import plan
from .open_sizes import OpenSizes
from .passes import optimise
from .program.layout import Layout, Storage, row_major
from .program.steps import all_steps

ndarray = np.ndarray


class CompiledFlow:
    """A program with the layouts its inputs must have."""

    def __init__(
        self,
        program: Program,
        flow: Flow,
        lowering: Lowering,
        seen: list[ndarray],
        seconds: dict[str, float],
        choices: list[tuning.Choice],
    ) -> None:
        self.choices = choices
        self.program, self.flow, self.lowering, self.seen, self.seconds = (program, flow, lowering, seen, seconds)
        self.expected = [(x.byte_strides, x.shape) for x in program.arguments]

    def fit(self, i: int, array: ndarray) -> ndarray:
        """The argument as the program reads it: itself, or a copy with the layout of the first call."""
        strides, shape = self.expected[i]
        if array.strides == strides:
            return array
        if all(a == b or d <= 1 for a, b, d in zip(array.strides, strides, shape, strict=True)):
            return array
        order = sorted(range(len(shape)), key=lambda a: -strides[a])
        made = np.empty([shape[a] for a in order], array.dtype).transpose(np.argsort(order))
        made[...] = array
        return made

    def check_variables(self, variables: list[ndarray]) -> None:
        """An outside tensor got another array: it must have the same shape, dtype and layout."""
        for layout, array in zip(self.program.variables, variables, strict=True):
            if array.shape != layout.shape or array.dtype != layout.dtype or not _same(array, layout):
                raise RuntimeError(
                    "captured function: an outside tensor changed its shape, dtype or layout since the capture. "
                    f"Got {array.dtype.name} {array.shape} with strides {array.strides}; expected {layout.dtype.name} "
                    f"{layout.shape}. Call `.clear()` on the captured function to capture it again."
                )
        self.seen = variables


def _same(array: ndarray, layout: Layout) -> bool:
    return all(a == b or d <= 1 for a, b, d in zip(array.strides, layout.byte_strides, layout.shape, strict=True))


def _layout(kind: str, index: int, array_or_value: Any) -> Layout:
    shape = tuple(array_or_value.shape)
    dtype = array_or_value.dtype
    if isinstance(array_or_value, ndarray):
        strides = tuple([st // dtype.itemsize for st in array_or_value.strides])
    else:
        strides = row_major(shape)
    n = 1
    for d in shape:
        n *= d
    return Layout(Storage(kind, max(1, n * dtype.itemsize), index=index), dtype, shape, strides)


def compile_flow(
    flow: Flow,
    num_arguments: int,
    variables: list[ndarray],
    targets: Sequence[int | None],
    memory_budget: int | None = None,
    tune: bool = True,
    freeze: Sequence[bool] = (),
    sizes: OpenSizes | None = None,
) -> CompiledFlow:
    """Compile `flow`, whose inputs are `num_arguments` arguments followed by the variables.

    `targets[i]` is the number of the variable whose memory output i is stored into, ~n for argument n, or None for a fresh
    output.
    `tune` allows short trials where a node can be computed in several ways. `freeze[i]` says that variable i is constant
    between calls; what depends only on such variables is computed once (see `weft.compiler.lowering.frozen`). `sizes`
    belongs to the function that the flow comes from, and shares kernels between its programs for different sizes.
    """
    for value, target in zip(flow.outputs, targets, strict=True):
        if target is None:  # allocated at every call: fail before compiling if it can never fit
            check_memory(flow.name, tuple(value.shape), value.dtype)
    register_lowerings()
    machine = host()
    seconds: dict[str, float] = {}
    constant_inputs = [num_arguments + i for i, f in enumerate(freeze) if f]
    with _timed(seconds, "passes"):
        flow = optimise(flow, machine, constant_inputs)
    stored = {~t for t in targets if t is not None and t < 0}
    arguments = [
        _layout("variable" if i in stored else "argument", i, v) for i, v in enumerate(flow.inputs[:num_arguments])
    ]
    states = [_layout("variable", i, a) for i, a in enumerate(variables)]

    def lowered(flow: Flow) -> Lowering:
        lowering = Lowering(flow, machine)
        lowering.open_sizes = sizes is not None and sizes.further
        lowering.constant_values = frozen.constant_values(flow, constant_inputs)
        lowering.storages += [x.storage for x in (*arguments, *states)]
        lowering.run(
            [*arguments, *states], [None if t is None else arguments[~t] if t < 0 else states[t] for t in targets]
        )
        return lowering

    like = sizes.tuning if sizes is not None and sizes.further else None
    with tuning.choosing(trials.measure if tune else None, choices, like) as tuned:
        with _timed(seconds, "lowering"):
            lowering = lowered(flow)
        with _timed(seconds, "memory plan"):
            arena = plan(lowering.steps, lowering.storages)
        if memory_budget is not None and arena > memory_budget:
            with _timed(seconds, "recomputation"):
                lowering, arena = within_budget(flow, lowered, arena, memory_budget)
        prologue: list[Any] = []
        kept = 0
        if constant_inputs:
            unchanged = [states[i - num_arguments].storage for i in constant_inputs]
            prologue, lowering.steps, kept = frozen.split(lowering.steps, unchanged)
            arena = plan([*prologue, *lowering.steps], lowering.storages)
    if tuned.seconds < tuning.PROGRAM_SECONDS:
        memory.trim()  # free the memory of trials before the arena is allocated
    with _timed(seconds, "code"):
        if sizes is not None:
            sizes.tuning = sizes.tuning or tuned
            sizes.share([*all_steps(prologue), *all_steps(lowering.steps)], arguments, states)
        program = Program(
            flow.name, lowering.steps, lowering.storages, arena, arguments, states, lowering.results, prologue, kept
        )
    return CompiledFlow(program, lowering.flow, lowering, list(variables), seconds, list(tuned.choices.values()))


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - start
