"""Print a hash of every op's results and of the first training steps of every model, to compare two checkouts.

    WEFT_TUNE=0 python -m tools.fingerprint > before.txt
    ... a change that must keep all bits ...
    WEFT_TUNE=0 python -m tools.fingerprint > after.txt
    diff before.txt after.txt

One line per op sample and mode (eager values, eager gradients, captured values), one per model and mode (losses and
weights after two steps with a small batch), and one per fact that the compiler derives from the op table.
`--ops`, `--models` and `--tables` print one part only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness.protocol import BATCH

os.environ.setdefault(BATCH, "2")

import weft as wf
from benchmarks.models.configurations import CONFIGURATIONS, batches
from benchmarks.models.worker_weft import build, training_step
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker, Sample
from weft.ops.internal import deferred_tables as deferred_tables

STEPS = 2


def digest(arrays: Any) -> str:
    """A short hash of shapes, dtypes and bytes."""
    h = hashlib.sha256()
    for a in arrays:
        a = np.asarray(a)
        h.update(f"{a.shape}{a.dtype}".encode())
        h.update(np.ascontiguousarray(a).tobytes())
    return h.hexdigest()[:16]


def leaves(value: Any) -> Iterator[Any]:
    """The tensors in nested sequences."""
    if isinstance(value, wf.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from leaves(v)


def arguments(sample: Sample, requires_grad: bool) -> tuple[list[Any], dict[str, Any]]:
    """The sample's arguments in float32, arrays as tensors."""

    def make(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            narrow = {"f": np.float32, "c": np.complex64}.get(value.dtype.kind)
            t = wf.asarray(value.astype(narrow) if narrow else value.copy())
            return t.requires_grad_() if requires_grad and narrow else t
        if isinstance(value, (tuple, list)) and any(isinstance(v, np.ndarray) for v in value):
            return tuple(make(v) for v in value)
        return value

    return [make(a) for a in sample.args], {k: make(v) for k, v in sample.kwargs.items()}


def values_of(result: Any) -> list[np.ndarray]:
    return [t.detach().numpy() for t in leaves(result)]


def eager_values(op: Any, sample: Sample) -> str:
    args, kwargs = arguments(sample, False)
    return digest(values_of(op.call(*args, **kwargs)))


def eager_gradients(op: Any, sample: Sample) -> str:
    args, kwargs = arguments(sample, True)
    total = None
    for t in leaves(op.call(*args, **kwargs)):
        if t.requires_grad:
            part = wf.sum(wf.real(t) if t.dtype.kind == "c" else t)
            total = part if total is None else total + part
    if total is None:
        return "none"
    total.backward()
    grads = [t.grad for t in leaves([*args, *kwargs.values()]) if t.grad is not None]
    return digest([getattr(g, "to_dense", lambda g=g: g)().detach().numpy() for g in grads])


def captured_values(op: Any, sample: Sample) -> str:
    args, kwargs = arguments(sample, False)
    tensors = list(leaves([*args, *kwargs.values()]))

    def run(*given: Any) -> Any:
        replaced = dict(zip(map(id, tensors), given, strict=True))

        def swap(v: Any) -> Any:
            if isinstance(v, wf.Tensor):
                return replaced[id(v)]
            return tuple(swap(x) for x in v) if isinstance(v, (tuple, list)) and any(leaves(v)) else v

        return op.call(*[swap(a) for a in args], **{k: swap(v) for k, v in kwargs.items()})

    return digest(values_of(wf.function(run)(*tensors)))


MODES = {"eager": eager_values, "gradient": eager_gradients, "captured": captured_values}


def print_ops() -> None:
    """Lines `op NAME SAMPLE MODE HASH`; what raises prints its error's type, which must not change either."""
    for name in sorted(table):
        op = table[name]
        for i, sample in enumerate(op.samples(Maker(len(name))) if op.samples else ()):
            for mode, run in MODES.items():
                wf.manual_seed(0)
                try:
                    result = run(op, sample)
                except Exception as error:
                    result = type(error).__name__
                print("op", name, i, mode, result)


def print_models() -> None:
    """Lines `model NAME MODE HASH` for every configuration of the benchmark table."""
    for name in CONFIGURATIONS:
        for mode in ("eager", "captured"):
            model = build(name, mode)
            step = training_step(name, model, mode)
            run = step if mode == "eager" else wf.function(step)
            data = [[wf.tensor(d) for d in b] for b in batches(name)]
            losses = [run(*data[i % len(data)]).detach().numpy() for i in range(STEPS)]
            state = [v.numpy() for v in model.state_dict().values()]
            print("model", name, mode, digest([*losses, *state]), flush=True)


def print_tables() -> None:
    """Lines `table NAME OP FACT` for what passes and backends look up by op."""
    for name in sorted(table):
        op = table[name]
        facts = {
            "effects": sorted(op.effects), "alias": op.alias, "outputs": op.num_outputs, "kind": op.kind,
            "batch": op.batch if isinstance(op.batch, str) else op.batch is not None, "cost": str(op.cost is not None),
            "kernels": [k.name for k in op.kernels], "version": op.version, "namespace": op.namespace,
            "signature": op.signature, "saved": op.saved_items,
        }  # fmt: skip
        for fact, value in facts.items():
            print("table", name, fact, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"ops": print_ops, "models": print_models, "tables": print_tables}
    for part in parts:
        parser.add_argument(f"--{part}", action="store_true")
    chosen = parser.parse_args()
    if os.environ.get("WEFT_TUNE") != "0":
        sys.exit("fingerprint: set WEFT_TUNE=0, or trials choose kernels and so the rounding.")
    everything = not any(getattr(chosen, part) for part in parts)
    for part, run in parts.items():
        if everything or getattr(chosen, part):
            run()


if __name__ == "__main__":
    main()
