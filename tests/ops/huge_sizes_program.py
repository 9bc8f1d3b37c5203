"""Calls with sizes that no machine has, one after the other; run by `test_huge_sizes.py` with little memory.

Prints the name of a call before it starts, so that the one that crashes or hangs is known, and `done` at the end. Answers
that are no result and no documented error, and memory taken by the number, are printed as lines that start with "wrong".
"""

from __future__ import annotations

import resource
import sys
import warnings
from functools import partial

import numpy as np

import weft as wf
from weft import nn
from weft.nn import functional as F
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker
from weft.ops.internal import (
    deferred_tables as deferred_tables,  # the one op file that is not imported with the package
)

HUGE = [2**31, 2**62, -(2**63), 2**64, 10**30]
ALLOWED = (TypeError, ValueError, IndexError, OverflowError, MemoryError, RuntimeError)
MEGABYTES = 300  # that a refused or tiny result may take at most
ADDRESS_SPACE = 2**31  # bytes beyond what the program has after its start


def spoilt(value, annotation, huge):
    """`value` of an attribute with `huge` in place of a number; None where there is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, np.integer)):
        return huge
    if isinstance(value, tuple) and value and not isinstance(value[0], np.ndarray):
        first = spoilt(value[0], annotation, huge)
        return None if first is None else (first, *value[1:])
    return huge if value is None and "int" in annotation else None


def op_calls(some):
    """Every integer attribute of every op, with each huge number, or with `some` one of them in turn."""
    turn = 0
    for op in table.values():
        seen = set()
        for sample in op.samples(Maker(len(op.name))):
            if len(sample.args) > op.num_positional:  # *operands, none of which is a number
                continue
            values = op.bind(sample.args, sample.kwargs)
            for slot in op.attr_slots:
                name = op.parameters[slot]
                annotation = str(op.fn.__annotations__.get(name, ""))
                if slot in seen or spoilt(values[slot], annotation, 1) is None:
                    continue
                seen.add(slot)
                turn += 1
                for huge in [HUGE[turn % len(HUGE)]] if some else HUGE:
                    new = [tensor(v) for v in values]
                    new[slot] = spoilt(values[slot], annotation, huge)
                    yield f"{op.name} {name}={new[slot]}", op, new


def tensor(value):
    if isinstance(value, np.ndarray):
        return wf.asarray(value.astype(np.float32) if value.dtype.kind == "f" else value)
    return tuple([tensor(v) for v in value]) if isinstance(value, tuple) else value


def leaves(values):
    return [t for v in values for t in (v if isinstance(v, tuple) else (v,)) if isinstance(t, wf.Tensor)]


def swapped(value, new):
    """`value` with its tensors replaced by the next ones of `new`."""
    if isinstance(value, wf.Tensor):
        return next(new)
    return tuple([swapped(x, new) for x in value]) if isinstance(value, tuple) else value


def call_op(op, values, *tensors):
    rest, n = iter(tensors), op.num_positional
    new = [swapped(v, rest) for v in values]
    return op.call(*new[:n], **dict(zip(op.parameters[n:], new[n:], strict=True)))


def floating(t):
    return t.dtype.name.startswith(("float", "complex"))


def eager(function, tensors):
    given = [t.detach().clone().requires_grad_() if floating(t) else t for t in tensors]
    out = function(*given)
    total = sum([wf.abs(t).sum() for t in (out if isinstance(out, (tuple, list)) else [out])
                 if isinstance(t, wf.Tensor) and t.requires_grad])  # fmt: skip
    if isinstance(total, wf.Tensor):
        return wf.grad(total, [t for t in given if floating(t)], allow_unused=True)
    return None


def captured(function, tensors):
    return wf.function(lambda *given: eager(function, given))(*tensors)


def graph(function, tensors):
    declared = wf.Graph()
    with declared.as_default():
        fed = [wf.placeholder(t.dtype, (None, *t.shape[1:])) for t in tensors]
        out = function(*fed)
        fetches = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, wf.Tensor)]
    with wf.Session(declared) as session:
        return session.run(fetches, dict(zip(fed, tensors, strict=True)), timeout=20)


def repeat_each(x, huge):
    return wf.repeat(x, [huge] + [1] * (len(x) - 1))


def layer_calls(huge):
    """Functions and layers that make something by the number. Sizes of powers of two overflow to 0 when multiplied."""
    four, image = wf.ones(4), wf.ones((1, 4, 4, 4))
    calls = {
        "repeat": lambda x: wf.repeat(x, huge), "repeat each": lambda x: repeat_each(x, huge),
        "tile": lambda x: wf.tile(x, (4, huge)), "pad": lambda x: F.pad(x, (huge, huge)),
        "broadcast": lambda x: wf.broadcast_to(x, (huge, 4)) * 2, "irfft": lambda x: wf.fft.irfft(x + 0j, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, [four]
    calls = {
        "local_response_norm": lambda x: F.local_response_norm(x, huge),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, huge),
        "interpolate": lambda x: F.interpolate(x, size=huge, mode="bicubic"),
        "avg_pool2d": lambda x: F.avg_pool2d(x, huge),
        "unfold": lambda x: F.unfold(x, 2, padding=huge),
        "replication pad": lambda x: F.pad(x, (huge, 1), mode="replicate"),
    }
    for name, call in calls.items():
        yield f"{name} {huge}", call, [image]
    calls = {
        "configure_devices": lambda: wf.configure_devices(huge), "ref devices": lambda: wf.configure_devices(1, huge),
        "LSTM layers": lambda: nn.LSTM(2, 2, huge), "Linear": lambda: nn.Linear(huge, huge),
        "encoder layers": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 4), huge),
        "affine_grid": lambda: F.affine_grid(wf.ones((1, 2, 3)), (1, 1, huge, huge)), "eye": lambda: wf.eye(huge),
        "gpt layers": lambda: wf.models.GPT(4, 4, huge, 1, 4), "linspace": lambda: wf.linspace(0, 1, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, []


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(mode):
    warnings.simplefilter("ignore")
    run = {"eager": eager, "captured": captured, "graph": graph}[mode]
    calls = [
        (name, partial(call_op, op, values), leaves(values)) for name, op, values in op_calls(some=mode != "eager")
    ]
    calls += [call for huge in HUGE for call in layer_calls(huge)]
    wf.function(lambda x: wf.sum(x @ x))(wf.ones((100, 100)))  # load what is loaded on first use
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name, function, tensors in calls:
        print(name, flush=True)
        before = peak()
        try:
            run(function, tensors)
        except ALLOWED as error:
            if not str(error):
                print(f"wrong: {name}: {type(error).__name__} without a message", flush=True)
        except Exception as error:
            print(f"wrong: {name}: {type(error).__name__}: {error}", flush=True)
        if peak() - before > MEGABYTES:
            print(f"wrong: {name}: took {peak() - before:.0f} MB", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
