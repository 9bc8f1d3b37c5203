"""Trials: times the candidate lowerings of a single node on scratch memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backends.llvm.target import host
from ..graph.graph import Node, Value
from ..ops.core.spec import Spec
from ..runtime import memory
from ..runtime.program import Program
from .flow import Flow
from .lowering.lower import Lowering
from .lowering.memory_plan import plan
from .program.layout import Layout, Storage, channels_last, row_major
from .tuning import Measurement, Sample, Way

ROUNDS = 5


class Trial:
    """A program of one node."""

    def __init__(self, node: Node, way: Way, sample: Sample) -> None:
        flow = Flow("trial")
        lowering = Lowering(flow, host())
        lowering.wanted, lowering.targets, lowering.settled = {}, [], {}
        lowering.position, lowering.barrier = {}, -1
        values: list[Any] = []
        self.arguments: list[np.ndarray] = []
        layouts: list[Layout] = []
        for old, shape in zip(node.inputs, sample.inputs, strict=True):
            if shape is None or not isinstance(old, Value):
                values.append(old)
                continue
            value = flow.placeholder(shape, old.dtype)
            layout, array = _memory(shape, old.dtype, len(layouts))
            lowering.layouts[value] = layout
            lowering.storages.append(layout.storage)
            values.append(value)
            layouts.append(layout)
            self.arguments.append(array)
        specs = [Spec(shape, v.dtype) for shape, v in zip(sample.outputs, node.outputs, strict=True)]
        small = flow.add(node.op, values, sample.attrs, specs)
        self.possible = way(lowering, small)
        if self.possible:
            arena = plan(lowering.steps, lowering.storages)
            program = Program("trial", lowering.steps, lowering.storages, arena, layouts, [], [])
            self.steps = lowering.steps
            self.instance = program.instance()
            self.best = float("inf"), float("inf")

    def run(self, sample: Sample) -> tuple[float, float]:
        """Run once and update the minimum estimate for the full-size node: the time of each step, scaled unless it is fixed.
        Returns the wall time and the CPU time of this thread.

        Both wall time and the CPU time of all threads are recorded: the share of this thread varies."""
        run, at = self.instance.program.run_native, self.instance.table_at
        passed, own, everybody = time.perf_counter, time.thread_time, time.process_time
        totals = [0.0, 0.0]
        all_passed, all_own = -passed(), -own()
        for i, step in enumerate(self.steps):
            factor = (0.0 if sample.once else 1.0) if sample.fixed(step.label) else sample.scale
            totals[0] -= passed() * factor
            totals[1] -= everybody() * factor
            run(at + 16 * i, 1)
            totals[1] += everybody() * factor
            totals[0] += passed() * factor
        self.best = min(self.best[0], totals[0]), min(self.best[1], totals[1])
        return all_passed + passed(), all_own + own()


def _memory(shape: tuple[int, ...], dtype: np.dtype, index: int) -> tuple[Layout, np.ndarray]:
    """An argument with ordinary values: infinities and denormals would affect speed. Images are channels-last."""
    strides = channels_last(shape) if len(shape) == 4 and min(shape[2:]) > 3 else row_major(shape)
    order = sorted(range(len(shape)), key=lambda a: -strides[a])
    array = memory.empty(tuple([shape[a] for a in order]), dtype)
    array.reshape(-1)[...] = 0.25
    array = array.transpose(np.argsort(order))
    return Layout(Storage("argument", array.nbytes, index=index), dtype, shape, strides), array


MIN_CPU_SHARE = 0.85
"""Minimum ratio of CPU to wall time on an idle machine: a thread computes, or spins while it waits."""


def measure(node: Node, ways: Mapping[str, Way], sample: Sample, limit: float) -> Measurement:
    """Seconds per applicable way. The runs take about `limit` seconds, unless the minimum of two runs per way takes longer.
    Compile time is not counted: the chosen kernels are needed anyway.

    On a busy machine wall time is unreliable; then the ways are compared by CPU time of all threads.
    """
    trials = {name: Trial(node, way, sample) for name, way in ways.items()}
    trials = {name: trial for name, trial in trials.items() if trial.possible}
    started = time.perf_counter()
    for trial in trials.values():
        trial.instance.run(trial.arguments, [])  # warm-up: page faults, thread start
    passed = own = 0.0
    for _ in range(ROUNDS):
        for trial in trials.values():  # interleaved, so that noise hits all ways
            a, b = trial.run(sample)
            passed, own = passed + a, own + b
        if time.perf_counter() - started > limit:
            break
    calm = own >= MIN_CPU_SHARE * passed
    seconds = {name: trial.best[0 if calm else 1] for name, trial in trials.items()}
    return Measurement(seconds, time.perf_counter() - started, calm)
